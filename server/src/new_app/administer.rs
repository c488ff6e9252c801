//! Commands of the administration inside of another command: the same words as on the command line.

use anyhow::{Result, bail};
use clap::Parser;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::administration::arguments::{AdminSubcommand, DataArgs};
use crate::administration::perform;
use crate::administration::protocol::CommandEvent;

/// A command line with the commands of the administration only.
#[derive(Parser)]
struct AdminLine {
    #[command(subcommand)]
    command: AdminSubcommand,
}

/// Runs a command on the data folder or in its running server, such as `["client", "show", "app"]`. Returns
/// its results.
///
/// # Errors
/// The error of the command.
pub async fn administer(data: &DataArgs, words: &[&str]) -> Result<Vec<Value>> {
    let folder = data.data.display().to_string();
    let mut line = vec!["trefoil"];
    line.extend(words);
    line.extend(["--data", &folder]);
    let config = data.config.as_ref().map(|path| path.display().to_string());
    for (flag, value) in [("--config", &config), ("--store", &data.store)] {
        line.extend(value.iter().flat_map(|value| [flag, value.as_str()]));
    }
    let AdminLine { command } = AdminLine::try_parse_from(line)?;
    let (data, command) = command.into_command(|| bail!("a password is not needed"));
    let mut results = Vec::new();
    let mut collect = |event: CommandEvent| match event {
        CommandEvent::Record { json, .. } => results.push(json),
        CommandEvent::Trouble(text) => eprintln!("{text}"),
        _ => {}
    };
    let code = perform(&data, command?, &CancellationToken::new(), &mut collect).await?;
    if code != 0 {
        bail!("'trefoil {}' ended with exit code {code}", words.join(" "));
    }
    Ok(results)
}
