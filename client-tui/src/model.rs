//! State of the screens. It contains no token, so that no screen can show one.

use std::collections::VecDeque;

use jiff::Timestamp;

use crate::api::{
    Bearer, Claims, Download, ExportManifest, FileProgress, RecordedExchange, SignedInSession,
    SubsumesAnswer, ValidationAnswer,
};
use crate::form::{Form, FormField};
use crate::profile::Profile;

/// Maximum number of exchanges.
pub const EXCHANGES_KEPT: usize = 200;

/// The screens in the order of their tabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the titles say it")]
pub enum Screen {
    SignIn,
    ValidateCode,
    Subsumes,
    Export,
    Requests,
    Help,
}

impl Screen {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::SignIn, Self::ValidateCode, Self::Subsumes, Self::Export, Self::Requests, Self::Help];

    /// The name on the tab.
    pub fn title(self) -> &'static str {
        match self {
            Self::SignIn => "Sign-in",
            Self::ValidateCode => "validate-code",
            Self::Subsumes => "subsumes",
            Self::Export => "Export",
            Self::Requests => "Requests",
            Self::Help => "Help",
        }
    }
}

/// A question and its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Answer<T> {
    /// No request yet.
    #[default]
    None,
    /// On its way.
    Waiting,
    /// Answered.
    Done(T),
    /// Refused or lost, in words.
    Failed(String),
}

impl<T> From<Result<T, String>> for Answer<T> {
    fn from(result: Result<T, String>) -> Self {
        match result {
            Ok(value) => Self::Done(value),
            Err(reason) => Self::Failed(reason),
        }
    }
}

/// All that is shown.
#[derive(Clone, Debug)]
pub struct Model {
    /// Whom we talk to, as whom.
    pub about: ServerFacts,
    /// The time of the last tick.
    pub now: Timestamp,
    /// The screen that is open.
    pub screen: Screen,
    /// The screen that was open before Help.
    pub before_help: Screen,
    /// True if a field has the focus.
    pub typing: bool,
    /// True if the program ends after this step.
    pub quit: bool,
    /// A line about what was just done.
    pub notice: Option<String>,
    /// Token that terminology requests carry.
    pub bearer: Bearer,
    pub sign_in: SignIn,
    /// The form of `$validate-code`.
    pub validate: TerminologyQuery<ValidationAnswer>,
    /// The form of `$subsumes`.
    pub subsumes: TerminologyQuery<SubsumesAnswer>,
    /// The export.
    pub export: Export,
    /// Recorded exchanges.
    pub requests: RequestLog,
    /// Lines that Help is scrolled by.
    pub help_scroll: u16,
}

/// Facts about the server and the client that are known at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFacts {
    /// The server.
    pub base_url: String,
    /// Our client for people.
    pub client_id: Option<String>,
    /// Our client without people.
    pub backend_id: Option<String>,
    /// User who can sign in on a demo server, and the file with the password.
    pub demo_user: Option<(String, String)>,
    /// May colours be used (no NO_COLOR)?
    pub colour: bool,
}

/// The sign-in screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignIn {
    /// State of the sign-in.
    pub state: SignInState,
    /// Field for the last address of the browser.
    pub form: Form,
    /// Reason why the pasted text was rejected.
    pub paste_error: Option<String>,
    /// Claims of the signed-in user.
    pub claims: Answer<Claims>,
}

/// States of a sign-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignInState {
    /// No user is signed in.
    Out,
    /// Reading the endpoints.
    Starting,
    /// The browser is away.
    Waiting {
        /// Address in the browser.
        url: String,
        /// Error, if no browser could be opened.
        browser: Result<(), String>,
    },
    /// A user is signed in.
    In(SignedInSession),
    /// It did not succeed.
    Failed(String),
}

/// A form and the answer to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminologyQuery<T> {
    /// Form of the query.
    pub form: Form,
    /// Answer.
    pub answer: Answer<T>,
    /// The two codes of the query, for the sentence of the answer.
    pub about: (String, String),
}

/// The export screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Form of the export.
    pub form: Form,
    pub state: ExportState,
    /// Was the key for deleting pressed once?
    pub confirm_delete: bool,
    /// The first file that the list shows.
    pub scroll: usize,
}

/// States of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportState {
    /// None yet.
    Idle,
    /// The kick-off is on its way.
    Starting,
    /// The server is at work.
    Running {
        /// Address of the status.
        status_url: String,
        /// When it began.
        since: Timestamp,
        /// The server's words.
        progress: Option<String>,
        /// When to ask again; `None` while the question is on its way.
        next_poll: Option<Timestamp>,
    },
    /// The files are there.
    Complete {
        /// Address of the export, to delete it.
        status_url: String,
        /// Manifest.
        manifest: ExportManifest,
        /// Progress of each file.
        pieces: Vec<Option<FileProgress>>,
        /// The download as a whole.
        download: Answer<Download>,
    },
    /// Gone from the server.
    Deleted,
    /// Not started, or failed.
    Failed(String),
}

/// The log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestLog {
    /// The newest first.
    pub exchanges: VecDeque<RecordedExchange>,
    /// Index of the selected row.
    pub selected: usize,
    /// Are its details open?
    pub detail: bool,
    /// Lines that the details are scrolled by.
    pub scroll: u16,
}

impl Model {
    /// The model at the start, its forms filled with the profile's examples.
    pub fn new(profile: &Profile, colour: bool, now: Timestamp) -> Self {
        let examples = &profile.examples;
        let backend_id = profile.backend.as_ref().map(|backend| backend.client_id.clone());
        let demo_user = (!examples.username.is_empty())
            .then(|| (examples.username.clone(), examples.password_file.clone()));
        let bearer = if backend_id.is_some() { Bearer::Backend } else { Bearer::User };
        let asking = |fields| Form::new(fields);
        Self {
            about: ServerFacts {
                base_url: profile.base_url.clone(),
                client_id: profile.client_id.clone(),
                backend_id,
                demo_user,
                colour,
            },
            now,
            screen: Screen::SignIn,
            before_help: Screen::SignIn,
            typing: false,
            quit: false,
            notice: None,
            bearer,
            sign_in: SignIn {
                state: SignInState::Out,
                form: asking(vec![FormField::new(
                    "paste",
                    "the last address of the browser, or the code",
                    "",
                )]),
                paste_error: None,
                claims: Answer::None,
            },
            validate: TerminologyQuery {
                form: asking(vec![
                    FormField::new("url", "canonical URL of the ValueSet", &examples.value_set),
                    FormField::new("id", "its id, instead of the url", ""),
                    FormField::new("system", "canonical URL of the code system", &examples.system),
                    FormField::new("code", "the code to look up", &examples.code),
                    FormField::new("display", "display to check (optional)", ""),
                ]),
                answer: Answer::None,
                about: Default::default(),
            },
            subsumes: TerminologyQuery {
                form: asking(vec![
                    FormField::new("system", "canonical URL of the code system", &examples.hierarchy),
                    FormField::new("id", "its id, instead of the system", ""),
                    FormField::new("version", "version of the code system (optional)", ""),
                    FormField::new("codeA", "one code", &examples.code_a),
                    FormField::new("codeB", "the other code", &examples.code_b),
                ]),
                answer: Answer::None,
                about: Default::default(),
            },
            export: Export {
                form: asking(vec![
                    FormField::new("Group", "id of a Group; empty exports everything", &examples.group),
                    FormField::new("_type", "resource types, separated by commas; empty for all", ""),
                    FormField::new("_since", "an instant like 2024-01-31T08:00:00Z", ""),
                    FormField::new("folder", "where the files go", "trefoil-export"),
                ]),
                state: ExportState::Idle,
                confirm_delete: false,
                scroll: 0,
            },
            requests: RequestLog::default(),
            help_scroll: 0,
        }
    }

    /// The form of the open screen. On the sign-in screen there is one only while it waits.
    pub fn form(&mut self) -> Option<&mut Form> {
        match self.screen {
            Screen::SignIn if matches!(self.sign_in.state, SignInState::Waiting { .. }) => {
                Some(&mut self.sign_in.form)
            }
            Screen::ValidateCode => Some(&mut self.validate.form),
            Screen::Subsumes => Some(&mut self.subsumes.form),
            Screen::Export => Some(&mut self.export.form),
            Screen::SignIn | Screen::Requests | Screen::Help => None,
        }
    }
}
