//! Questions before an action that ends or sends something. The next key is the answer.

use std::path::PathBuf;

use jiff::Timestamp;

use crate::keys::Action;

/// A question that waits for [`YES`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingConfirmation {
    pub needed: Confirmation,
    /// Time at which the question was shown.
    pub since: Timestamp,
}

/// The key that confirms. It differs from the key that asks, so that a key which is held confirms nothing.
pub const YES: char = 'y';
/// Milliseconds after a question in which keys are ignored: those of a paste or of a held key.
const HASTE_MS: i64 = 500;

impl PendingConfirmation {
    /// Returns whether a person cannot have read the question yet.
    pub fn is_new(&self, now: Timestamp) -> bool {
        is_new(self.since, now)
    }
}

/// Returns whether a person cannot have read a question of this time yet.
pub(super) fn is_new(since: Timestamp, now: Timestamp) -> bool {
    now.as_millisecond() - since.as_millisecond() < HASTE_MS
}

/// Actions that need a confirmation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Confirmation {
    Quit,
    /// Delete the export of this folder on the server.
    DeleteExport(PathBuf),
    /// Send the token of an export to this host.
    SendToken(String),
    SignOut {
        /// Whether the session of the browser is ended, too.
        browser: bool,
    },
    /// Send the exchange with this id again.
    Replay(u64),
}

impl Confirmation {
    /// The action that is confirmed.
    pub fn action(&self) -> Action {
        match self {
            Self::Quit => Action::Quit,
            Self::DeleteExport(_) => Action::DeleteExport,
            Self::SendToken(_) => Action::ResumeExport,
            Self::SignOut { browser: true } => Action::SignOutBrowser,
            Self::SignOut { browser: false } => Action::SignOut,
            Self::Replay(_) => Action::Replay,
        }
    }
}
