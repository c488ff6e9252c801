//! `trefoil export`: writes resources to a folder, by the same rules as an export over HTTP but without a job
//! or a client.

use std::path::Path;

use anyhow::Result;
use bulk::KickOff;
use bulk::serve::operator;

use super::events::{CommandEvent, EventSink};
use super::services::AdminServices;

/// Runs an export and reports the numbers of resources of each type, of deletions and of notes.
///
/// # Errors
/// An error if the request is not valid or a file cannot be written.
pub async fn run_export(
    services: &AdminServices<'_>,
    out: &Path,
    request: KickOff,
    events: EventSink<'_>,
) -> Result<()> {
    let base = services.resources.fhir_base();
    let store = services.resources.store();
    let progress = |kind: &str, count: u64| events(CommandEvent::Progress(format!("{kind}: {count}")));
    let summary = operator::export(store, base, request, out, services.clock.now(), progress).await?;
    let mut line = |what: &str, count: u64, more: &str| {
        events(CommandEvent::Line(format!("{what:<28} {count:>9}{more}")));
    };
    for (kind, count) in &summary.resources {
        line(kind, *count, "");
    }
    let total = summary.resources.iter().map(|(_, count)| count).sum();
    line("total", total, &format!("  in {}", out.display()));
    if summary.deleted > 0 {
        line("deleted", summary.deleted, "  in deleted.ndjson");
    }
    if summary.notes > 0 {
        line("notes about the Group", summary.notes, "  in error.ndjson");
    }
    Ok(())
}
