//! The command `laws`: tests properties with random requests.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use jiff::Timestamp;

use super::exit::{broken, unreachable, usage};
use super::run::{connect, exit_code, listeners, read_profile, stated_address};
use crate::environment::TestEnvironment;
use crate::laws::{self, LAWS, Law};
use crate::run;
use crate::run::verdict::milliseconds_since;
use crate::run::{RunEnd, RunEvent, RunStart};

/// Arguments of `laws`.
#[derive(Debug, Args)]
pub struct LawArgs {
    /// Base URL of a running server. Without it and a profile, a Trefoil server is started.
    url: Option<String>,
    /// Profile of the server: a TOML or JSON file, or the name of a ready profile.
    #[arg(long, value_name = "FILE|NAME")]
    profile: Option<String>,
    /// PEM file of the certificates to trust, instead of those of the system.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The server is a Trefoil server.
    #[arg(long)]
    house: bool,
    /// Test only laws whose id contains this text. Can be repeated.
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Number that determines all random values; a new one by default.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Maximum number of requests for each law, about.
    #[arg(long, value_name = "N", default_value_t = laws::BUDGET)]
    budget: u32,
    /// Seconds until a response must be complete.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    timeout: u64,
    /// Also write a report, such as html=FILE. Can be repeated.
    #[arg(long = "report", value_name = "KIND=FILE")]
    reports: Vec<String>,
}

/// Runs the command.
pub fn laws_command(args: &LawArgs) -> ExitCode {
    let is_asked =
        |law: &&Law| args.only.is_empty() || args.only.iter().any(|text| law.id.contains(text.as_str()));
    let laws_to_test: Vec<&Law> = LAWS.iter().filter(is_asked).collect();
    if laws_to_test.is_empty() {
        let ids: Vec<_> = LAWS.iter().map(|law| law.id).collect();
        return usage(&anyhow::anyhow!("no law matches; the laws are {}", ids.join(", ")));
    }
    let mut listeners = match listeners(&args.reports) {
        Ok(listeners) => listeners,
        Err(error) => return usage(&error),
    };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return broken(&error.into()),
    };
    let connection = read_profile(args.profile.as_deref(), args.ca.as_deref()).and_then(|profile| {
        let url = match (&args.url, &args.profile) {
            (None, Some(name)) => Some(stated_address(&profile, name)?),
            (url, _) => url.clone(),
        };
        Ok(url.map(|url| (url, profile)))
    });
    let connection = match connection {
        Ok(connection) => connection,
        Err(error) => return usage(&error),
    };
    let environment = match connection {
        Some((url, profile)) => {
            let timeout = Duration::from_secs(args.timeout);
            match runtime.block_on(connect(&url, profile, args.house, timeout)) {
                Ok(target) => TestEnvironment::of(target),
                Err(error) => {
                    return unreachable(&url, &format!("{error:#}"));
                }
            }
        }
        None => match runtime.block_on(TestEnvironment::start()) {
            Ok(environment) => environment,
            Err(error) => return broken(&error),
        },
    };
    // The report names the seed, so that a failure can be repeated.
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    let mut emit = |event: &RunEvent<'_>| listeners.iter_mut().for_each(|listener| listener.on_event(event));
    let begin = Instant::now();
    let target = environment.target.addresses.base_url.as_str();
    let requirements: Vec<_> = laws_to_test.iter().map(|law| law.requirement()).collect();
    emit(&RunEvent::Start(&RunStart {
        suite: run::SUITE,
        target,
        started: Timestamp::now(),
        requirements: requirements.iter().collect(),
        sections: run::sections(laws_to_test.iter().map(|law| law.id)),
        seed: Some(seed),
    }));
    let mut end = RunEnd::default();
    for law in laws_to_test {
        let outcome = laws::test(law, &environment, &runtime, args.budget, seed);
        end.summary.count(&outcome.verdict);
        emit(&RunEvent::Case(&outcome));
    }
    end.lost = environment.lost();
    // A server that the suite started is deleted with its data.
    if environment.local.is_none() {
        end.leftovers = runtime.block_on(environment.target.clean_up());
    }
    end.took_ms = milliseconds_since(begin);
    emit(&RunEvent::End(&end));
    exit_code(&end)
}
