//! XML as a stream of elements and texts, with the current line.

use std::io::{self, BufRead, Read};

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use crate::error::{ImportError, unreadable};
use crate::release_source::ReleaseSource;

/// An element or a text.
pub(super) enum XmlEvent<'a> {
    Start(&'a BytesStart<'a>),
    /// Text, or one piece of a longer text.
    Text(&'a str),
    /// End of the element with this name.
    End(&'a str),
}

/// Calls `piece` for each element and text of a file.
///
/// # Errors
/// [`ImportError`] if the file is not valid XML, and the error of `piece` with the line.
pub(super) fn for_each_event(
    source: &mut ReleaseSource<'_>,
    file: &str,
    mut piece: impl FnMut(XmlEvent<'_>) -> Result<(), String>,
) -> Result<(), ImportError> {
    let input = source.read(file).map_err(unreadable(file))?;
    let mut xml = Reader::from_reader(LineCounter { input, line: 1 });
    // Readers then have one case for `<a/>` and `<a></a>`.
    xml.config_mut().expand_empty_elements = true;
    let (mut buffer, mut depth) = (Vec::new(), 0_u64);
    loop {
        buffer.clear();
        let event = xml.read_event_into(&mut buffer);
        let line = xml.get_ref().line;
        let line_error = |reason: String| ImportError::at_line(file, line, reason);
        let name = match event.map_err(|error| line_error(error.to_string()))? {
            Event::Eof if depth == 0 => return Ok(()),
            Event::Eof => {
                return Err(line_error(format!("the file ends within {depth} open elements; copy it again")));
            }
            Event::Start(start) => {
                depth += 1;
                piece(XmlEvent::Start(&start))
            }
            Event::Text(text) => piece(XmlEvent::Text(&text)),
            Event::CData(text) => piece(XmlEvent::Text(&text)),
            Event::GeneralRef(entity) => {
                let resolved = entity.resolve_char_ref().map_err(|error| line_error(error.to_string()))?;
                match (resolved, quick_xml::escape::resolve_predefined_entity(&entity)) {
                    (Some(character), _) => piece(XmlEvent::Text(character.encode_utf8(&mut [0; 4]))),
                    (None, Some(text)) => piece(XmlEvent::Text(text)),
                    (None, None) => Err(format!("unknown entity '{}'", &*entity)),
                }
            }
            Event::End(end) => {
                depth -= 1;
                piece(XmlEvent::End(end.local_name().as_ref()))
            }
            _ => Ok(()),
        };
        name.map_err(line_error)?;
    }
}

/// The value of an attribute.
///
/// # Errors
/// A message if the element is malformed.
pub(super) fn attribute(start: &BytesStart<'_>, name: &str) -> Result<Option<String>, String> {
    match start.try_get_attribute(name).map_err(|error| error.to_string())? {
        Some(value) => {
            let text = quick_xml::escape::unescape(&value.value).map_err(|error| error.to_string())?;
            Ok(Some(text.into_owned()))
        }
        None => Ok(None),
    }
}

/// Replaces each run of white space with one space.
pub(super) fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// An input that counts its lines.
struct LineCounter<R> {
    input: R,
    /// Line of the next byte, from 1.
    line: u64,
}

impl<R: BufRead> Read for LineCounter<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let ready = self.fill_buf()?;
        let length = ready.len().min(into.len());
        into[..length].copy_from_slice(&ready[..length]);
        self.consume(length);
        Ok(length)
    }
}

impl<R: BufRead> BufRead for LineCounter<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.input.fill_buf()
    }

    fn consume(&mut self, length: usize) {
        // The buffer is not empty at this point, so `fill_buf` does not read from the input.
        let passed = self.input.fill_buf().unwrap_or_default();
        let ends = passed.iter().take(length).filter(|byte| **byte == b'\n').count();
        self.line += ends as u64;
        self.input.consume(length);
    }
}
