//! `trefoil export`: writes resources to a folder, by the same rules as an export over HTTP but without a job
//! or a client.

use anyhow::Result;
use bulk::serve::operator;

use super::protocol::{CommandEvent, OperatorExport};
use super::services::{AdminServices, EventSink};

/// Runs an export and reports the number of resources of each type.
///
/// # Errors
/// An error if the request is not valid or a file cannot be written.
pub async fn run_export(
    services: &AdminServices<'_>,
    export: OperatorExport,
    events: EventSink<'_>,
) -> Result<()> {
    let base = services.resources.fhir_base();
    let request = operator::request(export.group, export.since, export.types);
    let store = services.resources.store();
    let progress = |kind: &str, count: u64| events(CommandEvent::Progress(format!("{kind}: {count}")));
    let written = operator::export(store, base, request, &export.out, services.clock.now(), progress).await?;
    for (kind, count) in &written {
        events(CommandEvent::Line(format!("{kind:<28} {count:>9}")));
    }
    let total: u64 = written.iter().map(|(_, count)| count).sum();
    events(CommandEvent::Line(format!("{:<28} {total:>9}  in {}", "total", export.out.display())));
    Ok(())
}
