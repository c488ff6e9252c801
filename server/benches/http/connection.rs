//! The transports of the benchmarks, and a minimal blocking client for them.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio_rustls::TlsConnector;

/// The protocols below the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// HTTP/1.1 without TLS.
    Plain,
    /// HTTP/1.1 over TLS.
    Tls,
    /// HTTP/2 over TLS.
    Http2,
}

impl Transport {
    pub(crate) const ALL: [(Self, &str); 3] =
        [(Self::Plain, "--plain"), (Self::Tls, "--tls"), (Self::Http2, "--http2")];

    /// Returns the transport that a flag of the command line names.
    pub(crate) fn from_flag(flag: &str) -> Option<Self> {
        Self::ALL.into_iter().find_map(|(transport, name)| (flag == name).then_some(transport))
    }

    pub(crate) fn scheme(self) -> &'static str {
        if self == Self::Plain { "http" } else { "https" }
    }
}

/// Opens connections with one transport.
pub(crate) struct Connector {
    pub(crate) transport: Transport,
    tls: Option<Arc<rustls::ClientConfig>>,
}

impl Connector {
    /// Creates a connector. With TLS it trusts the certificate authority in the data folder of the server.
    pub(crate) fn new(transport: Transport, data: &Path) -> Self {
        let tls = (transport != Transport::Plain).then(|| {
            let ca = CertificateDer::from_pem_file(data.join("tls/ca.pem")).expect("the server has a CA");
            let mut roots = rustls::RootCertStore::empty();
            roots.add(ca).expect("the CA is a certificate");
            let mut config =
                rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
            if transport == Transport::Http2 {
                config.alpn_protocols = vec![b"h2".to_vec()];
            }
            Arc::new(config)
        });
        Self { transport, tls }
    }

    /// Opens a connection to an address, a name or IP address with a port.
    pub(crate) fn open(&self, address: &str) -> Connection {
        let stream = TcpStream::connect(address).expect("the server listens");
        drop(stream.set_nodelay(true));
        let Some(config) = self.tls.clone() else {
            return Connection::Http1(BufReader::new(Box::new(stream)));
        };
        let name = ServerName::try_from("localhost").expect("the name is valid");
        if self.transport == Transport::Http2 {
            return Connection::http2(stream, config, name, address);
        }
        let session = rustls::ClientConnection::new(config, name).expect("the configuration is valid");
        Connection::Http1(BufReader::new(Box::new(rustls::StreamOwned::new(session, stream))))
    }
}

/// A stream of bytes in both directions.
pub(crate) trait ByteStream: Read + Write + Send {}

impl<T: Read + Write + Send> ByteStream for T {}

/// A persistent connection. Each request waits for the response of the previous one.
pub(crate) enum Connection {
    Http1(BufReader<Box<dyn ByteStream>>),
    Http2 { runtime: tokio::runtime::Runtime, sender: SendRequest<Full<Bytes>>, address: String },
}

impl Connection {
    fn http2(
        stream: TcpStream,
        config: Arc<rustls::ClientConfig>,
        name: ServerName<'static>,
        address: &str,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("the runtime can start");
        let sender = runtime.block_on(async {
            stream.set_nonblocking(true).expect("the socket is open");
            let stream = tokio::net::TcpStream::from_std(stream).expect("the socket is open");
            let stream = TlsConnector::from(config).connect(name, stream).await.expect("TLS succeeds");
            let stream = TokioIo::new(stream);
            let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream)
                .await
                .expect("the server speaks HTTP/2");
            tokio::spawn(connection);
            sender
        });
        Self::Http2 { runtime, sender, address: address.to_owned() }
    }

    /// Sends a request, written as text of HTTP/1.1, and returns the head and body of the response.
    pub(crate) fn call(&mut self, request: &str) -> (String, String) {
        match self {
            Self::Http1(stream) => call_http1(stream, request),
            Self::Http2 { runtime, sender, address } => {
                let request = parse(request, address);
                runtime.block_on(async {
                    let response = sender.send_request(request).await.expect("the server answers");
                    let mut head = format!("{:?} {}\r\n", response.version(), response.status().as_u16());
                    for (name, value) in response.headers() {
                        head += &format!("{name}: {}\r\n", String::from_utf8_lossy(value.as_bytes()));
                    }
                    let body = response.into_body().collect().await;
                    let body = body.expect("the server sends the complete body").to_bytes();
                    (head, String::from_utf8_lossy(&body).into_owned())
                })
            }
        }
    }
}

fn call_http1(stream: &mut BufReader<Box<dyn ByteStream>>, request: &str) -> (String, String) {
    stream.get_mut().write_all(request.as_bytes()).expect("the server reads");
    stream.get_mut().flush().expect("the server reads");
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(stream.read_line(&mut head).expect("the server answers") > 0, "closed after {head:?}");
    }
    let length = headers(&head, "content-length").next().and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("the server sends the complete body");
    (head, String::from_utf8_lossy(&body).into_owned())
}

/// Parses the text of a request for HTTP/2, which has the authority in place of the header `Host`.
fn parse(request: &str, authority: &str) -> hyper::Request<Full<Bytes>> {
    let (head, body) = request.split_once("\r\n\r\n").expect("a request has an empty line");
    let (start, fields) = head.split_once("\r\n").unwrap_or((head, ""));
    let mut start = start.split(' ');
    let (method, path) = (start.next().unwrap_or_default(), start.next().unwrap_or_default());
    let mut parsed = hyper::Request::builder().method(method).uri(format!("https://{authority}{path}"));
    for (name, value) in fields.split("\r\n").filter_map(|line| line.split_once(": ")) {
        if name != "Host" {
            parsed = parsed.header(name, value);
        }
    }
    parsed.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).expect("the request is valid")
}

/// Returns the status of a response.
pub(crate) fn status(head: &str) -> &str {
    head.split_ascii_whitespace().nth(1).unwrap_or_default()
}

pub(crate) fn headers<'a>(head: &'a str, name: &'a str) -> impl Iterator<Item = String> + 'a {
    head.lines()
        .filter_map(|line| line.split_once(": "))
        .filter(move |(n, _)| n.eq_ignore_ascii_case(name))
        .map(|(_, v)| v.to_owned())
}

/// Returns the text of a POST request with a form.
pub(crate) fn post_form(path: &str, cookies: &str, form: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nCookie: {cookies}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
        form.len()
    )
}
