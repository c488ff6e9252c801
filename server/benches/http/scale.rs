//! One, two and three servers on one database, run by `cargo xtask bench scale`: the rate of all servers
//! together, and the CPU time of each request in the servers and in the database. Servers, database and load
//! share the processors of one machine, so the rates show where servers wait for each other, and the CPU
//! times what machines of their own would allow.

use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use tempfile::TempDir;
use test_database::{Durability, TestDatabase};

use crate::connection::{Connection, Connector, Transport, status};
use crate::server::{Server, load};
use crate::{Bench, Doing, REQUESTS, Work, identity};

/// Number of connections to all servers together.
const CONNECTIONS: usize = 24;
/// The number of requests before the measurement is that of the measurement divided by this.
const WARM_UP: usize = 10;
/// Scopes of the token that reads and writes resources.
const SCOPES: &str = "system/*.rs system/Group.cud";

/// Measures all work with one, two and three servers.
pub(crate) fn run() {
    let database = TestDatabase::start(Durability::Synced).expect("PostgreSQL is installed and starts");
    println!("{CONNECTIONS} connections; PostgreSQL waits for the disk");
    println!(
        "{:<6} {:<40} {:>8} {:>18} {:>18}",
        "nodes", "work", "req/s", "nodes, CPU µs/req", "database, µs/req"
    );
    for count in 1..=3 {
        let url = database.create().expect("a database can be created");
        let folders: Vec<TempDir> =
            (0..count).map(|_| tempfile::tempdir().expect("a temporary folder can be created")).collect();
        let mut servers: Vec<Arc<Server>> = Vec::new();
        for folder in &folders {
            servers.push(Arc::new(start(folder, &url, servers.first())));
        }
        let bench = Bench::new(Arc::clone(&servers[0]), crate::demo(folders[0].path()));
        for work in work() {
            measure(&work, &bench, &servers, &database);
        }
    }
}

/// Starts a server on a database. `first` is the server whose URL is that of all.
fn start(folder: &TempDir, url: &str, first: Option<&Arc<Server>>) -> Server {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = free.expect("the system assigns a free port").to_string();
    let base = first.map_or_else(|| format!("http://{address}"), |first| first.base());
    let mut serve = Command::new(env!("CARGO_BIN_EXE_trefoil"));
    serve.args([
        "serve",
        "--demo",
        "--insecure-http",
        "--listen",
        &address,
        "--base-url",
        &base,
        "--store",
        url,
    ]);
    let log = std::fs::File::create(folder.path().join("server.log")).expect("the log can be created");
    serve.arg("--data").arg(folder.path()).stderr(log);
    let connector = || Arc::new(Connector::new(Transport::Plain, folder.path()));
    // It prints the URL of all servers.
    let mut server = Server::start(&mut serve, "ready http://", connector);
    server.address = address;
    server
}

fn work() -> Vec<Work> {
    let mut work = identity::work();
    let own = |name: &str, requests, prepare| Work {
        name: name.to_owned(),
        prepare,
        ..Work::new("scale", "", requests)
    };
    work.push(own("PUT of a new Group", REQUESTS / 5, Box::new(Bench::write_groups)));
    work.push(own("GET of a Group", REQUESTS / 2, Box::new(Bench::read_group)));
    work
}

impl Bench {
    fn put_group(token: &str, id: &str) -> String {
        let body = format!(
            r#"{{"resourceType":"Group","id":"{id}","type":"person","actual":true,"name":"{}"}}"#,
            "name ".repeat(150)
        );
        format!(
            "PUT /fhir/R4/Group/{id} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/fhir+json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    fn write_groups(&self, _: usize) -> Doing<'_> {
        let token = self.backend_token(SCOPES);
        Box::new(move |connection, at| {
            let (head, body) = connection.call(&Self::put_group(&token, &format!("scale-{at}")));
            assert_eq!(status(&head), "201", "{head}{body}");
        })
    }

    /// Reads a Group that was written before.
    fn read_group(&self, _: usize) -> Doing<'_> {
        let token = self.backend_token(SCOPES);
        let (head, body) = self.trefoil.connect().call(&Self::put_group(&token, "read"));
        assert_eq!(status(&head), "201", "{head}{body}");
        let get =
            format!("GET /fhir/R4/Group/read HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n");
        self.same(get)
    }
}

/// Measures one workload, whose connections are distributed over the servers.
fn measure(work: &Work, bench: &Bench, servers: &[Arc<Server>], database: &TestDatabase) {
    let (count, warm_up) = (work.requests, work.requests / WARM_UP);
    let request = (work.prepare)(bench, warm_up + count);
    let mut connections: Vec<Connection> =
        servers.iter().cycle().take(CONNECTIONS).map(|server| server.connect()).collect();
    load(&mut connections, 0, warm_up, &|connection, at| request(connection, at));
    let (begun, before) = (Instant::now(), database.cpu_seconds());
    let nodes_us = cpu_us_of(servers, || {
        load(&mut connections, warm_up, count, &|connection, at| request(connection, at));
    });
    let rate = count as f64 / begun.elapsed().as_secs_f64();
    let database_us =
        before.zip(database.cpu_seconds()).map(|(before, after)| (after - before) * 1e6 / count as f64);
    let database_us = database_us.map_or_else(|| "unknown".to_owned(), |us| format!("{us:.0}"));
    let nodes_us = nodes_us / count as f64;
    println!("{:<6} {:<40} {rate:>8.0} {nodes_us:>18.0} {database_us:>18}", servers.len(), work.name);
}

/// Returns the CPU time of all servers during the load in microseconds.
fn cpu_us_of(servers: &[Arc<Server>], load: impl FnOnce()) -> f64 {
    let before: Vec<_> = servers.iter().map(|server| server.threads()).collect();
    load();
    std::iter::zip(servers, &before).map(|(server, before)| server.cpu_us_since(before)).sum()
}
