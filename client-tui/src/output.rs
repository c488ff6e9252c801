//! Output of the subcommands: results on stdout, and progress and errors on stderr, as text or as JSON lines.
//!
//! Text of the server may contain control characters, which a terminal would execute. They are never printed.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use jiff::tz::TimeZone;
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
        answer: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<(), CommandFailure> {
        let line = if self.json { json_line(answer) } else { printable(&text()).into_owned() };
        print_line(io::stdout().lock(), &line).map_err(CommandFailure::Output)
    }

    /// Prints progress, unless [`silence_progress`] was called. `event` names the kind of progress in JSON,
    /// together with the members of `details`.
    pub fn progress(self, event: &str, details: Value, text: impl FnOnce() -> String) {
        if !PROGRESS_IS_SILENT.load(Ordering::Relaxed) {
            self.event(event, details, text);
        }
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

/// A time in the time zone of the user, for output as text. JSON contains instants in UTC.
pub(crate) fn local_time(time: Timestamp) -> String {
    time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string()
}

fn print_line(mut out: impl Write, line: &str) -> io::Result<()> {
    writeln!(out, "{line}")?;
    out.flush()
}

/// Replaces the characters that a terminal executes or that change the order of text. Line feeds and tabs are
/// kept.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unprintable) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace(is_unprintable, "\u{fffd}"))
}

/// Formats a value as JSON on one line. Characters that a terminal executes are escaped.
fn json_line(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).expect("all keys of an answer are strings");
    if !text.contains(is_unprintable) {
        return text;
    }
    // serde_json escapes U+0000 to U+001F. The others occur only within strings and are below U+10000.
    let escape = |c: char| if is_unprintable(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    text.chars().map(escape).collect()
}

fn is_unprintable(c: char) -> bool {
    let changes_direction = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    (c.is_control() && !matches!(c, '\n' | '\t')) || changes_direction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_not_printed() {
        assert_eq!(printable("a\tb\nc é"), "a\tb\nc é");
        assert_eq!(
            printable("\u{1b}]0;x\u{7}\u{9b}2J\u{202e}\r"),
            "\u{fffd}]0;x\u{fffd}\u{fffd}2J\u{fffd}\u{fffd}"
        );
    }

    #[test]
    fn control_characters_are_escaped_in_json() {
        let value = json!({ "text": "\u{1b}[2J\u{9b}2J\u{7f}\u{202e}é" });
        let line = json_line(&value);
        assert_eq!(line, r#"{"text":"\u001b[2J\u009b2J\u007f\u202eé"}"#);
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
    }
}
