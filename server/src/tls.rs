//! Certificates: the operator's, or a development CA and a certificate for loopback names, made at
//! the first start and kept.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};

/// A rustls configuration, and the CA to trust where it is ours.
pub struct Tls {
    /// For the accept loop: HTTP/2 and HTTP/1.1 by ALPN.
    pub config: Arc<rustls::ServerConfig>,
    /// PEM file of the development CA.
    pub ca: Option<PathBuf>,
}

/// A leaf older than this is made anew from the same CA, well before it ends.
const LEAF_AGE: Duration = Duration::from_secs(300 * 24 * 3600);

/// Reads the operator's certificate, or the development one, which is made where there is none.
///
/// # Errors
/// Files that cannot be read, written or understood.
pub fn load(certificate: Option<&(PathBuf, PathBuf)>, data: &Path, now: Timestamp) -> Result<Tls> {
    let (chain, key, ca) = match certificate {
        Some((chain, key)) => (chain.clone(), key.clone(), None),
        None => {
            let dir = data.join("tls");
            ensure_development_certificate(&dir, now)
                .context("failed to make the development certificate")?;
            (dir.join("cert.pem"), dir.join("key.pem"), Some(dir.join("ca.pem")))
        }
    };
    let certificates = CertificateDer::pem_file_iter(&chain)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| format!("failed to read certificates from {}", chain.display()))?;
    let private = PrivateKeyDer::from_pem_file(&key)
        .with_context(|| format!("failed to read a private key from {}", key.display()))?;
    let mut config =
        rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(certificates, private)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Tls { config: Arc::new(config), ca })
}

fn ensure_development_certificate(dir: &Path, now: Timestamp) -> Result<()> {
    fs::create_dir_all(dir)?;
    let (ca_pem, ca_key, cert, key) =
        (dir.join("ca.pem"), dir.join("ca-key.pem"), dir.join("cert.pem"), dir.join("key.pem"));
    let fresh = |path: &Path| {
        fs::metadata(path)
            .and_then(|m| m.modified())
            .is_ok_and(|made| SystemTime::now().duration_since(made).unwrap_or_default() < LEAF_AGE)
    };
    if ca_pem.exists() && key.exists() && fresh(&cert) {
        return Ok(());
    }
    let year = i32::from(jiff::tz::TimeZone::UTC.to_datetime(now).year());
    let ca = if ca_pem.exists() && ca_key.exists() {
        KeyPair::from_pem(&fs::read_to_string(&ca_key)?)?
    } else {
        let pair = KeyPair::generate()?;
        write_private(&ca_key, &pair.serialize_pem())?;
        let made = ca_params(year).self_signed(&pair)?;
        write_private(&ca_pem, &made.pem())?;
        pair
    };
    let issuer = Issuer::new(ca_params(year), ca);
    let pair = KeyPair::generate()?;
    let mut leaf = CertificateParams::new(["localhost", "127.0.0.1", "::1"].map(str::to_owned))?;
    leaf.distinguished_name.push(DnType::CommonName, "Trefoil development server");
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    leaf.use_authority_key_identifier_extension = true;
    leaf.not_before = rcgen::date_time_ymd(year - 1, 12, 31);
    leaf.not_after = rcgen::date_time_ymd(year + 2, 1, 1);
    let made = leaf.signed_by(&pair, &issuer)?;
    write_private(&key, &pair.serialize_pem())?;
    write_private(&cert, &made.pem())?;
    Ok(())
}

/// Parameters of the CA; the same ones each time, so that leaves name it the same way.
fn ca_params(year: i32) -> CertificateParams {
    let mut ca = CertificateParams::default();
    ca.distinguished_name.push(DnType::CommonName, "Trefoil development CA");
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    ca.not_before = rcgen::date_time_ymd(year - 1, 12, 31);
    ca.not_after = rcgen::date_time_ymd(year + 20, 1, 1);
    ca
}

/// Writes a file that only its owner can read.
///
/// # Errors
/// The file system's.
pub fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
