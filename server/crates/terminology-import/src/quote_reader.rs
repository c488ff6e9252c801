//! Quotes of CSV that are never closed. A CSV reader takes everything after such a quote as one field, so
//! that the rows in it are lost without an error.

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
    is_at_end: Cell<bool>,
}

impl QuoteState {
    /// The line of a quote that is open at the end of the file.
    pub(crate) fn unclosed(&self) -> Option<u64> {
        Some(self.0.opened.get()).filter(|line| *line > 0 && self.0.is_at_end.get())
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
    Comment,
}

/// An input that follows the quotes in the bytes read from it. A quote begins a quoted field only at the
/// beginning of a field (RFC 4180), and lines that begin with `#` are comments.
pub(crate) struct QuoteReader<R> {
    input: R,
    state: QuoteState,
    position: Position,
    line: u64,
    delimiter: u8,
}

impl<R> QuoteReader<R> {
    pub(crate) fn new(input: R, state: QuoteState, delimiter: u8) -> Self {
        Self { input, state, position: Position::RowStart, line: 1, delimiter }
    }

    fn follow(&mut self, byte: u8) {
        use Position::{AfterQuote, Comment, FieldStart, InField, InQuotes, RowStart};
        self.position = match (self.position, byte) {
            (InQuotes, b'"') => AfterQuote,
            (InQuotes, _) => InQuotes,
            (AfterQuote, b'"') => InQuotes,
            (Comment, b'\n') | (RowStart | FieldStart | InField | AfterQuote, b'\n') => RowStart,
            (Comment, _) => Comment,
            (RowStart, b'#') => Comment,
            (RowStart | FieldStart, b'"') => InQuotes,
            (_, byte) if byte == self.delimiter => FieldStart,
            _ => InField,
        };
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
        ] {
            let state = QuoteState::default();
            let mut out = Vec::new();
            QuoteReader::new(text.as_bytes(), state.clone(), b',').read_to_end(&mut out).unwrap();
            assert_eq!(state.unclosed(), expected, "{text}");
        }
    }
}
