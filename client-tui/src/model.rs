//! What the screens show. It holds no token, so that no screen can show one.

use std::collections::VecDeque;

use jiff::Timestamp;

use crate::api::{Bearer, Claims, Download, Exchange, Manifest, Piece, Session, Subsumed, Validated};
use crate::form::{Field, Form};
use crate::profile::Profile;

/// So many exchanges are kept.
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
    /// Not asked.
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
    pub about: About,
    /// The time of the last tick.
    pub now: Timestamp,
    /// The screen that is open.
    pub screen: Screen,
    /// The screen that was open before Help.
    pub before_help: Screen,
    /// Does a field have the focus?
    pub typing: bool,
    /// Is it time to go?
    pub quit: bool,
    /// A line about what was just done.
    pub notice: Option<String>,
    /// Whose token terminology uses.
    pub bearer: Bearer,
    /// Who is signed in.
    pub sign_in: SignIn,
    /// The form of `$validate-code`.
    pub validate: Asking<Validated>,
    /// The form of `$subsumes`.
    pub subsumes: Asking<Subsumed>,
    /// The export.
    pub export: Export,
    /// What went over the wire.
    pub requests: Requests,
    /// Lines that Help is scrolled by.
    pub help_scroll: u16,
}

/// What is known of the server and ourselves from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// The server.
    pub base_url: String,
    /// Our client for people.
    pub client_id: Option<String>,
    /// Our client without people.
    pub backend_id: Option<String>,
    /// Who can sign in on a demo server, and the file with the password.
    pub demo_user: Option<(String, String)>,
    /// May colours be used (no NO_COLOR)?
    pub colour: bool,
}

/// The sign-in screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignIn {
    /// How far it is.
    pub state: SignInState,
    /// For what the browser ended at.
    pub form: Form,
    /// Why what was pasted was not taken.
    pub paste_error: Option<String>,
    /// Who it is.
    pub claims: Answer<Claims>,
}

/// How far a sign-in is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignInState {
    /// Nobody is signed in.
    Out,
    /// The server is asked where to go.
    Starting,
    /// The browser is away.
    Waiting {
        /// Where it went.
        url: String,
        /// Why no browser was opened, if so.
        browser: Result<(), String>,
    },
    /// Somebody is signed in.
    In(Session),
    /// It did not succeed.
    Failed(String),
}

/// A form and the answer to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asking<T> {
    /// What is asked.
    pub form: Form,
    /// What was answered.
    pub answer: Answer<T>,
    /// The codes that were asked about, for the answer's sentence.
    pub about: (String, String),
}

/// The export screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// What to export, and where to.
    pub form: Form,
    /// How far it is.
    pub state: ExportState,
    /// Was the key for deleting pressed once?
    pub confirm_delete: bool,
    /// The first file that the list shows.
    pub scroll: usize,
}

/// How far an export is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportState {
    /// None yet.
    Idle,
    /// The kick-off is on its way.
    Starting,
    /// The server is at work.
    Running {
        /// Where to ask.
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
        /// Where to delete it.
        status_url: String,
        /// What there is.
        manifest: Manifest,
        /// How far each file has come.
        pieces: Vec<Option<Piece>>,
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
pub struct Requests {
    /// The newest first.
    pub exchanges: VecDeque<Exchange>,
    /// Which one is marked.
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
            about: About {
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
                form: asking(vec![Field::new("paste", "the address the browser ended at, or the code", "")]),
                paste_error: None,
                claims: Answer::None,
            },
            validate: Asking {
                form: asking(vec![
                    Field::new("url", "canonical URL of the ValueSet", &examples.value_set),
                    Field::new("id", "its id, instead of the url", ""),
                    Field::new("system", "canonical URL of the code system", &examples.system),
                    Field::new("code", "the code to look up", &examples.code),
                    Field::new("display", "a display to check too, if you like", ""),
                ]),
                answer: Answer::None,
                about: Default::default(),
            },
            subsumes: Asking {
                form: asking(vec![
                    Field::new("system", "canonical URL of the code system", &examples.hierarchy),
                    Field::new("id", "its id, instead of the system", ""),
                    Field::new("version", "version of the code system, if you like", ""),
                    Field::new("codeA", "one code", &examples.code_a),
                    Field::new("codeB", "the other code", &examples.code_b),
                ]),
                answer: Answer::None,
                about: Default::default(),
            },
            export: Export {
                form: asking(vec![
                    Field::new("Group", "id of a Group; empty exports everything", &examples.group),
                    Field::new("_type", "resource types with commas; empty for all", ""),
                    Field::new("_since", "an instant like 2024-01-31T08:00:00Z", ""),
                    Field::new("folder", "where the files go", "trefoil-export"),
                ]),
                state: ExportState::Idle,
                confirm_delete: false,
                scroll: 0,
            },
            requests: Requests::default(),
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
