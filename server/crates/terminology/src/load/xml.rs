//! XML as a stream of elements and texts, with the line that each one ends in.

use std::io::{self, BufRead, Read};

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::source::Source;
use super::{LoadError, unreadable};

/// What comes next.
pub(super) enum Piece<'a> {
    /// An element begins.
    Start(&'a BytesStart<'a>),
    /// Text, or a part of it.
    Text(&'a str),
    /// An element of this name ends.
    End(&'a str),
}

/// Calls `piece` for everything in a file of the release.
///
/// # Errors
/// Of the file; what the caller finds wrong, told with the line.
pub(super) fn each(
    source: &mut Source<'_>,
    file: &str,
    mut piece: impl FnMut(Piece<'_>) -> Result<(), String>,
) -> Result<(), LoadError> {
    let input = source.read(file).map_err(unreadable(file))?;
    let mut xml = Reader::from_reader(Lines { input, line: 1 });
    xml.config_mut().expand_empty_elements = true;
    let (mut buffer, mut depth) = (Vec::new(), 0_u64);
    loop {
        buffer.clear();
        let event = xml.read_event_into(&mut buffer);
        let line = xml.get_ref().line;
        let wrong = |why: String| LoadError::at_line(file, line, why);
        let taken = match event.map_err(|error| wrong(error.to_string()))? {
            Event::Eof if depth == 0 => return Ok(()),
            Event::Eof => {
                return Err(wrong(format!("it ends in the midst of {depth} elements; copy it again")));
            }
            Event::Start(start) => {
                depth += 1;
                piece(Piece::Start(&start))
            }
            Event::Text(text) => piece(Piece::Text(&text)),
            Event::CData(text) => piece(Piece::Text(&text)),
            Event::GeneralRef(entity) => {
                let resolved = entity.resolve_char_ref().map_err(|error| wrong(error.to_string()))?;
                match (resolved, quick_xml::escape::resolve_predefined_entity(&entity)) {
                    (Some(character), _) => piece(Piece::Text(character.encode_utf8(&mut [0; 4]))),
                    (None, Some(text)) => piece(Piece::Text(text)),
                    (None, None) => Err(format!("the entity '{}' is not known here", &*entity)),
                }
            }
            Event::End(end) => {
                depth -= 1;
                piece(Piece::End(end.local_name().as_ref()))
            }
            _ => Ok(()),
        };
        taken.map_err(wrong)?;
    }
}

/// The value of an attribute.
///
/// # Errors
/// When the element is malformed.
pub(super) fn attribute(start: &BytesStart<'_>, name: &str) -> Result<Option<String>, String> {
    match start.try_get_attribute(name).map_err(|error| error.to_string())? {
        Some(found) => {
            let text = quick_xml::escape::unescape(&found.value).map_err(|error| error.to_string())?;
            Ok(Some(text.into_owned()))
        }
        None => Ok(None),
    }
}

/// Text with runs of blanks and line ends as one blank.
pub(super) fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// An input that counts its lines.
struct Lines<R> {
    input: R,
    /// The line that the next byte stands in, from 1.
    line: u64,
}

impl<R: BufRead> Read for Lines<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let ready = self.fill_buf()?;
        let length = ready.len().min(into.len());
        into[..length].copy_from_slice(&ready[..length]);
        self.consume(length);
        Ok(length)
    }
}

impl<R: BufRead> BufRead for Lines<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.input.fill_buf()
    }

    fn consume(&mut self, length: usize) {
        // What is consumed was filled before, so nothing is read here.
        let passed = self.input.fill_buf().unwrap_or_default();
        let ends = passed.iter().take(length).filter(|byte| **byte == b'\n').count();
        self.line += ends as u64;
        self.input.consume(length);
    }
}
