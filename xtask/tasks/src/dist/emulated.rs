//! The server for the other processor, run by an emulator (`qemu-user` of Debian) and tested by the
//! conformance suite.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use test_server::{DataFolder, ServerProcess};

use super::platform::PLATFORMS;
use xtask::workspace::{build, check, target_dir};

/// Runs the programs that `cargo xtask dist` has built for other platforms. Returns what could not be tried.
pub fn run() -> Result<Vec<String>> {
    check(&mut build(&["trefoil-conformance"]))?;
    let mut left_out = Vec::new();
    for platform in PLATFORMS.iter().filter(|platform| platform.machine != std::env::consts::ARCH) {
        let emulator = format!("qemu-{}", platform.machine);
        if Command::new(&emulator).arg("--version").output().is_err() {
            left_out.push(format!("the programs for {}: {emulator} is not here", platform.machine));
            continue;
        }
        let folder = target_dir().join("emulated");
        drop(fs::remove_dir_all(&folder));
        fs::create_dir_all(&folder)?;
        let data = folder.join("data");
        let mut serve = Command::new(&emulator);
        serve.arg(target_dir().join(platform.target).join("release/trefoil"));
        serve.args(["serve", "--demo", "--listen", "127.0.0.1:0", "--data"]).arg(&data);
        let server = ServerProcess::start(serve.stderr(Stdio::null()))?;
        let mut profile = DataFolder(&data).demo()?;
        let ca = DataFolder(&data).ca()?.context("the server has no CA of its own")?;
        profile["ca"] = ca.to_string_lossy().into_owned().into();
        let file = folder.join("profile.json");
        fs::write(&file, profile.to_string())?;
        let mut suite = Command::new(target_dir().join("debug/trefoil-conformance"));
        check(suite.args(["run", "--target", server.address(), "--profile"]).arg(&file))?;
        ensure!(server.stop()?.success(), "the emulated server did not end well");
        fs::remove_dir_all(&folder)?;
    }
    Ok(left_out)
}
