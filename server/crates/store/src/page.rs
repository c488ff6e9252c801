//! Fills one page of a scan up to its limit.

use crate::{Limit, Page, ResourceKey, StoreError, Version};

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

/// The answer to a scan of a type that is to go on behind what no page gave.
pub(crate) fn unknown_start(key: &ResourceKey) -> StoreError {
    StoreError::Key { key: key.to_string(), reason: "a scan goes on behind a resource that exists" }
}
