//! `cargo xtask soak`: the long checks. Fuzz targets with many runs, from seeds and also guided by coverage
//! (cargo-fuzz), the terminology benchmark, expression constraints and searches compared with naive
//! evaluators, a server that is killed many times, nodes and databases that fail, an hour of simulations, the
//! states after power cuts, hostile traffic, the files of a release on all platforms, the package in a new
//! Debian system, nodes that are upgraded under load, and the conformance suite against planted faults,
//! faults on the wire, and the Helios terminology server. The duration of each check is printed.

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
/// Number of random expression constraints.
const CONSTRAINT_CASES: &str = "2000";
/// Seeds of the nodes that fail, and the number of rounds of faults for each.
const NODE_SEEDS: std::ops::RangeInclusive<u32> = 1..=5;
const NODE_ROUNDS: &str = "40";
/// Duration in seconds for which their database is stopped.
const OUTAGE_SECONDS: &str = "30";
/// Number of failovers of a database with two hosts.
const FAILOVERS: &str = "20";
/// Number of states after a power cut, for each crate with such a test.
const POWER_CUT_STATES: [(&str, &str); 4] = [
    ("trefoil-store", "300000"),
    ("trefoil-bulk", "100000"),
    ("trefoil-resources", "20000"),
    ("trefoil-server", "10000"),
];
/// Duration of the simulation, and the number of seeds after which the time is looked at.
const SIMULATION_TIME: Duration = Duration::from_secs(3_600);
const SEEDS_AT_ONCE: u64 = 50;
/// Duration in seconds of the attack of a stranger.
const DRILL_SECONDS: &str = "60";
/// Number of random cases of the searches.
const SEARCH_CASES: &str = "2000";
/// Number of histories of increments for each store engine.
const HISTORIES: [(&str, &str); 3] = [
    ("TREFOIL_HISTORIES_MEMORY", "10000"),
    ("TREFOIL_HISTORIES_FILE", "1000"),
    ("TREFOIL_HISTORIES_POSTGRES", "300"),
];

/// A check: its name in `--only`, and its program.
type NamedCheck = (&'static str, fn(&SoakArgs) -> Result<()>);

/// The checks besides the fuzz targets.
const CHECKS: &[NamedCheck] = &[
    ("terminology", |_| check(&mut bench("trefoil-terminology", "index"))),
    ("expression-constraints", |_| {
        let mut tests = quiet_tests("trefoil-terminology", &["ecl::"]);
        check(tests.env("TREFOIL_ECL_CASES", CONSTRAINT_CASES))
    }),
    ("kills", |args| {
        check(quiet_tests("trefoil-server", &["kills::"]).env("TREFOIL_KILLS", args.kills.to_string()))
    }),
    ("nodes", |_| NODE_SEEDS.into_iter().try_for_each(node_faults).and_then(|()| outage())),
    ("failovers", |_| {
        check(printed_tests("trefoil-server", "failover::").env("TREFOIL_FAILOVERS", FAILOVERS))
    }),
    ("simulation", |_| simulate()),
    ("power-cuts", |_| {
        POWER_CUT_STATES.into_iter().try_for_each(|(package, states)| power_cuts(package, states))
    }),
    ("attacks", |_| {
        // One at a time, so that they do not influence the printed times of each other.
        let mut server = printed_tests("trefoil-server", "attacks::");
        check(server.arg("--test-threads=1").env("TREFOIL_ATTACKS", "full"))?;
        check(printed_tests("trefoil-store", "damage::").env("TREFOIL_ATTACKS", "full"))
    }),
    ("drills", |_| {
        let mut tests = printed_tests("trefoil-server", "drills::");
        check(tests.arg("--test-threads=1").env("TREFOIL_DRILL_SECONDS", DRILL_SECONDS))
    }),
    ("searches", |_| {
        check(quiet_tests("trefoil-resources", &["searches::"]).env("TREFOIL_CASES", SEARCH_CASES))
    }),
    ("increments", |_| check(quiet_tests("trefoil-bulk", &["increments::", "mirror::"]).envs(HISTORIES))),
    ("release", |_| release()),
    ("package", |_| trial::run()),
    ("package-systemd", |_| trial::run_under_systemd()),
    ("rolling-upgrade", |_| rolling_upgrade::run()),
    ("mutants", |_| mutants::run(&MutantArgs::for_all())),
    ("wire-faults", |_| {
        let mut command = cargo();
        command.args(["test", "--quiet", "-p", "trefoil-conformance", "--test", "it", "wire_faults::"]);
        check(command.args(["--", "--nocapture"]).env("TREFOIL_WIRE_FAULTS", "all"))
    }),
    ("helios", |_| suite_against_helios()),
];

/// Runs all checks one after another. A failure does not stop the following checks.
pub fn run(args: &SoakArgs) -> Result<()> {
    let is_chosen = |name: &str| args.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let targets = targets()?.into_iter().chain(covered()?);
    let names: Vec<String> = targets.filter(|name| is_chosen(name)).collect();
    let checks: Vec<&NamedCheck> = CHECKS.iter().filter(|(name, _)| is_chosen(name)).collect();
    if names.is_empty() && checks.is_empty() {
        bail!("no check has a name that contains the text in --only; --list shows all names");
    }
    if args.list {
        let names = names.iter().map(String::as_str).chain(checks.iter().map(|(name, _)| *name));
        names.for_each(|name| println!("{name}"));
        return Ok(());
    }
    let mut failed = Vec::new();
    let mut report = |name: &str, stage: &dyn Fn() -> Result<()>| {
        let started = Instant::now();
        let result = stage();
        if let Err(error) = &result {
            println!("{name}: {error:#}");
        }
        let verdict = if result.is_ok() { "held" } else { "FAILED" };
        println!("{name:<32} {verdict} after {} s", started.elapsed().as_secs());
        failed.extend(result.is_err().then(|| name.to_owned()));
    };
    for name in &names {
        report(name, &|| run_target(name, args.runs));
    }
    for (name, run) in checks {
        report(name, &|| run(args));
    }
    if !failed.is_empty() {
        bail!("{} failed", failed.join(", "));
    }
    Ok(())
}

fn run_target(name: &str, runs: u64) -> Result<()> {
    let Some(target) = name.strip_prefix(COVERAGE) else {
        return check(fuzz().args(["--exact", name]).env("TREFOIL_FUZZ_RUNS", runs.to_string()));
    };
    if has_cargo_fuzz() {
        return cover(target, runs);
    }
    println!("left out: cargo-fuzz is not installed (cargo install cargo-fuzz)");
    Ok(())
}

/// Runs the conformance suite against the servers of Helios, if they can be built here.
fn suite_against_helios() -> Result<()> {
    let programs = match build_helios() {
        Ok(programs) => programs,
        Err(error) => {
            println!("left out: {error:#}");
            return Ok(());
        }
    };
    let mut command = cargo();
    command.args(["test", "-p", "trefoil-conformance", "--test", "it", "helios", "--", "--nocapture"]);
    check(command.envs(programs))
}

/// The command that runs tests of a package whose names begin with these texts.
fn quiet_tests(package: &str, filters: &[&str]) -> Command {
    let mut command = cargo();
    command.args(["test", "--quiet", "--release", "-p", package, "--test", "it", "--"]).args(filters);
    command
}

/// The same, with what the tests print.
fn printed_tests(package: &str, filter: &str) -> Command {
    let mut command = cargo();
    command.args(["test", "--release", "-p", package, "--test", "it", filter, "--", "--nocapture"]);
    command
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
    let mut command = printed_tests("trefoil-server", "node_faults::nothing_is_accepted");
    command.env("TREFOIL_NODE_FAULT_SEED", seed.to_string());
    check(command.env("TREFOIL_NODE_FAULTS", NODE_ROUNDS))
}

/// Stops the database of three nodes under load, and prints the figures.
fn outage() -> Result<()> {
    let mut command = printed_tests("trefoil-server", "node_faults::outage");
    check(command.env("TREFOIL_OUTAGE_SECONDS", OUTAGE_SECONDS))
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
    let mut command = printed_tests(package, "power_cut::");
    // The tests run one at a time, because each of them uses all cores.
    check(command.arg("--test-threads=1").env("TREFOIL_POWER_CUT_STATES", states))
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
    let tests = String::from_utf8_lossy(&output.stdout);
    Ok(tests.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
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
