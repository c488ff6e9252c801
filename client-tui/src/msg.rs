//! Messages, which change the model, and effects, which the runtime performs.

use std::path::PathBuf;

use jiff::Timestamp;
use ratatui::crossterm::event::KeyEvent;

use crate::api::{
    Bearer, Claims, Download, ExportManifest, ExportStatus, FileProgress, KickOff, RecordedExchange,
    SignedInSession,
};
use crate::api::{SubsumesAnswer, SubsumesQuery, ValidateCode, ValidationAnswer};
use crate::journey::Step;

/// A response, or the message of its error.
pub type Answered<T> = Result<T, String>;

/// Inputs of the model: keys, ticks and responses.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the types describe the answers")]
pub enum Message {
    /// A key was pressed.
    Key(KeyEvent),
    /// Text was pasted.
    Paste(String),
    /// The size of the terminal changed.
    Resized,
    /// Current time, sent once a second.
    Tick(Timestamp),
    /// An exchange with the server ended.
    Exchanged(RecordedExchange),
    SignIn(Step),
    SignedIn(Answered<SignedInSession>),
    SignedOut(Answered<()>),
    Userinfo(Answered<Claims>),
    Validated(Answered<ValidationAnswer>),
    SubsumesAnswer(Answered<SubsumesAnswer>),
    /// Address of the status of the started export, or the error.
    KickedOff(Answered<String>),
    Polled(Answered<ExportStatus>),
    /// Progress of a downloaded file.
    Piece(FileProgress),
    Downloaded(Answered<Download>),
    ExportDeleted(Answered<()>),
}

/// Effects that the runtime performs. Each one results in one or more messages.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the types describe the requests")]
pub enum RuntimeEffect {
    SignIn,
    /// Ends the sign-in that waits for the browser.
    CancelSignIn,
    /// Passes a pasted text to the sign-in that waits for the browser.
    Pasted(String),
    SignOut,
    Userinfo,
    ValidateCode(ValidateCode, Bearer),
    Subsumes(SubsumesQuery, Bearer),
    KickOff(KickOff),
    Poll {
        status_url: String,
    },
    Download {
        manifest: ExportManifest,
        folder: PathBuf,
    },
    DeleteExport {
        status_url: String,
    },
    /// Copies a text to the clipboard of the terminal.
    Copy(String),
}
