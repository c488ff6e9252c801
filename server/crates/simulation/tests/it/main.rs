//! Runs of the simulation program: many seeds satisfy all rules, and a seed gives the same log each time.
//!
//! `TREFOIL_SIMULATION_SEEDS` sets the number of seeds. The tests start the program and do not link the
//! simulation, because it replaces clocks and random numbers of its whole process.

use std::process::{Child, Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_trefoil-simulation");

fn start(arguments: &[&str]) -> Child {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).env("TREFOIL_LOG", "off").stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the program was built")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_seed_gives_the_same_log() {
    // Five at the same time, because processes also meet outside of the simulation, in the folder of
    // temporary files.
    let runs = [(); 5].map(|()| start(&["--seed", "3", "--log"]));
    let [first, others @ ..] = runs.map(|run| run.wait_with_output().unwrap());
    assert!(first.status.success(), "{}", text(&first));
    let first = text(&first);
    let lines = first.lines().count();
    assert!(lines > 500, "the log has only {lines} lines");
    for other in others.map(|other| text(&other)) {
        let differs = std::iter::zip(first.lines(), other.lines()).position(|(one, other)| one != other);
        assert_eq!(differs, None, "the first line that differs");
        assert_eq!(first, other);
    }
    // As one of several seeds, too.
    let both = start(&["--seed", "2", "--count", "2", "--log"]).wait_with_output().unwrap();
    assert!(text(&both).ends_with(&first.as_str()), "a seed depends on the seed before it");
}

/// Seeds of the test; `cargo xtask ci` runs those after them.
const SEEDS: u64 = 6;

#[test]
fn all_seeds_satisfy_the_rules() {
    let seeds = std::env::var("TREFOIL_SIMULATION_SEEDS").ok().and_then(|text| text.parse().ok());
    let seeds: u64 = seeds.unwrap_or(SEEDS);
    // One process for each processor, because a process runs one simulation at a time.
    let processes = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let each = seeds.div_ceil(processes);
    let runs: Vec<_> = (0..processes)
        .map(|part| start(&["--seed", &(1 + part * each).to_string(), "--count", &each.to_string()]))
        .collect();
    let mut failed = false;
    for run in runs {
        let output = run.wait_with_output().unwrap();
        print!("{}{}", text(&output), String::from_utf8_lossy(&output.stderr));
        failed |= !output.status.success();
    }
    assert!(!failed, "a simulation broke a rule; the output names its seed");
}
