//! Benchmark of the records, run by `cargo xtask bench log`: time that the line of the log about a request,
//! and its metrics, cost the thread which answers the request. Standard error should be a file or
//! `/dev/null`, as for a service.

use std::hint::black_box;
use std::time::{Duration, Instant};

use trefoil_server::config::LogFormat;
use trefoil_server::records::request_metrics::RequestMetrics;
use trefoil_server::records::server_log::start_log;

/// Number of lines of a thread in a round. The buffer of the log takes them without dropping lines.
const LINES: u64 = 5_000;
const ROUNDS: usize = 51;

fn main() {
    let guard = start_log(LogFormat::Text);
    let metrics = RequestMetrics::default();
    for threads in [1, 2] {
        report("line of a request", threads, &log_lines);
        report("metrics of a request", threads, &|| count_requests(&metrics));
    }
    drop(guard);
}

/// Prints the nanoseconds of a request.
fn report(name: &str, threads: usize, work: &(dyn Fn() -> Duration + Sync)) {
    let mut figures: Vec<f64> = (0..ROUNDS).map(|_| round(threads, work)).collect();
    figures.sort_by(f64::total_cmp);
    let (median, fastest) = (figures[ROUNDS / 2], figures[0]);
    println!("{name}, {threads} threads: median {median:.0} ns, fastest round {fastest:.0} ns");
}

/// Returns the nanoseconds of a request, averaged over the threads.
fn round(threads: usize, work: &(dyn Fn() -> Duration + Sync)) -> f64 {
    let total: Duration = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().map(|thread| thread.join().expect("logging does not panic")).sum()
    });
    // The next round begins with an empty buffer.
    std::thread::sleep(Duration::from_millis(50));
    total.as_secs_f64() * 1e9 / (threads as u64 * LINES) as f64
}

/// Logs what `http::routes` logs about requests.
fn log_lines() -> Duration {
    let method = &http::Method::GET;
    let path = "/fhir/R4/CodeSystem/$subsumes";
    let request_id = "CgtI9DqcHECeVPc_EQ8dqQ-5";
    let started = Instant::now();
    for number in 0..LINES {
        let (status, took_us) = (200_u16, u128::from(number % 100));
        tracing::info!(%method, path, status, took_us, %request_id, "request");
    }
    started.elapsed()
}

/// Counts what `http::dispatch` counts of requests. All threads count the same route, which is the worst
/// case.
fn count_requests(metrics: &RequestMetrics) -> Duration {
    let started = Instant::now();
    for number in 0..LINES {
        let series = &metrics.series(black_box(40))[black_box(7)];
        series.count(black_box(200), Duration::from_micros(black_box(number % 100)));
    }
    started.elapsed()
}
