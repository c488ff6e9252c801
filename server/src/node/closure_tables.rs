//! The closure tables of clients (`$closure`, FHIR R4), one record of the ledger each.
//!
//! A table belongs to a user and a client. It ends 180 days after its last change, when it is begun again, or
//! when the user is deleted.

use jiff::{SignedDuration, Timestamp};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use store::{Expect, Ledger as _, LedgerWrite, Store, StoreError};
use terminology::ClosureTable;

const PREFIX: &str = "closure/";
/// Time for which a table is kept after its last change.
const KEPT: SignedDuration = SignedDuration::from_hours(180 * 24);
/// Maximum number of tables of one user.
pub const MAX_TABLES: usize = 100;
const REMOVED_TOGETHER: usize = 100;

/// The identity of a table.
#[derive(Debug, Clone, Copy)]
pub struct TableKey<'a> {
    /// Subject of the user, or the client id for a client that acts for itself.
    pub sub: &'a str,
    /// The client.
    pub client_id: &'a str,
    /// The name that the client gave.
    pub name: &'a str,
}

/// A table as it is stored.
pub struct StoredTable {
    /// The table.
    pub table: ClosureTable,
    revision: u64,
}

/// The key of the record. Subject, client and name are escaped, so that each is one segment.
fn record_key(TableKey { sub, client_id, name }: TableKey<'_>) -> String {
    format!("{}{}/{}", user_prefix(sub), escaped(client_id), escaped(name))
}

fn user_prefix(sub: &str) -> String {
    format!("{PREFIX}{}/", escaped(sub))
}

fn escaped(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// Reads a table.
///
/// # Errors
/// [`StoreError`] if the store cannot be read.
pub async fn read(
    store: &Store,
    key: TableKey<'_>,
    now: Timestamp,
) -> Result<Option<StoredTable>, StoreError> {
    let Some(record) = store.get(&record_key(key), now).await? else { return Ok(None) };
    // A table that another version of the program wrote is begun again.
    let table = serde_json::from_slice(&record.value).ok();
    Ok(table.map(|table| StoredTable { table, revision: record.revision }))
}

/// Writes a table in place of the one that was read, or of any one.
///
/// # Errors
/// [`StoreError::Conflict`] if the table was changed meanwhile.
pub async fn write(
    store: &Store,
    key: TableKey<'_>,
    table: &ClosureTable,
    before: Option<&StoredTable>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let value = serde_json::to_vec(table).expect("a table is JSON");
    let expect = before.map_or(Expect::Any, |before| Expect::Revision(before.revision));
    let write = LedgerWrite::put(record_key(key), value, expect).expiring(now + KEPT);
    store.write(vec![write], now).await.map(drop)
}

/// Returns whether a user has as many tables as are permitted.
///
/// # Errors
/// [`StoreError`] if the store cannot be read.
pub async fn has_all_permitted(store: &Store, sub: &str, now: Timestamp) -> Result<bool, StoreError> {
    Ok(store.scan(&user_prefix(sub), None, MAX_TABLES, now).await?.len() == MAX_TABLES)
}

/// Removes the tables of a user.
///
/// # Errors
/// [`StoreError`] if the store cannot be written.
pub async fn remove_of_user(store: &Store, sub: &str, now: Timestamp) -> Result<(), StoreError> {
    loop {
        let tables = store.scan(&user_prefix(sub), None, REMOVED_TOGETHER, now).await?;
        if tables.is_empty() {
            return Ok(());
        }
        let deletes = tables.into_iter().map(|(key, _)| LedgerWrite::delete(key, Expect::Any)).collect();
        store.write(deletes, now).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Subjects and names may contain any character.
    #[tokio::test]
    async fn a_table_ends_with_its_user_or_half_a_year_after_its_last_change() {
        let (store, now) = (Store::memory(), Timestamp::UNIX_EPOCH);
        let keys = [("a", "c", "t"), ("a", "c/t", "u"), ("a/c", "t", "u"), ("a%2Fc", "t", "u")];
        let keys = keys.map(|(sub, client_id, name)| TableKey { sub, client_id, name });
        for key in keys {
            write(&store, key, &ClosureTable::default(), None, now).await.unwrap();
        }
        let names_in_store = async |now: Timestamp| {
            let mut names = Vec::new();
            for key in keys {
                names.push(read(&store, key, now).await.unwrap().is_some());
            }
            names
        };
        assert_eq!(names_in_store(now).await, [true, true, true, true]);
        remove_of_user(&store, "a", now).await.unwrap();
        assert_eq!(names_in_store(now).await, [false, false, true, true]);
        assert_eq!(names_in_store(now + KEPT).await, [false, false, false, false]);
    }
}
