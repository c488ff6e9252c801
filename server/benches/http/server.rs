//! The two servers (Trefoil and the reference), and the load generator.

use std::collections::HashMap;
use std::convert::Infallible;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use serde_json::Value;
use test_parties::hidden_fields;
use test_server::ServerProcess;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;

use crate::connection::{Connection, Connector, Transport, headers, post_form, status};

/// The reference server, which answers every request with the same 200 bytes. With TLS it uses the
/// certificate in the folder `tls`.
pub(crate) fn floor(transport: Transport, tls: &Path) {
    let runtime = tokio::runtime::Runtime::new().expect("the runtime can start its threads");
    runtime.block_on(async {
        let acceptor = (transport != Transport::Plain).then(|| acceptor(transport, tls));
        let listener =
            tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("the system assigns a free port");
        println!("listening {}", listener.local_addr().expect("the listener has an address"));
        loop {
            let (stream, _) = listener.accept().await.expect("a connection is accepted");
            drop(stream.set_nodelay(true));
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                match acceptor {
                    None => answer_floor(transport, stream).await,
                    Some(acceptor) => {
                        answer_floor(transport, acceptor.accept(stream).await.expect("TLS succeeds")).await;
                    }
                }
            });
        }
    });
}

fn acceptor(transport: Transport, tls: &Path) -> TlsAcceptor {
    let chain = CertificateDer::pem_file_iter(tls.join("cert.pem")).expect("the file exists");
    let chain = chain.collect::<Result<_, _>>().expect("the file contains certificates");
    let key = PrivateKeyDer::from_pem_file(tls.join("key.pem")).expect("the file contains a key");
    let mut config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("the key belongs to the certificate");
    if transport == Transport::Http2 {
        config.alpn_protocols = vec![b"h2".to_vec()];
    }
    TlsAcceptor::from(Arc::new(config))
}

/// Answers the requests of a connection to the reference server.
async fn answer_floor<S>(transport: Transport, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let body = Bytes::from(format!("{{\"floor\":\"{}\"}}", "x".repeat(188)));
    let response = hyper::service::service_fn(move |_| {
        let mut response = hyper::Response::new(Full::new(body.clone()));
        let json = hyper::header::HeaderValue::from_static("application/json");
        response.headers_mut().insert(hyper::header::CONTENT_TYPE, json);
        async { Ok::<_, Infallible>(response) }
    });
    let stream = TokioIo::new(stream);
    if transport == Transport::Http2 {
        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        drop(server.serve_connection(stream, response).await);
    } else {
        drop(hyper::server::conn::http1::Builder::new().serve_connection(stream, response).await);
    }
}

/// A server in a separate process.
pub(crate) struct Server {
    process: ServerProcess,
    pub(crate) address: String,
    connector: Arc<Connector>,
}

impl Server {
    /// Starts a server, which prints a line with its address. `connector` is called when it is ready.
    pub(crate) fn start(
        command: &mut Command,
        says: &str,
        connector: impl FnOnce() -> Arc<Connector>,
    ) -> Self {
        let process = ServerProcess::start_announced(command, says).unwrap_or_else(|error| panic!("{error}"));
        Self { address: process.address().to_owned(), process, connector: connector() }
    }

    /// Returns the identifier of the process.
    pub(crate) fn process_id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn connector(&self) -> Arc<Connector> {
        self.connector.clone()
    }

    /// Returns the base URL.
    pub(crate) fn base(&self) -> String {
        format!("{}://{}", self.connector.transport.scheme(), self.address)
    }

    /// Opens a connection.
    pub(crate) fn connect(&self) -> Connection {
        self.connector.open(&self.address)
    }

    /// Opens connections, so that handshakes are not part of a measurement.
    pub(crate) fn connections(&self, count: usize) -> Vec<Connection> {
        (0..count).map(|_| self.connect()).collect()
    }

    /// Returns the CPU time of each thread in nanoseconds (Linux).
    pub(crate) fn threads(&self) -> HashMap<OsString, f64> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.process.id()));
        let nanoseconds = |thread: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
            Some((thread.file_name(), stat.split(' ').next()?.parse().ok()?))
        };
        threads.into_iter().flatten().flatten().filter_map(nanoseconds).collect()
    }

    /// Returns the CPU time of the server during the load in microseconds.
    pub(crate) fn cpu_us_of(&self, load: impl FnOnce()) -> f64 {
        let before = self.threads();
        load();
        self.cpu_us_since(&before)
    }

    /// Returns the CPU time of the server in microseconds since its threads had these times. Threads that
    /// have ended since were idle for seconds, so their time can be ignored.
    pub(crate) fn cpu_us_since(&self, before: &HashMap<OsString, f64>) -> f64 {
        let since = |(thread, now): (OsString, f64)| now - before.get(&thread).copied().unwrap_or_default();
        self.threads().into_iter().map(since).sum::<f64>() / 1e3
    }

    /// Sends a request and checks that it succeeds.
    pub(crate) fn ask(&self, connection: &mut Connection, request: &str) {
        self.ask_for("200", connection, request);
    }

    /// Sends a request and checks the status of the answer.
    pub(crate) fn ask_for(&self, expected: &str, connection: &mut Connection, request: &str) {
        let (head, body) = connection.call(request);
        assert_eq!(status(&head), expected, "{request}\n{head}{body}");
    }

    /// Signs in as the demo user. Returns the access token from the redirect URL, and the cookies.
    pub(crate) fn sign_in(&self, demo: &Value) -> (String, String) {
        let mut connection = self.connect();
        let mut cookies = Vec::new();
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("response_type", "token")
            .append_pair("client_id", demo["public"]["client_id"].as_str().unwrap_or_default())
            .append_pair("redirect_uri", demo["public"]["redirect_uris"][0].as_str().unwrap_or_default())
            .append_pair("scope", "openid user/ValueSet.rs user/CodeSystem.rs")
            .finish();
        let get = |connection: &mut Connection, path: &str, cookies: &mut Vec<String>| {
            let head = format!(
                "GET {path} HTTP/1.1\r\nHost: {}\r\nCookie: {}\r\n\r\n",
                self.address,
                cookies.join("; ")
            );
            let (head, body) = connection.call(&head);
            cookies.extend(
                headers(&head, "set-cookie").map(|set| set.split(';').next().unwrap_or_default().to_owned()),
            );
            (head, body)
        };
        let path = |head: &str| {
            let to = headers(head, "location").next().unwrap_or_else(|| panic!("{head}"));
            to.split_once(&self.address).map_or(to.clone(), |(_, path)| path.to_owned())
        };
        let (head, _) = get(&mut connection, &format!("/oauth2/authorize?{query}"), &mut cookies);
        let (_, page) = get(&mut connection, &path(&head), &mut cookies);
        let form = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(hidden_fields(&page))
            .append_pair("username", demo["user"]["username"].as_str().unwrap_or_default())
            .append_pair("password", demo["user"]["password"].as_str().unwrap_or_default())
            .finish();
        let request = post_form("/sign-in", &cookies.join("; "), &form);
        let (head, _) = connection.call(&request);
        cookies.extend(
            headers(&head, "set-cookie").map(|set| set.split(';').next().unwrap_or_default().to_owned()),
        );
        let (head, _) = get(&mut connection, &path(&head), &mut cookies);
        let response = path(&head);
        let token = response.split("access_token=").nth(1).unwrap_or_else(|| panic!("{response}"));
        (token.split('&').next().unwrap_or_default().to_owned(), cookies.join("; "))
    }
}

/// Sends `count` requests, distributed over the connections. The first has the number `from`.
pub(crate) fn load(
    connections: &mut [Connection],
    from: usize,
    count: usize,
    work: &(dyn Fn(&mut Connection, usize) + Sync),
) {
    let lanes = connections.len();
    std::thread::scope(|scope| {
        for (lane, connection) in connections.iter_mut().enumerate() {
            scope.spawn(move || {
                for at in (lane..count).step_by(lanes) {
                    work(connection, from + at);
                }
            });
        }
    });
}
