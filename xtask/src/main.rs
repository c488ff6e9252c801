//! The commands for contributors and for CI: `cargo xtask --help`.
//!
//! | module | contents |
//! |---|---|
//! | [`mod@bench`] | the benchmark programs, by group |
//! | [`helios`] | the servers of Helios, which are built for the board |
//! | [`board`] | the conformance of several servers, as one page |
//! | [`book`] | the documents as a site |
//! | [`demo`] | the demo server, a short guide, the terminal client |
//! | [`dist`] | the files of a release |
//! | [`fhir_tables`] | tables that are generated from HL7's definitions of FHIR R4 |
//! | [`mutants`] | the suite against servers with planted faults |
//! | [`pictures`] | pictures of the terminal client |
//! | [`soak`] | the long checks: fuzz targets with millions of runs, kills, hostile traffic |
//! | [`mod@test`] | what every change must pass, and what the pipeline checks besides |
//! | [`tidy`] | boundaries between the crates, prose, links, commits |
//! | [`vocabularies`] | tables of the built-in code systems that are generated from their registries |
//! | [`workspace`] | the folders of the workspace, and the commands that build it |
//!
//! xtask runs the other crates as programs and does not depend on them, so that it builds quickly.

mod bench;
mod board;
mod book;
mod demo;
mod dist;
mod fhir_tables;
mod helios;
mod mutants;
mod pictures;
mod soak;
mod test;
mod tidy;
mod vocabularies;
mod workspace;

use std::process::{Command, ExitCode};

use anyhow::Result;
use clap::{Parser, Subcommand};

use workspace::{build, cargo, check, lint, target_dir};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Commands of the Trefoil project")]
struct Cli {
    #[command(subcommand)]
    command: XtaskCommand,
}

#[derive(Subcommand)]
enum XtaskCommand {
    /// Build and start the demo server, and open the terminal client if the output is a terminal.
    Demo(demo::DemoArgs),
    /// Run what every change must pass: fmt, tidy, unit tests, tables, property tests, snapshots, journeys.
    Test,
    /// Run what the pipeline checks besides: clippy, links of comments, planted faults, simulations,
    /// databases, several nodes.
    Ci,
    /// Run the conformance suite against a new Trefoil server, or against --target.
    Conformance {
        /// Filters and options of `trefoil-conformance run`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Run the conformance suite against servers with planted faults, and list the faults that it does not
    /// find.
    Mutants(mutants::MutantArgs),
    /// Simulate several nodes with their clients and faults. A seed gives the same run each time.
    Sim {
        /// First seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Number of consecutive seeds.
        #[arg(long, default_value_t = 1)]
        count: u64,
        /// Print what happened.
        #[arg(long)]
        log: bool,
        /// Run all seeds, also after one that breaks a rule.
        #[arg(long)]
        keep_going: bool,
    },
    /// Generate the records of the demo project from their seed.
    GenFixtures {
        /// Compare the files instead of writing them.
        #[arg(long)]
        check: bool,
    },
    /// Generate the tables of elements, search parameters and the Patient compartment from HL7's definitions
    /// of FHIR R4.
    ///
    /// The definitions are read from the folder `data` in the folder of TREFOIL_SHARED, or in ../shared.
    GenFhirTables {
        /// Compare the tables instead of writing them.
        #[arg(long)]
        check: bool,
    },
    /// Generate the tables of the built-in code systems from the registries of IANA, ISO and UCUM, which
    /// .ci/run installs.
    GenVocabularies {
        /// Compare the tables instead of writing them.
        #[arg(long)]
        check: bool,
    },
    /// Run the benchmarks, and compare them with the HTTP floor measured in the same run.
    Bench(bench::BenchArgs),
    /// Test servers of other makers and Trefoil on its engines, and write one page to target/board.
    Board(board::BoardArgs),
    /// Make the documents a site with search, in target/book; needs mdbook.
    Book,
    /// Write the files of a release to target/dist.
    Dist(dist::DistArgs),
    /// Write pictures and a recording of the terminal client to target/pictures; needs tmux and Chromium.
    Pictures,
    /// Run the long checks: fuzz targets with 10,000,000 runs each in the release profile, the terminology
    /// benchmark, and a server that is killed 200 times.
    Soak(soak::SoakArgs),
    /// Check the boundaries between the crates, prose, links and commits.
    Tidy,
    /// Format the code.
    Fmt,
    /// Run clippy; warnings are errors.
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

fn run(task: XtaskCommand) -> Result<()> {
    match task {
        XtaskCommand::Demo(args) => demo::run(&args),
        XtaskCommand::Test => test::run(),
        XtaskCommand::Ci => test::pipeline::run(),
        XtaskCommand::Conformance { args } => {
            check(&mut build(&["trefoil", "trefoil-conformance"]))?;
            let program = target_dir().join("debug/trefoil-conformance");
            check(Command::new(program).arg("run").args(args))
        }
        XtaskCommand::Board(args) => board::run(&args),
        XtaskCommand::Book => book::run(),
        XtaskCommand::Dist(args) => dist::run(&args),
        XtaskCommand::Mutants(args) => mutants::run(&args),
        XtaskCommand::Sim { seed, count, log, keep_going } => {
            check(&mut build(&["trefoil-simulation"]))?;
            let mut command = Command::new(target_dir().join("debug/trefoil-simulation"));
            command.args(["--seed", &seed.to_string(), "--count", &count.to_string()]);
            command.args(log.then_some("--log")).args(keep_going.then_some("--keep-going"));
            check(&mut command)
        }
        XtaskCommand::GenFixtures { check: only_check } => {
            let mut command = cargo();
            command.args(["run", "--quiet", "-p", "trefoil-fixtures", "--bin", "gen-fixtures", "--"]);
            check(command.args(only_check.then_some("--check")))
        }
        XtaskCommand::GenFhirTables { check: only_compare } => {
            if let Some(missing) = fhir_tables::run(only_compare)? {
                println!("left out: {missing}");
            }
            Ok(())
        }
        XtaskCommand::GenVocabularies { check: only_compare } => {
            vocabularies::run(only_compare)?.iter().for_each(|missing| println!("left out: {missing}"));
            Ok(())
        }
        XtaskCommand::Bench(args) => bench::run(&args),
        XtaskCommand::Pictures => pictures::run(),
        XtaskCommand::Soak(args) => soak::run(&args),
        XtaskCommand::Tidy => tidy::run(),
        XtaskCommand::Fmt => check(cargo().args(["fmt", "--all"])),
        XtaskCommand::Lint => check(&mut lint()),
    }
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;

    /// Tests of the documents check commands with `--help`, so that no command runs.
    #[test]
    fn help_is_shown_after_any_benchmark_group() {
        for group in ["identity", "terminology", "bulk", "download", "log", "postgres", "scale", "client"] {
            let parsed = Cli::try_parse_from(["xtask", "bench", group, "--help"]);
            assert_eq!(parsed.err().map(|error| error.kind()), Some(ErrorKind::DisplayHelp), "{group}");
        }
        let parsed = Cli::try_parse_from(["xtask", "bench", "no-such-group", "--help"]);
        assert_eq!(parsed.err().map(|error| error.kind()), Some(ErrorKind::InvalidValue));
    }
}
