//! Nodes that are upgraded one after the other from an earlier commit, under load.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use xtask::workspace::{cargo, check, root, target_dir};

/// The databases of releases; the last commit that wrote one is the version from which nodes are upgraded.
const GOLDEN: &str = "fixtures/golden/*-database.tar.gz";

/// Builds the server of the earlier commit, and runs the test with it.
pub fn run() -> Result<()> {
    let commit = git(&["log", "-1", "--format=%H", "--", GOLDEN])?;
    ensure!(!commit.is_empty(), "the history has no commit with {GOLDEN}; a shallow clone lacks it");
    let program = build(&commit)?;
    println!("upgrading from {}", git(&["log", "-1", "--format=%h of %ci", &commit])?);
    let mut command = cargo();
    command.args(["test", "--quiet", "-p", "trefoil-server", "--test", "it", "rolling_upgrade::"]);
    check(command.args(["--", "--nocapture"]).env("TREFOIL_EARLIER", program))
}

/// The program of a commit. The first call builds it in a working tree of its own.
fn build(commit: &str) -> Result<PathBuf> {
    let folder = target_dir().join("earlier");
    let program = folder.join(format!("trefoil-{commit}"));
    if program.is_file() {
        return Ok(program);
    }
    let (tree, target) = (folder.join("tree"), folder.join("target"));
    std::fs::create_dir_all(&folder)?;
    // A tree that an interrupted run has left.
    drop(std::fs::remove_dir_all(&tree));
    git(&["worktree", "prune"])?;
    git(&["worktree", "add", "--detach", &tree.to_string_lossy(), commit])?;
    let mut command = cargo();
    command.args(["build", "--quiet", "-p", "trefoil-server", "--bin", "trefoil"]).current_dir(&tree);
    let build_result = check(command.env("CARGO_TARGET_DIR", &target));
    if build_result.is_ok() {
        std::fs::rename(target.join("debug/trefoil"), &program)?;
    }
    git(&["worktree", "remove", "--force", &tree.to_string_lossy()])?;
    // The intermediate files take several GB.
    std::fs::remove_dir_all(&target).context("failed to delete the intermediate files")?;
    build_result.map(|()| program)
}

/// Runs git in the folder of the workspace, and returns its output.
fn git(args: &[&str]) -> Result<String> {
    let output =
        Command::new("git").args(args).current_dir(root()).output().context("git cannot be started")?;
    ensure!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
