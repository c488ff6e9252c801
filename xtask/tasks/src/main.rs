//! The commands of `cargo xtask` that need more than Cargo: checks, generated tables, benchmarks, releases.
//!
//! | module | contents |
//! |---|---|
//! | [`mod@bench`] | the benchmark programs, by group |
//! | [`helios`] | the servers of Helios, which are built for the board |
//! | [`board`] | the conformance of several servers, as one page |
//! | [`book`] | the documents as a site |
//! | [`dist`] | the files of a release |
//! | [`fhir_tables`] | tables that are generated from HL7's definitions of FHIR R4 |
//! | [`mutants`] | the suite against servers with planted faults |
//! | [`pictures`] | pictures of the terminal client |
//! | [`soak`] | the long checks: fuzz targets with millions of runs, kills, hostile traffic |
//! | [`mod@test`] | what every change must pass, and what the pipeline checks besides |
//! | [`tidy`] | boundaries between the crates, prose, links, commits |
//! | [`vocabularies`] | tables of the built-in code systems that are generated from their registries |
//!
//! They run the other crates as programs and do not depend on them, so that this package builds quickly.

mod bench;
mod board;
mod book;
mod dist;
mod fhir_tables;
mod helios;
mod mutants;
mod pictures;
mod soak;
mod test;
mod tidy;
mod vocabularies;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser as _;
use xtask::command_line::{Cli, XtaskCommand};

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
        XtaskCommand::Test => test::run(),
        XtaskCommand::Ci => test::pipeline::run(),
        XtaskCommand::Board(args) => board::run(&args),
        XtaskCommand::Book => book::run(),
        XtaskCommand::Dist(args) => dist::run(&args),
        XtaskCommand::Mutants(args) => mutants::run(&args),
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
        XtaskCommand::Demo(_)
        | XtaskCommand::Conformance { .. }
        | XtaskCommand::Sim { .. }
        | XtaskCommand::GenFixtures { .. }
        | XtaskCommand::Fmt
        | XtaskCommand::Lint => bail!("this is a command of the package xtask: use cargo xtask"),
    }
}
