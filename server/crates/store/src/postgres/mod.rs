//! The engine on a PostgreSQL database, which several nodes share.
//!
//! | module | contents |
//! |---|---|
//! | `database_url`, `tls`, `limits` | the URL, its password and certificates; time limits |
//! | `connection`, `hosts` | one connection, and the choice among several hosts |
//! | `connect` | the pool of connections |
//! | `schema` | tables and migrations |
//! | `rounds` | writer tasks: requests that are written together in one transaction |
//! | `commits` | rounds of commits and snapshots: the commit-ordered sequence |
//! | `records` | rounds of ledger writes |
//! | `presence`, `seen_state` | the node among others, and a database that went back in time |
//! | `acceptance` | the decision of the operator that such a database is used |
//! | `transfer` | the whole content, for backups and copies |
//! | `closed_row`, `closing` | a database whose content moves to another store |
//! | `reassign` | other compartments of stored versions |
//! | `erase`, `last_erasure` | erasure of resources, and how nodes learn of it |
//! | `prefetched` | what a round reads before it decides |
//! | `read` | reads at a sequence number |
//! | `write_fault` | a database that fails writes, and its probe |
//! | `failure` | failures of the database as store errors |
//!
//! Only SQL is used that CockroachDB and YugabyteDB document too: no advisory locks, triggers, cursors or
//! `COPY`.

mod acceptance;
mod closed_row;
mod closing;
mod commits;
mod connect;
mod connection;
mod database_url;
mod erase;
mod failure;
mod hosts;
mod last_erasure;
mod limits;
mod prefetched;
mod presence;
mod read;
mod reassign;
mod records;
mod rounds;
mod schema;
mod seen_state;
mod tls;
mod transfer;
mod write_fault;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::oneshot;
use tokio_postgres::types::Type;

pub(crate) use self::closing::ClosedDatabase;
use self::commits::{CommitRequest, CommitRounds};
use self::connect::{Database, Parameter};
pub use self::database_url::{DatabasePassword, DatabaseUrl};
use self::failure::unavailable;
pub use self::limits::DatabaseLimits;
use self::prefetched::{number, text};
pub use self::presence::{Announcement, NodePresence};
use self::read::{KindSpan, RowVersion, Walk};
use self::records::{LedgerRequest, LedgerRounds};
use self::rounds::RoundQueue;
pub use self::schema::TablesVersion;
pub(crate) use self::transfer::PostgresMoment;
use crate::page::{self, FillingLines, PageBuilder};
use crate::plan::StoredRecord;
use crate::{
    ChangePage, ChangeRecord, ChangesBefore, Commit, DatabaseUsage, IndexEntry, IndexLookup, KeyOrder,
    Ledger, LedgerRecord, LedgerWrite, LinePage, LineScanRange, PageLimit, ResourceKey, ScanOptions, Seq,
    StoreError, StoreSnapshot, UpdatedRange, Version, VersionHeader, VersionPage, VersionWrite, Versions,
};

/// Number of writes from which statistics are collected.
const MIN_ANALYZED: u64 = 1_000;
/// Interval at which the sequence number of the other nodes is polled.
const SEQUENCE_POLL: Duration = Duration::from_millis(250);
/// Interval at which the number of writes is compared with that of the statistics.
const STATISTICS_POLL: Duration = Duration::from_secs(1);

/// A store in a database. Clones share the same connections.
#[derive(Clone)]
pub struct PostgresEngine {
    database: Arc<Database>,
    commits: RoundQueue<CommitRequest>,
    records: RoundQueue<LedgerRequest>,
    heard: Arc<AtomicU64>,
    id: Arc<str>,
}

impl PostgresEngine {
    /// Creates the tables in the database with this URL, or updates those of an earlier version of the
    /// program. Returns the number of migrations that were necessary.
    ///
    /// # Errors
    /// Returns [`StoreError::Unavailable`] if the database cannot be reached, and [`StoreError::Engine`] if
    /// the URL or the tables cannot be used.
    pub async fn migrate(url: &DatabaseUrl, limits: DatabaseLimits) -> Result<usize, StoreError> {
        schema::migrate(&Database::at(url, limits)?).await
    }

    /// Compares the tables of a database with those that this program needs (see
    /// [`crate::Store::tables_version`]).
    pub(crate) async fn tables_version(
        url: &DatabaseUrl,
        limits: DatabaseLimits,
    ) -> Result<TablesVersion, StoreError> {
        schema::tables_version(&Database::at(url, limits)?).await
    }

    /// Opens the store in the database with this URL, whose tables must be those of this version of the
    /// program.
    ///
    /// # Errors
    /// Returns [`StoreError::Unavailable`] if the database cannot be reached, and [`StoreError::Engine`] if
    /// the URL or the tables cannot be used.
    pub async fn open(url: &DatabaseUrl, limits: DatabaseLimits) -> Result<Self, StoreError> {
        let database = Arc::new(Database::at(url, limits)?);
        schema::check(&database).await?;
        let rows = database.query("read the id of the store", "SELECT store_id FROM clock", &[]).await?;
        let row = rows
            .first()
            .ok_or_else(|| StoreError::Corrupt { what: "the table clock is empty".to_owned() })?;
        let heard = Arc::new(AtomicU64::new(0));
        let rounds = CommitRounds { heard: Arc::clone(&heard) };
        let engine = Self {
            commits: rounds::start(rounds, Arc::clone(&database)),
            records: rounds::start(LedgerRounds, Arc::clone(&database)),
            heard,
            id: row.get::<_, &str>(0).into(),
            database,
        };
        engine.last_seq().await?;
        engine.database.connections().set_in_use();
        engine.follow();
        Ok(engine)
    }

    /// Starts the tasks that run until the last clone of the engine is dropped.
    fn follow(&self) {
        tokio::spawn(poll_sequence(Arc::downgrade(&self.database), Arc::clone(&self.heard)));
        tokio::spawn(write_fault::probe_writes(Arc::downgrade(&self.database)));
        tokio::spawn(collect_statistics(Arc::downgrade(&self.database), Arc::clone(&self.heard)));
    }

    /// Announces this node (see [`Announcement`]), and lets it notice a database that went back in time.
    /// `file` is what the node remembers between two runs.
    ///
    /// # Errors
    /// Returns [`StoreError::Engine`] if a running node has another base URL, and [`StoreError::Unavailable`]
    /// if the database cannot be reached.
    pub async fn announce(&self, base_url: &str, file: &Path) -> Result<Announcement, StoreError> {
        let announcement = self.database.announce(&self.id, base_url, file).await?;
        tokio::spawn(keep_present(Arc::downgrade(&self.database)));
        Ok(announcement)
    }

    /// The nodes that use the database.
    ///
    /// # Errors
    /// Returns [`StoreError::Unavailable`] if the database cannot be reached.
    pub async fn nodes(&self) -> Result<Vec<NodePresence>, StoreError> {
        self.database.nodes().await
    }

    /// The id of this node, after it was announced.
    pub async fn node_id(&self) -> Option<String> {
        self.database.node_id().await
    }

    /// Marks this node as ended.
    pub async fn depart(&self) {
        self.database.depart().await;
    }

    /// Completes when the operator has accepted a database that went back in time. All requests fail from
    /// then on.
    pub async fn accepted(&self) {
        self.database.presence.wait_until_accepted().await;
    }

    /// Why the database is refused; `None` if it is used.
    pub fn refusal(&self) -> Option<String> {
        self.database.presence.refusal()
    }

    /// Opens the same database for a caller without a memory of it, so that it is never refused.
    ///
    /// # Errors
    /// See [`PostgresEngine::open`].
    pub(crate) async fn unannounced(&self) -> Result<Self, StoreError> {
        Self::open(self.database.connections().url(), self.database.limits).await
    }

    /// Checks that the database has everything that is in the memory of a stopped node.
    ///
    /// # Errors
    /// Returns [`StoreError::Unavailable`] if the database cannot be reached, or lacks something.
    pub(crate) async fn check_known(&self, memory: &Path) -> Result<(), StoreError> {
        self.database.check_known(&self.id, memory).await
    }

    /// Records the decision of the operator that the database is used from now on.
    ///
    /// # Errors
    /// Returns [`StoreError::Unavailable`] if the database cannot be reached.
    pub(crate) async fn accept(&self, memory: &Path) -> Result<(), StoreError> {
        self.database.accept(&self.id, memory).await
    }

    /// Closes the database (see [`crate::Store::close`]).
    pub(crate) async fn close(&self) -> Result<ClosedDatabase, StoreError> {
        closing::close(&self.database).await
    }

    /// Opens a database whose content was moved (see [`crate::Store::reopen`]).
    pub(crate) async fn reopen(&self) -> Result<(), StoreError> {
        closing::reopen(&self.database).await
    }

    /// Completes when the content was moved to another store.
    pub(crate) async fn moved(&self) {
        self.database.presence.wait_until_moved().await;
    }

    /// The id of the store.
    pub fn id(&self) -> String {
        self.id.to_string()
    }

    /// The latest time that was assigned to a write.
    ///
    /// # Errors
    /// Returns [`StoreError::Unavailable`] if the database cannot be reached.
    pub async fn last_time(&self) -> Result<Option<Timestamp>, StoreError> {
        let sql = "SELECT floor_ms FROM clock WHERE floor_ms > 0";
        let rows = self.database.query("read the clock of the store", sql, &[]).await?;
        rows.first().map(|row| prefetched::time(row.get(0))).transpose()
    }

    /// The time by the clock of the database.
    ///
    /// # Errors
    /// Returns [`StoreError::Unavailable`] if the database cannot be reached.
    pub async fn time(&self) -> Result<Timestamp, StoreError> {
        let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
        let rows = self.database.query("read the time of the database", sql, &[]).await?;
        let row = rows.first().ok_or_else(|| unavailable("the database returned no time"))?;
        prefetched::time(row.get(0))
    }

    /// Checks that the database can be reached and accepts writes, and that the last write, or a probe after
    /// it, has not failed.
    ///
    /// # Errors
    /// Returns [`StoreError::Unavailable`] if it does not, and the error of the last write.
    pub async fn check_writable(&self) -> Result<(), StoreError> {
        let sql = "SELECT current_setting('transaction_read_only')";
        let rows = self.database.query("check the database", sql, &[]).await?;
        match rows.first().map(|row| row.get::<_, &str>(0)) {
            Some("off") => self.database.write_fault.check(),
            _ => Err(unavailable("the database accepts no writes")),
        }
    }

    /// The connections of this node.
    pub(crate) fn usage(&self) -> DatabaseUsage {
        self.database.usage()
    }

    /// A walk for a request, over all times.
    fn walk<'a>(&self, scan: ScanOptions<'a>) -> Walk<'a> {
        Walk { scan, updated: UpdatedRange::default(), patience: self.database.limits.read }
    }

    async fn send_commit<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> CommitRequest,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.commits.send(request(reply)).await?;
        answer.await.map_err(|_| unavailable("the writer has ended"))?
    }
}

/// Increments the number of this node in the database.
async fn keep_present(database: Weak<Database>) {
    loop {
        tokio::time::sleep(presence::BEAT).await;
        let Some(database) = database.upgrade() else { break };
        database.follow_host().await;
        if let Err(error) = database.beat().await {
            tracing::debug!(%error, "the number of this node was not incremented");
        }
    }
}

/// Polls the sequence number of the other nodes.
async fn poll_sequence(database: Weak<Database>, heard: Arc<AtomicU64>) {
    loop {
        tokio::time::sleep(SEQUENCE_POLL).await;
        let Some(database) = database.upgrade() else { break };
        // The next poll may succeed. Until then, requests are answered from the known number.
        match read::last_seq(&database).await {
            Ok(seq) => drop(heard.fetch_max(seq.0, Ordering::AcqRel)),
            Err(error) => tracing::debug!(%error, "the sequence number is unknown"),
        }
    }
}

/// Has the database collect its statistics whenever the number of writes has doubled: without them it sorts
/// whole types for one page of a scan, and its own schedule may be a minute behind an import. After a failure
/// it is left to that schedule, because the tables may be locked for long.
async fn collect_statistics(database: Weak<Database>, heard: Arc<AtomicU64>) {
    let mut analyzed = 0;
    loop {
        tokio::time::sleep(STATISTICS_POLL).await;
        let Some(database) = database.upgrade() else { break };
        let now = heard.load(Ordering::Acquire);
        if now >= 2 * analyzed + MIN_ANALYZED {
            analyzed = now;
            if let Err(error) = schema::analyze(&database).await {
                tracing::warn!(%error, "the statistics of the database are not up to date");
            }
        }
    }
}

impl Ledger for PostgresEngine {
    async fn get(&self, key: &str, now: Timestamp) -> Result<Option<LedgerRecord>, StoreError> {
        let sql = "SELECT key, value, revision, expires_us FROM ledger WHERE key = $1";
        let parameters: &[Parameter<'_>] = &[(&key.as_bytes(), Type::BYTEA)];
        let rows = self.database.query("read a record", sql, parameters).await?;
        let row = rows.first().map(records::record).transpose()?;
        Ok(row.map(|(_, record)| record).filter(|record| record.is_live(now)).map(StoredRecord::into_record))
    }

    async fn write(&self, writes: Vec<LedgerWrite>, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        let (reply, answer) = oneshot::channel();
        let request = LedgerRequest { writes, now, reply };
        self.records.send(request).await?;
        answer.await.map_err(|_| unavailable("the writer has ended"))?
    }

    async fn scan(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<(String, LedgerRecord)>, StoreError> {
        // No byte of a text in UTF-8 is 255.
        let end = [prefix.as_bytes(), &[u8::MAX]].concat();
        let sql = "SELECT key, value, revision, expires_us FROM ledger \
                   WHERE key >= $1 AND key < $2 AND key > $3 AND (expires_us IS NULL OR expires_us > $4) \
                   ORDER BY key LIMIT $5";
        let after = after.unwrap_or_default();
        let (now, limit) = (now.as_microsecond(), i64::try_from(limit).unwrap_or(i64::MAX));
        let parameters: &[Parameter<'_>] = &[
            (&prefix.as_bytes(), Type::BYTEA),
            (&end, Type::BYTEA),
            (&after.as_bytes(), Type::BYTEA),
            (&now, Type::INT8),
            (&limit, Type::INT8),
        ];
        let rows = self.database.query("read records", sql, parameters).await?;
        let record = |row| records::record(row).map(|(key, record)| (key, record.into_record()));
        rows.iter().map(record).collect()
    }

    async fn sweep(&self, now: Timestamp, limit: usize) -> Result<usize, StoreError> {
        // A record that is written again while the statement waits for its lock is checked again.
        let sql = "WITH removed AS (DELETE FROM ledger WHERE expires_us <= $1 AND key IN \
                   (SELECT key FROM ledger WHERE expires_us <= $1 ORDER BY expires_us LIMIT $2) RETURNING 1) \
                   SELECT count(*) FROM removed";
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let parameters: &[Parameter<'_>] = &[(&now.as_microsecond(), Type::INT8), (&limit, Type::INT8)];
        let rows = self
            .database
            .query_within(self.database.limits.background, "remove expired records", sql, parameters)
            .await?;
        Ok(rows.first().map_or(0, |row| row.get::<_, i64>(0) as usize))
    }
}

impl Versions for PostgresEngine {
    async fn commit(&self, writes: Vec<VersionWrite>, now: Timestamp) -> Result<Commit, StoreError> {
        self.send_commit(|reply| CommitRequest::Commit(writes, now, reply)).await
    }

    async fn snapshot(&self, now: Timestamp) -> Result<StoreSnapshot, StoreError> {
        self.send_commit(|reply| CommitRequest::Snapshot(now, reply)).await
    }

    async fn read(&self, key: &ResourceKey, seq: Seq) -> Result<Option<Version>, StoreError> {
        let versions = self.read_many(&key.kind, vec![key.id.clone()], seq, usize::MAX).await?;
        Ok(versions.into_iter().next().flatten())
    }

    async fn read_many(
        &self,
        kind: &str,
        ids: Vec<String>,
        seq: Seq,
        bytes: usize,
    ) -> Result<Vec<Option<Version>>, StoreError> {
        let versions = read::versions_of(&self.database, kind, &ids, seq, bytes).await?;
        page::read_until(ids, bytes, |id| Ok(versions.get(&id).cloned().flatten()))
    }

    async fn ids(
        &self,
        kind: &str,
        order: KeyOrder,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>, StoreError> {
        read::ids(&self.database, kind, order, after, limit).await
    }

    async fn index_entries(&self, lookups: Vec<IndexLookup>) -> Result<Vec<Vec<IndexEntry>>, StoreError> {
        read::index_entries(&self.database, lookups).await
    }

    async fn history(
        &self,
        key: &ResourceKey,
        before: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Version>, StoreError> {
        read::history(&self.database, key, before, limit).await
    }

    async fn scan_kind(&self, kind: &str, scan: ScanOptions<'_>) -> Result<VersionPage, StoreError> {
        read::check_start(&self.database, kind, scan.after).await?;
        let mut page = PageBuilder::new(scan.limit);
        let span = KindSpan { after: scan.after, ..KindSpan::default() };
        let push = |version: &RowVersion<'_>| page.push(version.to_version(kind));
        let is_full = read::walk_kind(&self.database, kind, span, self.walk(scan), push).await?;
        Ok(if is_full { page.full() } else { page.last() })
    }

    async fn scan_compartment(
        &self,
        compartment: &str,
        kind: &str,
        scan: ScanOptions<'_>,
    ) -> Result<VersionPage, StoreError> {
        let mut page = PageBuilder::new(scan.limit);
        let push = |_, version: &RowVersion<'_>| page.push(version.to_version(kind));
        let (walk, after) = (self.walk(scan), scan.after);
        let is_full =
            read::walk_compartments(&self.database, &[compartment], kind, after, walk, push).await?;
        Ok(if is_full { page.full() } else { page.last() })
    }

    async fn scan_lines(
        &self,
        kind: &str,
        of: LineScanRange,
        scan: ScanOptions<'_>,
        updated: UpdatedRange,
        keep: impl Fn(&VersionHeader<'_>) -> bool + Send + 'static,
        page: impl FnMut(LinePage) -> bool + Send + 'static,
    ) -> Result<(), StoreError> {
        let mut lines = FillingLines::new(scan.limit, updated, keep, page);
        // Versions without a body are counted too.
        let all = ScanOptions { deleted: true, ..scan };
        let database = &*self.database;
        let walk = Walk { scan: all, updated, patience: database.limits.background };
        let push = |lines: &mut FillingLines<_, _>, version: &RowVersion<'_>, within: Option<&str>| {
            let key = within.is_none().then_some(version.id.as_bytes());
            let header = VersionHeader::new(version.id, version.updated, version.compartments, within);
            match version.body {
                Some(body) => lines.push(key, &header, body),
                None => lines.pass(key, header.id),
            }
        };
        match of {
            LineScanRange::Kind { from, until } => {
                read::check_start(&self.database, kind, scan.after).await?;
                let span = KindSpan {
                    after: scan.after,
                    from: from.as_ref().map(|mark| mark.key()),
                    until: until.as_ref().map(|mark| mark.key()),
                };
                let push = |version: &RowVersion<'_>| push(&mut lines, version, None);
                if !read::walk_kind(database, kind, span, walk, push).await? {
                    lines.end();
                }
            }
            LineScanRange::Compartments(compartments) => {
                let mut remaining = 0;
                let push = |index: usize, version: &RowVersion<'_>| {
                    (remaining..index).for_each(|_| lines.leave_compartment());
                    remaining = index;
                    push(&mut lines, version, Some(&compartments[index]))
                };
                if read::walk_compartments(database, &compartments, kind, scan.after, walk, push).await? {
                    return Ok(());
                }
                (remaining..compartments.len()).for_each(|_| lines.leave_compartment());
                lines.end();
            }
        }
        Ok(())
    }

    async fn kinds(&self, seq: Seq) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT kind FROM kind WHERE first_seq <= $1 ORDER BY kind";
        let parameters: &[Parameter<'_>] = &[(&number(seq), Type::INT8)];
        let rows = self.database.query("read the types", sql, parameters).await?;
        rows.iter().map(|row| text(row.get(0))).collect()
    }

    async fn count(&self, kind: &str, seq: Seq) -> Result<u64, StoreError> {
        read::count(&self.database, kind, seq).await
    }

    async fn changes(&self, after: Seq, limit: usize) -> Result<Vec<ChangeRecord>, StoreError> {
        read::changes(&self.database, None, after, limit).await
    }

    async fn changes_of(
        &self,
        kinds: &'static [&'static str],
        after: Seq,
        limit: usize,
    ) -> Result<Vec<ChangeRecord>, StoreError> {
        read::changes(&self.database, Some(kinds), after, limit).await
    }

    async fn changes_before(
        &self,
        kind: Option<&str>,
        range: ChangesBefore,
    ) -> Result<ChangePage, StoreError> {
        read::changes_before(&self.database, kind, range).await
    }

    async fn seq_at(&self, time: Timestamp) -> Result<Seq, StoreError> {
        let sql = "SELECT seq FROM change WHERE updated_ms <= $1 ORDER BY updated_ms DESC, seq DESC LIMIT 1";
        let parameters: &[Parameter<'_>] = &[(&time.as_millisecond(), Type::INT8)];
        let rows = self.database.query("read a sequence number", sql, parameters).await?;
        Ok(rows.first().map_or(Seq::ZERO, |row| Seq(row.get::<_, i64>(0) as u64)))
    }

    async fn last_seq(&self) -> Result<Seq, StoreError> {
        let seq = read::last_seq(&self.database).await?;
        self.heard.fetch_max(seq.0, Ordering::AcqRel);
        Ok(seq)
    }

    fn heard_seq(&self) -> Seq {
        Seq(self.heard.load(Ordering::Acquire))
    }
}
