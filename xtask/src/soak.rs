//! `cargo xtask soak`: what takes long. Fuzz targets with many runs and seeds of their own, in the release profile, the
//! benchmark of terminology, a server that is killed at many moments, and exports as Parquet; the time of each is printed.

use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::{bench, bench_parquet, cargo, check};

/// The test program of the fuzz targets, and where they stand in it.
const FUZZ: [&str; 4] = ["-p", "trefoil-terminology", "--test", "it"];
const TARGETS: &str = "fuzz::";
/// The benchmark, by the name that `--only` takes.
const BENCHMARK: &str = "terminology";
/// The journey with kills, by the name that `--only` takes.
const KILLS: &str = "kills";
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
    /// Only what has this in its name: a fuzz target, `terminology` for the benchmark, `kills` or `parquet`.
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
    names.extend([BENCHMARK, KILLS, PARQUET].into_iter().filter(|name| wanted(name)).map(str::to_owned));
    if names.is_empty() {
        bail!("nothing has that in its name; --list says what there is");
    }
    let mut failed = Vec::new();
    for name in names {
        if args.list {
            println!("{name}");
            continue;
        }
        let started = Instant::now();
        let ended = if name == BENCHMARK {
            check(&mut bench("trefoil-terminology", "index"))
        } else if name == KILLS {
            let mut command = cargo();
            command.args(["test", "--quiet", "--release", "-p", "trefoil-server", "--test", "it", "kills::"]);
            check(command.env("TREFOIL_KILLS", args.kills.to_string()))
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
