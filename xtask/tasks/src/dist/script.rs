//! `install.sh` and the formula for Homebrew, which download the archives from the address of the releases.

use std::fs;

use anyhow::Result;

use super::files::sha256;
use super::release::{Programs, Release, template};

/// The address in the formula before there is one.
const NOWHERE: &str = "https://trefoil.example/releases";

/// Writes both files. `releases` is the address of the folder that will contain the files.
pub(super) fn write(release: &Release, programs: &[Programs], releases: Option<&str>) -> Result<()> {
    let script = template("install.sh", &[("@RELEASES@", releases.unwrap_or_default())])?;
    fs::write(release.dist.join("install.sh"), script)?;

    let mut formula = template(
        "homebrew/trefoil.rb",
        &[("@VERSION@", release.version), ("@RELEASES@", releases.unwrap_or(NOWHERE))],
    )?;
    for Programs { platform, .. } in programs {
        let archive = release.dist.join(format!("{}.tar.gz", release.archive_name(platform)));
        formula = formula.replace(&format!("@SHA256_{}@", platform.machine), &sha256(&archive)?);
    }
    Ok(fs::write(release.dist.join("trefoil.rb"), formula)?)
}
