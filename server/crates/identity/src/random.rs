//! Random bytes for secrets and ids.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

/// A source of random bytes. Tests use a deterministic source.
pub trait Random: Send + Sync {
    /// Fills the buffer with random bytes.
    fn fill(&self, buffer: &mut [u8]);

    /// Returns 256 random bits in base64url (43 characters), for codes, refresh tokens and session cookies.
    fn secret(&self) -> String {
        let mut bytes = [0; 32];
        self.fill(&mut bytes);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Returns 128 random bits in base64url (22 characters), for ids that are not secret.
    fn id(&self) -> String {
        let mut bytes = [0; 16];
        self.fill(&mut bytes);
        URL_SAFE_NO_PAD.encode(bytes)
    }
}

/// The random number generator of the operating system.
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&self, buffer: &mut [u8]) {
        getrandom::fill(buffer).expect("every supported operating system has a random number generator");
    }
}
