//! Encodings of texts.

use std::io::{self, BufRead, Read};

use encoding_rs::{Encoding, UTF_16BE, UTF_16LE, WINDOWS_1252};
use serde::{Deserialize, Serialize};

/// Byte order mark with which spreadsheet programs begin UTF-8 files.
pub(crate) const UTF_8_MARK: &[u8] = b"\xEF\xBB\xBF";

/// An encoding that a file does not show, so that a person must state it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StatedEncoding {
    /// Latin-1, with the further characters of Windows (Windows-1252).
    Latin1,
}

impl StatedEncoding {
    /// The encoding with this name, for a command line.
    ///
    /// # Errors
    /// A text with the names.
    pub fn named(name: &str) -> Result<Self, &'static str> {
        match name.to_ascii_lowercase().as_str() {
            "latin1" | "latin-1" | "iso-8859-1" | "windows-1252" | "cp1252" => Ok(Self::Latin1),
            _ => Err("it must be latin1; UTF-8 and UTF-16 are found without it"),
        }
    }
}

/// The encoding of a text with this beginning, or `None` if it is UTF-8.
pub(crate) fn of(head: &[u8], stated: Option<StatedEncoding>) -> Option<&'static Encoding> {
    match head {
        [0xFF, 0xFE, ..] => Some(UTF_16LE),
        [0xFE, 0xFF, ..] => Some(UTF_16BE),
        // A text without a mark that begins with a character of ASCII.
        [1..=0x7F, 0, ..] => Some(UTF_16LE),
        [0, 1..=0x7F, ..] => Some(UTF_16BE),
        _ => stated.map(|StatedEncoding::Latin1| WINDOWS_1252),
    }
}

/// The text in UTF-8, without a mark.
pub(crate) fn decode(bytes: &[u8], encoding: &'static Encoding) -> io::Result<Vec<u8>> {
    let (text, _, has_errors) = encoding.decode(bytes);
    if has_errors {
        let reason =
            format!("the text looks like {}, but is not valid; save it as 'CSV UTF-8'", encoding.name());
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    Ok(text.into_owned().into_bytes())
}

/// Size of the buffer, in bytes.
const BUFFER: usize = 64 << 10;

/// Passes on a text in UTF-8, and fails in the line that is not.
pub(crate) struct Utf8Reader<R> {
    input: R,
    line: u64,
    /// Bytes that were read. Those up to `valid` are complete characters, those from there on the beginning
    /// of one.
    buffer: Vec<u8>,
    used: usize,
    valid: usize,
}

impl<R: Read> Utf8Reader<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, line: 1, buffer: Vec::new(), used: 0, valid: 0 }
    }

    /// Reads until there are complete characters, or the text ends.
    fn fill(&mut self) -> io::Result<()> {
        self.line += lines(&self.buffer[..self.valid]);
        self.buffer.drain(..self.valid);
        (self.used, self.valid) = (0, 0);
        while self.valid == 0 {
            let length = self.buffer.len();
            self.buffer.resize(length + BUFFER, 0);
            let read = self.input.read(&mut self.buffer[length..]);
            self.buffer.truncate(length + *read.as_ref().unwrap_or(&0));
            let is_end = read? == 0;
            self.valid = match std::str::from_utf8(&self.buffer) {
                Ok(text) => text.len(),
                // More bytes may complete the last character.
                Err(error) if error.error_len().is_none() && !is_end => error.valid_up_to(),
                Err(error) => {
                    let line = self.line + lines(&self.buffer[..error.valid_up_to()]);
                    let reason = format!(
                        "line {line} is not UTF-8; save the file as 'CSV UTF-8', or add --encoding latin1"
                    );
                    return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
                }
            };
            if is_end {
                break;
            }
        }
        Ok(())
    }
}

fn lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

impl<R: Read> BufRead for Utf8Reader<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.used == self.valid {
            self.fill()?;
        }
        Ok(&self.buffer[self.used..self.valid])
    }

    fn consume(&mut self, amount: usize) {
        self.used += amount;
    }
}

impl<R: Read> Read for Utf8Reader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut ready = self.fill_buf()?;
        let read = ready.read(buffer)?;
        self.consume(read);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes on one byte at a time.
    struct OneByOne<'a>(&'a [u8]);

    impl Read for OneByOne<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(&mut buffer[..1])
        }
    }

    fn read(bytes: &[u8]) -> io::Result<String> {
        let mut text = String::new();
        Utf8Reader::new(OneByOne(bytes)).read_to_string(&mut text)?;
        Ok(text)
    }

    #[test]
    fn characters_may_come_in_pieces_and_faults_have_their_line() {
        assert_eq!(read("ä,€\n𝄞".as_bytes()).unwrap(), "ä,€\n𝄞");
        for (bytes, line) in [(&b"a\nb\n\xE4\n"[..], 3), (b"\xE4", 1), (b"a\n\xE2\x82", 2)] {
            let error = read(bytes).unwrap_err().to_string();
            assert!(error.starts_with(&format!("line {line} is not UTF-8")), "{error}");
        }
    }
}
