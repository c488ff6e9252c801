//! Addresses of the files in a manifest: below `/bulk`, with a token, or signed addresses, which open one file for a
//! short time without a token (Bulk Data Access 3.0.0, capability URLs).

use std::time::Duration;

use aws_lc_rs::hmac;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;

use crate::job::Job;
use crate::serve::download::FileError;

/// Key and lifetime of signed addresses.
#[derive(Debug, Clone)]
pub struct AddressSigning {
    key: hmac::Key,
    lifetime: Duration,
}

impl AddressSigning {
    /// Signs by HMAC-SHA256. An address is valid for at most `lifetime` and at least half of it.
    pub fn new(key: &[u8], lifetime: Duration) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key), lifetime }
    }
}

/// Query of a signed address.
#[derive(Debug, Clone, Copy)]
pub struct AddressSignature<'a> {
    /// `expires`: seconds since 1970.
    pub expires: &'a str,
    /// `signature`: base64url.
    pub signature: &'a str,
}

/// The addresses of a server's exports.
#[derive(Clone)]
pub(crate) struct FileAddresses {
    base: String,
    signing: Option<AddressSigning>,
}

impl FileAddresses {
    pub fn new(fhir_base: &str, signing: Option<AddressSigning>) -> Self {
        Self { base: format!("{fhir_base}/bulk"), signing }
    }

    pub fn are_signed(&self) -> bool {
        self.signing.is_some()
    }

    /// Returns the address of a page of a manifest.
    pub fn page(&self, job: &str, number: usize) -> String {
        format!("{}/{job}?page={number}", self.base)
    }

    /// Returns the address of a file. A signed address stays the same for half of its lifetime, so that a manifest
    /// that is read again soon does not change.
    pub fn file(&self, job: &Job, name: &str, now: Timestamp) -> String {
        let plain = format!("{}/{}/{name}", self.base, job.id);
        let Some(signing) = &self.signing else { return plain };
        let half = i64::try_from(signing.lifetime.as_secs() / 2).unwrap_or(i64::MAX / 4).max(1);
        let window = (now.as_second() / half + 2) * half;
        let expires = job.expires().map_or(window, |job| window.min(job.as_second())).to_string();
        let tag = hmac::sign(&signing.key, signed(&job.id, name, &expires).as_bytes());
        format!("{plain}?expires={expires}&signature={}", URL_SAFE_NO_PAD.encode(tag))
    }

    /// Checks in constant time that the signature of a file's address is valid and has not expired.
    ///
    /// # Errors
    /// Returns [`FileError::BadAddress`].
    pub fn check(
        &self,
        job: &str,
        name: &str,
        sent: &AddressSignature<'_>,
        now: Timestamp,
    ) -> Result<(), FileError> {
        let bad = |why| FileError::BadAddress { why };
        let signing = self.signing.as_ref().ok_or(bad("signed addresses are not in use"))?;
        let tag = URL_SAFE_NO_PAD.decode(sent.signature).unwrap_or_default();
        hmac::verify(&signing.key, signed(job, name, sent.expires).as_bytes(), &tag)
            .map_err(|_| bad("its signature does not match"))?;
        // The signature is valid, so this is a number.
        let is_over = sent.expires.parse().is_ok_and(|expires: i64| expires <= now.as_second());
        if is_over { Err(bad("it has expired")) } else { Ok(()) }
    }
}

/// Returns the signed text. No component of a valid address contains a line break.
fn signed(job: &str, name: &str, expires: &str) -> String {
    format!("{job}\n{name}\n{expires}")
}
