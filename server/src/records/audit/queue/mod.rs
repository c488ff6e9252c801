//! The audit events that wait for their destination outside of the server, which [`crate::node`] sends.
//! The audit files are the queue ([`unsent_lines`]); here are its bound, its faults and its counts.
//!
//! Above the bound, `synced` refuses requests, and the others drop the oldest events that wait. They stay
//! in the files.

pub mod unsent_lines;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use store::blocking::run_blocking;

use self::unsent_lines::{LineBatch, SUFFIX, Unsent, UnsentLines};

/// The audit events of one server that wait for their destination.
pub struct AuditQueue {
    /// Maximum number of bytes that wait.
    most: u64,
    /// At the bound, requests are refused instead of events dropped.
    pub refuses: bool,
    lines: Arc<Mutex<UnsentLines>>,
    unsent: Mutex<Unsent>,
    /// Why the last attempt to send events failed.
    fault: Mutex<Option<String>>,
    /// Numbers since the start.
    pub counts: DeliveryCounts,
}

/// Numbers since the start.
#[derive(Debug, Default)]
pub struct DeliveryCounts {
    /// Events that the destination has.
    pub sent: AtomicU64,
    /// Events that the destination has refused.
    pub rejected: AtomicU64,
    /// Bytes of the events that were dropped above the bound.
    pub dropped_bytes: AtomicU64,
}

impl AuditQueue {
    /// The events in a data folder of which at most `most` bytes may wait.
    ///
    /// # Errors
    /// See [`UnsentLines::open`].
    pub fn open(data: &Path, most: u64, refuses: bool) -> io::Result<Self> {
        let lines = UnsentLines::open(data)?;
        let unsent = Mutex::new(lines.unsent()?);
        let (fault, counts) = Default::default();
        Ok(Self { most, refuses, lines: Arc::new(Mutex::new(lines)), unsent, fault, counts })
    }

    /// Number of bytes that wait.
    pub fn unsent_bytes(&self) -> u64 {
        self.lock_unsent().bytes
    }

    /// Returns whether so many events wait that requests are refused.
    pub fn is_full(&self) -> bool {
        self.refuses && self.unsent_bytes() > self.most
    }

    /// Why no events are sent.
    pub fn fault(&self) -> Option<String> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records whether events can be sent.
    pub fn set_fault(&self, fault: Option<String>) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// Counts a new line.
    pub(super) fn add(&self, line: &str) {
        self.lock_unsent().bytes += line.len() as u64;
    }

    /// Returns whether lines of a file may wait.
    pub(super) fn needs(&self, file: &str) -> bool {
        let stem = |name: &str| name.strip_suffix(SUFFIX).map(str::to_owned);
        self.lock_unsent().first.as_deref().is_some_and(|first| stem(file) >= stem(first))
    }

    fn lock_unsent(&self) -> MutexGuard<'_, Unsent> {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next events, at most `most`; `None` if none wait.
    ///
    /// # Errors
    /// See [`UnsentLines::next`].
    pub async fn next(&self, most: usize) -> Result<Option<LineBatch>> {
        self.with_lines(move |lines| lines.next(most)).await
    }

    /// Counts events as sent.
    ///
    /// # Errors
    /// See [`UnsentLines::complete`].
    pub async fn complete(&self, batch: LineBatch) -> Result<()> {
        self.with_lines(move |lines| lines.complete(&batch)).await
    }

    /// Saves what was sent.
    ///
    /// # Errors
    /// See [`UnsentLines::save`].
    pub async fn save(&self) -> Result<()> {
        self.with_lines(UnsentLines::save).await
    }

    /// Measures what waits, and drops the oldest events above the bound unless requests are refused there.
    ///
    /// # Errors
    /// An error if the audit files cannot be read.
    pub async fn limit(&self) -> Result<()> {
        let most = if self.refuses { u64::MAX } else { self.most };
        let has_limit = self.with_lines(move |lines| {
            let unsent = lines.unsent()?;
            if unsent.bytes <= most {
                return Ok((unsent, 0));
            }
            let dropped = lines.drop_oldest(most)?;
            Ok((lines.unsent()?, dropped))
        });
        let (unsent, dropped) = has_limit.await?;
        *self.lock_unsent() = unsent;
        if dropped > 0 {
            self.counts.dropped_bytes.fetch_add(dropped, Ordering::Relaxed);
            tracing::error!(
                bytes = dropped,
                "audit events are not sent, because more than send_queue_bytes wait; they stay in the files"
            );
        }
        Ok(())
    }

    async fn with_lines<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut UnsentLines) -> io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let lines = Arc::clone(&self.lines);
        let work = move || work(&mut lines.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(run_blocking(work).await??)
    }
}
