//! The common form of all commands of an administrator: the doors through which they are called, the question
//! and the input before they run, and the answer.
//!
//! A command is one type. Its members are the flags of the command line ([`clap::Args`]), and the members of
//! the messages on the socket and of the requests to `/admin` ([`serde`]). The forms of the console are made
//! from the flags.

use anyhow::anyhow;
use clap::Args;
use http::Method;
use identity::directory::client_registry::ChangeClientError;
use identity::directory::user_directory::{ChangeUserError, UserError};
use identity::model::client::RegistrationError;
use identity::model::client_metadata::InvalidMetadata;
use identity::sign_in::one_time_link::OneTimeLinkError;
use identity::sign_in::password::PasswordError;
use jiff::{SignedDuration, Timestamp};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use store::StoreError;

use super::events::{CommandEvent, EventSink};
use super::services::AdminServices;
use super::user_change::InvalidUserChange;

/// The doors of a command, besides the command line and its socket.
#[derive(Debug, Clone, Copy)]
pub struct Doors {
    /// The requests to `/admin` that run the command. Without any, the command is not in the console either.
    pub routes: &'static [AdminRoute],
    /// The text of the console's button.
    pub label: &'static str,
    /// Whether the console offers the command for a record.
    pub only_if: Option<fn(&Value) -> bool>,
}

impl Doors {
    /// The command line and its socket only: for commands that take a path or a URL, and for those that stop,
    /// erase, restore or replace a store.
    pub const COMMAND_LINE: Self = Self { routes: &[], label: "", only_if: None };

    /// All doors. The console shows the command as a button with this label.
    pub const fn all(label: &'static str, routes: &'static [AdminRoute]) -> Self {
        Self { routes, label, only_if: None }
    }

    /// The same doors; the console offers the command only for some records.
    #[must_use]
    pub const fn only_if(self, offers: fn(&Value) -> bool) -> Self {
        Self { only_if: Some(offers), ..self }
    }
}

/// The method of a request to `/admin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdminMethod {
    /// Reads.
    Get,
    /// Adds, or does something once.
    Post,
    /// Sets.
    Put,
    /// Changes members.
    Patch,
    /// Removes.
    Delete,
}

impl AdminMethod {
    /// The method of HTTP.
    pub fn of_http(self) -> Method {
        match self {
            Self::Get => Method::GET,
            Self::Post => Method::POST,
            Self::Put => Method::PUT,
            Self::Patch => Method::PATCH,
            Self::Delete => Method::DELETE,
        }
    }
}

/// A request to `/admin`.
#[derive(Debug, Clone, Copy)]
pub struct AdminRoute {
    /// The method.
    pub method: AdminMethod,
    /// The path below `/admin/`. A placeholder is the name of a member; `{sub}` is the member `user`.
    pub path: &'static str,
    /// A member of the command that the request sets to `true`.
    pub sets: Option<&'static str>,
}

impl AdminRoute {
    /// A request with a method.
    pub const fn new(method: AdminMethod, path: &'static str) -> Self {
        Self { method, path, sets: None }
    }

    /// The same request, which sets a member of the command to `true`.
    #[must_use]
    pub const fn sets(self, member: &'static str) -> Self {
        Self { sets: Some(member), ..self }
    }
}

/// The store that a command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreNeed {
    /// A store that exists.
    Existing,
    /// A store, which the command creates if there is none.
    Created,
    /// The same; the command says so, because few operators expect it.
    CreatedWithNotice,
    /// No store: the command runs in the program.
    None,
}

/// Writes the schema of a type.
pub type WriteSchema = fn(&mut SchemaGenerator) -> Schema;

/// The JSON of an answer.
#[derive(Debug, Clone, Copy)]
pub enum AnswerShape {
    /// No JSON.
    Nothing,
    /// A record of a type.
    Record(WriteSchema),
    /// The list with this name, whose entries have a type.
    List(&'static str, WriteSchema),
}

impl AnswerShape {
    /// A record of a type.
    pub const fn record<T: JsonSchema>() -> Self {
        Self::Record(SchemaGenerator::subschema_for::<T>)
    }

    /// A list of entries of a type.
    pub const fn list<T: JsonSchema>(name: &'static str) -> Self {
        Self::List(name, SchemaGenerator::subschema_for::<T>)
    }
}

/// Input of the program, which it reads before it sends a command.
pub trait ProgramInput {
    /// Reads a password from the terminal or from standard input.
    ///
    /// # Errors
    /// An error if there is none.
    fn password(&mut self) -> anyhow::Result<String>;

    /// Warns the operator.
    fn warn(&mut self, text: &str);
}

/// A command of an administrator. Its doc comment is its help text.
pub trait Command: Args + Serialize + DeserializeOwned + Send + 'static {
    /// The doors of the command.
    const DOORS: Doors;
    /// The store that it needs.
    const STORE: StoreNeed = StoreNeed::Existing;
    /// The JSON of its answer.
    const ANSWER: AnswerShape = AnswerShape::Nothing;
    /// Whether [`Command::read_input`] reads a password.
    const READS_PASSWORD: bool = false;

    /// Whether Ctrl-C ends the command early with a summary of its results.
    const ENDS_EARLY: bool = false;

    /// The question before a command that cannot be undone.
    fn question(&self) -> Option<String> {
        None
    }

    /// Reads in the program what the server cannot read: passwords, files, and paths that are relative to the
    /// folder of the program.
    ///
    /// # Errors
    /// An error if something cannot be read.
    fn read_input(&mut self, _: &mut dyn ProgramInput) -> anyhow::Result<()> {
        Ok(())
    }

    /// Runs the command in the program, if it needs no store ([`StoreNeed::None`]).
    fn run_in_program(&self) -> Option<anyhow::Result<Answer>> {
        None
    }

    /// Runs the command, and reports progress as events.
    fn run(
        self,
        call: &Call<'_>,
        events: EventSink<'_>,
    ) -> impl Future<Output = Result<Answer, CommandError>> + Send;
}

/// A call of a command.
pub struct Call<'a> {
    /// The services of the server, or of the store of a stopped one.
    pub services: &'a AdminServices<'a>,
    /// The revision that the record must have (`If-Match`).
    pub revision: Option<u64>,
    /// Who runs the command.
    pub caller: Caller,
}

/// Who runs a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// An operator of the machine, or an administrator who has just signed in to the console.
    Present,
    /// The user of an access token, with the time of the sign-in.
    User(Option<Timestamp>),
    /// A client with an access token of its own.
    Client,
}

/// Maximum age of the sign-in of an administrator who gives access to another one.
const MAX_SIGN_IN_AGE: SignedDuration = SignedDuration::from_mins(15);

impl Call<'_> {
    /// Whether the call came with an access token, for which the clients of a demo project that is not served
    /// do not exist.
    pub fn is_remote(&self) -> bool {
        self.caller != Caller::Present
    }

    /// Checks that the caller may give access to an administrator: a token that was stolen, or the secret of
    /// a client, must not become an account.
    ///
    /// # Errors
    /// [`CommandError::Forbidden`] for a client, and for a user who signed in too long ago.
    pub fn check_recent_sign_in(&self) -> Result<(), CommandError> {
        let text = match self.caller {
            Caller::Present => return Ok(()),
            Caller::User(Some(time)) if self.now() <= time + MAX_SIGN_IN_AGE => return Ok(()),
            Caller::User(_) => {
                "the user is an administrator; sign in again, at most 15 minutes before this request"
            }
            Caller::Client => {
                "the user is an administrator, to whom only a signed-in administrator gives access"
            }
        };
        Err(CommandError::Forbidden(text))
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        self.services.clock.now()
    }

    /// Checks the revision of a record that is read before it is changed.
    ///
    /// # Errors
    /// [`CommandError::Stale`] if it is not the one that the call requires.
    pub fn check_revision(&self, revision: u64, record: &str) -> Result<(), CommandError> {
        match self.revision {
            Some(expected) if expected != revision => {
                Err(CommandError::Stale(format!("the {record} was changed since it was read; read it again")))
            }
            _ => Ok(()),
        }
    }
}

/// Maximum number of entries of a page.
const LARGEST_PAGE: usize = 500;

/// Checks the number of entries of a page. `None` is a list without pages.
///
/// # Errors
/// [`CommandError::Invalid`] if it is not from 1 to 500.
pub fn page_size(count: Option<usize>) -> Result<Option<usize>, CommandError> {
    match count {
        None | Some(1..=LARGEST_PAGE) => Ok(count),
        Some(_) => Err(CommandError::Invalid(format!("count must be a number from 1 to {LARGEST_PAGE}"))),
    }
}

/// The answer of a command.
#[derive(Debug)]
pub enum Answer {
    /// The command has done what this sentence says.
    Done(String),
    /// A record.
    Record(Box<RecordAnswer>),
    /// The entries of a list.
    List(ListAnswer),
    /// The events of the command contain the whole result. This is its exit code.
    Told(u8),
}

/// A record as an answer.
#[derive(Debug)]
pub struct RecordAnswer {
    /// The text for people.
    pub text: String,
    /// The record.
    pub json: Value,
    /// Why what was written can hardly work.
    pub warnings: Vec<String>,
    /// The revision of the record, if it has one.
    pub revision: Option<u64>,
    /// The path below `/admin/` of a record that was created.
    pub location: Option<String>,
    /// The exit code.
    pub exit: u8,
}

impl RecordAnswer {
    /// A record with a text for people.
    ///
    /// # Panics
    /// Panics if the record has no JSON form, such as a map whose keys are no strings.
    pub fn new(text: String, record: impl Serialize) -> Self {
        Self { text, json: json!(record), warnings: Vec::new(), revision: None, location: None, exit: 0 }
    }

    /// A record that people read as JSON, too.
    ///
    /// # Panics
    /// As [`RecordAnswer::new`].
    pub fn pretty(record: impl Serialize) -> Self {
        let json = json!(record);
        Self::new(format!("{json:#}"), json)
    }
}

impl From<RecordAnswer> for Answer {
    fn from(record: RecordAnswer) -> Self {
        Self::Record(Box::new(record))
    }
}

/// A list as an answer.
#[derive(Debug)]
pub struct ListAnswer {
    /// The entries: for people, and as JSON.
    pub entries: Vec<(String, Value)>,
    /// The value of `after` for the next page.
    pub next: Option<String>,
    /// The text for people if the list is empty.
    pub empty: &'static str,
}

impl ListAnswer {
    /// A list with all entries.
    pub fn new(entries: impl IntoIterator<Item = (String, Value)>) -> Self {
        Self { entries: entries.into_iter().collect(), next: None, empty: "" }
    }

    /// The same list, with what people read if it is empty.
    #[must_use]
    pub fn if_empty(self, empty: &'static str) -> Self {
        Self { empty, ..self }
    }
}

impl From<ListAnswer> for Answer {
    fn from(list: ListAnswer) -> Self {
        Self::List(list)
    }
}

impl Answer {
    /// Reports the answer as events of the command line. Returns the exit code.
    pub fn tell(self, events: EventSink<'_>) -> u8 {
        match self {
            Self::Done(text) => events(CommandEvent::Line(text)),
            Self::Record(record) => {
                let RecordAnswer { text, json, warnings, exit, .. } = *record;
                for warning in warnings {
                    events(CommandEvent::Trouble(format!("warning: {warning}")));
                }
                events(CommandEvent::Record { text, json });
                return exit;
            }
            Self::List(ListAnswer { entries, empty, .. }) => {
                if entries.is_empty() && !empty.is_empty() {
                    events(CommandEvent::Trouble(empty.to_owned()));
                }
                for (text, json) in entries {
                    events(CommandEvent::Record { text, json });
                }
            }
            Self::Told(code) => return code,
        }
        0
    }
}

/// Reasons why a command fails.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// A user cannot be read or added.
    #[error(transparent)]
    User(#[from] UserError),
    /// A user cannot be changed.
    #[error(transparent)]
    ChangeUser(#[from] ChangeUserError),
    /// A client cannot be added or changed.
    #[error(transparent)]
    Client(#[from] ChangeClientError),
    /// A new password is rejected.
    #[error(transparent)]
    Password(#[from] PasswordError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A member has a value that is not accepted.
    #[error("{0}")]
    Invalid(String),
    /// There is no such record.
    #[error("{text}")]
    Unknown {
        /// The kind of the record.
        record: &'static str,
        /// The text for people, which names the remedy.
        text: String,
    },
    /// The present state does not allow the command.
    #[error("{text}")]
    Conflict {
        /// Code of the error over HTTP.
        code: &'static str,
        /// The reason.
        text: String,
    },
    /// The record was changed since it was read.
    #[error("{0}")]
    Stale(String),
    /// The caller may not run the command.
    #[error("{0}")]
    Forbidden(&'static str),
    /// Another failure.
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

impl From<OneTimeLinkError> for CommandError {
    fn from(error: OneTimeLinkError) -> Self {
        let text = error.to_string();
        match error {
            OneTimeLinkError::Disabled => Self::Conflict { code: "user_disabled", text },
            OneTimeLinkError::NoOwnMethods(_) => Self::Conflict { code: "no_own_methods", text },
            OneTimeLinkError::Store(error) => error.into(),
        }
    }
}

impl From<RegistrationError> for CommandError {
    fn from(error: RegistrationError) -> Self {
        Self::Client(error.into())
    }
}

impl From<InvalidMetadata> for CommandError {
    fn from(error: InvalidMetadata) -> Self {
        Self::Client(error.into())
    }
}

impl From<InvalidUserChange> for CommandError {
    fn from(error: InvalidUserChange) -> Self {
        Self::Invalid(error.to_string())
    }
}

impl CommandError {
    /// The error for the operator of the command line, with its chain of reasons.
    pub fn into_error(self) -> anyhow::Error {
        match self {
            Self::Other(error) => error,
            error => anyhow!(error),
        }
    }
}
