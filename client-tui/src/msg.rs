//! Everything that can happen, and everything that can be done about it.

use std::path::PathBuf;

use jiff::Timestamp;
use ratatui::crossterm::event::KeyEvent;

use crate::api::{
    Bearer, Claims, Download, ExportManifest, ExportStatus, FileProgress, KickOff, RecordedExchange,
    SignedInSession,
};
use crate::api::{SubsumesAnswer, SubsumesQuery, ValidateCode, ValidationAnswer};
use crate::journey::Step;

/// A response, or a message that says why there is none.
pub type Answered<T> = Result<T, String>;

/// Messages: keys, ticks and answers alike.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the types say what is answered")]
pub enum Message {
    /// A key was pressed.
    Key(KeyEvent),
    /// Text was pasted.
    Paste(String),
    /// The terminal has another size.
    Resized,
    /// So late is it now.
    Tick(Timestamp),
    /// An exchange with the server is over.
    Exchanged(RecordedExchange),
    SignIn(Step),
    SignedIn(Answered<SignedInSession>),
    SignedOut(Answered<()>),
    Userinfo(Answered<Claims>),
    Validated(Answered<ValidationAnswer>),
    SubsumesAnswer(Answered<SubsumesAnswer>),
    /// Address of the status, or the error.
    KickedOff(Answered<String>),
    Polled(Answered<ExportStatus>),
    /// A file has come so far.
    Piece(FileProgress),
    Downloaded(Answered<Download>),
    ExportDeleted(Answered<()>),
}

/// Effects for the runtime. Each ends in one or more messages.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the types say what is asked")]
pub enum RuntimeEffect {
    SignIn,
    /// Stops waiting for the browser.
    CancelSignIn,
    /// A pasted text, for the waiting sign-in.
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
    /// Puts a text on the clipboard of the person's terminal.
    Copy(String),
}
