//! State of the screens of terminology operations: a form, and the last question with its answer.

use jiff::Timestamp;

use super::Answer;
use crate::api::{Bearer, SubsumesAnswer, SubsumesQuery, ValidateCode, ValidationAnswer};
use crate::form::{Form, FormField};

/// State of the `$validate-code` screen.
pub type ValidateScreen = TerminologyScreen<ValidateCode, ValidationAnswer>;
/// State of the `$subsumes` screen.
pub type SubsumesScreen = TerminologyScreen<SubsumesQuery, SubsumesAnswer>;

/// A form of a terminology operation, and the last question that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminologyScreen<Q, A> {
    pub form: Form,
    pub sent: Option<SentQuestion<Q, A>>,
    /// Number of questions sent so far, from which each question gets its id.
    count: u64,
}

/// A question, the circumstances under which it was sent, and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentQuestion<Q, A> {
    pub id: u64,
    pub question: Q,
    pub token: TokenChoice,
    pub sent_at: Timestamp,
    pub answer: Answer<A>,
}

/// The token and the server of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenChoice {
    pub bearer: Bearer,
    /// Description of the token for the user.
    pub name: String,
    /// Base address of the server.
    pub server: String,
}

/// A question that a form contains.
pub trait Question: Clone + PartialEq {
    /// Reads the question from the fields of its form.
    fn from_form(form: &Form) -> Self;
}

impl<Q: Question, A> TerminologyScreen<Q, A> {
    pub(super) fn new(fields: Vec<FormField>) -> Self {
        Self { form: Form::new(fields), sent: None, count: 0 }
    }

    /// Registers the question of the form as sent, and returns its id.
    pub fn send(&mut self, token: TokenChoice, now: Timestamp) -> (u64, Q) {
        self.count += 1;
        let question = Q::from_form(&self.form);
        let sent = SentQuestion {
            id: self.count,
            question: question.clone(),
            token,
            sent_at: now,
            answer: Answer::Waiting,
        };
        self.sent = Some(sent);
        (self.count, question)
    }

    /// Stores an answer. The answer to an earlier question is dropped.
    pub fn receive(&mut self, id: u64, answer: Answer<A>) {
        if let Some(sent) = self.sent.as_mut().filter(|sent| sent.id == id) {
            sent.answer = answer;
        }
    }

    /// Returns whether the form or the token differs from the last question.
    pub fn is_stale(&self, token: &TokenChoice) -> bool {
        self.sent
            .as_ref()
            .is_some_and(|sent| sent.token != *token || sent.question != Q::from_form(&self.form))
    }
}

impl Question for ValidateCode {
    fn from_form(form: &Form) -> Self {
        Self {
            url: form.value("url"),
            id: form.value("id"),
            system: form.value("system"),
            code: form.value("code"),
            display: form.value("display"),
        }
    }
}

impl Question for SubsumesQuery {
    fn from_form(form: &Form) -> Self {
        Self {
            system: form.value("system"),
            id: form.value("id"),
            version: form.value("version"),
            code_a: form.value("codeA"),
            code_b: form.value("codeB"),
        }
    }
}
