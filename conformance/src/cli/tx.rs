//! The command `tx`: runs HL7's terminology ecosystem suite.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;

use super::exit::{FAILED, broken, unreachable, usage};
use crate::tx::{self, SuiteError};

/// Arguments of `tx`.
#[derive(Debug, Args)]
pub struct TxArgs {
    /// Folder with test-cases.json.
    #[arg(long, value_name = "DIR")]
    tests: PathBuf,
    /// FHIR base URL of the server.
    #[arg(long, value_name = "URL")]
    target: String,
    /// Run only this suite. Can be repeated.
    #[arg(long = "suite", value_name = "NAME")]
    suites: Vec<String>,
    /// Run only this operation, such as validate-code. Can be repeated.
    #[arg(long = "operation", value_name = "NAME")]
    operations: Vec<String>,
    /// Also run the tests of this mode, such as flat or snomed. Can be repeated.
    #[arg(long = "mode", value_name = "NAME")]
    modes: Vec<String>,
    /// File with the texts of the server's messages, which the suite calls externals.
    #[arg(long, value_name = "FILE")]
    externals: Option<PathBuf>,
    /// Write a statement of compliance to this file as Markdown.
    #[arg(long, value_name = "FILE")]
    statement: Option<PathBuf>,
    /// Write all results to this file as JSON.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Bearer token to send.
    #[arg(long, value_name = "BEARER")]
    token: Option<String>,
    /// PEM file with certificates to trust in addition to those of the system.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Accept any certificate.
    #[arg(long)]
    insecure: bool,
}

/// Runs the suite and prints its report.
pub fn tx_command(args: TxArgs) -> ExitCode {
    let TxArgs { tests, target, suites, operations, modes, externals, statement, out, token, ca, insecure } =
        args;
    let read =
        |path: PathBuf| std::fs::read(&path).with_context(|| format!("failed to read {}", path.display()));
    let ca_pem = match ca.map(read).transpose() {
        Ok(ca_pem) => ca_pem,
        Err(error) => return usage(&error),
    };
    let options =
        tx::SuiteOptions { tests, target, suites, operations, modes, externals, token, ca_pem, insecure };

    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return broken(&error.into()),
    };
    let report = match runtime.block_on(tx::run(&options)) {
        Ok(report) => report,
        Err(SuiteError::Unreadable(error)) => return usage(&error),
        Err(SuiteError::Server(error)) => {
            return unreachable(&options.target, &format!("{error:#}"));
        }
    };
    println!("{report}");
    let today = jiff::Zoned::now().date();
    let files = [
        (out, format!("{:#}\n", report.json())),
        (statement, tx::statement::statement(&report, &options.target, today)),
    ];
    for (path, text) in files.iter().filter_map(|(path, text)| Some((path.as_ref()?, text))) {
        if let Err(error) =
            std::fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
        {
            return usage(&error);
        }
    }
    ExitCode::from(if report.sum(None).failed > 0 { FAILED } else { 0 })
}
