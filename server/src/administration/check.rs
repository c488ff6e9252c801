//! `trefoil check`: compares what is stored with what should be there, and says what to do.

use std::time::{Duration, Instant};

use anyhow::Result;
use resources::check::check_store;
use serde::Serialize;
use serde_json::json;
use store::blocking::run_blocking;

use super::events::{CommandEvent, EventSink};
use super::services::AdminServices;
use crate::config::Config;
use crate::config::restart_settings::RestartSettings;
use crate::node::saved_indexes::SavedIndexes;

/// Time between two events of progress, which are lines in the log of a timer. Unlike an import, a check has
/// nothing to acknowledge.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// A part of the server that was checked.
#[derive(Debug, Serialize)]
struct CheckedPart {
    part: &'static str,
    result: String,
    /// The faults, each with the remedy.
    faults: Vec<String>,
    notes: Vec<String>,
}

impl CheckedPart {
    fn new(part: &'static str, result: impl Into<String>) -> Self {
        Self { part, result: result.into(), faults: Vec::new(), notes: Vec::new() }
    }

    fn failed(part: &'static str, fault: impl std::fmt::Display) -> Self {
        Self { faults: vec![fault.to_string()], ..Self::new(part, "cannot be read") }
    }

    fn lines(&self) -> String {
        let mut lines = vec![format!("{:13} {}", self.part, self.result)];
        lines.extend(self.notes.iter().map(|note| format!("  note        {note}")));
        lines.extend(self.faults.iter().map(|fault| format!("  FAULT       {fault}")));
        lines.join("\n")
    }
}

/// Checks configuration, certificate, store, releases and files of exports, of a running or a stopped server.
/// The exit code is 1 if something is wrong.
///
/// # Errors
/// An error if the data folder cannot be used.
pub async fn run_check(services: &AdminServices<'_>, events: EventSink<'_>) -> Result<u8> {
    let mut has_faults = false;
    let parts = [
        check_configuration(services),
        check_certificate(services),
        check_resources(services, events).await,
        check_releases(services).await,
        check_exports(services).await,
    ];
    for part in parts {
        has_faults |= !part.faults.is_empty();
        events(CommandEvent::Record { text: part.lines(), json: json!(part) });
    }
    Ok(u8::from(has_faults))
}

fn check_configuration(services: &AdminServices<'_>) -> CheckedPart {
    const PART: &str = "configuration";
    // A stopped server's file was read before this command began.
    let Some(app) = services.app else { return CheckedPart::new(PART, "readable") };
    match Config::load(&app.config.flags) {
        Ok(config) => {
            let mut part = CheckedPart::new(PART, "readable");
            let settings = app.config.fixed.changed(&RestartSettings::of(&config));
            part.notes
                .extend(settings.iter().map(|name| format!("{name} was changed; that needs a restart")));
            part
        }
        Err(error) => CheckedPart::failed(PART, format!("{error}; the next start would fail")),
    }
}

fn check_certificate(services: &AdminServices<'_>) -> CheckedPart {
    const PART: &str = "certificate";
    let served = services.app.and_then(|app| app.certificate.get().cloned());
    let Some(certificate) = served else {
        return CheckedPart::new(PART, "presented by a running server only");
    };
    let mut part = CheckedPart::new(PART, certificate.description());
    if certificate.valid_until() <= services.clock.now() {
        part.faults
            .push("it has expired; renew it, and the server presents the new files by itself".to_owned());
    } else if certificate.ends_soon(services.clock.now()) {
        part.notes.push("it ends soon; renew it, and the server presents the new files by itself".to_owned());
    }
    part
}

async fn check_resources(services: &AdminServices<'_>, events: EventSink<'_>) -> CheckedPart {
    const PART: &str = "store";
    let store = services.resources.store();
    let mut last = Instant::now();
    let progress = |versions| {
        if last.elapsed() >= PROGRESS_INTERVAL {
            last = Instant::now();
            events(CommandEvent::Progress(format!("{versions} versions")));
        }
    };
    let check = match check_store(store, services.resources.fhir_base(), progress).await {
        Ok(check) => check,
        Err(error) => return CheckedPart::failed(PART, format!("{error}; restore a backup")),
    };
    let mut part =
        CheckedPart::new(PART, format!("{} resources, {} versions", check.resources, check.versions));
    if let Err(error) = store.check_writable().await {
        part.faults.push(format!("it cannot be written: {error}"));
    }
    if check.defects > 0 {
        part.faults
            .push(format!("{} versions have defects; restore a backup into another store", check.defects));
        part.faults.extend(check.named_defects);
    }
    if check.dangling_references > 0 {
        let count = check.dangling_references;
        part.notes.push(format!("{count} references are to resources that do not exist here"));
        part.notes.extend(check.named_dangling);
    }
    part
}

async fn check_releases(services: &AdminServices<'_>) -> CheckedPart {
    const PART: &str = "releases";
    let data = services.data.to_owned();
    let read = run_blocking(move || {
        let indexes = SavedIndexes::open(&data)?;
        let mut part = CheckedPart::new(PART, String::new());
        let mut count = 0;
        for release in indexes.local_releases()? {
            match indexes.saved_release(&release.id) {
                Ok(_) => count += 1,
                Err(error) => part.faults.push(format!("{}: {error}; import the release again", release.id)),
            }
        }
        part.result = format!("{count} readable");
        std::io::Result::Ok(part)
    });
    match read.await {
        Ok(Ok(part)) => part,
        Ok(Err(error)) => CheckedPart::failed(PART, error),
        Err(error) => CheckedPart::failed(PART, error),
    }
}

async fn check_exports(services: &AdminServices<'_>) -> CheckedPart {
    const PART: &str = "exports";
    let store = services.resources.store();
    let archive = match services.backups.exports(&store.id()) {
        Ok(archive) => archive,
        Err(error) => return CheckedPart::failed(PART, error),
    };
    match archive.missing(store, services.clock.now()).await {
        Ok(missing) => {
            let mut part = CheckedPart::new(PART, format!("{} files of complete exports", missing.checked));
            let fault = |name| format!("{name} is missing or incomplete; the client has to export again");
            part.faults.extend(missing.names.into_iter().map(fault));
            part
        }
        Err(error) => CheckedPart::failed(PART, error),
    }
}
