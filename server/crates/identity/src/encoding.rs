//! base64url without padding (RFC 4648 section 5), and SHA-256 digests in base64url.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};

/// Encodes bytes as base64url without padding.
pub(crate) fn encode_base64url(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Decodes base64url without padding. Returns `None` if the text is not valid base64url.
pub(crate) fn decode_base64url(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// The SHA-256 digest of a text in base64url. The ledger stores this digest instead of a secret.
pub(crate) fn sha256_base64url(text: &str) -> String {
    encode_base64url(Sha256::digest(text.as_bytes()))
}
