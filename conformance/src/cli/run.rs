//! The command `run`: tests our own server, or a server that is already up.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, IsTerminal as _, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use jiff::Timestamp;

use super::baseline::{Failures, read_baseline};
use super::exit::{FAILED, INTERRUPTED, UNREACHABLE, broken, unreachable, usage};
use super::interrupts::{interrupt, two_interrupts};
use super::plan::{show_additions, show_plan};
use crate::environment::server::OwnStore;
use crate::environment::target::{TIMEOUT, TargetKind, TestTarget};
use crate::environment::{MAX_WAIT, TestEnvironment, probe, server};
use crate::init;
use crate::profile::Profile;
use crate::report::record::RunRecord;
use crate::report::terminal::TerminalReport;
use crate::report::{self, json};
use crate::run::selection::Selection;
use crate::run::{self, RunEnd, RunListener, RunOptions};
use crate::spec::Specification;
use crate::spec::requirement::Level;

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Base URL of a running server, or texts: only cases run whose id, or a requirement that they cover,
    /// contains one. Without a URL and a profile, a Trefoil server is started.
    #[arg(value_name = "URL|TEXT")]
    words: Vec<String>,
    /// Base URL of a running server.
    #[arg(long, value_name = "URL")]
    target: Option<String>,
    /// Profile of the server: a TOML or JSON file with its clients, users and resources, or the name of a
    /// ready profile.
    #[arg(long, value_name = "FILE|NAME")]
    profile: Option<String>,
    /// PEM file of the certificates to trust, instead of those of the system.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The server is a Trefoil server: test its own rules and pages too.
    #[arg(long)]
    house: bool,
    /// Also run cases that create, change and delete data on the server; what they created is deleted at the
    /// end.
    #[arg(long)]
    write: bool,
    /// Run only cases whose id, or a requirement that they cover, contains this text. Can be repeated.
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Leave out cases whose id, or a requirement that they cover, contains this text. Can be repeated.
    #[arg(long, value_name = "TEXT")]
    skip: Vec<String>,
    /// Lowest level of the requirements that are tested: must for a running server, may for one that is
    /// started.
    #[arg(long, value_enum)]
    level: Option<Level>,
    /// Test what a server should do, like --level should.
    #[arg(long, conflicts_with = "level")]
    strict: bool,
    /// Show which cases would run, and why the others would not.
    #[arg(long, alias = "list")]
    dry_run: bool,
    /// Storage engine of the server that is started.
    #[arg(long, value_enum, default_value_t, conflicts_with = "target")]
    store: OwnStore,
    /// Number of cases that run concurrently.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    jobs: usize,
    /// Run the cases in a random order that this number determines.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Seconds until a response must be complete.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    timeout: u64,
    /// Seconds that a case waits for a server that asks for pauses (Retry-After), or for time to pass on it.
    #[arg(long, value_name = "SECONDS", default_value_t = MAX_WAIT.as_secs())]
    max_wait: u64,
    /// Seconds after which no case is started.
    #[arg(long, value_name = "SECONDS")]
    max_time: Option<u64>,
    /// TOML file with known failures, in the format of `gaps.toml`. A known failure that passes is a failure.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Write the failures of this run as a baseline.
    #[arg(long, value_name = "FILE")]
    write_baseline: Option<PathBuf>,
    /// JSON report of a run that was interrupted: its outcomes are taken over, and the other cases run.
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Also write a report, such as html=FILE. Can be repeated.
    #[arg(long = "report", value_name = "KIND=FILE")]
    reports: Vec<String>,
}

impl RunArgs {
    /// The URL of the target, and the texts that select cases.
    fn target_and_texts(&self) -> Result<(Option<String>, Vec<String>)> {
        let is_url = |word: &&String| word.starts_with("http://") || word.starts_with("https://");
        let (urls, texts): (Vec<_>, Vec<_>) = self.words.iter().partition(is_url);
        let mut urls = urls.into_iter().chain(&self.target).cloned();
        let mut target = urls.next();
        if let Some(second) = urls.next() {
            bail!("a run has one target; {second} is a second one");
        }
        if let (None, Some(name)) = (&target, &self.profile) {
            target = Some(stated_address(&Profile::read(name)?, name)?);
        }
        Ok((target, texts.into_iter().chain(&self.only).cloned().collect()))
    }

    fn options(&self, only: Vec<String>, has_target: bool) -> Result<RunOptions> {
        let usual = if has_target && !self.house { Level::Must } else { Level::May };
        let level = if self.strict { Level::Should } else { self.level.unwrap_or(usual) };
        let earlier = match &self.resume {
            Some(path) => read_report(path)?.outcomes,
            None => Vec::new(),
        };
        let baseline = match &self.baseline {
            Some(path) => read_baseline(path)?,
            None => BTreeMap::new(),
        };
        Ok(RunOptions {
            selection: Selection { only, skip: self.skip.clone(), level, write: self.write || !has_target },
            jobs: self.jobs,
            seed: self.seed,
            baseline,
            earlier,
            deadline: self.max_time.map(|seconds| Instant::now() + Duration::from_secs(seconds)),
            started: Timestamp::now(),
        })
    }
}

/// Reads a profile: a file, or the name of a ready one. Without a name it is empty. `ca` replaces the
/// certificates that it trusts.
///
/// # Errors
/// An error if a file cannot be read or is not valid.
pub fn read_profile(name: Option<&str>, ca: Option<&Path>) -> Result<Profile> {
    let profile = name.map_or_else(|| Ok(Profile::default()), Profile::read)?;
    let Some(path) = ca else { return Ok(profile) };
    let pem = std::fs::read(path).with_context(|| format!("failed to read {}", path.display()))?;
    Ok(Profile { ca_pem: Some(pem), ..profile })
}

/// The address of the server that a profile states.
///
/// # Errors
/// An error if it states none.
pub fn stated_address(profile: &Profile, name: &str) -> Result<String> {
    let url = profile.text("base_url").or(profile.text("fhir_base"));
    let url =
        url.with_context(|| format!("{name} has no base_url or fhir_base; add the URL of the server"))?;
    Ok(url.to_owned())
}

/// Connects to a running server.
///
/// # Errors
/// An error if the server cannot be reached.
pub async fn connect(url: &str, profile: Profile, house: bool, timeout: Duration) -> Result<TestTarget> {
    let kind = if house { TargetKind::Trefoil } else { TargetKind::Other };
    let mut target = TestTarget::connect(url, profile, kind, timeout).await?;
    if kind == TargetKind::Other {
        let members = probe::probe(&target).await;
        target.profile.extend(members);
    }
    Ok(target)
}

/// Prints the profile of a server.
pub fn init_command(spec: &Specification, url: &str, ca: Option<&Path>) -> ExitCode {
    let read =
        |path: &Path| std::fs::read(path).with_context(|| format!("failed to read {}", path.display()));
    let profile = match ca.map(read).transpose() {
        Ok(ca_pem) => Profile { ca_pem, ..Profile::default() },
        Err(error) => return usage(&error),
    };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return broken(&error.into()),
    };
    runtime.block_on(async {
        let mut target = match TestTarget::connect(url, profile, TargetKind::Other, TIMEOUT).await {
            Ok(target) => target,
            Err(error) => {
                return unreachable(url, &format!("{error:#}"));
            }
        };
        let members = probe::probe(&target).await;
        target.profile.extend(members);
        if let Some(path) = ca {
            target.profile.insert("ca".to_owned(), path.display().to_string().into());
        }
        let answers = match std::io::stdin().is_terminal() {
            true => init::questions::ask(&mut std::io::stdin().lock(), &mut std::io::stderr()),
            false => Ok(init::questions::Answers::new()),
        };
        match answers {
            Ok(answers) => print!("{}", init::profile_text(&target, spec, &answers).await),
            Err(error) => return broken(&error.into()),
        }
        ExitCode::SUCCESS
    })
}

/// Reads a JSON report.
///
/// # Errors
/// An error if the file cannot be read or is not a report.
pub fn read_report(path: &Path) -> Result<RunRecord> {
    let file = File::open(path).with_context(|| format!("failed to read {}", path.display()))?;
    json::read(BufReader::new(file)).with_context(|| path.display().to_string())
}

/// Runs the command.
pub fn run_command(spec: &Specification, args: &RunArgs) -> ExitCode {
    let prepared = args.target_and_texts().and_then(|(target, only)| {
        let options = args.options(only, target.is_some())?;
        if options.selection.cases(spec).is_empty() {
            bail!(
                "no case matches {}; `trefoil-conformance list` shows all cases",
                options.selection.only.join(" ")
            );
        }
        Ok((target, options))
    });
    let (target, options) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return usage(&error),
    };
    if args.dry_run && target.is_none() {
        let cases = options.selection.cases(spec);
        cases.iter().for_each(|case| println!("{}", case.id));
        return ExitCode::SUCCESS;
    }
    let listeners = match listeners(&args.reports) {
        Ok(listeners) => listeners,
        Err(error) => return usage(&error),
    };
    match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime.block_on(run_on_target(spec, args, target, &options, listeners)),
        Err(error) => broken(&error.into()),
    }
}

async fn run_on_target(
    spec: &Specification,
    args: &RunArgs,
    target: Option<String>,
    options: &RunOptions,
    mut listeners: Vec<Box<dyn RunListener>>,
) -> ExitCode {
    let mut environment = match &target {
        Some(url) => {
            let profile = match read_profile(args.profile.as_deref(), args.ca.as_deref()) {
                Ok(profile) => profile,
                Err(error) => return usage(&error),
            };
            match connect(url, profile, args.house, Duration::from_secs(args.timeout)).await {
                Ok(target) => TestEnvironment::of(target),
                Err(error) => {
                    return unreachable(url, &format!("{error:#}"));
                }
            }
        }
        None => {
            server::use_store(args.store);
            if stdout().is_terminal() {
                server::survive_interrupts();
            }
            let started = tokio::select! {
                started = TestEnvironment::start() => started,
                () = interrupt() => return ExitCode::from(INTERRUPTED),
            };
            match started {
                Ok(environment) => environment,
                Err(error) => return broken(&error),
            }
        }
    };
    environment.target.max_wait = environment.target.max_wait.map(|_| Duration::from_secs(args.max_wait));
    if args.dry_run {
        show_plan(&environment, spec, &options.selection);
        return ExitCode::SUCCESS;
    }
    let stop = AtomicBool::new(false);
    let failures = Failures::default();
    if args.write_baseline.is_some() {
        listeners.push(Box::new(failures.clone()));
    }
    let end = tokio::select! {
        end = run::run(&environment, spec, options, &stop, &mut listeners) => end,
        () = two_interrupts(&stop) => return ExitCode::from(INTERRUPTED),
    };
    // A closed pipe is not an error.
    drop(show_additions(&mut stdout().lock(), &environment, spec, &options.selection));
    if let Some(path) = &args.write_baseline
        && let Err(error) = failures.write(path)
    {
        return usage(&error);
    }
    exit_code(&end)
}

/// Number of reasons why cases were skipped that are shown.
const SHOWN_REASONS: usize = 6;

/// The exit code of a run.
pub fn exit_code(end: &RunEnd) -> ExitCode {
    match end {
        RunEnd { lost: Some(_), .. } => ExitCode::from(UNREACHABLE),
        RunEnd { interrupted: true, .. } => ExitCode::from(INTERRUPTED),
        end if end.summary.count_of_run() == 0 => {
            match &end.skip_reasons[..] {
                [] => eprintln!("error: nothing was tested: the selection has no case"),
                reasons => {
                    eprintln!("error: nothing was tested: all cases were skipped, because");
                    reasons
                        .iter()
                        .take(SHOWN_REASONS)
                        .for_each(|(reason, count)| eprintln!("  {count:>4}  {reason}"));
                }
            }
            ExitCode::from(UNREACHABLE)
        }
        end if end.summary.is_success() => ExitCode::SUCCESS,
        _ => ExitCode::from(FAILED),
    }
}

/// The listeners that `--report` selects, and the terminal.
///
/// # Errors
/// An error if a kind is not known, or if a file cannot be created.
pub fn listeners(reports: &[String]) -> Result<Vec<Box<dyn RunListener>>> {
    let terminal: Box<dyn RunListener> = Box::new(TerminalReport::of_process());
    Ok(std::iter::once(terminal).chain(report::to_files(reports)?).collect())
}
