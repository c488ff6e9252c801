//! Reads at a sequence number. Each is one statement over the newest and the older versions, so no version
//! falls between the two tables. Scans read pages by key: nothing stays open between two pages.

use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, future};
use jiff::Timestamp;
use tokio::time::error::Elapsed;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connect::{Database, Parameter, REPEATED_READS, is_ended};
use super::connection::PooledConnection;
use super::failure::{failure, too_late};
use super::prefetched::{number, text, time, utf8};
use crate::membership;
use crate::page::{PageBuilder, unknown_start};
use crate::{
    ChangePage, ChangeRecord, ChangesBefore, Histories, IndexEntry, IndexLookup, IndexRange, KeyOrder,
    PageLimit, ResourceKey, ScanOptions, Seq, StoreError, UpdatedRange, Version,
};

/// Number of rows of the first page of a scan, and of its largest page. Each page has four times as many rows
/// as the one before, so that a caller who soon has enough does not make the database send many large bodies
/// in vain.
const FIRST_PAGE: i64 = 64;
const LARGEST_PAGE: i64 = 2_000;
/// Number of compartments that the first statement of a scan reads, and the largest number.
const FIRST_COMPARTMENTS: usize = 8;
const MOST_COMPARTMENTS: usize = 512;
/// Time to receive the remaining rows of a statement that is not read to its end.
const DRAIN: Duration = Duration::from_millis(20);

/// The columns of a version at the sequence number `$1`. `c` is a row of `current`, and `h` one of `history`
/// or NULL.
const COLUMNS: &str = "c.id, \
    CASE WHEN c.seq <= $1 THEN c.seq ELSE h.seq END, \
    CASE WHEN c.seq <= $1 THEN c.version ELSE h.version END, \
    CASE WHEN c.seq <= $1 THEN c.updated_ms ELSE h.updated_ms END, \
    CASE WHEN c.seq <= $1 THEN c.compartments ELSE h.compartments END, \
    CASE WHEN c.seq <= $1 THEN c.body ELSE h.body END";

/// Index of the column with the position of the compartment, which follows [`COLUMNS`].
const COMPARTMENT_POSITION: usize = 6;

/// Adds the version `h` before `$1` to the rows of `c` that are newer.
const OLDER: &str = "LEFT JOIN LATERAL (SELECT * FROM history o WHERE c.seq > $1 AND o.kind = c.kind AND o.id = c.id \
    AND o.seq <= $1 ORDER BY o.seq DESC LIMIT 1) h ON true";

#[derive(Clone, Copy)]
pub(super) struct Walk<'a> {
    pub scan: ScanOptions<'a>,
    /// Range outside of which versions have no body, and are like tombstones.
    pub updated: UpdatedRange,
    /// Time to wait for each row.
    pub patience: Duration,
}

/// The columns of a version at `$1`, without its body unless it was written in the range of times from
/// parameter `first` to the one after it.
fn columns_in_range(first: usize) -> String {
    let updated = "CASE WHEN c.seq <= $1 THEN c.updated_ms ELSE h.updated_ms END";
    let (header, body) = COLUMNS.rsplit_once(", ").unwrap_or_default();
    format!("{header}, CASE WHEN {updated} BETWEEN ${first} AND ${} THEN {body} END", first + 1)
}

/// The bounds of a range of times in milliseconds. They include at least the range.
fn bounds_ms(updated: UpdatedRange) -> (i64, i64) {
    let after = updated.after.map_or(i64::MIN, |time| time.as_millisecond() - 1);
    let before = updated.before.map_or(i64::MAX, |time| time.as_millisecond() + 1);
    (after, before)
}

/// The part of a type that a scan covers.
#[derive(Default, Clone, Copy)]
pub(super) struct KindSpan<'a> {
    /// Id after which the scan starts.
    pub after: Option<&'a str>,
    pub from: Option<&'a [u8]>,
    /// Position before which it ends.
    pub until: Option<&'a [u8]>,
}

/// The sequence number of the last commit.
pub(super) async fn last_seq(database: &Database) -> Result<Seq, StoreError> {
    let rows = database.query("read the sequence number", "SELECT seq FROM clock", &[]).await?;
    let row =
        rows.first().ok_or_else(|| StoreError::Corrupt { what: "the table clock is empty".to_owned() })?;
    Ok(Seq(row.get::<_, i64>(0) as u64))
}

/// A version in a row with [`COLUMNS`].
pub(super) struct RowVersion<'a> {
    pub id: &'a str,
    seq: i64,
    version: i64,
    pub updated: Timestamp,
    source_time: Option<Timestamp>,
    /// Its compartments and source time, in their stored form.
    pub compartments: &'a str,
    /// The body; `None` for a tombstone.
    pub body: Option<&'a [u8]>,
}

impl<'a> RowVersion<'a> {
    /// The version in a row, or `None` if the resource did not exist yet.
    pub fn read(row: &'a Row) -> Result<Option<Self>, StoreError> {
        let Some(seq) = row.get(1) else { return Ok(None) };
        let compartments = utf8(row.get(4))?;
        Ok(Some(Self {
            id: utf8(row.get(0))?,
            seq,
            version: row.get(2),
            updated: time(row.get(3))?,
            source_time: membership::source_time(compartments)?,
            compartments,
            body: row.get(5),
        }))
    }

    pub fn to_version(&self, kind: &str) -> Version {
        Version {
            key: ResourceKey::new(kind, self.id),
            seq: Seq(self.seq as u64),
            version: self.version as u64,
            updated: self.updated,
            compartments: membership::compartments(self.compartments).map(str::to_owned).collect(),
            source_time: self.source_time,
            body: self.body.map(Bytes::copy_from_slice),
        }
    }
}

/// Reads the versions of several resources, until the bodies take `bytes` bytes in the order of `ids`.
pub(super) async fn versions_of(
    database: &Database,
    kind: &str,
    ids: &[String],
    seq: Seq,
    bytes: usize,
) -> Result<HashMap<String, Option<Version>>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM unnest($3) WITH ORDINALITY AS k (id, place) \
         JOIN current c ON c.kind = $2 AND c.id = k.id {OLDER} ORDER BY k.place"
    );
    let ids: Vec<&[u8]> = ids.iter().map(String::as_bytes).collect();
    let parameters: [Parameter<'_>; 3] =
        [(&number(seq), Type::INT8), (&kind.as_bytes(), Type::BYTEA), (&ids, Type::BYTEA_ARRAY)];
    let mut versions = HashMap::new();
    if ids.len() == 1 {
        // One row can be read again if its connection ends.
        for row in database.query("read a resource", &sql, &parameters).await? {
            let version = RowVersion::read(&row)?.map(|version| version.to_version(kind));
            versions.insert(text(row.get(0))?, version);
        }
        return Ok(versions);
    }
    let mut count = 0;
    each_row(database, database.limits.read, "read resources", &sql, &parameters, |row| {
        let version = RowVersion::read(row)?;
        count += version.as_ref().and_then(|version| version.body).map_or(0, <[u8]>::len);
        versions.insert(text(row.get(0))?, version.map(|version| version.to_version(kind)));
        Ok(count < bytes)
    })
    .await?;
    Ok(versions)
}

/// The number of resources of a type at a sequence number.
pub(super) async fn count(database: &Database, kind: &str, seq: Seq) -> Result<u64, StoreError> {
    let sql = format!(
        "SELECT count(*) FROM current c {OLDER} WHERE c.kind = $2 \
         AND CASE WHEN c.seq <= $1 THEN c.body IS NOT NULL ELSE h.body IS NOT NULL END"
    );
    let parameters: [Parameter<'_>; 2] = [(&number(seq), Type::INT8), (&kind.as_bytes(), Type::BYTEA)];
    let rows =
        database.query_within(database.limits.background, "count resources", &sql, &parameters).await?;
    Ok(rows.first().map_or(0, |row| row.get::<_, i64>(0) as u64))
}

/// Returns versions of a resource before a sequence number, newest first.
pub(super) async fn history(
    database: &Database,
    key: &ResourceKey,
    before: Seq,
    limit: PageLimit,
) -> Result<Vec<Version>, StoreError> {
    let sql = "SELECT id, seq, version, updated_ms, compartments, body FROM ( \
               SELECT * FROM current WHERE kind = $1 AND id = $2 AND seq < $3 \
               UNION ALL SELECT * FROM history WHERE kind = $1 AND id = $2 AND seq < $3) v \
               ORDER BY seq DESC LIMIT $4";
    let count = i64::try_from(limit.count).unwrap_or(i64::MAX);
    let parameters: [Parameter<'_>; 4] = [
        (&key.kind.as_bytes(), Type::BYTEA),
        (&key.id.as_bytes(), Type::BYTEA),
        (&number(before), Type::INT8),
        (&count, Type::INT8),
    ];
    let mut page = PageBuilder::new(limit);
    each_row(database, database.limits.read, "read a history", sql, &parameters, |row| {
        Ok(RowVersion::read(row)?.is_none_or(|version| !page.push(version.to_version(&key.kind))))
    })
    .await?;
    Ok(page.last().versions)
}

/// Returns all versions of resources (see [`crate::Store::histories`]).
pub(super) async fn histories(
    database: &Database,
    keys: &[ResourceKey],
    limit: PageLimit,
) -> Result<Histories, StoreError> {
    let sql = "SELECT v.id, v.seq, v.version, v.updated_ms, v.compartments, v.body, k.n \
               FROM unnest($1, $2) WITH ORDINALITY AS k (kind, id, n), LATERAL ( \
               SELECT * FROM current WHERE kind = k.kind AND id = k.id \
               UNION ALL SELECT * FROM history WHERE kind = k.kind AND id = k.id) v \
               ORDER BY k.n, v.seq DESC";
    let (kinds, ids): (Vec<&[u8]>, Vec<&[u8]>) =
        keys.iter().map(|key| (key.kind.as_bytes(), key.id.as_bytes())).unzip();
    let parameters: [Parameter<'_>; 2] = [(&kinds, Type::BYTEA_ARRAY), (&ids, Type::BYTEA_ARRAY)];
    let (mut page, mut is_complete) = (PageBuilder::new(limit), true);
    each_row(database, database.limits.read, "read histories", sql, &parameters, |row| {
        let number = usize::try_from(row.get::<_, i64>(6) - 1).unwrap_or_default();
        let version = RowVersion::read(row)?.map(|version| version.to_version(&keys[number].kind));
        is_complete = !version.is_some_and(|version| page.push(version));
        Ok(is_complete)
    })
    .await?;
    Ok(Histories { versions: page.last().versions, is_complete })
}

/// Returns writes after a sequence number, of all types or of some.
pub(super) async fn changes(
    database: &Database,
    kinds: Option<&[&str]>,
    after: Seq,
    limit: usize,
) -> Result<Vec<ChangeRecord>, StoreError> {
    let all = "SELECT seq, kind, id, version, deleted FROM change WHERE seq > $1 ORDER BY seq LIMIT $2";
    let of_kinds = "SELECT c.* FROM unnest($3) AS k (kind), LATERAL (SELECT seq, kind, id, version, deleted \
                    FROM change WHERE kind = k.kind AND seq > $1 ORDER BY seq LIMIT $2) c ORDER BY seq LIMIT $2";
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let kind_names: Vec<&[u8]> = kinds.into_iter().flatten().map(|kind| kind.as_bytes()).collect();
    let parameters: &[Parameter<'_>] =
        &[(&number(after), Type::INT8), (&limit, Type::INT8), (&kind_names, Type::BYTEA_ARRAY)];
    let rows = match kinds {
        None => database.query("read changes", all, &parameters[..2]).await?,
        Some(_) => database.query("read changes", of_kinds, parameters).await?,
    };
    rows.iter().map(change_of_row).collect()
}

/// Returns the changes of a type in a range, newest first.
pub(super) async fn changes_before(
    database: &Database,
    kind: Option<&str>,
    range: ChangesBefore,
) -> Result<ChangePage, StoreError> {
    // Each statement has its index.
    let of_all = "SELECT seq, kind, id, version, deleted FROM change WHERE seq > $1 AND seq < $2 \
                  ORDER BY seq DESC LIMIT $3";
    let of_kind = "SELECT seq, kind, id, version, deleted FROM change WHERE seq > $1 AND seq < $2 AND kind = $4 \
                   ORDER BY seq DESC LIMIT $3";
    let count = i64::try_from(range.count).unwrap_or(i64::MAX);
    let (after, before, kind_name) = (number(range.after), number(range.before), kind.map(str::as_bytes));
    let mut parameters: Vec<Parameter<'_>> =
        vec![(&after, Type::INT8), (&before, Type::INT8), (&count, Type::INT8)];
    if let Some(name) = &kind_name {
        parameters.push((name, Type::BYTEA));
    }
    let sql = if kind.is_some() { of_kind } else { of_all };
    let rows = database.query("read changes", sql, &parameters).await?;
    let changes: Vec<_> = rows.iter().map(change_of_row).collect::<Result<_, StoreError>>()?;
    let next = changes.last().filter(|_| changes.len() == range.count).map(|last| last.seq);
    Ok(ChangePage { changes, next })
}

fn change_of_row(row: &Row) -> Result<ChangeRecord, StoreError> {
    Ok(ChangeRecord {
        seq: Seq(row.get::<_, i64>(0) as u64),
        key: ResourceKey { kind: text(row.get(1))?, id: text(row.get(2))? },
        version: row.get::<_, i64>(3) as u64,
        deleted: row.get(4),
    })
}

/// The entries of the search index for each of the lookups.
pub(super) async fn index_entries(
    database: &Database,
    lookups: Vec<IndexLookup>,
) -> Result<Vec<Vec<IndexEntry>>, StoreError> {
    let mut repeated = 0;
    let entries = loop {
        let connection = database.connection().await?;
        // All statements are sent at once on one connection.
        let entries = lookups.iter().map(|lookup| read_entries(&connection, lookup));
        match tokio::time::timeout(database.limits.read, future::try_join_all(entries)).await {
            Ok(Ok(entries)) => break entries,
            Ok(Err(error)) if is_ended(&connection, &error) && repeated < REPEATED_READS => {
                repeated += 1;
                database.drop_ended(connection);
            }
            Ok(Err(error)) => return Err(failure("read the search index", &error)),
            Err(_) => {
                database.abandon(connection);
                return Err(too_late());
            }
        }
    };
    let entry = |row: &Row| {
        let term: Vec<u8> = row.get(0);
        Ok(IndexEntry { term: term.into(), id: text(row.get(1))? })
    };
    entries.iter().map(|rows| rows.iter().map(entry).collect()).collect()
}

/// Reads the rows of one lookup.
async fn read_entries(
    connection: &PooledConnection,
    lookup: &IndexLookup,
) -> Result<Vec<Row>, tokio_postgres::Error> {
    let IndexLookup { range, order, after, limit } = lookup;
    let limit = i64::try_from(*limit).unwrap_or(i64::MAX);
    let after_id = after.as_ref().map_or("", |after| &after.id).as_bytes();
    if let (IndexRange::Term(term), KeyOrder::Ascending) = (range, order) {
        let sql = "SELECT term, id FROM term WHERE term = $1 AND id > $2 ORDER BY id LIMIT $3";
        let parameters: &[Parameter<'_>] =
            &[(&&**term, Type::BYTEA), (&after_id, Type::BYTEA), (&limit, Type::INT8)];
        return connection.query_typed(sql, parameters).await;
    }
    let (first, end) = match range {
        // The smallest term after this one.
        IndexRange::Term(term) => (&**term, [&term[..], &[0]].concat()),
        IndexRange::Between(first, end) => (&**first, end.to_vec()),
    };
    // No id is empty, so that these bounds lie before the first entry and after the last one.
    let (mut from, mut until) = ((first, &b""[..]), (&end[..], &b""[..]));
    if let Some(after) = after {
        match order {
            KeyOrder::Ascending => from = from.max((&after.term, after_id)),
            KeyOrder::Descending => until = until.min((&after.term, after_id)),
        }
    }
    let sql = match order {
        KeyOrder::Ascending => {
            "SELECT term, id FROM term WHERE (term, id) > ($1, $2) AND (term, id) < ($3, $4) \
             ORDER BY term, id LIMIT $5"
        }
        KeyOrder::Descending => {
            "SELECT term, id FROM term WHERE (term, id) > ($1, $2) AND (term, id) < ($3, $4) \
             ORDER BY term DESC, id DESC LIMIT $5"
        }
    };
    let parameters: &[Parameter<'_>] = &[
        (&from.0, Type::BYTEA),
        (&from.1, Type::BYTEA),
        (&until.0, Type::BYTEA),
        (&until.1, Type::BYTEA),
        (&limit, Type::INT8),
    ];
    connection.query_typed(sql, parameters).await
}

/// Returns ids of resources of a type in an order.
pub(super) async fn ids(
    database: &Database,
    kind: &str,
    order: KeyOrder,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<String>, StoreError> {
    let sql = match (order, after) {
        (KeyOrder::Ascending, _) => "SELECT id FROM current WHERE kind = $1 AND id > $2 ORDER BY id LIMIT $3",
        (KeyOrder::Descending, Some(_)) => {
            "SELECT id FROM current WHERE kind = $1 AND id < $2 ORDER BY id DESC LIMIT $3"
        }
        (KeyOrder::Descending, None) => {
            "SELECT id FROM current WHERE kind = $1 AND id > $2 ORDER BY id DESC LIMIT $3"
        }
    };
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let parameters: &[Parameter<'_>] = &[
        (&kind.as_bytes(), Type::BYTEA),
        (&after.unwrap_or_default().as_bytes(), Type::BYTEA),
        (&limit, Type::INT8),
    ];
    let rows = database.query("read ids", sql, parameters).await?;
    rows.iter().map(|row| text(row.get(0))).collect()
}

/// Checks that a scan starts after a resource that exists or existed.
pub(super) async fn check_start(
    database: &Database,
    kind: &str,
    after: Option<&str>,
) -> Result<(), StoreError> {
    let Some(after) = after else { return Ok(()) };
    let sql = "SELECT 1::bigint FROM current WHERE kind = $1 AND id = $2";
    let parameters: &[Parameter<'_>] = &[(&kind.as_bytes(), Type::BYTEA), (&after.as_bytes(), Type::BYTEA)];
    if database.query("start a scan", sql, parameters).await?.is_empty() {
        return Err(unknown_start(&ResourceKey::new(kind, after)));
    }
    Ok(())
}

/// Visits the versions of a type in the order of their ids, until the visitor returns `true`. Returns whether
/// it did.
pub(super) async fn walk_kind(
    database: &Database,
    kind: &str,
    span: KindSpan<'_>,
    walk: Walk<'_>,
    mut is_enough: impl FnMut(&RowVersion<'_>) -> bool,
) -> Result<bool, StoreError> {
    let columns = columns_in_range(7);
    let (from_ms, until_ms) = bounds_ms(walk.updated);
    let sql = format!(
        "SELECT {columns} FROM (SELECT * FROM current WHERE kind = $2 AND id > $3 AND id >= $4 \
         AND ($5::bytea IS NULL OR id < $5) ORDER BY id LIMIT $6) c {OLDER} ORDER BY c.id"
    );
    let from = span.from.unwrap_or_default();
    let mut after = span.after.unwrap_or_default().as_bytes().to_vec();
    let mut rows = FIRST_PAGE;
    loop {
        let parameters: [Parameter<'_>; 8] = [
            (&number(walk.scan.at), Type::INT8),
            (&kind.as_bytes(), Type::BYTEA),
            (&after, Type::BYTEA),
            (&from, Type::BYTEA),
            (&span.until, Type::BYTEA),
            (&rows, Type::INT8),
            (&from_ms, Type::INT8),
            (&until_ms, Type::INT8),
        ];
        let visit = |_: &Row, version: Option<&RowVersion<'_>>| version.is_some_and(&mut is_enough);
        match walk_page(database, &sql, &parameters, rows, walk, visit).await? {
            WalkStep::Enough => return Ok(true),
            WalkStep::End => return Ok(false),
            WalkStep::After(id) => after = id,
        }
        rows = LARGEST_PAGE.min(4 * rows);
    }
}

/// Visits the versions of a type in several compartments, one compartment after the other, each in the order
/// of the ids, until the visitor returns `true`. `after` is an id in the first of them. The visitor receives
/// the position of the compartment in the list. Returns whether the visitor ended the walk.
///
/// The number of compartments of a statement is adapted so that they probably fill its page: small
/// compartments share a statement, and few memberships of large ones are read needlessly.
pub(super) async fn walk_compartments(
    database: &Database,
    compartments: &[impl AsRef<str>],
    kind: &str,
    after: Option<&str>,
    walk: Walk<'_>,
    mut is_enough: impl FnMut(usize, &RowVersion<'_>) -> bool,
) -> Result<bool, StoreError> {
    let columns = columns_in_range(6);
    let (from_ms, until_ms) = bounds_ms(walk.updated);
    let sql = format!(
        "SELECT {columns}, m.position FROM (SELECT k.position, n.id \
         FROM unnest($4) WITH ORDINALITY AS k (compartment, position), LATERAL (SELECT id FROM member \
         WHERE compartment = k.compartment AND kind = $2 AND from_seq <= $1 AND until_seq > $1 \
         AND id > CASE WHEN k.position = 1 THEN $3 ELSE '' END ORDER BY id LIMIT $5) n \
         ORDER BY k.position, n.id LIMIT $5) m \
         JOIN current c ON c.kind = $2 AND c.id = m.id {OLDER} ORDER BY m.position, c.id"
    );
    let mut after = after.unwrap_or_default().as_bytes().to_vec();
    let (mut rows, mut count, mut first) = (FIRST_PAGE, FIRST_COMPARTMENTS, 0);
    while first < compartments.len() {
        // The span of a membership that has not ended ends at the greatest number.
        let seq = number(walk.scan.at).min(i64::MAX - 1);
        let end = compartments.len().min(first + count);
        let names: Vec<&[u8]> =
            compartments[first..end].iter().map(|name| name.as_ref().as_bytes()).collect();
        let parameters: [Parameter<'_>; 7] = [
            (&seq, Type::INT8),
            (&kind.as_bytes(), Type::BYTEA),
            (&after, Type::BYTEA),
            (&names, Type::BYTEA_ARRAY),
            (&rows, Type::INT8),
            (&from_ms, Type::INT8),
            (&until_ms, Type::INT8),
        ];
        let mut last = first;
        let visit = |row: &Row, version: Option<&RowVersion<'_>>| {
            last = first + row.get::<_, i64>(COMPARTMENT_POSITION) as usize - 1;
            version.is_some_and(|version| is_enough(last, version))
        };
        match walk_page(database, &sql, &parameters, rows, walk, visit).await? {
            WalkStep::Enough => return Ok(true),
            WalkStep::End => {
                (first, count) = (end, MOST_COMPARTMENTS.min(4 * count));
                after.clear();
            }
            WalkStep::After(id) => {
                (first, count) = (last, last - first + 1);
                after = id;
            }
        }
        rows = LARGEST_PAGE.min(4 * rows);
    }
    Ok(false)
}

/// How a walk continues after a page.
enum WalkStep {
    Enough,
    End,
    /// The next page starts after this id.
    After(Vec<u8>),
}

/// Visits the rows of a page of at most `limit` rows.
async fn walk_page(
    database: &Database,
    sql: &str,
    parameters: &[Parameter<'_>],
    limit: i64,
    walk: Walk<'_>,
    mut is_enough: impl FnMut(&Row, Option<&RowVersion<'_>>) -> bool,
) -> Result<WalkStep, StoreError> {
    let (mut rows, mut last, mut enough) = (0, Vec::<u8>::new(), false);
    each_row(database, walk.patience, "read resources", sql, parameters, |row| {
        rows += 1;
        last.clear();
        last.extend_from_slice(row.get(0));
        let version = RowVersion::read(row)?;
        let version = version.filter(|version| walk.scan.deleted || version.body.is_some());
        enough = is_enough(row, version.as_ref());
        Ok(!enough)
    })
    .await?;
    Ok(match (enough, rows < limit) {
        (true, _) => WalkStep::Enough,
        (false, true) => WalkStep::End,
        (false, false) => WalkStep::After(last),
    })
}

/// Receives the rows of a statement one by one, until `visit` returns `false`. Waits for each of them for
/// `patience`.
pub(super) async fn each_row(
    database: &Database,
    patience: Duration,
    action: &'static str,
    sql: &str,
    parameters: &[Parameter<'_>],
    mut visit: impl FnMut(&Row) -> Result<bool, StoreError>,
) -> Result<(), StoreError> {
    let mut repeated = 0;
    let mut has_rows = false;
    let mut open = OpenStatement { database, connection: None };
    let visited = loop {
        let connection = &*open.connection.insert(database.connection().await?);
        let parameters = parameters.iter().map(|(value, of)| (*value, of.clone()));
        let mut is_broken = false;
        let visited = async {
            let late = |_: Elapsed| too_late();
            let mut failed = |error: tokio_postgres::Error| {
                is_broken = is_ended(connection, &error);
                failure(action, &error)
            };
            let rows = tokio::time::timeout(patience, connection.query_typed_raw(sql, parameters));
            let mut rows = pin!(rows.await.map_err(late)?.map_err(&mut failed)?);
            while let Some(row) = tokio::time::timeout(patience, rows.next()).await.map_err(late)? {
                let row = row.map_err(&mut failed)?;
                has_rows = true;
                if !visit(&row)? {
                    let rest = async { while rows.next().await.is_some() {} };
                    return Ok(tokio::time::timeout(DRAIN, rest).await.is_ok());
                }
            }
            Ok(true)
        };
        let visited = visited.await;
        // Rows that were visited must not be visited again.
        if !is_broken || has_rows || repeated == REPEATED_READS {
            break visited;
        }
        repeated += 1;
        open.connection.take().into_iter().for_each(|connection| database.drop_ended(connection));
    };
    match visited {
        Ok(true) => drop(open.connection.take()),
        // Its connection is closed with `open`.
        Ok(false) => {}
        Err(error @ StoreError::Unavailable { .. }) => {
            open.connection.take().into_iter().for_each(|connection| database.abandon(connection));
            return Err(error);
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// The connection of a statement whose rows are being received. If it is dropped before the last row, because
/// the caller has enough or a client has gone, the next request must not wait for the other rows: the
/// connection is closed.
struct OpenStatement<'d> {
    database: &'d Database,
    connection: Option<PooledConnection>,
}

impl Drop for OpenStatement<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.database.discard(connection);
        }
    }
}
