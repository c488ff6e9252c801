//! `trefoil backup`: a backup of the store, while the server runs or not.

use anyhow::Result;
use backup::{Manifest, Progress};
use indicatif::HumanBytes;
use serde_json::json;

use super::events::{CommandEvent, EventSink};
use super::services::AdminServices;

/// Makes a backup and reports it. Old backups stay: the schedule removes them.
///
/// # Errors
/// An error if the store cannot be read or the location not written.
pub async fn run_backup(
    services: &AdminServices<'_>,
    to: Option<String>,
    full: bool,
    events: EventSink<'_>,
) -> Result<u8> {
    let (sources, store, now) = (services.backups, services.resources.store(), services.clock.now());
    let location = sources.location(to.as_deref(), true)?;
    let mut progress = |so_far| events(CommandEvent::Progress(progress_text(so_far)));
    let manifest = sources.back_up(store, &location, full, now, &mut progress).await?;
    let text = manifest_lines(&manifest, location.name());
    events(CommandEvent::Record { text, json: json!(manifest) });
    Ok(0)
}

/// The progress in words.
pub fn progress_text(progress: Progress) -> String {
    let Progress { versions, records, files } = progress;
    format!("{versions} versions, {records} records, {files} files")
}

/// A backup, as people read it.
fn manifest_lines(manifest: &Manifest, location: &str) -> String {
    let rows = [
        ("backup", manifest.id.clone()),
        ("in", location.to_owned()),
        ("kind", manifest.kind()),
        ("moment", format!("{}, sequence {}", manifest.time, manifest.seq)),
        ("versions", manifest.versions().to_string()),
        ("records", manifest.records().to_string()),
        ("files", manifest.files.len().to_string()),
        ("size", HumanBytes(manifest.bytes()).to_string()),
    ];
    rows.map(|(name, value)| format!("{name:12}  {value}")).join("\n")
}
