//! `cargo xtask bench [identity|terminology|download]`: server CPU for each request, beside a floor in the same run
//! (DESIGN 6).
//!
//! The floor is a bare hyper server that answers 200 bytes of JSON. It and Trefoil (`--insecure-http
//! --demo`, file store) run as processes of their own, so that their CPU time can be read apart from the
//! load's. Ratios are what counts, since machines are noisy; nothing here passes or fails.

mod download;

use std::convert::Infallible;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P384_SHA384_FIXED, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use trefoil_fixtures::polyhierarchy::{Polyhierarchy, URL};

/// Requests of one measurement, over this many connections.
const REQUESTS: usize = 20_000;
const CONNECTIONS: usize = 4;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    if args.iter().any(|arg| arg == "--floor") {
        return floor();
    }
    if let Some(path) = args.iter().position(|arg| arg == "--file").and_then(|at| args.get(at + 1)) {
        return download::floor(path.into());
    }
    let rounds = args.iter().find_map(|arg| arg.strip_prefix("--rounds=")?.parse().ok()).unwrap_or(3);
    let wanted = args.iter().find(|arg| !arg.starts_with("--"));
    let this = std::env::current_exe().expect("this program has a path");
    let floor = Server::start(Command::new(this).arg("--floor"), "listening ");
    let data = tempfile::tempdir().expect("a folder for the demo");
    if WORK.iter().any(|work| work.is_wanted(wanted) && work.group == "terminology") {
        SIZES.into_iter().for_each(|concepts| import(data.path(), concepts));
    }
    // It is a part of what `bulk` measures.
    let downloads = wanted.is_none_or(|wanted| wanted == "bulk" || wanted == "download");
    if downloads {
        download::import(data.path());
    }
    let mut serve = Command::new(env!("CARGO_BIN_EXE_trefoil"));
    serve.args(["serve", "--demo", "--insecure-http", "--listen", "127.0.0.1:0", "--data"]);
    let trefoil =
        Arc::new(Server::start(serve.arg(data.path()).env("TREFOIL_LOG", "error"), "ready http://"));
    let demo: Value =
        serde_json::from_slice(&std::fs::read(data.path().join("demo.json")).expect("demo.json"))
            .expect("demo.json is JSON");
    let bench = Bench::new(trefoil.clone(), demo);
    if downloads {
        download::measure(&bench, data.path());
    }
    println!("{:<34} {:>12} {:>10} {:>8} {:>14}", "work", "CPU µs/req", "req/s", "ratio", "goal");
    for round in 1..=rounds {
        println!("round {round}");
        let request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        let (base, rate) = floor.measure(REQUESTS, &|connection, _| floor.ask(connection, request));
        println!("{:<34} {base:>12.1} {rate:>10.0} {:>8}", "floor: bare hyper, 200 bytes", "1.00");
        let check = es384_check_us();
        println!("{:<34} {check:>12.1} {:>10.0} {:>8}", "floor: one ES384 check", 1e6 / check, "1.00");
        for work in WORK.iter().filter(|work| work.is_wanted(wanted)) {
            let prepared = (work.prepare)(&bench, work.requests + work.requests / 10);
            let (cpu, rate) = trefoil.measure(work.requests, &|connection, at| prepared(connection, at));
            let floor = if work.checks { check } else { base };
            println!("{:<34} {cpu:>12.1} {rate:>10.0} {:>8.2} {:>14}", work.name, cpu / floor, work.goal);
        }
    }
}

/// One kind of work.
struct Work {
    group: &'static str,
    name: &'static str,
    goal: &'static str,
    requests: usize,
    /// Is the floor a check of a signature, and not a request?
    checks: bool,
    /// Makes ready so many rounds of the work; the answer does the one of this number.
    prepare: for<'a> fn(&'a Bench, usize) -> Doing<'a>,
}

impl Work {
    /// Was it asked for, by its group or by a part of its name? Without a word all are.
    fn is_wanted(&self, wanted: Option<&String>) -> bool {
        wanted.is_none_or(|wanted| self.group == wanted || self.name.contains(wanted.as_str()))
    }
}

type Doing<'a> = Box<dyn Fn(&mut Connection, usize) + Sync + 'a>;

const WORK: [Work; 7] = [
    Work {
        group: "identity",
        name: "userinfo, token seen before",
        goal: "1.8 x",
        requests: REQUESTS,
        checks: false,
        prepare: |bench, _| bench.same(bench.get("/oauth2/userinfo")),
    },
    Work {
        group: "identity",
        name: "client_credentials, ES384 assertion",
        goal: "0.3 ms, 2 x",
        requests: REQUESTS / 5,
        checks: true,
        prepare: Bench::client_credentials,
    },
    Work {
        group: "identity",
        name: "code flow: authorize, then token",
        goal: "",
        requests: REQUESTS / 10,
        checks: false,
        prepare: Bench::code_flow,
    },
    Work {
        group: "terminology",
        name: "$subsumes by GET, 350,000 concepts",
        goal: "1.8 x",
        requests: REQUESTS,
        checks: false,
        prepare: |bench, count| bench.subsumes(SIZES[1], count),
    },
    Work {
        group: "terminology",
        name: "$subsumes by GET, 50,000 concepts",
        goal: "the same",
        requests: REQUESTS,
        checks: false,
        prepare: |bench, count| bench.subsumes(SIZES[0], count),
    },
    Work {
        group: "terminology",
        name: "$validate-code by POST, 350,000",
        goal: "2.5 x",
        requests: REQUESTS,
        checks: false,
        prepare: |bench, count| bench.validate_code(SIZES[1], count),
    },
    Work {
        group: "terminology",
        name: "$validate-code by POST, 50,000",
        goal: "the same",
        requests: REQUESTS,
        checks: false,
        prepare: |bench, count| bench.validate_code(SIZES[0], count),
    },
];

/// What the work needs to know.
struct Bench {
    trefoil: Arc<Server>,
    demo: Value,
    /// A token that has been seen before.
    token: String,
    /// Cookies of a browser that is signed in.
    cookies: String,
    /// Numbers assertions, so that each `jti` is used once.
    made: std::sync::atomic::AtomicUsize,
}

impl Bench {
    fn new(trefoil: Arc<Server>, demo: Value) -> Self {
        let (token, cookies) = trefoil.sign_in(&demo);
        Self { trefoil, demo, token, cookies, made: std::sync::atomic::AtomicUsize::new(0) }
    }

    fn same(&self, request: String) -> Doing<'_> {
        Box::new(move |connection, _| self.trefoil.ask(connection, &request))
    }

    fn get(&self, path: &str) -> String {
        format!("GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n", self.token)
    }

    /// Pairs of codes, more than any cache of ours holds; about half of them below one another.
    fn subsumes(&self, concepts: u32, count: usize) -> Doing<'_> {
        let shape = Polyhierarchy::new(1, concepts);
        let mut random = fastrand::Rng::with_seed(3);
        let requests: Vec<String> = (0..count)
            .map(|_| {
                let below = random.u32(1..concepts);
                let above = match random.bool() {
                    true => shape.parents(shape.parents(below)[0]).first().copied().unwrap_or(0),
                    false => random.u32(0..concepts),
                };
                let (a, b) = (Polyhierarchy::code(above), Polyhierarchy::code(below));
                self.get(&format!(
                    "/fhir/R4/CodeSystem/$subsumes?system={URL}&version={concepts}&codeA={a}&codeB={b}"
                ))
            })
            .collect();
        Box::new(move |connection, at| self.trefoil.ask(connection, &requests[at]))
    }

    /// Codes in is-a sets with many and with few below their tops; answers of both kinds.
    fn validate_code(&self, concepts: u32, count: usize) -> Doing<'_> {
        let mut random = fastrand::Rng::with_seed(4);
        let requests: Vec<String> = (0..count)
            .map(|_| {
                let body = serde_json::json!({ "resourceType": "Parameters", "parameter": [
                    { "name": "url", "valueUri": set_url(concepts, random.u32(0..SETS)) },
                    { "name": "coding", "valueCoding": {
                        "system": URL, "code": Polyhierarchy::code(random.u32(0..concepts)) } },
                ]})
                .to_string();
                format!(
                    "POST /fhir/R4/ValueSet/$validate-code HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/fhir+json\r\nContent-Length: {}\r\n\r\n{body}",
                    self.token,
                    body.len()
                )
            })
            .collect();
        Box::new(move |connection, at| self.trefoil.ask(connection, &requests[at]))
    }

    /// Assertions are signed before the clock runs: the client's work is not the server's.
    fn client_credentials(&self, count: usize) -> Doing<'_> {
        let key = self.backend_key();
        let requests: Vec<String> = (0..count).map(|_| self.token_request(&key)).collect();
        Box::new(move |connection, at| self.trefoil.ask(connection, &requests[at]))
    }

    /// The private key of the back end that signs ES384.
    fn backend_key(&self) -> EcdsaKeyPair {
        let client = &self.demo["backend"][0];
        assert_eq!(client["alg"], "ES384");
        es384(&client["jwk"])
    }

    /// Its request for a token, with an assertion of its own.
    fn token_request(&self, key: &EcdsaKeyPair) -> String {
        let client = &self.demo["backend"][0];
        let audience = format!("http://{}/oauth2/token", self.trefoil.address);
        let jti = self.made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let header = serde_json::json!({ "alg": "ES384", "kid": client["jwk"]["kid"], "typ": "JWT" });
        let now = jiff::Timestamp::now().as_second();
        let claims = serde_json::json!({
            "iss": client["client_id"], "sub": client["client_id"], "aud": audience,
            "exp": now + 300, "jti": format!("bench-{jti}"),
        });
        let form = form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", "client_credentials")
            .append_pair("scope", "system/*.rs")
            .append_pair("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
            .append_pair("client_assertion", &sign(key, &header, &claims))
            .finish();
        post_form("/oauth2/token", "", &form)
    }

    /// A token of that back end.
    fn backend_token(&self) -> String {
        let mut connection = Connection::open(&self.trefoil.address);
        let (head, body) = connection.call(&self.token_request(&self.backend_key()));
        let answer: Value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("{head}{body}"));
        text(&answer["access_token"]).to_owned()
    }

    /// A signed-in browser gets a code, and the client exchanges it: two requests.
    fn code_flow(&self, _: usize) -> Doing<'_> {
        let client = &self.demo["public"];
        let (client_id, redirect_uri) = (text(&client["client_id"]), text(&client["redirect_uris"][0]));
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("response_type", "code")
            .append_pair("client_id", client_id)
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("scope", "openid email")
            .append_pair("code_challenge", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM")
            .append_pair("code_challenge_method", "S256")
            .finish();
        let authorize =
            format!("GET /oauth2/authorize?{query} HTTP/1.1\r\nHost: x\r\nCookie: {}\r\n\r\n", self.cookies);
        let exchange = form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", "authorization_code")
            .append_pair("client_id", client_id)
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("code_verifier", "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk")
            .finish();
        Box::new(move |connection, _| {
            let (head, _) = connection.call(&authorize);
            let to = headers(&head, "location").next().unwrap_or_else(|| panic!("{head}"));
            let code = to.split("code=").nth(1).and_then(|rest| rest.split('&').next());
            let code = code.unwrap_or_else(|| panic!("{to}"));
            self.trefoil.ask(connection, &post_form("/oauth2/token", "", &format!("{exchange}&code={code}")));
        })
    }
}

/// The code systems that terminology is measured on, and how many value sets each has.
const SIZES: [u32; 2] = [50_000, 350_000];
const SETS: u32 = 2_000;

fn set_url(concepts: u32, number: u32) -> String {
    format!("http://polyhierarchy.example/{concepts}/{number}")
}

/// Imports a code system of this size and value sets of what is below its concepts.
fn import(data: &std::path::Path, concepts: u32) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| {
        std::io::BufWriter::new(std::fs::File::create(folder.path().join(name)).expect("a file"))
    };
    let mut system = file("system.json");
    Polyhierarchy::new(1, concepts)
        .write_json(&format!("big-{concepts}"), &mut system)
        .expect("the disk takes it");
    let mut sets = file("sets.ndjson");
    let mut random = fastrand::Rng::with_seed(2);
    for number in 0..SETS {
        let set = serde_json::json!({
            "resourceType": "ValueSet", "id": format!("below-{concepts}-{number}"), "status": "active",
            "url": set_url(concepts, number),
            "compose": { "include": [{ "system": URL, "version": concepts.to_string(), "filter": [
                { "property": "concept", "op": "is-a", "value": Polyhierarchy::code(random.u32(1..concepts / 80)) }] }] },
        });
        writeln!(sets, "{set}").expect("the disk takes it");
    }
    drop((system, sets));
    let mut import = Command::new(env!("CARGO_BIN_EXE_trefoil"));
    let imported =
        import.args(["import", "--data"]).arg(data).arg(folder.path()).stdout(Stdio::null()).status();
    assert!(imported.expect("it starts").success(), "the import failed");
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn post_form(path: &str, cookies: &str, form: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nCookie: {cookies}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
        form.len()
    )
}

fn es384(jwk: &Value) -> EcdsaKeyPair {
    let member = |name: &str| URL_SAFE_NO_PAD.decode(text(&jwk[name])).expect("demo.json holds base64url");
    let point = [vec![4], member("x"), member("y")].concat();
    EcdsaKeyPair::from_private_key_and_public_key(&ECDSA_P384_SHA384_FIXED_SIGNING, &member("d"), &point)
        .expect("demo.json holds a key")
}

fn sign(key: &EcdsaKeyPair, header: &Value, claims: &Value) -> String {
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", encode(header), encode(claims));
    let signature = key.sign(&SystemRandom::new(), message.as_bytes()).expect("a key in memory signs");
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
}

/// Microseconds of one check of an ES384 signature, with nothing around it: what no client assertion can
/// do without.
fn es384_check_us() -> f64 {
    const CHECKS: u32 = 500;
    let pair = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).expect("a key");
    let message = [7; 400];
    let signature = pair.sign(&SystemRandom::new(), &message).expect("a key in memory signs");
    let public = UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, pair.public_key().as_ref());
    let started = std::time::Instant::now();
    for _ in 0..CHECKS {
        public.verify(&message, signature.as_ref()).expect("it is our own signature");
    }
    started.elapsed().as_secs_f64() * 1e6 / f64::from(CHECKS)
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

    /// CPU microseconds for each piece of work, and pieces a second.
    fn measure(&self, count: usize, work: &(dyn Fn(&mut Connection, usize) + Sync)) -> (f64, f64) {
        self.load(0, count / 10, work);
        let (started, before) = (std::time::Instant::now(), self.cpu_us());
        self.load(count / 10, count, work);
        let count = count as f64;
        ((self.cpu_us() - before) / count, count / started.elapsed().as_secs_f64())
    }

    fn load(&self, from: usize, count: usize, work: &(dyn Fn(&mut Connection, usize) + Sync)) {
        std::thread::scope(|scope| {
            for lane in 0..CONNECTIONS {
                scope.spawn(move || {
                    let mut connection = Connection::open(&self.address);
                    for at in (lane..count).step_by(CONNECTIONS) {
                        work(&mut connection, from + at);
                    }
                });
            }
        });
    }

    /// One request that must succeed.
    fn ask(&self, connection: &mut Connection, request: &str) {
        let (status, body) = connection.call(request);
        assert!(status.starts_with("HTTP/1.1 200"), "{status}{body}");
    }

    /// Signs in as the demo user: the token from the front channel, and the cookies.
    fn sign_in(&self, demo: &Value) -> (String, String) {
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
