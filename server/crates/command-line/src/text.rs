//! Texts for a terminal: those of others, times, and words of a shell.
//!
//! Text from a server or a file may contain control characters, which a terminal would execute.

use std::borrow::Cow;
use std::ffi::OsStr;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

/// Replaces the characters that a terminal executes or that change the order of text. Line feeds and tabs are
/// kept.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unprintable) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace(is_unprintable, "\u{fffd}"))
}

/// A text of others as a part of a line: line breaks and tabs, which would make rows or columns of their own,
/// are replaced too.
pub fn one_line(text: &str) -> Cow<'_, str> {
    let breaks = |c: char| is_unprintable(c) || matches!(c, '\n' | '\t');
    if !text.contains(breaks) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace(['\n', '\t'], " ").replace(is_unprintable, "\u{fffd}"))
}

/// Formats a value as JSON on one line. Characters that a terminal executes are escaped.
///
/// # Panics
/// If a map in the value has keys that are not strings.
pub fn json_line(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).expect("all keys of a result are strings");
    if !text.contains(is_unprintable) {
        return text;
    }
    // serde_json escapes U+0000 to U+001F. The others occur only within strings and are below U+10000.
    let escape = |c: char| if is_unprintable(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    text.chars().map(escape).collect()
}

/// Returns whether a terminal executes a character, or shows others in another order or nothing for it. The
/// joiners of scripts (U+200C, U+200D) and letters from right to left are text.
pub fn is_unprintable(c: char) -> bool {
    let changes_direction =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_invisible = matches!(c, '\u{200b}' | '\u{2028}' | '\u{2029}' | '\u{feff}');
    (c.is_control() && !matches!(c, '\n' | '\t')) || changes_direction || is_invisible
}

/// A time in the time zone of the user, for output as text. JSON contains instants in UTC.
pub fn local_time(time: Timestamp) -> String {
    time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string()
}

/// Quotes a word of a command, such as a path, if a shell would not read it as one word.
pub fn shell_word(word: impl AsRef<OsStr>) -> String {
    let word = word.as_ref().to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-:,=+@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.into_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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
    fn a_text_of_others_makes_no_rows() {
        assert_eq!(one_line("a\tb\nc\r\u{feff}d"), "a b c\u{fffd}\u{fffd}d");
        let text = "می\u{200c}خواهم \u{5e9}\u{5dc}\u{5d5}\u{5dd} 👩\u{200d}🔬";
        assert_eq!(one_line(text), text);
    }

    #[test]
    fn control_characters_are_escaped_in_json() {
        let value = json!({ "text": "\u{1b}[2J\u{9b}2J\u{7f}\u{202e}é" });
        let line = json_line(&value);
        assert_eq!(line, r#"{"text":"\u001b[2J\u009b2J\u007f\u202eé"}"#);
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
    }

    #[test]
    fn words_are_quoted_for_the_shell() {
        assert_eq!(shell_word("https://t.example/a-b_c.d"), "https://t.example/a-b_c.d");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        assert_eq!(shell_word(""), "''");
        assert_eq!(
            shell_word("http://snomed.info/sct?fhir_vs=ecl/<<1"),
            "'http://snomed.info/sct?fhir_vs=ecl/<<1'"
        );
    }
}
