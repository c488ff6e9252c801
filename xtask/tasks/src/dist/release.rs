//! A release that is being written: its folder, its version, and the archives of its programs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::files::{compress, install, pack, strip};
use super::platform::Platform;
use xtask::workspace::root;

/// The programs of the archive.
pub(super) const PROGRAMS: [&str; 3] = ["trefoil", "trefoil-tui", "trefoil-conformance"];

/// A release that is being written.
pub(super) struct Release {
    /// Folder of the files.
    pub dist: PathBuf,
    pub version: &'static str,
    /// Time of all files, in seconds since 1970.
    pub time: String,
    /// The programs need no library of the system.
    pub programs_are_static: bool,
}

/// The programs of a platform, in the folder of its archive.
pub(super) struct Programs {
    pub platform: &'static Platform,
    pub folder: PathBuf,
}

impl Release {
    /// The name of an archive, without its ending.
    pub fn archive_name(&self, platform: &Platform) -> String {
        format!("trefoil-{}-{}-linux", self.version, platform.machine)
    }

    /// Packs the programs of a platform from a folder. Leaves their folder for the other packages.
    pub fn archive(&self, platform: &'static Platform, from: &Path) -> Result<Programs> {
        let name = self.archive_name(platform);
        let folder = self.dist.join(&name);
        for program in PROGRAMS {
            install(&from.join(program), &folder.join(program), 0o755)?;
            strip(&folder.join(program))?;
        }
        for file in ["LICENSE", "CHANGELOG.md", "README.md"] {
            install(&root().join(file), &folder.join(file), 0o644)?;
        }
        let tar = self.dist.join(format!("{name}.tar"));
        pack(&self.dist, Path::new(&name), &tar, &self.time)?;
        compress(&tar)?;
        Ok(Programs { platform, folder })
    }

    /// A folder for the files of a package, which does not exist yet.
    pub fn work_folder(&self) -> PathBuf {
        self.dist.join("package")
    }
}

/// The file that a package is made of, with its version in it.
pub(super) fn template(path: &str, values: &[(&str, &str)]) -> Result<String> {
    let mut text = fs::read_to_string(root().join("server/packages").join(path))?;
    for (name, value) in values {
        text = text.replace(name, value);
    }
    Ok(text)
}
