//! Word wrap with a hanging indent: the rows of a long line begin below its text, not below its name or its
//! mark, so that the eye finds the beginning of each line.

use ratatui::text::{Line, Span};
use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

/// Maximum part of the width that an indent uses: one third.
const INDENT_PART: usize = 3;

/// Divides a line into rows of at most so many columns. Each row after the first has the indent of
/// [`hanging_indent`]. Blanks that do not fit in a row are dropped.
pub(super) fn wrap<'a>(line: &Line<'a>, columns: usize) -> Vec<Line<'a>> {
    let columns = columns.max(1);
    if line.width() <= columns {
        return vec![line.clone()];
    }
    let indent = hanging_indent(&line.to_string()).min(columns / INDENT_PART);
    let mut rows = Vec::new();
    let mut row = Row { line: Line::default().style(line.style), used: 0 };
    let mut next = |row: &mut Row<'a>| {
        let indented = Line::from(" ".repeat(indent)).style(line.style);
        rows.push(std::mem::replace(row, Row { line: indented, used: indent }).line);
    };
    for (word, style) in words(line) {
        if row.used + word.width() <= columns {
            row.push(word, style);
            continue;
        }
        if row.used > indent {
            next(&mut row);
        }
        if word.starts_with(' ') {
            continue;
        }
        // A word that is longer than a row is divided.
        for cluster in word.graphemes(true) {
            if row.used + cluster.width() > columns && row.used > indent {
                next(&mut row);
            }
            row.push(cluster.to_owned(), style);
        }
    }
    rows.push(row.line);
    rows
}

/// The number of rows of a text with word wrap.
pub(super) fn wrapped_rows(text: &str, columns: usize) -> usize {
    wrap(&Line::raw(text), columns).len()
}

struct Row<'a> {
    line: Line<'a>,
    used: usize,
}

impl Row<'_> {
    fn push(&mut self, text: String, style: ratatui::style::Style) {
        self.used += text.width();
        match self.line.spans.last_mut() {
            Some(last) if last.style == style => last.content.to_mut().push_str(&text),
            _ => self.line.spans.push(Span::styled(text, style)),
        }
    }
}

/// The words of a line and the blanks between them, with their styles.
fn words(line: &Line<'_>) -> Vec<(String, ratatui::style::Style)> {
    let mut words: Vec<(String, ratatui::style::Style)> = Vec::new();
    for span in &line.spans {
        for cluster in span.content.graphemes(true) {
            match words.last_mut() {
                Some((word, style)) if *style == span.style && (cluster == " ") == word.ends_with(' ') => {
                    word.push_str(cluster);
                }
                _ => words.push((cluster.to_owned(), span.style)),
            }
        }
    }
    words
}

/// The column at which the text of a line begins: after the first gap of two or more blanks, after the mark
/// of a command or of a member of a list, or after the blanks at its beginning.
fn hanging_indent(text: &str) -> usize {
    let blanks = text.len() - text.trim_start_matches(' ').len();
    let rest = &text[blanks..];
    if let Some(mark) = ["$ ", "› ", "- "].into_iter().find(|mark| rest.starts_with(mark)) {
        return blanks + mark.width();
    }
    match rest.find("  ") {
        Some(name) => {
            let value = rest[name..].trim_start_matches(' ');
            blanks + rest.width() - value.width()
        }
        None => blanks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, columns: usize, expected: &[&str]) {
        let rows: Vec<_> =
            wrap(&Line::raw(text), columns).iter().map(|row| row.to_string().trim_end().to_owned()).collect();
        assert_eq!(rows, expected, "{text:?}");
    }

    #[test]
    fn rows_begin_below_the_text_of_their_line() {
        check("one two", 7, &["one two"]);
        check("one two", 6, &["one", "two"]);
        check("  one two three", 9, &["  one two", "  three"]);
        check("  display  a walking stick", 20, &["  display  a walking", "      stick"]);
        check("name  first second third", 18, &["name  first second", "      third"]);
        check("$ trefoil-tui lookup --code", 16, &["$ trefoil-tui", "  lookup --code"]);
    }

    #[test]
    fn words_longer_than_a_row_are_divided() {
        check("abcdefgh i", 4, &["abcd", "efgh", "i"]);
        check("a bb ccc", 3, &["a", "bb", "ccc"]);
        check("  日本語のファイル", 8, &["  日本語", "  のファ", "  イル"]);
    }

    proptest::proptest! {
        #[test]
        fn a_wrapped_line_keeps_its_words_and_its_width(
            text in "( {0,3}[a-zé日👩]{1,12}){0,9}", columns in 2_usize..40,
        ) {
            let rows = wrap(&Line::raw(text.as_str()), columns);
            let joined: String = rows.iter().map(|row| row.to_string()).collect();
            let without_blanks = |text: &str| text.replace(' ', "");
            proptest::prop_assert_eq!(without_blanks(&joined), without_blanks(&text));
            for row in rows {
                proptest::prop_assert!(row.to_string().trim_end().width() <= columns);
            }
        }
    }
}
