//! The commands about imported releases of code systems.

use anyhow::{Result, bail};
use serde_json::json;

use super::protocol::{CommandEvent, ReleaseCommand};
use super::services::{AdminServices, EventSink};
use crate::node::releases::{Releases, RemoveReleaseError, ShownRelease};
use crate::node::saved_indexes::SavedIndexes;

/// Executes `trefoil release …`.
///
/// # Errors
/// An error that describes the failure and the remedy.
pub async fn execute_release_command(
    services: &AdminServices<'_>,
    command: ReleaseCommand,
    events: EventSink<'_>,
) -> Result<()> {
    let releases = Releases { indexes: SavedIndexes::open(services.data)?, resources: services.resources };
    match command {
        ReleaseCommand::List => {
            let all = releases.list().await?;
            if all.is_empty() {
                events(CommandEvent::Trouble("no release is imported".to_owned()));
            }
            for release in all {
                let json = json!(release);
                let ShownRelease { id, concepts, imported, url, version, .. } = release;
                let version = version.unwrap_or_else(|| "no version".to_owned());
                let text = format!("{id}  {concepts}  {imported}  {url}  {version}");
                events(CommandEvent::Record { text, json });
            }
        }
        ReleaseCommand::Show { id } => {
            let Some((release, named_by)) = releases.show(&id).await? else {
                bail!(RemoveReleaseError::Unknown(id));
            };
            let mut shown = json!(release);
            shown["named_by"] = json!(named_by);
            events(CommandEvent::Record { text: serde_json::to_string_pretty(&shown)?, json: shown });
        }
        ReleaseCommand::Remove { id, force } => {
            releases.remove(&id, force, services.app, services.audit, services.clock).await?;
            events(CommandEvent::Line(format!("removed {id}")));
        }
    }
    Ok(())
}
