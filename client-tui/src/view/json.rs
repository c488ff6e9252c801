//! Coloured JSON: one line of text becomes spans for names, strings and other values.

use ratatui::text::{Line, Span};

use super::theme::Theme;

/// Colours one line of formatted JSON. A text that is not JSON is returned without colours.
pub fn json_line(line: &str, theme: Theme) -> Line<'_> {
    let mut spans = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        let (token, after) = next_token(rest);
        let style = match token.as_bytes()[0] {
            b'"' if after.trim_start().starts_with(':') => theme.json_name(),
            b'"' => theme.json_text(),
            b'0'..=b'9' | b'-' | b't' | b'f' | b'n' => theme.json_literal(),
            _ => ratatui::style::Style::new(),
        };
        spans.push(Span::styled(token, style));
        rest = after;
    }
    Line::from(spans)
}

/// Splits the first token off a text that is not empty: a string, a word, or the characters between.
fn next_token(text: &str) -> (&str, &str) {
    let bytes = text.as_bytes();
    let end = match bytes[0] {
        b'"' => string_end(bytes),
        first if is_word(first) => bytes.iter().position(|byte| !is_word(*byte)).unwrap_or(bytes.len()),
        _ => bytes.iter().position(|byte| *byte == b'"' || is_word(*byte)).unwrap_or(bytes.len()),
    };
    text.split_at(end)
}

/// The position after the closing quote, or the end of the text if there is none.
fn string_end(bytes: &[u8]) -> usize {
    let mut escaped = false;
    for (index, byte) in bytes.iter().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return index + 1,
            _ => {}
        }
    }
    bytes.len()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::display::{ColourScheme, DisplayOptions};

    #[track_caller]
    fn check(line: &str, expected: &[&str]) {
        let spans = json_line(
            line,
            Theme::new(DisplayOptions { colours: ColourScheme::None, ..DisplayOptions::default() }),
        )
        .spans;
        let parts: Vec<_> = spans.iter().map(|span| span.content.as_ref()).collect();
        assert_eq!(parts, expected);
    }

    #[test]
    fn lines_are_split_into_tokens() {
        check(r#"  "a\"b": [1.5e-3, true],"#, &["  ", r#""a\"b""#, ": [", "1.5e-3", ", ", "true", "],"]);
        check(r#""é: {"#, &[r#""é: {"#]);
        check("é漢 x", &["é漢 ", "x"]);
        check("", &[]);
    }
}
