//! Readers of what comes from outside, fed with what nobody would write: good inputs, changed at random. None may
//! panic; that none hangs or fills the memory is what the bounds in the readers are for. cargo-fuzz, which looks for new
//! paths through the code and watches time and memory, runs the same targets (`../fuzz`).
//!
//! Each target makes 100,000 runs with a fixed seed; `TREFOIL_FUZZ_RUNS` says another number, and then the seed is a
//! new one that is told when a run fails.

mod targets;

use std::fs;

use fastrand::Rng;

/// Pieces that mean something to one of the readers.
const WORDS: &[&str] = &[
    "\"",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\\u0000",
    "\\ud800",
    "null",
    "1e999",
    "-1",
    "true",
    "valueCode",
    "valueCoding",
    "\t",
    "\n",
    "\r\n",
    "|",
    "\u{feff}",
    "116680003",
    "138875005",
    "900000000000011006",
    "99999999999999999999",
    "#",
    "<<",
    ">!",
    "^",
    "(",
    ")",
    "AND",
    "OR",
    "MINUS",
    "[0..*]",
    "R",
    "=",
    "!=",
    "#5",
    "*",
    ".",
    "/*",
    "*/",
    "{{",
    "(?:",
    "a{1000}",
    "(a*)*",
    "\\p{L}",
    "[^",
    "$",
    "é",
    "\u{10ffff}",
    "url: x",
    "code",
    "parent",
];

/// A text, changed in one to four places.
fn changed(random: &mut Rng, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut text = seeds[random.usize(..seeds.len())].clone();
    for _ in 0..random.u8(1..=4) {
        let at = random.usize(..=text.len());
        let end = text.len().min(at + random.usize(..16));
        match random.u8(..6) {
            0 => drop(text.drain(at..end)),
            1 if at < text.len() => text[at] ^= 1 << random.u8(..8),
            2 => {
                let again = text[at..end].to_vec();
                text.splice(at..at, again);
            }
            3 => {
                let other = &seeds[random.usize(..seeds.len())];
                let from = random.usize(..=other.len());
                text.truncate(at);
                text.extend_from_slice(&other[from..]);
            }
            _ => drop(text.splice(at..at, WORDS[random.usize(..WORDS.len())].bytes())),
        }
    }
    text
}

fn fuzz(name: &str, target: fn(&[u8])) {
    let folder = fs::read_dir(targets::seeds(name)).expect("the seeds are there");
    let mut paths: Vec<_> = folder.map(|entry| entry.expect("a file").path()).collect();
    paths.sort();
    let seeds: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).expect("a seed")).collect();
    let asked = std::env::var("TREFOIL_FUZZ_RUNS").ok().and_then(|runs| runs.parse::<u64>().ok());
    let seed = if asked.is_some() { fastrand::u64(..) } else { 7 };
    let mut random = Rng::with_seed(seed);
    for run in 0..asked.unwrap_or(100_000) {
        let text = changed(&mut random, &seeds);
        let tried = std::panic::catch_unwind(|| target(&text));
        assert!(tried.is_ok(), "run {run} of seed {seed} with {:?}", String::from_utf8_lossy(&text));
    }
}

#[test]
fn parameters() {
    fuzz("parameters", targets::parameters);
}

#[test]
fn rf2() {
    fuzz("rf2", targets::rf2);
}

#[test]
fn csv() {
    fuzz("csv", targets::csv);
}

#[test]
fn constraints() {
    fuzz("constraints", targets::constraints);
}
