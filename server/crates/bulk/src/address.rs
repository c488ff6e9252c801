//! Where clients find what a manifest names: below `/bulk`, with a token; or where it is configured by signed addresses,
//! which open one file for a short time and for whoever has them (Bulk Data Access 3.0.0, capability URLs).

use std::time::Duration;

use aws_lc_rs::hmac;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;

use crate::download::FileError;
use crate::job::Job;

/// How addresses are signed.
#[derive(Debug, Clone)]
pub struct Signing {
    key: hmac::Key,
    lifetime: Duration,
}

impl Signing {
    /// By HMAC-SHA256 with this key. An address works for `lifetime` at most, and for half of it at least.
    pub fn new(key: &[u8], lifetime: Duration) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key), lifetime }
    }
}

/// What a signed address carries in its query.
#[derive(Debug, Clone, Copy)]
pub struct Signature<'a> {
    /// `expires`: seconds since 1970.
    pub expires: &'a str,
    /// `signature`: base64url.
    pub signature: &'a str,
}

/// The addresses of a server's exports.
#[derive(Clone)]
pub(crate) struct Addresses {
    base: String,
    signing: Option<Signing>,
}

impl Addresses {
    pub fn new(fhir_base: &str, signing: Option<Signing>) -> Self {
        Self { base: format!("{fhir_base}/bulk"), signing }
    }

    pub fn are_signed(&self) -> bool {
        self.signing.is_some()
    }

    /// Of a page of a manifest.
    pub fn page(&self, job: &str, number: usize) -> String {
        format!("{}/{job}?page={number}", self.base)
    }

    /// Of a file. A signed one stays the same for half of its lifetime, so that a manifest that is read again soon is
    /// the same.
    pub fn file(&self, job: &Job, name: &str, now: Timestamp) -> String {
        let plain = format!("{}/{}/{name}", self.base, job.id);
        let Some(signing) = &self.signing else { return plain };
        let half = i64::try_from(signing.lifetime.as_secs() / 2).unwrap_or(i64::MAX / 4).max(1);
        let window = (now.as_second() / half + 2) * half;
        let expires = job.expires().map_or(window, |job| window.min(job.as_second())).to_string();
        let tag = hmac::sign(&signing.key, signed(&job.id, name, &expires).as_bytes());
        format!("{plain}?expires={expires}&signature={}", URL_SAFE_NO_PAD.encode(tag))
    }

    /// Is this an address that was given for the file, and does it still work? Compared in constant time.
    ///
    /// # Errors
    /// [`FileError::BadAddress`].
    pub fn check(
        &self,
        job: &str,
        name: &str,
        sent: &Signature<'_>,
        now: Timestamp,
    ) -> Result<(), FileError> {
        let bad = |why| FileError::BadAddress { why };
        let signing = self.signing.as_ref().ok_or(bad("signed addresses are not in use"))?;
        let tag = URL_SAFE_NO_PAD.decode(sent.signature).unwrap_or_default();
        hmac::verify(&signing.key, signed(job, name, sent.expires).as_bytes(), &tag)
            .map_err(|_| bad("its signature does not fit"))?;
        // What was signed is a number.
        let is_over = sent.expires.parse().is_ok_and(|expires: i64| expires <= now.as_second());
        if is_over { Err(bad("it has expired")) } else { Ok(()) }
    }
}

/// What is signed. None of the three holds a line break in an address that was given.
fn signed(job: &str, name: &str, expires: &str) -> String {
    format!("{job}\n{name}\n{expires}")
}
