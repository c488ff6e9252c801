//! Tests of requests of the server to others, through the proxy of its environment and with a private CA.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::support::{Server, assertion};

/// A host that only the proxy can resolve.
const HOST: &str = "keys.internal";

/// Serves a key set by HTTPS behind a proxy that connects every request to it. Returns the address of the
/// proxy and the PEM of the CA.
async fn serve_keys(keys: Value) -> (String, String) {
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_pem = ca.clone().self_signed(&ca_key).unwrap().pem();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new([HOST.to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap();
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = rustls::ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(vec![leaf.der().clone()], private).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let proxy = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = format!("http://{}", proxy.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = proxy.accept().await {
            let (acceptor, body) = (acceptor.clone(), keys.to_string());
            tokio::spawn(async move { drop(answer(stream, acceptor, body).await) });
        }
    });
    (address, ca_pem)
}

/// Answers CONNECT, and then a request with the body.
async fn answer(stream: TcpStream, acceptor: TlsAcceptor, body: String) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    assert!(line.starts_with(&format!("CONNECT {HOST}:443 ")), "{line}");
    while line.trim() != "" {
        line.clear();
        stream.read_line(&mut line).await?;
    }
    stream.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await?;
    let mut tls = acceptor.accept(stream).await?;
    let mut head = [0; 4096];
    let _ = tls.read(&mut head).await?;
    let length = body.len();
    let text = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    tls.write_all(text.as_bytes()).await?;
    tls.shutdown().await
}

/// The demo's back-end client that signs with ES384.
fn backend(server: &Server) -> Value {
    let demo = server.demo_json();
    demo["backend"].as_array().unwrap().iter().find(|client| client["alg"] == "ES384").unwrap().clone()
}

/// The status of a token request of a client whose key set is behind the proxy.
async fn token_status(server: &Server) -> u16 {
    let mut backend = backend(server);
    backend["client_id"] = "keyed".into();
    let endpoint = format!("{}/oauth2/token", server.base());
    let form = [
        ("grant_type", "client_credentials"),
        ("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"),
        ("client_assertion", &assertion(&backend, &endpoint)),
    ];
    server.client().post(endpoint).form(&form).send().await.unwrap().status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn key_sets_are_fetched_through_the_proxy_with_a_private_ca() {
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let mut server = Server::demo();
    let mut public = backend(&server)["jwk"].clone();
    for private in ["d", "key_ops"] {
        public.as_object_mut().unwrap().remove(private);
    }
    let address = format!("https://{HOST}/jwks.json");
    let added = server.trefoil(&["client", "add", "keyed", "--jwks-uri", &address, "--scope", "system/*.rs"]);
    assert!(added.status.success(), "{added:?}");
    // Without a proxy, the name has no address.
    assert_eq!(token_status(&server).await, 401);
    server.stop();

    let (proxy, ca) = serve_keys(json!({ "keys": [public] })).await;
    let mut server = server.with_settings("").with_variables(&[("HTTPS_PROXY", &proxy)]);
    server.start();
    assert_eq!(token_status(&server).await, 401);
    let log = server.log();
    assert!(log.contains("UnknownIssuer"), "the reason of the failure is in the log: {log}");
    server.stop();

    let file = server.data().join("private-ca.pem");
    std::fs::write(&file, ca).unwrap();
    let mut server = server.with_variables(&[("SSL_CERT_FILE", file.to_str().unwrap())]);
    server.start();
    assert_eq!(token_status(&server).await, 200, "{}", server.log());
}
