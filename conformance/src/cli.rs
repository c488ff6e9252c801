//! The command line: `run`, `list`, `explain` and `tx`. Exit codes: 0 for success, 1 for failed cases, 2 for a usage
//! error, 3 if the target cannot be reached, 4 if the suite itself failed.

use std::fs::File;
use std::io::{BufWriter, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};
use serde_json::Value;

use crate::environment::TestEnvironment;
use crate::environment::target::TestTarget;
use crate::explain;
use crate::report::json::JsonLines;
use crate::report::junit::JunitReport;
use crate::report::terminal::TerminalReport;
use crate::run::{self, RunListener};
use crate::spec::Specification;
use crate::spec::case::Case;
use crate::tx::{self, SuiteError};

const UNREACHABLE: u8 = 3;
const BROKEN: u8 = 4;

/// Tests a server against the rows of its specification.
#[derive(Debug, Parser)]
#[command(name = "trefoil-conformance", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run cases against a new Trefoil server, or against a running server.
    #[command(after_help = "Examples:\n  trefoil-conformance run spec/userinfo\n  \
        trefoil-conformance run --target https://id.example --profile demo.json --report junit=out.xml")]
    Run {
        /// Run only cases whose id, or a requirement that they cover, contains one of these texts.
        filter: Vec<String>,
        /// Base URL of a running server. Without it, a server is started.
        #[arg(long, requires = "profile")]
        target: Option<String>,
        /// JSON file with users, clients and resources of the target, in the format of `demo.json`. Its member `ca` is
        /// the path of a PEM file.
        #[arg(long, requires = "target")]
        profile: Option<PathBuf>,
        /// Also write a report: json=FILE or junit=FILE. Can be repeated.
        #[arg(long = "report", value_name = "KIND=FILE")]
        reports: Vec<String>,
        /// List the selected cases without running them.
        #[arg(long)]
        list: bool,
    },
    /// List the ids of all cases, or of the selected cases.
    #[command(after_help = "Example:\n  trefoil-conformance list spec/authorize")]
    List {
        /// Text that the ids contain.
        filter: Vec<String>,
    },
    /// Show a requirement with its cases, a case with its requests and expectations, or all requirements of a section.
    #[command(after_help = "Example:\n  trefoil-conformance explain spec/authorize/redirect-uri-exact")]
    Explain {
        /// Id of a requirement or case, or the beginning of an id, such as design/subsumes.
        id: String,
    },
    /// Run HL7's terminology ecosystem suite against a FHIR R4 server.
    #[command(after_help = "Example:\n  trefoil-conformance tx --tests fhir-tx-ecosystem-ig/tests \
        --target http://localhost:8080/fhir/R4 --suite version")]
    Tx {
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
    },
}

/// Runs the program with the arguments of the process.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let spec = match Specification::load() {
        Ok(spec) => spec,
        Err(error) => return broken(&error.into()),
    };
    let done = match cli.command {
        Command::List { filter } | Command::Run { filter, list: true, .. } => list(&spec, &filter),
        Command::Explain { id } => explain(&spec, &id),
        Command::Run { filter, target, profile, reports, .. } => {
            return run_cases(&spec, &filter, target.zip(profile), &reports);
        }
        Command::Tx { tests, target, suites, operations, out, token, ca, insecure } => {
            let ca_pem = ca.map(|path| {
                std::fs::read(&path).with_context(|| format!("failed to read {}", path.display()))
            });
            return match ca_pem.transpose() {
                Ok(ca_pem) => {
                    let options =
                        tx::SuiteOptions { tests, target, suites, operations, token, ca_pem, insecure };
                    run_tx(&options, out.as_deref())
                }
                Err(error) => usage(&error),
            };
        }
    };
    done.map_or_else(|error| usage(&error), |()| ExitCode::SUCCESS)
}

fn broken(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::from(BROKEN)
}

fn usage(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::from(2)
}

fn selected<'a>(spec: &'a Specification, filter: &'a [String]) -> Result<Vec<&'a Case>> {
    let cases: Vec<_> = spec.select(filter).collect();
    if cases.is_empty() {
        bail!("no case matches {}; `trefoil-conformance list` shows all cases", filter.join(" "));
    }
    Ok(cases)
}

fn list(spec: &Specification, filter: &[String]) -> Result<()> {
    for case in selected(spec, filter)? {
        println!("{}", case.id);
    }
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

/// Returns the listeners that `--report` selects.
fn listeners(reports: &[String]) -> Result<Vec<Box<dyn RunListener>>> {
    let mut listeners: Vec<Box<dyn RunListener>> = vec![Box::new(TerminalReport::new(stdout()))];
    for report in reports {
        let (kind, path) =
            report.split_once('=').with_context(|| format!("--report '{report}' must be KIND=FILE"))?;
        let create =
            || File::create(path).map(BufWriter::new).with_context(|| format!("failed to write {path}"));
        match kind {
            "json" => listeners.push(Box::new(JsonLines(create()?))),
            "junit" => listeners.push(Box::new(JunitReport::new(create()?))),
            _ => bail!("--report '{kind}' is not known; use json or junit"),
        }
    }
    Ok(listeners)
}

fn run_cases(
    spec: &Specification,
    filter: &[String],
    target: Option<(String, PathBuf)>,
    reports: &[String],
) -> ExitCode {
    let (cases, mut listeners) =
        match selected(spec, filter).and_then(|cases| Ok((cases, listeners(reports)?))) {
            Ok(ready) => ready,
            Err(error) => return usage(&error),
        };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return broken(&error.into()),
    };
    runtime.block_on(async {
        let world = match target {
            Some((base_url, profile)) => match connect(&base_url, &profile).await {
                Ok(target) => TestEnvironment::of(target),
                Err(error) => {
                    eprintln!("error: {base_url} cannot be tested: {error:#}");
                    return ExitCode::from(UNREACHABLE);
                }
            },
            None => match TestEnvironment::start().await {
                Ok(world) => world,
                Err(error) => return broken(&error),
            },
        };
        let summary = run::run(&world, spec, &cases, &mut listeners).await;
        ExitCode::from(u8::from(summary.failed > 0))
    })
}

/// Runs HL7's terminology suite and prints its report.
fn run_tx(options: &tx::SuiteOptions, out: Option<&Path>) -> ExitCode {
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return broken(&error.into()),
    };
    let report = match runtime.block_on(tx::run(options)) {
        Ok(report) => report,
        Err(SuiteError::Unreadable(error)) => return usage(&error),
        Err(SuiteError::Server(error)) => {
            eprintln!("error: {} cannot be tested: {error:#}", options.target);
            return ExitCode::from(UNREACHABLE);
        }
    };
    println!("{report}");
    if let Some(path) = out
        && let Err(error) = std::fs::write(path, format!("{:#}\n", report.json()))
            .with_context(|| format!("failed to write {}", path.display()))
    {
        return usage(&error);
    }
    ExitCode::from(u8::from(report.sum(None).failed > 0))
}

async fn connect(base_url: &str, profile: &std::path::Path) -> Result<TestTarget> {
    let text = std::fs::read(profile).with_context(|| format!("failed to read {}", profile.display()))?;
    let profile: Value = serde_json::from_slice(&text).context("the profile is not valid JSON")?;
    let Value::Object(profile) = profile else { bail!("the profile is not a JSON object") };
    let ca = match profile.get("ca").and_then(Value::as_str) {
        Some(path) => Some(std::fs::read(path).with_context(|| format!("failed to read the CA {path}"))?),
        None => None,
    };
    TestTarget::connect(base_url, ca.as_deref(), profile).await
}
