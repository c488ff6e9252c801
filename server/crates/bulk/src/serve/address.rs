//! URLs of the files in a manifest. They are below `/bulk` and require a token, or they are signed URLs,
//! which give access to one file for a short time without a token (Bulk Data Access 3.0.0, capability URLs).

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::constant_time;
use jiff::Timestamp;

use crate::job::Job;
use crate::serve::download::FileError;

/// A function that computes the message authentication code of a text, as characters that a URL may contain.
pub type AddressMac = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// Authentication and lifetime of signed URLs.
#[derive(Clone)]
pub struct AddressSigning {
    /// Computes the signature. It is called for each URL, so that a new key is used immediately.
    pub mac: AddressMac,
    /// A URL is valid for at least half of this time, and at most for this time.
    pub lifetime: Duration,
}

impl std::fmt::Debug for AddressSigning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AddressSigning({:?})", self.lifetime)
    }
}

/// Query parameters of a signed URL.
#[derive(Debug, Clone, Copy)]
pub struct AddressSignature<'a> {
    /// Parameter `expires`: time of expiry in seconds since 1970.
    pub expires: &'a str,
    /// Parameter `signature`.
    pub signature: &'a str,
}

/// Creates the URLs of manifests and files.
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

    /// The URL of a page of a manifest.
    pub fn page(&self, job: &str, number: usize) -> String {
        format!("{}/{job}?page={number}", self.base)
    }

    /// The URL of a file. A signed URL stays the same for half of its lifetime, so that a client that reads
    /// the manifest again soon gets the same manifest.
    pub fn file(&self, job: &Job, name: &str, now: Timestamp) -> String {
        let plain = format!("{}/{}/{name}", self.base, job.id);
        let Some(signing) = &self.signing else { return plain };
        let half = i64::try_from(signing.lifetime.as_secs() / 2).unwrap_or(i64::MAX / 4).max(1);
        let window = (now.as_second() / half + 2) * half;
        let expires = job.expires().map_or(window, |job| window.min(job.as_second())).to_string();
        let signature = (signing.mac)(&signed(&job.id, name, &expires));
        format!("{plain}?expires={expires}&signature={signature}")
    }

    /// Checks that the signature of a file's URL is valid and has not expired. The comparison takes constant
    /// time.
    ///
    /// # Errors
    /// Returns [`FileError::BadAddress`] if the URL is not valid.
    pub fn check(
        &self,
        job: &str,
        name: &str,
        address_signature: &AddressSignature<'_>,
        now: Timestamp,
    ) -> Result<(), FileError> {
        let bad = |reason| FileError::BadAddress { reason };
        let signing = self.signing.as_ref().ok_or(bad("signed URLs are disabled"))?;
        let signature = (signing.mac)(&signed(job, name, address_signature.expires));
        constant_time::verify_slices_are_equal(signature.as_bytes(), address_signature.signature.as_bytes())
            .map_err(|_| bad("its signature does not match"))?;
        // The signature covers `expires`, so the server wrote it and it is a number.
        let is_over = address_signature.expires.parse().is_ok_and(|expires: i64| expires <= now.as_second());
        if is_over { Err(bad("it has expired")) } else { Ok(()) }
    }
}

/// The text that is signed. No component of a valid URL contains a line break, so different URLs have
/// different texts.
fn signed(job: &str, name: &str, expires: &str) -> String {
    format!("{job}\n{name}\n{expires}")
}
