//! The path of the program of the server.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use serde_json::Value;

/// Why the server could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Cargo could not be started.
    #[error("cannot start cargo: {0}; set TREFOIL_BIN to the program of the server")]
    Start(#[source] io::Error),
    /// Cargo failed. It has printed the reason.
    #[error("`cargo build --workspace --bin trefoil` ended with {0}; its messages are above")]
    Failed(ExitStatus),
    /// Cargo succeeded without an executable file.
    #[error("cargo built the server, but did not report its path; set TREFOIL_BIN to the program")]
    NoPath,
}

/// The program of the server: the value of `TREFOIL_BIN`, or `trefoil` in the folder of this program or in
/// its parent (Cargo puts test programs one level below), or the result of [`build`].
///
/// # Errors
/// The errors of [`build`].
pub fn program() -> Result<PathBuf, BuildError> {
    if let Some(path) = std::env::var_os("TREFOIL_BIN") {
        return Ok(path.into());
    }
    let name = format!("trefoil{}", std::env::consts::EXE_SUFFIX);
    let own = std::env::current_exe().unwrap_or_default();
    let candidates = own.ancestors().skip(1).take(2).map(|folder| folder.join(&name));
    candidates.into_iter().find(|path| path.is_file()).map_or_else(build, Ok)
}

/// Builds the server with Cargo unless it is up to date, with optimisation if this program has it, and
/// returns its path.
///
/// # Errors
/// An error if Cargo does not start, fails, or reports no executable file.
pub fn build() -> Result<PathBuf, BuildError> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    // With the features of the whole workspace, because Cargo would otherwise build crates twice that the
    // tests have already built.
    cargo.args(["build", "--quiet", "--workspace", "--bin", "trefoil"]);
    cargo.args(["--message-format", "json-render-diagnostics"]);
    cargo.args((!cfg!(debug_assertions)).then_some("--release"));
    cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../..")).stderr(Stdio::inherit());
    let output = cargo.output().map_err(BuildError::Start)?;
    if !output.status.success() {
        return Err(BuildError::Failed(output.status));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut servers = artifacts.filter(|message| message["target"]["name"] == "trefoil");
    let path = servers.find_map(|message| message["executable"].as_str().map(PathBuf::from));
    path.ok_or(BuildError::NoPath)
}
