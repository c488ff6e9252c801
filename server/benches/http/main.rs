//! Benchmarks over HTTP, run by `cargo xtask bench [identity|terminology|download|search|scale]`: CPU time
//! of the server per request, compared with a reference server in the same run.
//!
//! The reference is a bare hyper server whose responses have 200 bytes of JSON. The reference and Trefoil
//! (`--demo`, file store, default logging) run in separate processes, so that their CPU time does not include
//! that of the load generator, which keeps 16 connections busy (`--connections=N` for another number). Both
//! use the same transport: HTTP/1.1 without TLS, over TLS with `--tls`, or HTTP/2 over TLS with `--http2`.
//! With `--postgres` the store of Trefoil is in a private PostgreSQL database. Handshakes are not measured.
//! With `--outside` the load generator is `wrk`; with `tx20` the workloads are those of a public benchmark.
//! With `--instructions` both servers run under callgrind, which counts instructions instead of time.
//! Only the ratios are meaningful, because the speed of a machine varies. The benchmarks do not pass or fail.

mod connection;
mod download;
mod identity;
mod instructions;
mod outside;
mod scale;
mod search;
mod server;
mod terminology;
mod tx20;

use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::Value;
use test_database::{Durability, TestDatabase};

use self::connection::{Connection, Connector, Transport};
use self::server::{Server, load};

/// Number of requests of one measurement, and the number of alternating slices in which they are sent.
const REQUESTS: usize = 20_000;
const SLICES: usize = 10;
/// Default number of connections of the load generator, enough to saturate two processors.
const CONNECTIONS: usize = 16;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let counts = args.iter().any(|arg| arg == "--instructions");
    let transport = args.iter().find_map(|arg| Transport::from_flag(arg)).unwrap_or(Transport::Plain);
    if let Some(tls) = args.iter().position(|arg| arg == "--floor").and_then(|at| args.get(at + 1)) {
        return server::floor(transport, tls.as_ref());
    }
    if let Some(path) = args.iter().position(|arg| arg == "--file").and_then(|at| args.get(at + 1)) {
        return download::floor(path.into());
    }
    if args.iter().any(|arg| arg == "scale") {
        return scale::run();
    }
    if args.iter().any(|arg| arg == "search") {
        return search::run(&args);
    }
    if args.iter().any(|arg| arg == "tx20") {
        return tx20::run(&args);
    }
    let connections = args.iter().find_map(|arg| arg.strip_prefix("--connections=")?.parse().ok());
    let connections: usize = connections.unwrap_or(CONNECTIONS);
    let rounds = args.iter().find_map(|arg| arg.strip_prefix("--rounds=")?.parse().ok()).unwrap_or(3);
    let filter = args.iter().find(|arg| !arg.starts_with("--"));
    let this = std::env::current_exe().expect("the path of the running program is known");
    let data = tempfile::tempdir().expect("a temporary folder can be created");
    let work = [identity::work(), terminology::work()].into_iter().flatten();
    let work: Vec<Work> = work.filter(|work| work.is_wanted(filter)).collect();
    if work.iter().any(|work| work.group == "terminology") {
        terminology::import(data.path());
    }
    // The name `bulk` includes the downloads, which are measured without TLS.
    let downloads = !counts
        && transport == Transport::Plain
        && filter.is_none_or(|group| group == "bulk" || group == "download");
    if downloads {
        download::import(data.path());
    }
    let mut serve = Command::new(env!("CARGO_BIN_EXE_trefoil"));
    serve.args(["serve", "--demo", "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
    if transport == Transport::Plain {
        serve.arg("--insecure-http");
    }
    // The database waits for the disk, as in production.
    let database = args
        .iter()
        .any(|arg| arg == "--postgres")
        .then(|| TestDatabase::start(Durability::Synced).expect("PostgreSQL is installed and starts"));
    if let Some(database) = &database {
        serve.args(["--store", &database.create().expect("a database can be created")]);
    }
    // The server logs as users run it, to a file.
    let log = std::fs::File::create(data.path().join("server.log")).expect("the log can be created");
    let says = format!("ready {}://", transport.scheme());
    let connector = || Arc::new(Connector::new(transport, data.path()));
    let mut floor = Command::new(this);
    floor.args(&args).arg("--floor").arg(data.path().join("tls"));
    let dumps = tempfile::tempdir().expect("a temporary folder can be created");
    if counts {
        serve = instructions::command(&serve, dumps.path());
        floor = instructions::command(&floor, dumps.path());
    }
    let trefoil = Arc::new(Server::start(serve.stderr(log), &says, connector));
    let floor = Server::start(&mut floor, "listening ", || trefoil.connector());
    let bench = Bench::new(trefoil.clone(), demo(data.path()));
    if downloads {
        download::measure(&bench, data.path());
    }
    if counts {
        return instructions::measure(&work, &bench, &floor, dumps.path());
    }
    if args.iter().any(|arg| arg == "--outside") {
        return outside::measure(&work, &bench, &floor, rounds);
    }
    let engine = if database.is_some() { "PostgreSQL" } else { "file store" };
    println!("{transport:?}, {connections} connections, {engine}");
    println!(
        "{:<46} {:>12} {:>8} {:>8} {:>10} {:>14}",
        "work", "CPU µs/req", "floor", "ratio", "req/s", "goal"
    );
    for round in 1..=rounds {
        println!("round {round}");
        let check = identity::es384_check_us();
        work.iter().for_each(|work| measure(work, &bench, &floor, connections, check));
    }
}

/// Returns the content of `demo.json` in a data folder.
fn demo(data: &Path) -> Value {
    let demo = std::fs::read(data.join("demo.json")).expect("demo.json exists");
    serde_json::from_slice(&demo).expect("demo.json is JSON")
}

/// Measures one workload in alternation with the reference, because the speed of the machine changes over
/// time.
fn measure(work: &Work, bench: &Bench, floor: &Server, connections: usize, check_us: f64) {
    let slice = work.requests / SLICES;
    let prepared = (work.prepare)(bench, work.requests + slice);
    let (mut ours, mut theirs) = (bench.trefoil.connections(connections), floor.connections(connections));
    let mut ours = |from| load(&mut ours, from, slice, &|connection, at| prepared(connection, at));
    let mut base = |from| {
        load(&mut theirs, from, slice, &|connection, _| {
            floor.ask(connection, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        });
    };
    base(0);
    ours(0);
    let (mut floor_us, mut us, mut seconds) = (0.0, 0.0, 0.0);
    for from in (1..=SLICES).map(|turn| turn * slice) {
        floor_us += floor.cpu_us_of(|| base(from));
        let started = std::time::Instant::now();
        us += bench.trefoil.cpu_us_of(|| ours(from));
        seconds += started.elapsed().as_secs_f64();
    }
    let count = (SLICES * slice) as f64;
    let (us, floor_us) = (us / count, if work.checks { check_us } else { floor_us / count });
    let (ratio, rate) = (us / floor_us, count / seconds);
    println!("{:<46} {us:>12.1} {floor_us:>8.1} {ratio:>8.2} {rate:>10.0} {:>14}", work.name, work.goal);
}

/// A workload: requests of one kind.
struct Work {
    group: &'static str,
    name: String,
    goal: &'static str,
    requests: usize,
    /// `true` if the reference is the verification of a signature instead of a request.
    checks: bool,
    prepare: Prepare,
    /// The texts of the requests, if they do not depend on answers.
    texts: Option<Texts>,
}

/// A function that returns the texts of a number of requests.
type Texts = Rc<dyn Fn(&Bench, usize) -> Vec<String>>;

/// A function that prepares a number of requests. The returned function sends the request with a given
/// number.
type Prepare = Box<dyn for<'a> Fn(&'a Bench, usize) -> Doing<'a>>;

impl Work {
    /// Creates a workload of a group, without a name and without requests.
    fn new(group: &'static str, goal: &'static str, requests: usize) -> Self {
        let prepare: Prepare = Box::new(|_, _| Box::new(|_, _| ()));
        Self { group, name: String::new(), goal, requests, checks: false, prepare, texts: None }
    }

    /// Creates a workload of requests that do not depend on answers.
    fn of_texts(
        group: &'static str,
        goal: &'static str,
        requests: usize,
        texts: impl Fn(&Bench, usize) -> Vec<String> + 'static,
    ) -> Self {
        let texts: Texts = Rc::new(texts);
        let own = Rc::clone(&texts);
        let prepare: Prepare = Box::new(move |bench, count| {
            let requests = own(bench, count);
            Box::new(move |connection, at| bench.trefoil.ask(connection, &requests[at]))
        });
        Self { prepare, texts: Some(texts), ..Self::new(group, goal, requests) }
    }

    /// Returns `true` if the command line selects the workload by its group or by a part of its name, or
    /// selects nothing.
    fn is_wanted(&self, filter: Option<&String>) -> bool {
        filter.is_none_or(|text| self.group == text || self.name.contains(text.as_str()))
    }
}

type Doing<'a> = Box<dyn Fn(&mut Connection, usize) + Sync + 'a>;

/// The server under test, and the credentials for requests to it.
struct Bench {
    trefoil: Arc<Server>,
    demo: Value,
    /// An access token that was used before, so that the server has it in its cache.
    token: String,
    /// Cookies of a signed-in browser.
    cookies: String,
    /// Number of assertions so far, which makes each `jti` unique.
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

    fn post(&self, path: &str, body: &Value) -> String {
        let (token, body) = (&self.token, body.to_string());
        let length = body.len();
        format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/fhir+json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
