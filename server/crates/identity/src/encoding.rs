//! base64url without padding (RFC 4648 section 5), and digests in it.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};

/// Encodes bytes as base64url without padding.
pub(crate) fn encode_base64url(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Decodes base64url without padding. Returns `None` for any other text.
pub(crate) fn decode_base64url(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// Returns the SHA-256 of a text in base64url. The ledger stores this digest in place of a secret.
pub(crate) fn sha256_base64url(text: &str) -> String {
    encode_base64url(Sha256::digest(text.as_bytes()))
}
