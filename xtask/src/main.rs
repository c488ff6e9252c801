//! Every command a contributor or the pipeline needs: `cargo xtask --help`.
//!
//! | module | what lives there |
//! |---|---|
//! | [`demo`] | the demo server, what to try, the terminal client |
//! | [`soak`] | what takes long: fuzz targets with millions of runs, the benchmark |
//! | [`test`] | everything that must hold, summed up in one last line |
//! | [`tidy`] | the walls between the crates and the habits of the tree |
//!
//! xtask runs the other crates and depends on none of them, so that it builds at once.

mod demo;
mod soak;
mod test;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Commands of the Trefoil project")]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build and start the demo server, and open the terminal client on a terminal.
    Demo(demo::Args),
    /// Everything: fmt, clippy, tidy, unit tests, tables, laws, snapshots, journeys.
    Test,
    /// What the pipeline runs.
    Ci,
    /// Run the conformance suite against a server of ours, or against --target.
    Conformance {
        /// Filters and flags of `trefoil-conformance run`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Make the demo project's records anew from their seed; --check only compares.
    GenFixtures {
        /// Compare, change nothing.
        #[arg(long)]
        check: bool,
    },
    /// Measure against the HTTP floor of the same run.
    Bench {
        /// Flags of the benchmark.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// What takes long: fuzz targets with 10,000,000 runs each, in the release profile, the benchmark of terminology, and a
    /// server that is killed 200 times.
    Soak(soak::Args),
    /// Check the walls between the crates and the habits of the tree.
    Tidy,
    /// Format everything.
    Fmt,
    /// Clippy, without mercy.
    Lint,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    match task {
        Task::Demo(args) => demo::run(&args),
        Task::Test | Task::Ci => test::run(),
        Task::Conformance { args } => {
            check(&mut build(&["trefoil", "trefoil-conformance"]))?;
            let program = target_dir().join("debug/trefoil-conformance");
            check(Command::new(program).arg("run").args(args))
        }
        Task::GenFixtures { check: only_check } => {
            let mut command = cargo();
            command.args(["run", "--quiet", "-p", "trefoil-fixtures", "--bin", "gen-fixtures", "--"]);
            check(command.args(only_check.then_some("--check")))
        }
        Task::Bench { args } => {
            // What is measured in process belongs to the whole, and to what is called so.
            let flags = args.iter().filter(|arg| arg.starts_with("--"));
            // This wants crates that nothing else needs, and only who names it waits for them.
            if args.iter().any(|arg| arg == "parquet") {
                return check(bench_parquet().args(flags));
            }
            let is_asked = |what: &str| args.iter().all(|arg| arg.starts_with("--") || arg == what);
            if is_asked("terminology") {
                check(&mut bench("trefoil-terminology", "index"))?;
            }
            if is_asked("bulk") {
                check(bench("trefoil-bulk", "bulk").args(flags))?;
            }
            check(bench("trefoil-server", "http").args(args))
        }
        Task::Soak(args) => soak::run(&args),
        Task::Tidy => tidy::run(),
        Task::Fmt => check(cargo().args(["fmt", "--all"])),
        Task::Lint => check(&mut lint()),
    }
}

/// A benchmark of a package.
fn bench(package: &str, name: &str) -> Command {
    let mut command = cargo();
    command.args(["bench", "--quiet", "-p", package, "--bench", name, "--"]);
    command
}

/// The benchmark of exports as Parquet: their memory.
fn bench_parquet() -> Command {
    let mut command = cargo();
    command.args(["bench", "--quiet", "-p", "trefoil-bulk", "--features", "parquet"]);
    command.args(["--bench", "bulk", "--", "--parquet"]);
    command
}

/// Clippy over everything, warnings as errors.
fn lint() -> Command {
    let mut command = cargo();
    command.args(["clippy", "--workspace", "--all-targets", "--quiet", "--", "--deny", "warnings"]);
    command
}

/// Builds programs with the whole workspace's features, so that no command builds what another one
/// has built already.
fn build(programs: &[&str]) -> Command {
    let mut command = cargo();
    command.args(["build", "--quiet", "--workspace"]);
    command.args(programs.iter().flat_map(|program| ["--bin", program]));
    command
}

/// cargo in the workspace's folder.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// The workspace's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_owned()
}

/// Where cargo builds.
fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Runs a command; a failure is an error that names it.
fn check(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("failed to start {name}"))?;
    if !status.success() {
        let args: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
        bail!("{name} {} ended with {status}", args.join(" "));
    }
    Ok(())
}
