//! `trefoil import`: files and folders into the store, with a durable line of progress per 1,000
//! lines and a report by type at the end.

use std::path::PathBuf;

use anyhow::{Result, bail};
use resources::{Bad, ImportOptions, Progress, Report};

use super::{Event, Events, Services};
use crate::clock::resource_id;

/// Bad inputs that are printed one by one.
const PRINTED: usize = 100;

/// Imports; exit code 1 where something could not be imported.
///
/// # Errors
/// A path that is not there; the store's.
pub async fn run(services: &Services<'_>, paths: Vec<PathBuf>, events: Events<'_>) -> Result<u8> {
    if let Some(missing) = paths.iter().find(|path| !path.exists()) {
        bail!("there is no {}", missing.display());
    }
    let random = services.clock.random.clone();
    let new_id = move || resource_id(&*random);
    let mut printed = 0;
    let progress = |event: Progress| match event {
        // What is said here is on the disk.
        Progress::Lines { file, lines } => events(Event::Progress(format!("{file}: {lines} lines"))),
        Progress::Bad(bad) => {
            printed += 1;
            if printed <= PRINTED {
                events(Event::Trouble(describe(&bad)));
            }
        }
        Progress::File { .. } | Progress::Done { .. } => {}
    };
    let now = || services.clock.now();
    let report = services.resources.import(paths, ImportOptions::default(), new_id, progress, now).await?;
    tell(&report, events);
    Ok(u8::from(report.bad_total > 0))
}

fn describe(bad: &Bad) -> String {
    match bad.line {
        Some(line) => format!("{}:{line}: {}", bad.file, bad.reason),
        None => format!("{}: {}", bad.file, bad.reason),
    }
}

fn tell(report: &Report, events: Events<'_>) {
    for (kind, count) in &report.resources {
        let mut parts = Vec::new();
        for (number, what) in [(count.created, "new"), (count.replaced, "changed"), (count.same, "unchanged")]
        {
            parts.extend((number > 0).then(|| format!("{number} {what}")));
        }
        events(Event::Line(format!("{kind:<28} {:>9}  {}", count.total(), parts.join(", "))));
    }
    events(Event::Line(format!("{:<28} {:>9}  from {} files", "total", report.total(), report.files)));
    if report.skipped_total > 0 {
        events(Event::Line(format!("left aside: {} files that hold no resources", report.skipped_total)));
    }
    if report.bad_total > 0 {
        let more = report.bad_total.saturating_sub(PRINTED as u64);
        let more = if more > 0 { format!(", {more} of them not shown") } else { String::new() };
        events(Event::Trouble(format!("{} inputs could not be imported{more}", report.bad_total)));
    }
}
