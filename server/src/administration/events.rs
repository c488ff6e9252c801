//! The events of a running command: progress, results and errors.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An event of a running command.
///
/// `Trouble` and `Exit` have the same format in all versions, because the server also sends them to programs
/// of other versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandEvent {
    /// A line of the result, for standard output.
    Line(String),
    /// A part of the result for standard output: as text, or as JSON if the operator asked for it.
    Record {
        /// One or more lines.
        text: String,
        /// The same facts.
        json: Value,
    },
    /// Durable progress. On a terminal, one line is updated; in a pipe, each event is a line of standard
    /// error.
    Progress(String),
    /// Progress of reading. It is shown as a bar on a terminal, and not shown in a pipe.
    Reading {
        /// Description of the activity, with the name of the file.
        doing: String,
        /// Number of bytes read.
        bytes: u64,
        /// Total number of bytes.
        of: u64,
    },
    /// A line about an error, for standard error.
    Trouble(String),
    /// The end of the command, with its exit code.
    Exit(u8),
}

/// A function that receives the events of a command.
pub type EventSink<'a> = &'a mut (dyn FnMut(CommandEvent) + Send);
