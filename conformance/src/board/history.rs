//! The history of a board: a file with one JSON object for each run of a server.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::report::record::RunRecord;

/// One run of a server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HistoryLine {
    /// Time of its begin.
    pub time: Timestamp,
    /// Name of the server.
    pub server: String,
    /// Number of cases that passed.
    pub passed: usize,
    /// Cases that failed.
    pub failing: Vec<String>,
}

impl HistoryLine {
    /// The line of a run.
    pub fn of(server: &str, record: &RunRecord) -> Self {
        Self {
            time: record.started,
            server: server.to_owned(),
            passed: record.outcomes.iter().filter(|outcome| outcome.verdict.name() == "pass").count(),
            failing: record.failures().map(|(outcome, _)| outcome.id.clone()).collect(),
        }
    }
}

/// The lines of a file, and those that were added.
#[derive(Debug, Default)]
pub struct BoardHistory {
    lines: Vec<HistoryLine>,
    read: usize,
}

impl BoardHistory {
    /// Reads a file; a missing one is empty.
    ///
    /// # Errors
    /// An error if the file cannot be read, or a line is not one of a history.
    pub fn read(path: &Path) -> Result<Self> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => read.with_context(|| format!("failed to read {}", path.display()))?,
        };
        let lines: Vec<HistoryLine> = (1..)
            .zip(text.lines())
            .map(|(number, line)| {
                serde_json::from_str(line).with_context(|| format!("{}, line {number}", path.display()))
            })
            .collect::<Result<_>>()?;
        Ok(Self { read: lines.len(), lines })
    }

    /// Adds a run.
    pub fn add(&mut self, line: HistoryLine) {
        self.lines.push(line);
    }

    /// Since when each case of the latest run of a server fails without a pause.
    pub fn failing_since(&self, server: &str) -> BTreeMap<String, Timestamp> {
        let mut runs = self.lines.iter().rev().filter(|line| line.server == server);
        let Some(latest) = runs.next() else { return BTreeMap::new() };
        let earlier: Vec<_> = runs.collect();
        let since = |case: &String| {
            let still = earlier.iter().take_while(|line| line.failing.contains(case));
            still.last().map_or(latest.time, |line| line.time)
        };
        latest.failing.iter().map(|case| (case.clone(), since(case))).collect()
    }

    /// Appends the added lines to the file.
    ///
    /// # Errors
    /// An error if the file cannot be written.
    pub fn append(&self, path: &Path) -> Result<()> {
        let mut text = Vec::new();
        for line in &self.lines[self.read..] {
            serde_json::to_writer(&mut text, line)?;
            text.push(b'\n');
        }
        let file = std::fs::File::options().create(true).append(true).open(path);
        file.and_then(|mut file| file.write_all(&text))
            .with_context(|| format!("failed to write {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_dated_to_the_first_run_without_a_pause() {
        let line = |second: i64, failing: &[&str]| HistoryLine {
            time: Timestamp::from_second(second).unwrap(),
            server: "one".to_owned(),
            passed: 1,
            failing: failing.iter().map(|case| (*case).to_owned()).collect(),
        };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("history.jsonl");
        let mut history = BoardHistory::read(&file).unwrap();
        for added in [line(1, &["a", "b"]), line(2, &["a"]), line(3, &["a", "b", "c"])] {
            history.add(added);
        }
        history.append(&file).unwrap();
        let since = BoardHistory::read(&file).unwrap().failing_since("one");
        let seconds: Vec<_> = since.iter().map(|(case, time)| (case.as_str(), time.as_second())).collect();
        assert_eq!(seconds, [("a", 1), ("b", 3), ("c", 3)]);
        assert!(history.failing_since("two").is_empty());
    }
}
