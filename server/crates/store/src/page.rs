//! Fills pages of a scan up to their limit, with versions or with lines.

use crate::{Limit, Lines, Mark, Page, ResourceKey, Seen, StoreError, Version};

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

/// Pages of lines that are being filled. What is not wanted counts too, so that a page never takes long.
pub(crate) struct FillingLines<K, P> {
    page: Lines,
    text: Vec<u8>,
    /// The id that was added last, in this compartment.
    last: String,
    keep: K,
    /// Takes each page; says whether one more is wanted.
    give: P,
    limit: Limit,
    count: usize,
    bytes: usize,
}

impl<K: Fn(&Seen<'_>) -> bool, P: FnMut(Lines) -> bool> FillingLines<K, P> {
    pub fn new(limit: Limit, keep: K, give: P) -> Self {
        Self {
            page: Lines::default(),
            text: Vec::new(),
            last: String::new(),
            keep,
            give,
            limit,
            count: 0,
            bytes: 0,
        }
    }

    /// Adds a version that is no tombstone, at a key where a type is scanned; says whether it was enough.
    pub fn push(&mut self, key: Option<&[u8]>, seen: &Seen<'_>, body: &[u8]) -> bool {
        self.count += 1;
        self.bytes += body.len();
        self.last.clear();
        self.last.push_str(seen.id);
        if (self.keep)(seen) {
            if self.text.capacity() == 0 {
                // The last body may go beyond the limit.
                self.text.reserve_exact(self.limit.bytes + self.limit.bytes / 8);
            }
            self.text.extend_from_slice(body);
            self.text.push(b'\n');
            self.page.ends.push(self.text.len());
        }
        let is_full = self.count >= self.limit.count || self.bytes >= self.limit.bytes;
        if is_full {
            self.page.mark = key.map(Mark::new);
        }
        is_full && !self.give()
    }

    /// A compartment is at its end.
    pub fn leave_compartment(&mut self) {
        self.page.compartments += 1;
        self.last.clear();
    }

    /// All that there was.
    pub fn end(mut self) {
        self.page.done = true;
        self.give();
    }

    /// Gives the page and begins another one.
    fn give(&mut self) -> bool {
        (self.count, self.bytes) = (0, 0);
        let text = std::mem::take(&mut self.text).into();
        let next = (!self.last.is_empty()).then(|| std::mem::take(&mut self.last));
        (self.give)(Lines { text, next, ..std::mem::take(&mut self.page) })
    }
}

/// The answer to a scan of a type that is to go on behind what no page gave.
pub(crate) fn unknown_start(key: &ResourceKey) -> StoreError {
    StoreError::Key { key: key.to_string(), reason: "a scan goes on behind a resource that exists" }
}
