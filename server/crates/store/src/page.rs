//! Fills one page of a scan up to its limit, with versions or with lines.

use crate::{Limit, Lines, Page, ResourceKey, Seen, StoreError, Version};

/// A page that is being filled.
pub(crate) struct Filling {
    page: Page,
    limit: Limit,
    bytes: usize,
}

impl Filling {
    pub fn new(limit: Limit) -> Self {
        Self { page: Page::default(), limit, bytes: 0 }
    }

    /// Adds a version; says whether the page is full now.
    pub fn push(&mut self, version: Version) -> bool {
        self.bytes += version.body.as_ref().map_or(0, |body| body.len());
        self.page.versions.push(version);
        self.page.versions.len() >= self.limit.count || self.bytes >= self.limit.bytes
    }

    /// The page after which nothing is left.
    pub fn last(self) -> Page {
        self.page
    }

    /// The page after which the scan goes on, behind the last version that was pushed.
    pub fn full(mut self) -> Page {
        self.page.next = self.page.versions.last().map(|version| version.key.id.clone());
        self.page
    }
}

/// Lines that are being filled. What is not wanted counts too, so that a page never takes long.
pub(crate) struct FillingLines<K> {
    text: Vec<u8>,
    ends: Vec<usize>,
    keep: K,
    limit: Limit,
    count: usize,
    bytes: usize,
}

impl<K: Fn(&Seen<'_>) -> bool> FillingLines<K> {
    pub fn new(limit: Limit, keep: K) -> Self {
        // The last body may go beyond the limit.
        let text = Vec::with_capacity(limit.bytes + limit.bytes / 8);
        Self { text, ends: Vec::new(), keep, limit, count: 0, bytes: 0 }
    }

    /// Adds a version that is no tombstone; says whether the page is full now.
    pub fn push(&mut self, seen: &Seen<'_>, body: &[u8]) -> bool {
        self.count += 1;
        self.bytes += body.len();
        if (self.keep)(seen) {
            self.text.extend_from_slice(body);
            self.text.push(b'\n');
            self.ends.push(self.text.len());
        }
        self.count >= self.limit.count || self.bytes >= self.limit.bytes
    }

    /// All that there was of so many compartments; `next` is where it goes on, where the page was full before.
    pub fn finish(self, compartments: usize, next: Option<Option<String>>) -> Lines {
        let done = next.is_none();
        Lines { text: self.text.into(), ends: self.ends, compartments, next: next.flatten(), done }
    }
}

/// The answer to a scan of a type that is to go on behind what no page gave.
pub(crate) fn unknown_start(key: &ResourceKey) -> StoreError {
    StoreError::Key { key: key.to_string(), reason: "a scan goes on behind a resource that exists" }
}
