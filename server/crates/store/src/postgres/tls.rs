//! TLS to the database.

use std::path::Path;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt as _;

use super::database_url::TlsFiles;
use crate::StoreError;

fn failed(reason: impl ToString) -> StoreError {
    StoreError::Engine { action: "prepare TLS to the database", reason: reason.to_string() }
}

/// The settings of TLS, from the present content of the files.
///
/// # Errors
/// Returns [`StoreError::Engine`] if a file cannot be read or has no certificate or key.
pub(super) fn settings(files: &TlsFiles) -> Result<ClientConfig, StoreError> {
    let provider = rustls::crypto::aws_lc_rs::default_provider().into();
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(failed)?;
    let builder = match &files.roots {
        None => builder.with_platform_verifier().map_err(failed)?,
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(file)? {
                roots.add(certificate).map_err(|error| in_file(file, error))?;
            }
            builder.with_root_certificates(roots)
        }
    };
    let Some((certificate, key)) = &files.client else { return Ok(builder.with_no_client_auth()) };
    let private_key = PrivateKeyDer::from_pem_file(key).map_err(|error| in_file(key, error))?;
    let chain = certificates(certificate)?;
    builder.with_client_auth_cert(chain, private_key).map_err(|error| in_file(certificate, error))
}

/// The certificates in a file, at least one.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    let certificates = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = certificates.map_err(|error| in_file(file, error))?;
    if certificates.is_empty() {
        return Err(in_file(file, "it contains no certificate"));
    }
    Ok(certificates)
}

fn in_file(file: &Path, reason: impl std::fmt::Display) -> StoreError {
    failed(format!("{}: {reason}", file.display()))
}
