//! The Debian packages.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::files::{compress, install};
use super::release::{Programs, Release};
use xtask::workspace::{check, check_silently, root};

/// Builds the package of the server. `pages` are programs that print their completions and man pages here.
pub(super) fn package_server(release: &Release, programs: &Programs, pages: &Programs) -> Result<()> {
    let tree = release.work_folder();
    let deploy = root().join("server/deploy");
    install(&programs.folder.join("trefoil"), &tree.join("usr/bin/trefoil"), 0o755)?;
    for (from, to) in [
        ("systemd/trefoil.service", "usr/lib/systemd/system/trefoil.service"),
        ("systemd/trefoil.socket", "usr/lib/systemd/system/trefoil.socket"),
        ("systemd/trefoil.sysusers.conf", "usr/lib/sysusers.d/trefoil.conf"),
        ("systemd/trefoil.toml", "etc/trefoil/trefoil.toml"),
    ] {
        install(&deploy.join(from), &tree.join(to), 0o644)?;
    }
    let hook = "usr/share/trefoil/certbot-hook.sh";
    install(&deploy.join("systemd/certbot-hook.sh"), &tree.join(hook), 0o755)?;
    install_help(&tree, "trefoil", pages)?;
    for script in ["postinst", "prerm"] {
        install(&deploy.join("debian").join(script), &tree.join("DEBIAN").join(script), 0o755)?;
    }
    fs::write(tree.join("DEBIAN/conffiles"), "/etc/trefoil/trefoil.toml\n")?;
    let description = "sign-in, terminology and bulk export for health apps\n \
         An OAuth 2.0 and OpenID Connect authorization server with SMART App Launch,\n \
         a FHIR R4 terminology server, and the asynchronous Bulk FHIR export.";
    build(release, programs, &PackageControl { name: "trefoil", recommends: "systemd", description })
}

/// Builds the package of the terminal client.
pub(super) fn package_client(release: &Release, programs: &Programs, pages: &Programs) -> Result<()> {
    let tree = release.work_folder();
    install(&programs.folder.join("trefoil-tui"), &tree.join("usr/bin/trefoil-tui"), 0o755)?;
    install_help(&tree, "trefoil-tui", pages)?;
    let description = "terminal client for Trefoil and similar servers\n \
         Signs in users, sends terminology operations of FHIR R4, and runs bulk exports.";
    let control = PackageControl { name: "trefoil-tui", recommends: "ca-certificates", description };
    build(release, programs, &control)
}

/// Members of the control file besides version and architecture.
struct PackageControl {
    name: &'static str,
    recommends: &'static str,
    description: &'static str,
}

/// Installs completions, man pages and the licence of a program.
fn install_help(tree: &Path, name: &str, pages: &Programs) -> Result<()> {
    let program = pages.folder.join(name);
    install(&root().join("LICENSE"), &tree.join("usr/share/doc").join(name).join("copyright"), 0o644)?;
    let completions = tree.join("usr/share/bash-completion/completions").join(name);
    fs::create_dir_all(completions.parent().context("a file has a folder")?)?;
    fs::write(completions, Command::new(&program).args(["completions", "bash"]).output()?.stdout)?;
    let pages = tree.join("usr/share/man/man1");
    fs::create_dir_all(&pages)?;
    check(Command::new(&program).args(["man", "--out"]).arg(&pages))?;
    for page in fs::read_dir(&pages)? {
        compress(&page?.path())?;
    }
    Ok(())
}

/// Writes the control file, builds the package and removes its tree.
fn build(release: &Release, programs: &Programs, control: &PackageControl) -> Result<()> {
    let (tree, arch) = (release.work_folder(), programs.platform.debian);
    let PackageControl { name, recommends, description } = control;
    // Debian sorts `0.2.0~dev` before `0.2.0`, and `0.2.0-dev` after it.
    let version = release.version.replace('-', "~");
    let depends = if release.programs_are_static { "" } else { "Depends: libc6 (>= 2.36)\n" };
    let text = format!(
        "Package: {name}\nVersion: {version}\nArchitecture: {arch}\n\
         Maintainer: The Trefoil project <trefoil@trefoil.example>\nSection: net\nPriority: optional\n\
         {depends}Recommends: {recommends}\nDescription: {description}\n"
    );
    fs::create_dir_all(tree.join("DEBIAN"))?;
    fs::write(tree.join("DEBIAN/control"), text)?;
    check_silently(
        Command::new("dpkg-deb")
            .args(["--root-owner-group", "--build"])
            .arg(&tree)
            .arg(release.dist.join(format!("{name}_{version}_{arch}.deb")))
            .env("SOURCE_DATE_EPOCH", &release.time),
    )?;
    Ok(fs::remove_dir_all(tree)?)
}
