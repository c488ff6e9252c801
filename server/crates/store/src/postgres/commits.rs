//! Rounds of commits and snapshots. Each round locks the row of the table `clock` until it ends. Sequence
//! numbers are therefore assigned and become visible in the same order, whichever node writes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::future;
use jiff::Timestamp;
use tokio::sync::oneshot;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use super::connect::Parameter;
use super::prefetched::{Prefetched, number, text, time, utf8};
use super::rounds::{Round, RoundError, RoundTransaction};
use crate::membership;
use crate::plan::{RoundPuts, StoreCounters, VersionPut, WriteRound};
use crate::{Commit, IndexRange, ResourceKey, Seq, StoreError, StoreSnapshot, Version, VersionWrite};

/// The end of a span of sequence numbers that is still open.
pub(super) const OPEN: i64 = i64::MAX;

/// A commit or snapshot of a caller.
pub(super) enum CommitRequest {
    Commit(Vec<VersionWrite>, Timestamp, oneshot::Sender<Result<Commit, StoreError>>),
    Snapshot(Timestamp, oneshot::Sender<Result<StoreSnapshot, StoreError>>),
}

/// The answer to one request.
pub(super) enum CommitAnswer {
    Commit(Result<Commit, StoreError>),
    Snapshot(StoreSnapshot),
}

/// The rounds of commits of one node.
pub(super) struct CommitRounds {
    /// The greatest sequence number that this node has heard of.
    pub heard: Arc<AtomicU64>,
}

/// The changes that a round writes.
pub(super) struct CommitPuts {
    versions: Vec<VersionPut>,
    /// Versions that get a later source time.
    confirmed: Vec<Version>,
    before: StoreCounters,
    after: StoreCounters,
}

impl Round for CommitRounds {
    type Request = CommitRequest;
    type Answers = (Vec<CommitAnswer>, u64);
    type Puts = CommitPuts;

    fn weight(request: &CommitRequest) -> usize {
        match request {
            CommitRequest::Commit(writes, ..) => {
                writes.iter().map(|write| write.body.as_ref().map_or(64, |draft| draft.bytes.len())).sum()
            }
            CommitRequest::Snapshot(..) => 64,
        }
    }

    async fn decide(
        &self,
        transaction: &RoundTransaction<'_>,
        requests: &[CommitRequest],
    ) -> Result<(Self::Answers, CommitPuts), RoundError> {
        let client = transaction.client;
        let writes = || {
            requests.iter().flat_map(|request| match request {
                CommitRequest::Commit(writes, ..) => &writes[..],
                CommitRequest::Snapshot(..) => &[],
            })
        };
        let (begun, clock, versions, indexed) = tokio::join!(
            biased;
            transaction.begin(),
            client.query_typed_one("SELECT seq, floor_ms FROM clock FOR UPDATE", &[]),
            read_newest(client, writes().map(|write| (&write.key, write.unless_same))),
            read_indexed(client, writes()),
        );
        begun?;
        let clock = clock?;
        let (seq, floor_ms): (i64, i64) = (clock.get(0), clock.get(1));
        let before = StoreCounters { seq: seq as u64, revision: 0, floor_ms };
        let present = Prefetched { versions: versions?, indexed: indexed?, ..Prefetched::default() };
        let mut round = WriteRound::new(&present, before);
        let answers = requests
            .iter()
            .map(|request| match request {
                CommitRequest::Commit(writes, now, _) => {
                    CommitAnswer::Commit(round.commit(writes.clone(), *now))
                }
                CommitRequest::Snapshot(now, _) => CommitAnswer::Snapshot(round.snapshot(*now)),
            })
            .collect();
        let RoundPuts { versions, confirmed, counters: after, .. } = round.into_puts();
        Ok(((answers, after.seq), CommitPuts { versions, confirmed, before, after }))
    }

    async fn put(&self, client: &Client, puts: &CommitPuts) -> Result<(), RoundError> {
        if puts.before == puts.after && puts.versions.is_empty() && puts.confirmed.is_empty() {
            return Ok(());
        }
        let columns = Columns::of(&puts.versions);
        let seq = number(Seq(puts.after.seq));
        let counters: [Parameter<'_>; 2] = [(&seq, Type::INT8), (&puts.after.floor_ms, Type::INT8)];
        let (clock, versions) = tokio::join!(
            biased;
            client.execute_typed("UPDATE clock SET seq = $1, floor_ms = $2", &counters),
            columns.write(client),
        );
        clock?;
        versions?;
        write_source_times(client, &puts.confirmed).await
    }

    fn answer(&self, requests: Vec<CommitRequest>, answers: Result<Self::Answers, StoreError>) {
        match answers {
            Ok((answers, seq)) => {
                self.heard.fetch_max(seq, Ordering::AcqRel);
                for (request, answer) in requests.into_iter().zip(answers) {
                    // A caller that was cancelled needs no answer.
                    match (request, answer) {
                        (CommitRequest::Commit(_, _, reply), CommitAnswer::Commit(commit)) => {
                            drop(reply.send(commit))
                        }
                        (CommitRequest::Snapshot(_, reply), CommitAnswer::Snapshot(snapshot)) => {
                            drop(reply.send(Ok(snapshot)));
                        }
                        _ => unreachable!("the answers have the order of the requests"),
                    }
                }
            }
            Err(error) => {
                for request in requests {
                    match request {
                        CommitRequest::Commit(_, _, reply) => drop(reply.send(Err(error.clone()))),
                        CommitRequest::Snapshot(_, reply) => drop(reply.send(Err(error.clone()))),
                    }
                }
            }
        }
    }
}

/// Reads the newest versions of resources. A body is read only if a write compares it, which the second value
/// of an item says; the body of every other version that is no tombstone is empty.
pub(super) async fn read_newest(
    client: &Client,
    keys: impl Iterator<Item = (&ResourceKey, bool)>,
) -> Result<HashMap<ResourceKey, Version>, RoundError> {
    let mut compared: HashMap<&ResourceKey, bool> = HashMap::new();
    for (key, is_compared) in keys {
        *compared.entry(key).or_default() |= is_compared;
    }
    if compared.is_empty() {
        return Ok(HashMap::new());
    }
    let (mut kinds, mut ids, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
    for (key, with_body) in compared {
        kinds.push(key.kind.as_bytes());
        ids.push(key.id.as_bytes());
        bodies.push(with_body);
    }
    // Bodies are sent only for writes that are compared with them, because they may be large.
    let sql = "SELECT c.kind, c.id, c.seq, c.version, c.updated_ms, c.compartments, c.body IS NULL, \
               CASE WHEN k.compared THEN c.body END \
               FROM unnest($1, $2, $3) AS k (kind, id, compared) \
               JOIN current c ON c.kind = k.kind AND c.id = k.id";
    let parameters: [Parameter<'_>; 3] =
        [(&kinds, Type::BYTEA_ARRAY), (&ids, Type::BYTEA_ARRAY), (&bodies, Type::BOOL_ARRAY)];
    let rows = client.query_typed(sql, &parameters).await?;
    let version = |row: &Row| -> Result<_, StoreError> {
        let key = ResourceKey { kind: text(row.get(0))?, id: text(row.get(1))? };
        let body = match (row.get(6), row.get::<_, Option<Vec<u8>>>(7)) {
            (true, _) => None,
            (false, body) => Some(body.map_or(Bytes::new(), Bytes::from)),
        };
        let (source_time, compartments) = membership::decode(utf8(row.get(5))?)?;
        let version = Version {
            key: key.clone(),
            seq: Seq(row.get::<_, i64>(2) as u64),
            version: row.get::<_, i64>(3) as u64,
            updated: time(row.get(4))?,
            compartments,
            source_time,
            body,
        };
        Ok((key, version))
    };
    Ok(rows.iter().map(version).collect::<Result<_, _>>()?)
}

/// The conditions on the search index that do not hold.
async fn read_indexed(
    client: &Client,
    writes: impl Iterator<Item = &VersionWrite>,
) -> Result<Vec<(IndexRange, Seq)>, RoundError> {
    let conditions = writes.filter_map(|write| write.unless_indexed.as_ref());
    let ranges =
        conditions.flat_map(|condition| condition.ranges.iter().map(|range| (range, condition.since)));
    let looks = ranges.map(async |(range, since)| {
        let after = number(since);
        let entries = match range {
            IndexRange::Term(term) => {
                let sql = "SELECT 1::bigint FROM term WHERE term = $1 AND seq > $2 LIMIT 1";
                let parameters: &[Parameter<'_>] = &[(&&**term, Type::BYTEA), (&after, Type::INT8)];
                client.query_typed(sql, parameters).await?
            }
            IndexRange::Between(from, until) => {
                let sql = "SELECT 1::bigint FROM term WHERE term >= $1 AND term < $2 AND seq > $3 LIMIT 1";
                let parameters: &[Parameter<'_>] =
                    &[(&&**from, Type::BYTEA), (&&**until, Type::BYTEA), (&after, Type::INT8)];
                client.query_typed(sql, parameters).await?
            }
        };
        Ok::<_, RoundError>((!entries.is_empty()).then(|| (range.clone(), since)))
    });
    Ok(future::try_join_all(looks).await?.into_iter().flatten().collect())
}

/// Writes the source times of versions.
async fn write_source_times(client: &Client, confirmed: &[Version]) -> Result<(), RoundError> {
    if confirmed.is_empty() {
        return Ok(());
    }
    let (mut keys, mut seqs, mut compartments) = (Keys::default(), Vec::new(), Vec::new());
    for version in confirmed {
        keys.push(&version.key);
        seqs.push(number(version.seq));
        compartments.push(membership::encode(version.source_time, &version.compartments).into_bytes());
    }
    let sql = "UPDATE current c SET compartments = k.compartments \
               FROM unnest($1, $2, $3, $4) AS k (kind, id, seq, compartments) \
               WHERE c.kind = k.kind AND c.id = k.id AND c.seq = k.seq";
    let parameters: [Parameter<'_>; 4] = [
        (&keys.kinds, Type::BYTEA_ARRAY),
        (&keys.ids, Type::BYTEA_ARRAY),
        (&seqs, Type::INT8_ARRAY),
        (&compartments, Type::BYTEA_ARRAY),
    ];
    client.execute_typed(sql, &parameters).await?;
    Ok(())
}

/// The rows of a round, by columns.
#[derive(Default)]
pub(super) struct Columns<'a> {
    /// Keys of the resources whose newest version moves from the table `current` to `history`.
    moved: Keys<'a>,
    /// Versions that a later write of the same round replaces.
    replaced: VersionRows<'a>,
    newest: VersionRows<'a>,
    changes: VersionRows<'a>,
    /// The spans of compartments that begin in this round: their members and first numbers, with their ends.
    joined: BTreeMap<(Member<'a>, i64), i64>,
    /// The spans that end in this round and began before it, with their ends.
    left: BTreeMap<Member<'a>, i64>,
    /// Terms of the search index, with the sequence number of their last write.
    terms: BTreeMap<(&'a [u8], &'a [u8]), i64>,
    /// Sequence number of the first write of each type of the round.
    kinds: BTreeMap<&'a [u8], i64>,
}

/// A compartment, and the type and id of a resource in it.
type Member<'a> = (&'a [u8], &'a [u8], &'a [u8]);

#[derive(Default)]
struct Keys<'a> {
    kinds: Vec<&'a [u8]>,
    ids: Vec<&'a [u8]>,
}

#[derive(Default)]
struct VersionRows<'a> {
    keys: Keys<'a>,
    seqs: Vec<i64>,
    versions: Vec<i64>,
    updated: Vec<i64>,
    compartments: Vec<Vec<u8>>,
    bodies: Vec<Option<&'a [u8]>>,
    deleted: Vec<bool>,
}

impl<'a> Keys<'a> {
    fn push(&mut self, key: &'a ResourceKey) {
        self.kinds.push(key.kind.as_bytes());
        self.ids.push(key.id.as_bytes());
    }
}

impl<'a> VersionRows<'a> {
    fn push(&mut self, version: &'a Version) {
        self.keys.push(&version.key);
        self.seqs.push(number(version.seq));
        self.versions.push(version.version as i64);
        self.updated.push(version.updated.as_millisecond());
        let compartments = membership::encode(version.source_time, &version.compartments);
        self.compartments.push(compartments.into_bytes());
        self.bodies.push(version.body.as_deref());
        self.deleted.push(version.is_deleted());
    }

    /// Writes the rows with a statement whose parameters are the columns of a version.
    async fn write(&self, client: &Client, sql: &str) -> Result<(), tokio_postgres::Error> {
        if self.seqs.is_empty() {
            return Ok(());
        }
        let parameters: [Parameter<'_>; 7] = [
            (&self.keys.kinds, Type::BYTEA_ARRAY),
            (&self.keys.ids, Type::BYTEA_ARRAY),
            (&self.seqs, Type::INT8_ARRAY),
            (&self.versions, Type::INT8_ARRAY),
            (&self.updated, Type::INT8_ARRAY),
            (&self.compartments, Type::BYTEA_ARRAY),
            (&self.bodies, Type::BYTEA_ARRAY),
        ];
        client.execute_typed(sql, &parameters).await.map(drop)
    }
}

impl<'a> Columns<'a> {
    pub fn of(puts: &'a [VersionPut]) -> Self {
        let mut columns = Self::default();
        let mut last: HashMap<&ResourceKey, usize> = HashMap::new();
        for (index, put) in puts.iter().enumerate() {
            let (new, seq) = (&put.new, number(put.new.seq));
            let (kind, id) = (new.key.kind.as_bytes(), new.key.id.as_bytes());
            match last.insert(&new.key, index) {
                Some(earlier) => columns.replaced.push(&puts[earlier].new),
                None if put.replaced.is_some() => columns.moved.push(&new.key),
                None => {}
            }
            for compartment in &put.joined {
                columns.joined.insert(((compartment.as_bytes(), kind, id), seq), OPEN);
            }
            for compartment in &put.left {
                let member = (compartment.as_bytes(), kind, id);
                match columns.joined.range_mut((member, 0)..=(member, OPEN)).next_back() {
                    Some((_, until)) if *until == OPEN => *until = seq,
                    _ => drop(columns.left.insert(member, seq)),
                }
            }
            for term in &put.terms {
                columns.terms.insert((term, id), seq);
            }
            columns.kinds.entry(kind).or_insert(seq);
            columns.changes.push(new);
        }
        for index in last.into_values() {
            columns.newest.push(&puts[index].new);
        }
        columns
    }

    /// Sends all statements at once. The database runs them in this order.
    pub async fn write(&self, client: &Client) -> Result<(), tokio_postgres::Error> {
        tokio::try_join!(
            biased;
            self.write_moved(client),
            self.replaced.write(
                client,
                "INSERT INTO history (kind, id, seq, version, updated_ms, compartments, body) \
                 SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7)",
            ),
            self.newest.write(
                client,
                "INSERT INTO current (kind, id, seq, version, updated_ms, compartments, body) \
                 SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7) \
                 ON CONFLICT (kind, id) DO UPDATE SET seq = excluded.seq, version = excluded.version, \
                 updated_ms = excluded.updated_ms, compartments = excluded.compartments, body = excluded.body",
            ),
            self.write_changes(client),
            self.write_left(client),
            self.write_joined(client),
            self.write_terms(client),
            self.write_kinds(client),
        )?;
        Ok(())
    }

    async fn write_moved(&self, client: &Client) -> Result<(), tokio_postgres::Error> {
        if self.moved.ids.is_empty() {
            return Ok(());
        }
        let sql = "INSERT INTO history (kind, id, seq, version, updated_ms, compartments, body) \
                   SELECT c.kind, c.id, c.seq, c.version, c.updated_ms, c.compartments, c.body \
                   FROM unnest($1, $2) AS k (kind, id) JOIN current c ON c.kind = k.kind AND c.id = k.id";
        let parameters: [Parameter<'_>; 2] =
            [(&self.moved.kinds, Type::BYTEA_ARRAY), (&self.moved.ids, Type::BYTEA_ARRAY)];
        client.execute_typed(sql, &parameters).await.map(drop)
    }

    async fn write_changes(&self, client: &Client) -> Result<(), tokio_postgres::Error> {
        let rows = &self.changes;
        if rows.seqs.is_empty() {
            return Ok(());
        }
        let sql = "INSERT INTO change (kind, id, seq, version, updated_ms, deleted) \
                   SELECT * FROM unnest($1, $2, $3, $4, $5, $6)";
        let parameters: [Parameter<'_>; 6] = [
            (&rows.keys.kinds, Type::BYTEA_ARRAY),
            (&rows.keys.ids, Type::BYTEA_ARRAY),
            (&rows.seqs, Type::INT8_ARRAY),
            (&rows.versions, Type::INT8_ARRAY),
            (&rows.updated, Type::INT8_ARRAY),
            (&rows.deleted, Type::BOOL_ARRAY),
        ];
        client.execute_typed(sql, &parameters).await.map(drop)
    }

    async fn write_left(&self, client: &Client) -> Result<(), tokio_postgres::Error> {
        if self.left.is_empty() {
            return Ok(());
        }
        let (mut compartments, mut kinds, mut ids, mut ends) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for ((compartment, kind, id), end) in &self.left {
            compartments.push(*compartment);
            kinds.push(*kind);
            ids.push(*id);
            ends.push(*end);
        }
        let sql = "UPDATE member m SET until_seq = l.until_seq \
                   FROM unnest($1, $2, $3, $4) AS l (compartment, kind, id, until_seq) \
                   WHERE m.compartment = l.compartment AND m.kind = l.kind AND m.id = l.id AND m.until_seq = $5";
        let parameters: [Parameter<'_>; 5] = [
            (&compartments, Type::BYTEA_ARRAY),
            (&kinds, Type::BYTEA_ARRAY),
            (&ids, Type::BYTEA_ARRAY),
            (&ends, Type::INT8_ARRAY),
            (&OPEN, Type::INT8),
        ];
        client.execute_typed(sql, &parameters).await.map(drop)
    }

    async fn write_joined(&self, client: &Client) -> Result<(), tokio_postgres::Error> {
        if self.joined.is_empty() {
            return Ok(());
        }
        let (mut compartments, mut kinds, mut ids) = (Vec::new(), Vec::new(), Vec::new());
        let (mut from, mut until) = (Vec::new(), Vec::new());
        for (((compartment, kind, id), start), end) in &self.joined {
            compartments.push(*compartment);
            kinds.push(*kind);
            ids.push(*id);
            from.push(*start);
            until.push(*end);
        }
        let sql = "INSERT INTO member (compartment, kind, id, from_seq, until_seq) \
                   SELECT * FROM unnest($1, $2, $3, $4, $5)";
        let parameters: [Parameter<'_>; 5] = [
            (&compartments, Type::BYTEA_ARRAY),
            (&kinds, Type::BYTEA_ARRAY),
            (&ids, Type::BYTEA_ARRAY),
            (&from, Type::INT8_ARRAY),
            (&until, Type::INT8_ARRAY),
        ];
        client.execute_typed(sql, &parameters).await.map(drop)
    }

    async fn write_terms(&self, client: &Client) -> Result<(), tokio_postgres::Error> {
        if self.terms.is_empty() {
            return Ok(());
        }
        let (mut terms, mut ids, mut seqs) = (Vec::new(), Vec::new(), Vec::new());
        for ((term, id), seq) in &self.terms {
            terms.push(*term);
            ids.push(*id);
            seqs.push(*seq);
        }
        let sql = "INSERT INTO term (term, id, seq) SELECT * FROM unnest($1, $2, $3) \
                   ON CONFLICT (term, id) DO UPDATE SET seq = excluded.seq";
        let parameters: [Parameter<'_>; 3] =
            [(&terms, Type::BYTEA_ARRAY), (&ids, Type::BYTEA_ARRAY), (&seqs, Type::INT8_ARRAY)];
        client.execute_typed(sql, &parameters).await.map(drop)
    }

    async fn write_kinds(&self, client: &Client) -> Result<(), tokio_postgres::Error> {
        if self.kinds.is_empty() {
            return Ok(());
        }
        let kinds: Vec<&[u8]> = self.kinds.keys().copied().collect();
        let seqs: Vec<i64> = self.kinds.values().copied().collect();
        let sql =
            "INSERT INTO kind (kind, first_seq) SELECT * FROM unnest($1, $2) ON CONFLICT (kind) DO NOTHING";
        let parameters: [Parameter<'_>; 2] = [(&kinds, Type::BYTEA_ARRAY), (&seqs, Type::INT8_ARRAY)];
        client.execute_typed(sql, &parameters).await.map(drop)
    }
}
