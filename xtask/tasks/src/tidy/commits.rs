//! Commit subjects: at most 72 characters in all commits since this file was added, and the form of
//! [`commit_subject`].

use anyhow::{Context as _, Result, bail};

use super::commit_subject;
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
        faults.extend(commit_subject::fault(&subject).map(|why| format!("commit {commit}: {why}")));
    }
    Ok(())
}

/// The commits after the one that added a file, with their subjects.
fn commits_since(file: &str) -> Result<Vec<(String, String)>> {
    let added = git(&["log", "--diff-filter=A", "--format=%H", "--", file])?;
    let Some(first) = added.lines().last() else {
        // The file is not committed yet.
        return Ok(Vec::new());
    };
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
