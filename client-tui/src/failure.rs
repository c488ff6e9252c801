//! Failures of the program, and their exit codes.

use std::io::ErrorKind;

use super::profile::ProfileError;
use crate::api::ApiError;
use crate::export::{ExportError, FolderError};
use crate::settings::SettingsError;

#[derive(Debug, thiserror::Error)]
pub enum CommandFailure {
    /// The command line does not define a valid profile.
    #[error("{0}")]
    Profile(#[from] ProfileError),
    /// The settings of the user are invalid.
    #[error("{0}")]
    Settings(#[from] SettingsError),
    /// A request to the server failed.
    #[error("{0}")]
    Api(#[from] ApiError),
    /// The token could not be read from stdin.
    #[error("failed to read a token from stdin: {0}")]
    Stdin(std::io::Error),
    /// The terminal cannot show the screens.
    #[error("the terminal cannot be used: {0}")]
    Terminal(std::io::Error),
    /// The user has no home folder, and `XDG_STATE_HOME` is not set.
    #[error("the state folder cannot be determined: {0}; set XDG_STATE_HOME to a folder")]
    StateFolder(std::io::Error),
    /// The result could not be printed.
    #[error("failed to print the result: {0}")]
    Output(std::io::Error),
    /// An export did not complete.
    #[error("{0}")]
    Export(#[from] ExportError),
    /// The folder of an export cannot be used.
    #[error("{0}")]
    Folder(#[from] FolderError),
    /// A value on the command line is invalid.
    #[error("{0}")]
    Usage(String),
    /// The folder of a server has no address, because the server does not run.
    #[error(
        "no server runs with the folder {0}; start it, wait for the line 'ready', and repeat the command"
    )]
    NoServer(String),
    /// Some rows of a batch have no answer. They were printed.
    #[error("{failed} of {total} rows have no answer")]
    Batch { failed: u64, total: u64 },
    /// The answer is negative and `--exit-status` is set. The answer was printed.
    #[error("the result is negative")]
    NegativeResult,
    /// The command took longer than its user allows.
    #[error("the command has not ended within {0} s (--max-time)")]
    MaxTime(u64),
    /// The program was ended by a signal.
    #[error("ended by signal {0}")]
    Signal(i32),
}

impl CommandFailure {
    /// The exit code: 1 for a failure, 2 for a usage error, 3 if the server cannot be reached, and 128 plus
    /// the number of the signal that ended the program. It is 0 if the reader of stdout has ended, because
    /// the reader has what it wanted, and 4 for a negative result.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Profile(_)
            | Self::Usage(_)
            | Self::Settings(_)
            | Self::Folder(_)
            | Self::Export(ExportError::Folder(FolderError::NotEmpty(_) | FolderError::NoExport { .. }))
            | Self::Api(ApiError::Profile(_))
            | Self::Api(ApiError::ReadOnly(_))
            | Self::Export(ExportError::Api(ApiError::Profile(_) | ApiError::ReadOnly(_))) => 2,
            Self::Api(error) | Self::Export(ExportError::Api(error)) if error.is_unreachable() => 3,
            Self::NoServer(_) => 3,
            Self::NegativeResult => 4,
            Self::Signal(signal) => 128 + *signal as u8,
            Self::Output(error) if error.kind() == ErrorKind::BrokenPipe => 0,
            _ => 1,
        }
    }
}

impl CommandFailure {
    /// Returns whether the failure needs a message. A negative result was printed already, and the program
    /// that closed stdout does not expect one.
    pub fn needs_message(&self) -> bool {
        !matches!(self, Self::NegativeResult | Self::Signal(_)) && self.exit_code() != 0
    }
}
