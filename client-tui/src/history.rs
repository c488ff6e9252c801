//! Terminology questions that the user sent before, with short answers: for completion, and to send them
//! again.
//!
//! They are stored in `trefoil-tui/history.json` in the state folder of the user, in a file that only the
//! user may read.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::state_file::{StateFile, state_folder};

/// Maximum number of questions.
pub const QUESTIONS_KEPT: usize = 500;
/// Maximum size of the file, in bytes.
const MAX_FILE_SIZE: u64 = 4 * 1024 * 1024;
/// Maximum length of an answer, in characters.
const MAX_ANSWER: usize = 200;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PastQuestion {
    pub asked_at: Timestamp,
    pub server: String,
    pub operation: String,
    /// Options of the subcommand with their values.
    pub options: BTreeMap<String, String>,
    /// The answer in a few words.
    pub answer: String,
}

impl PastQuestion {
    /// A question. Options with an empty value are left out, and a long answer is shortened.
    pub fn new(
        asked_at: Timestamp,
        server: &str,
        operation: &str,
        options: &[(&str, &str)],
        summary: &str,
    ) -> Self {
        let set_options = options.iter().filter(|(_, value)| !value.is_empty());
        Self {
            asked_at,
            server: server.to_owned(),
            operation: operation.to_owned(),
            options: set_options.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            answer: summary.chars().take(MAX_ANSWER).collect(),
        }
    }

    /// The value of an option; empty if the question does not have it.
    pub fn option(&self, name: &str) -> &str {
        self.options.get(name).map(String::as_str).unwrap_or_default()
    }

    /// The options in a few words: of a URL, only the last segment.
    pub fn summary(&self) -> String {
        let word = |(name, value): (&String, &String)| format!("{name}={}", last_segment(value));
        self.options.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    fn is_same_question(&self, other: &Self) -> bool {
        (&self.server, &self.operation, &self.options) == (&other.server, &other.operation, &other.options)
    }
}

/// The part of a URL after the last slash.
pub fn last_segment(url: &str) -> &str {
    url.trim_end_matches('/').rsplit('/').next().unwrap_or(url)
}

/// Adds a question at the beginning. It replaces an earlier one that is the same.
pub fn add(history: &mut Vec<PastQuestion>, question: PastQuestion) {
    history.retain(|candidate| !candidate.is_same_question(&question));
    history.insert(0, question);
    history.truncate(QUESTIONS_KEPT);
}

/// The file that contains the questions, the newest first.
#[derive(Clone, Debug)]
pub struct HistoryFile {
    file: StateFile,
}

impl HistoryFile {
    /// The file in the state folder.
    ///
    /// # Errors
    /// An error if the user has no home folder.
    pub fn of_user() -> io::Result<Self> {
        Ok(Self::at(&state_folder()?.join("history.json")))
    }

    /// The file at this path, which need not exist.
    pub fn at(path: &Path) -> Self {
        Self { file: StateFile::at(path, MAX_FILE_SIZE) }
    }

    /// Reads the questions.
    ///
    /// # Errors
    /// The reason why the file cannot be read.
    pub fn read(&self) -> Result<Vec<PastQuestion>, String> {
        let mut questions: Vec<PastQuestion> = self.file.read()?;
        questions.truncate(QUESTIONS_KEPT);
        Ok(questions)
    }

    /// Adds a question. Those that another process has added meanwhile are kept.
    ///
    /// # Errors
    /// The reason why the file cannot be read or written.
    pub fn add(&self, question: PastQuestion) -> Result<(), String> {
        let mut questions = self.read()?;
        add(&mut questions, question);
        self.file.write(&questions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(code: &str, summary: &str) -> PastQuestion {
        let options = [("system", "https://t.example/aids"), ("code", code), ("display", "")];
        PastQuestion::new(Timestamp::UNIX_EPOCH, "https://t.example", "lookup", &options, summary)
    }

    #[test]
    fn a_repeated_question_is_kept_once_with_its_last_answer() {
        let mut history = Vec::new();
        add(&mut history, question("a", "1"));
        add(&mut history, question("b", "2"));
        add(&mut history, question("a", "3"));
        let answers: Vec<_> = history.iter().map(|candidate| candidate.answer.as_str()).collect();
        assert_eq!(answers, ["3", "2"]);
        assert_eq!(history[0].summary(), "code=a system=aids");
        for number in 0..2 * QUESTIONS_KEPT {
            add(&mut history, question(&number.to_string(), ""));
        }
        assert_eq!(history.len(), QUESTIONS_KEPT);
    }

    #[test]
    fn the_file_is_private_and_a_damaged_one_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/history.json");
        let file = HistoryFile::at(&path);
        assert_eq!(file.read(), Ok(vec![]));
        file.add(question("a", "1")).unwrap();
        file.add(question("b", "2")).unwrap();
        assert_eq!(file.read(), Ok(vec![question("b", "2"), question("a", "1")]));
        #[cfg(unix)]
        {
            let mode =
                std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
            assert_eq!(mode & 0o777, 0o600);
        }
        std::fs::write(&path, "[{").unwrap();
        assert!(file.add(question("c", "3")).unwrap_err().contains("delete the file"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "[{");
    }
}
