//! The record of the last erasure, by which a node tells an erased row of the change feed from one that the
//! database has forgotten (see [`super::presence`]).

use tokio_postgres::Client;
use tokio_postgres::types::Type;

/// Key of the record with the sequence number of the last erasure.
pub(super) const LAST_ERASURE: &str = "store/last-erasure";

/// Returns whether a row of the change feed that is missing may have been erased: an erasure after it, which
/// the database has not forgotten.
pub(super) async fn was_erased(client: &Client, change: i64) -> Result<bool, tokio_postgres::Error> {
    let sql = "SELECT l.value, c.seq FROM ledger l, clock c WHERE l.key = $1";
    let rows = client.query_typed(sql, &[(&LAST_ERASURE.as_bytes(), Type::BYTEA)]).await?;
    Ok(rows.first().is_some_and(|row| {
        let erasure = str::from_utf8(row.get(0)).ok().and_then(|seq| seq.parse::<i64>().ok());
        erasure.is_some_and(|erasure| change < erasure && erasure <= row.get(1))
    }))
}
