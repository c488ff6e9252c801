//! `cargo xtask bench`: the benchmark programs of a group.

use std::process::Command;

use anyhow::Result;

use crate::workspace::{cargo, check};

#[derive(clap::Args)]
pub struct BenchArgs {
    /// Run only this group. Without a group, those that need neither a database nor further crates are run.
    #[arg(value_enum)]
    group: Option<BenchGroup>,
    /// Use wrk as the load generator of the operations of terminology.
    #[arg(long, conflicts_with = "group")]
    outside: bool,
    /// Options of the benchmark program, such as --rounds=1.
    #[arg(last = true, value_name = "OPTIONS")]
    options: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum BenchGroup {
    /// Sign-in, tokens and FHIR over HTTP.
    Identity,
    /// The index of a large code system, and its operations over HTTP.
    Terminology,
    /// The workloads of a public terminology benchmark.
    Tx20,
    /// Exports and their downloads.
    Bulk,
    /// Searches of one of a million Patients.
    Patients,
    /// Downloads of export files.
    Download,
    /// The log.
    Log,
    /// The engine on a database beside the engine on files.
    Postgres,
    /// One, two and three nodes on one database.
    Scale,
    /// The terminal client.
    Client,
}

impl BenchGroup {
    /// The name on the command line, which the benchmarks over HTTP also use.
    fn name(self) -> String {
        use clap::ValueEnum as _;
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Runs the benchmarks of a group.
pub fn run(args: &BenchArgs) -> Result<()> {
    use BenchGroup::{Bulk, Client, Log, Patients, Postgres, Scale, Terminology};
    let with_options = |mut command: Command| check(command.args(&args.options));
    let http = |options: &[&str]| check(bench("trefoil-server", "http").args(options));
    if args.outside {
        return check(bench("trefoil-server", "http").args(["terminology", "--outside"]).args(&args.options));
    }
    match args.group {
        Some(Patients) => return with_options(bench("trefoil-resources", "patients")),
        Some(Log) => return with_options(bench("trefoil-server", "log")),
        Some(Scale) => {
            with_options(bench("trefoil-store", "scale"))?;
            return http(&["scale"]);
        }
        Some(Client) => return with_options(bench("trefoil-tui", "client")),
        Some(Postgres) => {
            with_options(bench("trefoil-store", "postgres"))?;
            http(&["identity", "--rounds=1"])?;
            return http(&["identity", "--rounds=1", "--postgres"]);
        }
        _ => {}
    }
    if matches!(args.group, None | Some(Terminology)) {
        check(&mut bench("trefoil-terminology", "index"))?;
    }
    if matches!(args.group, None | Some(Bulk)) {
        with_options(bench("trefoil-bulk", "bulk"))?;
    }
    let mut http = bench("trefoil-server", "http");
    check(http.args(args.group.map(BenchGroup::name)).args(&args.options))
}

/// The command for a benchmark of a package.
pub fn bench(package: &str, name: &str) -> Command {
    let mut command = cargo();
    command.args(["bench", "--quiet", "-p", package, "--bench", name, "--"]);
    command
}
