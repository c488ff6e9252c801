//! Commands of the administration inside of another command: the same words as on the command line.

use anyhow::{Result, bail};
use clap::Parser;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::administration::all_commands::AdminLine;
use crate::administration::arguments::DataArgs;
use crate::administration::events::CommandEvent;
use crate::administration::perform;

/// A command line with the commands of the administration only.
#[derive(Parser)]
struct AdminProgram {
    #[command(subcommand)]
    line: AdminLine,
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
    let AdminProgram { line: AdminLine { data, command } } = AdminProgram::try_parse_from(line)?;
    let mut results = Vec::new();
    let mut collect = |event: CommandEvent| match event {
        CommandEvent::Record { json, .. } => results.push(json),
        CommandEvent::Trouble(text) => eprintln!("{text}"),
        _ => {}
    };
    let code = perform(&data, command, &CancellationToken::new(), &mut collect).await?;
    if code != 0 {
        bail!("'trefoil {}' ended with exit code {code}", words.join(" "));
    }
    Ok(results)
}
