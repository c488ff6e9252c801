//! The servers of Helios, which crates.io has as source text: `hts` for terminology, `hfs` for resources and
//! bulk export.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use xtask::workspace::{cargo, check, target_dir};

const VERSION: &str = "0.2.7";

/// A server of Helios.
#[derive(Clone, Copy)]
pub struct HeliosServer {
    program: &'static str,
    package: &'static str,
    /// Variable that names the program to the tests.
    pub variable: &'static str,
}

/// The terminology server.
pub const TERMINOLOGY: HeliosServer =
    HeliosServer { program: "hts", package: "helios-hts", variable: "TREFOIL_HTS" };
/// The FHIR server with bulk export.
pub const FHIR: HeliosServer =
    HeliosServer { program: "hfs", package: "helios-hfs", variable: "TREFOIL_HFS" };

impl HeliosServer {
    /// The program, if it has been built.
    pub fn built(self) -> Option<PathBuf> {
        let program = format!("{}{}", self.program, std::env::consts::EXE_SUFFIX);
        Some(folder().join("bin").join(program)).filter(|path| path.is_file())
    }

    /// The program. The first call builds it, which takes about half an hour on two cores.
    pub fn build(self) -> Result<PathBuf> {
        if let Some(program) = self.built() {
            return Ok(program);
        }
        let build = folder().join("build");
        let mut command = cargo();
        command.args(["install", self.package, "--locked", "--version", VERSION, "--root"]);
        check(command.arg(folder()).env("CARGO_TARGET_DIR", &build))
            .with_context(|| format!("{} cannot be built", self.package))?;
        // The intermediate files take gigabytes.
        fs::remove_dir_all(&build).context("failed to delete the intermediate files of Helios")?;
        self.built().with_context(|| format!("{} has no program {}", self.package, self.program))
    }
}

fn folder() -> PathBuf {
    target_dir().join("helios").join(VERSION)
}
