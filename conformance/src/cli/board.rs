//! The command `board`: tests several servers, and writes one page that compares them.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use jiff::Timestamp;

use super::exit::{FAILED, broken, usage};
use crate::board::{BoardColumn, BoardConfig, BoardHistory, page, run_board};
use crate::spec::Specification;

/// Arguments of `board`.
#[derive(Debug, Args)]
pub struct BoardArgs {
    /// TOML file with the servers.
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    /// HTML page to write.
    #[arg(long, value_name = "FILE", default_value = "board.html")]
    out: PathBuf,
    /// File with the results of earlier runs, one JSON object on each line; this run is added.
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
}

/// Runs the command. The exit code is 1 if a server failed a case that is not judged, or was not tested.
pub fn board_command(spec: &Specification, args: &BoardArgs) -> ExitCode {
    let prepared = BoardConfig::read(&args.config).and_then(|config| {
        let history =
            args.history.as_deref().map_or_else(|| Ok(BoardHistory::default()), BoardHistory::read)?;
        Ok((config, history))
    });
    let (config, mut history) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return usage(&error),
    };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return broken(&error.into()),
    };
    let run = async {
        let columns = run_board(spec, &config, &mut history, |line| println!("{line}")).await?;
        let page = page(&columns, Timestamp::now());
        std::fs::write(&args.out, page).with_context(|| format!("failed to write {}", args.out.display()))?;
        if let Some(path) = &args.history {
            history.append(path)?;
        }
        println!("wrote {}", args.out.display());
        let is_known = |column: &BoardColumn| {
            column.record.as_ref().is_ok_and(|record| {
                record.failures().all(|(outcome, _)| column.judged.contains_key(&outcome.id))
            })
        };
        Ok::<bool, anyhow::Error>(columns.iter().all(is_known))
    };
    let result: Result<bool> = runtime.block_on(run);
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FAILED),
        Err(error) => usage(&error),
    }
}
