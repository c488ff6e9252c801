//! The command `diff`: asks two servers the same questions until their answers differ.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::exit::{FAILED, UNREACHABLE, broken, usage};
use super::run::{connect, read_profile};
use crate::environment::TestEnvironment;
use crate::environment::target::TIMEOUT;
use crate::laws;
use crate::run::verdict::Verdict;

/// Arguments of `diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// FHIR base URLs of the two servers.
    #[arg(num_args = 2, required = true, value_names = ["URL1", "URL2"])]
    urls: Vec<String>,
    /// Profile of a server, first that of the first one: a TOML or JSON file, or the name of a ready profile.
    #[arg(long = "profile", value_name = "FILE|NAME")]
    profiles: Vec<String>,
    /// PEM file of the certificates to trust for both servers, instead of those of the system.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Number that determines all questions; a new one by default.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Maximum number of requests, about.
    #[arg(long, value_name = "N", default_value_t = 10 * laws::BUDGET)]
    budget: u32,
}

/// Runs the command.
pub fn diff_command(args: &DiffArgs) -> ExitCode {
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return broken(&error.into()),
    };
    let mut environments = Vec::new();
    for (index, url) in args.urls.iter().enumerate() {
        let name = args.profiles.get(index).map(String::as_str);
        let profile = match read_profile(name, args.ca.as_deref()) {
            Ok(profile) => profile,
            Err(error) => return usage(&error),
        };
        match runtime.block_on(connect(url, profile, false, TIMEOUT)) {
            Ok(target) => environments.push(TestEnvironment::of(target)),
            Err(error) => {
                eprintln!("error: {url} cannot be asked: {error:#}");
                return ExitCode::from(UNREACHABLE);
            }
        }
    }
    let [first, second] = &environments[..] else {
        return broken(&anyhow::anyhow!("diff compares two servers"));
    };
    // The output names the seed, so that a difference can be found again.
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    match laws::compare((first, second), &runtime, args.budget, seed) {
        Verdict::Pass => {
            println!("no difference was found (--seed {seed})");
            ExitCode::SUCCESS
        }
        Verdict::Fail(failure) => {
            for (url, exchange) in args.urls.iter().zip(&failure.exchanges) {
                println!("{url}\n  {}\n{}\n", exchange.request, exchange.answer);
            }
            println!("- {}", failure.differences.join("\n- "));
            ExitCode::from(FAILED)
        }
        verdict => {
            eprintln!("error: {}", verdict.reason().unwrap_or_default());
            ExitCode::from(FAILED)
        }
    }
}
