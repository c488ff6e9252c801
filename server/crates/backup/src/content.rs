//! Reads the content of backups: segments are fetched, checked and decoded ahead of their use.

use jiff::Timestamp;
use store::blocking::run_blocking;
use store::{LedgerEntry, ReplayPart, ReplayedVersion, Seq, Version};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::manifest::Segment;
use crate::receiver::MARKER;
use crate::succession::RECORDS;
use crate::{BackupError, BackupLocation};

/// Number of rows of a part, and the size of their contents in bytes.
const PART_ROWS: usize = 1_000;
const PART_BYTES: usize = 1 << 20;
/// Number of parts that wait for the store.
const WAITING: usize = 4;

/// The rows of some backups.
#[derive(Debug, Default)]
pub(crate) struct BackupContent {
    pub log: Vec<Segment>,
    pub ledger: Vec<Segment>,
    /// Time after which versions are left out.
    pub until: Option<Timestamp>,
    /// Beginnings of the keys of records that are left out.
    pub left_out: &'static [&'static str],
}

/// The parts of a content, in their order. The log comes before the ledger.
pub(crate) struct ContentParts {
    parts: mpsc::Receiver<Result<ReplayPart, BackupError>>,
    task: JoinHandle<()>,
}

impl Drop for ContentParts {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ContentParts {
    /// The next part, or `None` at the end.
    pub async fn next(&mut self) -> Result<Option<ReplayPart>, BackupError> {
        self.parts.recv().await.transpose()
    }
}

impl BackupContent {
    /// Starts reading.
    pub fn read(self, location: BackupLocation) -> ContentParts {
        let (sender, parts) = mpsc::channel(WAITING);
        let task = tokio::spawn(async move {
            if let Err(error) = self.send(&location, &sender).await {
                // A receiver that is gone needs no error.
                drop(sender.send(Err(error)).await);
            }
        });
        ContentParts { parts, task }
    }

    async fn send(
        self,
        location: &BackupLocation,
        sender: &mpsc::Sender<Result<ReplayPart, BackupError>>,
    ) -> Result<(), BackupError> {
        let mut last = Seq::ZERO;
        for segment in self.log {
            let bytes = location.get(&segment.object).await?;
            let (sender, until, key) = (sender.clone(), self.until, location.shared_key());
            let blocking = run_blocking(move || {
                let mut parts = PartSender::new(sender);
                segment.read_rows(&bytes, key.as_deref(), |version: Version| {
                    if until.is_some_and(|until| version.updated > until) {
                        // The log is in the order of time, so that the rest is later, too.
                        return Ok(false);
                    }
                    // Rows that are repeated or out of order mean that an object was exchanged.
                    if version.seq <= last {
                        let what = format!("sequence number {} follows {last}", version.seq);
                        return Err(BackupError::damaged(&segment.object, what));
                    }
                    last = version.seq;
                    let key = version.key.to_string();
                    let replayed = resources::stored::replayed(version)
                        .map_err(|error| BackupError::damaged(&segment.object, format!("{key}: {error}")))?;
                    parts.version(replayed)
                })?;
                parts.flush()?;
                Ok::<_, BackupError>(last)
            });
            last = blocking.await.map_err(|_| BackupError::Interrupted)??;
        }
        for segment in self.ledger {
            let bytes = location.get(&segment.object).await?;
            let (sender, left_out, key) = (sender.clone(), self.left_out, location.shared_key());
            let blocking = run_blocking(move || {
                let mut parts = PartSender::new(sender);
                segment.read_rows(&bytes, key.as_deref(), |entry: LedgerEntry| {
                    let mut left_out = left_out.iter().chain(&[RECORDS]);
                    let is_left_out = left_out.any(|prefix| entry.key.starts_with(prefix));
                    if is_left_out { Ok(true) } else { parts.record(entry) }
                })?;
                parts.flush()
            });
            blocking.await.map_err(|_| BackupError::Interrupted)??;
        }
        Ok(())
    }
}

/// Collects rows and sends them in parts.
struct PartSender {
    sender: mpsc::Sender<Result<ReplayPart, BackupError>>,
    part: ReplayPart,
    bytes: usize,
}

impl PartSender {
    fn new(sender: mpsc::Sender<Result<ReplayPart, BackupError>>) -> Self {
        Self { sender, part: ReplayPart::default(), bytes: 0 }
    }

    fn version(&mut self, version: ReplayedVersion) -> Result<bool, BackupError> {
        self.bytes += version.version.body.as_ref().map_or(0, |body| body.len());
        self.part.versions.push(version);
        self.end_row()
    }

    fn record(&mut self, entry: LedgerEntry) -> Result<bool, BackupError> {
        if entry.key != MARKER {
            self.bytes += entry.value.len();
            self.part.records.push(entry);
        }
        self.end_row()
    }

    fn end_row(&mut self) -> Result<bool, BackupError> {
        let rows = self.part.versions.len() + self.part.records.len();
        if rows >= PART_ROWS || self.bytes >= PART_BYTES {
            self.flush()?;
        }
        Ok(true)
    }

    fn flush(&mut self) -> Result<(), BackupError> {
        self.bytes = 0;
        let part = std::mem::take(&mut self.part);
        if part == ReplayPart::default() {
            return Ok(());
        }
        self.sender.blocking_send(Ok(part)).map_err(|_| BackupError::Interrupted)
    }
}
