//! Random texts for states, nonces, code verifiers and names.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};

/// Returns 256 random bits as a text.
pub fn random_text() -> String {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the system provides randomness");
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A code verifier and its S256 challenge (RFC 7636 4.1, 4.2).
pub fn pkce_pair() -> (String, String) {
    let verifier = random_text();
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&verifier));
    (verifier, challenge)
}
