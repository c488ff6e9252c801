//! The development CA and its certificate for loopback names, generated at the first start and kept.

use std::fs;
use std::io::{self, Write as _};
use std::net::Ipv6Addr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DnType, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, NameConstraints,
};
use rustls::pki_types::CertificateDer;
use store::folder::{make_folder, sync_folder};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Lifetime of the development CA and of a leaf, in days.
const CA_DAYS: i64 = 730;
const LEAF_DAYS: i64 = 365;
/// Maximum age of a leaf, well before it expires.
const MAX_LEAF_AGE: Duration = DAY.saturating_mul(300);
/// Maximum age of a CA that signs a new leaf, which must not outlive it.
const MAX_CA_AGE: Duration = DAY.saturating_mul(350);

/// Generates the development CA and its certificate if they are missing or old.
///
/// # Errors
/// An error if a file cannot be read or written.
pub fn ensure_development_certificate(dir: &Path, now: Timestamp) -> Result<()> {
    make_folder(dir, 0o700)?;
    let (ca_pem, ca_key, cert, key) =
        (dir.join("ca.pem"), dir.join("ca-key.pem"), dir.join("cert.pem"), dir.join("key.pem"));
    let is_younger = |path: &Path, age: Duration| {
        let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
        modified.is_ok_and(|time| SystemTime::now().duration_since(time).unwrap_or_default() < age)
    };
    if ca_pem.exists() && key.exists() && is_younger(&cert, MAX_LEAF_AGE) {
        return Ok(());
    }
    let ca = if ca_key.exists() && is_younger(&ca_pem, MAX_CA_AGE) {
        KeyPair::from_pem(&fs::read_to_string(&ca_key)?)?
    } else {
        tracing::info!(folder = %dir.display(), "generated a new development CA; clients must trust it");
        let pair = KeyPair::generate()?;
        write_private(&ca_key, &pair.serialize_pem())?;
        let certificate = ca_params(now).self_signed(&pair)?;
        write_private(&ca_pem, &certificate.pem())?;
        pair
    };
    let issuer = Issuer::new(ca_params(now), ca);
    let pair = KeyPair::generate()?;
    let mut leaf = CertificateParams::new(["localhost", "127.0.0.1", "::1"].map(str::to_owned))?;
    leaf.distinguished_name.push(DnType::CommonName, "Trefoil development server");
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    leaf.use_authority_key_identifier_extension = true;
    set_validity(&mut leaf, now, LEAF_DAYS);
    let certificate = leaf.signed_by(&pair, &issuer)?;
    write_private(&key, &pair.serialize_pem())?;
    write_private(&cert, &certificate.pem())?;
    Ok(())
}

/// Parameters of the CA. It is constrained to names of this machine, so that a stolen key is useless
/// elsewhere (RFC 5280 section 4.2.1.10).
fn ca_params(now: Timestamp) -> CertificateParams {
    let mut ca = CertificateParams::default();
    ca.distinguished_name.push(DnType::CommonName, "Trefoil development CA");
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    ca.name_constraints = Some(NameConstraints {
        permitted_subtrees: vec![
            GeneralSubtree::DnsName("localhost".to_owned()),
            GeneralSubtree::IpAddress(CidrSubnet::from_v4_prefix([127, 0, 0, 0], 8)),
            GeneralSubtree::IpAddress(CidrSubnet::from_v6_prefix(Ipv6Addr::LOCALHOST.octets(), 128)),
        ],
        excluded_subtrees: Vec::new(),
    });
    set_validity(&mut ca, now, CA_DAYS);
    ca
}

/// Returns whether a CA certificate has the critical name constraints of a generated development CA.
///
/// # Errors
/// An error if the certificate cannot be parsed.
pub fn is_constrained_to_this_machine(certificate: &CertificateDer<'_>) -> Result<bool> {
    // id-ce-nameConstraints as an OBJECT IDENTIFIER, and `critical TRUE`.
    const CRITICAL: [u8; 8] = [0x06, 0x03, 0x55, 0x1d, 0x1e, 0x01, 0x01, 0xff];
    let generated = ca_params(Timestamp::UNIX_EPOCH).self_signed(&KeyPair::generate()?)?;
    let expected =
        name_constraints(generated.der())?.context("the development CA has no name constraints")?;
    let is_critical = |der: &[u8]| der.windows(CRITICAL.len()).any(|window| window == CRITICAL);
    Ok(name_constraints(certificate)?.is_some_and(|constraints| constraints == expected)
        && is_critical(certificate))
}

fn name_constraints(certificate: &CertificateDer<'_>) -> Result<Option<Vec<u8>>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone().into_owned())?;
    let constraints = roots.roots.first().and_then(|root| root.name_constraints.as_ref());
    Ok(constraints.map(|constraints| constraints.as_ref().to_vec()))
}

/// Sets the validity from yesterday until `days` days from now, UTC.
fn set_validity(params: &mut CertificateParams, now: Timestamp, days: i64) {
    let midnight = |days: i64| {
        let time = now + SignedDuration::from_hours(24 * days);
        let date = jiff::tz::TimeZone::UTC.to_datetime(time).date();
        rcgen::date_time_ymd(date.year().into(), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    (params.not_before, params.not_after) = (midnight(-1), midnight(days));
}

/// Writes a file that only its owner can read. It is complete or, if there is none yet, missing, also after a
/// power cut.
///
/// # Errors
/// An error if the file cannot be written.
pub fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let part = path.with_extension("part");
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&part, path)?;
    path.parent().map_or(Ok(()), sync_folder)
}

#[cfg(test)]
mod tests {
    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{ServerName, UnixTime};

    use super::*;

    /// Returns whether a client that trusts the development CA accepts its certificate for a name.
    fn is_accepted(dir: &Path, name: &str, now: Timestamp) -> bool {
        let ca = CertificateDer::from_pem_file(dir.join("ca.pem")).unwrap();
        let key = KeyPair::from_pem(&fs::read_to_string(dir.join("ca-key.pem")).unwrap()).unwrap();
        let mut leaf = CertificateParams::new([name.to_owned()]).unwrap();
        set_validity(&mut leaf, now, LEAF_DAYS);
        let certificate =
            leaf.signed_by(&KeyPair::generate().unwrap(), &Issuer::new(ca_params(now), key)).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(ca).unwrap();
        let verifier = WebPkiServerVerifier::builder(roots.into()).build().unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let time = UnixTime::since_unix_epoch(Duration::from_secs(now.as_second().unsigned_abs()));
        verifier.verify_server_cert(certificate.der(), &[], &name, &[], time).is_ok()
    }

    #[test]
    fn a_ca_with_other_or_no_name_constraints_is_not_constrained_to_this_machine() {
        let now = "2026-11-22T12:00:00Z".parse().unwrap();
        let is_constrained = |params: CertificateParams| {
            let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            is_constrained_to_this_machine(certificate.der()).unwrap()
        };
        assert!(is_constrained(ca_params(now)));
        let mut none = ca_params(now);
        none.name_constraints = None;
        assert!(!is_constrained(none));
        let mut wider = ca_params(now);
        let all = GeneralSubtree::DnsName("example".to_owned());
        wider.name_constraints.as_mut().unwrap().permitted_subtrees.push(all);
        assert!(!is_constrained(wider));
    }

    #[test]
    fn the_development_ca_signs_for_this_machine_only() {
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let dir = tempfile::tempdir().unwrap();
        let now = "2026-11-22T12:00:00Z".parse().unwrap();
        ensure_development_certificate(dir.path(), now).unwrap();
        for (name, accepted) in [
            ("localhost", true),
            ("127.0.0.1", true),
            ("::1", true),
            ("bank.example", false),
            ("192.0.2.1", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(is_accepted(dir.path(), name, now), accepted, "{name}");
        }
    }
}
