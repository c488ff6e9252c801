//! The sentences with which the client explains why a server cannot be used, each after a real failure.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use trefoil_tui::api::Api;
use trefoil_tui::doctor::{self, FindingStatus};
use trefoil_tui::profile::{Profile, TrustedCertificates};
use wiremock::matchers::path;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::CLOCK;

/// A TLS server with a certificate of these days from now. Returns its address and the certificate.
fn tls_server(days: [i64; 2]) -> (String, String) {
    trefoil_tui::install_crypto();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let date = |days: i64| {
        let time = Timestamp::now() + SignedDuration::from_hours(24 * days);
        let date = time.to_zoned(jiff::tz::TimeZone::UTC).date();
        rcgen::date_time_ymd(date.year().into(), date.month() as u8, date.day() as u8)
    };
    (params.not_before, params.not_after) = (date(days[0]), date(days[1]));
    let certificate = params.self_signed(&key).unwrap();
    let pem = certificate.pem();
    let chain = vec![certificate.der().clone()];
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
    let config = Arc::new(config);
    let address = serve(move |connection| {
        let mut stream = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), connection);
        // The client may end the handshake, or send no TLS at all.
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.flush();
    });
    (format!("https://{address}"), pem)
}

/// Serves each connection with a function. Returns host and port.
fn serve(handle: impl Fn(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("localhost:{}", listener.local_addr().unwrap().port());
    std::thread::spawn(move || listener.incoming().flatten().for_each(handle));
    address
}

/// A server that sends each connection the same bytes.
fn serve_text(text: &'static str) -> String {
    serve(move |mut connection| {
        // The client may have gone.
        let _ = connection.read(&mut [0; 4096]);
        let _ = connection.write_all(text.as_bytes());
    })
}

/// The failure of the first request to a server, with `PORT` and `TODAY` instead of those of this run.
async fn reason(base_url: &str, ca: Option<&str>) -> String {
    let mut profile = Profile::at(base_url).unwrap();
    profile.ca = ca.map(|pem| TrustedCertificates { path: "ca.pem".into(), pem: pem.as_bytes().to_vec() });
    let error = Api::new(profile, CLOCK, Box::new(drop)).unwrap().openid().await.unwrap_err().to_string();
    let (_, port) = base_url.rsplit_once(':').unwrap();
    let today = Timestamp::now().strftime("%Y-%m-%d").to_string();
    error.replace(port, "PORT").replace(&today, "TODAY")
}

#[tokio::test]
async fn each_failure_has_a_sentence() {
    let (expired, expired_ca) = tls_server([-400, -3]);
    let (future, future_ca) = tls_server([5, 400]);
    let (valid, _) = tls_server([-5, 400]);
    let plain = serve_text("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}");
    let away = serve_text(
        "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 80\r\nConnection: close\r\n\r\n\
         <html><head><title>502</title></head><h1>502 Bad Gateway</h1><p>nginx</p></html>",
    );
    let moved = serve_text(
        "HTTP/1.1 308 Permanent Redirect\r\nLocation: https://id.example/.well-known/openid-configuration\r\n\
         Content-Length: 0\r\nConnection: close\r\n\r\n",
    );
    let other_page = serve_text(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 20\r\nConnection: close\r\n\r\n<html>hello</html>  ",
    );
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let dates = |days: i64| {
        let time = Timestamp::now() + SignedDuration::from_hours(24 * days);
        time.strftime("%Y-%m-%d").to_string()
    };
    let mut sentences = Vec::new();
    for (name, address, ca) in [
        ("expired certificate", expired.clone(), Some(expired_ca.as_str())),
        ("certificate of the future", future.clone(), Some(future_ca.as_str())),
        ("unknown authority", valid.clone(), Some(expired_ca.as_str())),
        ("http to a port with TLS", valid.replace("https", "http"), None),
        ("https to a port without TLS", format!("https://{plain}"), None),
        ("a proxy without its server", format!("http://{away}"), None),
        ("a redirect to another address", format!("http://{moved}"), None),
        ("a page instead of a document", format!("http://{other_page}"), None),
        ("a document without members", format!("http://{plain}"), None),
        ("nothing listens", format!("http://localhost:{port}"), None),
    ] {
        let sentence = reason(&address, ca).await;
        let sentence = sentence.replace(&dates(-3), "3 DAYS AGO").replace(&dates(5), "IN 5 DAYS");
        sentences.push(format!("{name}: {sentence}"));
    }
    insta::assert_snapshot!("reasons", sentences.join("\n"));
}

/// Checks a server with a discovery document and a key set of these statuses and bodies. Returns the failed
/// checks of both.
async fn failed_checks(discovery: (u16, &str), keys: (u16, &str)) -> Vec<&'static str> {
    let server = MockServer::start().await;
    let at = |path: &str| format!("{}/{path}", server.uri());
    let configuration = discovery.1.replace("ISSUER", &server.uri()).replace("AT", &server.uri());
    for (route, status, body) in [
        ("/.well-known/openid-configuration", discovery.0, configuration.as_str()),
        ("/keys", keys.0, keys.1),
    ] {
        let handle = ResponseTemplate::new(status).set_body_raw(body, "application/json");
        Mock::given(path(route)).respond_with(handle).mount(&server).await;
    }
    let api = Api::new(Profile::at(&at("")).unwrap(), CLOCK, Box::new(drop)).unwrap();
    let findings = doctor::examine(&api).await;
    let failed = findings.iter().filter(|finding| finding.status == FindingStatus::Failed);
    failed
        .map(|finding| finding.subject)
        .filter(|subject| ["openid-configuration", "key set"].contains(subject))
        .collect()
}

#[tokio::test]
async fn the_doctor_fails_for_a_broken_document_or_key_set() {
    const DOCUMENT: &str = r#"{"issuer":"ISSUER","authorization_endpoint":"AT/authorize","token_endpoint":"AT/token",
        "jwks_uri":"AT/keys"}"#;
    const KEYS: &str = include_str!("keys/jwks.json");
    assert_eq!(failed_checks((200, DOCUMENT), (200, KEYS)).await, [""; 0]);
    assert_eq!(failed_checks((200, DOCUMENT), (500, "")).await, ["key set"]);
    assert_eq!(failed_checks((200, DOCUMENT), (404, "")).await, ["key set"]);
    assert_eq!(failed_checks((200, DOCUMENT), (200, "{}")).await, ["key set"]);
    assert_eq!(failed_checks((200, DOCUMENT), (200, r#"{"keys":[]}"#)).await, ["key set"]);
    assert_eq!(failed_checks((500, DOCUMENT), (200, KEYS)).await, ["openid-configuration"]);
    assert_eq!(failed_checks((200, "{}"), (200, KEYS)).await, ["openid-configuration"]);
    let foreign = DOCUMENT.replace("ISSUER", "https://other.example");
    assert_eq!(failed_checks((200, &foreign), (200, KEYS)).await, ["openid-configuration"]);
    assert_eq!(failed_checks((404, ""), (404, "")).await, [""; 0], "a server of FHIR alone");
}
