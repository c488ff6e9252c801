//! The commands about imported releases of code systems.

use anyhow::{Result, bail};
use resources::ExpectedVersion;
use serde_json::json;
use store::blocking::run_blocking;
use store::{ScanOptions, Store, Versions as _};
use terminology::{CodeSystemIndex, pins_version};

use super::protocol::{CommandEvent, ReleaseCommand};
use super::services::{AdminServices, EventSink};
use crate::node::saved_indexes::{SavedIndexes, SavedRelease};
use crate::records::audit::AuditEntry;

/// Executes `trefoil release …`.
///
/// # Errors
/// An error that describes the failure and the remedy.
pub async fn execute_release_command(
    services: &AdminServices<'_>,
    command: ReleaseCommand,
    events: EventSink<'_>,
) -> Result<()> {
    let indexes = SavedIndexes::open(services.data)?;
    match command {
        ReleaseCommand::List => {
            let all = run_blocking(move || indexes.saved_releases()).await??;
            if all.is_empty() {
                events(CommandEvent::Trouble("no release is imported".to_owned()));
            }
            for SavedRelease { id, imported, index } in all {
                let version = index.version().unwrap_or("no version");
                let (concepts, url) = (index.concepts(), index.url());
                let imported = fhir::instant::format(imported);
                events(CommandEvent::Line(format!("{id}  {concepts}  {imported}  {url}  {version}")));
            }
        }
        ReleaseCommand::Show { id } => {
            let SavedRelease { imported, index, .. } = find_release(indexes, &id).await?;
            let text = json!({
                "id": id,
                "url": index.url(),
                "version": index.version(),
                "title": index.title(),
                "concepts": index.concepts(),
                "languages": index.languages(),
                "language_reference_sets": index.language_reference_sets(),
                "imported": fhir::instant::format(imported),
                "named_by": pinned_by(services.resources.store(), &index).await?,
            });
            events(CommandEvent::Line(serde_json::to_string_pretty(&text)?));
        }
        ReleaseCommand::Remove { id, force } => {
            let SavedRelease { index, .. } = find_release(indexes.clone(), &id).await?;
            let pins = pinned_by(services.resources.store(), &index).await?;
            if !pins.is_empty() && !force {
                bail!(
                    "stored value sets name the version of this release ({}): {}; change them, or use --force",
                    pins.len(),
                    pins.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join(", ")
                );
            }
            match services.app {
                Some(app) => app.terminology_sync.remove_release(&id, services.clock.now()).await?,
                None if indexes.is_shared(&id)? => bail!(
                    "other nodes share this release and would bring it back; run this command while the server of this \
                     folder runs"
                ),
                None => {
                    let id = id.clone();
                    run_blocking(move || indexes.remove_release(&id)).await??;
                }
            }
            remove_description(services, &id).await?;
            services.audit.add(&AuditEntry::ReleaseRemoved { id: id.clone() });
            events(CommandEvent::Line(format!("removed {id}")));
        }
    }
    Ok(())
}

/// Deletes the CodeSystem resource that describes a release.
async fn remove_description(services: &AdminServices<'_>, id: &str) -> Result<()> {
    let Ok(stored) = services.resources.read("CodeSystem", id).await else { return Ok(()) };
    let resource: serde_json::Value = serde_json::from_slice(&stored.bytes)?;
    if resource["content"] == "not-present" {
        let expected = ExpectedVersion::Anything;
        services.resources.delete("CodeSystem", id, expected, services.clock.now()).await?;
    }
    Ok(())
}

/// Maximum number of value sets that an error names.
const MAX_NAMED: usize = 10;

async fn find_release(indexes: SavedIndexes, id: &str) -> Result<SavedRelease> {
    let wanted = id.to_owned();
    match run_blocking(move || indexes.saved_release(&wanted)).await?? {
        Some(release) => Ok(release),
        None => bail!("release '{id}' does not exist; `trefoil release list` shows all releases"),
    }
}

/// The stored ValueSets that name the version of a release.
async fn pinned_by(store: &Store, index: &CodeSystemIndex) -> Result<Vec<String>> {
    let (seq, mut after, mut found) = (store.last_seq().await?, None::<String>, Vec::new());
    let (url, version) = (index.url(), index.version().unwrap_or_default());
    loop {
        let page = store.scan_kind("ValueSet", ScanOptions::at(seq).after(after.as_deref())).await?;
        for stored in page.versions {
            if stored.body.is_some_and(|body| pins_version(&body, url, version)) {
                found.push(format!("ValueSet/{}", stored.key.id));
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(found);
        }
    }
}
