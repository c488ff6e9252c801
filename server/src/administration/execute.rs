//! Runs a command for the command line, and reports its answer.

use anyhow::Result;

use super::all_commands::AdminCommand;
use super::command::{Call, Caller};
use super::events::EventSink;
use super::services::AdminServices;

/// Executes a command and returns its exit code.
///
/// # Errors
/// An error that describes the failure and the remedy.
pub async fn execute_command(
    services: &AdminServices<'_>,
    command: AdminCommand,
    events: EventSink<'_>,
) -> Result<u8> {
    let call = Call { services, revision: None, caller: Caller::Present };
    match command.run(&call, events).await {
        Ok(record) => Ok(record.tell(events)),
        Err(error) => Err(error.into_error()),
    }
}
