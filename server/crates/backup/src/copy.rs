//! Copies a store into an empty one, which may have another engine.

use jiff::Timestamp;
use resources::ResourceBodyError;
use resources::erase::repeat_in_copy;
use store::{PageLimit, ReplayPart, Seq, Store, Versions as _};

use crate::receiver::{MARKER, Receiver, Unfinished};
use crate::{BackupError, Progress, ProgressSink, Succession};

/// Maximum number of passes over a source that is written to.
const ROUNDS: usize = 8;
/// Size of a page of the log.
const PAGE: PageLimit = PageLimit { count: 1_000, bytes: 1 << 20 };

/// The source of a copy.
#[derive(Clone, Copy)]
pub struct CopiedStore<'a> {
    /// The store.
    pub store: &'a Store,
    /// Its name.
    pub name: &'a str,
    /// Base URL of the server, with which references may begin.
    pub fhir_base: &'a str,
    /// Beginnings of the keys of records that are not copied.
    pub left_out: &'static [&'static str],
}

/// Copies all versions and records from one store to another, which nobody may use meanwhile. `to` is the
/// name of the target. The source may be written to until `drain` is called, which ends its writes; nearly
/// all versions are copied before. Erasures in the source meanwhile are repeated in the target. `finish`
/// copies what else belongs to the store, and changes the target before
/// it can be used. At the end the source is marked as moved, unless it stays in use.
///
/// # Errors
/// Returns [`BackupError`] if one of them fails, the target is not empty, or a source that is moved was
/// written to after `drain`. After an error the target cannot be used.
pub async fn copy_store(
    from: CopiedStore<'_>,
    (target, to): (&Store, &str),
    keeps_source: bool,
    drain: impl AsyncFnOnce() -> Result<(), BackupError>,
    finish: impl AsyncFnOnce() -> Result<(), BackupError>,
    now: Timestamp,
    progress: ProgressSink<'_>,
) -> Result<Progress, BackupError> {
    let source = from.store;
    let receiver = Receiver::open(target, from.name, now).await?;
    let began = source.last_seq().await?;
    let mut copied = CopiedLog {
        from,
        target,
        receiver: &receiver,
        began,
        last: Seq::ZERO,
        erased: 0,
        done: Progress::default(),
    };
    // Each round copies what was written during the one before, which is less and less.
    for _ in 0..ROUNDS {
        let until = source.last_seq().await?;
        if until == copied.last {
            break;
        }
        copied.copy_until(until, progress).await?;
    }
    // Without a drain, a resource may be erased until here, and later ones are erased after the copy.
    drain().await?;
    let source_end = if keeps_source { None } else { Some(source.close().await?) };
    let mut moment = source.moment().await?;
    let reached = moment.at();
    copied.copy_until(reached.seq, progress).await?;
    copied.repeat_erasures().await?;
    if copied.erased > 0 {
        target.compact().await?;
    }
    let mut total = copied.done;
    loop {
        let page = moment.next_page().await?;
        if page.is_empty() {
            break;
        }
        let records: Vec<_> = page
            .into_iter()
            .filter(|entry| entry.key != MARKER)
            .filter(|entry| !from.left_out.iter().any(|prefix| entry.key.starts_with(prefix)))
            .collect();
        total.records += records.len() as u64;
        receiver.add(ReplayPart { records, ..ReplayPart::default() }).await?;
        progress(total);
    }
    let finish = async || {
        Succession::copy(source, target, keeps_source, now).await?;
        finish().await?;
        let Some(end) = source_end else { return Ok(()) };
        // In a database, rounds that were refused have taken numbers, too.
        if !end.refuses_writes() && source.moment().await?.at() != reached {
            let text =
                "the source was written to while it was moved; remove the target's store and start again";
            return Err(BackupError::Refused(text.to_owned()));
        }
        // From here on, only one of the two can be used, and for a moment none.
        let mark = Unfinished::Moved { to: to.to_owned() };
        Ok(end.complete(MARKER, mark.to_bytes(), now).await?)
    };
    receiver.complete(reached, finish).await?;
    Ok(total)
}

/// The versions that were copied so far.
struct CopiedLog<'a> {
    from: CopiedStore<'a>,
    target: &'a Store,
    receiver: &'a Receiver<'a>,
    /// Last sequence number of the source when the copy began.
    began: Seq,
    last: Seq,
    /// Number of resources that were removed again.
    erased: u64,
    done: Progress,
}

impl CopiedLog<'_> {
    /// Removes from the target what was erased in the source since it was copied.
    ///
    /// A resource that was erased after a round began may have been copied in it. A new resource with its id
    /// has later versions, which the next round copies: so this runs before each round.
    async fn repeat_erasures(&mut self) -> Result<(), BackupError> {
        let CopiedStore { store: source, fhir_base, .. } = self.from;
        for erased in source.erasures().await? {
            if erased.seq > self.began.0 {
                self.erased += repeat_in_copy(source, self.target, &erased, fhir_base, self.last).await?;
            }
        }
        Ok(())
    }

    /// Copies the versions that follow, up to a sequence number.
    async fn copy_until(&mut self, until: Seq, progress: ProgressSink<'_>) -> Result<(), BackupError> {
        self.repeat_erasures().await?;
        let source = self.from.store;
        let mut page = source.read_log(self.last, until, PAGE).await?;
        while let Some(end) = page.last().map(|last| last.seq) {
            let replayed = page.into_iter().map(|version| {
                let key = version.key.to_string();
                let damaged = |error: ResourceBodyError| BackupError::damaged(key, error.to_string());
                resources::stored::replayed(version).map_err(damaged)
            });
            let versions = replayed.collect::<Result<Vec<_>, _>>()?;
            self.done.versions += versions.len() as u64;
            let add = self.receiver.add(ReplayPart { versions, ..ReplayPart::default() });
            let (added, next) = tokio::join!(add, source.read_log(end, until, PAGE));
            added?;
            page = next?;
            progress(self.done);
        }
        self.last = until;
        Ok(())
    }
}
