//! State of the screen of terminology operations: for each operation a form, and the last question with its
//! answer.

use command_line::text::shell_word;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::answer::Answer;
use super::server_facts::ServerFacts;
use crate::api::{
    Bearer, ExpandQuery, Expansion, HierarchyQuery, LookupAnswer, LookupQuery, SubsumesAnswer, SubsumesQuery,
    ValidateCode, ValidationAnswer,
};
use crate::form::{Form, FormField};
use crate::other_server::OtherServer;
use crate::profile::FormDefaults;

/// Terminology operations, in the order of display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the titles describe the operations")]
pub enum Operation {
    ValidateCode,
    Subsumes,
    Lookup,
    Expand,
}

impl Operation {
    pub const ALL: [Self; 4] = [Self::ValidateCode, Self::Subsumes, Self::Lookup, Self::Expand];

    /// The name of the operation without `$`, which is also the name of the subcommand.
    pub fn name(self) -> &'static str {
        match self {
            Self::ValidateCode => "validate-code",
            Self::Subsumes => "subsumes",
            Self::Lookup => "lookup",
            Self::Expand => "expand",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodesScreen {
    pub operation: Operation,
    pub validate: OperationState<ValidateCode, ValidationAnswer>,
    pub subsumes: OperationState<SubsumesQuery, SubsumesAnswer>,
    pub lookup: OperationState<LookupQuery, LookupAnswer>,
    pub expand: OperationState<ExpandQuery, Expansion>,
    /// Number of lines by which the answer is scrolled.
    pub scroll: u16,
    /// Another server to which each question is sent, too: the name of a profile, or the base address of
    /// FHIR.
    pub other_server: FormField,
    /// Whether the field of the other server is open.
    pub naming_other: bool,
}

/// A form of a terminology operation, and the last question that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationState<Q, A> {
    pub form: Form,
    pub sent: Option<SentQuestion<Q, A>>,
    /// The answer of the other server to the same question, if both were asked.
    pub other: Option<OtherAnswer<A>>,
    /// Number of questions sent so far, from which each question gets its id.
    count: u64,
}

/// The answer of the other server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherAnswer<A> {
    /// Name of the server as the user entered it.
    pub server: String,
    pub answer: Answer<A>,
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
    pub server: String,
}

/// A question that a form contains.
pub trait Question: Clone + PartialEq {
    const COMMAND: &'static str;

    /// Reads the question from the fields of its form.
    fn from_form(form: &Form) -> Self;

    /// The options of the subcommand with their values. Empty values are left out later.
    fn options(&self) -> Vec<(&'static str, &str)>;

    /// The parameters of the operation as `valueX` members of a Parameters resource. Empty values are left
    /// out later.
    fn parameters(&self) -> Vec<(&'static str, &'static str, &str)>;
}

/// The question as a Parameters resource.
pub(super) fn parameters_resource(question: &impl Question) -> Value {
    let parameters = question.parameters().into_iter().filter(|(.., text)| !text.is_empty());
    let parameter = parameters.map(|(name, kind, text)| {
        let number = text.parse::<u64>().ok().filter(|_| kind == "valueInteger");
        let value = number.map_or_else(|| json!(text), |number| json!(number));
        json!({ "name": name, kind: value })
    });
    json!({ "resourceType": "Parameters", "parameter": parameter.collect::<Vec<_>>() })
}

impl CodesScreen {
    pub(super) fn new(examples: &FormDefaults) -> Self {
        let system = |text: &str| FormField::new("system", "canonical URL of the code system", text);
        Self {
            operation: Operation::ValidateCode,
            validate: OperationState::new(vec![
                FormField::new(
                    "url",
                    "canonical URL of the ValueSet; empty for the code system",
                    &examples.value_set,
                ),
                FormField::new("id", "id of the ValueSet, instead of url", ""),
                system(&examples.system),
                FormField::new("code", "code to validate", &examples.code),
                FormField::new("display", "display to check; optional", ""),
            ]),
            subsumes: OperationState::new(vec![
                system(&examples.hierarchy),
                FormField::new("id", "id of the code system, instead of system", ""),
                FormField::new("version", "version of the code system; optional", ""),
                FormField::new("codeA", "one code", &examples.code_a),
                FormField::new("codeB", "the other code", &examples.code_b),
            ]),
            lookup: OperationState::new(vec![
                system(&examples.system),
                FormField::new("version", "version of the code system; optional", ""),
                FormField::new("code", "code to look up", &examples.code),
            ]),
            expand: OperationState::new(vec![
                FormField::new("url", "canonical URL of the ValueSet", &examples.value_set),
                FormField::new("filter", "text in the displays; optional", ""),
                FormField::new("offset", "number of codes to skip; optional", ""),
            ]),
            scroll: 0,
            other_server: FormField::new("server", "a profile, or https://", ""),
            naming_other: false,
        }
    }

    /// Returns whether a question waits for its answer.
    pub fn is_waiting(&self) -> bool {
        self.validate.is_waiting()
            || self.subsumes.is_waiting()
            || self.lookup.is_waiting()
            || self.expand.is_waiting()
    }

    /// Returns whether the question of the visible form was sent already and waits for its answer. `other` is
    /// the other server of a comparison, or empty.
    pub fn repeats(&self, token: &TokenChoice, other: &str) -> bool {
        match self.operation {
            Operation::ValidateCode => self.validate.repeats(token, other),
            Operation::Subsumes => self.subsumes.repeats(token, other),
            Operation::Lookup => self.lookup.repeats(token, other),
            Operation::Expand => self.expand.repeats(token, other),
        }
    }

    /// Ends the waiting of all questions.
    pub fn cancel(&mut self) {
        self.validate.cancel();
        self.subsumes.cancel();
        self.lookup.cancel();
        self.expand.cancel();
    }

    /// The form of the visible operation.
    pub fn form(&mut self) -> &mut Form {
        match self.operation {
            Operation::ValidateCode => &mut self.validate.form,
            Operation::Subsumes => &mut self.subsumes.form,
            Operation::Lookup => &mut self.lookup.form,
            Operation::Expand => &mut self.expand.form,
        }
    }

    /// The code in the form of the visible operation, and, for `$subsumes`, the other code; `None` if the
    /// form names no code of a code system.
    pub fn concept_in_hierarchy(&self) -> Option<(HierarchyQuery, String)> {
        let query = |form: &Form, version: String, code: &str| HierarchyQuery {
            system: form.value("system"),
            version,
            code: form.value(code),
        };
        let (query, other) = match self.operation {
            Operation::ValidateCode => (query(&self.validate.form, String::new(), "code"), String::new()),
            Operation::Subsumes => {
                let form = &self.subsumes.form;
                (query(form, form.value("version"), "codeA"), form.value("codeB"))
            }
            Operation::Lookup => {
                let form = &self.lookup.form;
                (query(form, form.value("version"), "code"), String::new())
            }
            Operation::Expand => return None,
        };
        (!query.system.is_empty() && !query.code.is_empty()).then_some((query, other))
    }

    /// The last question of the visible operation as a Parameters resource.
    pub fn sent_parameters(&self) -> Option<Value> {
        match self.operation {
            Operation::ValidateCode => self.validate.sent_parameters(),
            Operation::Subsumes => self.subsumes.sent_parameters(),
            Operation::Lookup => self.lookup.sent_parameters(),
            Operation::Expand => self.expand.sent_parameters(),
        }
    }

    /// The command that sends the last question of the visible operation.
    pub fn sent_command(&self, about: &ServerFacts) -> Option<String> {
        match self.operation {
            Operation::ValidateCode => self.validate.sent_command(about),
            Operation::Subsumes => self.subsumes.sent_command(about),
            Operation::Lookup => self.lookup.sent_command(about),
            Operation::Expand => self.expand.sent_command(about),
        }
    }
}

impl<Q: Question, A> OperationState<Q, A> {
    fn new(fields: Vec<FormField>) -> Self {
        Self { form: Form::new(fields), sent: None, other: None, count: 0 }
    }

    /// Registers the question of the form as sent, also to the other server if it has a name, and returns its
    /// id.
    pub fn send(&mut self, token: TokenChoice, other: &str, now: Timestamp) -> (u64, Q) {
        self.count += 1;
        self.other = (!other.is_empty())
            .then(|| OtherAnswer { server: other.to_owned(), answer: Answer::Waiting { since: now } });
        let question = Q::from_form(&self.form);
        let sent_question = SentQuestion {
            id: self.count,
            question: question.clone(),
            token,
            sent_at: now,
            answer: Answer::Waiting { since: now },
        };
        self.sent = Some(sent_question);
        (self.count, question)
    }

    /// Stores an answer. The answer to an earlier question is dropped.
    pub fn receive(&mut self, id: u64, outcome: Answer<A>) {
        if let Some(question) = self.sent.as_mut().filter(|question| question.id == id) {
            question.answer = outcome;
        }
    }

    /// Stores an answer of the other server. The answer to an earlier question is dropped.
    pub fn receive_other(&mut self, id: u64, outcome: Answer<A>) {
        if let Some(other) = self.other.as_mut().filter(|_| self.count == id) {
            other.answer = outcome;
        }
    }

    fn is_waiting(&self) -> bool {
        let other = self.other.as_ref().is_some_and(|other| other.answer.is_waiting());
        other || self.sent.as_ref().is_some_and(|question| question.answer.is_waiting())
    }

    fn cancel(&mut self) {
        if let Some(question) = &mut self.sent {
            question.answer.cancel();
        }
        if let Some(other) = &mut self.other {
            other.answer.cancel();
        }
    }

    fn repeats(&self, token: &TokenChoice, other: &str) -> bool {
        let asked_other = self.other.as_ref().map_or("", |other| other.server.as_str());
        self.is_waiting() && !self.is_stale(token) && asked_other == other
    }

    /// Returns whether the form or the token differs from the last question.
    pub fn is_stale(&self, token: &TokenChoice) -> bool {
        self.sent
            .as_ref()
            .is_some_and(|question| question.token != *token || question.question != Q::from_form(&self.form))
    }

    fn sent_parameters(&self) -> Option<Value> {
        self.sent.as_ref().map(|question| parameters_resource(&question.question))
    }

    /// The command that sends the last question.
    pub fn sent_command(&self, about: &ServerFacts) -> Option<String> {
        let question = self.sent.as_ref()?;
        let subcommand = match self.other.as_ref().map(|other| OtherServer::parse(&other.server)) {
            None => Q::COMMAND.to_owned(),
            Some(OtherServer::Profile(name)) => {
                format!("compare --other-profile {} {}", shell_word(&name), Q::COMMAND)
            }
            Some(OtherServer::Url(url)) => format!("compare --other-url {} {}", shell_word(&url), Q::COMMAND),
        };
        Some(about.command(&subcommand, &question.question.options()))
    }
}

impl ServerFacts {
    /// The command line of a subcommand with these options. Options with an empty value are left out.
    pub fn command(&self, subcommand: &str, options: &[(&str, &str)]) -> String {
        let mut line = format!("trefoil-tui {subcommand}");
        let set_options = options.iter().filter(|(_, value)| !value.is_empty());
        let profile = self.profile_options.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in set_options.copied().chain(profile) {
            line.push_str(&format!(" --{name} {}", shell_word(value)));
        }
        line
    }
}

/// Implements [`Question`] for a query. Each member is listed with the field of the form, the option of the
/// subcommand, and name and type of the parameter if the operation has one; the form does not set the others.
macro_rules! question {
    ($query:ty, $command:literal,
        $($member:ident: $field:literal, $option:literal $(, $parameter:literal $kind:literal)?;)*) => {
        impl crate::model::Question for $query {
            const COMMAND: &'static str = $command;

            #[allow(clippy::needless_update, reason = "most forms set all members")]
            fn from_form(form: &crate::form::Form) -> Self {
                Self { $($member: form.value($field),)* ..Self::default() }
            }

            fn options(&self) -> Vec<(&'static str, &str)> {
                vec![$(($option, self.$member.as_str())),*]
            }

            fn parameters(&self) -> Vec<(&'static str, &'static str, &str)> {
                vec![$($(($parameter, $kind, self.$member.as_str()),)?)*]
            }
        }
    };
}
pub(super) use question;

question! { ValidateCode, "validate-code",
    url: "url", "url", "url" "valueUri";
    id: "id", "id";
    system: "system", "system", "system" "valueUri";
    code: "code", "code", "code" "valueCode";
    display: "display", "display", "display" "valueString";
}

question! { SubsumesQuery, "subsumes",
    system: "system", "system", "system" "valueUri";
    id: "id", "id";
    version: "version", "version", "version" "valueString";
    code_a: "codeA", "code-a", "codeA" "valueCode";
    code_b: "codeB", "code-b", "codeB" "valueCode";
}

question! { LookupQuery, "lookup",
    system: "system", "system", "system" "valueUri";
    version: "version", "version", "version" "valueString";
    code: "code", "code", "code" "valueCode";
}

question! { ExpandQuery, "expand",
    url: "url", "url", "url" "valueUri";
    filter: "filter", "filter", "filter" "valueString";
    offset: "offset", "offset", "offset" "valueInteger";
}
