//! `trefoil restore` and `trefoil copy`: fill an empty store, and end what must not live twice.

use std::path::{PathBuf, absolute};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use backup::manifest::Manifest;
use backup::{RestoreReport, RestoreSelection, StorePurpose, verify};
use bulk::serve::archive::fail_open_jobs;
use jiff::Timestamp;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::administration::Console;
use crate::administration::accept_restored::end_sessions;
use crate::administration::all_commands::AdminCommand;
use crate::administration::arguments::DataArgs;
use crate::administration::backups::progress_text;
use crate::administration::copy::{
    CopySource, CopyTarget, FAILURE_SHOWN, StoreCopy, copy_between, open_target,
};
use crate::administration::events::{CommandEvent, EventSink};
use crate::administration::socket::{send_command, wait_for_end};
use crate::clock::Clock;
use crate::config::{Config, ServeFlags, exit_code};
use crate::node::backups::BackupSources;
use crate::node::data_folder::require_store;
use crate::node::store_state::check_usable;

/// The failure of an export that was running at the moment of the backup.
const EXPORT_ENDED: &str =
    "the server was restored from a backup while this export was running; start it again";

/// Options of `restore`.
#[derive(Debug, clap::Args)]
pub struct RestoreArgs {
    /// The target: a new data folder, or an empty database with a new data folder.
    #[command(flatten)]
    pub data: DataArgs,
    /// Folder with the backups, or s3://BUCKET/PREFIX [default: that of `[backup] to`]
    #[arg(long, value_name = "LOCATION")]
    pub from: Option<String>,
    /// File with the key of an encrypted backup [default: that of `[backup] key_file`]
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Id of the backup [default: the last one]
    #[arg(long, value_name = "ID")]
    pub backup: Option<String>,
    /// Restore resources as they were at this instant, and everything else as of the last backup before it
    #[arg(long, value_name = "INSTANT")]
    pub at: Option<Timestamp>,
    /// Keep sessions, codes, refresh tokens and pushed requests, although some may have been used or revoked
    /// after the backup
    #[arg(long)]
    pub keep_sessions: bool,
    /// Id of the store whose backups are considered, if the location has those of several
    #[arg(long, value_name = "ID")]
    pub store_id: Option<String>,
    /// The restored store takes the place of the earlier one: its backups by schedule and their retention
    /// continue
    #[arg(long = "continue", conflicts_with = "drill")]
    pub continues: bool,
    /// The restored store is a trial: it makes no backups by schedule
    #[arg(long)]
    pub drill: bool,
    /// Read everything that a restore reads and compare it with its digests, but write nothing
    #[arg(long, conflicts_with_all = ["continues", "drill"])]
    pub verify: bool,
    /// List the backups instead
    #[arg(long, conflicts_with_all = ["verify", "at", "keep_sessions", "backup", "continues", "drill"])]
    pub list: bool,
}

/// Options of `copy`.
#[derive(Debug, clap::Args)]
pub struct CopyArgs {
    /// The source: its data folder, and its store if that is a database. A server that runs on the folder
    /// copies its store itself. All servers of the source stop after that.
    #[command(flatten)]
    pub data: DataArgs,
    /// The target.
    #[command(flatten)]
    pub copy: StoreCopy,
}

/// Restores a store and returns the exit code.
pub async fn run_restore(args: RestoreArgs) -> ExitCode {
    let console = Console::new(args.data.output);
    report(Box::pin(restore(args, &console)).await, console)
}

/// Copies a store and returns the exit code.
pub async fn run_copy(args: CopyArgs) -> ExitCode {
    let console = Console::new(args.data.output);
    let copied = Box::pin(copy(args, &console)).await;
    match copied {
        Ok(code) => {
            console.clear();
            code
        }
        Err(error) => report(Err(error), console),
    }
}

fn report(result: Result<()>, console: Console) -> ExitCode {
    console.clear();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            exit_code(&error)
        }
    }
}

fn load(args: &DataArgs) -> Result<(Config, ServeFlags)> {
    let flags = args.serve_flags();
    Ok((Config::load(&flags)?, flags))
}

async fn restore(args: RestoreArgs, console: &Console) -> Result<()> {
    let (config, flags) = load(&args.data)?;
    let mut sources = BackupSources::new(&config, &flags);
    if let Some(path) = &args.key_file {
        sources.use_key_file(path)?;
    }
    let location = sources.location(args.from.as_deref(), false)?;
    if args.list {
        let is_of_store = |id: &str| args.store_id.as_deref().is_none_or(|store| store == id);
        for backup in location.backups().await?.into_iter().filter(|backup| is_of_store(&backup.store_id)) {
            console.print_event(CommandEvent::Record { text: list_line(&backup), json: json!(backup) });
        }
        return Ok(());
    }
    let left_out = if args.keep_sessions { identity::NEVER_COPIED } else { identity::ENDED_BY_RESTORE };
    let purpose = match (args.continues, args.drill) {
        (true, _) => StorePurpose::Successor,
        (_, true) => StorePurpose::Drill,
        _ => StorePurpose::Undecided,
    };
    let (backup, at, store) = (args.backup, args.at, args.store_id);
    let selection = RestoreSelection { backup, at, store, purpose, left_out };
    let mut progress = |so_far| console.print_event(CommandEvent::Progress(progress_text(so_far)));
    if args.verify {
        let verified = verify(&location, &selection, &mut progress).await?;
        let id = verified.backup.id;
        let content = verified.content.with_context(|| format!("the backup {id} cannot be restored"))?;
        let text = format!("the backup {id} is complete: {}", progress_text(content));
        console.print_event(CommandEvent::Record { text, json: json!({ "backup": id, "complete": true }) });
        return Ok(());
    }
    let clock = Clock::system();
    let (store, _lock) = open_target(&config.engine, &config.data, false).await?;
    let targets = sources.targets(&store.id()).context("failed to open the folder of the files")?;
    let now = clock.now();
    let mut ended_sessions = 0;
    // Before the store can be opened: a spent code or a revoked token must not be valid for a moment.
    let finish = async |moment| {
        bulk::record_restore(&store, moment, clock.now()).await?;
        if !args.keep_sessions {
            end_sessions(store.clone(), &clock).await?;
        }
        ended_sessions = fail_open_jobs(&store, EXPORT_ENDED, FAILURE_SHOWN, clock.now()).await?;
        Ok(())
    };
    let report = backup::restore(&location, &selection, &store, targets, finish, now, &mut progress).await?;
    let text = report_lines(&report, ended_sessions, args.keep_sessions, purpose);
    let RestoreReport { backup, resources_until, is_between, done } = report;
    let json = json!({
        "backup": backup.id, "moment": backup.time, "resources_until": resources_until, "is_between": is_between,
        "versions": done.versions, "records": done.records, "files": done.files, "ended_exports": ended_sessions,
    });
    console.print_event(CommandEvent::Record { text, json });
    Ok(())
}

/// Opens the store that is filled, and reserves the data folder of a node on a database.
fn list_line(backup: &Manifest) -> String {
    format!(
        "{}  {}  {:>10} versions  {:>8} records  {:>5} files  {}",
        backup.id,
        backup.store_id,
        backup.versions(),
        backup.records(),
        backup.files.len(),
        backup.kind()
    )
}

fn report_lines(
    report: &RestoreReport,
    ended_exports: usize,
    keeps_sessions: bool,
    purpose: StorePurpose,
) -> String {
    let RestoreReport { backup, resources_until, is_between, done } = report;
    let mut lines = vec![
        format!("restored      {}", progress_text(*done)),
        format!("backup        {} of {}", backup.id, backup.time),
    ];
    if let (true, Some(until)) = (is_between, resources_until) {
        lines.push(format!(
            "resources     until {until}; users, clients and all other records are those of {}",
            backup.time
        ));
    }
    if ended_exports > 0 {
        lines.push(format!("exports       {ended_exports} were running and have ended"));
    }
    lines.push(match keeps_sessions {
        true => "sessions      kept: spent codes and revoked tokens from after the backup may be valid again"
            .to_owned(),
        false => "sessions      ended: users and apps sign in again".to_owned(),
    });
    lines.push(match purpose {
        StorePurpose::Successor => "backups       continue in the place of the earlier store".to_owned(),
        StorePurpose::Drill => "backups       none by schedule, because this store is a drill".to_owned(),
        StorePurpose::Undecided => {
            "backups       none by schedule until you run `trefoil store backups --continue` or `--drill`"
                .to_owned()
        }
    });
    lines.join("\n")
}

async fn copy(args: CopyArgs, console: &Console) -> Result<ExitCode> {
    let CopyArgs { data, copy: StoreCopy { to, to_data, keep_source } } = args;
    let to = match to.strip_prefix("file:") {
        Some(folder) => format!("file:{}", absolute(folder)?.display()),
        None => to,
    };
    // The running server has another current folder.
    let to_data = to_data.map(absolute).transpose()?;
    let copy = StoreCopy { to, to_data, keep_source };
    let mut events = |event| console.print_event(event);
    let command = AdminCommand::Copy(copy.clone());
    match send_command(&data.data, &command, &CancellationToken::new(), &mut events).await? {
        Some(code) => {
            if code == 0 && !keep_source {
                // The next command may start it with the new store.
                wait_for_end(&data.data).await;
            }
            return Ok(ExitCode::from(code));
        }
        None => Box::pin(copy_stopped(&data, &copy, &mut events)).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Copies the store of a stopped server.
async fn copy_stopped(data: &DataArgs, copy: &StoreCopy, events: EventSink<'_>) -> Result<()> {
    let (config, flags) = load(data)?;
    let engine = require_store(config.engine.clone(), &config.data)?;
    let target = CopyTarget::of(copy, &config, &flags)?;
    let source = engine.open(&config.data).await.context("failed to open the source")?;
    let clock = Clock::system();
    check_usable(&source, clock.now()).await?;
    let files = BackupSources::new(&config, &flags);
    let source = CopySource { store: &source, config: &config, files: &files, is_running: false };
    Box::pin(copy_between(source, target, async || Ok(()), &clock, events)).await
}
