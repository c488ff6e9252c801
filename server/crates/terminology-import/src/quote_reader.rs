//! Quotes of CSV that are not closed, or only by the quote that begins another field. A CSV reader takes
//! everything after such a quote as one field, so that the rows in it are lost without an error.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

/// The quotes in the bytes that a [`QuoteReader`] has passed on.
#[derive(Debug, Clone, Default)]
pub(crate) struct QuoteState(Rc<QuoteCells>);

#[derive(Debug, Default)]
struct QuoteCells {
    /// Line of the open quote; 0 if none is open.
    opened: Cell<u64>,
    /// Line of the first quote that closes within a field; 0 if there is none.
    misplaced: Cell<u64>,
    is_at_end: Cell<bool>,
}

impl QuoteState {
    /// The line of a quote that is open at the end of the file, or that closes within a field.
    pub(crate) fn unclosed(&self) -> Option<u64> {
        let at_end = Some(self.0.opened.get()).filter(|line| *line > 0 && self.0.is_at_end.get());
        Some(self.0.misplaced.get()).filter(|line| *line > 0).or(at_end)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    RowStart,
    FieldStart,
    InField,
    InQuotes,
    /// After a quote in a quoted field: the end of the field, or the first of two quotes that stand for one.
    AfterQuote,
    /// After blanks that follow a quoted field.
    AfterField,
    Comment,
}

/// An input that follows the quotes in the bytes read from it. A quote begins a quoted field only at the
/// beginning of a field (RFC 4180), and lines that begin with `#` are comments.
pub(crate) struct QuoteReader<R> {
    input: R,
    state: QuoteState,
    position: Position,
    line: u64,
    /// Line of the last quote that began a field.
    begun: u64,
    delimiter: u8,
}

impl<R> QuoteReader<R> {
    pub(crate) fn new(input: R, state: QuoteState, delimiter: u8) -> Self {
        Self { input, state, position: Position::RowStart, line: 1, begun: 0, delimiter }
    }

    fn follow(&mut self, byte: u8) {
        use Position::{AfterField, AfterQuote, Comment, FieldStart, InField, InQuotes, RowStart};
        let before = self.position;
        self.position = match (before, byte) {
            (InQuotes, b'"') => AfterQuote,
            (InQuotes, _) => InQuotes,
            (AfterQuote, b'"') => InQuotes,
            (Comment | RowStart | FieldStart | InField | AfterQuote | AfterField, b'\n') => RowStart,
            (Comment, _) => Comment,
            (RowStart, b'#') => Comment,
            (RowStart | FieldStart, b'"') => InQuotes,
            (_, byte) if byte == self.delimiter => FieldStart,
            (AfterQuote | AfterField, b' ' | b'\t' | b'\r') => AfterField,
            _ => InField,
        };
        if self.position == InQuotes && matches!(before, RowStart | FieldStart) {
            self.begun = self.line;
        }
        if self.position == InField
            && matches!(before, AfterQuote | AfterField)
            && self.state.0.misplaced.get() == 0
        {
            self.state.0.misplaced.set(self.begun);
        }
        match self.position {
            InQuotes if self.state.0.opened.get() == 0 => self.state.0.opened.set(self.line),
            InQuotes | AfterQuote => {}
            _ => self.state.0.opened.set(0),
        }
        if self.position == AfterQuote {
            // Closed, unless another quote follows.
            self.state.0.opened.set(0);
        }
        self.line += u64::from(byte == b'\n');
    }
}

impl<R: Read> Read for QuoteReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        buffer[..read].iter().for_each(|byte| self.follow(*byte));
        self.state.0.is_at_end.set(read == 0 && !buffer.is_empty());
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_an_open_quote_is_known_at_the_end() {
        for (text, expected) in [
            ("code,display\na,\"one\ntwo\"\n", None),
            ("code,display\na,\"one\nb,two\n", Some(2)),
            ("code\n# a comment with a \" quote\na\n", None),
            ("code\na \"b\n", None),
            ("code\n\"a \"\"b\"\"\"\n", None),
            ("code\n\"a\"\"\nb\n", Some(2)),
            ("code,display\na,\"A\nb,\"B\n", Some(2)),
            ("code,display\na,A\nb,\"B\" x\nc,\"C\"\n", Some(3)),
            ("code,display\r\na,\"A\" ,x\r\nb,\"B\"\t\r\n", None),
        ] {
            let state = QuoteState::default();
            let mut out = Vec::new();
            QuoteReader::new(text.as_bytes(), state.clone(), b',').read_to_end(&mut out).unwrap();
            assert_eq!(state.unclosed(), expected, "{text}");
        }
    }
}
