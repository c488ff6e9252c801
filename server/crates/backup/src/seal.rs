//! Encryption of backups with AES-256-GCM, if a key is given.
//!
//! An object is divided into pieces of [`PIECE`] bytes, of which the last one is shorter and may be empty. A
//! sealed piece is a random nonce, the ciphertext and the tag. Its associated data are the path of the
//! object, the number of the piece and whether it is the last one: pieces cannot be moved, removed or
//! appended. The manifest stays readable, with a tag over its text.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use sha2::{Digest as _, Sha256};

/// Number of bytes of a piece, except the last one.
const PIECE: usize = 1 << 20;
/// Number of bytes that the seal adds to a piece.
const OVERHEAD: usize = NONCE_LEN + 16;

/// The key of backups.
pub struct BackupKey {
    id: String,
    key: RandomizedNonceKey,
}

impl fmt::Debug for BackupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BackupKey({})", self.id)
    }
}

impl BackupKey {
    /// Decodes a key of 32 bytes from base64. Returns `None` if the text is none.
    pub fn from_base64(text: &str) -> Option<Self> {
        let bytes = STANDARD.decode(text.trim()).ok().filter(|bytes| bytes.len() == 32)?;
        let key = RandomizedNonceKey::new(&AES_256_GCM, &bytes).ok()?;
        let id = Sha256::new().chain_update(b"trefoil backup key id").chain_update(&bytes).finalize();
        Some(Self { id: hex(&id[..8]), key })
    }

    /// The id of the key, from which the key cannot be computed.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The length of an object after it is sealed.
    pub(crate) fn sealed_length(bytes: u64) -> u64 {
        bytes + OVERHEAD as u64 * (bytes / PIECE as u64 + 1)
    }

    /// Seals a whole object.
    pub(crate) fn seal(&self, object: &str, plain: &[u8]) -> Vec<u8> {
        let (mut sealer, mut out) = (PieceSealer::new(self, object), Vec::new());
        sealer.push(plain, &mut out);
        sealer.finish(&mut out);
        out
    }

    /// Opens a whole object; `None` if it is not as it was sealed.
    pub(crate) fn open(&self, object: &str, sealed: &[u8]) -> Option<Bytes> {
        let (mut opener, mut out) = (PieceOpener::new(self, object), Vec::new());
        opener.push(sealed, &mut out)?;
        opener.finish(&mut out)?;
        Some(out.into())
    }

    /// A tag over a text that stays readable, in base64.
    pub(crate) fn tag(&self, text: &[u8]) -> String {
        let mut sealed = Vec::new();
        let nonce = self.key.seal_in_place_append_tag(Aad::from(text), &mut sealed);
        let nonce = nonce.expect("AES-GCM seals every text of less than 64 GiB");
        STANDARD.encode([&nonce.as_ref()[..], &sealed].concat())
    }

    /// Returns whether a tag is that of a text.
    pub(crate) fn is_tag(&self, tag: &str, text: &[u8]) -> bool {
        let Ok(mut sealed) = STANDARD.decode(tag) else { return false };
        if sealed.len() != OVERHEAD {
            return false;
        }
        let mut rest = sealed.split_off(NONCE_LEN);
        let Ok(nonce) = Nonce::try_assume_unique_for_key(&sealed) else { return false };
        self.key.open_in_place(nonce, Aad::from(text), &mut rest).is_ok()
    }
}

/// The associated data of a piece.
fn place(object: &str, number: u64, is_last: bool) -> Vec<u8> {
    [&number.to_be_bytes()[..], &[u8::from(is_last)], object.as_bytes()].concat()
}

/// Seals an object that arrives in parts.
pub(crate) struct PieceSealer<'a> {
    key: &'a BackupKey,
    object: &'a str,
    number: u64,
    pending: Vec<u8>,
}

impl<'a> PieceSealer<'a> {
    pub fn new(key: &'a BackupKey, object: &'a str) -> Self {
        Self { key, object, number: 0, pending: Vec::new() }
    }

    /// Appends the pieces that are complete with this part to `out`.
    pub fn push(&mut self, part: &[u8], out: &mut Vec<u8>) {
        self.pending.extend_from_slice(part);
        while self.pending.len() >= PIECE {
            let rest = self.pending.split_off(PIECE);
            let piece = std::mem::replace(&mut self.pending, rest);
            self.seal(piece, false, out);
        }
    }

    /// Appends the last piece to `out`.
    pub fn finish(mut self, out: &mut Vec<u8>) {
        let piece = std::mem::take(&mut self.pending);
        self.seal(piece, true, out);
    }

    fn seal(&mut self, mut piece: Vec<u8>, is_last: bool, out: &mut Vec<u8>) {
        let place = Aad::from(place(self.object, self.number, is_last));
        let nonce = self.key.key.seal_in_place_append_tag(place, &mut piece);
        let nonce = nonce.expect("AES-GCM seals every text of less than 64 GiB");
        out.extend_from_slice(nonce.as_ref());
        out.extend_from_slice(&piece);
        self.number += 1;
    }
}

/// Opens an object that arrives in parts. `None` means that it is not as it was sealed.
pub(crate) struct PieceOpener<'a> {
    key: &'a BackupKey,
    object: &'a str,
    number: u64,
    pending: Vec<u8>,
}

impl<'a> PieceOpener<'a> {
    pub fn new(key: &'a BackupKey, object: &'a str) -> Self {
        Self { key, object, number: 0, pending: Vec::new() }
    }

    /// Appends the pieces that are complete with this part to `out`.
    pub fn push(&mut self, part: &[u8], out: &mut Vec<u8>) -> Option<()> {
        self.pending.extend_from_slice(part);
        while self.pending.len() >= PIECE + OVERHEAD {
            let rest = self.pending.split_off(PIECE + OVERHEAD);
            let piece = std::mem::replace(&mut self.pending, rest);
            self.open(piece, false, out)?;
        }
        Some(())
    }

    /// Appends the last piece to `out`.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Option<()> {
        let piece = std::mem::take(&mut self.pending);
        self.open(piece, true, out)
    }

    fn open(&mut self, mut piece: Vec<u8>, is_last: bool, out: &mut Vec<u8>) -> Option<()> {
        if piece.len() < OVERHEAD {
            return None;
        }
        let mut sealed = piece.split_off(NONCE_LEN);
        let nonce = Nonce::try_assume_unique_for_key(&piece).ok()?;
        let place = Aad::from(place(self.object, self.number, is_last));
        let plain = self.key.key.open_in_place(nonce, place, &mut sealed).ok()?;
        out.extend_from_slice(plain);
        self.number += 1;
        Some(())
    }
}

/// Bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> BackupKey {
        BackupKey::from_base64(&STANDARD.encode([byte; 32])).unwrap()
    }

    #[test]
    fn an_object_is_opened_only_as_it_was_sealed() {
        let key = key(1);
        for length in [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 2 * PIECE + 5] {
            let plain: Vec<u8> = (0..length).map(|index| index as u8).collect();
            let sealed = key.seal("a/b", &plain);
            assert_eq!(sealed.len() as u64, BackupKey::sealed_length(length as u64));
            assert_eq!(key.open("a/b", &sealed).unwrap(), plain);
            assert!(key.open("a/c", &sealed).is_none(), "another object");
            assert!(self::key(2).open("a/b", &sealed).is_none(), "another key");
            let mut damaged = sealed.clone();
            damaged[sealed.len() / 2] ^= 1;
            assert!(key.open("a/b", &damaged).is_none());
            // Pieces that are missing at the end, or are swapped.
            if length > PIECE {
                assert!(key.open("a/b", &sealed[..PIECE + OVERHEAD]).is_none());
                assert!(key.open("a/b", &sealed[PIECE + OVERHEAD..]).is_none());
            }
            // In parts of any length.
            let (mut opener, mut out) = (PieceOpener::new(&key, "a/b"), Vec::new());
            sealed.chunks(100_003).for_each(|part| opener.push(part, &mut out).unwrap());
            opener.finish(&mut out).unwrap();
            assert_eq!(out, plain);
        }
    }

    #[test]
    fn a_tag_belongs_to_one_text_and_one_key() {
        let tag = key(1).tag(b"text");
        assert!(key(1).is_tag(&tag, b"text"));
        assert!(
            !key(1).is_tag(&tag, b"test") && !key(2).is_tag(&tag, b"text") && !key(1).is_tag("", b"text")
        );
        assert!(BackupKey::from_base64("c2hvcnQ=").is_none());
        assert_ne!(key(1).id(), key(2).id());
    }
}
