//! `trefoil purge`: erases a patient's record, or a deleted resource, wherever this server has it.
//! `trefoil compact` is its last step alone.

use anyhow::{Context as _, Result};
use bulk::serve::archive::ErasedContent;
use resources::erase::{ErasureResult, erase};
use serde_json::json;
use store::Compaction;
use store::blocking::run_blocking;

use super::copy::FAILURE_SHOWN;
use super::events::{CommandEvent, EventSink};
use super::services::AdminServices;
use crate::records::audit::AuditEntry;
use crate::records::audit::erase::erase_searches;

/// The reason for clients whose exports may contain what was erased.
const EXPORT_ENDED: &str = "records were erased that this export may contain; start it again without _since, and replace all \
                            earlier files";
/// Maximum number of kept resources that are named.
const MAX_NAMED: usize = 20;
/// The failure of the last step.
const STILL_IN_FILES: &str =
    "the record is erased, but its bytes are still in the files of the store; repeat the command";
/// The remedy for the files of a database.
const DATABASE_FILES: &str = "the rows are removed; the files of the database contain the bytes until it writes other rows over \
                              them: the owner of its tables removes them with VACUUM FULL current, history, member, change, \
                              term, ledger; its write-ahead log and its backups end with their retention";

/// Waits until the files of the store were rewritten.
///
/// # Errors
/// An error if they cannot be rewritten.
pub async fn run_compact(services: &AdminServices<'_>, events: EventSink<'_>) -> Result<()> {
    let is_complete = rewrite_files(services, events).await?;
    let text = match is_complete {
        true => "the files of the store contain nothing that was replaced or deleted",
        false => "the database reuses the space of removed rows",
    };
    events(CommandEvent::Record { text: text.to_owned(), json: json!({ "files_rewritten": is_complete }) });
    Ok(())
}

/// Rewrites the files of the store. Returns `false` if a database owns them.
async fn rewrite_files(services: &AdminServices<'_>, events: EventSink<'_>) -> Result<bool> {
    events(CommandEvent::Progress("rewriting the files of the store".to_owned()));
    let compaction = services.resources.store().compact().await?;
    if compaction == Compaction::LeftToDatabase {
        events(CommandEvent::Trouble(DATABASE_FILES.to_owned()));
    }
    Ok(compaction == Compaction::Complete)
}

/// Erases the resource in the store, ends exports that may contain it, overwrites the texts of the audit log,
/// and waits until the files of the store were rewritten. Repeated, it completes what was interrupted.
///
/// # Errors
/// An error if the resource cannot be erased, or a later step failed.
pub async fn run_purge(services: &AdminServices<'_>, resource: &str, events: EventSink<'_>) -> Result<()> {
    let store = services.resources.store();
    let (base, now) = (services.resources.fhir_base(), services.clock.now());
    let progress = |count| events(CommandEvent::Progress(format!("{count} resources erased")));
    let erased = erase(store, resource, base, now, progress).await?;
    let ErasureResult { record, versions, shared, seq } = erased;
    services
        .audit
        .add(&AuditEntry::Erased { resource: record.resource.clone(), resources: record.resources });

    events(CommandEvent::Progress("ending exports".to_owned()));
    let archive = services.backups.exports(&store.id()).context("failed to open the files of exports")?;
    let content = ErasedContent {
        record: &record,
        until: seq,
        fhir_base: base,
        reason: EXPORT_ENDED,
        retention: FAILURE_SHOWN,
    };
    let end = archive.end_exports(store, &content, now).await?;
    if let Some(app) = services.app {
        app.bulk.stop_ended(now).await?;
    }
    let (folder, patient) = (services.data.join("audit"), record.resource.clone());
    let searches = run_blocking(move || erase_searches(&folder, &patient)).await?;
    let searches = searches.context("failed to overwrite searches in the audit log")?;

    let is_rewritten = rewrite_files(services, events).await.context(STILL_IN_FILES)?;
    let names: Vec<_> = shared.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    let mut lines = vec![
        format!("erased {} with {} resources, {versions} versions", record.resource, record.resources),
        format!("ended {end} exports, overwrote {searches} searches in the audit log"),
    ];
    if !shared.is_empty() {
        let more = if shared.len() > names.len() { ", …" } else { "" };
        lines.push(format!(
            "kept {} resources that belong to other patients, too: {}{more}",
            shared.len(),
            names.join(", ")
        ));
    }
    let json = json!({
        "erased": record, "versions": versions, "ended_exports": end, "searches": searches,
        "shared": shared.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "files_rewritten": is_rewritten,
    });
    events(CommandEvent::Record { text: lines.join("\n"), json });
    Ok(())
}
