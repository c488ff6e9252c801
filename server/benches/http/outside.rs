//! The workloads with `wrk` as the load generator, which sends as fast as one thread can, so that the server
//! finds several requests whenever it looks for work. The reference has the same load.

use std::path::Path;
use std::process::Command;

use crate::server::Server;
use crate::{Bench, Work};

/// Seconds of one slice, of which the reference and the server have one each in turn.
const SLICE_S: u32 = 2;
/// Number of requests that are sent again and again.
const REQUESTS: usize = 20_000;

/// Sends the requests of a file, each of which ends with the byte 1, and prints how many were answered.
const SCRIPT: &str = r#"
local file = io.open(os.getenv("BENCH_REQUESTS"), "rb")
local requests = {}
for request in file:read("*a"):gmatch("([^\1]+)\1") do requests[#requests + 1] = request end
file:close()
local at = 0
request = function() at = at % #requests + 1; return requests[at] end
done = function(summary)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format("ANSWERED %d %d\n", summary.requests, failed))
end
"#;

/// Measures each workload whose requests do not depend on answers.
pub(crate) fn measure(work: &[Work], bench: &Bench, floor: &Server, rounds: usize) {
    if Command::new("wrk").arg("--version").output().is_err() {
        panic!("wrk is not installed; run `apt-get install wrk`");
    }
    let folder = tempfile::tempdir().expect("a temporary folder can be created");
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("requests.lua"), SCRIPT).expect("the script can be written");
    std::fs::write(path("floor"), "GET / HTTP/1.1\r\nHost: x\r\n\r\n\u{1}").expect("the file can be written");
    println!("wrk -t1 -c16, {SLICE_S} s a slice");
    println!("{:<56} {:>12} {:>8} {:>8} {:>10}", "work", "CPU µs/req", "floor", "ratio", "req/s");
    for work in work {
        let Some(texts) = &work.texts else { continue };
        let requests = texts(bench, REQUESTS).join("\u{1}") + "\u{1}";
        std::fs::write(path("requests"), requests).expect("the file can be written");
        let slice = |server: &Server, requests: &str| {
            let mut count = 0;
            let us = server.cpu_us_of(|| count = answered(server, &path("requests.lua"), &path(requests)));
            (us, count as f64)
        };
        slice(&bench.trefoil, "requests");
        let (mut theirs, mut ours) = ((0.0, 0.0), (0.0, 0.0));
        for _ in 0..rounds {
            for (server, requests, sum) in
                [(floor, "floor", &mut theirs), (&*bench.trefoil, "requests", &mut ours)]
            {
                let (us, count) = slice(server, requests);
                *sum = (sum.0 + us, sum.1 + count);
            }
        }
        let (floor_us, us) = (theirs.0 / theirs.1, ours.0 / ours.1);
        let rate = ours.1 / (rounds as f64 * f64::from(SLICE_S));
        println!("{:<56} {us:>12.1} {floor_us:>8.1} {:>8.2} {rate:>10.0}", work.name, us / floor_us);
    }
}

/// Sends the requests for the time of a slice, and returns the number of answers.
fn answered(server: &Server, script: &Path, requests: &Path) -> u64 {
    let mut wrk = Command::new("wrk");
    wrk.args(["-t1", "-c16", &format!("-d{SLICE_S}s"), "-s"]).arg(script).arg(server.base());
    let output = wrk.env("BENCH_REQUESTS", requests).output().expect("wrk can be started");
    let text = String::from_utf8_lossy(&output.stdout);
    let counts = text.lines().find_map(|line| line.strip_prefix("ANSWERED "));
    let counts =
        counts.unwrap_or_else(|| panic!("wrk failed: {text}{}", String::from_utf8_lossy(&output.stderr)));
    let (answers, failed) = counts.split_once(' ').expect("the script prints two numbers");
    assert_eq!(failed, "0", "some requests failed");
    answers.parse().expect("the script prints numbers")
}
