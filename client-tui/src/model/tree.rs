//! State of the hierarchy browser: one concept with its neighbours, or the path between two codes.

use jiff::Timestamp;
use serde_json::Value;

use super::answer::Answer;
use super::codes::{Question, SentQuestion, TokenChoice, parameters_resource, question};
use super::server_facts::ServerFacts;
use crate::api::{ConceptLabel, HierarchyConcept, HierarchyPath, HierarchyQuery, PathQuery};
use crate::form::{Form, FormField};
use crate::profile::FormDefaults;

/// Maximum number of concepts to which the user can return.
const HISTORY_KEPT: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeScreen {
    pub form: Form,
    pub shown: TreeContent,
    /// Index of the selected concept in [`Self::rows`].
    pub selected: usize,
    /// Number of lines by which an error is scrolled.
    pub scroll: u16,
    /// Concepts that were shown before, the last one at the end.
    pub history: Vec<HierarchyQuery>,
    /// Id of the last question or search.
    last_id: u64,
}

/// The last question with its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the types describe the questions")]
pub enum TreeContent {
    Nothing,
    Concept(SentQuestion<HierarchyQuery, HierarchyConcept>),
    Path(SentQuestion<PathQuery, HierarchyPath>),
}

impl TreeScreen {
    pub(super) fn new(examples: &FormDefaults) -> Self {
        let (system, code) = match examples.hierarchy.is_empty() {
            true => (&examples.system, &examples.code),
            false => (&examples.hierarchy, &examples.code_b),
        };
        Self {
            form: Form::new(vec![
                FormField::new("system", "canonical URL of the code system", system),
                FormField::new("version", "version of the code system; optional", ""),
                FormField::new("code", "a code, or text to search for", code),
                FormField::new("path to", "another code; Enter draws the path", ""),
            ]),
            shown: TreeContent::Nothing,
            selected: 0,
            scroll: 0,
            history: Vec::new(),
            last_id: 0,
        }
    }

    /// A new id. Answers with an earlier one are dropped.
    pub fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    pub fn is_last(&self, id: u64) -> bool {
        self.last_id == id
    }

    /// The question for the concept in the form.
    pub fn concept_query(&self) -> HierarchyQuery {
        HierarchyQuery::from_form(&self.form)
    }

    /// Registers a question for a concept as sent, and returns its id. The concept that was shown is added to
    /// the history if `keep` is true.
    pub fn send_concept(
        &mut self,
        question: HierarchyQuery,
        token: TokenChoice,
        now: Timestamp,
        keep: bool,
    ) -> u64 {
        if let TreeContent::Concept(shown) = &self.shown
            && keep
            && shown.question != question
        {
            self.history.push(shown.question.clone());
            if self.history.len() > HISTORY_KEPT {
                self.history.remove(0);
            }
        }
        for (name, value) in
            [("system", &question.system), ("version", &question.version), ("code", &question.code)]
        {
            self.form.set(name, value);
        }
        let id = self.next_id();
        self.shown = TreeContent::Concept(SentQuestion {
            id,
            question,
            token,
            sent_at: now,
            answer: Answer::Waiting { since: now },
        });
        (self.selected, self.scroll) = (0, 0);
        id
    }

    /// Registers the question for the path in the form as sent, and returns it with its id.
    pub fn send_path(&mut self, token: TokenChoice, now: Timestamp) -> (u64, PathQuery) {
        let question = PathQuery::from_form(&self.form);
        let id = self.next_id();
        let sent_question = SentQuestion {
            id,
            question: question.clone(),
            token,
            sent_at: now,
            answer: Answer::Waiting { since: now },
        };
        self.shown = TreeContent::Path(sent_question);
        (self.selected, self.scroll) = (0, 0);
        (id, question)
    }

    /// Stores an answer. The answer to an earlier question is dropped. The first child is selected.
    pub fn receive_concept(&mut self, id: u64, outcome: Answer<HierarchyConcept>) {
        if let TreeContent::Concept(sent) = &mut self.shown
            && sent.id == id
        {
            if let Answer::Done(concept) = &outcome {
                self.selected = if concept.children.is_empty() { 0 } else { concept.parents.len() };
            }
            sent.answer = outcome;
        }
    }

    /// Stores an answer. The answer to an earlier question is dropped.
    pub fn receive_path(&mut self, id: u64, outcome: Answer<HierarchyPath>) {
        if let TreeContent::Path(sent) = &mut self.shown
            && sent.id == id
        {
            sent.answer = outcome;
        }
    }

    /// The concepts that can be opened: the neighbours of the concept, or the concepts of the path.
    pub fn rows(&self) -> Vec<&ConceptLabel> {
        match &self.shown {
            TreeContent::Concept(SentQuestion { answer: Answer::Done(concept), .. }) => {
                concept.parents.iter().chain(&concept.children).collect()
            }
            TreeContent::Path(SentQuestion { answer: Answer::Done(path), .. }) => path.chain.iter().collect(),
            _ => Vec::new(),
        }
    }

    /// The question for the selected concept below or above the shown one, or for the first one there.
    pub fn neighbour(&self, below: bool) -> Option<HierarchyQuery> {
        let TreeContent::Concept(SentQuestion { answer: Answer::Done(concept), .. }) = &self.shown else {
            return None;
        };
        let parents = concept.parents.len();
        let row = match below {
            true => self.selected.max(parents),
            false if parents == 0 => return None,
            false if self.selected < parents => self.selected,
            false => 0,
        };
        self.query_of_row(row)
    }

    /// The message of the last question, if it failed.
    pub fn error(&self) -> Option<&str> {
        match &self.shown {
            TreeContent::Concept(SentQuestion { answer: Answer::Failed(reason), .. })
            | TreeContent::Path(SentQuestion { answer: Answer::Failed(reason), .. }) => Some(reason),
            _ => None,
        }
    }

    /// The question for the selected concept, in the same code system as the answer.
    pub fn selected_query(&self) -> Option<HierarchyQuery> {
        self.query_of_row(self.selected)
    }

    fn query_of_row(&self, row: usize) -> Option<HierarchyQuery> {
        let code = self.rows().get(row)?.code.clone();
        let (system, version) = match &self.shown {
            TreeContent::Concept(sent) => (&sent.question.system, &sent.question.version),
            TreeContent::Path(sent) => (&sent.question.system, &sent.question.version),
            TreeContent::Nothing => return None,
        };
        Some(HierarchyQuery { system: system.clone(), version: version.clone(), code })
    }

    /// The last question for a concept as a Parameters resource. A path has no operation.
    pub fn sent_parameters(&self) -> Option<Value> {
        match &self.shown {
            TreeContent::Concept(sent) => Some(parameters_resource(&sent.question)),
            TreeContent::Nothing | TreeContent::Path(_) => None,
        }
    }

    /// The command that sends the last question.
    pub fn sent_command(&self, about: &ServerFacts) -> Option<String> {
        match &self.shown {
            TreeContent::Nothing => None,
            TreeContent::Concept(sent) => {
                Some(about.command(HierarchyQuery::COMMAND, &sent.question.options()))
            }
            TreeContent::Path(sent) => Some(about.command(PathQuery::COMMAND, &sent.question.options())),
        }
    }
}

question! { HierarchyQuery, "tree",
    system: "system", "system", "system" "valueUri";
    version: "version", "version", "version" "valueString";
    code: "code", "code", "code" "valueCode";
}

question! { PathQuery, "path",
    system: "system", "system";
    version: "version", "version";
    code_a: "code", "code-a";
    code_b: "path to", "code-b";
}
