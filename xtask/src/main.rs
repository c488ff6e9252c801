//! The commands for contributors and for CI: `cargo xtask --help`.
//!
//! Commands that only build and start programs of the workspace are here. The other ones are in the package
//! `xtask-tasks`, which the first of them builds, so that the demo does not wait for it.

mod demo;

use std::process::{Command, ExitCode};

use anyhow::Result;
use clap::Parser as _;
use xtask::command_line::{Cli, XtaskCommand};
use xtask::workspace::{build, cargo, check, lint, target_dir};

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: XtaskCommand) -> Result<ExitCode> {
    match task {
        XtaskCommand::Demo(args) => demo::run(&args),
        XtaskCommand::Conformance { args } => {
            check(&mut build(&["trefoil", "trefoil-conformance"]))?;
            let program = target_dir().join("debug/trefoil-conformance");
            check(Command::new(program).arg("run").args(args))
        }
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
        XtaskCommand::Fmt => check(cargo().args(["fmt", "--all"])),
        XtaskCommand::Lint => check(&mut lint()),
        XtaskCommand::Test
        | XtaskCommand::Ci
        | XtaskCommand::Mutants(_)
        | XtaskCommand::GenFhirTables { .. }
        | XtaskCommand::GenVocabularies { .. }
        | XtaskCommand::Bench(_)
        | XtaskCommand::Board(_)
        | XtaskCommand::Book
        | XtaskCommand::Dist(_)
        | XtaskCommand::Pictures
        | XtaskCommand::Soak(_)
        | XtaskCommand::Tidy => {
            check(&mut build(&["xtask-tasks"]))?;
            // The program says itself what has failed.
            let program = target_dir().join("debug/xtask-tasks");
            let status = Command::new(program).args(std::env::args_os().skip(1)).status()?;
            return Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
    }?;
    Ok(ExitCode::SUCCESS)
}
