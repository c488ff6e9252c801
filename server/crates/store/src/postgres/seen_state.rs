//! The memory of a node of its database, also in `node.json` of its data folder, and its comparison with the
//! database behind a connection.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::acceptance::{self, Acceptance};
use super::connect::Parameter;
use super::connection::Connection;
use super::hosts::read_timeline;
use super::last_erasure::was_erased;

/// A row of the table `change`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ChangeRow {
    pub seq: i64,
    version: i64,
    updated_ms: i64,
    kind: Vec<u8>,
    id: Vec<u8>,
}

impl ChangeRow {
    fn read(row: &Row) -> Self {
        Self {
            seq: row.get(0),
            version: row.get(1),
            updated_ms: row.get(2),
            kind: row.get(3),
            id: row.get(4),
        }
    }
}

/// The state of the database that a node has seen last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SeenState {
    pub store: String,
    /// Id of this node in the table `node`.
    pub node: String,
    pub beat: i64,
    pub change: Option<ChangeRow>,
    /// The timeline, if the database has timelines.
    #[serde(default)]
    pub timeline: Option<i64>,
    /// The last decision of an operator after a restore.
    #[serde(default)]
    pub acceptance: Acceptance,
}

/// The rows of writer tasks: their ids and the numbers of the last acknowledged rounds.
pub(super) type AcknowledgedRounds = Vec<(String, i64)>;

/// Result of a comparison.
pub(super) enum Comparison {
    /// The database has everything in the memory. This is its present state.
    Fits(SeenState),
    /// The operator has accepted the database since.
    Accepted,
    /// The database lacks something.
    Lacks(Evidence),
}

/// How a database differs from the memory of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Evidence {
    /// The operator has accepted another database.
    Acceptance,
    /// The timeline of the database is an earlier one.
    Timeline { actual: i64, expected: i64 },
    /// The number of this node is lower, or its row is missing.
    Beat { actual: Option<i64>, expected: i64 },
    /// The last change is an earlier one, or another change has its number.
    Change { actual: i64, expected: i64 },
    /// A write that this node has acknowledged is missing.
    AcknowledgedWrite,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acceptance => write!(f, "lacks the last decision of the operator (accept-restored)"),
            Self::Timeline { actual, expected } => {
                write!(f, "is on timeline {actual}, and this node knows {expected}")
            }
            Self::Beat { actual: Some(actual), expected } => {
                write!(f, "has the number {actual} for this node, and this node knows {expected}")
            }
            Self::Beat { actual: None, .. } => write!(f, "has no row for this node"),
            Self::Change { actual, expected } if actual < expected => {
                write!(f, "is at write {actual}, and this node knows {expected}")
            }
            Self::Change { expected, .. } => {
                write!(f, "has another write {expected} than the one that this node knows")
            }
            Self::AcknowledgedWrite => write!(f, "lacks a write that this node acknowledged"),
        }
    }
}

const INCREMENT: &str = "UPDATE node SET beat = beat + 1, seen_at = now(), is_running = true \
                         WHERE id = $1::text::uuid AND beat >= $2 RETURNING beat";
const BEAT: &str = "SELECT beat FROM node WHERE id = $1::text::uuid";
const CHANGE: &str = "SELECT seq, version, updated_ms, kind, id FROM change WHERE seq = $1";
const LAST_CHANGE: &str = "SELECT seq, version, updated_ms, kind, id FROM change ORDER BY seq DESC LIMIT 1";
const ROUNDS: &str = "SELECT id::text, round FROM writer WHERE id = ANY ($1::text[]::uuid[])";

impl SeenState {
    /// The memory of a node that sees a database for the first time.
    pub fn new(store: &str, node: String, acceptance: Acceptance) -> Self {
        Self { store: store.to_owned(), node, beat: 0, change: None, timeline: None, acceptance }
    }

    /// Reads the memory of an earlier run, if it is about this store.
    pub fn read(file: &Path, store: &str) -> Option<Self> {
        let text = std::fs::read(file).ok()?;
        serde_json::from_slice(&text).ok().filter(|state: &Self| state.store == store)
    }

    /// Writes the memory. Not synchronized: an older state is still a state of this database.
    pub fn save(&self, file: &Path) {
        let part = file.with_extension("part");
        let text = serde_json::to_vec(self).expect("the state serialises to JSON");
        let result = std::fs::write(&part, text).and_then(|()| std::fs::rename(&part, file));
        if let Err(error) = result {
            tracing::debug!(%error, "what this node remembers of the database was not saved");
        }
    }

    /// Compares the database behind a connection with this memory and with the rounds that were acknowledged
    /// before, and increments the number of this node in it. In one round trip, unless something is missing.
    pub async fn compare(
        &self,
        connection: &Connection,
        rounds: &AcknowledgedRounds,
    ) -> Result<Comparison, tokio_postgres::Error> {
        let increment: [Parameter<'_>; 2] = [(&self.node, Type::TEXT), (&self.beat, Type::INT8)];
        let seq = self.change.as_ref().map_or(0, |change| change.seq);
        let seq: [Parameter<'_>; 1] = [(&seq, Type::INT8)];
        let writers: Vec<&str> = rounds.iter().map(|(writer, _)| writer.as_str()).collect();
        let writers: [Parameter<'_>; 1] = [(&writers, Type::TEXT_ARRAY)];
        let (acceptance, timeline, beat, change, last, writer_rows) = tokio::join!(
            biased;
            acceptance::read(connection),
            read_timeline(connection),
            connection.query_typed(INCREMENT, &increment),
            connection.query_typed(CHANGE, &seq),
            connection.query_typed(LAST_CHANGE, &[]),
            connection.query_typed(ROUNDS, &writers),
        );
        let acceptance = acceptance?;
        if acceptance.number > self.acceptance.number {
            return Ok(Comparison::Accepted);
        }
        if acceptance != self.acceptance {
            return Ok(Comparison::Lacks(Evidence::Acceptance));
        }
        if let (Some(actual), Some(expected)) = (timeline, self.timeline)
            && actual < expected
        {
            return Ok(Comparison::Lacks(Evidence::Timeline { actual, expected }));
        }
        let (change, last) = (change?.first().map(ChangeRow::read), last?.first().map(ChangeRow::read));
        if let Some(expected) = &self.change {
            let is_kept = match &change {
                Some(actual) => actual == expected,
                None => was_erased(connection, expected.seq).await?,
            };
            if !is_kept {
                let (actual, expected) = (last.map_or(0, |last| last.seq), expected.seq);
                return Ok(Comparison::Lacks(Evidence::Change { actual, expected }));
            }
        }
        let Some(beat) = beat?.first().map(|row| row.get::<_, i64>(0)) else {
            let rows = connection.query_typed(BEAT, &increment[..1]).await?;
            let actual = rows.first().map(|row| row.get(0));
            return Ok(Comparison::Lacks(Evidence::Beat { actual, expected: self.beat }));
        };
        // A row is removed a week after its last use.
        let is_behind = |row: &Row| {
            let (writer, round): (&str, i64) = (row.get(0), row.get(1));
            rounds.iter().any(|(id, number)| id == writer && round < *number)
        };
        if writer_rows?.iter().any(is_behind) {
            return Ok(Comparison::Lacks(Evidence::AcknowledgedWrite));
        }
        let (store, node) = (self.store.clone(), self.node.clone());
        Ok(Comparison::Fits(Self { store, node, beat, change: last, timeline, acceptance }))
    }
}
