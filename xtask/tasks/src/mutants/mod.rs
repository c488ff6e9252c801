//! `cargo xtask mutants`: plants the faults of `conformance/mutants` in a copy of the server, one at a time,
//! and checks that the conformance suite finds each of them, or a test if the fault shows only with several
//! nodes.
//!
//! | module | contents |
//! |---|---|
//! | [`table`] | the faults, read from the tables and checked |
//! | [`plant`] | the copy of the sources with all faults, and its build |
//! | [`trial`] | runs of the suite and of tests with one fault |
//! | [`document`] | the list of faults in the documentation |

pub mod document;
mod plant;
pub mod table;
mod trial;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Result, bail};
use xtask::command_line::MutantArgs;

use table::{Mutant, RustTest};
use trial::{Discovery, Suite};

/// Runs the selected faults. Returns an error if a fault is not found, or if an entry of the tables is out of
/// date.
pub fn run(args: &MutantArgs) -> Result<()> {
    let all = table::load()?;
    if args.document {
        return document::write(&all);
    }
    let selected = select(&all, args);
    if selected.is_empty() {
        bail!("no fault has a name that contains the text; --list shows all names");
    }
    if args.list {
        for mutant in selected {
            let hidden =
                mutant.hidden.as_ref().map_or(String::new(), |reason| format!(" (hidden: {reason})"));
            println!("{:<44} {}{hidden}", mutant.name, mutant.gist);
        }
        return Ok(());
    }
    let started = Instant::now();
    let tests: BTreeSet<_> = selected.iter().filter_map(|mutant| mutant.test.as_ref()).collect();
    let suite = Suite { programs: plant::build_all(&all, &tests)?, black_box: args.black_box };
    println!("built {} faults in {} s", all.len(), started.elapsed().as_secs());
    run_control(&suite, &selected, &tests, selected.len() == all.len())?;
    let results = run_all(&suite, &selected, args.jobs);
    report(&selected, &results, args.black_box, started)
}

/// Checks that all cases and tests that are about to run pass without a fault.
fn run_control(
    suite: &Suite,
    selected: &[&Mutant],
    tests: &BTreeSet<&RustTest>,
    with_all_cases: bool,
) -> Result<()> {
    let rows: Vec<String> = match with_all_cases {
        true => Vec::new(),
        false => selected.iter().flat_map(|mutant| mutant.rows.clone()).collect(),
    };
    let mut failures = Vec::new();
    if with_all_cases || !rows.is_empty() {
        failures.push(suite.run("", &rows)?);
    }
    for test in tests.iter().filter(|_| !suite.black_box) {
        failures.push(suite.run_test("", test)?);
    }
    for discovery in failures {
        if let Discovery::By { case, differences } = discovery {
            bail!("the server without a fault fails {case}: {differences}");
        }
    }
    Ok(())
}

/// The faults that the arguments select. A sample is the same for the same seed.
fn select<'a>(all: &'a [Mutant], args: &MutantArgs) -> Vec<&'a Mutant> {
    let is_selected = |mutant: &&Mutant| {
        args.filter.is_empty() || args.filter.iter().any(|text| mutant.name.contains(text.as_str()))
    };
    let mut selected: Vec<&Mutant> = all.iter().filter(is_selected).collect();
    if let Some(size) = args.sample {
        selected.sort_by_key(|mutant| shuffle_key(&mutant.name, args.seed));
        selected.truncate(size);
    }
    selected
}

/// The FNV-1a hash of a seed and a name, by which a sample is sorted.
fn shuffle_key(name: &str, seed: u64) -> u64 {
    let bytes = seed.to_le_bytes().into_iter().chain(name.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Runs the faults on several threads, and prints a line for each.
fn run_all(
    suite: &Suite,
    selected: &[&Mutant],
    jobs: Option<usize>,
) -> BTreeMap<String, Result<Discovery, String>> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let queue = Mutex::new(selected.iter());
    let results = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs.unwrap_or(processors).max(1) {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("no thread panics while it holds the lock").next();
                    let Some(mutant) = next else { break };
                    let started = Instant::now();
                    let result = suite.find(mutant).map_err(|error| format!("{error:#}"));
                    println!(
                        "{:<44} {:>5.1} s  {}",
                        mutant.name,
                        started.elapsed().as_secs_f32(),
                        match &result {
                            Ok(discovery) => discovery.to_string(),
                            Err(error) => format!("ERROR {error}"),
                        }
                    );
                    results
                        .lock()
                        .expect("no thread panics while it holds the lock")
                        .insert(mutant.name.clone(), result);
                }
            });
        }
    });
    results.into_inner().expect("no thread panics while it holds the lock")
}

/// Prints the score, the faults that were not found and the hidden ones.
fn report(
    selected: &[&Mutant],
    results: &BTreeMap<String, Result<Discovery, String>>,
    black_box: bool,
    started: Instant,
) -> Result<()> {
    let is_discovered = |mutant: &Mutant| matches!(results.get(&mutant.name), Some(Ok(Discovery::By { .. })));
    let hidden: Vec<_> = selected.iter().filter(|mutant| mutant.hidden.is_some()).collect();
    let (mut faults, mut elsewhere) = (Vec::new(), Vec::new());
    for mutant in selected {
        let name = &mutant.name;
        match results.get(name) {
            Some(Ok(Discovery::By { case, .. })) => {
                // A note that a fault cannot be seen from outside must not outlive the reason.
                if black_box && mutant.hidden.is_some() {
                    faults.push(format!("{name}: 'hidden' is out of date, because {case} finds it"));
                }
                if !mutant.is_found_by(case) {
                    elsewhere.push(format!("{name}: found by {case} instead of its rows"));
                }
            }
            Some(Ok(Discovery::None)) => {
                if !(black_box && mutant.hidden.is_some()) {
                    faults.push(format!("{name}: not found. {}", mutant.gist));
                }
            }
            Some(Err(error)) => faults.push(format!("{name}: {error}")),
            None => faults.push(format!("{name}: was not run")),
        }
    }
    let share = |count: usize| format!("{count} of {} found", selected.len());
    let total = selected.iter().filter(|mutant| is_discovered(mutant)).count();
    println!();
    println!("{} run: {}", if black_box { "black-box" } else { "local" }, share(total));
    if !black_box {
        println!("black-box run, as the tables state: {}", share(selected.len() - hidden.len()));
    }
    for mutant in &hidden {
        println!("hidden from a black-box run: {}: {}", mutant.name, mutant.hidden.as_deref().unwrap_or(""));
    }
    elsewhere.iter().for_each(|line| println!("note: {line}"));
    faults.iter().for_each(|line| println!("FAILED {line}"));
    println!("took {} s", started.elapsed().as_secs());
    if faults.is_empty() { Ok(()) } else { bail!("{} faults of the server or the tables", faults.len()) }
}
