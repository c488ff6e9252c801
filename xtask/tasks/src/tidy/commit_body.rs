//! The bodies of commits: a commit with many changed lines says what was wrong, and why it was changed this
//! way.

/// Number of changed lines from which a commit needs a body.
const CHANGED_LINES: u32 = 50;
/// Minimum number of words of a body.
const WORDS: usize = 8;

/// The format of `git log --shortstat` that [`faults`] reads.
pub const FORMAT: &str = "--format=%x02%h%x01%b%x01";

/// The faults of the commits in a log.
pub fn faults(log: &str) -> impl Iterator<Item = String> {
    log.split('\u{2}').filter_map(fault)
}

fn fault(entry: &str) -> Option<String> {
    let mut parts = entry.split('\u{1}');
    let (commit, body, statistics) = (parts.next()?.trim(), parts.next()?, parts.next()?);
    let lines = changed_lines(statistics);
    if lines < CHANGED_LINES || body.split_whitespace().count() >= WORDS {
        return None;
    }
    Some(format!(
        "commit {commit}: it changes {lines} lines and has no body; say what was wrong and why you changed it \
         this way (git commit --amend)"
    ))
}

/// The number of lines in `3 files changed, 20 insertions(+), 4 deletions(-)`.
fn changed_lines(statistics: &str) -> u32 {
    let counts = statistics.split(',').filter(|part| part.contains("insertion") || part.contains("deletion"));
    counts.filter_map(|part| part.trim().split(' ').next()?.parse::<u32>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_commits_need_a_body() {
        const REASON: &str = "The lease ended while the disk was slow, and two nodes wrote.";
        #[track_caller]
        fn check(body: &str, statistics: &str, expected: usize) {
            let log = format!("\u{2}abc1234\u{1}{body}\u{1}\n\n {statistics}\n");
            assert_eq!(faults(&log).count(), expected, "{log}");
        }
        check("", "1 file changed, 49 insertions(+)", 0);
        check("", "1 file changed, 50 deletions(-)", 1);
        check("", "2 files changed, 30 insertions(+), 20 deletions(-)", 1);
        check("See above.", "2 files changed, 30 insertions(+), 20 deletions(-)", 1);
        check(REASON, "2 files changed, 300 insertions(+), 20 deletions(-)", 0);
        check("", "", 0);
    }

    #[test]
    fn each_commit_of_a_log_is_checked() {
        let large = " 1 file changed, 60 insertions(+)\n";
        let log = format!("\u{2}a\u{1}\u{1}\n{large}\u{2}b\u{1}\u{1}\n\u{2}c\u{1}\u{1}\n{large}");
        let commits: Vec<_> = faults(&log).map(|fault| fault[..8].to_owned()).collect();
        assert_eq!(commits, ["commit a", "commit c"]);
    }
}
