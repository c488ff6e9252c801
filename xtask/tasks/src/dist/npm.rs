//! The packages for Node: one with the helper, and for each platform one with its programs, of which npm
//! installs the one that fits.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use anyhow::Result;
use serde_json::{Value, json};

use super::files::{copy_tree, install};
use super::platform::Platform;
use super::release::{PROGRAMS, Programs, Release};
use xtask::workspace::{check_silently, root};

const HELPER: &str = "server/packages/npm";

/// Writes `trefoil-server-linux-ARCH-VERSION.tgz`.
pub(super) fn package_programs(release: &Release, programs: &Programs) -> Result<()> {
    let folder = release.work_folder();
    for program in PROGRAMS {
        install(&programs.folder.join(program), &folder.join("bin").join(program), 0o755)?;
    }
    let name = package_name(programs.platform);
    let helper: Value = serde_json::from_str(&fs::read_to_string(root().join(HELPER).join("package.json"))?)?;
    let mut package = json!({
        "name": name,
        "version": release.version,
        "description": format!("The programs of trefoil-server for Linux on {}", programs.platform.node),
        "license": helper["license"],
        "os": ["linux"],
        "cpu": [programs.platform.node],
        "files": ["bin"],
    });
    if !release.programs_are_static {
        package["libc"] = json!(["glibc"]);
    }
    fs::write(folder.join("package.json"), format!("{package:#}\n"))?;
    fs::write(folder.join("README.md"), format!("# {name}\n\nInstall `trefoil-server` instead.\n"))?;
    pack(release)
}

/// Writes `trefoil-server-VERSION.tgz`, which depends on the packages of these programs.
pub(super) fn package_helper(release: &Release, programs: &[Programs]) -> Result<()> {
    let folder = release.work_folder();
    copy_tree(&root().join(HELPER), &folder)?;
    install(&root().join("LICENSE"), &folder.join("LICENSE"), 0o644)?;
    let file = folder.join("package.json");
    let mut package: Value = serde_json::from_str(&fs::read_to_string(&file)?)?;
    package["version"] = release.version.into();
    let parts: BTreeMap<_, _> =
        programs.iter().map(|programs| (package_name(programs.platform), release.version)).collect();
    package["optionalDependencies"] = json!(parts);
    fs::write(&file, format!("{package:#}\n"))?;
    pack(release)
}

fn package_name(platform: &Platform) -> String {
    format!("trefoil-server-linux-{}", platform.node)
}

/// Packs the work folder, and removes it. Times in the archive are those that npm always gives.
fn pack(release: &Release) -> Result<()> {
    let folder = release.work_folder();
    let mut npm = Command::new("npm");
    npm.args(["pack", "--silent", "--pack-destination"]).arg(&release.dist).current_dir(&folder);
    check_silently(&mut npm)?;
    Ok(fs::remove_dir_all(folder)?)
}
