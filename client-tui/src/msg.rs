//! Everything that can happen, and everything that can be done about it.

use std::path::PathBuf;

use jiff::Timestamp;
use ratatui::crossterm::event::KeyEvent;

use crate::api::{Bearer, Claims, Download, Exchange, KickOff, Manifest, Piece, Poll, Session};
use crate::api::{Subsumed, Subsumes, ValidateCode, Validated};
use crate::journey::Step;

/// An answer, or why there is none, in words.
pub type Answered<T> = Result<T, String>;

/// What can happen. Keys, ticks and answers are all alike.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the types say what is answered")]
pub enum Msg {
    /// A key was pressed.
    Key(KeyEvent),
    /// Text was pasted.
    Paste(String),
    /// The terminal has another size.
    Resized,
    /// So late is it now.
    Tick(Timestamp),
    /// An exchange with the server is over.
    Exchanged(Exchange),
    SignIn(Step),
    SignedIn(Answered<Session>),
    SignedOut(Answered<()>),
    Userinfo(Answered<Claims>),
    Validated(Answered<Validated>),
    Subsumed(Answered<Subsumed>),
    /// The address of the status, or why there is no export.
    KickedOff(Answered<String>),
    Polled(Answered<Poll>),
    /// A file has come so far.
    Piece(Piece),
    Downloaded(Answered<Download>),
    ExportDeleted(Answered<()>),
}

/// What the runtime is to do. Each ends in one or more messages.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the types say what is asked")]
pub enum Effect {
    SignIn,
    /// Stops waiting for the browser.
    CancelSignIn,
    /// What a person pasted, for the sign-in that waits.
    Pasted(String),
    SignOut,
    Userinfo,
    ValidateCode(ValidateCode, Bearer),
    Subsumes(Subsumes, Bearer),
    KickOff(KickOff),
    Poll {
        status_url: String,
    },
    Download {
        manifest: Manifest,
        folder: PathBuf,
    },
    DeleteExport {
        status_url: String,
    },
    /// Puts a text on the clipboard of the person's terminal.
    Copy(String),
}
