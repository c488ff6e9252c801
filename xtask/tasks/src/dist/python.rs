//! The wheels for Python: the helper with the programs of one platform.

use std::fs;

use anyhow::Result;

use super::files::{copy_tree, install};
use super::release::{PROGRAMS, Programs, Release};
use super::tools::Tools;
use xtask::workspace::{check_silently, root};

/// Writes `trefoil_server-VERSION-py3-none-PLATFORM.whl`.
pub(super) fn write_wheel(release: &Release, programs: &Programs, tools: &Tools) -> Result<()> {
    let folder = release.work_folder();
    copy_tree(&root().join("server/packages/python"), &folder)?;
    install(&root().join("LICENSE"), &folder.join("LICENSE"), 0o644)?;
    for program in PROGRAMS {
        install(&programs.folder.join(program), &folder.join("programs").join(program), 0o755)?;
    }
    let mut build = tools.hatchling();
    build.args(["build", "--target", "wheel", "--directory"]).arg(&release.dist).current_dir(&folder);
    build.env("SOURCE_DATE_EPOCH", &release.time);
    // Python reads `0.2.0-dev` as the version `0.2.0.dev0`.
    build.env("TREFOIL_VERSION", release.version);
    build.env("TREFOIL_PLATFORM", programs.platform.wheel_tag(release.programs_are_static));
    check_silently(&mut build)?;
    Ok(fs::remove_dir_all(folder)?)
}
