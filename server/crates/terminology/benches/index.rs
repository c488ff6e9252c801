//! `cargo xtask bench terminology`: the index of a code system of SNOMED CT's size: how long it takes to build, what it
//! costs in memory, how fast it is read back, and what one question costs in process (DESIGN 6). Over HTTP it is
//! measured by the other benchmark, on the same code system.

use std::hint::black_box;
use std::io::{BufReader, BufWriter};
use std::ops::Range;
use std::process::Command;
use std::time::{Duration, Instant};

use fhir::Parameters;
use trefoil_fixtures::polyhierarchy::{Polyhierarchy, URL};
use trefoil_fixtures::value_sets::{Shape, ValueSets};
use trefoil_terminology::{Change, Index, Input, Level, Terminology};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Questions of one median: more than any cache of ours holds.
const QUESTIONS: usize = 200_000;
/// Value sets of each shape.
const SETS: u32 = 2_000;
/// The one that is asked often.
const OFTEN: u32 = 0;
/// Questions between two looks at the clock.
const AT_ONCE: usize = 100;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    match args.first().map(String::as_str) {
        Some("--load") => return load(&args[1], &args[2]),
        Some("--read") => return read(&args[1]),
        // The questions alone, of an index that `--load` saved, and of so many concepts.
        Some("--ask") => {
            let concepts = args[2].parse().expect("how many concepts");
            return ask(&Polyhierarchy::new(1, concepts), args[1].as_ref());
        }
        _ => {}
    }
    println!("{:<48} {:>12} {:>14}", "work", "", "goal");
    for concepts in [50_000, 350_000] {
        measure(concepts);
    }
}

fn told(work: &str, figure: String, goal: &str) {
    println!("{work:<48} {figure:>12} {goal:>14}");
}

fn measure(concepts: u32) {
    let shape = Polyhierarchy::new(1, concepts);
    println!("{concepts} concepts, {} links", shape.links());
    let folder = tempfile::tempdir().expect("a folder");
    let (json, saved) = (folder.path().join("big.json"), folder.path().join("big.index"));
    let mut file = BufWriter::new(std::fs::File::create(&json).expect("a file"));
    shape.write_json("big", &mut file).expect("the disk takes it");
    drop(file);
    let size = json.metadata().expect("it was written").len();
    told("FHIR JSON", format!("{:.0} MB", size as f64 / 1e6), "");
    // In a process of its own, so that its peak is its own.
    let this = std::env::current_exe().expect("this program has a path");
    let loaded = Command::new(this).arg("--load").args([&json, &saved]).status().expect("it starts");
    assert!(loaded.success(), "loading failed");

    let back =
        Command::new(std::env::current_exe().expect("it has a path")).arg("--read").arg(&saved).status();
    assert!(back.expect("it starts").success(), "reading failed");
    ask(&shape, &saved);
}

/// The questions.
fn ask(shape: &Polyhierarchy, saved: &std::path::Path) {
    let concepts = shape.len();
    let index = open(saved);

    let terminology = Terminology::default();
    let mut random = fastrand::Rng::with_seed(2);
    let sets = ValueSets::new(shape, None);
    let changes = Shape::ALL.into_iter().flat_map(|shape| (0..SETS).map(move |number| (shape, number)));
    let changes = changes.map(|(shape, number)| {
        let json = sets.resource(shape, number);
        let id = json["id"].as_str().expect("it has one").to_owned();
        Change::Put { kind: "ValueSet", id, bytes: json.to_string().into() }
    });
    terminology.apply(changes);
    terminology.apply([Change::Index { id: "big".to_owned(), index: index.clone() }]);
    let pairs = Pool::new(|at| {
        let below = random.u32(0..concepts);
        // Half of them true.
        let above = if at % 2 == 0 { walk_up(shape, below, &mut random) } else { random.u32(0..concepts) };
        [Polyhierarchy::code(above), Polyhierarchy::code(below)]
    });
    told("floor: one read of 64 MB, beyond the caches", floor(&mut random), "");
    let subsumes = |at: usize| {
        let [a, b] = pairs.get(at);
        black_box(index.subsumes(a, b).expect("both are there"));
    };
    told("subsumes, two codes", median(subsumes), "300 ns");
    let member = |pool: &Pool, at: usize| {
        let [set, code] = pool.get(at);
        black_box(terminology.has_member(set, URL, code).expect("the set is there"));
    };
    // Half of them true, in a set of these numbers.
    let mut questions = |shape: Shape, numbers: Range<u32>| {
        let pool = Pool::new(|at| {
            let number = random.u32(numbers.clone());
            [sets.url(shape, number), sets.code(shape, number, at.is_multiple_of(2), &mut random)]
        });
        // Sets are compiled at their first question, and one alone has been asked often then.
        (0..QUESTIONS).for_each(|at| member(&pool, at));
        pool
    };
    for shape in Shape::ALL {
        let pool = questions(shape, 0..SETS);
        let goal = if shape == Shape::IsA { "300 ns" } else { "" };
        told(&format!("in one of {SETS} sets: {}", shape.name()), median(|at| member(&pool, at)), goal);
    }
    let pages: Vec<_> = ["hier", "con num", "number 1", "12345", "hierarchy concept 99"]
        .map(|filter| (filter, page(&terminology, filter)))
        .into();
    for (filter, time) in pages {
        told(&format!("$expand, a page of 20: '{filter}'"), time, "5 ms");
    }
    let pool = questions(Shape::IsA, OFTEN..OFTEN + 1);
    told("in one set that is asked often: is-a", median(|at| member(&pool, at)), "200 ns");
}

/// The median of the time of a page of 20 of all concepts, filtered by text.
fn page(terminology: &Terminology, filter: &str) -> String {
    const ROUNDS: usize = 21;
    let set = format!(
        r#"{{"resourceType":"ValueSet","id":"whole","url":"urn:whole","status":"active","compose":{{"include":[{{"system":"{URL}"}}]}}}}"#
    );
    terminology.apply([Change::Put { kind: "ValueSet", id: "whole".to_owned(), bytes: set.into() }]);
    let query =
        Parameters::from_query(&format!("url=urn:whole&count=20&filter={}", filter.replace(' ', "+")));
    let mut times: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let started = Instant::now();
            let input = Input::from_query(&query);
            black_box(terminology.expand(Level::Type, input, "2026-01-01").expect("the set is there"));
            started.elapsed()
        })
        .collect();
    times.sort_unstable();
    format!("{:.2} ms", times[ROUNDS / 2].as_secs_f64() * 1e3)
}

/// Questions of two texts each, one behind the other in memory: that of a request has just been read when it is asked.
struct Pool {
    text: String,
    ends: Vec<usize>,
}

impl Pool {
    fn new(question: impl FnMut(usize) -> [String; 2]) -> Self {
        let mut pool = Self { text: String::new(), ends: vec![0] };
        for part in (0..QUESTIONS).flat_map(question) {
            pool.text.push_str(&part);
            pool.ends.push(pool.text.len());
        }
        pool
    }

    fn get(&self, at: usize) -> [&str; 2] {
        [2 * at, 2 * at + 1].map(|part| &self.text[self.ends[part]..self.ends[part + 1]])
    }
}

/// What one read costs where each tells where the next one is, in a column of about the index's size: questions about
/// concepts in random order are made of such reads.
fn floor(random: &mut fastrand::Rng) -> String {
    let mut next: Vec<u32> = (0..16 << 20).collect();
    // Sattolo's shuffle: one circle through all of them.
    for at in (1..next.len()).rev() {
        next.swap(at, random.usize(..at));
    }
    let here = std::cell::Cell::new(0_u32);
    median(|_| here.set(next[here.get() as usize]))
}

/// The program's other half: compiles a resource, saves it and tells what it took.
fn load(json: &str, saved: &str) {
    let started = Instant::now();
    let bytes = std::fs::read(json).expect("the file is there");
    let index = Index::from_resource(&bytes).expect("it is a code system");
    drop(bytes);
    told("compiled from FHIR JSON", ms(started.elapsed()), "4 s");
    told("resident at most meanwhile", format!("{} MiB", status_kib("VmHWM") / 1024), "400 MiB");
    index.save(BufWriter::new(std::fs::File::create(saved).expect("a file"))).expect("the disk takes it");
}

/// The program's third part: reads the index back and tells what that took.
fn read(saved: &str) {
    const MORE: u64 = 4;
    let path = std::path::Path::new(saved);
    let first = open(path);
    // What reading itself takes has been taken by the first one; of several more, what the allocator and the kernel
    // round up counts once.
    let (started, before) = (Instant::now(), status_kib("VmRSS"));
    let more: Vec<Index> = (0..MORE).map(|_| open(path)).collect();
    told("read back from the saved index", ms(started.elapsed() / MORE as u32), "200 ms");
    let bytes = (status_kib("VmRSS") - before) * 1024;
    let each = bytes as f64 / (MORE * first.concepts() as u64) as f64;
    told("memory of the index, a concept", format!("{each:.0} B"), "210 B");
    drop(more);
}

fn open(saved: &std::path::Path) -> Index {
    let file = std::fs::File::open(saved).expect("it was saved");
    Index::read(BufReader::new(file)).expect("it was saved whole")
}

/// A random ancestor, or the concept itself where it has none.
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

/// The median of the time of one question.
fn median(question: impl Fn(usize)) -> String {
    let mut times: Vec<Duration> = (0..QUESTIONS / AT_ONCE)
        .map(|round| {
            let started = Instant::now();
            (round * AT_ONCE..(round + 1) * AT_ONCE).for_each(&question);
            started.elapsed() / AT_ONCE as u32
        })
        .collect();
    times.sort_unstable();
    format!("{} ns", times[times.len() / 2].as_nanos())
}

fn ms(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

/// A figure of `/proc/self/status` (Linux).
fn status_kib(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}
