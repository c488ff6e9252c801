//! Base64url without padding (RFC 4648 section 5), as in JWTs and credentials.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

/// Bytes in base64url.
pub fn base64url(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
