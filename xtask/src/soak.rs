//! `cargo xtask soak`: what takes long. Fuzz targets with many runs, once with seeds of their own and once led by coverage
//! (cargo-fuzz), the benchmark of terminology, a server that is killed at many moments, hostile traffic, and exports as
//! Parquet; the time of each is printed.

use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::{bench, bench_parquet, cargo, check, root};

/// The test program of the fuzz targets, and where they stand in it.
const FUZZ: [&str; 4] = ["-p", "trefoil-terminology", "--test", "it"];
const TARGETS: &str = "fuzz::";
/// The same targets for cargo-fuzz, and what stands before their names here.
const COVERAGE_FOLDER: &str = "server/crates/terminology/fuzz";
const COVERAGE: &str = "coverage::";
/// The benchmark, by the name that `--only` takes.
const BENCHMARK: &str = "terminology";
/// The journey with kills, by the name that `--only` takes.
const KILLS: &str = "kills";
/// Hostile traffic against the release binary, by the name that `--only` takes.
const ATTACKS: &str = "attacks";
/// Exports with the feature of this name, which brings crates that nobody else needs: the tests, and the memory.
const PARQUET: &str = "parquet";

#[derive(clap::Args)]
pub struct Args {
    /// Runs of each fuzz target.
    #[arg(long, default_value_t = 10_000_000)]
    runs: u64,
    /// How often the server is killed.
    #[arg(long, default_value_t = 200)]
    kills: u64,
    /// Only what has this in its name: a fuzz target, `terminology` for the benchmark, `kills`, `attacks` or `parquet`.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Say what there is and run nothing.
    #[arg(long)]
    list: bool,
}

/// Runs everything, one after the other; a failure does not keep the rest from running.
pub fn run(args: &Args) -> Result<()> {
    let wanted = |name: &str| args.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let mut names: Vec<String> = targets()?.into_iter().filter(|name| wanted(name)).collect();
    names.extend(covered()?.into_iter().filter(|name| wanted(name)));
    names.extend(
        [BENCHMARK, KILLS, ATTACKS, PARQUET].into_iter().filter(|name| wanted(name)).map(str::to_owned),
    );
    if names.is_empty() {
        bail!("nothing has that in its name; --list says what there is");
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
        let ended = if let Some(target) = name.strip_prefix(COVERAGE) {
            cover(target, args.runs)
        } else if name == BENCHMARK {
            check(&mut bench("trefoil-terminology", "index"))
        } else if name == KILLS {
            let mut command = cargo();
            command.args(["test", "--quiet", "--release", "-p", "trefoil-server", "--test", "it", "kills::"]);
            check(command.env("TREFOIL_KILLS", args.kills.to_string()))
        } else if name == ATTACKS {
            let mut command = cargo();
            command.args(["test", "--release", "-p", "trefoil-server", "--test", "it", "attacks::"]);
            // One attack at a time: the printed times are those of an otherwise idle machine.
            command.args(["--", "--nocapture", "--test-threads=1"]);
            check(command.env("TREFOIL_ATTACKS", "full"))
        } else if name == PARQUET {
            check(cargo().args(["test", "--quiet", "-p", "trefoil-bulk", "--features", PARQUET]))
                .and_then(|()| check(&mut bench_parquet()))
        } else {
            let mut command = fuzz();
            command.args(["--exact", &name]).env("TREFOIL_FUZZ_RUNS", args.runs.to_string());
            check(&mut command)
        };
        let held = if ended.is_ok() { "held" } else { "FAILED" };
        println!("{name:<32} {held} after {} s", started.elapsed().as_secs());
        failed.extend(ended.is_err().then_some(name));
    }
    if !failed.is_empty() {
        bail!("{} failed", failed.join(", "));
    }
    Ok(())
}

fn fuzz() -> std::process::Command {
    let mut command = cargo();
    command.args(["test", "--quiet", "--release"]).args(FUZZ).arg("--");
    command
}

/// The names of the fuzz targets, as the test program tells them.
fn targets() -> Result<Vec<String>> {
    let output = fuzz().args(["--list", TARGETS]).output().context("failed to start cargo")?;
    if !output.status.success() {
        bail!("the fuzz targets do not build:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let listed = String::from_utf8_lossy(&output.stdout);
    Ok(listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// The targets of cargo-fuzz.
fn covered() -> Result<Vec<String>> {
    let folder = root().join(COVERAGE_FOLDER).join("targets");
    let files = std::fs::read_dir(&folder).with_context(|| format!("failed to read {}", folder.display()))?;
    let mut names = Vec::new();
    for file in files {
        if let Some(name) = file?.file_name().to_str().and_then(|name| name.strip_suffix(".rs")) {
            names.push(format!("{COVERAGE}{name}"));
        }
    }
    names.sort();
    Ok(names)
}

fn has_cargo_fuzz() -> bool {
    let mut command = cargo();
    command.args(["fuzz", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Runs a target of cargo-fuzz: what takes more than a second or a GiB has failed too. What it finds out about good
/// inputs stays in the target folder for the next time. Without a sanitizer the stable compiler will do.
fn cover(target: &str, runs: u64) -> Result<()> {
    let corpus = root().join("target/fuzz-corpus").join(target);
    std::fs::create_dir_all(&corpus)?;
    let mut command = cargo();
    command.current_dir(root()).args(["fuzz", "run", "--sanitizer", "none", "--fuzz-dir", COVERAGE_FOLDER]);
    command.args(["--target-dir", "target/fuzz", target]).arg(corpus);
    command.arg(root().join(COVERAGE_FOLDER).join("seeds").join(target));
    command.args(["--", "-timeout=1", "-rss_limit_mb=1024", "-print_final_stats=1"]);
    check(command.arg(format!("-runs={runs}")))
}
