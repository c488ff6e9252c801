//! Runs a command for a page.

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::administration::AdminServices;
use crate::administration::execute::execute_command;
use crate::administration::protocol::{AdminCommand, CommandEvent};
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
    let done = Box::pin(execute_command(&services, command, &mut events)).await;
    match done {
        Ok(code) => result.is_success = code == 0,
        Err(error) => result.lines.push(format!("{error:#}")),
    }
    result
}
