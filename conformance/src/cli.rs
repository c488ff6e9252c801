//! The program: `run`, `list`, `explain`. Exit codes: 0 passed, 1 failures, 2 usage, 3 the target
//! cannot be reached, 4 the suite itself failed.

use std::fs::File;
use std::io::{BufWriter, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};
use serde_json::Value;

use crate::report::json::JsonLines;
use crate::report::junit::Junit;
use crate::report::terminal::Terminal;
use crate::run::{self, Listener};
use crate::spec::Spec;
use crate::spec::row::{Case, Level};
use crate::world::World;
use crate::world::target::Target;

const UNREACHABLE: u8 = 3;
const BROKEN: u8 = 4;

/// Tries a server against every row of its specification.
#[derive(Debug, Parser)]
#[command(name = "trefoil-conformance", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run cases against a fresh server of ours, or against one that is up.
    #[command(after_help = "Examples:\n  trefoil-conformance run spec/userinfo\n  \
        trefoil-conformance run --target https://id.example --profile demo.json --report junit=out.xml")]
    Run {
        /// Run only cases whose id, or a requirement that they cover, contains one of these.
        filter: Vec<String>,
        /// Base URL of a server that is up; without it one is started.
        #[arg(long, requires = "profile")]
        target: Option<String>,
        /// What may be used there: JSON of the shape of `demo.json`, and `ca`, the path of a PEM.
        #[arg(long, requires = "target")]
        profile: Option<PathBuf>,
        /// Write a report as well: json=FILE or junit=FILE.
        #[arg(long = "report", value_name = "KIND=FILE")]
        reports: Vec<String>,
        /// Show what would run.
        #[arg(long)]
        list: bool,
    },
    /// Show the ids of all cases, or of those that fit.
    #[command(after_help = "Example:\n  trefoil-conformance list spec/authorize")]
    List {
        /// Part of an id.
        filter: Vec<String>,
    },
    /// Show a requirement with its cases, or a case with its requirements.
    #[command(after_help = "Example:\n  trefoil-conformance explain spec/authorize/redirect-uri-exact")]
    Explain {
        /// Id of a requirement or case.
        id: String,
    },
}

/// Runs the program.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let spec = match Spec::load() {
        Ok(spec) => spec,
        Err(error) => return broken(&error.into()),
    };
    let done = match cli.command {
        Command::List { filter } | Command::Run { filter, list: true, .. } => list(&spec, &filter),
        Command::Explain { id } => explain(&spec, &id),
        Command::Run { filter, target, profile, reports, .. } => {
            return run_cases(&spec, &filter, target.zip(profile), &reports);
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

fn selected<'a>(spec: &'a Spec, filter: &'a [String]) -> Result<Vec<&'a Case>> {
    let cases: Vec<_> = spec.select(filter).collect();
    if cases.is_empty() {
        bail!("no case fits {}; `trefoil-conformance list` shows all", filter.join(" "));
    }
    Ok(cases)
}

fn list(spec: &Spec, filter: &[String]) -> Result<()> {
    for case in selected(spec, filter)? {
        println!("{}", case.id);
    }
    Ok(())
}

fn explain(spec: &Spec, id: &str) -> Result<()> {
    let case = spec.cases.iter().find(|case| case.id == id);
    let shown: Vec<_> = match case {
        Some(case) => spec.requirements.iter().filter(|r| case.covers.contains(&r.id)).collect(),
        None => spec.requirements.iter().filter(|r| r.id == id).collect(),
    };
    if shown.is_empty() {
        bail!("'{id}' is neither a requirement nor a case; `trefoil-conformance list` shows all cases");
    }
    for requirement in shown {
        let level = match requirement.level {
            Level::Must => "MUST",
            Level::Should => "SHOULD",
            Level::May => "MAY",
        };
        println!("{}  {level}\n  {}\n  {}", requirement.id, requirement.gist, requirement.link);
        for case in spec.cases.iter().filter(|case| case.covers.contains(&requirement.id)) {
            println!("  case {}", case.id);
        }
    }
    if let Some(case) = case {
        println!("\n{}", case.id);
        println!(
            "  given {}",
            if case.given.is_empty() { "nothing".to_owned() } else { case.given.join(", ") }
        );
        for (at, step) in case.steps().iter().enumerate() {
            let method = step.request.method.as_deref().unwrap_or("GET");
            println!("  {}. {method} {}", at + 1, step.request.path);
        }
    }
    Ok(())
}

/// The listeners of `--report`.
fn listeners(reports: &[String]) -> Result<Vec<Box<dyn Listener>>> {
    let mut listeners: Vec<Box<dyn Listener>> = vec![Box::new(Terminal::new(stdout()))];
    for report in reports {
        let (kind, path) =
            report.split_once('=').with_context(|| format!("--report '{report}' must be KIND=FILE"))?;
        let create =
            || File::create(path).map(BufWriter::new).with_context(|| format!("failed to write {path}"));
        match kind {
            "json" => listeners.push(Box::new(JsonLines(create()?))),
            "junit" => listeners.push(Box::new(Junit::new(create()?))),
            _ => bail!("--report '{kind}' is not known; use json or junit"),
        }
    }
    Ok(listeners)
}

fn run_cases(
    spec: &Spec,
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
                Ok(target) => World::of(target),
                Err(error) => {
                    eprintln!("error: {base_url} cannot be tried: {error:#}");
                    return ExitCode::from(UNREACHABLE);
                }
            },
            None => match World::start().await {
                Ok(world) => world,
                Err(error) => return broken(&error),
            },
        };
        let summary = run::run(&world, spec, &cases, &mut listeners).await;
        ExitCode::from(u8::from(summary.failed > 0))
    })
}

async fn connect(base_url: &str, profile: &std::path::Path) -> Result<Target> {
    let text = std::fs::read(profile).with_context(|| format!("failed to read {}", profile.display()))?;
    let profile: Value = serde_json::from_slice(&text).context("the profile is no JSON")?;
    let Value::Object(profile) = profile else { bail!("the profile is no JSON object") };
    let ca = match profile.get("ca").and_then(Value::as_str) {
        Some(path) => Some(std::fs::read(path).with_context(|| format!("failed to read the CA {path}"))?),
        None => None,
    };
    Target::connect(base_url, ca.as_deref(), profile).await
}
