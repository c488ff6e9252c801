//! `cargo xtask bench terminology`: benchmark of the index of a code system as large as SNOMED CT. Measures
//! build time, memory, load time, and the time of one request in process. The benchmark of the server
//! measures the same code system over HTTP.

use std::hint::black_box;
use std::io::{BufReader, BufWriter};
use std::ops::Range;
use std::process::Command;
use std::time::{Duration, Instant};

use fhir::Parameters;
use trefoil_fixtures::polyhierarchy::{Polyhierarchy, URL};
use trefoil_fixtures::value_sets::{SetShape, ValueSets};
use trefoil_terminology::{
    CodeSystemIndex, OperationInput, OperationLevel, Terminology, TerminologyChange, TerminologyOperation,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Number of requests whose median is reported. It is larger than the number of entries in any cache.
const REQUESTS: usize = 200_000;
/// Number of value sets of each shape.
const SETS: u32 = 2_000;
/// Number of the value set that is requested repeatedly.
const OFTEN: u32 = 0;
/// Number of requests per time measurement, because one request is too short to be measured alone.
const REQUESTS_PER_READING: usize = 100;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    match args.first().map(String::as_str) {
        Some("--load") => return measure_build(&args[1], &args[2]),
        Some("--read") => return measure_read(&args[1]),
        // Measures only the requests, on an index with this number of concepts that `--load` saved.
        Some("--ask") => {
            let concepts = args[2].parse().expect("the second argument is the number of concepts");
            return measure_requests(&Polyhierarchy::new(1, concepts), args[1].as_ref());
        }
        _ => {}
    }
    println!("{:<48} {:>12} {:>14}", "work", "", "goal");
    for concepts in [50_000, 350_000] {
        measure(concepts);
    }
}

fn print_row(work: &str, figure: String, goal: &str) {
    println!("{work:<48} {figure:>12} {goal:>14}");
}

fn measure(concepts: u32) {
    let shape = Polyhierarchy::new(1, concepts);
    println!("{concepts} concepts, {} links", shape.links());
    let folder = tempfile::tempdir().expect("the temporary folder can be created");
    let (json, saved) = (folder.path().join("big.json"), folder.path().join("big.index"));
    let mut file = BufWriter::new(std::fs::File::create(&json).expect("the temporary folder is writable"));
    shape.write_json("big", &mut file).expect("the temporary folder is writable");
    drop(file);
    let size = json.metadata().expect("the file was just written").len();
    print_row("FHIR JSON", format!("{:.0} MB", size as f64 / 1e6), "");
    // Runs in a separate process, because the peak memory of that process is measured.
    let this = std::env::current_exe().expect("the path of this program is known");
    let loaded =
        Command::new(this).arg("--load").args([&json, &saved]).status().expect("this program can be started");
    assert!(loaded.success(), "loading failed");

    let back = Command::new(std::env::current_exe().expect("the path of this program is known"))
        .arg("--read")
        .arg(&saved)
        .status();
    assert!(back.expect("this program can be started").success(), "the process that loads the index failed");
    measure_requests(&shape, &saved);
}

/// Measures single requests and prints the medians.
fn measure_requests(shape: &Polyhierarchy, saved: &std::path::Path) {
    let concepts = shape.len();
    let index = open(saved);

    let terminology = Terminology::default();
    let mut random = fastrand::Rng::with_seed(2);
    let sets = ValueSets::new(shape, None);
    let changes = SetShape::ALL.into_iter().flat_map(|shape| (0..SETS).map(move |number| (shape, number)));
    let changes = changes.map(|(shape, number)| {
        let json = sets.resource(shape, number);
        let id = json["id"].as_str().expect("each generated value set has an id").to_owned();
        TerminologyChange::Put { kind: "ValueSet", id, bytes: json.to_string().into() }
    });
    terminology.apply(changes);
    terminology.apply([TerminologyChange::Index { id: "big".to_owned(), index: index.clone() }]);
    let pairs = Pool::new(|at| {
        let below = random.u32(0..concepts);
        // In half of the pairs, the first code is an ancestor of the second.
        let above = if at % 2 == 0 { walk_up(shape, below, &mut random) } else { random.u32(0..concepts) };
        [Polyhierarchy::code(above), Polyhierarchy::code(below)]
    });
    print_row("floor: one read of 64 MB, beyond the caches", measure_dependent_reads(&mut random), "");
    let subsumes = |at: usize| {
        let [a, b] = pairs.get(at);
        black_box(index.subsumes(a, b).expect("both codes exist in the index"));
    };
    print_row("subsumes, two codes", median(subsumes), "300 ns");
    let member = |pool: &Pool, at: usize| {
        let [set, code] = pool.get(at);
        black_box(terminology.has_member(set, URL, code).expect("the value set was stored above"));
    };
    // Requests to value sets whose numbers are in a range. Half of the requested codes are members.
    let mut requests = |shape: SetShape, numbers: Range<u32>| {
        let pool = Pool::new(|at| {
            let number = random.u32(numbers.clone());
            [sets.url(shape, number), sets.code(shape, number, at.is_multiple_of(2), &mut random)]
        });
        // The first request of a value set compiles it. The last measurement requests a single value set
        // repeatedly.
        (0..REQUESTS).for_each(|at| member(&pool, at));
        pool
    };
    for shape in SetShape::ALL {
        let pool = requests(shape, 0..SETS);
        let goal = if shape == SetShape::IsA { "300 ns" } else { "" };
        print_row(&format!("in one of {SETS} sets: {}", shape.name()), median(|at| member(&pool, at)), goal);
    }
    let pages: Vec<_> = ["hier", "con num", "number 1", "12345", "hierarchy concept 99"]
        .map(|filter| (filter, median_page(&terminology, filter)))
        .into();
    for (filter, time) in pages {
        print_row(&format!("$expand, a page of 20: '{filter}'"), time, "5 ms");
    }
    let pool = requests(SetShape::IsA, OFTEN..OFTEN + 1);
    print_row("in one set that is asked often: is-a", median(|at| member(&pool, at)), "200 ns");
}

/// Returns the median time of a page of 20 codes out of all concepts, filtered by text.
fn median_page(terminology: &Terminology, filter: &str) -> String {
    const ROUNDS: usize = 21;
    let set = format!(
        r#"{{"resourceType":"ValueSet","id":"whole","url":"urn:whole","status":"active","compose":{{"include":[{{"system":"{URL}"}}]}}}}"#
    );
    terminology.apply([TerminologyChange::Put {
        kind: "ValueSet",
        id: "whole".to_owned(),
        bytes: set.into(),
    }]);
    let query =
        Parameters::from_query(&format!("url=urn:whole&count=20&filter={}", filter.replace(' ', "+")));
    let mut times: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let started = Instant::now();
            let input = OperationInput::from_query(&query);
            black_box(
                terminology
                    .run(TerminologyOperation::Expand, OperationLevel::Type, input, "2026-01-01T00:00:00Z")
                    .expect("the value set was stored above"),
            );
            started.elapsed()
        })
        .collect();
    times.sort_unstable();
    format!("{:.2} ms", times[ROUNDS / 2].as_secs_f64() * 1e3)
}

/// Prepared pairs of texts, stored in the order of use: a server reads the text of a request just before it
/// answers.
struct Pool {
    text: String,
    ends: Vec<usize>,
}

impl Pool {
    fn new(request: impl FnMut(usize) -> [String; 2]) -> Self {
        let mut pool = Self { text: String::new(), ends: vec![0] };
        for part in (0..REQUESTS).flat_map(request) {
            pool.text.push_str(&part);
            pool.ends.push(pool.text.len());
        }
        pool
    }

    fn get(&self, at: usize) -> [&str; 2] {
        [2 * at, 2 * at + 1].map(|part| &self.text[self.ends[part]..self.ends[part + 1]])
    }
}

/// Returns the time of one read in a chain of dependent reads, in a column of about the size of the index. It
/// is the lower bound for a request about random concepts.
fn measure_dependent_reads(random: &mut fastrand::Rng) -> String {
    let mut next: Vec<u32> = (0..16 << 20).collect();
    // Sattolo's algorithm: a random permutation that is a single cycle through all elements.
    for at in (1..next.len()).rev() {
        next.swap(at, random.usize(..at));
    }
    let here = std::cell::Cell::new(0_u32);
    median(|_| here.set(next[here.get() as usize]))
}

/// Compiles a resource, saves the index and prints the measurements.
fn measure_build(json: &str, saved: &str) {
    let started = Instant::now();
    let bytes = std::fs::read(json).expect("the parent process wrote the file");
    let index = CodeSystemIndex::from_resource(&bytes).expect("the parent process wrote a valid code system");
    drop(bytes);
    print_row("compiled from FHIR JSON", ms(started.elapsed()), "4 s");
    print_row("maximum resident memory", format!("{} MiB", status_kib("VmHWM") / 1024), "400 MiB");
    index
        .save(BufWriter::new(std::fs::File::create(saved).expect("the temporary folder is writable")))
        .expect("the temporary folder is writable");
}

/// Loads the index and prints the measurements.
fn measure_read(saved: &str) {
    const MORE: u64 = 4;
    let path = std::path::Path::new(saved);
    let first = open(path);
    // Loading the first index includes the one-time cost of the reader. Averaging over several more indexes
    // reduces the rounding error of the allocator and the kernel.
    let (started, before) = (Instant::now(), status_kib("VmRSS"));
    let more: Vec<CodeSystemIndex> = (0..MORE).map(|_| open(path)).collect();
    print_row("read back from the saved index", ms(started.elapsed() / MORE as u32), "200 ms");
    let bytes = (status_kib("VmRSS") - before) * 1024;
    let each = bytes as f64 / (MORE * first.concepts() as u64) as f64;
    print_row("memory of the index, a concept", format!("{each:.0} B"), "210 B");
    drop(more);
}

fn open(saved: &std::path::Path) -> CodeSystemIndex {
    let file = std::fs::File::open(saved).expect("the index was saved before");
    CodeSystemIndex::read(BufReader::new(file)).expect("the index is valid")
}

/// Returns a random ancestor, or the concept itself if it has none.
fn walk_up(shape: &Polyhierarchy, from: u32, random: &mut fastrand::Rng) -> u32 {
    let mut at = from;
    for _ in 0..random.u32(1..6) {
        match shape.parents(at) {
            [] => break,
            parents => at = parents[random.usize(..parents.len())],
        }
    }
    at
}

/// Returns the median time of one request.
fn median(request: impl Fn(usize)) -> String {
    let mut times: Vec<Duration> = (0..REQUESTS / REQUESTS_PER_READING)
        .map(|round| {
            let started = Instant::now();
            (round * REQUESTS_PER_READING..(round + 1) * REQUESTS_PER_READING).for_each(&request);
            started.elapsed() / REQUESTS_PER_READING as u32
        })
        .collect();
    times.sort_unstable();
    format!("{} ns", times[times.len() / 2].as_nanos())
}

fn ms(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

/// Returns a value of `/proc/self/status` (Linux), in KiB.
fn status_kib(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}
