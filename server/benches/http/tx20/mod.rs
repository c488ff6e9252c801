//! `cargo xtask bench tx20`: the workloads of a public terminology benchmark (HealthSamurai's tx-benchmark),
//! on generated data of the same shapes: a release of SNOMED CT's format with 350,000 concepts, a code system
//! like LOINC with 100,000, one like RxNorm with 120,000, and 600 value sets.
//!
//! Each workload is measured with 1, 10 and 50 connections that send as fast as they can, and then at half of
//! the highest rate, where the time of an answer counts from the moment at which its request was due.

mod data;
mod workloads;

use std::fs::File;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use trefoil_fixtures::polyhierarchy::Polyhierarchy;

use self::workloads::{SERVERS, workloads};
use crate::connection::{Connector, Transport};
use crate::server::Server;

/// Numbers of connections that send as fast as they can.
const CONNECTIONS: [usize; 3] = [1, 10, 50];
/// Number of different requests of a workload.
const REQUESTS: usize = 2_000;
/// Duration of one measurement.
const DURATION: Duration = Duration::from_millis(1_500);

/// Runs the benchmark. `--concepts=N` is for a smaller release.
pub(crate) fn run(args: &[String]) {
    let concepts =
        args.iter().find_map(|arg| arg.strip_prefix("--concepts=")?.parse().ok()).unwrap_or(350_000);
    let filter = args.iter().find_map(|arg| arg.strip_prefix("--only="));
    let data = tempfile::tempdir().expect("a temporary folder can be created");
    let hierarchy = Polyhierarchy::new(1, concepts);
    data::import(&hierarchy, data.path());
    // Requests have no token, as those of the benchmark.
    let config = data.path().join("trefoil.toml");
    std::fs::write(&config, "[terminology]\nanonymous = true\n").expect("the configuration can be written");
    let mut serve = Command::new(env!("CARGO_BIN_EXE_trefoil"));
    serve
        .args(["serve", "--demo", "--insecure-http", "--listen", "127.0.0.1:0", "--config"])
        .arg(config)
        .arg("--data")
        .arg(data.path());
    let log = File::create(data.path().join("server.log")).expect("the log can be created");
    let connector = || Arc::new(Connector::new(Transport::Plain, data.path()));
    let trefoil = Arc::new(Server::start(serve.stderr(log), "ready http://", connector));
    let mut floor = Command::new(std::env::current_exe().expect("the path of the running program is known"));
    floor.arg("--floor").arg(data.path());
    let floor = Server::start(&mut floor, "listening ", || trefoil.connector());
    println!(
        "{concepts} concepts; requests a second and CPU µs a request; p99 in ms at half of the highest rate; published rates"
    );
    print!("{:<48} {:>9} {:>9} {:>9} {:>8} {:>8}", "work", "1", "10", "50", "CPU, 10", "p99");
    println!("{}", SERVERS.map(|server| format!(" {server:>10}")).concat());
    report("reference: bare hyper", &floor, "200", &["GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_owned()]);
    println!();
    for workload in workloads() {
        let name = format!("{:<4} {}", workload.id, workload.name);
        if filter.is_some_and(|text| !name.contains(text)) {
            continue;
        }
        let requests = workload.requests(&hierarchy, REQUESTS);
        if filter.is_some() {
            let (_, body) = trefoil.connect().call(&requests[0]);
            println!("{}\n{}", requests[0], &body[..body.len().min(2_000)]);
        }
        report(&name, &trefoil, workload.status, &requests);
        let rate = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), |rate| rate.to_string());
        println!("{}", workload.published.map(|published| format!(" {:>10}", rate(published))).concat());
    }
}

/// Measures a workload and prints its row, without the end of the line.
fn report(name: &str, server: &Server, status: &str, requests: &[String]) {
    let (mut rates, mut costs) = (Vec::new(), Vec::new());
    for count in CONNECTIONS {
        let mut rate = 0.0;
        let us = server.cpu_us_of(|| rate = rate_of(server, count, status, requests));
        rates.push(rate);
        costs.push(us / (rate * DURATION.as_secs_f64()));
    }
    let highest = rates.iter().copied().fold(0.0, f64::max);
    let p99 = p99_ms(server, status, requests, highest / 2.0);
    let [r1, r10, r50] = [0, 1, 2].map(|at| rates[at]);
    print!("{name:<48} {r1:>9.0} {r10:>9.0} {r50:>9.0} {:>8.1} {p99:>8.2}", costs[1]);
}

/// Sends requests as fast as this number of connections can, and returns the answers a second.
fn rate_of(server: &Server, connections: usize, status: &str, requests: &[String]) -> f64 {
    let mut connections = server.connections(connections);
    let (answers, lanes) = (AtomicUsize::new(0), connections.len());
    let started = Instant::now();
    std::thread::scope(|scope| {
        for (lane, connection) in connections.iter_mut().enumerate() {
            let answers = &answers;
            scope.spawn(move || {
                let mut at = lane;
                while started.elapsed() < DURATION {
                    server.ask_for(status, connection, &requests[at % requests.len()]);
                    at += lanes;
                    answers.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    answers.into_inner() as f64 / started.elapsed().as_secs_f64()
}

/// Sends requests at a rate, and returns the time in milliseconds within which 99 % are answered.
fn p99_ms(server: &Server, status: &str, requests: &[String], rate: f64) -> f64 {
    const LANES: usize = 50;
    let mut connections = server.connections(LANES);
    let started = Instant::now() + Duration::from_millis(50);
    let each = (rate * DURATION.as_secs_f64() / LANES as f64).ceil().max(1.0) as usize;
    let mut times: Vec<Duration> = std::thread::scope(|scope| {
        let lanes = connections.iter_mut().enumerate().map(|(lane, connection)| {
            scope.spawn(move || {
                let mut times = Vec::with_capacity(each);
                for turn in 0..each {
                    let number = turn * LANES + lane;
                    let due = started + Duration::from_secs_f64(number as f64 / rate);
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    server.ask_for(status, connection, &requests[number % requests.len()]);
                    times.push(due.elapsed());
                }
                times
            })
        });
        let lanes: Vec<_> = lanes.collect();
        lanes.into_iter().flat_map(|lane| lane.join().expect("a lane does not fail")).collect()
    });
    times.sort_unstable();
    times[times.len() * 99 / 100].as_secs_f64() * 1e3
}
