//! State of the screens. It contains no token, so that no screen can show one.

pub mod answer;
mod batch;
mod codes;
mod completion;
mod confirmation;
mod export;
mod help;
mod home;
mod list_rows;
mod overlay;
mod profile_menu;
mod recall;
pub mod search_list;
pub mod server_facts;
mod tree;
mod viewer;

use std::collections::VecDeque;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;

use self::answer::Answer;
use self::server_facts::ServerFacts;
use crate::api::{
    Bearer, Claims, ContentKind, DevicePrompt, RecordedExchange, SignedInSession, TokenInspection, TokenKind,
};
use crate::display::DisplayOptions;
use crate::form::{Form, FormField};
use crate::history::PastQuestion;
use crate::json_path;
use crate::keys::KeyTable;
use crate::profile::Profile;
pub use crate::screen::Screen;
pub use batch::{BatchState, BatchView};
pub use codes::{CodesScreen, Operation, OperationState, OtherAnswer, Question, SentQuestion, TokenChoice};
pub use completion::{Completion, CompletionItem};
pub use confirmation::{Confirmation, PendingConfirmation, YES};
pub use export::{
    Activity, ExportChoice, ExportRow, ExportScreen, SAMPLES_OF_A_SECOND, TransferRate, Waiting,
};
pub use help::HelpScreen;
pub use home::{FoundConcept, HomeRow, HomeScreen, SystemMatches};
pub use overlay::Overlay;
pub use profile_menu::{ProfileConfirmation, ProfileMenu};
pub use recall::matching_questions;
pub use search_list::SearchList;
pub use tree::{TreeContent, TreeScreen};
pub use viewer::{CodeCheck, PAGE_LINES, ResourceDetail, ViewedFile, Viewer, ViewerPage};

/// Maximum number of recorded exchanges.
pub const EXCHANGES_KEPT: usize = 200;
/// Seconds after which a notice disappears, unless it is an error or a question.
const NOTICE_S: i64 = 6;

#[derive(Clone, Debug)]
pub struct Model {
    /// Server and credentials of the profile.
    pub about: ServerFacts,
    pub keys: &'static KeyTable,
    /// Time of the last tick.
    pub now: Timestamp,
    pub screen: Screen,
    /// The screen that was visible before Help.
    pub before_help: Screen,
    /// Whether a field has the focus.
    pub typing: bool,
    /// Whether the program ends after this update.
    pub quit: bool,
    /// Result of the last action.
    pub notice: Option<String>,
    /// The notice that was visible at the last tick, and the time at which it appeared.
    noticed: Option<(String, Timestamp)>,
    /// The list over the screen, if one is open.
    pub overlay: Option<Overlay>,
    /// Whether the second of two panes fills the screen.
    pub zoomed: bool,
    /// Number of steps by which the user made the first of two panes larger; negative if smaller.
    pub pane_steps: i16,
    /// Whether the mouse is read. If not, the terminal selects text with it.
    pub mouse: bool,
    /// Action that is performed if its key is pressed again.
    pub to_confirm: Option<PendingConfirmation>,
    pub bearer: Bearer,
    pub home: HomeScreen,
    pub sign_in: SignIn,
    /// State of the screen of terminology operations.
    pub codes: CodesScreen,
    /// State of the batch view of that screen.
    pub batch: BatchView,
    pub tree: TreeScreen,
    /// Terminology questions that were sent before, the newest first.
    pub history: Vec<PastQuestion>,
    pub export: ExportScreen,
    pub requests: RequestLog,
    pub help: HelpScreen,
}

/// Elements that a mouse click selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClickTarget {
    Tab(Screen),
    /// The field of the form at this index.
    Field(usize),
    /// The row of the visible list at this index.
    Row(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignIn {
    pub state: SignInState,
    /// Field for the last address of the browser.
    pub form: Form,
    /// Reason why the pasted text was rejected.
    pub paste_error: Option<String>,
    pub claims: Answer<Claims>,
    /// The token inspector, if it is open.
    pub inspector: Option<Inspector>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspector {
    pub kind: TokenKind,
    pub answer: Answer<TokenInspection>,
    /// Number of lines by which the text is scrolled.
    pub scroll: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignInState {
    Out,
    /// The configuration of the server is read.
    Starting {
        since: Timestamp,
    },
    /// The program waits for the response of the browser.
    Waiting {
        since: Timestamp,
        url: String,
        /// Reason why no browser could be opened, if none was.
        browser: Result<(), String>,
    },
    /// The program waits for the user at another device.
    Device(DevicePrompt),
    In(SignedInSession),
    /// The sign-in failed; the value is the message.
    Failed(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestLog {
    /// Recorded exchanges, the newest first.
    pub exchanges: VecDeque<RecordedExchange>,
    pub selected: usize,
    /// Whether the details of the selected exchange are shown.
    pub detail: bool,
    /// Number of lines by which the details are scrolled.
    pub scroll: u16,
    /// Field for a JSONPath, which selects a part of the body of the response.
    pub filter: Form,
    /// Time at which a request of the user was sent, while it waits for its response.
    pub sending: Option<Timestamp>,
}

impl Model {
    /// The initial model, whose forms contain the examples of the profile.
    pub fn new(profile: &Profile, display: DisplayOptions, now: Timestamp) -> Self {
        let examples = &profile.examples;
        let backend_id = profile.backend.as_ref().map(|backend| backend.client_id.clone());
        let demo_user = (!examples.username.is_empty())
            .then(|| (examples.username.clone(), examples.password_file.clone()));
        let bearer = match &backend_id {
            Some(_) => Bearer::Backend,
            None if profile.is_anonymous() => Bearer::Anonymous,
            None => Bearer::User,
        };
        let group = match examples.group.as_str() {
            "" => String::new(),
            id => format!("Group/{id}"),
        };
        Self {
            about: ServerFacts {
                profile: profile.name.clone(),
                base_url: profile.base_url.clone(),
                fhir_base: profile.fhir_base.clone(),
                ca: profile.ca.as_ref().map(|ca| ca.path.clone()),
                client_id: profile.client_id.clone(),
                backend_id,
                demo_user,
                display,
                zone: TimeZone::UTC,
                read_only: profile.read_only,
                sign_in_method: profile.sign_in_method,
                profile_options: profile.options.clone(),
            },
            keys: KeyTable::standard(),
            now,
            screen: Screen::Home,
            before_help: Screen::Home,
            typing: false,
            quit: false,
            notice: None,
            noticed: None,
            overlay: None,
            zoomed: false,
            pane_steps: 0,
            mouse: false,
            to_confirm: None,
            bearer,
            home: HomeScreen::default(),
            sign_in: SignIn {
                state: SignInState::Out,
                form: Form::new(vec![FormField::new(
                    "paste",
                    "the last address of the browser, or the code",
                    "",
                )]),
                paste_error: None,
                claims: Answer::None,
                inspector: None,
            },
            codes: CodesScreen::new(examples),
            batch: BatchView::new(examples),
            tree: TreeScreen::new(examples),
            history: Vec::new(),
            export: ExportScreen::new(vec![
                FormField::new("level", "Group/ID, Patient, or empty for the whole server", &group),
                FormField::new("_type", "resource types, separated by commas; empty for all", ""),
                FormField::new("_since", "changed after an instant like 2024-01-31T08:00:00Z", ""),
                FormField::new("_until", "changed before an instant", ""),
                FormField::new(
                    "_typeFilter",
                    "searches like Observation?status=final, separated by spaces",
                    "",
                ),
                FormField::new("_elements", "elements, separated by commas; empty for all", ""),
                FormField::new("patient", "ids of patients, separated by commas; empty for all", ""),
                FormField::new("associated", "LatestProvenanceResources or RelevantProvenanceResources", ""),
                FormField::new("folder", "folder in which each export gets a new folder", "trefoil-exports"),
            ]),
            requests: RequestLog {
                exchanges: VecDeque::new(),
                selected: 0,
                detail: false,
                scroll: 0,
                filter: Form::new(vec![FormField::new("JSONPath", "like $.issue[*].details.text", "")]),
                sending: None,
            },
            help: HelpScreen::default(),
        }
    }

    /// The initial model of another profile in the same terminal.
    #[must_use]
    pub fn with_profile(&self, profile: &Profile) -> Self {
        let mut model = Self::new(profile, self.about.display, self.now);
        model.about.zone = self.about.zone.clone();
        (model.keys, model.mouse, model.pane_steps) = (self.keys, self.mouse, self.pane_steps);
        model.notice = Some(match &profile.name {
            Some(name) => format!("The profile '{name}' is open."),
            None => "The profile of the command line is open.".to_owned(),
        });
        model
    }

    /// Returns whether the user has confirmed the action. Otherwise asks; `text` is a question. The next key
    /// is the answer.
    pub fn confirms(&mut self, confirmed: Option<&Confirmation>, expected: Confirmation, text: &str) -> bool {
        if confirmed == Some(&expected) {
            return true;
        }
        self.notice = Some(format!("{text} Press {YES} for yes, any other key for no."));
        self.to_confirm = Some(PendingConfirmation { needed: expected, since: self.now });
        false
    }

    /// Takes the current time. A notice disappears after some seconds. Errors and questions remain until the
    /// next key.
    pub fn tick(&mut self, now: Timestamp) {
        self.now = now;
        self.export.rows.iter_mut().for_each(|row| row.measure(now));
        if self.notice.as_deref() != self.noticed.as_ref().map(|(text, _)| text.as_str()) {
            self.noticed = self.notice.clone().map(|text| (text, now));
        }
        let remains = |text: &str| text.starts_with("Error:") || self.to_confirm.is_some();
        if let Some((text, since)) = &self.noticed
            && !remains(text)
            && now.as_second() - since.as_second() >= NOTICE_S
        {
            (self.notice, self.noticed) = (None, None);
        }
    }

    /// Returns whether the time alone changes what is visible: with each tick while something moves, with
    /// each second where seconds are shown, and otherwise with each minute.
    pub fn changes_until(&self, now: Timestamp) -> bool {
        let shows_seconds = self.notice.is_some()
            || self.screen == Screen::SignIn
                && (self.sign_in.inspector.is_some()
                    || matches!(
                        self.sign_in.state,
                        SignInState::In(_) | SignInState::Device(_) | SignInState::Waiting { .. }
                    ));
        let unit_s = if shows_seconds { 1 } else { 60 };
        self.is_moving() || now.as_second() / unit_s != self.now.as_second() / unit_s
    }

    /// Returns whether something on the screens moves with each tick.
    pub fn is_moving(&self) -> bool {
        matches!(self.sign_in.state, SignInState::Starting { .. } | SignInState::Waiting { .. })
            || self.export.any_active()
            || self.batch.is_running()
            || Screen::EVERY.into_iter().any(|screen| self.is_waiting(screen))
    }

    /// Returns whether a request of this screen waits for its response.
    fn is_waiting(&self, screen: Screen) -> bool {
        match (screen, &self.sign_in.inspector, &self.tree.shown) {
            (Screen::Home, ..) => self.home.is_waiting(),
            (Screen::SignIn, Some(inspector), _) => inspector.answer.is_waiting(),
            (Screen::SignIn, None, _) => self.sign_in.claims.is_waiting(),
            (Screen::Codes, ..) => self.codes.is_waiting(),
            (Screen::Tree, _, TreeContent::Concept(sent)) => sent.answer.is_waiting(),
            (Screen::Tree, _, TreeContent::Path(sent)) => sent.answer.is_waiting(),
            (Screen::Requests, ..) => self.requests.sending.is_some(),
            (Screen::Tree | Screen::Export | Screen::Help | Screen::Files, ..) => false,
        }
    }

    /// Ends the waiting of the requests of the visible screen. Returns whether there was one.
    pub fn cancel_waiting(&mut self) -> bool {
        // A search ends with its text.
        let is_search = self.screen == Screen::Home && self.home.is_searching();
        if is_search || !self.is_waiting(self.screen) {
            return false;
        }
        match (self.screen, &mut self.sign_in.inspector, &mut self.tree.shown) {
            (Screen::Home, ..) => self.home.cancel(),
            (Screen::SignIn, Some(inspector), _) => inspector.answer.cancel(),
            (Screen::SignIn, None, _) => self.sign_in.claims.cancel(),
            (Screen::Tree, _, TreeContent::Concept(sent)) => sent.answer.cancel(),
            (Screen::Tree, _, TreeContent::Path(sent)) => sent.answer.cancel(),
            (Screen::Codes, ..) => self.codes.cancel(),
            _ => self.requests.sending = None,
        }
        true
    }

    /// Returns what a change of the profile ends, as a sentence.
    pub fn in_flight(&self) -> Option<&'static str> {
        let signing_in = matches!(
            self.sign_in.state,
            SignInState::Starting { .. } | SignInState::Waiting { .. } | SignInState::Device(_)
        );
        if self.export.any_active() {
            Some("An export is running and can be resumed later.")
        } else if self.batch.is_running() {
            Some("A batch is running; its results will be lost.")
        } else if signing_in {
            Some("A sign-in is waiting and will be cancelled.")
        } else if self.requests.exchanges.iter().any(|exchange| exchange.outcome.is_none()) {
            Some("A request is waiting for its response, which will be lost.")
        } else {
            None
        }
    }

    /// The token that terminology requests use now, with its description.
    pub fn token_choice(&self) -> TokenChoice {
        let bearer = self.contents_bearer();
        let name = match &bearer {
            Bearer::Backend => {
                format!("backend {}", self.about.backend_id.as_deref().unwrap_or("without a client"))
            }
            Bearer::User | Bearer::Given(_) => "the signed-in user".to_owned(),
            Bearer::Anonymous => "nobody, without a token".to_owned(),
        };
        TokenChoice { bearer, name, server: self.about.base_url.clone() }
    }

    /// The token for requests of the Home screen.
    pub fn contents_bearer(&self) -> Bearer {
        self.before_sign_in(self.bearer.clone())
    }

    /// A token, or none if it is that of a user who has not signed in yet.
    pub fn before_sign_in(&self, bearer: Bearer) -> Bearer {
        match bearer {
            Bearer::User if !self.is_signed_in() => Bearer::Anonymous,
            other => other,
        }
    }

    /// The token to which the user can switch.
    pub fn other_bearer(&self) -> Option<Bearer> {
        match self.bearer {
            Bearer::Backend if self.is_signed_in() => Some(Bearer::User),
            Bearer::Backend | Bearer::User => Some(Bearer::Anonymous),
            Bearer::Anonymous | Bearer::Given(_) if self.about.backend_id.is_some() => Some(Bearer::Backend),
            Bearer::Anonymous | Bearer::Given(_) if self.is_signed_in() => Some(Bearer::User),
            Bearer::Anonymous | Bearer::Given(_) => None,
        }
    }

    /// The command that sends the last question of the visible screen.
    pub fn sent_command(&self) -> Option<String> {
        match self.screen {
            Screen::Export => self.export.selected().map(|row| row.command(&self.about)),
            Screen::Tree => self.tree.sent_command(&self.about),
            Screen::Codes if self.batch.open => self.batch.sent_command(&self.about),
            _ => self.codes.sent_command(&self.about),
        }
    }

    /// The last question of the visible screen as a Parameters resource.
    pub fn sent_parameters(&self) -> Option<Value> {
        match self.screen {
            Screen::Tree => self.tree.sent_parameters(),
            Screen::Codes if !self.batch.open => self.codes.sent_parameters(),
            _ => None,
        }
    }

    /// The text that the pager shows: the resource of the viewer, or the body of the selected exchange. If a
    /// JSONPath selects a part, it is that part.
    pub fn pager_text(&self) -> Option<String> {
        if self.screen == Screen::Files {
            let detail = self.export.viewer.as_ref()?.detail.as_ref()?;
            return Some(detail.selection.as_ref().unwrap_or(&detail.text).clone());
        }
        let exchange = self.requests.exchanges.get(self.requests.selected)?;
        let path = self.requests.filter.value("JSONPath");
        let answered = match &exchange.outcome {
            Some(Ok(answered)) if !answered.body.is_empty() => Some(answered.body.as_str()),
            _ => None,
        };
        let selected =
            answered.filter(|_| !path.is_empty()).and_then(|body| json_path::select(body, &path).ok());
        selected.or_else(|| answered.or(exchange.request_body.as_deref()).map(str::to_owned))
    }

    pub fn is_signed_in(&self) -> bool {
        matches!(self.sign_in.state, SignInState::In(_))
    }

    pub fn inspectable_tokens(&self) -> Vec<TokenKind> {
        let user = [TokenKind::UserAccess, TokenKind::Id].into_iter().filter(|_| self.is_signed_in());
        user.chain(self.about.backend_id.as_ref().map(|_| TokenKind::BackendAccess)).collect()
    }

    /// Returns whether the visible screen has a form.
    pub fn has_form(&self) -> bool {
        match self.screen {
            Screen::SignIn => matches!(self.sign_in.state, SignInState::Waiting { .. }),
            Screen::Home | Screen::Codes | Screen::Tree => true,
            Screen::Export => self.export.form_open(),
            Screen::Requests | Screen::Help | Screen::Files => false,
        }
    }

    /// The token for exports: that of the backend client, or else that of the signed-in user, or none.
    pub fn export_bearer(&self) -> Bearer {
        match self.about.backend_id {
            Some(_) => Bearer::Backend,
            None => self.before_sign_in(Bearer::User),
        }
    }

    /// The choices for the level of a new export.
    pub fn export_choices(&self) -> Vec<ExportChoice> {
        let groups = match self.home.list(ContentKind::Groups) {
            Answer::Done(list) => list.entries.as_slice(),
            _ => &[],
        };
        self.export.choices(groups)
    }

    /// The form of the visible screen. The sign-in screen has a form only while it waits for the browser.
    pub fn form(&mut self) -> Option<&mut Form> {
        match self.screen {
            Screen::Home => Some(&mut self.home.search),
            Screen::SignIn if matches!(self.sign_in.state, SignInState::Waiting { .. }) => {
                Some(&mut self.sign_in.form)
            }
            Screen::Codes if self.batch.open => Some(&mut self.batch.form),
            Screen::Codes => Some(self.codes.form()),
            Screen::Tree => Some(&mut self.tree.form),
            Screen::Export if self.export.form_open() => Some(&mut self.export.form),
            Screen::Files => self.export.viewer.as_mut().map(|viewer| &mut viewer.filter),
            Screen::Requests => Some(&mut self.requests.filter),
            Screen::Help => Some(&mut self.help.search),
            Screen::SignIn | Screen::Export => None,
        }
    }
}
