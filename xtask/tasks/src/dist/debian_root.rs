//! A minimal Debian system in a folder, in which a package is tried.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use xtask::workspace::{check, target_dir};

/// Replaces a folder by a copy of a minimal system of a Debian release. The system is kept in the target
/// folder under its name. `packages` are those besides Debian's smallest set, with commas between them.
///
/// # Errors
/// An error if debootstrap fails, or the folder cannot be written.
pub(super) fn copy_minimal_debian(name: &str, debian: &str, packages: &str, folder: &Path) -> Result<()> {
    let minimal = target_dir().join(name);
    if !minimal.exists() {
        let part = minimal.with_extension("part");
        let log = fs::File::create(target_dir().join("debootstrap.log"))?;
        let mut command = Command::new("debootstrap");
        command.args(["--variant=minbase", &format!("--include={packages}"), debian]).arg(&part);
        check(command.stdout(log)).context("debootstrap failed; see debootstrap.log in the target folder")?;
        fs::rename(&part, &minimal)?;
    }
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    check(Command::new("cp").arg("-a").arg(&minimal).arg(folder))
}
