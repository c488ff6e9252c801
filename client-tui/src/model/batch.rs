//! State of the batch view of the Codes screen: a file of codes and the results so far.

use command_line::text::shell_word;

use super::server_facts::ServerFacts;
use crate::batch::{BatchDefaults, BatchResult, BatchSummary, BatchVerdict};
use crate::form::{Form, FormField};
use crate::profile::FormDefaults;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchView {
    pub open: bool,
    pub form: Form,
    pub state: BatchState,
    /// Number of rows in the file.
    pub rows: u64,
    pub results: Vec<BatchResult>,
    pub summary: BatchSummary,
    pub only_failures: bool,
    /// Index of the selected row among the visible ones.
    pub selected: usize,
    /// Number of batches so far, which is the id of the last one.
    pub id: u64,
}

/// State of the last batch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names describe the states")]
pub enum BatchState {
    None,
    Running,
    Done,
    /// The file cannot be read; the value is the message.
    Failed(String),
    Stopped,
}

impl BatchView {
    pub(super) fn new(examples: &FormDefaults) -> Self {
        Self {
            open: false,
            form: Form::new(vec![
                FormField::new("file", "CSV with the column code, or one Coding on each line", ""),
                FormField::new("url", "ValueSet, for rows without one", &examples.value_set),
                FormField::new("system", "code system, for rows without one", &examples.system),
            ]),
            state: BatchState::None,
            rows: 0,
            results: Vec::new(),
            summary: BatchSummary::default(),
            only_failures: false,
            selected: 0,
            id: 0,
        }
    }

    /// Starts a batch: empties the table, and returns the new id.
    pub fn start(&mut self) -> u64 {
        self.id += 1;
        self.state = BatchState::Running;
        self.rows = 0;
        self.results.clear();
        self.summary = BatchSummary::default();
        self.selected = 0;
        self.id
    }

    /// The values for rows that do not have them.
    pub fn defaults(&self) -> BatchDefaults {
        BatchDefaults {
            url: self.form.value("url"),
            system: self.form.value("system"),
            ..BatchDefaults::default()
        }
    }

    /// The command that does the same as the form; `None` before the first batch.
    pub fn sent_command(&self, about: &ServerFacts) -> Option<String> {
        let BatchDefaults { url, system, .. } = self.defaults();
        let command = format!("validate-batch {}", shell_word(self.form.value("file")));
        (self.id > 0).then(|| about.command(&command, &[("url", &url), ("system", &system)]))
    }

    pub fn add(&mut self, result: BatchResult) {
        self.summary.add(result.verdict());
        self.results.push(result);
    }

    pub fn visible_count(&self) -> usize {
        match self.only_failures {
            true => (self.summary.invalid + self.summary.failed) as usize,
            false => self.results.len(),
        }
    }

    pub fn visible(&self) -> impl Iterator<Item = &BatchResult> {
        let only_failures = self.only_failures;
        self.results.iter().filter(move |row| !only_failures || row.verdict() != BatchVerdict::Valid)
    }

    pub fn is_running(&self) -> bool {
        self.state == BatchState::Running
    }
}
