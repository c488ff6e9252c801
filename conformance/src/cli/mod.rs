//! The command line. Exit codes: 0 for success, 1 for failed cases, 2 for a usage error, 3 if the target
//! cannot be reached or stops answering, 4 if the suite itself failed, 130 after Ctrl-C.

mod baseline;
mod board;
mod diff;
mod exit;
mod interrupts;
mod laws;
mod plan;
mod run;
mod tx;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use board::BoardArgs;
use clap::{ColorChoice, Parser, Subcommand};
use diff::DiffArgs;
use laws::LawArgs;
use run::RunArgs;
use tx::TxArgs;

use self::exit::{FAILED, broken, usage};
use crate::run::selection::Selection;
use crate::spec::Specification;
use crate::tx::publish;
use crate::{compare, explain, report};

/// Tests a server against the rows of its specification.
#[derive(Debug, Parser)]
#[command(name = "trefoil-conformance", version, arg_required_else_help = true)]
struct Cli {
    /// Colours of the output: when it is a terminal and NO_COLOR is not set, always or never.
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t = ColorChoice::Auto)]
    color: ColorChoice,
    /// Folder with further tables (TOML), whose rows are added to those of the suite.
    #[arg(long, global = true, value_name = "DIR")]
    tables: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run cases against a new Trefoil server, or against a running server.
    #[command(after_help = "Examples:\n  trefoil-conformance run spec/userinfo\n  \
        trefoil-conformance run https://id.example --profile id.toml --report junit=out.xml")]
    Run(Box<RunArgs>),
    /// Write the profile of a server: what it states about itself, what you answer on a terminal about users
    /// and clients, and comments for the rest.
    #[command(after_help = "Example:\n  trefoil-conformance init https://id.example > id.toml")]
    Init {
        /// URL of the server.
        url: String,
        /// PEM file with certificates to trust in addition to those of the system.
        #[arg(long, value_name = "FILE")]
        ca: Option<PathBuf>,
    },
    /// Test properties with random requests against a new Trefoil server, or against a running server.
    #[command(
        after_help = "Example:\n  trefoil-conformance laws https://tx.example/fhir --seed 7 --only subsumes"
    )]
    Laws(LawArgs),
    /// Ask two terminology servers the same random questions until their answers differ, and show the
    /// smallest question.
    #[command(
        after_help = "Example:\n  trefoil-conformance diff https://one.example/fhir https://two.example/fhir --seed 7"
    )]
    Diff(DiffArgs),
    /// Compare the JSON reports of two runs. The exit code is 1 if a case became worse.
    #[command(after_help = "Example:\n  trefoil-conformance compare yesterday.jsonl today.jsonl")]
    Compare {
        /// Report of the earlier run.
        first: PathBuf,
        /// Report of the later run.
        second: PathBuf,
    },
    /// Write reports of a run from its JSON report.
    #[command(
        after_help = "Example:\n  trefoil-conformance report run.jsonl --report html=run.html --report badge=run.svg"
    )]
    Report {
        /// JSON report of the run.
        file: PathBuf,
        /// Report to write, such as html=FILE; without one, the report of the terminal is printed. Can be
        /// repeated.
        #[arg(long = "report", value_name = "KIND=FILE")]
        reports: Vec<String>,
    },
    /// Test several servers one after the other, and write one page that compares them.
    #[command(
        after_help = "Example:\n  trefoil-conformance board board.toml --out board.html --history board.jsonl"
    )]
    Board(BoardArgs),
    /// List the ids of all cases, or of the selected cases.
    #[command(after_help = "Example:\n  trefoil-conformance list spec/authorize")]
    List {
        /// Text that the ids contain.
        filter: Vec<String>,
    },
    /// Show a requirement with its cases, a case with its requests and expectations, or all requirements of a
    /// section.
    #[command(after_help = "Example:\n  trefoil-conformance explain spec/authorize/redirect-uri-exact")]
    Explain {
        /// Id of a requirement or case, or the beginning of an id, such as design/subsumes.
        id: String,
    },
    /// Write our rows about $subsumes in the layout of HL7's terminology ecosystem suite.
    #[command(after_help = "Example:\n  trefoil-conformance publish subsumes-tests\n  \
        trefoil-conformance tx --tests subsumes-tests --target http://localhost:8080/fhir/R4")]
    Publish {
        /// Folder to write.
        folder: PathBuf,
    },
    /// Run HL7's terminology ecosystem suite against a FHIR R4 server.
    #[command(after_help = "Example:\n  trefoil-conformance tx --tests fhir-tx-ecosystem-ig/tests \
        --target http://localhost:8080/fhir/R4 --suite version")]
    Tx(Box<TxArgs>),
}

/// Runs the program with the arguments of the process.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.color {
        ColorChoice::Auto => anstream::ColorChoice::Auto,
        ColorChoice::Always => anstream::ColorChoice::Always,
        ColorChoice::Never => anstream::ColorChoice::Never,
    }
    .write_global();
    let mut spec = match Specification::load() {
        Ok(spec) => spec,
        Err(error) => return broken(&error.into()),
    };
    if let Some(folder) = &cli.tables
        && let Err(error) = spec.add_folder(folder)
    {
        return usage(&error.into());
    }
    let result = match cli.command {
        Command::List { filter } => list(&spec, filter),
        Command::Explain { id } => explain(&spec, &id),
        Command::Laws(args) => return laws::laws_command(&args),
        Command::Diff(args) => return diff::diff_command(&args),
        Command::Init { url, ca } => return run::init_command(&spec, &url, ca.as_deref()),
        Command::Board(args) => return board::board_command(&spec, &args),
        Command::Compare { first, second } => return compare_reports(&first, &second),
        Command::Report { file, reports } => write_reports(&file, &reports),
        Command::Publish { folder } => {
            publish::write(&spec, &folder).map(|count| println!("{count} files in {}", folder.display()))
        }
        Command::Run(args) => return run::run_command(&spec, &args),
        Command::Tx(args) => return tx::tx_command(*args),
    };
    result.map_or_else(|error| usage(&error), |()| ExitCode::SUCCESS)
}

fn list(spec: &Specification, only: Vec<String>) -> Result<()> {
    let selection = Selection { only, ..Selection::default() };
    let cases = selection.cases(spec);
    if cases.is_empty() {
        bail!("no case matches {}; `trefoil-conformance list` shows all cases", selection.only.join(" "));
    }
    cases.iter().for_each(|case| println!("{}", case.id));
    Ok(())
}

fn compare_reports(first: &Path, second: &Path) -> ExitCode {
    let reports = run::read_report(first).and_then(|first| Ok((first, run::read_report(second)?)));
    match reports {
        Ok((first, second)) => {
            let comparison = compare::compare(&first.outcomes, &second.outcomes);
            println!("{comparison}");
            ExitCode::from(if comparison.worse.is_empty() { 0 } else { FAILED })
        }
        Err(error) => usage(&error),
    }
}

/// Sends a recorded run to the listeners that `reports` selects, or to the terminal.
fn write_reports(file: &Path, reports: &[String]) -> Result<()> {
    let record = run::read_report(file)?;
    let listeners = if reports.is_empty() { run::listeners(&[]) } else { report::to_files(reports) };
    listeners?.iter_mut().for_each(|listener| record.replay(&mut **listener));
    Ok(())
}

fn explain(spec: &Specification, id: &str) -> Result<()> {
    let text = explain::explanation(spec, id);
    let text = text.with_context(|| {
        format!(
            "'{id}' is not a requirement, a case or a section; `trefoil-conformance list` shows all cases"
        )
    })?;
    print!("{text}");
    Ok(())
}
