//! `cargo xtask dist`: what a release consists of, in `target/dist`. The same programs give the same files.
//!
//! | module | file |
//! |---|---|
//! | here | the archives of the programs, and `SHA256SUMS` |
//! | `platform` | the platforms, and their names |
//! | `tools` | the compiler for other platforms, and the builder of wheels |
//! | `debian` | the packages of the server with its service, and of the client |
//! | `image` | the image of the server for container runtimes |
//! | `npm` | the package for Node, and the packages of its programs |
//! | `python` | the wheels for Python |
//! | `script` | `install.sh`, and the formula for Homebrew |
//! | `files` | copies, archives and digests of files |
//! | `sbom` | the list of all crates in the server |
//! | [`installs`] | installs the packages from their files, and uses them in test projects |
//! | [`trial`] | the Debian package in a new system |

mod debian;
mod files;
mod image;
pub mod installs;
mod npm;
mod platform;
mod python;
mod sbom;
mod script;
mod tools;
pub mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use self::files::{compress, install, pack, strip};
use self::platform::Platform;
use self::tools::Tools;

use xtask::command_line::DistArgs;
use xtask::workspace::{root, target_dir};

/// The programs of the archive.
const PROGRAMS: [&str; 3] = ["trefoil", "trefoil-tui", "trefoil-conformance"];

/// A release that is being written.
struct Release {
    /// Folder of the files.
    dist: PathBuf,
    version: &'static str,
    /// Time of all files, in seconds since 1970.
    time: String,
    /// The programs need no library of the system.
    programs_are_static: bool,
    tools: Tools,
}

/// The programs of a platform, in the folder of its archive.
struct Programs {
    platform: &'static Platform,
    folder: PathBuf,
}

/// Builds the programs and packs them.
pub fn run(args: &DistArgs) -> Result<()> {
    let dist = target_dir().join("dist");
    let time = commit_time()?;
    let release = Release {
        dist: dist.clone(),
        version: env!("CARGO_PKG_VERSION"),
        programs_are_static: args.programs.is_none(),
        tools: Tools::install(args.programs.is_none())?,
        time,
    };
    let sources = match &args.programs {
        Some(folder) => vec![(Platform::of_this_machine()?, folder.clone())],
        None => release.tools.build_programs(&PROGRAMS, &release.time)?,
    };
    drop(fs::remove_dir_all(&dist));
    fs::create_dir_all(&dist)?;

    let archives =
        sources.iter().map(|(platform, from)| release.archive(platform, from)).collect::<Result<Vec<_>>>()?;
    let this_machine = Platform::of_this_machine()?.machine;
    for programs in &archives {
        // Programs for another platform cannot print their own pages.
        let is_here = |other: &&Programs| other.platform.machine == this_machine;
        let pages = archives.iter().find(is_here).unwrap_or(programs);
        debian::package_server(&release, programs, pages)?;
        debian::package_client(&release, programs, pages)?;
        npm::package_programs(&release, programs)?;
        python::write_wheel(&release, programs)?;
    }
    image::write(&release, &archives)?;
    npm::package_helper(&release, &archives)?;
    script::write(&release, &archives, args.releases.as_deref())?;
    sbom::write(&dist, release.version)?;
    for programs in &archives {
        fs::remove_dir_all(&programs.folder)?;
    }

    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(&dist)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    let sums = Command::new("sha256sum").args(&names).current_dir(&dist).output()?;
    fs::write(dist.join("SHA256SUMS"), &sums.stdout)?;
    print!("{}", String::from_utf8_lossy(&sums.stdout));
    Ok(())
}

impl Release {
    /// The name of an archive, without its ending.
    fn archive_name(&self, platform: &Platform) -> String {
        format!("trefoil-{}-{}-linux", self.version, platform.machine)
    }

    /// Packs the programs of a platform from a folder. Leaves their folder for the other packages.
    fn archive(&self, platform: &'static Platform, from: &Path) -> Result<Programs> {
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
    fn work_folder(&self) -> PathBuf {
        self.dist.join("package")
    }
}

/// The time of the commit, which all files get.
fn commit_time() -> Result<String> {
    let output = Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root()).output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Runs a command silently. Its output is in the error if it fails.
fn check_silently(command: &mut Command) -> Result<()> {
    let output = command.output().map_err(|error| anyhow::anyhow!("cannot start {command:?}: {error}"))?;
    let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    anyhow::ensure!(output.status.success(), "{command:?} ended with {}: {}", output.status, text.concat());
    Ok(())
}

/// The file that a package is made of, with its version in it.
fn template(path: &str, values: &[(&str, &str)]) -> Result<String> {
    let mut text = fs::read_to_string(root().join("server/packages").join(path))?;
    for (name, value) in values {
        text = text.replace(name, value);
    }
    Ok(text)
}
