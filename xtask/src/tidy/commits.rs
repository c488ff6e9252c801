//! Length of commit subjects: at most 72 characters, in all commits since this file was added.

use anyhow::{Context as _, Result, bail};

use crate::workspace::root;

const SUBJECT_CHARACTERS: usize = 72;

/// Checks the subjects of all commits after the one that added this file.
pub fn check(faults: &mut Vec<String>) -> Result<()> {
    let added = git(&["log", "--diff-filter=A", "--format=%H", "--", "xtask/src/tidy/commits.rs"])?;
    let Some(first) = added.lines().last() else {
        // The file is not committed yet.
        return Ok(());
    };
    for line in git(&["log", "--format=%h %s", &format!("{first}..HEAD")])?.lines() {
        let (commit, subject) = line.split_once(' ').unwrap_or((line, ""));
        let length = subject.chars().count();
        if length > SUBJECT_CHARACTERS {
            faults.push(format!(
                "commit {commit}: the subject has {length} characters, more than {SUBJECT_CHARACTERS}"
            ));
        }
    }
    Ok(())
}

fn git(args: &[&str]) -> Result<String> {
    let output = std::process::Command::new("git").args(args).current_dir(root()).output();
    let output = output.context("failed to run git")?;
    if !output.status.success() {
        bail!("git {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}
