//! Tests of a certificate that is renewed while the server runs.

use std::path::PathBuf;

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::support::Server;

/// Writes a certificate for localhost and its key into files, through symbolic links as tools for renewals
/// do. Returns the certificate.
fn write_certificate(server: &Server, name: &str) -> Vec<u8> {
    let pair = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&pair).unwrap();
    for (file, text) in [("cert", certificate.pem()), ("key", pair.serialize_pem())] {
        let target = server.data().join(format!("{file}-{name}.pem"));
        std::fs::write(&target, text).unwrap();
        link(server, file, &target);
    }
    certificate.der().to_vec()
}

fn link(server: &Server, file: &str, target: &std::path::Path) {
    let link = link_path(server, file);
    drop(std::fs::remove_file(&link));
    std::os::unix::fs::symlink(target, link).unwrap();
}

fn link_path(server: &Server, file: &str) -> PathBuf {
    server.data().join(format!("{file}.pem"))
}

fn any_certificate() -> reqwest::Client {
    reqwest::Client::builder().danger_accept_invalid_certs(true).tls_info(true).no_proxy().build().unwrap()
}

/// The certificate that the server presents to a new connection.
async fn presented(server: &Server) -> Vec<u8> {
    let response = any_certificate().get(format!("{}/health/ready", server.base())).send().await.unwrap();
    let certificate =
        response.extensions().get::<reqwest::tls::TlsInfo>().unwrap().peer_certificate().unwrap();
    certificate.to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_certificate_is_presented_without_closing_a_connection() {
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let server = Server::in_fresh_folder();
    let paths = ["cert", "key"].map(|file| link_path(&server, file).display().to_string());
    let settings = format!("[server]\ncertificate = \"{}\"\nprivate_key = \"{}\"\n", paths[0], paths[1]);
    let mut server = server.with_settings(&settings);
    let first = write_certificate(&server, "first");
    server.start();
    assert_eq!(presented(&server).await, first);
    // A connection that stays open.
    let open = any_certificate();
    let ready = open.get(format!("{}/health/ready", server.base())).send().await.unwrap();
    let text = ready.text().await.unwrap();
    assert!(text.contains("certificate valid until "), "{text}");

    let second = write_certificate(&server, "second");
    let reloaded = server.trefoil(&["reload"]);
    let text = String::from_utf8_lossy(&reloaded.stdout);
    assert!(reloaded.status.success() && text.contains("valid until "), "{reloaded:?}");
    assert_eq!(presented(&server).await, second);
    let response = open.get(format!("{}/health/ready", server.base())).send().await.unwrap();
    let info = response.extensions().get::<reqwest::tls::TlsInfo>().unwrap();
    assert_eq!(info.peer_certificate().unwrap(), &first[..], "the connection of before is still open");

    // A key of another certificate is refused, and both files are named.
    let key = server.data().join("key-first.pem");
    link(&server, "key", &key);
    let reload = server.trefoil(&["reload"]);
    let text = String::from_utf8_lossy(&reload.stderr);
    assert_eq!(reload.status.code(), Some(1), "{text}");
    assert!(paths.iter().all(|path| text.contains(path)) && text.contains("stays"), "{text}");
    assert_eq!(presented(&server).await, second);

    // The signal has the same effect.
    let third = write_certificate(&server, "third");
    server.signal("HUP");
    for _ in 0..200 {
        if presented(&server).await == third {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the certificate was not renewed after SIGHUP");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_clients_reject_is_a_warning_at_the_start() {
    let settings = "[server]\nbase_url = \"https://id.example\"\n";
    let mut server = Server::in_fresh_folder().with_settings(settings);
    server.start();
    let log = server.log();
    assert!(log.contains("the development certificate is presented") && log.contains("id.example"), "{log}");
    let folder = server.data().join("tls");
    assert!(CertificateDer::from_pem_file(folder.join("cert.pem")).is_ok());
}
