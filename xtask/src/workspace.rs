//! The workspace: its folders and files, and the commands that build and check it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// The clippy command for the whole workspace, with warnings as errors.
pub fn lint() -> Command {
    let mut command = cargo();
    command.args(["clippy", "--workspace", "--all-targets", "--quiet"]);
    command.args(["--", "--deny", "warnings"]);
    command
}

/// The rustdoc command for the own crates: a link of a comment to an item that does not exist is an error.
/// Links from public to private items are not, because the documentation is for contributors.
pub fn document() -> Command {
    let mut command = cargo();
    command.args(["doc", "--workspace", "--no-deps", "--document-private-items", "--quiet"]);
    command.env("RUSTDOCFLAGS", "--deny warnings --allow rustdoc::private-intra-doc-links");
    command
}

/// The command that builds programs with the features of the whole workspace, so that Cargo does not rebuild
/// crates that another command has built.
pub fn build(programs: &[&str]) -> Command {
    let mut command = build_with_progress(programs);
    command.arg("--quiet");
    command
}

/// The same command with the progress that Cargo shows.
pub fn build_with_progress(programs: &[&str]) -> Command {
    let mut command = cargo();
    command.args(["build", "--workspace"]);
    command.args(programs.iter().flat_map(|program| ["--bin", program]));
    command
}

/// A cargo command that runs in the folder of the workspace.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// The folder of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the folder of xtask is in the workspace")
        .to_owned()
}

/// The paths of all files that git tracks or would track.
pub fn tracked_files() -> Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .context("failed to ask git for the files")?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().map(str::to_owned).filter(|file| root().join(file).is_file()).collect())
}

/// Returns Cargo's target folder.
pub fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Runs a command. Returns an error with the command if it fails.
pub fn check(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("failed to start {name}"))?;
    if !status.success() {
        let args: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
        bail!("{name} {} ended with {status}", args.join(" "));
    }
    Ok(())
}

/// Runs a command silently. Its output is in the error if it fails.
///
/// # Errors
/// An error if the command cannot be started or fails.
pub fn check_silently(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    if !output.status.success() {
        bail!("{command:?} ended with {}: {}", output.status, text.concat());
    }
    Ok(())
}
