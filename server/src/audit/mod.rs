//! The audit log: FHIR R4 AuditEvents, one JSON line each, in `DIR/audit/audit-YYYY-MM-DD.ndjson` (UTC). Lines are only
//! ever appended.
//!
//! | module | contents |
//! |---|---|
//! | [`render`] | events of identity, exports and administration |
//! | [`rest`] | reads and changes of FHIR resources (IHE BALP) |
//! | here | the caller, the log, and how durable its lines are before a response is sent |
//!
//! `identity` emits typed events ([`identity::audit`]). The caller is known to the task that serves the request:
//! [`Audit::on_behalf`] collects the lines of one request and holds its result back until they are as durable as
//! configured. Readiness reports a log that cannot be written.

mod render;
pub mod rest;

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use identity::audit::{Event, Sink};
use serde::Deserialize;
use store::StoreError;

use self::rest::RestEvent;
use crate::clock::{Clock, resource_id};
use crate::line_log::{Line, LineLog};

/// `[audit]`: the audit log.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuditConfig {
    /// State of the lines of a request when its response is sent.
    pub durability: Durability,
    /// The requests for FHIR resources that are recorded.
    pub resources: RecordedRequests,
}

/// State of the audit lines of a request when its response is sent.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// In the memory of the process: a crash of the server loses them.
    Queued,
    /// Given to the operating system: a crash of the server loses nothing, a power failure can.
    #[default]
    Written,
    /// On the disk. If they cannot be written, the response is an error.
    Synced,
}

/// The requests for FHIR resources that are recorded.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordedRequests {
    /// None.
    Off,
    /// Creates, updates and deletes.
    #[default]
    Changes,
    /// Reads, histories, searches and downloads of exports too.
    All,
}

tokio::task_local! {
    static CALLER: Arc<Caller>;
}

/// The caller of a request, and the lines of the request that are not written yet.
#[derive(Debug, Default)]
pub struct Caller {
    /// Address of the client.
    pub address: Option<IpAddr>,
    /// Id of the request.
    pub request_id: Option<Arc<str>>,
    actor: OnceLock<Actor>,
    lines: Mutex<Vec<Line>>,
    /// Lines of the request could not be written.
    has_failed: AtomicBool,
}

/// The party on whose behalf something is done, if the event itself does not contain it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actor {
    /// A person with access to the data folder, by the command line.
    Operator,
    /// A user, by the subject of a token.
    User(String),
    /// A client, by its id.
    Client(String),
}

impl Caller {
    /// The sender of a request.
    pub fn of_request(address: Option<IpAddr>, request_id: Arc<str>) -> Self {
        Self { address, request_id: Some(request_id), ..Self::default() }
    }

    /// The command line.
    pub fn operator() -> Self {
        Self { actor: Actor::Operator.into(), ..Self::default() }
    }

    fn take_lines(&self) -> Vec<Line> {
        std::mem::take(&mut *self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Sets the actor of the current request, once it is known.
pub fn is_actor(actor: Actor) {
    // Outside of a request there is no caller.
    let _ = CALLER.try_with(|caller| caller.actor.set(actor));
}

/// An event of the server, besides those of `identity`.
#[derive(Debug)]
pub enum Entry {
    /// An event of `identity`.
    Identity(Event),
    /// An export was accepted.
    Export {
        /// The client.
        client_id: String,
        /// The job.
        job: String,
        /// The kick-off URL.
        request: String,
    },
    /// A file of an export was sent.
    Download {
        /// The job.
        job: String,
        /// The name of the file.
        file: String,
    },
    /// Resources were imported by the command line.
    Import {
        /// Number of resources that were stored.
        stored: u64,
        /// The files and folders.
        paths: Vec<String>,
    },
    /// A resource was read or changed.
    Rest(RestEvent),
}

/// The lines of a request could not be written, so its result must not be sent.
#[derive(Debug, thiserror::Error)]
#[error(
    "the audit log cannot be written, and with durability \"synced\" nothing is answered without it; try again later"
)]
pub struct NotRecorded;

/// The audit log of one server.
pub struct Audit {
    clock: Clock,
    /// The server, which observes all events: its base URL.
    observer: String,
    config: AuditConfig,
    lines: LineLog,
}

impl Audit {
    /// Opens the log in a data folder.
    ///
    /// # Errors
    /// The folder cannot be created, or the thread not started.
    pub fn open(data: &Path, observer: &str, config: AuditConfig, clock: Clock) -> io::Result<Arc<Self>> {
        let sync = config.durability == Durability::Synced;
        let lines = LineLog::open(data.join("audit"), "audit log", sync)?;
        Ok(Arc::new(Self { clock, observer: observer.to_owned(), config, lines }))
    }

    /// Returns whether these requests for FHIR resources are recorded.
    pub fn records(&self, requests: RecordedRequests) -> bool {
        requests <= self.config.resources
    }

    /// Does the work on behalf of a caller, and returns its result once its lines are as durable as configured. If the
    /// work is cancelled, the lines are queued.
    ///
    /// Only with [`Durability::Synced`] a log that cannot be written is an error.
    pub async fn on_behalf<T>(
        &self,
        caller: Caller,
        work: impl Future<Output = T>,
    ) -> (T, Result<(), NotRecorded>) {
        let request = Request { audit: self, caller: Arc::new(caller) };
        let done = CALLER.scope(request.caller.clone(), work).await;
        (done, self.flush_of(&request.caller).await)
    }

    /// Waits until the lines of the current request are as durable as configured. Requests with many events call it now
    /// and then, so that their lines do not pile up in memory.
    pub async fn flush(&self) {
        if let Ok(caller) = CALLER.try_with(Arc::clone) {
            // The failure stays with the caller and is reported by `on_behalf`.
            let _ = self.flush_of(&caller).await;
        }
    }

    async fn flush_of(&self, caller: &Caller) -> Result<(), NotRecorded> {
        let lines = caller.take_lines();
        if !lines.is_empty() && !self.lines.write(lines).await {
            caller.has_failed.store(true, Ordering::Relaxed);
        }
        let must_be_recorded = self.config.durability == Durability::Synced;
        if must_be_recorded && caller.has_failed.load(Ordering::Relaxed) { Err(NotRecorded) } else { Ok(()) }
    }

    /// Adds an entry. Never waits.
    pub fn add(&self, entry: &Entry) {
        let now = self.clock.now();
        let caller = CALLER.try_with(Arc::clone).ok();
        let id = resource_id(&*self.clock.random);
        let event = render::render(entry, caller.as_deref(), now, &id, &self.observer);
        let day = &fhir::instant::format(now)[..10];
        let line = Line { file: format!("audit-{day}.ndjson"), text: format!("{event}\n") };
        match caller {
            Some(caller) if self.config.durability != Durability::Queued => {
                caller.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
            _ => self.lines.add(vec![line]),
        }
    }

    /// Returns a description of what is wrong with the log, if it cannot be written.
    pub fn trouble(&self) -> Option<&'static str> {
        self.lines.has_failed().then_some("the audit log cannot be written; the server's log says why")
    }

    /// Checks that the next write to the store can be recorded: with [`Durability::Synced`] nothing is changed while the log
    /// cannot be written.
    ///
    /// # Errors
    /// [`StoreError::ReadOnly`].
    pub fn check(&self) -> Result<(), StoreError> {
        if self.config.durability == Durability::Synced && self.lines.has_failed() {
            let reason = "the audit log cannot be written".to_owned();
            return Err(StoreError::ReadOnly { part: "audit log", reason });
        }
        Ok(())
    }

    /// Writes all queued lines and ends. A failed write is repeated once only. May block.
    pub fn close(&self) {
        self.lines.close();
    }
}

impl Sink for Audit {
    fn record(&self, event: Event) {
        self.add(&Entry::Identity(event));
    }
}

/// A request that is being served.
struct Request<'a> {
    audit: &'a Audit,
    caller: Arc<Caller>,
}

impl Drop for Request<'_> {
    /// Queues the lines of a request whose client has gone away.
    fn drop(&mut self) {
        let lines = self.caller.take_lines();
        if !lines.is_empty() {
            self.audit.lines.add(lines);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::Value;

    use super::*;
    use crate::line_log::MAX_QUEUED;

    const DURABILITIES: [Durability; 3] = [Durability::Queued, Durability::Written, Durability::Synced];

    fn open(data: &Path, durability: Durability, clock: Clock) -> Arc<Audit> {
        let config = AuditConfig { durability, ..AuditConfig::default() };
        Audit::open(data, "https://as.example", config, clock).unwrap()
    }

    fn lines(folder: &Path) -> Vec<Value> {
        let mut files: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let text: Vec<_> = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
        let text = text.join("\n");
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// A request that emits so many events.
    async fn request(audit: &Audit, events: usize) -> Result<(), NotRecorded> {
        let work = async {
            for _ in 0..events {
                audit.record(Event::KeysRotated);
                tokio::task::yield_now().await;
            }
        };
        audit.on_behalf(Caller::default(), work).await.1
    }

    #[tokio::test]
    async fn a_request_ends_once_its_lines_are_in_the_file() {
        for durability in [Durability::Written, Durability::Synced] {
            let data = tempfile::tempdir().unwrap();
            let audit = open(data.path(), durability, Clock::system());
            for count in [3, 5] {
                request(&audit, count).await.unwrap();
            }
            // Nothing is closed here: the lines are in the file before the requests end.
            assert_eq!(lines(&data.path().join("audit")).len(), 8);
        }
    }

    #[tokio::test]
    async fn the_lines_of_a_cancelled_request_are_written() {
        for durability in DURABILITIES {
            let data = tempfile::tempdir().unwrap();
            let audit = open(data.path(), durability, Clock::system());
            let mut cancelled = Box::pin(request(&audit, 2));
            assert!(futures_util::poll!(&mut cancelled).is_pending());
            drop(cancelled);
            audit.close();
            assert_eq!(lines(&data.path().join("audit")).len(), 1);
        }
    }

    #[tokio::test]
    async fn only_with_synced_a_request_fails_if_the_log_cannot_be_written() {
        for durability in DURABILITIES {
            let data = tempfile::tempdir().unwrap();
            let audit = open(data.path(), durability, Clock::system());
            std::fs::remove_dir(data.path().join("audit")).unwrap();
            let done = request(&audit, 1).await;
            assert_eq!(done.is_err(), durability == Durability::Synced, "{durability:?}");
            // Requests without events are answered.
            request(&audit, 0).await.unwrap();
        }
    }

    #[test]
    fn lines_are_added_by_the_day_and_private() {
        let data = tempfile::tempdir().unwrap();
        let clock = |day: &'static str| Clock::new(move || day.parse().unwrap(), Clock::system().random);
        for day in ["2026-01-31T23:59:59Z", "2026-01-31T23:59:59.5Z", "2026-02-01T00:00:00Z"] {
            let audit = open(data.path(), Durability::default(), clock(day));
            audit.record(Event::KeysRotated);
            audit.close();
            assert_eq!(audit.trouble(), None);
            // A crash may cut a line off.
            let file = data.path().join(format!("audit/audit-{}.ndjson", &day[..10]));
            assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
            OpenOptions::new().append(true).open(&file).unwrap().write_all(b"{\"cut").unwrap();
        }
        let lines = lines(&data.path().join("audit"));
        assert_eq!(lines.len(), 3, "{lines:?}");
        lines.iter().for_each(render::check_shape);
        assert!(data.path().join("audit/audit-2026-02-01.ndjson").exists());
    }

    #[test]
    fn a_log_that_cannot_be_written_is_reported_and_blocks_nothing() {
        let data = tempfile::tempdir().unwrap();
        let audit = open(data.path(), Durability::default(), Clock::system());
        // A file in the place of the folder: no file can be opened there.
        std::fs::remove_dir(data.path().join("audit")).unwrap();
        std::fs::write(data.path().join("audit"), "in the way").unwrap();
        for _ in 0..MAX_QUEUED + 100 {
            audit.record(Event::KeysRotated);
        }
        while audit.trouble().is_none() {
            std::thread::yield_now();
        }
        audit.close();
        assert_eq!(audit.lines.lost(), MAX_QUEUED as u64 + 100);
    }

    #[test]
    fn queued_lines_are_written_when_the_disk_takes_them_again() {
        let data = tempfile::tempdir().unwrap();
        let audit = open(data.path(), Durability::default(), Clock::system());
        let folder = data.path().join("audit");
        std::fs::remove_dir(&folder).unwrap();
        audit.record(Event::KeysRotated);
        while audit.trouble().is_none() {
            std::thread::yield_now();
        }
        std::fs::create_dir(&folder).unwrap();
        audit.record(Event::KeysRotated);
        audit.close();
        assert_eq!((audit.trouble(), lines(&folder).len()), (None, 2));
    }
}
