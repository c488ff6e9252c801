//! `trefoil import --feed`: lists the items of a syndication feed of releases, and downloads those that the
//! operator takes, with the packages on which they depend.
//!
//! | module | contents |
//! |---|---|
//! | `stored_versions` | the versions that are stored, for comparison with the feed |
//! | `download` | reads the feed, and downloads and verifies its files |
//! | `options` | the options of the command |
//! | here | the choice of the items |

mod download;
mod options;
mod stored_versions;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use terminology_import::syndication::{FeedEntry, newest_of_each, read_feed};

pub use self::download::DownloadFolder;
use self::download::FeedReader;
pub use self::options::FeedOptions;
use self::stored_versions::{ItemState, StoredVersions};
use super::events::{CommandEvent, EventSink};
use super::services::AdminServices;

/// Downloads the items that the options select into a folder, and returns the files. Returns `None` if there
/// is nothing to import.
///
/// # Errors
/// Returns an error if the feed cannot be read, an item is not in it, or a download fails.
pub async fn fetch_items(
    services: &AdminServices<'_>,
    feed: &str,
    options: &FeedOptions,
    folder: &Path,
    events: EventSink<'_>,
) -> Result<Option<Vec<PathBuf>>> {
    let reader = FeedReader::new(feed, options)?;
    let entries = read_feed(reader.read_feed().await?)?;
    let versions = StoredVersions::read(services).await?;
    let newest = newest_of_each(&entries);
    if options.take.is_empty() && !options.updates {
        list(&entries, &newest, &versions, events);
        return Ok(None);
    }
    let mut selection: Vec<&FeedEntry> = Vec::new();
    for name in &options.take {
        let mut candidates = newest.iter().copied().chain(&entries).filter(|entry| entry.is_importable());
        let entry = candidates.find(|entry| entry.is_named(name));
        selection.push(entry.with_context(|| {
            format!("the feed has no item '{name}' that can be imported; leave out --take to list its items")
        })?);
    }
    if options.updates {
        selection.extend(newest.iter().filter(|entry| versions.state(entry) == ItemState::Update));
    }
    let mut names = BTreeSet::new();
    selection.retain(|entry| names.insert((&entry.identifier, &entry.version)));
    selection.retain(|entry| {
        let is_new = versions.state(entry) != ItemState::Stored;
        if !is_new {
            events(CommandEvent::Line(format!("already there: {} {}", entry.title, entry.version)));
        }
        is_new
    });
    add_dependencies(&mut selection, &entries)?;
    for entry in &selection {
        let length = entry.file.as_ref().and_then(|file| file.length);
        let size = length.map(|bytes| format!(", {} MB", bytes >> 20)).unwrap_or_default();
        events(CommandEvent::Line(format!("taking: {} {}{size}", entry.title, entry.version)));
    }
    let mut paths = Vec::new();
    for (number, entry) in selection.iter().enumerate() {
        if services.stop.is_cancelled() {
            bail!("stopped: nothing was imported");
        }
        paths.push(reader.download(entry, number, folder, services, events).await?);
    }
    Ok((!paths.is_empty()).then_some(paths))
}

/// Adds the packages on which the selected ones depend.
fn add_dependencies<'f>(selection: &mut Vec<&'f FeedEntry>, entries: &'f [FeedEntry]) -> Result<()> {
    let mut index = 0;
    while let Some(entry) = selection.get(index).copied() {
        for version in &entry.dependencies {
            if selection.iter().any(|other| other.version == *version) {
                continue;
            }
            let mut packages = entries.iter().filter(|other| other.is_importable());
            selection.push(packages.find(|other| other.version == *version).with_context(|| {
                format!(
                    "'{}' depends on {version}, which is not in the feed; import both from files in one command",
                    entry.title
                )
            })?);
        }
        index += 1;
    }
    Ok(())
}

/// Lists the newest version of each item, and warns about stored versions that the publisher has withdrawn.
fn list(entries: &[FeedEntry], newest: &[&FeedEntry], versions: &StoredVersions, events: EventSink<'_>) {
    for entry in newest {
        let (state, FeedEntry { category, title, version, identifier, .. }) =
            (versions.state(entry).name(), *entry);
        let text = match version.starts_with(identifier) {
            true => format!("{state:<7} {category:<17} {version}  {title}"),
            false => format!("{state:<7} {category:<17} {identifier}|{version}  {title}"),
        };
        events(CommandEvent::Line(text));
    }
    for entry in entries.iter().filter(|entry| entry.is_withdrawn() && versions.has(entry)) {
        let text = format!(
            "{} {} is stored, but its publisher has withdrawn it; remove it or import another version",
            entry.identifier, entry.version
        );
        events(CommandEvent::Trouble(text));
    }
    let unsupported =
        entries.iter().filter(|entry| entry.file_ending().is_none() && !entry.is_withdrawn()).count();
    if unsupported > 0 {
        events(CommandEvent::Line(format!("{unsupported} entries have content that cannot be imported")));
    }
    events(CommandEvent::Line(
        "import one with --take URI, or what is newer than the stored versions with --updates".to_owned(),
    ));
}
