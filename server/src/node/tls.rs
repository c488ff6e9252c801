//! The TLS configuration of the server, with the certificate of the operator or the development certificate.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};

use crate::node::certificate::{CertificateFiles, ServedCertificate};
use crate::node::development_certificate::ensure_development_certificate;

/// A rustls configuration, and the development CA if it is used.
pub struct TlsSetup {
    /// Configuration for the accept loop: HTTP/2 and HTTP/1.1 by ALPN.
    pub config: Arc<rustls::ServerConfig>,
    /// The certificate that the configuration presents.
    pub certificate: Arc<ServedCertificate>,
    /// PEM file of the development CA.
    pub ca: Option<PathBuf>,
}

/// Reads the operator's certificate or, if none is configured, the development certificate, which is
/// generated if it is missing.
///
/// # Errors
/// An error if a file cannot be read, written or parsed.
pub fn load_tls(certificate: Option<&(PathBuf, PathBuf)>, data: &Path, now: Timestamp) -> Result<TlsSetup> {
    let files = match certificate {
        Some((chain, key)) => CertificateFiles { chain: chain.clone(), key: key.clone(), development: None },
        None => {
            let dir = data.join("tls");
            ensure_development_certificate(&dir, now)
                .context("failed to make the development certificate")?;
            CertificateDer::from_pem_file(dir.join("ca.pem")).with_context(|| {
                let dir = dir.display();
                format!(
                    "{dir}/ca.pem is not a certificate; delete the folder {dir} to get a new development CA"
                )
            })?;
            CertificateFiles { chain: dir.join("cert.pem"), key: dir.join("key.pem"), development: Some(dir) }
        }
    };
    let ca = files.development.as_ref().map(|dir| dir.join("ca.pem"));
    let certificate = Arc::new(ServedCertificate::open(files)?);
    let mut config =
        rustls::ServerConfig::builder().with_no_client_auth().with_cert_resolver(certificate.clone());
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsSetup { config: Arc::new(config), certificate, ca })
}
