//! The audit log: FHIR R4 AuditEvents, one JSON line each, in `DIR/audit/audit-YYYY-MM-DD.ndjson` (UTC). The
//! files are append-only.
//!
//! | module | contents |
//! |---|---|
//! | [`render`] | events of identity, exports and administration |
//! | [`rest`] | reads and changes of FHIR resources (IHE BALP) |
//! | `entry`, `coding` | an entry, and the code systems of AuditEvent |
//! | `caller` | who made a request |
//! | [`counts`] | counts of the events, for metrics |
//! | [`queue`] | events that wait for a destination outside of the server |
//! | [`erase`](mod@erase) | erasure of the texts about a patient |
//! | here | the log, and the durability of its lines before a response is sent |
//!
//! `identity` emits typed events ([`identity::audit`]). The caller is a local variable of the task that
//! serves the request: [`AuditLog::on_behalf`] collects the lines of a request and delays its result until
//! they are as durable as configured. A log that cannot be written makes the server not ready.

mod caller;
mod coding;
pub mod counts;
mod entry;
pub mod erase;
pub mod queue;
mod render;
pub mod rest;

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use identity::audit::{AuditEvent, AuditSink};
use jiff::Timestamp;
use store::StoreError;
use store::folder::make_folder;
use store::space::{DiskSpace, WritePurpose};

pub use self::caller::{AuditActor, AuditCaller};
pub use self::entry::{AuditEntry, AuditSource};
use self::queue::AuditQueue;
use self::queue::unsent_lines::{PREFIX, SUFFIX};
use crate::clock::{Clock, resource_id};
use crate::config::audit::{AuditConfig, Durability, RecordedRequests};
use crate::records::append_log::{AppendLog, LogLine};
use crate::records::minute_counts::{Counted, EndedCount, MinuteCounts};
use crate::records::retained_folder::{RetainedFolder, RetentionLimits};
use crate::records::traces::TraceContext;

tokio::task_local! {
    static CALLER: Arc<AuditCaller>;
}

/// Records that the current request has valid credentials.
pub fn mark_authenticated() {
    let _ = CALLER.try_with(|caller| caller.is_authenticated.store(true, Ordering::Relaxed));
}

/// Records the client of the current request, once its credentials or its token are known.
pub fn set_client(client_id: &str) {
    // Outside of a request there is no client.
    let _ = CALLER.try_with(|caller| caller.client_id.set(client_id.to_owned()));
}

/// The client of the current request, if it is known.
pub fn client_id() -> Option<String> {
    CALLER.try_with(|caller| caller.client_id.get().cloned()).ok().flatten()
}

/// The place of the current request in a trace.
pub fn trace() -> Option<TraceContext> {
    CALLER.try_with(|caller| caller.trace).ok().flatten()
}

/// Returns whether the current request has valid credentials.
pub fn is_authenticated() -> bool {
    CALLER.try_with(|caller| caller.is_authenticated.load(Ordering::Relaxed)).unwrap_or(false)
}

/// The network by which the requests of an address are counted: an IPv6 address belongs to a network of 64
/// bits.
pub fn source_network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(address) => address.into(),
            None => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        },
        address => address,
    }
}

/// Sets the actor of the current request, once it is known.
pub fn set_actor(actor: AuditActor) {
    // Outside of a request the caller is unknown.
    let _ = CALLER.try_with(|caller| caller.actor.set(actor));
}

/// The lines of a request could not be written, so its result must not be sent.
#[derive(Debug, thiserror::Error)]
#[error(
    "the audit log cannot be written, or too many events wait for their destination, and durability = \"synced\" \
     requires it for every response; try again later"
)]
pub struct NotRecorded;

/// The audit log of one server.
pub struct AuditLog {
    clock: Clock,
    source: AuditSource,
    config: AuditConfig,
    lines: AppendLog,
    strangers: MinuteCounts<(Option<IpAddr>, AuditEvent)>,
    /// Number of different events of strangers by network.
    varieties: MinuteCounts<Option<IpAddr>>,
    /// Events of strangers that are too many to be counted by network and content.
    others: MinuteCounts<AuditEvent>,
    disk: DiskSpace,
    counts: counts::EventCounts,
    queue: Option<Arc<AuditQueue>>,
}

/// Maximum number of different events of strangers that are counted in a minute, in all and for one network.
const MAX_STRANGER_EVENTS: usize = 1_000;
const MAX_VARIETIES: u64 = 20;

impl AuditLog {
    /// Opens the log in a data folder.
    ///
    /// # Errors
    /// An error if the folder cannot be created or the thread not started.
    pub fn open(
        data: &Path,
        source: AuditSource,
        config: AuditConfig,
        clock: Clock,
    ) -> io::Result<Arc<Self>> {
        let sync = config.durability == Durability::Synced;
        let folder = data.join("audit");
        let limits = RetentionLimits {
            keep_days: config.keep_days,
            max_bytes: config.max_bytes,
            removes_early: !sync,
        };
        make_folder(&folder, 0o700)?;
        let mut retained = RetainedFolder::new(folder, PREFIX, SUFFIX, limits);
        let queue =
            config.delivery.as_ref().map(|delivery| AuditQueue::open(data, delivery.queue_bytes, sync));
        let queue = queue.transpose()?.map(Arc::new);
        if let Some(queue) = queue.clone() {
            retained = retained.keeping(Arc::new(move |file| queue.needs(file)));
        }
        let disk = retained.disk();
        let lines = AppendLog::open(retained, "audit log", sync)?;
        let most = MAX_STRANGER_EVENTS;
        let (strangers, varieties) = (MinuteCounts::new(most), MinuteCounts::new(most));
        let others = MinuteCounts::new(most);
        let counts = counts::EventCounts::default();
        Ok(Arc::new(Self { clock, source, config, lines, strangers, varieties, others, disk, counts, queue }))
    }

    /// The events that wait for their destination; `None` if events stay in the files.
    pub fn queue(&self) -> Option<&Arc<AuditQueue>> {
        self.queue.as_ref()
    }

    /// The counts of all events since the start.
    pub fn counts(&self) -> &counts::EventCounts {
        &self.counts
    }

    /// Returns whether these requests for FHIR resources are recorded.
    pub fn records(&self, requests: RecordedRequests) -> bool {
        requests <= self.config.resources
    }

    /// Does work on behalf of a caller. Returns its result once its audit lines are as durable as configured.
    /// If the work is cancelled, the lines are queued.
    ///
    /// A log that cannot be written is an error only with [`Durability::Synced`].
    pub async fn on_behalf<T>(
        &self,
        caller: AuditCaller,
        work: impl Future<Output = T>,
    ) -> (T, Result<(), NotRecorded>) {
        let request = AuditedRequest { audit: self, caller: Arc::new(caller) };
        let result = CALLER.scope(request.caller.clone(), work).await;
        (result, self.flush_of(&request.caller).await)
    }

    /// Waits until the lines of the current request are as durable as configured. Requests with many events
    /// call it repeatedly, so that their lines do not accumulate in memory.
    pub async fn flush(&self) {
        if let Ok(caller) = CALLER.try_with(Arc::clone) {
            // The failure is stored in the caller and reported by `on_behalf`.
            let _ = self.flush_of(&caller).await;
        }
    }

    async fn flush_of(&self, caller: &AuditCaller) -> Result<(), NotRecorded> {
        let lines = caller.take_lines();
        let has_lines = !lines.is_empty();
        if has_lines && !self.lines.write(lines).await {
            caller.has_failed.store(true, Ordering::Relaxed);
        }
        let must_be_recorded = self.config.durability == Durability::Synced;
        let has_failed = caller.has_failed.load(Ordering::Relaxed)
            || has_lines && self.queue().is_some_and(|queue| queue.is_full());
        if must_be_recorded && has_failed { Err(NotRecorded) } else { Ok(()) }
    }

    /// Adds an entry. Never waits. An event that strangers can cause without limit is only counted if it has
    /// a line in this minute.
    pub fn add(&self, entry: &AuditEntry) {
        self.counts.count(entry);
        let now = self.clock.now();
        let caller = CALLER.try_with(Arc::clone).ok();
        match entry {
            AuditEntry::Identity(event) if event.is_of_stranger() => {
                match self.count_stranger(event, caller.as_deref(), now) {
                    StrangerEvent::Recorded => self.add_line(entry, caller, now),
                    StrangerEvent::Generalized(event) => {
                        self.add_line(&AuditEntry::Identity(event), caller, now);
                    }
                    StrangerEvent::Counted => {}
                }
            }
            _ => {
                if let Some(caller) = &caller {
                    caller.is_authenticated.store(true, Ordering::Relaxed);
                }
                self.add_line(entry, caller, now);
            }
        }
    }

    fn count_stranger(
        &self,
        event: &AuditEvent,
        caller: Option<&AuditCaller>,
        now: Timestamp,
    ) -> StrangerEvent {
        let must_be_recorded = self.config.durability == Durability::Synced;
        if must_be_recorded && self.disk.check(0, WritePurpose::Export).is_err() {
            // The rest of the disk is for the lines of those who are authenticated.
            if let Some(caller) = caller {
                caller.has_failed.store(true, Ordering::Relaxed);
            }
            return StrangerEvent::Counted;
        }
        let source = caller.and_then(|caller| caller.address).map(source_network);
        let count = self.strangers.count(&(source, event.clone()), 1, now);
        let is_known = count == Counted::Further;
        let has_room = count == Counted::Written
            && self.varieties.count(&source, MAX_VARIETIES, now) == Counted::Written;
        if is_known {
            return StrangerEvent::Counted;
        }
        if has_room {
            return StrangerEvent::Recorded;
        }
        let event = event.generalized();
        match self.others.count(&event, 1, now) {
            Counted::Written => StrangerEvent::Generalized(event),
            Counted::Further | Counted::TooMany => StrangerEvent::Counted,
        }
    }

    /// Writes the counts of the minutes that have ended. Call it a few times a minute.
    pub fn write_counts(&self) {
        let now = self.clock.now();
        self.varieties.take_ended(MAX_VARIETIES, now);
        self.add_counts(self.strangers.take_ended(1, now), self.others.take_ended(1, now), now);
    }

    /// Adds a count of further events of a minute that has ended.
    pub fn add_count(&self, minute: EndedCount<AuditEvent>) {
        self.add_counts(Vec::new(), vec![minute], self.clock.now());
    }

    fn add_counts(
        &self,
        strangers: Vec<EndedCount<(Option<IpAddr>, AuditEvent)>>,
        others: Vec<EndedCount<AuditEvent>>,
        now: Timestamp,
    ) {
        let others = others.into_iter().map(|EndedCount { key, minute, further }| EndedCount {
            key: (None, key),
            minute,
            further,
        });
        for EndedCount { key: (address, event), minute, further } in strangers.into_iter().chain(others) {
            let caller = AuditCaller { address, ..AuditCaller::default() };
            let entry = AuditEntry::Further { event, count: further, minute };
            let line = self.line(&entry, Some(&caller), now);
            self.lines.add(vec![line]);
        }
    }

    fn line(&self, entry: &AuditEntry, caller: Option<&AuditCaller>, now: Timestamp) -> LogLine {
        let id = resource_id(&*self.clock.random);
        let event = render::render(entry, caller, now, &id, &self.source);
        let day = &fhir::instant::format(now)[..10];
        let text = format!("{event}\n");
        if let Some(queue) = self.queue() {
            queue.add(&text);
        }
        LogLine { day: day.to_owned(), text }
    }

    fn add_line(&self, entry: &AuditEntry, caller: Option<Arc<AuditCaller>>, now: Timestamp) {
        let line = self.line(entry, caller.as_deref(), now);
        match caller {
            Some(caller) if self.config.durability != Durability::Queued => {
                caller.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
            _ => self.lines.add(vec![line]),
        }
    }

    /// The number of lines that are not written yet.
    pub fn queued(&self) -> usize {
        self.lines.queued()
    }

    /// Why events cannot be recorded.
    pub fn fault(&self) -> Option<&'static str> {
        if self.lines.has_failed() {
            return Some("the audit log cannot be written; the server's log has the details");
        }
        let is_full = self.queue().is_some_and(|queue| queue.is_full());
        is_full.then_some("more audit events than send_queue_bytes wait for their destination")
    }

    /// Checks that the next write to the store can be recorded: with [`Durability::Synced`], nothing is
    /// changed while the log cannot be written.
    ///
    /// # Errors
    /// [`StoreError::ReadOnly`] if it cannot be written.
    pub fn check(&self) -> Result<(), StoreError> {
        match self.fault() {
            Some(reason) if self.config.durability == Durability::Synced => {
                Err(StoreError::ReadOnly { part: "audit log", reason: reason.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// Writes all queued lines and ends. A failed write is repeated only once. May block.
    pub fn close(&self) {
        self.add_counts(self.strangers.take_all(1), self.others.take_all(1), self.clock.now());
        self.lines.close();
    }
}

/// How an event of a stranger is recorded.
enum StrangerEvent {
    Recorded,
    /// By a line without the ids and reasons in it, because there are too many different ones.
    Generalized(AuditEvent),
    /// By a count, or not at all because its request fails.
    Counted,
}

impl AuditSink for AuditLog {
    fn record(&self, event: AuditEvent) {
        self.add(&AuditEntry::Identity(event));
    }
}

/// A request that is being served.
struct AuditedRequest<'a> {
    audit: &'a AuditLog,
    caller: Arc<AuditCaller>,
}

impl Drop for AuditedRequest<'_> {
    /// Queues the lines of a request that was cancelled.
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
    use std::sync::atomic::AtomicI64;

    use serde_json::Value;

    use super::*;
    use crate::records::append_log::MAX_QUEUED;

    const DURABILITIES: [Durability; 3] = [Durability::Queued, Durability::Written, Durability::Synced];

    fn open(data: &Path, durability: Durability, clock: Clock) -> Arc<AuditLog> {
        let config = AuditConfig { durability, ..AuditConfig::default() };
        AuditLog::open(data, render::test_source(), config, clock).unwrap()
    }

    fn lines(folder: &Path) -> Vec<Value> {
        let mut files: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let text: Vec<_> = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
        let text = text.join("\n");
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// A request that emits `events` events.
    async fn request(audit: &AuditLog, events: usize) -> Result<(), NotRecorded> {
        let work = async {
            for _ in 0..events {
                audit.record(AuditEvent::KeysRotated);
                tokio::task::yield_now().await;
            }
        };
        audit.on_behalf(AuditCaller::default(), work).await.1
    }

    #[tokio::test]
    async fn a_request_ends_once_its_lines_are_in_the_file() {
        for durability in [Durability::Written, Durability::Synced] {
            let data = tempfile::tempdir().unwrap();
            let audit = open(data.path(), durability, Clock::system());
            for count in [3, 5] {
                request(&audit, count).await.unwrap();
            }
            // The log is not closed here: the lines are in the file before the requests end.
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
    async fn events_of_strangers_are_one_line_and_a_count() {
        let data = tempfile::tempdir().unwrap();
        let second = Arc::new(AtomicI64::new(600_000));
        let time = Arc::clone(&second);
        let now = move || Timestamp::from_second(time.load(Ordering::Relaxed)).unwrap();
        let audit = open(data.path(), Durability::Written, Clock::new(now, Clock::system().random));
        let stranger = async |last: u8, event: AuditEvent| {
            let address = Some(IpAddr::from([192, 0, 2, last]));
            let caller = AuditCaller { address, ..AuditCaller::default() };
            audit.on_behalf(caller, async { audit.record(event) }).await.1.unwrap();
        };
        let rejection = |reason: usize| AuditEvent::ClientRejected {
            client_id: None,
            reason: format!("reason {reason}"),
        };
        for _ in 0..1_000 {
            stranger(1, rejection(0)).await;
        }
        stranger(2, rejection(0)).await;
        // One that varies the reasons.
        for reason in 0..1_000 {
            stranger(3, rejection(reason)).await;
        }
        second.fetch_add(60, Ordering::Relaxed);
        audit.write_counts();
        stranger(1, rejection(0)).await;
        audit.close();
        let lines = lines(&data.path().join("audit"));
        let of = |last: u8| {
            let address = format!("192.0.2.{last}");
            let lines = lines.iter().filter(|line| line["agent"][0]["network"]["address"] == address);
            lines.cloned().collect::<Vec<_>>()
        };
        let further =
            |line: &Value| line["entity"][0]["detail"][0]["valueString"].as_str().map(str::to_owned);
        let first = of(1);
        assert_eq!(first.len(), 3);
        assert_eq!(further(&first[1]).as_deref(), Some("999"));
        assert_eq!(first[1]["period"]["end"], "1970-01-07T22:41:00.000Z");
        assert_eq!((of(2).len(), of(3).len()), (1, 21));
        let others: Vec<_> = lines.iter().filter(|line| line["outcomeDesc"] == "several reasons").collect();
        assert_eq!(others.len(), 2);
        assert_eq!(further(others[1]).as_deref(), Some("979"));
        lines.iter().for_each(render::check_shape);
    }

    #[tokio::test]
    async fn only_with_synced_a_request_fails_if_the_log_cannot_be_written() {
        for durability in DURABILITIES {
            let data = tempfile::tempdir().unwrap();
            let audit = open(data.path(), durability, Clock::system());
            std::fs::remove_dir(data.path().join("audit")).unwrap();
            let response = request(&audit, 1).await;
            assert_eq!(response.is_err(), durability == Durability::Synced, "{durability:?}");
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
            audit.record(AuditEvent::KeysRotated);
            audit.close();
            assert_eq!(audit.fault(), None);
            // A crash may cut off a line.
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
        // A file instead of the folder, so that no file can be opened there.
        std::fs::remove_dir(data.path().join("audit")).unwrap();
        std::fs::write(data.path().join("audit"), "in the way").unwrap();
        for _ in 0..MAX_QUEUED + 100 {
            audit.record(AuditEvent::KeysRotated);
        }
        while audit.fault().is_none() {
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
        audit.record(AuditEvent::KeysRotated);
        while audit.fault().is_none() {
            std::thread::yield_now();
        }
        std::fs::create_dir(&folder).unwrap();
        audit.record(AuditEvent::KeysRotated);
        audit.close();
        assert_eq!((audit.fault(), lines(&folder).len()), (None, 2));
    }
}
