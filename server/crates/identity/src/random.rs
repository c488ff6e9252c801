//! Where random bytes come from.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

/// A source of random bytes. Tests pass a seeded one.
pub trait Random: Send + Sync {
    /// Fills the buffer.
    fn fill(&self, buffer: &mut [u8]);

    /// 256 random bits in base64url, 43 characters: codes, refresh tokens, session cookies.
    fn secret(&self) -> String {
        let mut bytes = [0; 32];
        self.fill(&mut bytes);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// 128 random bits in base64url, 22 characters: identifiers that are no secrets.
    fn id(&self) -> String {
        let mut bytes = [0; 16];
        self.fill(&mut bytes);
        URL_SAFE_NO_PAD.encode(bytes)
    }
}

/// The operating system's generator.
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&self, buffer: &mut [u8]) {
        getrandom::fill(buffer).expect("the operating system gives random bytes");
    }
}
