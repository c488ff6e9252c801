//! Runs simulations: `trefoil-simulation --seed N`, or `--count N` for consecutive seeds.

use std::process::{Command, ExitCode};

use anyhow::Result;
use clap::Parser;
use trefoil_simulation::run_seed;

/// Simulates three nodes with their clients and faults.
#[derive(Parser)]
struct Arguments {
    /// First seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of consecutive seeds
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// Print the log of each seed
    #[arg(long)]
    log: bool,
    /// Run all seeds, also after one that breaks a rule
    #[arg(long)]
    keep_going: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let succeeded = if arguments.count == 1 { run_one(&arguments) } else { run_each(&arguments) };
    match succeeded {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs each seed in a process of its own. Tokio decides the order of `select!` with a counter of the
/// process, so a seed would otherwise depend on those before it. Returns whether all seeds satisfy the rules.
fn run_each(arguments: &Arguments) -> Result<bool> {
    let program = std::env::current_exe()?;
    let mut failed = Vec::new();
    for seed in arguments.seed..arguments.seed + arguments.count {
        let mut command = Command::new(&program);
        command.args(["--seed", &seed.to_string()]).args(arguments.log.then_some("--log"));
        if !command.status()?.success() {
            failed.push(seed);
            if !arguments.keep_going {
                break;
            }
        }
    }
    if !failed.is_empty() {
        println!("seeds that broke a rule: {failed:?}");
    }
    Ok(failed.is_empty())
}

/// Runs one seed. Returns whether it satisfies the rules.
fn run_one(arguments: &Arguments) -> Result<bool> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_env("TREFOIL_LOG"))
        .with_writer(std::io::stderr)
        .without_time()
        .init();
    let seed = arguments.seed;
    let report = run_seed(seed)?;
    if arguments.log {
        print!("{}", report.log);
    }
    println!(
        "seed {seed}: {} requests, {} faults, {} exports ({} resumed), latest acceptance {} ms after a revocation, {} violations",
        report.requests,
        report.faults,
        report.exports.exports,
        report.exports.resumed,
        report.latest.as_millis(),
        report.violations.len()
    );
    report.violations.iter().for_each(|violation| println!("VIOLATION {violation}"));
    if !report.violations.is_empty() {
        println!("repeat with: cargo xtask sim --seed {seed} --log");
    }
    Ok(report.violations.is_empty())
}
