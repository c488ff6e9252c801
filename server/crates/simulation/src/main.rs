//! Runs simulations: `trefoil-simulation --seed N`, or `--count N` for consecutive seeds.

use std::process::ExitCode;

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
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_env("TREFOIL_LOG"))
        .with_writer(std::io::stderr)
        .without_time()
        .init();
    let mut failed = Vec::new();
    for seed in arguments.seed..arguments.seed + arguments.count {
        match run_seed(seed) {
            Ok(report) => {
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
                    failed.push(seed);
                }
            }
            Err(error) => {
                println!("seed {seed}: {error:#}");
                failed.push(seed);
            }
        }
        if !failed.is_empty() && !arguments.keep_going {
            break;
        }
    }
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    for seed in &failed {
        println!("repeat with: cargo xtask sim --seed {seed} --log");
    }
    ExitCode::FAILURE
}
