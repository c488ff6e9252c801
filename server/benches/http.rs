//! `cargo xtask bench`: server CPU for each request, beside a floor in the same run (DESIGN 6).
//!
//! The floor is a bare hyper server that answers 200 bytes of JSON. It and Trefoil (`--insecure-http
//! --demo`) run as processes of their own, so that their CPU time can be read apart from the load's.
//! Ratios are what counts, since machines are noisy; nothing here passes or fails.

use std::convert::Infallible;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use serde_json::Value;

/// Requests of one measurement, over this many connections.
const REQUESTS: usize = 20_000;
const CONNECTIONS: usize = 4;

fn main() {
    if std::env::args().any(|arg| arg == "--floor") {
        return floor();
    }
    let rounds = std::env::args().find_map(|arg| arg.strip_prefix("--rounds=")?.parse().ok()).unwrap_or(3);
    let this = std::env::current_exe().expect("this program has a path");
    let floor = Server::start(Command::new(this).arg("--floor"), "listening ");
    let data = tempfile::tempdir().expect("a folder for the demo");
    let mut serve = Command::new(env!("CARGO_BIN_EXE_trefoil"));
    serve.args([
        "serve",
        "--demo",
        "--insecure-http",
        "--store",
        "memory",
        "--listen",
        "127.0.0.1:0",
        "--data",
    ]);
    let trefoil = Server::start(serve.arg(data.path()).env("TREFOIL_LOG", "error"), "ready http://");
    let demo: Value =
        serde_json::from_slice(&std::fs::read(data.path().join("demo.json")).expect("demo.json"))
            .expect("demo.json is JSON");
    let token = trefoil.front_channel_token(&demo);
    let fact = &demo["members"][0];
    let subsumption = &demo["subsumptions"][0];
    let query = |pairs: &[(&str, &Value)]| {
        let pairs = pairs.iter().map(|(name, value)| (*name, value.as_str().unwrap_or_default()));
        form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
    };
    let subsumes = query(&[
        ("system", &subsumption["system"]),
        ("codeA", &subsumption["codeA"]),
        ("codeB", &subsumption["codeB"]),
    ]);
    let parameters = serde_json::json!({ "resourceType": "Parameters", "parameter": [
        { "name": "url", "valueUri": fact["value_set"] },
        { "name": "coding", "valueCoding": { "system": fact["system"], "code": fact["code"] } },
    ]})
    .to_string();
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n");
    let post = |path: &str, body: &str| {
        let length = body.len();
        format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/fhir+json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
    };
    let work = [
        ("userinfo, token seen before", 1.8, get("/oauth2/userinfo")),
        ("$subsumes by GET (demo)", 1.8, get(&format!("/fhir/R4/CodeSystem/$subsumes?{subsumes}"))),
        ("$validate-code by POST (demo)", 2.5, post("/fhir/R4/ValueSet/$validate-code", &parameters)),
    ];
    println!("{:<32} {:>12} {:>10} {:>8} {:>8}", "work", "CPU µs/req", "req/s", "ratio", "goal");
    for round in 1..=rounds {
        println!("round {round}");
        let (base, rate) = floor.measure("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        println!("{:<32} {base:>12.1} {rate:>10.0} {:>8} {:>8}", "floor: bare hyper, 200 bytes", "1.00", "");
        for (name, goal, request) in &work {
            let (cpu, rate) = trefoil.measure(request);
            println!("{name:<32} {cpu:>12.1} {rate:>10.0} {:>8.2} {goal:>8.1}", cpu / base);
        }
    }
}

/// The floor: one answer of 200 bytes, whatever is asked.
fn floor() {
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        println!("listening {}", listener.local_addr().expect("bound"));
        let body = Bytes::from(format!("{{\"floor\":\"{}\"}}", "x".repeat(188)));
        loop {
            let (stream, _) = listener.accept().await.expect("clients");
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

struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(command: &mut Command, says: &str) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the server starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped"))
            .read_line(&mut line)
            .expect("the server says its address");
        let address = line.trim().strip_prefix(says).unwrap_or_else(|| panic!("{line:?}")).to_owned();
        Self { child, address }
    }

    /// CPU time of the process so far, in microseconds (Linux: ticks of 10 ms).
    fn cpu_us(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks =
            |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or_default();
        (ticks(11) + ticks(12)) * 10_000.0
    }

    /// CPU microseconds for each request, and requests a second.
    fn measure(&self, request: &str) -> (f64, f64) {
        self.load(request, REQUESTS / 10);
        let (started, before) = (std::time::Instant::now(), self.cpu_us());
        self.load(request, REQUESTS);
        let count = REQUESTS as f64;
        ((self.cpu_us() - before) / count, count / started.elapsed().as_secs_f64())
    }

    fn load(&self, request: &str, count: usize) {
        std::thread::scope(|scope| {
            for _ in 0..CONNECTIONS {
                scope.spawn(|| {
                    let mut connection = Connection::open(&self.address);
                    for _ in 0..count / CONNECTIONS {
                        let (status, _) = connection.call(request);
                        assert!(status.starts_with("HTTP/1.1 200"), "{status}");
                    }
                });
            }
        });
    }

    /// Signs in as the demo user and takes the token from the front channel.
    fn front_channel_token(&self, demo: &Value) -> String {
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
        let request = format!(
            "POST /sign-in HTTP/1.1\r\nHost: x\r\nCookie: {}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
            cookies.join("; "),
            form.len(),
        );
        let (head, _) = connection.call(&request);
        cookies.extend(
            headers(&head, "set-cookie").map(|set| set.split(';').next().unwrap_or_default().to_owned()),
        );
        let (head, _) = get(&mut connection, &path(&head), &mut cookies);
        let answer = path(&head);
        let token = answer.split("access_token=").nth(1).unwrap_or_else(|| panic!("{answer}"));
        token.split('&').next().unwrap_or_default().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A kept connection that speaks just enough HTTP/1.1.
struct Connection(BufReader<TcpStream>);

impl Connection {
    fn open(address: &str) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        drop(stream.set_nodelay(true));
        Self(BufReader::new(stream))
    }

    /// Head and body of the answer.
    fn call(&mut self, request: &str) -> (String, String) {
        self.0.get_mut().write_all(request.as_bytes()).expect("the server reads");
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(self.0.read_line(&mut head).expect("the server answers") > 0, "closed after {head:?}");
        }
        let length = headers(&head, "content-length").next().and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).expect("the whole body");
        (head, String::from_utf8_lossy(&body).into_owned())
    }
}

fn headers<'a>(head: &'a str, name: &'a str) -> impl Iterator<Item = String> + 'a {
    head.lines()
        .filter_map(|line| line.split_once(": "))
        .filter(move |(n, _)| n.eq_ignore_ascii_case(name))
        .map(|(_, v)| v.to_owned())
}
