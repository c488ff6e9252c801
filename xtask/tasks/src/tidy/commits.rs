//! Commits: subjects of at most 72 characters and of the form of [`commit_subject`], and a body where
//! [`commit_body`] demands one. Each rule holds for the commits after the one that added its file.

use anyhow::{Context as _, Result, bail};

use super::{commit_body, commit_subject};
use xtask::workspace::root;

const SUBJECT_CHARACTERS: usize = 72;

/// Checks the subjects of all commits after those that added the rules.
pub fn check(faults: &mut Vec<String>) -> Result<()> {
    for (commit, subject) in commits_since("xtask/src/tidy/commits.rs")? {
        let length = subject.chars().count();
        if length > SUBJECT_CHARACTERS {
            faults.push(format!(
                "commit {commit}: the subject has {length} characters, more than {SUBJECT_CHARACTERS}"
            ));
        }
    }
    for (commit, subject) in commits_since("xtask/src/tidy/commit_subject.rs")? {
        faults.extend(commit_subject::fault(&subject).map(|reason| format!("commit {commit}: {reason}")));
    }
    if let Some(first) = commit_that_added("xtask/tasks/src/tidy/commit_body.rs")? {
        let log =
            git(&["log", "--no-merges", "--shortstat", commit_body::FORMAT, &format!("{first}..HEAD")])?;
        faults.extend(commit_body::faults(&log));
    }
    Ok(())
}

/// The first commit that added a file, or `None` if the file is not committed yet.
fn commit_that_added(file: &str) -> Result<Option<String>> {
    let added = git(&["log", "--diff-filter=A", "--format=%H", "--", file])?;
    Ok(added.lines().last().map(str::to_owned))
}

/// The commits after the one that added a file, with their subjects.
fn commits_since(file: &str) -> Result<Vec<(String, String)>> {
    let Some(first) = commit_that_added(file)? else { return Ok(Vec::new()) };
    let log = git(&["log", "--format=%h %s", &format!("{first}..HEAD")])?;
    let parts =
        |line: &str| line.split_once(' ').map(|(commit, subject)| (commit.to_owned(), subject.to_owned()));
    Ok(log.lines().filter_map(parts).collect())
}

fn git(args: &[&str]) -> Result<String> {
    let output = std::process::Command::new("git").args(args).current_dir(root()).output();
    let output = output.context("failed to run git")?;
    if !output.status.success() {
        bail!("git {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}
