//! Fills pages of a scan up to their limit, with versions or with lines.

use crate::{
    LinePage, PageLimit, ResourceKey, ScanPosition, StoreError, UpdatedRange, Version, VersionHeader,
    VersionPage,
};

/// A page of versions that is being filled.
pub(crate) struct PageBuilder {
    page: VersionPage,
    limit: PageLimit,
    bytes: usize,
}

impl PageBuilder {
    pub fn new(limit: PageLimit) -> Self {
        Self { page: VersionPage::default(), limit, bytes: 0 }
    }

    /// Adds a version. Returns `true` if the page is full.
    pub fn push(&mut self, version: Version) -> bool {
        self.bytes += version.body.as_ref().map_or(0, |body| body.len());
        self.page.versions.push(version);
        self.page.versions.len() >= self.limit.count || self.bytes >= self.limit.bytes
    }

    /// The last page of a scan.
    pub fn last(self) -> VersionPage {
        self.page
    }

    /// A full page. The scan continues after its last version.
    pub fn full(mut self) -> VersionPage {
        self.page.next = self.page.versions.last().map(|version| version.key.id.clone());
        self.page
    }
}

/// Calls `read` for each id until the bodies take `bytes` bytes together.
pub(crate) fn read_until(
    ids: Vec<String>,
    bytes: usize,
    read: impl Fn(String) -> Result<Option<Version>, StoreError>,
) -> Result<Vec<Option<Version>>, StoreError> {
    let mut versions = Vec::with_capacity(ids.len());
    let mut count = 0;
    for id in ids {
        let version = read(id)?;
        count += version.as_ref().and_then(|version| version.body.as_ref()).map_or(0, |body| body.len());
        versions.push(version);
        if count >= bytes {
            break;
        }
    }
    Ok(versions)
}

/// Pages of lines that are being filled. Resources that are not selected are counted too, so that the time
/// for a page is limited.
pub(crate) struct FillingLines<K, P> {
    page: LinePage,
    text: Vec<u8>,
    /// Id that was added last, in the current compartment.
    last: String,
    updated: UpdatedRange,
    keep: K,
    /// Receives each page, and returns whether another page is wanted.
    give: P,
    limit: PageLimit,
    count: usize,
    bytes: usize,
}

impl<K: Fn(&VersionHeader<'_>) -> bool, P: FnMut(LinePage) -> bool> FillingLines<K, P> {
    pub fn new(limit: PageLimit, updated: UpdatedRange, keep: K, give: P) -> Self {
        Self {
            page: LinePage::default(),
            text: Vec::new(),
            last: String::new(),
            updated,
            keep,
            give,
            limit,
            count: 0,
            bytes: 0,
        }
    }

    /// Adds a version that is not a tombstone. `key` is its key in a scan of a type. Returns `true` if the
    /// page is full.
    pub fn push(&mut self, key: Option<&[u8]>, header: &VersionHeader<'_>, body: &[u8]) -> bool {
        self.bytes += body.len();
        if self.updated.contains(header.updated) && (self.keep)(header) {
            if self.text.capacity() == 0 {
                // The last body may exceed the size limit, so more memory is reserved.
                self.text.reserve_exact(self.limit.bytes + self.limit.bytes / 8);
            }
            self.text.extend_from_slice(body);
            self.text.push(b'\n');
            self.page.ends.push(self.text.len());
        }
        self.pass(key, header.id)
    }

    /// Counts a version that is not selected. Returns `true` if the page is full.
    pub fn pass(&mut self, key: Option<&[u8]>, id: &str) -> bool {
        self.count += 1;
        self.last.clear();
        self.last.push_str(id);
        let is_full = self.count >= self.limit.count || self.bytes >= self.limit.bytes;
        if is_full {
            self.page.mark = key.map(ScanPosition::new);
        }
        is_full && !self.give()
    }

    /// Records that the current compartment is complete.
    pub fn leave_compartment(&mut self) {
        self.page.compartments += 1;
        self.last.clear();
    }

    /// Passes on the last page.
    pub fn end(mut self) {
        self.page.done = true;
        self.give();
    }

    /// Passes the page on and starts a new one.
    fn give(&mut self) -> bool {
        (self.count, self.bytes) = (0, 0);
        let text = std::mem::take(&mut self.text).into();
        let next = (!self.last.is_empty()).then(|| std::mem::take(&mut self.last));
        (self.give)(LinePage { text, next, ..std::mem::take(&mut self.page) })
    }
}

/// The error of a scan that should start after a resource that never existed.
pub(crate) fn unknown_start(key: &ResourceKey) -> StoreError {
    StoreError::Key { key: key.to_string(), reason: "a scan must continue after a resource that exists" }
}
