//! Messages, which change the model, and effects, which the runtime performs.

use std::path::PathBuf;

use jiff::Timestamp;
use ratatui::crossterm::event::{KeyEvent, MouseEvent};

use crate::api::{
    Bearer, Claims, ConceptPlace, ConceptSearch, ContentKind, ContentList, ExpandQuery, ExpandedCode,
    Expansion, HierarchyConcept, HierarchyPath, HierarchyQuery, LookupAnswer, LookupQuery, PathQuery,
    RawRequest, RecordedExchange, ServerSummary, SignedInSession, SubsumesAnswer, SubsumesQuery,
    TokenInspection, TokenKind, ValidateCode, ValidationAnswer,
};
use crate::batch::{BatchDefaults, BatchResult};
use crate::export::registry::RegisteredExport;
use crate::export::{ExportEvent, ExportJob};
use crate::history::PastQuestion;
use crate::journey::Step;
use crate::model::{ClickTarget, CodeCheck, Operation, ResourceDetail, Screen, ViewedFile, ViewerPage};
use crate::other_server::OtherServer;
use crate::profile::choice::ProfileChoice;
use crate::sign_in_method::SignInMethod;

/// A response, or the message of its error.
pub type Answered<T> = Result<T, String>;

/// Inputs of the model: keys, ticks and responses.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the types describe the answers")]
pub enum Message {
    Key(KeyEvent),
    Paste(String),
    /// An event of the mouse, which the runtime translates to one of the two following messages.
    Mouse(MouseEvent),
    /// A mouse button was pressed on this element.
    Click(ClickTarget),
    /// The mouse wheel was turned; true is down.
    Wheel(bool),
    /// Letters of a jump label that were typed so far.
    JumpLetters(String),
    /// The size of the terminal changed.
    Resized,
    /// The terminal named its background colour; true is light.
    Background(bool),
    /// Current time, sent at least once a second.
    Tick(Timestamp),
    /// A signal requests the program to end.
    Terminate,
    /// A signal (SIGTSTP) requests the program to stop until it is continued.
    Suspend,
    /// The program was continued by a signal (SIGCONT).
    Continued,
    /// An exchange with the server ended.
    Exchanged(RecordedExchange),
    /// The text of a request after the user has edited it; `None` if the user wrote nothing.
    Edited(Answered<Option<String>>),
    /// Status of the response to a request of the user.
    Sent(Answered<u16>),
    /// A file was saved; the value is the notice for the user.
    Saved(Answered<String>),
    SignIn(Step),
    SignedIn(Answered<SignedInSession>),
    /// Session of an earlier run of the program, if there is one.
    Restored(Option<SignedInSession>),
    /// Only a session of an earlier version exists, which may be that of another person.
    SharedSession,
    Inspected(TokenKind, Answered<TokenInspection>),
    Session(Option<SignedInSession>),
    /// The tokens of earlier sign-outs were revoked, or could not be; the value is the notice for the user.
    Revoked(Option<String>),
    /// The sign-out ended; the value is the notice for the user.
    SignedOut(Answered<String>),
    Userinfo(Answered<Claims>),
    Code {
        id: u64,
        operation: Operation,
        result: Answered<CodeAnswer>,
    },
    /// Answer of the other server to a question.
    OtherCode {
        id: u64,
        operation: Operation,
        result: Answered<CodeAnswer>,
    },
    /// Answer to a question of the hierarchy browser.
    Tree(u64, TreeAnswer),
    /// Answer to a question of the Home screen.
    Home(u64, HomeAnswer),
    /// Progress of the batch with this id.
    Batch(u64, BatchEvent),
    /// Questions that were sent before, the newest first.
    History(Answered<Vec<PastQuestion>>),
    Profiles(Answered<Vec<ProfileChoice>>),
    /// Exports of earlier runs of the program.
    Exports(Vec<RegisteredExport>),
    /// Progress of the export in a folder.
    ExportProgress {
        folder: PathBuf,
        event: ExportEvent,
    },
    /// The task of the export in a folder ended. An export continues at another host, to which the token is
    /// sent only if the user allows it. It has ended.
    ExportNeedsHost {
        folder: PathBuf,
        host: String,
    },
    ExportEnded {
        folder: PathBuf,
        result: Answered<()>,
    },
    /// A part of the list of a file: the number of all lines, and the rows.
    FilePage {
        path: PathBuf,
        filter: String,
        result: Answered<(u64, ViewerPage)>,
    },
    Resource(Answered<ResourceDetail>),
    FoundResource(Answered<FoundResource>),
    /// Results for the resource with this text.
    CodesChecked {
        resource: String,
        result: Answered<Vec<CodeCheck>>,
    },
    ExportDeleted {
        folder: PathBuf,
        result: Answered<ExportJob>,
    },
}

/// The place of a resource in the files of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundResource {
    pub file: usize,
    pub line: u64,
}

/// A question to the terminology server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the types describe the questions")]
pub enum CodeQuestion {
    ValidateCode(ValidateCode),
    Subsumes(SubsumesQuery),
    Lookup(LookupQuery),
    Expand(ExpandQuery),
}

impl CodeQuestion {
    pub fn operation(&self) -> Operation {
        match self {
            Self::ValidateCode(_) => Operation::ValidateCode,
            Self::Subsumes(_) => Operation::Subsumes,
            Self::Lookup(_) => Operation::Lookup,
            Self::Expand(_) => Operation::Expand,
        }
    }
}

/// The answer to a [`CodeQuestion`].
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the types describe the answers")]
pub enum CodeAnswer {
    ValidateCode(ValidationAnswer),
    Subsumes(SubsumesAnswer),
    Lookup(LookupAnswer),
    Expand(Expansion),
}

/// A question of the hierarchy browser.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the types describe the questions")]
pub enum TreeQuestion {
    Concept(HierarchyQuery),
    Path(PathQuery),
    /// Search for a text that is being typed. It replaces an earlier search.
    Search(ConceptSearch),
}

/// The answer to a [`TreeQuestion`].
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the types describe the answers")]
pub enum TreeAnswer {
    Concept(Answered<HierarchyConcept>),
    Path(Answered<HierarchyPath>),
    Search(Answered<Vec<ExpandedCode>>),
}

/// The answer to a question of the Home screen.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the types describe the answers")]
pub enum HomeAnswer {
    List(ContentKind, Answered<ContentList>),
    Summary(Answered<ServerSummary>),
    /// The concepts that were found in the code system with this URL.
    Found(String, Answered<Vec<ExpandedCode>>),
    /// The resources whose titles contain the text, of a kind whose list is incomplete.
    Titled(ContentKind, Answered<ContentList>),
    Place(Answered<ConceptPlace>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchEvent {
    /// The file was read; it has this number of rows.
    Started(u64),
    Row(BatchResult),
    /// All rows were validated, or the file cannot be read.
    Ended(Answered<()>),
}

/// Effects that the runtime performs. Each one results in one or more messages.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the types describe the requests")]
pub enum RuntimeEffect {
    SignIn(SignInMethod),
    Inspect(TokenKind),
    /// Continues the session of an earlier run of the program.
    RestoreSession,
    /// Ends the sign-in that waits for the browser.
    CancelSignIn,
    /// Passes a pasted text to the sign-in that waits for the browser.
    Pasted(String),
    SignOut {
        /// Whether the session of the browser is ended, too.
        browser: bool,
    },
    Userinfo,
    /// Ends the requests of a screen that wait for a response.
    CancelRequests(Screen),
    /// Sends the question with this id.
    Code(u64, CodeQuestion, Bearer),
    /// Sends the question with this id to the other server, too.
    OtherCode(u64, CodeQuestion, OtherServer),
    /// Sends the question of the hierarchy browser with this id.
    Tree(u64, TreeQuestion, Bearer),
    /// Ends the search for the text that was typed.
    CancelSearch,
    /// Requests the lists of the Home screen. Groups are requested with the token of exports.
    Contents {
        id: u64,
        bearer: Bearer,
        groups_bearer: Bearer,
    },
    /// Searches code systems, and the titles of some kinds of resources, for the text that is being typed. It
    /// replaces an earlier search.
    SearchSystems {
        id: u64,
        text: String,
        systems: Vec<String>,
        kinds: Vec<ContentKind>,
        bearer: Bearer,
    },
    /// Looks up the place of the selected concept. It replaces an earlier lookup.
    Place(u64, HierarchyQuery, Bearer),
    /// Validates the codes of a file. It replaces an earlier batch.
    StartBatch {
        id: u64,
        path: PathBuf,
        defaults: BatchDefaults,
        bearer: Bearer,
    },
    StopBatch,
    /// Reads the profiles that can be opened.
    ListProfiles,
    /// Ends everything that belongs to the open profile, and opens another one.
    OpenProfile(ProfileChoice),
    /// Reads the questions that were sent before.
    ReadHistory,
    /// Stores a question with its answer.
    AddToHistory(PastQuestion),
    /// Reads the exports of earlier runs of the program.
    ListExports,
    StartExport {
        folder: PathBuf,
        job: ExportJob,
        bearer: Bearer,
    },
    ResumeExport {
        folder: PathBuf,
        bearer: Bearer,
        /// Host that the user allows to receive the token.
        file_host: Option<String>,
    },
    /// Ends the task of an export, and deletes the export on the server.
    DeleteExport {
        folder: PathBuf,
        bearer: Bearer,
    },
    /// Reads a part of the list of a file: of all lines, or of those that contain the filter.
    ReadPage {
        path: PathBuf,
        filter: String,
        first: u64,
    },
    /// Reads the resource at a position of the list.
    ReadResource {
        path: PathBuf,
        filter: String,
        at: u64,
    },
    /// Looks for the resource of a reference.
    FindResource {
        files: Vec<ViewedFile>,
        reference: String,
    },
    /// Validates the codes of a resource.
    CheckCodes(String, Bearer),
    /// Opens a text in the editor of the user.
    EditRequest(String),
    /// Shows a text in the pager of the user.
    OpenPager(String),
    /// Sends a request of the user.
    SendRaw(RawRequest, Bearer),
    /// Writes a file that only the user may read.
    Save {
        path: PathBuf,
        content: String,
    },
    /// Copies a text to the clipboard of the terminal.
    Copy(String),
    /// Copies the password of the demo user, which is not part of the model, to the clipboard of the
    /// terminal.
    CopyDemoPassword,
    /// Copies a token, which is not part of the model, to the clipboard of the terminal.
    CopyToken(TokenKind),
    /// Reads the mouse, or leaves it to the terminal.
    CaptureMouse(bool),
    /// Stops the program until the user continues it.
    Suspend,
    /// Enters the terminal again, and draws everything.
    Redraw,
}
