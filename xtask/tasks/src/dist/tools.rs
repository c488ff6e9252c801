//! The tools that a release needs besides Rust, in an environment of Python of their own: cargo-zigbuild with
//! zig, a C compiler and linker for all platforms, and hatchling, which builds wheels.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::platform::{PLATFORMS, Platform};
use xtask::workspace::{cargo, check, check_silently, root, target_dir};

pub(super) struct Tools {
    programs: PathBuf,
}

impl Tools {
    /// Installs the tools, those of the compiler only if programs are to be built.
    pub fn install(builds_programs: bool) -> Result<Self> {
        let environment = target_dir().join("dist-tools");
        check_silently(Command::new("python3").args(["-m", "venv"]).arg(&environment))
            .context("Python with its module venv is needed")?;
        let tools = Self { programs: environment.join("bin") };
        let mut lists = vec!["python/requirements.txt"];
        lists.extend(builds_programs.then_some("requirements.txt"));
        for list in lists {
            let mut pip = Command::new(tools.programs.join("python"));
            pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]);
            check_silently(pip.arg(root().join("server/packages").join(list)))?;
        }
        Ok(tools)
    }

    /// The command that builds a wheel.
    pub fn hatchling(&self) -> Command {
        Command::new(self.programs.join("hatchling"))
    }

    /// Builds programs for all platforms, and returns their folders.
    pub fn build_programs(&self, programs: &[&str], time: &str) -> Result<Vec<(&'static Platform, PathBuf)>> {
        let path = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths([self.programs.clone()].into_iter().chain(env::split_paths(&path)))?;
        PLATFORMS
            .iter()
            .map(|platform| {
                check_silently(Command::new("rustup").args(["target", "add", platform.target]))
                    .with_context(|| format!("the standard library for {} is needed", platform.target))?;
                let mut build = cargo();
                build.args(["zigbuild", "--release", "--locked", "--target", platform.target]);
                build.args(programs.iter().flat_map(|program| ["--bin", program]));
                // Paths of this machine and the time of the build would differ from one build to the next. C
                // compilers read the time from this variable.
                build.env("SOURCE_DATE_EPOCH", time);
                build.env("RUSTFLAGS", format!("--remap-path-prefix={}=/trefoil", root().display()));
                check(build.env("PATH", &path))?;
                Ok((platform, target_dir().join(platform.target).join("release")))
            })
            .collect()
    }
}
