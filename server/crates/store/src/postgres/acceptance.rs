//! The decision of an operator that a database which went back in time is used (`trefoil store
//! accept-restored`). It is recorded in the database, so that all nodes use this database and no other.

use serde::{Deserialize, Serialize};
use tokio_postgres::Client;

/// How often a database was accepted, and the last time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Acceptance {
    /// Number of decisions.
    pub number: i64,
    /// Random id of the last one.
    pub id: String,
}

/// Reads the decision from a database.
pub(super) async fn read(client: &Client) -> Result<Acceptance, tokio_postgres::Error> {
    let row = client.query_typed_one("SELECT accepted, accepted_id FROM clock", &[]).await?;
    Ok(Acceptance { number: row.get(0), id: row.get(1) })
}

#[cfg(test)]
impl Acceptance {
    /// The decision that a text such as `1x` stands for.
    pub fn of_text(text: &str) -> Self {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        Self { number: digits.parse().unwrap(), id: text[digits.len()..].to_owned() }
    }
}
