//! Other compartments of stored versions (see [`crate::reassignment`]).

use std::collections::HashMap;

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::PostgresEngine;
use super::commits::{OPEN, read_newest};
use super::connect::{Database, Parameter};
use super::failure::{failure, too_late, unavailable};
use super::prefetched::number;
use super::rounds::{RoundError, refusal};
use crate::membership::{self, MARK, MARKED};
use crate::{Reassignment, ResourceKey, Seq, StoreError, Version};

impl PostgresEngine {
    /// Replaces the compartments of resources (see [`crate::Store::reassign`]).
    pub(crate) async fn reassign(&self, reassignments: &[Reassignment]) -> Result<Seq, StoreError> {
        let connection = self.database.connection().await?;
        let limit = self.database.limits.background;
        match tokio::time::timeout(limit, reassign(&self.database, &connection, reassignments)).await {
            Ok(Ok(seq)) => Ok(seq),
            Ok(Err(error)) => {
                // The transaction ends with its connection.
                self.database.discard(connection);
                Err(match error {
                    RoundError::Database(error) => failure("assign resources to compartments", &error),
                    RoundError::Store(error) => error,
                    RoundError::Fenced { .. } => unavailable("another program writes to the database"),
                })
            }
            Err(_) => {
                self.database.abandon(connection);
                Err(too_late())
            }
        }
    }
}

/// The rows of the table `member`, by columns.
#[derive(Default)]
struct MemberRows<'a> {
    compartments: Vec<&'a [u8]>,
    kinds: Vec<&'a [u8]>,
    ids: Vec<&'a [u8]>,
    from: Vec<i64>,
    until: Vec<i64>,
}

/// Replaces the rows of the resources in one transaction, which has the next sequence number.
async fn reassign(
    database: &Database,
    client: &Client,
    reassignments: &[Reassignment],
) -> Result<Seq, RoundError> {
    let begin = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0";
    client.batch_execute(begin).await?;
    // Commits of all nodes wait for this row.
    let clock = client.query_typed_one("UPDATE clock SET seq = seq + 1 RETURNING seq", &[]).await?;
    if let Some(refusal) = refusal(database, client).await? {
        return Err(RoundError::Store(refusal));
    }
    let newest: HashMap<ResourceKey, Version> =
        read_newest(client, reassignments.iter().map(|one| (&one.key, false))).await?;
    for Reassignment { key, newest: expected, .. } in reassignments {
        if newest.get(key).is_none_or(|version| version.version != *expected) {
            return Err(RoundError::Store(StoreError::Conflict { key: key.to_string() }));
        }
    }
    remove_members(client, reassignments.iter().map(|one| &one.key)).await?;
    write_versions(client, reassignments).await?;
    write_members(client, reassignments).await?;
    let (mut terms, mut ids, mut seqs) = (Vec::<&[u8]>::new(), Vec::<&[u8]>::new(), Vec::new());
    for Reassignment { key, terms: added, .. } in reassignments {
        for term in added {
            terms.push(term);
            ids.push(key.id.as_bytes());
            seqs.push(number(newest[key].seq));
        }
    }
    let sql = "INSERT INTO term (term, id, seq) SELECT DISTINCT ON (t.term, t.id) t.term, t.id, t.seq \
               FROM unnest($1, $2, $3) AS t (term, id, seq) ON CONFLICT (term, id) DO NOTHING";
    let parameters: [Parameter<'_>; 3] =
        [(&terms, Type::BYTEA_ARRAY), (&ids, Type::BYTEA_ARRAY), (&seqs, Type::INT8_ARRAY)];
    client.execute_typed(sql, &parameters).await?;
    client.batch_execute("COMMIT").await?;
    Ok(Seq(clock.get::<_, i64>(0) as u64))
}

/// Writes the compartments into the rows of the versions, which keep their source times.
async fn write_versions(client: &Client, reassignments: &[Reassignment]) -> Result<(), RoundError> {
    let (mut kinds, mut ids) = (Vec::<&[u8]>::new(), Vec::<&[u8]>::new());
    let (mut seqs, mut names) = (Vec::new(), Vec::new());
    for Reassignment { key, versions, .. } in reassignments {
        for (seq, compartments) in versions {
            kinds.push(key.kind.as_bytes());
            ids.push(key.id.as_bytes());
            seqs.push(number(*seq));
            names.push(membership::encode(None, compartments).into_bytes());
        }
    }
    let parameters: [Parameter<'_>; 4] = [
        (&kinds, Type::BYTEA_ARRAY),
        (&ids, Type::BYTEA_ARRAY),
        (&seqs, Type::INT8_ARRAY),
        (&names, Type::BYTEA_ARRAY),
    ];
    for table in ["current", "history"] {
        let sql = format!(
            "UPDATE {table} r SET compartments = CASE WHEN substr(r.compartments, 1, 1) = '{MARK}' \
             THEN substr(r.compartments, 1, {MARKED}) || k.compartments ELSE k.compartments END \
             FROM unnest($1, $2, $3, $4) AS k (kind, id, seq, compartments) \
             WHERE r.kind = k.kind AND r.id = k.id AND r.seq = k.seq"
        );
        client.execute_typed(&sql, &parameters).await?;
    }
    Ok(())
}

/// Removes the spans of the resources in their compartments.
pub(super) async fn remove_members<'a>(
    client: &Client,
    keys: impl Iterator<Item = &'a ResourceKey>,
) -> Result<(), RoundError> {
    let (kinds, ids): (Vec<&[u8]>, Vec<&[u8]>) =
        keys.map(|key| (key.kind.as_bytes(), key.id.as_bytes())).unzip();
    let keys: [Parameter<'_>; 2] = [(&kinds, Type::BYTEA_ARRAY), (&ids, Type::BYTEA_ARRAY)];
    // The key of the table begins with the compartment, which only the versions tell.
    let sql = "WITH k AS (SELECT * FROM unnest($1, $2) AS k (kind, id)) \
               SELECT DISTINCT kind, id, compartments FROM ( \
               SELECT c.kind, c.id, c.compartments FROM current c JOIN k USING (kind, id) UNION ALL \
               SELECT h.kind, h.id, h.compartments FROM history h JOIN k USING (kind, id)) v \
               WHERE compartments <> ''";
    let rows = client.query_typed(sql, &keys).await?;
    let (mut compartments, mut kinds, mut ids) = (Vec::new(), Vec::new(), Vec::new());
    for row in &rows {
        let names: &[u8] = row.get(2);
        for name in names.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
            compartments.push(name);
            kinds.push(row.get::<_, &[u8]>(0));
            ids.push(row.get::<_, &[u8]>(1));
        }
    }
    let members: [Parameter<'_>; 3] =
        [(&compartments, Type::BYTEA_ARRAY), (&kinds, Type::BYTEA_ARRAY), (&ids, Type::BYTEA_ARRAY)];
    let sql = "DELETE FROM member m USING unnest($1, $2, $3) AS k (compartment, kind, id) \
               WHERE m.compartment = k.compartment AND m.kind = k.kind AND m.id = k.id";
    client.execute_typed(sql, &members).await?;
    Ok(())
}

/// Writes the spans of the resources in their compartments.
async fn write_members(client: &Client, reassignments: &[Reassignment]) -> Result<(), RoundError> {
    let all_moves: Vec<_> = reassignments.iter().map(|one| (&one.key, one.moves())).collect();
    let mut rows = MemberRows::default();
    for (key, moves) in &all_moves {
        for (compartment, moves) in moves {
            for pair in moves.chunks(2) {
                rows.compartments.push(compartment.as_bytes());
                rows.kinds.push(key.kind.as_bytes());
                rows.ids.push(key.id.as_bytes());
                rows.from.push(number(pair[0].0));
                rows.until.push(pair.get(1).map_or(OPEN, |(seq, _)| number(*seq)));
            }
        }
    }
    let spans: [Parameter<'_>; 5] = [
        (&rows.compartments, Type::BYTEA_ARRAY),
        (&rows.kinds, Type::BYTEA_ARRAY),
        (&rows.ids, Type::BYTEA_ARRAY),
        (&rows.from, Type::INT8_ARRAY),
        (&rows.until, Type::INT8_ARRAY),
    ];
    let sql = "INSERT INTO member (compartment, kind, id, from_seq, until_seq) \
               SELECT * FROM unnest($1, $2, $3, $4, $5)";
    client.execute_typed(sql, &spans).await?;
    Ok(())
}
