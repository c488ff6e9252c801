//! A server with scripted faults: it sends each response exactly as given, byte for byte, and closes the
//! connection. wiremock cannot close a connection within a body.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// A server with one response for each request, in order.
pub struct FaultyServer {
    pub base_url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl FaultyServer {
    /// Starts a server. `{base}` in a response is replaced by the base address. An empty response closes the
    /// connection without an answer.
    pub async fn start(responses: &[Vec<u8>]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap());
        let insert_base = |response: &Vec<u8>| match std::str::from_utf8(response) {
            Ok(text) => text.replace("{base}", &base_url).into_bytes(),
            // A compressed body contains no address.
            Err(_) => response.clone(),
        };
        let mut responses: VecDeque<_> = responses.iter().map(insert_base).collect();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = requests.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = Vec::new();
                while !head.windows(4).any(|four| four == b"\r\n\r\n") {
                    if stream.read_buf(&mut head).await.unwrap_or(0) == 0 {
                        break;
                    }
                }
                log.lock().unwrap().push(String::from_utf8_lossy(&head).to_ascii_lowercase());
                let response = responses.pop_front().unwrap_or_else(|| respond(410, "", ""));
                stream.write_all(&response).await.unwrap();
                stream.shutdown().await.unwrap();
            }
        });
        Self { base_url, requests }
    }

    /// Returns the heads of the requests so far, in lower case.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// Returns a complete response. `headers` ends each line with `\r\n`.
pub fn respond(status: u16, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let length = body.as_ref().len();
    cut(status, headers, body, length)
}

/// Returns a response that announces the whole body and contains only its first bytes.
pub fn cut(status: u16, headers: &str, body: impl AsRef<[u8]>, length: usize) -> Vec<u8> {
    let body = body.as_ref();
    let head = format!(
        "HTTP/1.1 {status} x\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), &body[..length]].concat()
}
