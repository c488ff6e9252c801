//! The two servers (Trefoil and the reference), and the load generator.

use std::collections::HashMap;
use std::convert::Infallible;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use serde_json::Value;

/// The reference server, which answers every request with the same 200 bytes.
pub(crate) fn floor() {
    let runtime = tokio::runtime::Runtime::new().expect("the runtime can start its threads");
    runtime.block_on(async {
        let listener =
            tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("the system assigns a free port");
        println!("listening {}", listener.local_addr().expect("the listener has an address"));
        let body = Bytes::from(format!("{{\"floor\":\"{}\"}}", "x".repeat(188)));
        loop {
            let (stream, _) = listener.accept().await.expect("a connection is accepted");
            drop(stream.set_nodelay(true));
            let body = body.clone();
            tokio::spawn(async move {
                let answer = hyper::service::service_fn(move |_| {
                    let mut response = hyper::Response::new(Full::new(body.clone()));
                    let json = hyper::header::HeaderValue::from_static("application/json");
                    response.headers_mut().insert(hyper::header::CONTENT_TYPE, json);
                    async { Ok::<_, Infallible>(response) }
                });
                drop(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), answer)
                        .await,
                );
            });
        }
    });
}

/// A server in a separate process.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
}

impl Server {
    pub(crate) fn start(command: &mut Command, says: &str) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the server starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("the standard output is piped"))
            .read_line(&mut line)
            .expect("the server prints its address");
        let address = line.trim().strip_prefix(says).unwrap_or_else(|| panic!("{line:?}")).to_owned();
        Self { child, address }
    }

    /// Returns the CPU time of each thread in nanoseconds (Linux).
    fn threads(&self) -> HashMap<OsString, f64> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let nanoseconds = |thread: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
            Some((thread.file_name(), stat.split(' ').next()?.parse().ok()?))
        };
        threads.into_iter().flatten().flatten().filter_map(nanoseconds).collect()
    }

    /// Returns the CPU time of the server during the load in microseconds. Threads that end during the load were idle
    /// for seconds, so their time can be ignored.
    pub(crate) fn cpu_us_of(&self, load: impl FnOnce()) -> f64 {
        let before = self.threads();
        load();
        let since = |(thread, now): (OsString, f64)| now - before.get(&thread).copied().unwrap_or_default();
        self.threads().into_iter().map(since).sum::<f64>() / 1e3
    }

    /// Sends `count` requests over `connections` connections. The first has the number `from`.
    pub(crate) fn load(
        &self,
        connections: usize,
        from: usize,
        count: usize,
        work: &(dyn Fn(&mut Connection, usize) + Sync),
    ) {
        std::thread::scope(|scope| {
            for lane in 0..connections {
                scope.spawn(move || {
                    let mut connection = Connection::open(&self.address);
                    for at in (lane..count).step_by(connections) {
                        work(&mut connection, from + at);
                    }
                });
            }
        });
    }

    /// Sends a request and checks that it succeeds.
    pub(crate) fn ask(&self, connection: &mut Connection, request: &str) {
        let (status, body) = connection.call(request);
        assert!(status.starts_with("HTTP/1.1 200"), "{status}{body}");
    }

    /// Signs in as the demo user. Returns the access token from the redirect URL, and the cookies.
    pub(crate) fn sign_in(&self, demo: &Value) -> (String, String) {
        let mut connection = Connection::open(&self.address);
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
        let hidden = |name: &str| {
            let rest = page.split(&format!("name=\"{name}\" value=\"")).nth(1).unwrap_or_default();
            rest.split('"').next().unwrap_or_default().replace("&amp;", "&")
        };
        let form = form_urlencoded::Serializer::new(String::new())
            .append_pair("csrf", &hidden("csrf"))
            .append_pair("continue", &hidden("continue"))
            .append_pair("username", demo["user"]["username"].as_str().unwrap_or_default())
            .append_pair("password", demo["user"]["password"].as_str().unwrap_or_default())
            .finish();
        let request = post_form("/sign-in", &cookies.join("; "), &form);
        let (head, _) = connection.call(&request);
        cookies.extend(
            headers(&head, "set-cookie").map(|set| set.split(';').next().unwrap_or_default().to_owned()),
        );
        let (head, _) = get(&mut connection, &path(&head), &mut cookies);
        let answer = path(&head);
        let token = answer.split("access_token=").nth(1).unwrap_or_else(|| panic!("{answer}"));
        (token.split('&').next().unwrap_or_default().to_owned(), cookies.join("; "))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A persistent connection of a minimal HTTP/1.1 client.
pub(crate) struct Connection(BufReader<TcpStream>);

impl Connection {
    pub(crate) fn open(address: &str) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        drop(stream.set_nodelay(true));
        Self(BufReader::new(stream))
    }

    /// Sends a request and returns the head and body of the response.
    pub(crate) fn call(&mut self, request: &str) -> (String, String) {
        self.0.get_mut().write_all(request.as_bytes()).expect("the server reads");
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(self.0.read_line(&mut head).expect("the server answers") > 0, "closed after {head:?}");
        }
        let length = headers(&head, "content-length").next().and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).expect("the server sends the complete body");
        (head, String::from_utf8_lossy(&body).into_owned())
    }
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
