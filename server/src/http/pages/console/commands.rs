//! Runs a command for a page.

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::administration::AdminServices;
use crate::administration::all_commands::{AdminCommand, COMMANDS};
use crate::administration::events::CommandEvent;
use crate::administration::execute::execute_command;
use crate::node::app::App;

/// The result of a command.
#[derive(Debug, Default)]
pub(super) struct CommandResult {
    /// Lines of the result, of errors and warnings, in their order.
    pub lines: Vec<String>,
    /// The same results as JSON.
    pub records: Vec<Value>,
    /// Whether the command succeeded.
    pub is_success: bool,
}

/// Runs a command.
pub(super) async fn run(app: &App, command: AdminCommand) -> CommandResult {
    let stop = CancellationToken::new();
    let services = AdminServices::of_running(app, &stop);
    let mut result = CommandResult::default();
    let mut events = |event| match event {
        CommandEvent::Line(line) | CommandEvent::Trouble(line) => result.lines.push(line),
        CommandEvent::Record { text, json } => {
            result.lines.push(text);
            result.records.push(json);
        }
        CommandEvent::Progress(_) | CommandEvent::Reading { .. } | CommandEvent::Exit(_) => {}
    };
    let execution = Box::pin(execute_command(&services, command, &mut events)).await;
    match execution {
        Ok(code) => result.is_success = code == 0,
        Err(error) => result.lines.push(format!("{error:#}")),
    }
    result
}

/// Runs a command without members, such as `user list`, and returns its records.
pub(super) async fn records(app: &App, group: Option<&str>, name: &str) -> Vec<Value> {
    records_of(app, group, name, json!({})).await
}

/// Runs a command that reads, and returns its records.
pub(super) async fn records_of(app: &App, group: Option<&str>, name: &str, members: Value) -> Vec<Value> {
    let row = COMMANDS.iter().find(|row| row.group == group && row.name == name);
    let row = row.expect("the table has the commands of the pages");
    match (row.from_members)(members) {
        Ok(command) => run(app, command).await.records,
        Err(_) => Vec::new(),
    }
}
