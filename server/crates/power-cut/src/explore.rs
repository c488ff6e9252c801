//! Writes the states after a power cut to folders, checks them on all cores, and reports failures.
//!
//! States with equal content and equal acknowledgements are checked once. If a state fails, the recording is
//! saved, and the report contains the command that checks only this state.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::disk::DiskImage;
use crate::model::{DurabilityModel, NameRule};
use crate::recording::{Operation, Recording, SAVED_TRACE};
use crate::states::{self, CrashState, Exploration, SEED, STATES};

/// Environment variable with the number of the only state to check.
const STATE: &str = "TREFOIL_POWER_CUT_STATE";
/// Number of failed states after which the exploration ends.
const MAX_FAILURES: usize = 5;
/// Number of states that wait for a thread that checks them.
const WAITING: usize = 8;

/// A state in which the check failed.
#[derive(Debug)]
pub struct StateFailure {
    /// Number of the state.
    pub index: usize,
    /// The operations that are not durable in the state.
    pub description: String,
    /// The error of the check.
    pub error: String,
}

/// Result of an exploration.
#[derive(Debug)]
pub struct StateReport {
    /// Number of enumerated states.
    pub states: usize,
    /// Number of states with different content or acknowledgements, each of which was checked.
    pub distinct: usize,
    /// Number of recorded operations.
    pub operations: usize,
    /// Number of recorded fsyncs.
    pub syncs: usize,
    /// The states in which the check failed; at most a few more than five.
    pub failures: Vec<StateFailure>,
    /// Duration of the exploration.
    pub took: Duration,
    seed: u64,
}

impl fmt::Display for StateReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, distinct, operations, syncs, failures, took, seed } = self;
        let seconds = took.as_secs_f64();
        write!(
            f,
            "{states} states after a power cut, {distinct} of them distinct, from {operations} operations and {syncs} \
             fsyncs, seed {seed}: {} failed; {seconds:.1} s, {:.0} states/s",
            failures.len(),
            *states as f64 / seconds
        )?;
        for failure in failures {
            write!(f, "\nstate {}: {}\n{}", failure.index, failure.error, failure.description)?;
        }
        Ok(())
    }
}

impl StateReport {
    /// Prints the figures.
    ///
    /// # Panics
    /// Panics if a state failed, after saving the recording. The message contains the command that checks
    /// only the first failed state.
    pub fn expect_no_failure(&self, recording: &Recording, test: &str) {
        println!("{self}");
        let Some(first) = self.failures.first() else { return };
        let path = std::env::temp_dir().join(format!("power-cut-{}.trace", std::process::id()));
        fs::write(&path, &recording.trace).expect("the recording can be saved");
        panic!(
            "{self}\ncheck only this state: {SAVED_TRACE}={} {STATES}={} {SEED}={} {STATE}={} cargo test -p {} --test it -- {test}",
            path.display(),
            self.states,
            self.seed,
            first.index,
            std::env::var("CARGO_PKG_NAME").unwrap_or_default()
        );
    }
}

struct Work {
    index: usize,
    state: CrashState,
    image: DiskImage,
    /// Number of marks before the power cut.
    marks: usize,
}

/// Checks the states of a recording. `check` receives a folder with the content of the disk, which it may
/// change, and the marks that precede the power cut. It is called from several threads.
///
/// # Panics
/// Panics if the states cannot be written to a folder.
pub fn explore(
    recording: &Recording,
    exploration: Exploration,
    check: impl Fn(&Path, &[&str]) -> Result<(), String> + Sync,
) -> StateReport {
    let started = Instant::now();
    let Exploration { rule, seed, .. } = exploration;
    let plan = states::plan(recording, exploration);
    // A failure names its state, which this variable repeats alone.
    let only = std::env::var(STATE).ok().and_then(|index| index.parse::<usize>().ok());
    let marks: Vec<&str> = recording.operations.iter().filter_map(mark_of).collect();
    let workers = thread::available_parallelism().map_or(2, usize::from);
    let (sender, queue) = mpsc::sync_channel::<Work>(WAITING);
    let (queue, failures, ended) = (Mutex::new(queue), Mutex::new(Vec::new()), AtomicBool::new(false));
    let mut hashes = HashSet::new();
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let dir = folder();
                let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                while let Ok(work) = next() {
                    if let Err(error) = check_state(&work, dir.path(), &marks, &check, only.is_some()) {
                        let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
                        let description = describe(recording, rule, work.state);
                        failures.push(StateFailure { index: work.index, description, error });
                        ended.store(failures.len() >= MAX_FAILURES, Ordering::Relaxed);
                    }
                }
            });
        }
        let mut model = DurabilityModel::new(recording, rule);
        let (mut position, mut before) = (0, 0);
        for (index, state) in plan.iter().copied().enumerate() {
            if ended.load(Ordering::Relaxed) {
                break;
            }
            let passed = &recording.operations[position..state.position];
            before += passed.iter().filter_map(mark_of).count();
            position = state.position;
            model.advance(position);
            if only.is_some_and(|only| only != index) {
                continue;
            }
            let image = states::image(&model, state.choice);
            // Many states have the same files; what was acknowledged before them can differ.
            if hashes.insert((image.digest(), before)) {
                let work = Work { index, state, image, marks: before };
                sender.send(work).expect("the threads run until the sender is dropped");
            }
        }
        drop(sender);
    });
    let mut failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    failures.sort_by_key(|failure| failure.index);
    StateReport {
        states: plan.len(),
        distinct: hashes.len(),
        operations: recording.operations.len(),
        syncs: recording.syncs().values().sum(),
        failures,
        took: started.elapsed(),
        seed,
    }
}

/// Records a session of `test` that begins after a power cut: on the content of a random state, and after the
/// acknowledgements that precede it. Returns `None` if strace is not available.
///
/// # Errors
/// A description if the session fails or its trace cannot be modelled.
pub fn record_recovery(
    recording: &Recording,
    exploration: Exploration,
    test: &str,
    session: usize,
) -> Result<Option<Recording>, String> {
    let plan = states::plan(recording, exploration);
    let state = plan[fastrand::Rng::with_seed(exploration.seed).usize(..plan.len())];
    let mut model = DurabilityModel::new(recording, exploration.rule);
    model.advance(state.position);
    let marks: Vec<&str> = recording.operations[..state.position].iter().filter_map(mark_of).collect();
    let image = states::image(&model, state.choice);
    Recording::of_sessions(test, session..session + 1, &image, &marks)
}

fn describe(recording: &Recording, rule: NameRule, state: CrashState) -> String {
    let mut model = DurabilityModel::new(recording, rule);
    model.advance(state.position);
    format!("position {}, {}", state.position, states::describe(&model, state.choice))
}

fn mark_of(operation: &Operation) -> Option<&str> {
    match operation {
        Operation::Mark(text) => Some(text),
        _ => None,
    }
}

/// A folder in memory, if there is one.
fn folder() -> TempDir {
    let memory = PathBuf::from("/dev/shm");
    let dir = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
    dir.expect("a temporary folder can be made")
}

fn check_state(
    work: &Work,
    dir: &Path,
    marks: &[&str],
    check: &(impl Fn(&Path, &[&str]) -> Result<(), String> + Sync),
    keep: bool,
) -> Result<(), String> {
    let root = dir.join("root");
    work.image.write_to(&root).map_err(|error| format!("the state cannot be written: {error}"))?;
    if keep {
        let copy = std::env::temp_dir().join(format!("power-cut-state-{}", work.index));
        drop(fs::remove_dir_all(&copy));
        work.image.write_to(&copy).map_err(|error| format!("the state cannot be copied: {error}"))?;
        println!("state {} is in {}", work.index, copy.display());
    }
    let result = catch_unwind(AssertUnwindSafe(|| check(&root, &marks[..work.marks])));
    fs::remove_dir_all(&root).map_err(|error| format!("the state cannot be removed: {error}"))?;
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}
