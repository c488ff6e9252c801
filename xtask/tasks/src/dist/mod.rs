//! `cargo xtask dist`: what a release consists of, in `target/dist`. The same programs give the same files.
//!
//! | module | file |
//! |---|---|
//! | here | `SHA256SUMS` |
//! | `release` | the archives of the programs, and what all packages share |
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
//! | [`emulated`] | runs the programs for other processors, and tests them |
//! | [`trial`], `systemd` | the Debian package in a new system, and in one with systemd |
//! | `debian_root` | the system in a folder |

mod debian;
mod debian_root;
pub mod emulated;
mod files;
mod image;
pub mod installs;
mod npm;
mod platform;
mod python;
mod release;
mod sbom;
mod script;
mod systemd;
mod tools;
pub mod trial;

use std::fs;
use std::process::Command;

use anyhow::Result;

use self::platform::Platform;
use self::release::{PROGRAMS, Programs, Release};
use self::tools::Tools;

use xtask::command_line::DistArgs;
use xtask::workspace::{root, target_dir};

/// Builds the programs and packs them.
pub fn run(args: &DistArgs) -> Result<()> {
    let dist = target_dir().join("dist");
    let time = commit_time()?;
    let release = Release {
        dist: dist.clone(),
        version: env!("CARGO_PKG_VERSION"),
        programs_are_static: args.programs.is_none(),
        time,
    };
    let tools = Tools::install(args.programs.is_none())?;
    let sources = match &args.programs {
        Some(folder) => vec![(Platform::of_this_machine()?, folder.clone())],
        None => tools.build_programs(&PROGRAMS, &release.time)?,
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
        python::write_wheel(&release, programs, &tools)?;
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

/// The time of the commit, which all files get.
fn commit_time() -> Result<String> {
    let output = Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root()).output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
