//! Decompression of gzip (RFC 1952): all members of a file. Zeros after a member, with which tapes and some
//! backup programs pad a file, are skipped, as gzip itself does.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;

/// The two bytes with which a member begins.
pub(super) const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Reads the content of all members.
pub(super) struct GzipMembers<R> {
    state: MemberState<R>,
}

enum MemberState<R> {
    Inside(Box<GzDecoder<R>>),
    Between(R),
    End,
}

impl<R: BufRead> GzipMembers<R> {
    pub(super) fn new(source: R) -> Self {
        Self { state: MemberState::Inside(Box::new(GzDecoder::new(source))) }
    }

    /// Starts the next member. Returns the end after zeros.
    fn next_member(mut source: R) -> io::Result<MemberState<R>> {
        loop {
            let chunk = source.fill_buf()?;
            match chunk.first() {
                None => return Ok(MemberState::End),
                Some(0) => {
                    let zeros = chunk.iter().take_while(|byte| **byte == 0).count();
                    source.consume(zeros);
                }
                Some(&first) if first == MAGIC[0] => {
                    return Ok(MemberState::Inside(Box::new(GzDecoder::new(source))));
                }
                Some(_) => {
                    let text = "after the end of the compressed data, the file has other bytes than zeros";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, text));
                }
            }
        }
    }
}

impl<R: BufRead> Read for GzipMembers<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            self.state = match std::mem::replace(&mut self.state, MemberState::End) {
                MemberState::Inside(mut member) => {
                    let read = member.read(into);
                    if !matches!(read, Ok(0)) || into.is_empty() {
                        self.state = MemberState::Inside(member);
                        return read;
                    }
                    MemberState::Between(member.into_inner())
                }
                MemberState::Between(source) => Self::next_member(source)?,
                MemberState::End => return Ok(0),
            };
        }
    }
}
