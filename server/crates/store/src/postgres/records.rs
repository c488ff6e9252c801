//! Rounds of ledger writes. They lock only the records that they write, so they never wait for a commit of
//! resources.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use jiff::Timestamp;
use tokio::sync::oneshot;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use super::connect::Parameter;
use super::prefetched::{Prefetched, text};
use super::rounds::{Round, RoundError, RoundTransaction};
use crate::plan::{RoundPuts, StoreCounters, StoredRecord, WriteRound};
use crate::{LedgerWrite, StoreError};

/// Number of revisions in the block that a round takes. A round has fewer writes.
pub(super) const BLOCK: u64 = 1 << 20;

/// Adds records, whose columns are the parameters.
pub(super) const ADD: &str =
    "INSERT INTO ledger (key, value, revision, expires_us) SELECT * FROM unnest($1, $2, $3, $4)";

/// A batch of writes of a caller.
pub(super) struct LedgerRequest {
    pub writes: Vec<LedgerWrite>,
    pub now: Timestamp,
    pub reply: oneshot::Sender<Result<Vec<u64>, StoreError>>,
}

/// The rounds of ledger writes of one node.
pub(super) struct LedgerRounds;

/// The changes that a round writes.
#[derive(Default)]
pub(super) struct LedgerPuts {
    added: BTreeMap<String, StoredRecord>,
    replaced: BTreeMap<String, StoredRecord>,
    removed: Vec<String>,
}

impl Round for LedgerRounds {
    type Request = LedgerRequest;
    type Answers = Vec<Result<Vec<u64>, StoreError>>;
    type Puts = LedgerPuts;

    fn weight(request: &LedgerRequest) -> usize {
        let weigh = |write: &LedgerWrite| match write {
            LedgerWrite::Put { value, .. } => 64 + value.len(),
            LedgerWrite::Delete { .. } => 64,
        };
        request.writes.iter().map(weigh).sum()
    }

    async fn decide(
        &self,
        transaction: &RoundTransaction<'_>,
        requests: &[LedgerRequest],
    ) -> Result<(Self::Answers, LedgerPuts), RoundError> {
        let client = transaction.client;
        // Two nodes that lock the same records do so in the same order.
        let keys: BTreeSet<&[u8]> =
            requests.iter().flat_map(|request| &request.writes).map(|write| write.key().as_bytes()).collect();
        let keys: Vec<&[u8]> = keys.into_iter().collect();
        let lock =
            "SELECT key, value, revision, expires_us FROM ledger WHERE key = ANY($1) ORDER BY key FOR UPDATE";
        let parameters: [Parameter<'_>; 1] = [(&keys, Type::BYTEA_ARRAY)];
        let (begun, locked, block) = tokio::join!(
            biased;
            transaction.begin(),
            client.query_typed(lock, &parameters),
            client.query_typed_one("SELECT nextval('ledger_block')", &[]),
        );
        begun?;
        let records = locked?.iter().map(record).collect::<Result<HashMap<_, _>, _>>()?;
        let present = Prefetched { records, ..Prefetched::default() };
        let counters =
            StoreCounters { revision: block?.get::<_, i64>(0) as u64 * BLOCK, ..StoreCounters::default() };
        let mut round = WriteRound::new(&present, counters);
        let answers =
            requests.iter().map(|request| round.write(request.writes.clone(), request.now)).collect();
        let RoundPuts { records, .. } = round.into_puts();
        let last: BTreeMap<String, Option<StoredRecord>> =
            records.into_iter().map(|put| (put.key, put.new)).collect();
        let mut puts = LedgerPuts::default();
        for (key, new) in last {
            match (new, present.records.contains_key(&key)) {
                (Some(new), true) => drop(puts.replaced.insert(key, new)),
                (Some(new), false) => drop(puts.added.insert(key, new)),
                (None, true) => puts.removed.push(key),
                (None, false) => {}
            }
        }
        Ok((answers, puts))
    }

    async fn put(&self, client: &Client, puts: &LedgerPuts) -> Result<(), RoundError> {
        tokio::try_join!(
            biased;
            // If another node has created one of the keys meanwhile, the violation of uniqueness repeats the
            // round.
            write(
                client,
                &puts.added,
                ADD,
            ),
            write(
                client,
                &puts.replaced,
                "UPDATE ledger l SET value = n.value, revision = n.revision, expires_us = n.expires_us \
                 FROM unnest($1, $2, $3, $4) AS n (key, value, revision, expires_us) WHERE l.key = n.key",
            ),
            remove(client, &puts.removed),
        )?;
        Ok(())
    }

    fn answer(&self, requests: Vec<LedgerRequest>, answers: Result<Self::Answers, StoreError>) {
        // A caller that was cancelled needs no answer.
        match answers {
            Ok(answers) => {
                for (request, answer) in requests.into_iter().zip(answers) {
                    drop(request.reply.send(answer));
                }
            }
            Err(error) => {
                for request in requests {
                    drop(request.reply.send(Err(error.clone())));
                }
            }
        }
    }
}

/// The key and the record of a row with the columns `key`, `value`, `revision` and `expires_us`.
pub(super) fn record(row: &Row) -> Result<(String, StoredRecord), StoreError> {
    let record = StoredRecord {
        value: Bytes::from(row.get::<_, Vec<u8>>(1)),
        revision: row.get::<_, i64>(2) as u64,
        expires_us: row.get(3),
    };
    Ok((text(row.get(0))?, record))
}

pub(super) async fn write(
    client: &Client,
    records: &BTreeMap<String, StoredRecord>,
    sql: &str,
) -> Result<(), tokio_postgres::Error> {
    if records.is_empty() {
        return Ok(());
    }
    let keys: Vec<&[u8]> = records.keys().map(String::as_bytes).collect();
    let values: Vec<&[u8]> = records.values().map(|record| &*record.value).collect();
    let revisions: Vec<i64> = records.values().map(|record| record.revision as i64).collect();
    let expiries: Vec<Option<i64>> = records.values().map(|record| record.expires_us).collect();
    let parameters: [Parameter<'_>; 4] = [
        (&keys, Type::BYTEA_ARRAY),
        (&values, Type::BYTEA_ARRAY),
        (&revisions, Type::INT8_ARRAY),
        (&expiries, Type::INT8_ARRAY),
    ];
    client.execute_typed(sql, &parameters).await.map(drop)
}

async fn remove(client: &Client, keys: &[String]) -> Result<(), tokio_postgres::Error> {
    if keys.is_empty() {
        return Ok(());
    }
    let keys: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
    let parameters: [Parameter<'_>; 1] = [(&keys, Type::BYTEA_ARRAY)];
    client.execute_typed("DELETE FROM ledger WHERE key = ANY($1)", &parameters).await.map(drop)
}
