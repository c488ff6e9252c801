//! `cargo xtask dist`: what a release consists of, in `target/dist`. The same programs give the same files.
//!
//! | module | file |
//! |---|---|
//! | here | the archive of the programs, and `SHA256SUMS` |
//! | `debian` | the package of the server with its service, and that of the client |
//! | `image` | the image of the server for container runtimes |
//! | `files` | copies, archives and digests of files |
//! | `sbom` | the list of all crates in the server |
//! | [`trial`] | the package in a new system |

mod debian;
mod files;
mod image;
mod sbom;
pub mod trial;

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use self::files::{compress, install, pack};

use xtask::command_line::DistArgs;
use xtask::workspace::{cargo, check, root, target_dir};

/// The programs of the archive.
const PROGRAMS: [&str; 3] = ["trefoil", "trefoil-tui", "trefoil-conformance"];

/// Builds the programs and packs them.
pub fn run(args: &DistArgs) -> Result<()> {
    let time = commit_time()?;
    let programs = match &args.programs {
        Some(programs) => programs.clone(),
        None => {
            let mut build = cargo();
            build.args(["build", "--release", "--locked"]);
            // Paths of this machine and the time of the build would differ from one build to the next. C
            // compilers read the time from this variable.
            let remap = format!("--remap-path-prefix={}=/trefoil", root().display());
            build.env("SOURCE_DATE_EPOCH", &time);
            // Relocations in their packed form save 0.8 MB; glibc reads them since 2.36.
            build.env("RUSTFLAGS", format!("{remap} -Clink-arg=-Wl,-z,pack-relative-relocs"));
            check(build.args(PROGRAMS.iter().flat_map(|program| ["--bin", program])))?;
            target_dir().join("release")
        }
    };
    let dist = target_dir().join("dist");
    drop(fs::remove_dir_all(&dist));
    fs::create_dir_all(&dist)?;
    let version = env!("CARGO_PKG_VERSION");

    let archive = format!("trefoil-{version}-{}-linux", std::env::consts::ARCH);
    let folder = dist.join(&archive);
    for program in PROGRAMS {
        install(&programs.join(program), &folder.join(program), 0o755)?;
        check(Command::new("strip").arg(folder.join(program)))?;
    }
    for file in ["LICENSE", "CHANGELOG.md", "README.md"] {
        install(&root().join(file), &folder.join(file), 0o644)?;
    }
    let tar = dist.join(format!("{archive}.tar"));
    pack(&dist, Path::new(&archive), &tar, &time)?;
    compress(&tar)?;
    debian::package_server(&dist, &folder, version, &time)?;
    debian::package_client(&dist, &folder, version, &time)?;
    image::write(&dist, &folder.join("trefoil"), version, &time)?;
    sbom::write(&dist, version)?;
    fs::remove_dir_all(&folder)?;

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
