//! The certificate that the server presents. Its files are read again on demand and every 30 seconds, so that
//! a renewed certificate is used without a restart and without closing a connection. Files that do not belong
//! together are refused, and the earlier certificate stays.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, bail};
use arc_swap::ArcSwap;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::node::development_certificate::ensure_development_certificate;

/// Time before the end of a certificate from which on the log warns, once a day.
const WARNED_BEFORE: SignedDuration = SignedDuration::from_hours(14 * 24);

/// The files of a certificate.
#[derive(Debug, Clone)]
pub struct CertificateFiles {
    /// PEM file with the certificate chain.
    pub chain: PathBuf,
    /// PEM file with the private key.
    pub key: PathBuf,
    /// Folder of the development CA, which renews the certificate. `None` for a certificate of the operator.
    pub development: Option<PathBuf>,
}

/// The certificate that the server presents.
#[derive(Debug)]
pub struct ServedCertificate {
    files: CertificateFiles,
    current: ArcSwap<ReadCertificate>,
    /// The day of the last warning about the end of the certificate.
    warned: Mutex<Option<Date>>,
}

/// A certificate as it was read from its files.
#[derive(Debug)]
struct ReadCertificate {
    key: Arc<CertifiedKey>,
    valid_until: Timestamp,
    /// The content of both files. Renewals may swap symbolic links and keep the time of the files.
    content: (Vec<u8>, Vec<u8>),
}

impl ResolvesServerCert for ServedCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load().key.clone())
    }
}

impl ServedCertificate {
    /// Reads the certificate.
    ///
    /// # Errors
    /// An error if a file cannot be read, or if the files do not belong together.
    pub fn open(files: CertificateFiles) -> Result<Self> {
        let current = ReadCertificate::parse(&files, files.read()?)?;
        Ok(Self { files, current: ArcSwap::from_pointee(current), warned: Mutex::default() })
    }

    /// Reads the files again, and presents their certificate from now on if it is another one. Returns
    /// whether it is. May block.
    ///
    /// # Errors
    /// An error if the new files cannot be used. The earlier certificate stays.
    pub fn refresh(&self, now: Timestamp) -> Result<bool> {
        let stays = "the earlier certificate stays";
        if let Some(folder) = &self.files.development {
            ensure_development_certificate(folder, now).context(stays)?;
        }
        let content = self.files.read().context(stays)?;
        if content == self.current.load().content {
            return Ok(false);
        }
        let read = ReadCertificate::parse(&self.files, content).context(stays)?;
        self.current.store(Arc::new(read));
        tracing::info!("a new certificate is presented: {}", self.description());
        Ok(true)
    }

    /// The time at which the certificate ends.
    pub fn valid_until(&self) -> Timestamp {
        self.current.load().valid_until
    }

    /// The certificate in a log line or in the answer of a command.
    pub fn description(&self) -> String {
        let until = fhir::instant::format(self.valid_until());
        format!("certificate {} valid until {until}", self.files.chain.display())
    }

    /// Returns whether the certificate ends so soon that the log warns of it.
    pub fn ends_soon(&self, now: Timestamp) -> bool {
        now.duration_until(self.valid_until()) <= WARNED_BEFORE
    }

    /// Logs, once a day, that the certificate ends soon or has ended.
    pub fn warn_of_end(&self, now: Timestamp) {
        let validity = now.duration_until(self.valid_until());
        if validity > WARNED_BEFORE {
            return;
        }
        let today = TimeZone::UTC.to_datetime(now).date();
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.replace(today) != Some(today) {
            let remedy = "renew the files; they are read again within 30 s";
            tracing::warn!(days = validity.as_hours() / 24, "{}; {remedy}", self.description());
        }
    }

    /// Logs if clients will not accept the certificate for the host of the base URL.
    pub fn warn_of_other_host(&self, base_url: &str) {
        let Some(host) = url::Url::parse(base_url).ok().and_then(|url| url.host_str().map(str::to_owned))
        else {
            return;
        };
        let is_loopback = matches!(&*host, "localhost" | "127.0.0.1" | "[::1]");
        if self.files.development.is_some() && !is_loopback {
            tracing::warn!(
                host,
                "the development certificate is presented, which no client trusts for this host; set [server] \
                 certificate and private_key"
            );
        } else if !self.is_for_host(&host) {
            let chain = self.files.chain.display();
            tracing::warn!(
                host,
                "the certificate in {chain} is not for the host of the base URL; clients reject it"
            );
        }
    }

    fn is_for_host(&self, host: &str) -> bool {
        let current = self.current.load();
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned());
        let (Some(leaf), Ok(name)) = (current.key.cert.first(), name) else { return false };
        ParsedCertificate::try_from(leaf)
            .is_ok_and(|parsed| rustls::client::verify_server_name(&parsed, &name).is_ok())
    }
}

impl CertificateFiles {
    fn read(&self) -> Result<(Vec<u8>, Vec<u8>)> {
        let read =
            |path: &Path| std::fs::read(path).with_context(|| format!("failed to read {}", path.display()));
        Ok((read(&self.chain)?, read(&self.key)?))
    }
}

impl ReadCertificate {
    fn parse(files: &CertificateFiles, content: (Vec<u8>, Vec<u8>)) -> Result<Self> {
        let (chain_path, key_path) = (files.chain.display(), files.key.display());
        let chain = CertificateDer::pem_slice_iter(&content.0).collect::<Result<Vec<_>, _>>();
        let chain = chain.with_context(|| format!("failed to read certificates from {chain_path}"))?;
        let Some(leaf) = chain.first() else { bail!("{chain_path} contains no certificate") };
        let private = PrivateKeyDer::from_pem_slice(&content.1)
            .with_context(|| format!("failed to read a private key from {key_path}"))?;
        let (_, parsed) = X509Certificate::from_der(leaf)
            .map_err(|error| anyhow::anyhow!("the certificate in {chain_path} cannot be read: {error}"))?;
        let valid_until = Timestamp::from_second(parsed.validity().not_after.timestamp())?;
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let key = CertifiedKey::from_der(chain, private, &provider).with_context(|| {
            format!(
                "the certificate in {chain_path} and the private key in {key_path} do not belong together"
            )
        })?;
        Ok(Self { key: Arc::new(key), valid_until, content })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    /// Writes a certificate for a host and its key.
    fn write_pair(files: &CertificateFiles, host: &str) -> (String, String) {
        let pair = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([host.to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2027, 1, 15);
        let pems = (params.self_signed(&pair).unwrap().pem(), pair.serialize_pem());
        fs::write(&files.chain, &pems.0).unwrap();
        fs::write(&files.key, &pems.1).unwrap();
        pems
    }

    #[test]
    fn a_renewed_pair_is_presented_and_a_wrong_one_refused() {
        let dir = tempfile::tempdir().unwrap();
        let files = CertificateFiles {
            chain: dir.path().join("cert.pem"),
            key: dir.path().join("key.pem"),
            development: None,
        };
        let now = "2026-12-01T00:00:00Z".parse().unwrap();
        write_pair(&files, "a.example");
        let served = ServedCertificate::open(files.clone()).unwrap();
        assert_eq!(served.valid_until().to_string(), "2027-01-15T00:00:00Z");
        assert!(served.is_for_host("a.example") && !served.is_for_host("b.example"));
        assert!(!served.refresh(now).unwrap(), "nothing has changed");
        let (chain, key) = write_pair(&files, "b.example");
        assert!(served.refresh(now).unwrap());
        assert!(served.is_for_host("b.example"));
        // Only one of the files is renewed, or one is cut.
        write_pair(&files, "c.example");
        fs::write(&files.key, &key).unwrap();
        let error = format!("{:#}", served.refresh(now).unwrap_err());
        for part in ["earlier certificate stays", "cert.pem", "key.pem", "do not belong together"] {
            assert!(error.contains(part), "{error}");
        }
        fs::write(&files.chain, &chain[..chain.len() / 2]).unwrap();
        assert!(served.refresh(now).is_err());
        assert!(served.is_for_host("b.example"));
        fs::write(&files.chain, &chain).unwrap();
        assert!(!served.refresh(now).unwrap());
    }
}
