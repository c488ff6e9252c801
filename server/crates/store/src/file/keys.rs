//! Keys and values of the file engine. Numbers in keys are big-endian, so that keys sort by number. `!seq` is
//! the bitwise complement, so that the newest version sorts first. `0` is a zero byte. No text in a key
//! contains a zero byte, so no key is a prefix of another. Terms of the search index may contain zero bytes;
//! ids do not.
//!
//! | table | key | value | scans that it serves |
//! |---|---|---|---|
//! | homes | kind 0 id | home | key of the newest version |
//! | current | kind 0 home 0 id | the newest version | a type; a type within a compartment |
//! | history | kind 0 id 0 !seq | a version that was replaced | one resource backwards; read at a sequence |
//! | members | compartment 0 kind 0 id 0 !seq | 1 in, 0 out | a type within a compartment that is not its home |
//! | changes | seq | deleted, version, kind 0 id | the change feed |
//! | terms | term 0 id | seq of the last version with the term | the search index |
//! | records | ledger key | expiry, revision, value | a prefix of the ledger |
//! | expiries | expiry, ledger key | nothing | the sweep |
//! | meta | `counters`, `format`, `kind` 0 kind | numbers | restart, the list of types |
//! | each | 0 | number of the last checkpoint | the start, which detects a table that lost writes |
//!
//! Most resources have only one version. A scan of a type therefore reads one table sequentially, and reads
//! the history only of resources that were written after the sequence number of the scan.
//!
//! The home of a resource is the first compartment given at its creation, or empty, and never changes.
//! Resources with the same home are adjacent, so a scan of a compartment reads sequentially (measured: four
//! times as fast as a lookup of each resource) and needs no entry in the compartment index. The disadvantage
//! is that a scan of a type is ordered by home first and by id second.

use bytes::Bytes;
use jiff::Timestamp;

use crate::plan::{StoreCounters, StoredRecord};
use crate::{ChangeRecord, IndexEntry, IndexRange, ResourceKey, Seq, StoreError, Version, membership};

/// The tables. Each is a keyspace of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StoreTable {
    Homes,
    Current,
    History,
    Members,
    Changes,
    Terms,
    Records,
    Expiries,
    Meta,
}

impl StoreTable {
    /// All tables, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Homes,
        Self::Current,
        Self::History,
        Self::Members,
        Self::Changes,
        Self::Terms,
        Self::Records,
        Self::Expiries,
        Self::Meta,
    ];
    /// The names of all tables, in the same order.
    pub const NAMES: [&'static str; 9] =
        ["homes", "current", "history", "members", "changes", "terms", "records", "expiries", "meta"];
}

/// Key under which each table stores the number of the last checkpoint. No other key is a single zero byte.
pub(super) const CHECKPOINT: &[u8] = &[0];
pub(super) const COUNTERS: &[u8] = b"counters";
pub(super) const FORMAT: &[u8] = b"format";
pub(super) const KIND: &str = "kind";

/// Joins texts with a zero byte between them.
pub(super) fn joined<const N: usize>(parts: [&str; N]) -> Vec<u8> {
    parts.join("\0").into_bytes()
}

/// The texts, each followed by a zero byte: the prefix of all keys that start with these texts.
pub(super) fn prefix<const N: usize>(parts: [&str; N]) -> Vec<u8> {
    let mut key = joined(parts);
    key.push(0);
    key
}

/// The first key after all keys with this prefix, which must end with a zero byte.
pub(super) fn end_of(mut prefix: Vec<u8>) -> Vec<u8> {
    if let Some(last) = prefix.last_mut() {
        *last = 1;
    }
    prefix
}

/// Appends the complement of the sequence number to `prefix`, so that newer versions sort first.
pub(super) fn newest_first(mut prefix: Vec<u8>, seq: Seq) -> Vec<u8> {
    prefix.extend_from_slice(&(!seq.0).to_be_bytes());
    prefix
}

pub(super) fn home(key: &ResourceKey) -> Vec<u8> {
    joined([&key.kind, &key.id])
}

pub(super) fn current(key: &ResourceKey, home: &str) -> Vec<u8> {
    joined([&key.kind, home, &key.id])
}

pub(super) fn history(key: &ResourceKey, seq: Seq) -> Vec<u8> {
    newest_first(prefix([&key.kind, &key.id]), seq)
}

pub(super) fn member(compartment: &str, key: &ResourceKey, seq: Seq) -> Vec<u8> {
    newest_first(prefix([compartment, &key.kind, &key.id]), seq)
}

/// The key of an entry of the search index.
pub(super) fn term(entry: &IndexEntry) -> Vec<u8> {
    [&entry.term[..], &[0], entry.id.as_bytes()].concat()
}

/// Splits a key of the table `terms`.
pub(super) fn split_term(key: &[u8]) -> Result<IndexEntry, StoreError> {
    let index = key.iter().rposition(|&byte| byte == 0).ok_or_else(|| corrupt("a term", key))?;
    Ok(IndexEntry { term: key[..index].into(), id: text(&key[index + 1..])?.to_owned() })
}

/// The first key of a range of terms, and the first key after it.
pub(super) fn term_range(range: &IndexRange) -> (Vec<u8>, Vec<u8>) {
    match range {
        IndexRange::Term(term) => ([&term[..], &[0]].concat(), [&term[..], &[1]].concat()),
        IndexRange::Between(from, until) => (from.to_vec(), until.to_vec()),
    }
}

/// The id at the end of a key of the table `current`.
pub(super) fn id_of(key: &[u8]) -> Result<&str, StoreError> {
    text(key.rsplit(|&byte| byte == 0).next().unwrap_or_default())
}

/// Splits `id 0 !seq` into id and sequence number.
pub(super) fn split_member(rest: &[u8]) -> Result<(&str, Seq), StoreError> {
    let wrong = || corrupt("invalid key in the compartment index", rest);
    let (id, seq) = rest.split_last_chunk::<8>().ok_or_else(wrong)?;
    let id = id.strip_suffix(&[0]).ok_or_else(wrong)?;
    Ok((text(id)?, Seq(!u64::from_be_bytes(*seq))))
}

/// The key of an expiry. Times before 1970 are negative and sort before later ones.
pub(super) fn expiry(at_us: i64, key: &str) -> Vec<u8> {
    let mut bytes = (at_us ^ i64::MIN).to_be_bytes().to_vec();
    bytes.extend_from_slice(key.as_bytes());
    bytes
}

pub(super) fn split_expiry(key: &[u8]) -> Result<(i64, &str), StoreError> {
    let (expiry, key) = key.split_first_chunk::<8>().ok_or_else(|| corrupt("an expiry", key))?;
    Ok((i64::from_be_bytes(*expiry) ^ i64::MIN, text(key)?))
}

const DELETED: u8 = 1;

/// Encodes a version as a value: flags, version number, sequence number, milliseconds, length of the
/// compartments, compartments and source time ([`membership`]), body. The body keeps its buffer if nothing
/// else uses it, because it may be large.
pub(super) fn encode_version(version: &Version, body: Option<Bytes>) -> Vec<u8> {
    let compartments = membership::encode(version.source_time, &version.compartments);
    let mut header = Vec::with_capacity(HEADER_BYTES + compartments.len());
    header.push(if body.is_none() { DELETED } else { 0 });
    header.extend_from_slice(&version.version.to_be_bytes());
    header.extend_from_slice(&version.seq.0.to_be_bytes());
    header.extend_from_slice(&version.updated.as_millisecond().to_be_bytes());
    let length =
        u32::try_from(compartments.len()).expect("the compartments of one resource take less than 4 GiB");
    header.extend_from_slice(&length.to_be_bytes());
    header.extend_from_slice(compartments.as_bytes());
    let Some(body) = body else { return header };
    if body.len() < MOVED_BYTES {
        header.extend_from_slice(&body);
        return header;
    }
    let mut value = Vec::from(body);
    value.splice(0..0, header);
    value
}

/// Length of the fixed part before the compartments.
const HEADER_BYTES: usize = 29;
/// Bodies from this size are moved within their buffer instead of being copied to a new one.
const MOVED_BYTES: usize = 256 << 10;

/// The sequence number of an encoded version without decoding the rest.
pub(super) fn seq_of(value: &[u8]) -> Result<Seq, StoreError> {
    let seq = value.get(9..17).and_then(|bytes| bytes.try_into().ok());
    seq.map(|bytes| Seq(u64::from_be_bytes(bytes))).ok_or_else(|| corrupt("a version", value))
}

/// `true` if an encoded version is a tombstone.
pub(super) fn is_deleted(value: &[u8]) -> bool {
    value.first() == Some(&DELETED)
}

/// A version that was decoded without copying its bytes.
pub(super) struct StoredVersion<'a> {
    deleted: bool,
    version: u64,
    seq: Seq,
    pub updated: Timestamp,
    /// Compartments and source time, in their stored form.
    pub compartments: &'a str,
    pub body: &'a [u8],
}

impl<'a> StoredVersion<'a> {
    pub fn of(value: &'a [u8]) -> Result<Self, StoreError> {
        let mut reader = ValueReader(value);
        let deleted = reader.byte()? == DELETED;
        let version = reader.u64()?;
        let seq = Seq(reader.u64()?);
        let ms = i64::from_be_bytes(reader.chunk()?);
        let updated = Timestamp::from_millisecond(ms).map_err(|_| corrupt("a time", value))?;
        let length = u32::from_be_bytes(reader.chunk()?) as usize;
        let compartments = text(reader.take(length)?)?;
        Ok(Self { deleted, version, seq, updated, compartments, body: reader.0 })
    }

    /// `true` if the version is in this compartment.
    pub fn is_in(&self, compartment: &str) -> bool {
        self.compartments.split('\0').any(|own| own == compartment)
    }
}

pub(super) fn decode_version(kind: &str, id: &str, value: Bytes) -> Result<Version, StoreError> {
    let StoredVersion { deleted, version, seq, updated, compartments, body } = StoredVersion::of(&value)?;
    let (source_time, compartments) = membership::decode(compartments)?;
    let body = (!deleted).then(|| value.slice(value.len() - body.len()..));
    Ok(Version { key: ResourceKey::new(kind, id), version, seq, updated, compartments, source_time, body })
}

/// Encodes a change as a value. Its sequence number is the key.
pub(super) fn encode_change(version: &Version) -> Vec<u8> {
    let mut value = vec![if version.is_deleted() { DELETED } else { 0 }];
    value.extend_from_slice(&version.version.to_be_bytes());
    value.extend_from_slice(&joined([&version.key.kind, &version.key.id]));
    value
}

pub(super) fn decode_change(key: &[u8], value: &[u8]) -> Result<ChangeRecord, StoreError> {
    let seq = Seq(ValueReader(key).u64()?);
    let mut reader = ValueReader(value);
    let deleted = reader.byte()? == DELETED;
    let version = reader.u64()?;
    let (kind, id) = text(reader.0)?.split_once('\0').ok_or_else(|| corrupt("a change", value))?;
    Ok(ChangeRecord { seq, key: ResourceKey::new(kind, id), version, deleted })
}

/// Encodes a record as a value: whether and when the record expires, revision, bytes.
pub(super) fn encode_record(record: &StoredRecord) -> Vec<u8> {
    let mut value = Vec::with_capacity(17 + record.value.len());
    value.push(u8::from(record.expires_us.is_some()));
    value.extend_from_slice(&record.expires_us.unwrap_or_default().to_be_bytes());
    value.extend_from_slice(&record.revision.to_be_bytes());
    value.extend_from_slice(&record.value);
    value
}

pub(super) fn decode_record(value: &Bytes) -> Result<StoredRecord, StoreError> {
    let mut reader = ValueReader(value);
    let expires = reader.byte()? == 1;
    let expiry = i64::from_be_bytes(reader.chunk()?);
    let revision = reader.u64()?;
    let bytes = value.slice(value.len() - reader.0.len()..);
    Ok(StoredRecord { value: bytes, revision, expires_us: expires.then_some(expiry) })
}

pub(super) fn encode_counters(counters: &StoreCounters) -> Vec<u8> {
    let StoreCounters { seq, revision, floor_ms } = counters;
    [seq.to_be_bytes(), revision.to_be_bytes(), floor_ms.to_be_bytes()].concat()
}

pub(super) fn decode_counters(value: &[u8]) -> Result<StoreCounters, StoreError> {
    let mut reader = ValueReader(value);
    Ok(StoreCounters {
        seq: reader.u64()?,
        revision: reader.u64()?,
        floor_ms: i64::from_be_bytes(reader.chunk()?),
    })
}

pub(super) fn decode_seq(value: &[u8]) -> Result<Seq, StoreError> {
    Ok(Seq(ValueReader(value).u64()?))
}

/// Reads the parts of a value from its start.
struct ValueReader<'a>(&'a [u8]);

impl<'a> ValueReader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], StoreError> {
        let (head, rest) =
            self.0.split_at_checked(length).ok_or_else(|| corrupt("truncated value", self.0))?;
        self.0 = rest;
        Ok(head)
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], StoreError> {
        self.take(N).map(|bytes| bytes.try_into().expect("take returns the requested number of bytes"))
    }

    fn byte(&mut self) -> Result<u8, StoreError> {
        self.chunk::<1>().map(|[byte]| byte)
    }

    fn u64(&mut self) -> Result<u64, StoreError> {
        self.chunk().map(u64::from_be_bytes)
    }
}

pub(super) fn text(bytes: &[u8]) -> Result<&str, StoreError> {
    std::str::from_utf8(bytes).map_err(|_| corrupt("a text that is not UTF-8", bytes))
}

fn corrupt(what: &str, bytes: &[u8]) -> StoreError {
    let start = bytes[..bytes.len().min(48)].escape_ascii();
    StoreError::Corrupt { what: format!("{what}: {start}") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name() -> impl Strategy<Value = String> {
        proptest::collection::vec(prop_oneof!["[a-c.-]", "[A-Z0-9/]"], 1..4).prop_map(|parts| parts.concat())
    }

    /// Few names, so that two are often equal or begin with each other.
    fn part() -> impl Strategy<Value = String> {
        prop_oneof![
            name(),
            proptest::sample::select(&["a", "a.", "a-b", "ab", "A", "A/"]).prop_map(str::to_owned)
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_version_reads_back(
            number: u64, seq: u64, ms in -1_000_000_000_000i64..10_000_000_000_000,
            compartments in proptest::collection::vec(name(), 0..3), body: Option<Vec<u8>>,
            source_us in proptest::option::of(-1_000_000_000_000_000i64..10_000_000_000_000_000),
        ) {
            let version = Version {
                key: ResourceKey::new("Patient", "p"),
                version: number,
                seq: Seq(seq),
                updated: Timestamp::from_millisecond(ms).unwrap(),
                compartments,
                source_time: source_us.map(|number| Timestamp::from_microsecond(number).unwrap()),
                body: body.map(Bytes::from),
            };
            let value = Bytes::from(encode_version(&version, version.body.clone()));
            prop_assert_eq!(seq_of(&value).unwrap(), version.seq);
            prop_assert_eq!(decode_version("Patient", "p", value).unwrap(), version);
        }

        #[test]
        fn a_truncated_value_is_reported_as_corrupt(
            seq: u64, compartments in proptest::collection::vec(name(), 1..3), cut: proptest::sample::Index,
        ) {
            let version = Version {
                key: ResourceKey::new("Patient", "p"),
                version: 1,
                seq: Seq(seq),
                updated: Timestamp::UNIX_EPOCH,
                compartments,
                source_time: None,
                body: None,
            };
            let value = encode_version(&version, None);
            let end = cut.index(value.len());
            let cut = Bytes::copy_from_slice(&value[..end]);
            prop_assert!(decode_version("Patient", "p", cut.clone()).is_err(), "{} of {} bytes", end, value.len());
            prop_assert!(end >= 17 || decode_record(&cut).is_err());
        }

        #[test]
        fn keys_sort_by_kind_then_id_then_newest(
            a in (part(), part(), 0..3u64), b in (part(), part(), 0..3u64),
        ) {
            let key = |(kind, id, seq): &(String, String, u64)| history(&ResourceKey::new(kind, id), Seq(*seq));
            let order = |(kind, id, seq): &(String, String, u64)| (kind.clone(), id.clone(), !seq);
            prop_assert_eq!(key(&a).cmp(&key(&b)), order(&a).cmp(&order(&b)));
        }

        #[test]
        fn expiries_sort_by_time(a: i64, b: i64) {
            prop_assert_eq!(expiry(a, "k").cmp(&expiry(b, "k")), a.cmp(&b));
            let key = expiry(a, "k");
            prop_assert_eq!(split_expiry(&key).unwrap(), (a, "k"));
        }
    }
}
