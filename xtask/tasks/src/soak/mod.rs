//! `cargo xtask soak`: the long checks. Fuzz targets with many runs, from seeds and also guided by coverage
//! (cargo-fuzz), the terminology benchmark, expression constraints and searches compared with naive
//! evaluators, a server that is killed many times, nodes that fail, an hour of simulations, the states after
//! power cuts, hostile traffic, the files of a release on all platforms, the package in a new Debian system,
//! nodes that are upgraded under load, and the conformance suite against planted faults, faults on the wire,
//! and the Helios terminology server. The duration of each check is printed.

mod rolling_upgrade;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow, bail};

use crate::bench::bench;
use crate::dist::{self, trial};
use crate::helios;
use crate::mutants;
use xtask::command_line::{DistArgs, MutantArgs, SoakArgs};
use xtask::workspace::{cargo, check, root, target_dir};

/// Arguments that select the test programs with the fuzz targets, and the prefix of the targets in the list
/// of tests.
const FUZZ: [&str; 6] = ["-p", "trefoil-terminology", "-p", "trefoil-terminology-import", "--test", "it"];
const TARGETS: &str = "fuzz::";
/// Folders of the cargo-fuzz versions of the targets.
const COVERAGE_FOLDERS: [&str; 2] =
    ["server/crates/terminology/fuzz", "server/crates/terminology-import/fuzz"];
/// Prefix of the names of the cargo-fuzz targets.
const COVERAGE: &str = "coverage::";
/// Name of the benchmark in `--only`.
const BENCHMARK: &str = "terminology";
/// Name of the random expression constraints in `--only`.
const CONSTRAINTS: &str = "expression-constraints";
/// Number of random expression constraints.
const CONSTRAINT_CASES: &str = "2000";
/// Name of the journey with kills in `--only`.
const KILLS: &str = "kills";
/// Name of the nodes that fail in `--only`, the seeds, and the number of rounds of faults for each.
const NODES: &str = "nodes";
const NODE_SEEDS: std::ops::RangeInclusive<u32> = 1..=5;
const NODE_ROUNDS: &str = "40";
/// Duration in seconds for which their database is stopped.
const OUTAGE_SECONDS: &str = "30";
/// Name of the states after a power cut in `--only`. For each crate with such a test, the number of states.
const POWER_CUTS: &str = "power-cuts";
const POWER_CUT_STATES: [(&str, &str); 4] = [
    ("trefoil-store", "300000"),
    ("trefoil-bulk", "100000"),
    ("trefoil-resources", "20000"),
    ("trefoil-server", "10000"),
];
/// Name of the simulation in `--only`, its duration, and the number of seeds after which the time is looked
/// at.
const SIMULATION: &str = "simulation";
const SIMULATION_TIME: Duration = Duration::from_secs(3_600);
const SEEDS_AT_ONCE: u64 = 50;
/// Name of the hostile traffic in `--only`.
const ATTACKS: &str = "attacks";
/// Name of the drills, and the duration in seconds of the attack of a stranger.
const DRILLS: &str = "drills";
const DRILL_SECONDS: &str = "60";
/// Name of the comparison of searches with a naive evaluator, and the number of its random cases.
const SEARCHES: &str = "searches";
const SEARCH_CASES: &str = "2000";
/// Name of the increments of exports that are followed and mirrored, and for each store engine the number of
/// histories.
const INCREMENTS: &str = "increments";
const HISTORIES: [(&str, &str); 3] = [
    ("TREFOIL_HISTORIES_MEMORY", "10000"),
    ("TREFOIL_HISTORIES_FILE", "1000"),
    ("TREFOIL_HISTORIES_POSTGRES", "300"),
];
/// Name of the conformance suite against servers with planted faults.
const MUTANTS: &str = "mutants";
/// Name of the conformance suite against the servers of Helios.
const HELIOS: &str = "helios";
/// Name of the suite against a proxy that changes answers.
const WIRE_FAULTS: &str = "wire-faults";
/// Name of the files of a release in `--only`: built for all platforms, installed, emulated.
const RELEASE: &str = "release";
/// Name of the package in a new Debian system.
const PACKAGE: &str = "package";
/// Name of the nodes that are upgraded from an earlier commit.
const ROLLING_UPGRADE: &str = "rolling-upgrade";

/// Runs all checks one after another. A failure does not stop the following checks.
pub fn run(args: &SoakArgs) -> Result<()> {
    let is_chosen = |name: &str| args.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let mut names: Vec<String> = targets()?.into_iter().filter(|name| is_chosen(name)).collect();
    names.extend(covered()?.into_iter().filter(|name| is_chosen(name)));
    names.extend(
        [
            BENCHMARK,
            CONSTRAINTS,
            KILLS,
            NODES,
            SIMULATION,
            POWER_CUTS,
            ATTACKS,
            DRILLS,
            SEARCHES,
            INCREMENTS,
            RELEASE,
            PACKAGE,
            ROLLING_UPGRADE,
            MUTANTS,
            WIRE_FAULTS,
            HELIOS,
        ]
        .into_iter()
        .filter(|name| is_chosen(name))
        .map(str::to_owned),
    );
    if names.is_empty() {
        bail!("no check has a name that contains the text in --only; --list shows all names");
    }
    let mut failed = Vec::new();
    for name in names {
        if args.list {
            println!("{name}");
            continue;
        }
        if name.starts_with(COVERAGE) && !has_cargo_fuzz() {
            println!("{name:<32} left out: cargo-fuzz is not installed (cargo install cargo-fuzz)");
            continue;
        }
        let started = Instant::now();
        let helios = (name == HELIOS).then(build_helios);
        if let Some(Err(error)) = &helios {
            println!("{name:<32} left out: {error:#}");
            continue;
        }
        let ended = if let Some(target) = name.strip_prefix(COVERAGE) {
            cover(target, args.runs)
        } else if name == BENCHMARK {
            check(&mut bench("trefoil-terminology", "index"))
        } else if name == CONSTRAINTS {
            let mut command = cargo();
            command.args(["test", "--quiet", "-p", "trefoil-terminology", "--test", "it", "ecl::"]);
            check(command.env("TREFOIL_ECL_CASES", CONSTRAINT_CASES))
        } else if name == KILLS {
            let mut command = cargo();
            command.args(["test", "--quiet", "--release", "-p", "trefoil-server", "--test", "it", "kills::"]);
            check(command.env("TREFOIL_KILLS", args.kills.to_string()))
        } else if name == NODES {
            NODE_SEEDS.into_iter().try_for_each(node_faults).and_then(|()| outage())
        } else if name == SIMULATION {
            simulate()
        } else if name == POWER_CUTS {
            POWER_CUT_STATES.into_iter().try_for_each(|(package, states)| power_cuts(package, states))
        } else if name == ATTACKS {
            let mut command = cargo();
            command.args(["test", "--release", "-p", "trefoil-server", "--test", "it", "attacks::"]);
            // Attacks run one at a time, so that they do not influence the printed times of each other.
            command.args(["--", "--nocapture", "--test-threads=1"]);
            let mut store = cargo();
            store.args([
                "test",
                "--release",
                "-p",
                "trefoil-store",
                "--test",
                "it",
                "damage::",
                "--",
                "--nocapture",
            ]);
            check(command.env("TREFOIL_ATTACKS", "full"))
                .and_then(|()| check(store.env("TREFOIL_ATTACKS", "full")))
        } else if name == DRILLS {
            let mut command = cargo();
            command.args(["test", "--release", "-p", "trefoil-server", "--test", "it", "drills::"]);
            command.args(["--", "--nocapture", "--test-threads=1"]);
            check(command.env("TREFOIL_DRILL_SECONDS", DRILL_SECONDS))
        } else if name == SEARCHES {
            let mut command = cargo();
            command.args([
                "test",
                "--quiet",
                "--release",
                "-p",
                "trefoil-resources",
                "--test",
                "it",
                "searches::",
            ]);
            check(command.env("TREFOIL_CASES", SEARCH_CASES))
        } else if name == INCREMENTS {
            let mut command = cargo();
            command.args(["test", "--quiet", "--release", "-p", "trefoil-bulk", "--test", "it"]);
            check(command.args(["--", "increments::", "mirror::"]).envs(HISTORIES))
        } else if let Some(Ok(programs)) = &helios {
            let mut command = cargo();
            command.args([
                "test",
                "-p",
                "trefoil-conformance",
                "--test",
                "it",
                "helios",
                "--",
                "--nocapture",
            ]);
            check(command.envs(programs.iter().map(|(variable, program)| (variable, program))))
        } else if name == WIRE_FAULTS {
            let mut command = cargo();
            command.args(["test", "--quiet", "-p", "trefoil-conformance", "--test", "it", "wire_faults::"]);
            check(command.args(["--", "--nocapture"]).env("TREFOIL_WIRE_FAULTS", "all"))
        } else if name == RELEASE {
            release()
        } else if name == PACKAGE {
            trial::run()
        } else if name == ROLLING_UPGRADE {
            rolling_upgrade::run()
        } else if name == MUTANTS {
            mutants::run(&MutantArgs::for_all())
        } else {
            let mut command = fuzz();
            command.args(["--exact", &name]).env("TREFOIL_FUZZ_RUNS", args.runs.to_string());
            check(&mut command)
        };
        if let Err(error) = &ended {
            println!("{name}: {error:#}");
        }
        let held = if ended.is_ok() { "held" } else { "FAILED" };
        println!("{name:<32} {held} after {} s", started.elapsed().as_secs());
        failed.extend(ended.is_err().then_some(name));
    }
    if !failed.is_empty() {
        bail!("{} failed", failed.join(", "));
    }
    Ok(())
}

/// Builds the files of a release for all platforms, and uses them.
fn release() -> Result<()> {
    dist::run(&DistArgs { programs: None, releases: None })?;
    let mut left_out = dist::installs::run()?;
    left_out.extend(dist::emulated::run()?);
    for missing in left_out {
        println!("left out: {missing}");
    }
    Ok(())
}

/// Runs three nodes with the faults of one seed, and prints the figures.
fn node_faults(seed: u32) -> Result<()> {
    let mut command = nodes("node_faults::nothing_is_accepted");
    command.env("TREFOIL_NODE_FAULT_SEED", seed.to_string());
    check(command.env("TREFOIL_NODE_FAULTS", NODE_ROUNDS))
}

/// Stops the database of three nodes under load, and prints the figures.
fn outage() -> Result<()> {
    check(nodes("node_faults::outage").env("TREFOIL_OUTAGE_SECONDS", OUTAGE_SECONDS))
}

/// The command that runs a test of several nodes.
fn nodes(filter: &str) -> std::process::Command {
    let mut command = cargo();
    command.args(["test", "--release", "-p", "trefoil-server", "--test", "it", filter, "--", "--nocapture"]);
    command
}

/// Runs simulations for an hour, with seeds that depend on the time.
fn simulate() -> Result<()> {
    let mut command = cargo();
    check(command.args(["build", "--release", "--quiet", "-p", "trefoil-simulation"]))?;
    let program = target_dir().join("release/trefoil-simulation");
    let started = Instant::now();
    let first = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() * 1_000;
    let processes = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..processes)
            .map(|process| {
                let program = &program;
                scope.spawn(move || -> Result<u64> {
                    let mut seeds = 0;
                    while started.elapsed() < SIMULATION_TIME {
                        let seed = first + process * 1_000_000_000 + seeds;
                        let mut command = Command::new(program);
                        command.args(["--seed", &seed.to_string(), "--count", &SEEDS_AT_ONCE.to_string()]);
                        check(command.env("TREFOIL_LOG", "off").stdout(Stdio::inherit()))?;
                        seeds += SEEDS_AT_ONCE;
                    }
                    Ok(seeds)
                })
            })
            .collect();
        let mut seeds = 0;
        for run in runs {
            seeds += run.join().map_err(|_| anyhow!("a thread panicked"))??;
        }
        println!("{seeds} seeds");
        Ok(())
    })
}

/// Checks the states after a power cut of one crate, and prints their number.
fn power_cuts(package: &str, states: &str) -> Result<()> {
    let mut command = cargo();
    command.args(["test", "--release", "-p", package, "--test", "it", "power_cut::"]);
    // The tests run one at a time, because each of them uses all cores.
    command.args(["--", "--nocapture", "--test-threads=1"]);
    check(command.env("TREFOIL_POWER_CUT_STATES", states))
}

fn fuzz() -> std::process::Command {
    let mut command = cargo();
    command.args(["test", "--quiet", "--release"]).args(FUZZ).arg("--");
    command
}

/// The names of the fuzz targets, which the test program lists.
fn targets() -> Result<Vec<String>> {
    let output = fuzz().args(["--list", TARGETS]).output().context("failed to start cargo")?;
    if !output.status.success() {
        bail!("the fuzz targets cannot be built:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let listed = String::from_utf8_lossy(&output.stdout);
    Ok(listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// The names of the cargo-fuzz targets.
fn covered() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for folder in COVERAGE_FOLDERS {
        let folder = root().join(folder).join("targets");
        let files =
            std::fs::read_dir(&folder).with_context(|| format!("failed to read {}", folder.display()))?;
        for file in files {
            if let Some(name) = file?.file_name().to_str().and_then(|name| name.strip_suffix(".rs")) {
                names.push(format!("{COVERAGE}{name}"));
            }
        }
    }
    names.sort();
    Ok(names)
}

/// The programs of the servers of Helios, with the variables that name them to the tests.
fn build_helios() -> Result<Vec<(&'static str, PathBuf)>> {
    let servers = [helios::TERMINOLOGY, helios::FHIR];
    servers.into_iter().map(|server| Ok((server.variable, server.build()?))).collect()
}

fn has_cargo_fuzz() -> bool {
    let mut command = cargo();
    command.args(["fuzz", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Runs a target of cargo-fuzz. Inputs that take more than one second or 1 GiB are failures. The corpus
/// remains in the target folder for the next run. Because no sanitizer is used, the stable compiler is
/// sufficient.
fn cover(target: &str, runs: u64) -> Result<()> {
    let corpus = root().join("target/fuzz-corpus").join(target);
    std::fs::create_dir_all(&corpus)?;
    let holds = |folder: &&str| root().join(folder).join("targets").join(format!("{target}.rs")).is_file();
    let folder = COVERAGE_FOLDERS.into_iter().find(holds).context("no folder contains this fuzz target")?;
    let mut command = cargo();
    command.current_dir(root()).args(["fuzz", "run", "--sanitizer", "none", "--fuzz-dir", folder]);
    command.args(["--target-dir", "target/fuzz", target]).arg(corpus);
    command.arg(root().join(folder).join("seeds").join(target));
    command.args(["--", "-timeout=1", "-rss_limit_mb=1024", "-print_final_stats=1"]);
    check(command.arg(format!("-runs={runs}")))
}
