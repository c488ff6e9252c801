//! Output of the subcommands: results on stdout, and progress and errors on stderr, as text or as JSON lines.
//!
//! Text of the server may contain control characters, which a terminal would execute. They are never printed.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use command_line::text::{json_line, printable};
use serde::Serialize;
use serde_json::{Value, json};

use crate::failure::CommandFailure;

/// Whether progress is not printed. There is one stderr for the whole process.
static PROGRESS_IS_SILENT: AtomicBool = AtomicBool::new(false);

/// Prints no progress from now on (`--quiet`). Errors are printed nevertheless.
pub fn silence_progress() {
    PROGRESS_IS_SILENT.store(true, Ordering::Relaxed);
}

/// Output in one of the two formats.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// Whether results, progress and errors are JSON, one value on each line.
    pub json: bool,
}

impl Output {
    /// Prints the result of the command.
    ///
    /// # Errors
    /// [`CommandFailure::Output`] if stdout cannot be written, for example because the reader has ended.
    pub fn result(
        self,
        response: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<(), CommandFailure> {
        let line = if self.json { json_line(response) } else { printable(&text()).into_owned() };
        print_line(io::stdout().lock(), &line).map_err(CommandFailure::Output)
    }

    /// Prints progress, unless [`silence_progress`] was called. `event` names the kind of progress in JSON,
    /// together with the members of `details`.
    pub fn progress(self, event: &str, details: Value, text: impl FnOnce() -> String) {
        if !PROGRESS_IS_SILENT.load(Ordering::Relaxed) {
            self.event(event, details, text);
        }
    }

    /// Prints what the user must do, also with `--quiet`.
    pub fn instruction(self, event: &str, details: Value, text: impl FnOnce() -> String) {
        self.event(event, details, text);
    }

    fn event(self, event: &str, details: Value, text: impl FnOnce() -> String) {
        let line = if self.json {
            let mut line = json!({ "event": event });
            if let (Some(line), Value::Object(details)) = (line.as_object_mut(), details) {
                line.extend(details);
            }
            json_line(&line)
        } else {
            printable(&text()).into_owned()
        };
        // Progress is not the result: the command continues if nobody can read it.
        let _ = print_line(io::stderr().lock(), &line);
    }

    /// Prints the failure of the command.
    pub fn failure(self, failure: &CommandFailure) {
        let details = json!({ "message": failure.to_string(), "exitCode": failure.exit_code() });
        self.event("error", details, || format!("Error: {failure}"));
    }
}

fn print_line(mut out: impl Write, line: &str) -> io::Result<()> {
    writeln!(out, "{line}")?;
    out.flush()
}
