//! Input and output of the two ports: plain values, the same for every engine.

use std::fmt;

use bytes::Bytes;
use jiff::Timestamp;

/// Position of a write in the order of all writes to [`Versions`](crate::Versions).
///
/// Each write of a commit has its own number, and the numbers of a commit are consecutive. A number is stored and is
/// not a handle of the engine: a read at it has the same result at any later time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seq(pub u64);

impl Seq {
    /// Before the first write.
    pub const ZERO: Self = Self(0);
    /// After every write: reads the newest version.
    pub const LATEST: Self = Self(u64::MAX);
    /// The same as [`Seq::LATEST`].
    pub const MAX: Self = Self::LATEST;
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Names a resource: its type and its id. Neither is empty or holds a zero byte.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKey {
    /// The resource type, such as `Patient`.
    pub kind: String,
    /// The id within the type.
    pub id: String,
}

impl ResourceKey {
    /// A key of these two.
    pub fn new(kind: impl Into<String>, id: impl Into<String>) -> Self {
        Self { kind: kind.into(), id: id.into() }
    }
}

impl fmt::Display for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.id)
    }
}

/// A ledger record as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerRecord {
    /// The bytes that were put.
    pub value: Bytes,
    /// Changes with every put and is never reused, not even after a delete.
    pub revision: u64,
}

/// The condition of a ledger write. Expired records count as absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// No condition.
    Any,
    /// The record does not exist.
    Absent,
    /// The record still has this revision.
    Revision(u64),
}

/// One write to the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerWrite {
    /// Adds or replaces a record.
    Put {
        /// Up to 1,024 bytes of UTF-8 without a zero byte, such as `token/…`.
        key: String,
        /// Any bytes.
        value: Bytes,
        /// From this moment on (inclusive) the record counts as absent.
        expires: Option<Timestamp>,
        /// Condition.
        expect: Expect,
    },
    /// Removes a record; removing an absent one succeeds with [`Expect::Any`] and [`Expect::Absent`].
    Delete {
        /// The key.
        key: String,
        /// Condition.
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
    pub fn expiring(mut self, at: Timestamp) -> Self {
        if let Self::Put { expires, .. } = &mut self {
            *expires = Some(at);
        }
        self
    }

    /// The key that is written.
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
    /// The resource never existed or is deleted.
    Absent,
    /// The resource exists and this is its newest version.
    Version(u64),
}

/// Resource bytes without the version and time that the store assigns at commit.
///
/// At commit, the version number (decimal digits) is inserted before the byte at `version_at`, and `lastUpdated` (24
/// bytes, `2026-11-21T08:00:00.000Z`) before the byte at `updated_at`. Both are offsets in `bytes`. The result is
/// stored and returned unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceDraft {
    /// The bytes around the two values.
    pub bytes: Vec<u8>,
    /// Offset of the version number.
    pub version_at: usize,
    /// Offset of `lastUpdated`. If it equals `version_at`, the version number comes first.
    pub updated_at: usize,
}

/// One write to a resource: a new version, or a tombstone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionWrite {
    /// The resource.
    pub key: ResourceKey,
    /// Condition.
    pub expect: ExpectVersion,
    /// The new content; `None` deletes. Deleting what is absent writes nothing ([`WriteEffect::Nothing`]).
    pub body: Option<ResourceDraft>,
    /// The compartments that the version belongs to, such as `Patient/p1`; opaque to the store. Ignored
    /// for a tombstone, which keeps those of the version that it replaces. The first one given when the
    /// resource is created is the one whose scan an engine may make the fastest.
    pub compartments: Vec<String>,
    /// Write nothing ([`WriteEffect::Nothing`]) where the newest version has the same bytes but for the two
    /// spliced values, and the same compartments. Makes an import that is run again cheap.
    pub unless_same: bool,
}

impl VersionWrite {
    /// A new version without condition.
    pub fn put(key: ResourceKey, draft: ResourceDraft, compartments: Vec<String>) -> Self {
        Self { key, expect: ExpectVersion::Any, body: Some(draft), compartments, unless_same: false }
    }

    /// A tombstone without condition.
    pub fn delete(key: ResourceKey) -> Self {
        Self { key, expect: ExpectVersion::Any, body: None, compartments: Vec::new(), unless_same: false }
    }

    /// Sets the condition.
    #[must_use]
    pub fn expecting(mut self, expect: ExpectVersion) -> Self {
        self.expect = expect;
        self
    }
}

/// Result of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Reading at this number sees the whole commit.
    pub seq: Seq,
    /// One answer for each write, in their order.
    pub written: Vec<WriteResult>,
}

/// Result of one write of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteResult {
    /// Effect.
    pub effect: WriteEffect,
    /// Newest version of the resource after the write; 0 if it never existed.
    pub version: u64,
    /// `lastUpdated` of that version; the time of the commit if the resource never existed.
    pub updated: Timestamp,
    /// Sequence number of that version; that of the commit if the resource never existed.
    pub seq: Seq,
}

/// Effect of one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteEffect {
    /// The resource did not exist before, or was deleted.
    Created,
    /// The resource has a newer version.
    Replaced,
    /// The resource is deleted.
    Deleted,
    /// Nothing was written: a delete of what is absent, or a put `unless_same` of the same content.
    Nothing,
}

/// One stored version of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The resource.
    pub key: ResourceKey,
    /// 1, 2, 3 … for each resource. A delete has a number too.
    pub version: u64,
    /// When it was written, in the order of all writes.
    pub seq: Seq,
    /// When it was written, as FHIR says it (`meta.lastUpdated`), in whole milliseconds.
    pub updated: Timestamp,
    /// The compartments that it belongs to, sorted.
    pub compartments: Vec<String>,
    /// The stored bytes; `None` says that this version is a tombstone.
    pub body: Option<Bytes>,
}

impl Version {
    /// Returns true for a tombstone.
    pub fn is_deleted(&self) -> bool {
        self.body.is_none()
    }
}

/// A moment that can be read at any later time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreSnapshot {
    /// Everything that was committed before is at or below this number.
    pub seq: Seq,
    /// Every later commit has a `lastUpdated` that is at least one millisecond later, also after a
    /// restart and with a clock that went back; no earlier commit has a later one.
    pub time: Timestamp,
}

/// Maximum size of a page. A page that is not empty contains at least one version, regardless of its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimit {
    /// Number of versions, at least 1.
    pub count: usize,
    /// Bytes of their bodies together; the last one may go beyond.
    pub bytes: usize,
}

impl Default for PageLimit {
    /// 1,000 versions or 1 MiB.
    fn default() -> Self {
        Self { count: 1_000, bytes: 1 << 20 }
    }
}

/// Selection and limit of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanOptions<'a> {
    /// Start behind this id, which an earlier page gave ([`VersionPage::next`]); `None` starts at the first.
    pub after: Option<&'a str>,
    /// The newest version at or before this number, of each id.
    pub at: Seq,
    /// The size of the page.
    pub limit: PageLimit,
    /// Whether tombstones are included.
    pub deleted: bool,
}

impl<'a> ScanOptions<'a> {
    /// The first page at `at`, of default size and without tombstones.
    pub fn at(at: Seq) -> Self {
        Self { after: None, at, limit: PageLimit::default(), deleted: false }
    }

    /// Starts behind this id.
    #[must_use]
    pub fn after(mut self, id: Option<&'a str>) -> Self {
        self.after = id;
        self
    }

    /// Sets the size of the page.
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

/// A page of a scan. The order is the engine's own; two scans at one sequence have the same order at any time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VersionPage {
    /// The versions.
    pub versions: Vec<Version>,
    /// Start of the next page ([`ScanOptions::after`]); `None` at the end.
    pub next: Option<String>,
}

/// One entry of the change feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeRecord {
    /// Its place.
    pub seq: Seq,
    /// The resource that changed.
    pub key: ResourceKey,
    /// The version that was written.
    pub version: u64,
    /// Is that version a tombstone?
    pub deleted: bool,
}

/// Header of a stored version, read before its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionHeader<'a> {
    /// The id.
    pub id: &'a str,
    /// When it was written.
    pub updated: Timestamp,
    /// The compartment that is being walked.
    pub within: Option<&'a str>,
    /// See [`VersionHeader::compartments`].
    compartments: &'a str,
}

impl<'a> VersionHeader<'a> {
    /// `compartments` have a zero byte between each two.
    pub(crate) fn new(
        id: &'a str,
        updated: Timestamp,
        compartments: &'a str,
        within: Option<&'a str>,
    ) -> Self {
        Self { id, updated, within, compartments }
    }

    /// The compartments that it belongs to, sorted.
    pub fn compartments(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.compartments.split('\0').filter(|name| !name.is_empty())
    }
}

/// Range of a scan of lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineScanRange {
    /// A type, between two positions if they are set. Without a first one, [`ScanOptions::after`] applies.
    Kind {
        /// Position of the first resource, or before it.
        from: Option<ScanPosition>,
        /// The last one is before it.
        until: Option<ScanPosition>,
    },
    /// At a type within these compartments, one after the other.
    Compartments(Vec<String>),
}

/// A position between two resources of a type, in the engine's order. It is valid for concurrent scans and must not
/// be stored.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScanPosition(Vec<u8>);

impl ScanPosition {
    pub(crate) fn new(key: impl Into<Vec<u8>>) -> Self {
        Self(key.into())
    }

    /// Returns the key that follows the position.
    pub(crate) fn key(&self) -> &[u8] {
        &self.0
    }

    /// Returns an estimate of the position that is as far after this one as this one is after `before`, an earlier
    /// position of the same type. The estimate is exact if keys are evenly distributed, and always follows this
    /// position.
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

/// A part of a scan as text: the bodies of the versions that were wanted, with a line feed behind each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LinePage {
    /// The text.
    pub text: Bytes,
    /// End of each line in `text`, including its line feed.
    pub ends: Vec<usize>,
    /// Number of compartments that were completed since the previous page.
    pub compartments: usize,
    /// Start of the next page ([`ScanOptions::after`]) in the compartment after these; `None` is its beginning.
    pub next: Option<String>,
    /// The last resource of a page that is full, in a scan of a type: [`ScanPosition`]s beyond it can be guessed.
    pub mark: Option<ScanPosition>,
    /// Is nothing left?
    pub done: bool,
}
