//! JSON with its numbers as they were sent. FHIR's decimals have a precision (`1.00`), and more digits than a
//! number of this program.
//!
//! A number that would change is a text with a mark in the [`Value`], and a number again in its JSON.

use std::ops::Range;

use serde_json::{Number, Value};

/// The mark, a character of private use.
const MARK: char = '\u{f8ff}';

/// Parses a text. Use [`text`] for the JSON of a value.
///
/// # Errors
/// The error of a text that is not JSON.
pub fn parse(json: &str) -> serde_json::Result<Value> {
    // An error has the line and the column of the text as it was sent.
    let value: Value = serde_json::from_str(json)?;
    let inexact: Vec<_> = numbers(json).filter(|range| !is_exact(&json[range.clone()])).collect();
    if inexact.is_empty() {
        return Ok(value);
    }
    let (mut marked, mut end) = (String::with_capacity(json.len()), 0);
    for range in inexact {
        marked.push_str(&json[end..range.start]);
        marked.push_str(&format!("\"{MARK}{}\"", &json[range.clone()]));
        end = range.end;
    }
    marked.push_str(&json[end..]);
    serde_json::from_str(&marked)
}

/// A value as JSON on several lines, with its numbers as they were sent.
pub fn text(value: &Value) -> String {
    without_marks(format!("{value:#}"))
}

/// A value as JSON on one line, with its numbers as they were sent.
pub fn line(value: &Value) -> String {
    without_marks(value.to_string())
}

fn without_marks(json: String) -> String {
    let mark = format!("\"{MARK}");
    let mut parts = json.split(&mark);
    let mut exact = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (number, rest) = part.split_once('"').unwrap_or((part, ""));
        exact.push_str(number);
        exact.push_str(rest);
    }
    exact
}

/// The text of a string, a number as it was sent, or any other value as JSON on one line.
pub fn scalar(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.strip_prefix(MARK).unwrap_or(text).to_owned(),
        None => line(value),
    }
}

/// Returns whether a number has the same text after it was read.
fn is_exact(number: &str) -> bool {
    serde_json::from_str::<Number>(number).is_ok_and(|read| read.to_string() == number)
}

/// The places of the numbers in a JSON text.
fn numbers(json: &str) -> impl Iterator<Item = Range<usize>> {
    let bytes = json.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() {
            let start = at;
            match bytes[at] {
                b'"' => {
                    at += 1;
                    while at < bytes.len() && bytes[at] != b'"' {
                        at += if bytes[at] == b'\\' { 2 } else { 1 };
                    }
                    at += 1;
                }
                b'-' | b'0'..=b'9' => {
                    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
                    at += bytes[at..].iter().take_while(|byte| is_part(byte)).count();
                    return Some(start..at);
                }
                _ => at += 1,
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_have_the_digits_that_were_sent() {
        let json = r#"{"a":[1.00,-0.0,1e3,12345678901234567890.123],"b \"1.00":"1.00","c":{"d":2.50}}"#;
        let value = parse(json).unwrap();
        let compact: String = text(&value).chars().filter(|c| !c.is_whitespace()).collect();
        assert_eq!(compact, json.replace(' ', ""));
        assert_eq!(scalar(&value["c"]["d"]), "2.50");
        assert_eq!(scalar(&serde_json::json!(7)), "7");
        assert_eq!(text(&parse("1.00").unwrap()), "1.00");
        assert!(parse("{\"a\":1.00").is_err());
    }

    proptest! {
        #[test]
        fn any_number_in_any_place_is_exact(
            number in "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?",
            string in "\\PC{0,12}",
        ) {
            let string = Value::from(string.replace(MARK, ""));
            // The other name is longer than any random one.
            let json = format!("{{{string}:[{string},{number},{number}],\"the number alone\":{number}}}");
            let value = parse(&json).unwrap();
            let read = text(&value);
            prop_assert_eq!(read.matches(&format!(" {number}")).count(), 3, "{}", read);
            prop_assert_eq!(scalar(&value["the number alone"]), number);
        }
    }
}
