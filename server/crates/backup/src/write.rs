//! Makes a backup of a store that is used meanwhile.

use jiff::Timestamp;
use store::{PageLimit, Seq, Store, Version};

use crate::manifest::AuditPosition;
use crate::segments::SegmentWriter;
use crate::{Attachment, BackupError, BackupLocation, Manifest, Progress, ProgressSink, Succession};

/// Size of a page of the log.
const PAGE: PageLimit = PageLimit { count: 2_000, bytes: 4 << 20 };

/// Options of a backup.
#[derive(Default)]
pub struct BackupOptions {
    /// Whether the backup contains all versions, although it could follow another one.
    pub full: bool,
    /// SHA-256 of the configuration file.
    pub configuration_sha256: Option<String>,
    /// How far the audit log is written.
    pub audit: Option<AuditPosition>,
}

/// Makes a backup of the present moment. It follows the last backup of the same store in the location, if
/// there is one and nothing was erased since. `attachments` is called after the moment was taken.
///
/// # Errors
/// Returns [`BackupError`] if the store cannot be read or the location not written. What was written is not a
/// backup then, because its manifest is missing.
pub async fn back_up(
    store: &Store,
    location: &BackupLocation,
    options: BackupOptions,
    attachments: impl AsyncFnOnce() -> Result<Vec<Attachment>, BackupError>,
    now: Timestamp,
    progress: ProgressSink<'_>,
) -> Result<Manifest, BackupError> {
    let backups = location.backups().await?;
    let mut moment = store.moment().await?;
    let (at, store_id) = (moment.at(), store.id());
    // Backups with another key, or none, may be read by others.
    let key_id = location.key().map(|key| key.id().to_owned());
    let last = backups.iter().rev().find(|backup| backup.store_id == store_id);
    // The log of the last backup contains the resources that were erased since, so that no backup builds on
    // it.
    let erasures = store.erasures().await?;
    let is_usable = |last: &&Manifest| {
        last.seq <= at.seq.0
            && last.key_id == key_id
            && erasures.iter().all(|erasure| erasure.seq <= last.seq)
    };
    let last = last.filter(|last| !options.full && is_usable(last));
    let mut manifest = Manifest::new(now, store_id, at, last);
    let succession = Succession::read(store, now).await?;
    manifest.continues = succession.map_or_else(Vec::new, |succession| succession.continued().to_vec());
    manifest.configuration_sha256 = options.configuration_sha256;
    manifest.audit = options.audit;
    manifest.key_id = key_id;
    if backups.iter().any(|backup| backup.id == manifest.id) {
        let text = format!("{} has a backup of the same millisecond; try again", location.name());
        return Err(BackupError::Refused(text));
    }
    let mut total = Progress::default();

    // The moment ends with the ledger, so that the engine can forget what was replaced. The log does not
    // change any more.
    let mut ledger = SegmentWriter::new(location, format!("{}/ledger", manifest.id));
    loop {
        let page = moment.next_page().await?;
        if page.is_empty() {
            break;
        }
        total.records += page.len() as u64;
        ledger.append(page).await?;
        progress(total);
    }
    drop(moment);
    manifest.ledger = ledger.finish().await?;

    let mut log = SegmentWriter::new(location, format!("{}/log", manifest.id));
    let mut page: Vec<Version> = store.read_log(Seq(manifest.after), at.seq, PAGE).await?;
    while let Some(end) = page.last().map(|last| last.seq) {
        total.versions += page.len() as u64;
        // The next page is read while this one is compressed.
        let (next, appended) = tokio::join!(store.read_log(end, at.seq, PAGE), log.append(page));
        appended?;
        page = next?;
        progress(total);
    }
    manifest.log = log.finish().await?;

    let earlier = last.map_or(&[][..], |last| &last.files);
    for attachment in attachments().await? {
        if let Some(file) = attachment.add_to(location, earlier).await? {
            manifest.files.push(file);
            total.files += 1;
            progress(total);
        }
    }
    let text = manifest.clone().text(location.key());
    location.put(&Manifest::object(&manifest.id), text.into()).await?;
    Ok(manifest)
}
