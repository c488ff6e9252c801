//! Input and output of the two ports: plain values, the same for every engine.

use std::fmt;

use bytes::Bytes;
use jiff::Timestamp;

use crate::membership;

/// Sequence number: the position of a write in the order of all writes to [`Versions`](crate::Versions).
///
/// Each write of a commit has its own sequence number, and the numbers of a commit are consecutive. A
/// sequence number is a plain value that can be stored: a read at the same number always has the same result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seq(pub u64);

impl Seq {
    /// The position before the first write.
    pub const ZERO: Self = Self(0);
    /// The position after every write. A read at it returns the newest version.
    pub const LATEST: Self = Self(u64::MAX);
    /// Another name of [`Seq::LATEST`].
    pub const MAX: Self = Self::LATEST;
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Identifies a resource by type and id. Neither of them is empty or contains a zero byte.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKey {
    /// Resource type, such as `Patient`.
    pub kind: String,
    /// Id of the resource within its type.
    pub id: String,
}

impl ResourceKey {
    /// Creates a key from a type and an id.
    pub fn new(kind: impl Into<String>, id: impl Into<String>) -> Self {
        Self { kind: kind.into(), id: id.into() }
    }
}

impl fmt::Display for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.id)
    }
}

/// A ledger record that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerRecord {
    /// The stored bytes.
    pub value: Bytes,
    /// Number that changes with every put and is never reused, not even after a delete.
    pub revision: u64,
}

/// The condition of a ledger write. An expired record is treated as absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// No condition.
    Any,
    /// The record must not exist.
    Absent,
    /// The record must have this revision.
    Revision(u64),
}

/// One write to the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerWrite {
    /// Adds or replaces a record.
    Put {
        /// Key of up to 1,024 bytes of UTF-8 without a zero byte, such as `token/…`.
        key: String,
        /// Bytes to store.
        value: Bytes,
        /// Time from which (inclusive) the record is treated as absent.
        expires: Option<Timestamp>,
        /// Condition of the write.
        expect: Expect,
    },
    /// Removes a record. Removing an absent record succeeds with [`Expect::Any`] and [`Expect::Absent`].
    Delete {
        /// Key of the record.
        key: String,
        /// Condition of the write.
        expect: Expect,
    },
}

impl LedgerWrite {
    /// A put without expiry.
    pub fn put(key: impl Into<String>, value: impl Into<Bytes>, expect: Expect) -> Self {
        Self::Put { key: key.into(), value: value.into(), expires: None, expect }
    }

    /// A delete.
    pub fn delete(key: impl Into<String>, expect: Expect) -> Self {
        Self::Delete { key: key.into(), expect }
    }

    /// Sets the expiry of the record. Has no effect on a delete.
    #[must_use]
    pub fn expiring(mut self, expiry: Timestamp) -> Self {
        if let Self::Put { expires, .. } = &mut self {
            *expires = Some(expiry);
        }
        self
    }

    /// The key of the record that is written.
    pub fn key(&self) -> &str {
        let (Self::Put { key, .. } | Self::Delete { key, .. }) = self;
        key
    }
}

/// The condition of a write to a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectVersion {
    /// No condition.
    Any,
    /// The resource must not exist: it was never created, or is deleted.
    Absent,
    /// The resource must exist and have this newest version.
    Version(u64),
}

/// The bytes of a resource, without the version and time that the store assigns at commit.
///
/// At commit, the store inserts the version number (decimal digits) before the byte at offset `version_at`,
/// and `lastUpdated` (24 bytes, `2026-11-21T08:00:00.000Z`) before the byte at offset `updated_at`. Both are
/// offsets in `bytes`. The result is stored and returned unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceDraft {
    /// The bytes without the two values.
    pub bytes: Vec<u8>,
    /// Offset at which the version number is inserted.
    pub version_at: usize,
    /// Offset at which `lastUpdated` is inserted. If it equals `version_at`, the version number comes first.
    pub updated_at: usize,
}

/// One write to a resource: a new version, a tombstone, or a condition only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionWrite {
    /// Type and id of the resource.
    pub key: ResourceKey,
    /// Condition of the write.
    pub expect: ExpectVersion,
    /// The new content. `None` deletes the resource. Deleting an absent resource writes nothing
    /// ([`WriteEffect::Nothing`]).
    pub body: Option<ResourceDraft>,
    /// Compartments that the version belongs to, such as `Patient/p1`; the store does not interpret them.
    /// They are ignored for a tombstone, which keeps the compartments of the version that it replaces.
    /// Engines may optimize scans of the first compartment that is given when the resource is created.
    pub compartments: Vec<String>,
    /// If `true`, writes nothing ([`WriteEffect::Nothing`]) if the newest version has the same bytes, apart
    /// from the two inserted values, and the same compartments. A repeated import is therefore cheap.
    pub unless_same: bool,
    /// Terms of the search index under which the version can be found (see [`IndexTerm`]). A tombstone has
    /// none.
    pub terms: Vec<IndexTerm>,
    /// Condition on the search index, besides `expect`.
    pub unless_indexed: Option<IndexCondition>,
    /// If `true`, writes nothing ([`WriteEffect::Nothing`]), whatever the other members are. The commit fails
    /// with [`crate::StoreError::IndexChanged`] if `expect` does not hold.
    pub is_check: bool,
    /// Time of the version in the system that it was imported from (see [`Version::source_time`]).
    pub source_time: Option<Timestamp>,
    /// If `true`, writes nothing ([`WriteEffect::Outdated`]) if the newest version has a later source time.
    pub unless_outdated: bool,
}

impl VersionWrite {
    /// The condition that a resource which a search has found still has this version. Writes nothing.
    pub fn check(key: ResourceKey, version: u64) -> Self {
        Self { expect: ExpectVersion::Version(version), is_check: true, ..Self::delete(key) }
    }

    /// A write of a new version without condition.
    pub fn put(key: ResourceKey, draft: ResourceDraft, compartments: Vec<String>) -> Self {
        Self {
            key,
            expect: ExpectVersion::Any,
            body: Some(draft),
            compartments,
            unless_same: false,
            terms: Vec::new(),
            unless_indexed: None,
            is_check: false,
            source_time: None,
            unless_outdated: false,
        }
    }

    /// A write of a tombstone without condition.
    pub fn delete(key: ResourceKey) -> Self {
        Self {
            key,
            expect: ExpectVersion::Any,
            body: None,
            compartments: Vec::new(),
            unless_same: false,
            terms: Vec::new(),
            unless_indexed: None,
            is_check: false,
            source_time: None,
            unless_outdated: false,
        }
    }

    /// Sets the source time.
    #[must_use]
    pub fn from_source(mut self, time: Option<Timestamp>) -> Self {
        self.source_time = time;
        self
    }

    /// Sets the condition of the write.
    #[must_use]
    pub fn expecting(mut self, expect: ExpectVersion) -> Self {
        self.expect = expect;
        self
    }

    /// Sets the terms of the search index.
    #[must_use]
    pub fn indexed(mut self, terms: Vec<IndexTerm>) -> Self {
        self.terms = terms;
        self
    }

    /// Sets the condition on the search index.
    #[must_use]
    pub fn unless_indexed(mut self, condition: Option<IndexCondition>) -> Self {
        self.unless_indexed = condition;
        self
    }
}

/// A term of the search index: 1 to 255 bytes that the store compares but does not interpret.
///
/// The index maps a term to the ids of all resources that had the term in *any* version. Entries are never
/// removed, so a search at any sequence number finds a superset, and the caller checks each version that it
/// reads. A write therefore does not read the terms of the version that it replaces.
pub type IndexTerm = Box<[u8]>;

/// A range of terms of the search index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexRange {
    /// Exactly this term.
    Term(IndexTerm),
    /// The terms from the first (inclusive) to the second (exclusive), in byte order. All terms of the index
    /// that begin with the common prefix of the two must have the same length.
    Between(IndexTerm, IndexTerm),
}

impl IndexRange {
    /// Returns whether the range contains a term.
    pub fn contains(&self, term: &[u8]) -> bool {
        match self {
            Self::Term(wanted) => **wanted == *term,
            Self::Between(from, until) => **from <= *term && *term < **until,
        }
    }
}

/// A lookup in the search index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexLookup {
    /// The terms.
    pub range: IndexRange,
    /// The order of the entries.
    pub order: KeyOrder,
    /// The lookup starts after this entry, in its order. `None` starts with the first entry of the range.
    pub after: Option<IndexEntry>,
    /// Maximum number of entries.
    pub limit: usize,
}

impl IndexLookup {
    /// A lookup of the first entries of a range.
    pub fn first(range: IndexRange, limit: usize) -> Self {
        Self { range, order: KeyOrder::Ascending, after: None, limit }
    }

    /// The lookup with another order.
    #[must_use]
    pub fn ordered(self, order: KeyOrder) -> Self {
        Self { order, ..self }
    }

    /// The lookup of the entries after one.
    #[must_use]
    pub fn after(self, after: Option<IndexEntry>) -> Self {
        Self { after, ..self }
    }
}

/// The order in which keys are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOrder {
    /// From the smallest to the greatest.
    Ascending,
    /// From the greatest to the smallest.
    Descending,
}

/// An entry of the search index.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IndexEntry {
    /// The term.
    pub term: IndexTerm,
    /// Id of a resource that has or had the term. The term determines the type.
    pub id: String,
}

/// A condition on the search index: no version with one of these terms was committed after `since`. A caller
/// that found nothing at `since` can thus create a resource that must exist only once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexCondition {
    /// The terms.
    pub ranges: Vec<IndexRange>,
    /// Sequence number of the search.
    pub since: Seq,
}

/// Result of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Sequence number at which a read sees the whole commit.
    pub seq: Seq,
    /// One result for each write, in the order of the writes.
    pub written: Vec<WriteResult>,
}

/// Result of one write of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteResult {
    /// Effect of the write on the resource.
    pub effect: WriteEffect,
    /// Number of the newest version after the write, or 0 if the resource never existed.
    pub version: u64,
    /// `lastUpdated` of that version, or the time of the commit if the resource never existed.
    pub updated: Timestamp,
    /// Sequence number of that version, or that of the commit if the resource never existed.
    pub seq: Seq,
}

/// The effect of one write of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteEffect {
    /// The write created the resource, which did not exist before or was deleted.
    Created,
    /// The write added a newer version to an existing resource.
    Replaced,
    /// The write deleted the resource.
    Deleted,
    /// Nothing was written: a delete of an absent resource, or a put with `unless_same` and the same content.
    Nothing,
    /// Nothing was written: the newest version has a later source time
    /// ([`VersionWrite::unless_outdated`]).
    Outdated,
}

/// One stored version of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Type and id of the resource.
    pub key: ResourceKey,
    /// Version number: 1, 2, 3 and so on for each resource. A delete also has a version number.
    pub version: u64,
    /// Sequence number of the write.
    pub seq: Seq,
    /// Time of the write in whole milliseconds (`meta.lastUpdated` in FHIR).
    pub updated: Timestamp,
    /// Compartments that the version belongs to, sorted.
    pub compartments: Vec<String>,
    /// Time of the version in the system that it was imported from, in whole microseconds. `None` if it was
    /// written otherwise, or the system stated no time.
    pub source_time: Option<Timestamp>,
    /// The stored bytes. `None` for a tombstone.
    pub body: Option<Bytes>,
}

impl Version {
    /// `true` for a tombstone.
    pub fn is_deleted(&self) -> bool {
        self.body.is_none()
    }
}

/// A point in the order of writes that can be read at any later time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreSnapshot {
    /// Sequence number of the snapshot. All earlier commits are at or below this number.
    pub seq: Seq,
    /// Time of the snapshot. No earlier commit has a later `lastUpdated`. Every later commit has a
    /// `lastUpdated` that is at least one millisecond later, even after a restart and if the clock goes back.
    pub time: Timestamp,
}

/// Maximum size of a page. A page that is not empty contains at least one version, whatever its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimit {
    /// Maximum number of versions, at least 1.
    pub count: usize,
    /// Maximum total length of the bodies in bytes. The last body may exceed it.
    pub bytes: usize,
}

impl Default for PageLimit {
    /// A limit of 1,000 versions or 1 MiB.
    fn default() -> Self {
        Self { count: 1_000, bytes: 1 << 20 }
    }
}

/// Options for a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanOptions<'a> {
    /// Id after which the page starts, as returned by an earlier page ([`VersionPage::next`]). `None` starts
    /// at the first resource.
    pub after: Option<&'a str>,
    /// Sequence number: the scan returns the newest version of each resource at or before this number.
    pub at: Seq,
    /// Maximum size of the page.
    pub limit: PageLimit,
    /// `true` if tombstones are included.
    pub deleted: bool,
}

impl<'a> ScanOptions<'a> {
    /// Returns options for the first page at `at`, with the default page size and without tombstones.
    pub fn at(seq: Seq) -> Self {
        Self { after: None, at: seq, limit: PageLimit::default(), deleted: false }
    }

    /// Starts the page after this id.
    #[must_use]
    pub fn after(mut self, id: Option<&'a str>) -> Self {
        self.after = id;
        self
    }

    /// Sets the maximum size of the page.
    #[must_use]
    pub fn limit(mut self, limit: PageLimit) -> Self {
        self.limit = limit;
        self
    }

    /// Includes tombstones.
    #[must_use]
    pub fn with_deleted(mut self) -> Self {
        self.deleted = true;
        self
    }
}

/// A page of a scan. The engine defines the order. Two scans at the same sequence number have the same order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VersionPage {
    /// The versions.
    pub versions: Vec<Version>,
    /// Id with which the next page continues ([`ScanOptions::after`]). `None` at the end.
    pub next: Option<String>,
}

/// One entry of the change feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeRecord {
    /// Sequence number of the change.
    pub seq: Seq,
    /// The resource that changed.
    pub key: ResourceKey,
    /// Number of the version that was written.
    pub version: u64,
    /// `true` if the version is a tombstone.
    pub deleted: bool,
}

/// A range of changes that is read backwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangesBefore {
    /// Changes before this sequence number are read, the newest first.
    pub before: Seq,
    /// Changes at or before this sequence number are not read.
    pub after: Seq,
    /// Maximum number of changes on a page; at least 1.
    pub count: usize,
    /// Maximum number of changes, of other types too, that a page may examine; at least 1. An engine with an
    /// index by type examines no others.
    pub examined: usize,
}

/// A page of changes, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangePage {
    /// The changes. There may be none although more follow.
    pub changes: Vec<ChangeRecord>,
    /// The sequence number before which the next page begins, if more changes may follow.
    pub next: Option<Seq>,
}

impl ChangePage {
    /// Selects the changes of a type, or all, among the changes of the range, which are newest first.
    pub(crate) fn of_kind<E>(
        kind: Option<&str>,
        range: ChangesBefore,
        changes: impl Iterator<Item = Result<ChangeRecord, E>>,
    ) -> Result<Self, E> {
        let mut page = Self::default();
        for (index, change) in changes.enumerate() {
            let change = change?;
            let seq = change.seq;
            if kind.is_none_or(|kind| change.key.kind == kind) {
                page.changes.push(change);
            }
            if page.changes.len() == range.count || index + 1 == range.examined {
                page.next = Some(seq);
                break;
            }
        }
        Ok(page)
    }
}

/// Header of a stored version. It can be read without the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionHeader<'a> {
    /// Id of the resource.
    pub id: &'a str,
    /// Time of the write.
    pub updated: Timestamp,
    /// Compartment that the scan is reading, if it is a scan of compartments.
    pub within: Option<&'a str>,
    /// Compartments in their stored form (see [`VersionHeader::compartments`]).
    compartments: &'a str,
}

impl<'a> VersionHeader<'a> {
    /// Creates a header. `compartments` are in their stored form ([`membership`]).
    pub(crate) fn new(
        id: &'a str,
        updated: Timestamp,
        compartments: &'a str,
        within: Option<&'a str>,
    ) -> Self {
        Self { id, updated, within, compartments }
    }

    /// The compartments that the version belongs to, sorted.
    pub fn compartments(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        membership::compartments(self.compartments)
    }
}

/// The resources that a scan of lines covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineScanRange {
    /// A whole type, or its part between two positions. Without `from`, the scan starts at
    /// [`ScanOptions::after`].
    Kind {
        /// Position at or before the first resource.
        from: Option<ScanPosition>,
        /// Position after the last resource.
        until: Option<ScanPosition>,
    },
    /// The resources of a type within these compartments, one compartment after the other.
    Compartments(Vec<String>),
}

/// A range of times of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UpdatedRange {
    /// Time after which a version was written. `None` includes all earlier times.
    pub after: Option<Timestamp>,
    /// Time before which a version was written. `None` includes all later times.
    pub before: Option<Timestamp>,
}

impl UpdatedRange {
    /// Returns whether a version that was written at this time is in the range.
    pub fn contains(&self, updated: Timestamp) -> bool {
        self.after.is_none_or(|after| updated > after) && self.before.is_none_or(|before| updated < before)
    }
}

/// A position between two resources of a type, in the order of the engine. It can be used by concurrent scans
/// and must not be stored.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScanPosition(Vec<u8>);

impl ScanPosition {
    pub(crate) fn new(key: impl Into<Vec<u8>>) -> Self {
        Self(key.into())
    }

    /// The key that follows the position.
    pub(crate) fn key(&self) -> &[u8] {
        &self.0
    }

    /// An estimate of the position that is as far after this position as this one is after `before`, an
    /// earlier position of the same type. The estimate is exact if keys are evenly distributed. It is always
    /// after this position.
    pub fn extrapolate(&self, before: &Self) -> Self {
        let same = self.0.iter().zip(&before.0).take_while(|(a, b)| a == b).count();
        let number = |key: &[u8]| {
            let mut bytes = [0; 8];
            let rest = &key[same..key.len().min(same + 8)];
            bytes[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(bytes)
        };
        let (here, before) = (number(&self.0), number(&before.0));
        let there = here.saturating_add(here.saturating_sub(before).max(1));
        Self([&self.0[..same], &there.to_be_bytes(), &[u8::MAX]].concat())
    }
}

/// A part of a scan as text: the bodies of the selected versions, each followed by a line feed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LinePage {
    /// The lines as UTF-8 text.
    pub text: Bytes,
    /// End of each line as an offset in `text`, including the line feed.
    pub ends: Vec<usize>,
    /// Number of compartments that the scan has completed since the previous page.
    pub compartments: usize,
    /// Id with which the scan of the current compartment continues ([`ScanOptions::after`]). `None` starts
    /// the compartment.
    pub next: Option<String>,
    /// Position after the last resource of a full page, in a scan of a type. Later positions can be
    /// extrapolated from it.
    pub mark: Option<ScanPosition>,
    /// `true` if this is the last page.
    pub done: bool,
}
