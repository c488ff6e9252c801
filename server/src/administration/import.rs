//! `trefoil import`: imports releases of code systems as indexes, and all other files and folders into the
//! store.
//!
//! Reports the lines that are stored durably, shows a progress bar for the bytes read, and prints a table by
//! type at the end.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use resources::{ExpectedVersion, ImportFault, ImportOptions, ImportProgress, ImportReport};
use store::{Seq, Store, Versions as _};
use terminology::{CodeSystemIndex, TerminologyChange, resource_faults};
use terminology_import::{
    ImportError, Release, ReleaseProgress, StatedRelease, group_releases_as, is_release,
};
use tokio::sync::mpsc;

use super::events::{CommandEvent, EventSink};
use super::services::AdminServices;
use crate::clock::resource_id;
use crate::node::releases::Releases;
use crate::node::saved_indexes::SavedIndexes;
use crate::records::audit::AuditEntry;

/// Maximum number of invalid inputs that are printed.
const MAX_PRINTED: usize = 100;
/// Maximum number of skipped files and of unresolved references that are printed.
const MAX_NAMED: usize = 20;
/// The exit code of an import that was stopped: that of a program that Ctrl-C has ended.
pub const STOPPED: u8 = 130;

/// Runs an import. Returns exit code 1 if an input could not be imported.
///
/// # Errors
/// An error if a path does not exist or the store fails.
pub async fn run_import(
    services: &AdminServices<'_>,
    paths: Vec<PathBuf>,
    stated: StatedRelease,
    options: ImportOptions,
    events: EventSink<'_>,
) -> Result<u8> {
    check_stated(&stated)?;
    let is_stated = stated != StatedRelease::default();
    if let Some(missing) = paths.iter().find(|path| !path.exists()) {
        bail!("path {} does not exist", missing.display());
    }
    let (releases, paths) = tokio::task::spawn_blocking(move || separate_releases(paths, &stated)).await??;
    let count = releases.len();
    if is_stated && count != 1 {
        bail!(
            "--edition, --version and --unpublished need exactly one release, but the paths contain {count}; import each release with its own command"
        );
    }
    let indexes = SavedIndexes::open(services.data)?;
    // The incomplete file of an interrupted import can be removed only if no running server may be writing
    // it.
    if services.app.is_none() {
        indexes.remove_partial()?;
    }
    let mut has_refusals = false;
    for release in releases {
        if services.stop.is_cancelled() {
            events(CommandEvent::Trouble("stopped: the remaining releases were not imported".to_owned()));
            return Ok(STOPPED);
        }
        has_refusals |= !import_release(&indexes, services, release, events).await?;
    }
    if count > 0
        && let Some(text) = default_edition(services).await?
    {
        events(CommandEvent::Line(text));
    }
    if paths.is_empty() {
        return Ok(u8::from(has_refusals));
    }
    let names = paths.iter().map(|path| path.display().to_string()).collect();
    let random = services.clock.random.clone();
    let new_id = move || resource_id(&*random);
    let (mut printed, mut stored) = (0, 0);
    let progress = |event: ImportProgress| match event {
        // These lines are stored durably.
        ImportProgress::Lines { file, lines } => {
            stored = lines;
            events(CommandEvent::Progress(format!("{file}: {lines} lines")));
        }
        ImportProgress::Bytes { file, bytes, of } => {
            let what = match stored {
                _ if bytes == of => "checking".to_owned(),
                0 => "reading".to_owned(),
                lines => format!("{lines} lines stored, reading"),
            };
            events(reading_event(&what, &file, bytes, of));
        }
        ImportProgress::ImportFault(bad) => {
            printed += 1;
            if printed <= MAX_PRINTED {
                events(CommandEvent::Trouble(describe_fault(&bad)));
            }
        }
        ImportProgress::File { .. } => stored = 0,
        ImportProgress::Done { .. } => {}
    };
    let now = || services.clock.now();
    let before = services.resources.store().last_seq().await?;
    let stop = services.stop.cancelled();
    let report = services.resources.import(paths, options, new_id, progress, now, stop).await?;
    // One event records the whole import, because an import can have millions of resources.
    services.audit.add(&AuditEntry::Import { stored: report.total(), paths: names });
    // If there were only releases, the table of resources would be empty.
    if count == 0 || report.total() > 0 || report.bad_total > 0 {
        print_report(&report, events);
    }
    if CHECKED_TYPES.iter().any(|kind| report.resources.contains_key(*kind)) {
        report_faults(services.resources.store(), before, events).await?;
    }
    if report.is_stopped {
        let text = "stopped: all resources in the table are stored; import again to continue";
        events(CommandEvent::Trouble(text.to_owned()));
        return Ok(STOPPED);
    }
    Ok(u8::from(report.bad_total > 0 || has_refusals))
}

/// Checks that an edition is the id of a concept, and that a version is a date.
fn check_stated(stated: &StatedRelease) -> Result<()> {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(edition) = stated.edition.as_deref()
        && !(is_number(edition) && (6..=18).contains(&edition.len()))
    {
        bail!("--edition '{edition}' must be the id of a module: 6 to 18 digits, such as 900000000000207008");
    }
    if let Some(version) = stated.version.as_deref()
        && !(is_number(version) && version.len() == 8)
    {
        bail!("--version '{version}' must be a date of 8 digits, such as 20250101");
    }
    Ok(())
}

/// Separates the releases of code systems, which may be inside folders, from the other paths.
fn separate_releases(
    paths: Vec<PathBuf>,
    stated: &StatedRelease,
) -> std::io::Result<(Vec<Release>, Vec<PathBuf>)> {
    let (mut releases, mut others) = (Vec::new(), Vec::new());
    for path in paths {
        if !find_releases(&path, &mut releases)? {
            others.push(path);
        }
    }
    Ok((group_releases_as(releases, stated), others))
}

/// Collects the releases at or below a path. Returns `true` if the path itself is a release.
fn find_releases(path: &Path, releases: &mut Vec<PathBuf>) -> std::io::Result<bool> {
    if is_release(path) {
        releases.push(path.to_owned());
        return Ok(true);
    }
    if path.is_dir() {
        let mut inside = Vec::new();
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            // Symbolic links are not followed, because they can form a cycle.
            if !entry.file_type()?.is_symlink() {
                inside.push(entry.path());
            }
        }
        inside.sort();
        for path in inside {
            find_releases(&path, releases)?;
        }
    }
    Ok(false)
}

/// Imports one release. Returns `false` if the release cannot be imported; in that case nothing of it is
/// stored. A release with the same content as a stored one is skipped, so that an interrupted import can be
/// repeated.
async fn import_release(
    indexes: &SavedIndexes,
    services: &AdminServices<'_>,
    release: Release,
    events: EventSink<'_>,
) -> Result<bool> {
    let (sender, mut progress) = mpsc::unbounded_channel();
    let indexes = indexes.clone();
    let work = tokio::task::spawn_blocking(move || {
        let unsaved = |error: std::io::Error| ImportError {
            file: release.path().display().to_string(),
            line: None,
            reason: format!("failed to save its index: {error}"),
        };
        let report = |step: ReleaseProgress<'_>, what: &str| {
            drop(sender.send(reading_event(what, step.file, step.bytes, step.of)));
        };
        // A release takes minutes to index, so that it is recognized by its content before it is read.
        let hash =
            release.content_hash(&mut |step| report(step, "checking whether it was imported before:"))?;
        if let Some((id, index)) = indexes.release_of(&hash).map_err(unsaved)? {
            return Ok((id, index, "already there", false));
        }
        let loaded = release.import(&mut |step| match step.bytes < step.of {
            true => report(step, "reading"),
            false => report(step, "building the index after"),
        })?;
        let replaces = indexes.has_release(&loaded.index);
        let id = indexes.save_release(&loaded.index, &hash).map_err(unsaved)?;
        Ok::<_, ImportError>((id, loaded.index, loaded.format, replaces))
    });
    while let Some(event) = progress.recv().await {
        events(event);
    }
    let (id, index, what, replaces) = match work.await? {
        Ok(done) => done,
        Err(error) => {
            events(CommandEvent::Trouble(format!("{error}; nothing of this release was changed")));
            return Ok(false);
        }
    };
    let version = index.version().unwrap_or("no version");
    let concepts = index.concepts();
    events(CommandEvent::Line(format!("{what:<28} {concepts:>9}  {} {version}, as {id}", index.url())));
    if replaces {
        let text = format!(
            "{id}: a release with this URL and version was stored, and had other content; it is replaced"
        );
        events(CommandEvent::Trouble(text));
    }
    for fault in index.faults() {
        events(CommandEvent::Trouble(format!("{id}: {fault}")));
    }
    describe_release(services, &id, &index).await?;
    if let Some(app) = services.app {
        app.terminology.apply([TerminologyChange::release(&id, index)]);
        if let Err(error) = app.terminology_sync.synchronize_releases(app.clock.now()).await {
            let text = format!("other nodes do not have this release yet; the server tries again: {error:#}");
            events(CommandEvent::Trouble(text));
        }
    }
    Ok(true)
}

/// Describes which of several editions of SNOMED CT answers a request without a version.
///
/// # Errors
/// An error if the data folder cannot be read.
pub(super) async fn default_edition(services: &AdminServices<'_>) -> Result<Option<String>> {
    match services.app {
        Some(app) => Ok(app.terminology.describe_default_edition()),
        None => {
            let indexes = SavedIndexes::open(services.data)?;
            let releases = Releases { indexes, resources: services.resources };
            releases.describe_default_edition(services.preferred_versions.clone()).await
        }
    }
}

/// Stores the CodeSystem resource by which clients find a release. One that is the same is not written again,
/// and one with the same id that does not describe the release is left as it is.
async fn describe_release(services: &AdminServices<'_>, id: &str, index: &CodeSystemIndex) -> Result<()> {
    let description = index.description(id);
    if let Ok(resource) = services.resources.read("CodeSystem", id).await {
        let mut code_system: serde_json::Value = serde_json::from_slice(&resource.bytes)?;
        code_system.as_object_mut().map(|members| members.remove("meta"));
        if code_system == description || code_system["content"] != description["content"] {
            return Ok(());
        }
    }
    let body = description.to_string();
    services
        .resources
        .update("CodeSystem", id, body, ExpectedVersion::Anything, services.clock.now())
        .await?;
    Ok(())
}

/// A progress event with the number of bytes read. Only the name of the file is shown, without its folders,
/// to keep the line short.
fn reading_event(what: &str, file: &str, bytes: u64, of: u64) -> CommandEvent {
    let file = file.rsplit('/').next().unwrap_or(file);
    CommandEvent::Reading { doing: format!("{what} {file}"), bytes, of }
}

/// Types of the resources that are checked for use in terminology.
const CHECKED_TYPES: [&str; 3] = ["CodeSystem", "ValueSet", "ConceptMap"];

/// Reports the terminology resources written since `since` that have faults, such as a cycle in a hierarchy.
/// They are stored, but requests that need the faulty part cannot be answered, or are answered without it.
async fn report_faults(store: &Store, since: Seq, events: EventSink<'_>) -> Result<()> {
    const PAGE: usize = 1_000;
    let mut start = since;
    loop {
        let changes = store.changes(start, PAGE).await?;
        let Some(last) = changes.last() else { return Ok(()) };
        start = last.seq;
        for change in changes.into_iter().filter(|change| CHECKED_TYPES.contains(&change.key.kind.as_str())) {
            let version = store.read(&change.key, change.seq).await?;
            let Some(bytes) = version.and_then(|version| version.body) else { continue };
            let (kind, id) = (change.key.kind.clone(), change.key.id);
            let faults = move || resource_faults(&change.key.kind, &bytes);
            for fault in tokio::task::spawn_blocking(faults).await? {
                events(CommandEvent::Trouble(format!("{kind}/{id}: {fault}")));
            }
        }
    }
}

fn describe_fault(bad: &ImportFault) -> String {
    match bad.line {
        Some(line) => format!("{}:{line}: {}", bad.file, bad.reason),
        None => format!("{}: {}", bad.file, bad.reason),
    }
}

fn print_report(report: &ImportReport, events: EventSink<'_>) {
    for (kind, count) in &report.resources {
        let mut parts = Vec::new();
        for (number, what) in [
            (count.created, "new"),
            (count.replaced, "changed"),
            (count.same, "unchanged"),
            (count.deleted, "deleted"),
            (count.outdated, "older than the stored version"),
        ] {
            parts.extend((number > 0).then(|| format!("{number} {what}")));
        }
        events(CommandEvent::Line(format!("{kind:<28} {:>9}  {}", count.total(), parts.join(", "))));
    }
    let files = if report.files == 1 { "file" } else { "files" };
    let total = format!("{:<28} {:>9}  from {} {files}", "total", report.total(), report.files);
    events(CommandEvent::Line(total));
    if report.skipped_total > 0 {
        events(CommandEvent::Line(format!("skipped: {} files without resources", report.skipped_total)));
        for skipped in report.skipped.iter().take(MAX_NAMED) {
            events(CommandEvent::Line(format!("  {}: {}", skipped.file, skipped.reason)));
        }
        if report.skipped_total > MAX_NAMED as u64 {
            events(CommandEvent::Line("  …".to_owned()));
        }
    }
    let outdated: u64 = report.resources.values().map(|count| count.outdated).sum();
    if outdated > 0 {
        let text = format!(
            "kept: {outdated}, because a newer version was imported before (by meta.lastUpdated); --overwrite replaces it"
        );
        events(CommandEvent::Line(text));
    }
    let unresolved = &report.unresolved;
    if unresolved.total > 0 {
        let text = format!("references to resources that were not found: {}", unresolved.total);
        events(CommandEvent::Trouble(text));
        for (reference, reason) in unresolved.named.iter().take(MAX_NAMED) {
            events(CommandEvent::Trouble(format!("  {reference}: {reason}")));
        }
    }
    if unresolved.not_looked_at > 0 {
        events(CommandEvent::Trouble(format!(
            "resources whose references were not looked up again, because there are too many: {}; import their files again",
            unresolved.not_looked_at
        )));
    }
    if report.irregular_total > 0 {
        let text = format!(
            "resources with defects: {}; they are stored ([resources] validation = \"reject\" refuses them)",
            report.irregular_total
        );
        events(CommandEvent::Trouble(text));
        for (file, irregular) in report.irregular.iter().take(MAX_NAMED) {
            let text = format!("  {file}: {}, for example {}", irregular.total, irregular.first);
            events(CommandEvent::Trouble(text));
        }
        if report.irregular.len() > MAX_NAMED {
            events(CommandEvent::Trouble("  …".to_owned()));
        }
    }
    // JavaScript and most JSON parsers read numbers as 64-bit floating-point numbers.
    if let Some(first) = &report.first_imprecise {
        events(CommandEvent::Trouble(format!(
            "resources with numbers that a 64-bit floating-point number cannot hold: {}, for example {first}; they are \
             stored exactly, but many clients will round them",
            report.imprecise_total
        )));
    }
    if report.bad_total > 0 {
        let more = report.bad_total.saturating_sub(MAX_PRINTED as u64);
        let more = if more > 0 { format!(", {more} of them not shown") } else { String::new() };
        let inputs = if report.bad_total == 1 { "input" } else { "inputs" };
        let text = format!("{} {inputs} could not be imported{more}", report.bad_total);
        events(CommandEvent::Trouble(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stated_edition_is_an_id_and_a_stated_version_a_date() {
        #[track_caller]
        fn check(edition: Option<&str>, version: Option<&str>, expected: Option<&str>) {
            let stated = StatedRelease {
                edition: edition.map(str::to_owned),
                version: version.map(str::to_owned),
                ..StatedRelease::default()
            };
            let error = check_stated(&stated).err().map(|error| error.to_string());
            let as_expected = match (&error, expected) {
                (Some(error), Some(expected)) => error.starts_with(expected),
                (error, expected) => error.is_none() && expected.is_none(),
            };
            assert!(as_expected, "{error:?}");
        }
        check(None, None, None);
        check(Some("900000000000207008"), Some("20250101"), None);
        check(Some("INT"), None, Some("--edition 'INT' must be the id of a module"));
        check(None, Some("2025-01-01"), Some("--version '2025-01-01' must be a date of 8 digits"));
    }
}
