//! Copies, archives and digests of files.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use xtask::workspace::{check, root, tracked_files};

/// Packs a folder of `parent` as a tar archive. The bytes depend only on the files.
pub(super) fn pack(parent: &Path, folder: &Path, tar: &Path, time: &str) -> Result<()> {
    check(
        Command::new("tar")
            .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=ustar"])
            .arg(format!("--mtime=@{time}"))
            .arg("-cf")
            .arg(tar)
            .arg("-C")
            .args([parent, folder]),
    )
}

/// Replaces a file by its compressed form, whose bytes depend only on the content.
pub(super) fn compress(file: &Path) -> Result<()> {
    check(Command::new("gzip").args(["-9", "-n"]).arg(file))
}

/// The SHA-256 digest of a file, in hexadecimal digits.
pub(super) fn sha256(file: &Path) -> Result<String> {
    let output = Command::new("sha256sum").arg(file).output()?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.split_whitespace().next().context("sha256sum printed nothing")?.to_owned())
}

/// Copies a file, and creates its folder.
pub(super) fn install(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let folder = to.parent().context("a file has a folder")?;
    fs::create_dir_all(folder)?;
    fs::copy(from, to).with_context(|| format!("failed to copy {}", from.display()))?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(mode))?)
}

/// Copies the files of a folder of the sources, without those that git ignores.
pub(super) fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    for file in tracked_files()? {
        let path = root().join(&file);
        if let Ok(relative) = path.strip_prefix(from) {
            let mode = fs::metadata(&path)?.permissions().mode() & 0o755 | 0o644;
            install(&path, &to.join(relative), mode)?;
        }
    }
    Ok(())
}

/// Removes the symbols of a program of any platform, by the tool that comes with Rust.
pub(super) fn strip(program: &Path) -> Result<()> {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output()?;
    let sysroot = String::from_utf8(sysroot.stdout)?;
    let host = format!("lib/rustlib/{}-unknown-linux-gnu/bin/rust-objcopy", std::env::consts::ARCH);
    check(Command::new(Path::new(sysroot.trim()).join(host)).arg("--strip-all").arg(program))
}
