//! Copies a store into an empty one, which may have another engine.

use jiff::Timestamp;
use store::{PageLimit, ReplayPart, Seq, Store};

use crate::receiver::{MARKER, Receiver, Unfinished, mark};
use crate::{BackupError, Progress, ProgressSink};

/// Size of a page of the log.
const PAGE: PageLimit = PageLimit { count: 1_000, bytes: 1 << 20 };

/// Copies all versions and records from one store to another. Neither may be used by others meanwhile. `from`
/// and `to` name them. `finish` copies what else belongs to the store, and changes the target before it can
/// be used. At the end the source is marked as moved, unless it stays in use.
///
/// # Errors
/// Returns [`BackupError`] if one of them fails or the target is not empty. After an error the target cannot
/// be used.
pub async fn copy_store(
    (source, from): (&Store, &str),
    (target, to): (&Store, &str),
    keeps_source: bool,
    finish: impl AsyncFnOnce() -> Result<(), BackupError>,
    now: Timestamp,
    progress: ProgressSink<'_>,
) -> Result<Progress, BackupError> {
    let receiver = Receiver::open(target, from, now).await?;
    let mut done = Progress::default();
    let mut moment = source.moment().await?;
    let reached = moment.at();
    loop {
        let page = moment.next_page().await?;
        if page.is_empty() {
            break;
        }
        let records: Vec<_> = page.into_iter().filter(|entry| entry.key != MARKER).collect();
        done.records += records.len() as u64;
        receiver.add(ReplayPart { records, ..ReplayPart::default() }).await?;
        progress(done);
    }
    let mut page = source.read_log(Seq::ZERO, reached.seq, PAGE).await?;
    while let Some(end) = page.last().map(|last| last.seq) {
        let replayed = page.into_iter().map(|version| {
            let key = version.key.to_string();
            resources::stored::replayed(version).map_err(|error| BackupError::damaged(key, error.to_string()))
        });
        let versions = replayed.collect::<Result<Vec<_>, _>>()?;
        done.versions += versions.len() as u64;
        let add = receiver.add(ReplayPart { versions, ..ReplayPart::default() });
        let (added, next) = tokio::join!(add, source.read_log(end, reached.seq, PAGE));
        added?;
        page = next?;
        progress(done);
    }
    let finish = async || {
        finish().await?;
        // From here on, only one of the two can be used, and for a moment none.
        if !keeps_source {
            mark(source, &Unfinished::Moved { to: to.to_owned() }, now).await?;
        }
        Ok(())
    };
    receiver.complete(reached, finish).await?;
    Ok(done)
}
