//! `trefoil export`: resources into a folder, by the rules of an export over HTTP but without a job or a client.

use anyhow::Result;
use bulk::operator;

use super::{Event, Events, Services};
use crate::cli::ExportArgs;

/// Exports, with a line for each type at the end.
///
/// # Errors
/// What cannot be exported, and files that cannot be written.
pub async fn run(services: &Services<'_>, args: ExportArgs, events: Events<'_>) -> Result<()> {
    let base = services.resources.fhir_base();
    let request = operator::request(args.group, args.since, args.types);
    let store = services.resources.store();
    let progress = |kind: &str, count: u64| events(Event::Progress(format!("{kind}: {count}")));
    let written = operator::export(store, base, request, &args.out, services.clock.now(), progress).await?;
    for (kind, count) in &written {
        events(Event::Line(format!("{kind:<28} {count:>9}")));
    }
    let total: u64 = written.iter().map(|(_, count)| count).sum();
    events(Event::Line(format!("{:<28} {total:>9}  in {}", "total", args.out.display())));
    Ok(())
}
