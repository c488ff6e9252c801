//! `cargo xtask dist`: what a release consists of, in `target/dist`: an archive of the programs, a Debian
//! package of the server with its service, and `SHA256SUMS`. Two builds of one commit have the same bytes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::workspace::{cargo, check, root, target_dir};

#[derive(clap::Args)]
pub struct DistArgs {
    /// Folder with the programs, which are built if it is not given.
    #[arg(long)]
    programs: Option<PathBuf>,
}

/// The programs of the archive.
const PROGRAMS: [&str; 3] = ["trefoil", "trefoil-tui", "trefoil-conformance"];

/// Builds the programs and packs them.
pub fn run(args: &DistArgs) -> Result<()> {
    let programs = match &args.programs {
        Some(programs) => programs.clone(),
        None => {
            let mut build = cargo();
            build.args(["build", "--release", "--locked"]);
            // Paths of this machine in the programs would differ on another one.
            let remap = format!("--remap-path-prefix={}=/trefoil", root().display());
            build.env("RUSTFLAGS", remap);
            check(build.args(PROGRAMS.iter().flat_map(|program| ["--bin", program])))?;
            target_dir().join("release")
        }
    };
    let dist = target_dir().join("dist");
    drop(fs::remove_dir_all(&dist));
    fs::create_dir_all(&dist)?;
    let version = env!("CARGO_PKG_VERSION");
    let time = commit_time()?;

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
    check(
        Command::new("tar")
            .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=ustar"])
            .arg(format!("--mtime=@{time}"))
            .arg("-cf")
            .arg(&tar)
            .arg("-C")
            .args([dist.as_path(), Path::new(&archive)]),
    )?;
    check(Command::new("gzip").args(["-9", "-n"]).arg(&tar))?;
    package(&dist, &folder, version, &time)?;
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

/// Copies a file, and creates its folder.
fn install(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let folder = to.parent().context("a file has a folder")?;
    fs::create_dir_all(folder)?;
    fs::copy(from, to).with_context(|| format!("failed to copy {}", from.display()))?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(mode))?)
}

/// Builds the Debian package of the server from the folder of the archive.
fn package(dist: &Path, programs: &Path, version: &str, time: &str) -> Result<()> {
    let arch = Command::new("dpkg").arg("--print-architecture").output()?;
    let arch = String::from_utf8(arch.stdout)?.trim().to_owned();
    let tree = dist.join("package");
    let deploy = root().join("server/deploy");
    let program = tree.join("usr/bin/trefoil");
    install(&programs.join("trefoil"), &program, 0o755)?;
    for (from, to) in [
        ("systemd/trefoil.service", "usr/lib/systemd/system/trefoil.service"),
        ("systemd/trefoil.socket", "usr/lib/systemd/system/trefoil.socket"),
        ("systemd/trefoil.sysusers.conf", "usr/lib/sysusers.d/trefoil.conf"),
        ("systemd/trefoil.toml", "etc/trefoil/trefoil.toml"),
    ] {
        install(&deploy.join(from), &tree.join(to), 0o644)?;
    }
    install(&root().join("LICENSE"), &tree.join("usr/share/doc/trefoil/copyright"), 0o644)?;
    let completions = tree.join("usr/share/bash-completion/completions/trefoil");
    fs::create_dir_all(completions.parent().context("a file has a folder")?)?;
    fs::write(completions, Command::new(&program).args(["completions", "bash"]).output()?.stdout)?;
    let pages = tree.join("usr/share/man/man1");
    fs::create_dir_all(&pages)?;
    check(Command::new(&program).args(["man", "--out"]).arg(&pages))?;
    for page in fs::read_dir(&pages)? {
        check(Command::new("gzip").args(["-9", "-n"]).arg(page?.path()))?;
    }
    for script in ["postinst", "prerm"] {
        install(&deploy.join("debian").join(script), &tree.join("DEBIAN").join(script), 0o755)?;
    }
    fs::write(tree.join("DEBIAN/conffiles"), "/etc/trefoil/trefoil.toml\n")?;
    let control = format!(
        "Package: trefoil\nVersion: {version}\nArchitecture: {arch}\nMaintainer: The Trefoil project <trefoil@trefoil.example>\n\
         Section: net\nPriority: optional\nDepends: libc6\nRecommends: systemd\n\
         Description: sign-in, terminology and bulk export for health apps\n \
         An OAuth 2.0 and OpenID Connect authorization server with SMART App Launch,\n \
         a FHIR R4 terminology server, and the asynchronous Bulk FHIR export.\n"
    );
    fs::write(tree.join("DEBIAN/control"), control)?;
    check(
        Command::new("dpkg-deb")
            .args(["--root-owner-group", "--build"])
            .arg(&tree)
            .arg(dist.join(format!("trefoil_{version}_{arch}.deb")))
            .env("SOURCE_DATE_EPOCH", time),
    )?;
    Ok(fs::remove_dir_all(&tree)?)
}
