//! `cargo xtask bench`: the benchmark programs of a group.

use std::process::Command;

use anyhow::Result;

use xtask::command_line::{BenchArgs, BenchGroup};
use xtask::workspace::{cargo, check};

/// Runs the benchmarks of a group.
pub fn run(args: &BenchArgs) -> Result<()> {
    use BenchGroup::{Bulk, Client, Log, Patients, Postgres, Scale, Terminology};
    let with_options = |mut command: Command| check(command.args(&args.options));
    let http = |options: &[&str]| check(bench("trefoil-server", "http").args(options));
    if args.outside {
        return check(bench("trefoil-server", "http").args(["terminology", "--outside"]).args(&args.options));
    }
    if args.instructions {
        let group = args.group.map(BenchGroup::name);
        return check(bench("trefoil-server", "http").args(group).arg("--instructions").args(&args.options));
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
