//! Reads the files that a profile names.

use std::path::Path;

use super::error::ProfileError;
use super::server_profile::TrustedCertificates;
use crate::key;
use crate::key::SigningKey;

/// Checks a base URL and removes the trailing slash.
pub(super) fn base_address(text: &str) -> Result<String, ProfileError> {
    let wrong = |reason: &str| ProfileError::BaseUrl { text: text.to_owned(), reason: reason.to_owned() };
    let url = url::Url::parse(text).map_err(|error| wrong(&error.to_string()))?;
    if !matches!(url.scheme(), "https" | "http") {
        return Err(wrong("it must begin with https://"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("it must have neither query nor fragment"));
    }
    Ok(text.trim_end_matches('/').to_owned())
}

pub(super) fn read_certificates(path: &Path) -> Result<TrustedCertificates, ProfileError> {
    Ok(TrustedCertificates { path: path.to_owned(), pem: read_file(path)? })
}

pub(super) fn read_text(path: &Path) -> Result<String, ProfileError> {
    read_file(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

pub(super) fn read_key(
    path: &Path,
    alg: Option<&str>,
    kid: Option<&str>,
) -> Result<SigningKey, ProfileError> {
    key::read(&read_text(path)?, alg, kid)
        .map_err(|error| ProfileError::Key { from: path.display().to_string(), error })
}

pub(super) fn read_file(path: &Path) -> Result<Vec<u8>, ProfileError> {
    std::fs::read(path).map_err(|error| ProfileError::File { path: path.to_owned(), error })
}
