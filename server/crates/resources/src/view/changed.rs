//! Searches in the order of `_lastUpdated`, read from the change feed of the store: how an app synchronizes.
//! Such a search costs as much as the changes in the range of times that it asks for.

use fhir::RESOURCE_TYPES;
use store::{
    ChangeRecord, ChangesBefore, PageLimit, ScanOptions, Seq, StoreError, Versions as _, cpu_budget,
};

use crate::search::filter::TypeFilter;
use crate::search::index::candidates::Candidates;
use crate::view::pages::{FillingPage, LOOKED_AT, LOOKED_AT_FOR_ONE, ResourcePage, SearchLimit};
use crate::{CompartmentView, ResourceError};

/// An order of resources by the time of their last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeOrder {
    /// `_sort=_lastUpdated`.
    OldestFirst,
    /// `_sort=-_lastUpdated`.
    NewestFirst,
}

/// Number of changes that are read whatever the search index knows.
const FEW_CHANGES: u64 = 200;
/// Minimum and maximum number of changes that are read at a time.
const FEWEST_READ: usize = 16;
const MOST_READ: usize = 500;
/// Maximum size of the bodies that are read at a time.
const READ_BYTES: usize = 512 * 1024;
/// Maximum number of changes of all types that are examined at a time for those of one type.
const EXAMINED: usize = 100_000;

/// Position of a page: the sequence number of the snapshot, and that of the last change before the page.
#[derive(Debug, Clone, Copy)]
struct ChangeCursor {
    at: Seq,
    order: ChangeOrder,
    last: Option<Seq>,
}

impl ChangeOrder {
    /// The text between the numbers of a cursor. No compartment has this name.
    fn text(self) -> &'static str {
        match self {
            Self::OldestFirst => "oldest",
            Self::NewestFirst => "newest",
        }
    }
}

impl ChangeCursor {
    /// `None` for a cursor of another search.
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '~');
        let (at, order, last) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?.parse().ok()?);
        let order = [ChangeOrder::OldestFirst, ChangeOrder::NewestFirst]
            .into_iter()
            .find(|candidate| candidate.text() == order)?;
        Some(Self { at: Seq(at), order, last: Some(Seq(last)) })
    }

    /// The text of a cursor after a change.
    fn after(self, last: Seq) -> String {
        format!("{}~{}~{last}", self.at, self.order.text())
    }
}

/// The changes that a search can select: those after the first number and before the second.
#[derive(Debug, Clone, Copy)]
struct ChangeRange {
    after: Seq,
    before: Seq,
}

impl CompartmentView<'_> {
    /// Returns resources of a type that match a search, in the order of their last changes, up to a limit.
    /// Resources of one commit have the order of its writes. The cursor [`ResourcePage::next`] of a page
    /// continues the search. Returns `None` if another way to read the search costs less, or the cursor is
    /// that of another way. Without an `order`, the search is read in this way only if it asks for a range of
    /// times.
    ///
    /// # Errors
    /// A store error, or the end of the budget of the request.
    pub async fn search_by_change(
        &self,
        kind: &'static str,
        filter: Option<&TypeFilter>,
        order: Option<ChangeOrder>,
        from: Option<&str>,
        limit: impl Into<SearchLimit>,
    ) -> Result<Option<ResourcePage>, ResourceError> {
        let store = self.resources().store();
        let has_lower_bound = filter.is_some_and(|filter| filter.updated_range().after.is_some());
        let cursor = match from {
            Some(text) => ChangeCursor::read(text),
            None if order.is_none() && !has_lower_bound => None,
            None => {
                let (at, order) = (store.last_seq().await?, order.unwrap_or(ChangeOrder::OldestFirst));
                Some(ChangeCursor { at, order, last: None })
            }
        };
        let Some(cursor) = cursor else { return Ok(None) };
        let range = self.change_range(filter, cursor.at).await?;
        if cursor.last.is_none() && !self.prefers_changes(kind, filter, order, range).await? {
            return Ok(None);
        }
        let page = FillingPage::new(filter, limit.into());
        self.read_changes(kind, page, cursor, range).await.map(Some)
    }

    /// The changes that can meet the search, at a snapshot.
    async fn change_range(&self, filter: Option<&TypeFilter>, at: Seq) -> Result<ChangeRange, StoreError> {
        let store = self.resources().store();
        let updated = filter.map(TypeFilter::updated_range).unwrap_or_default();
        let after = match updated.after {
            Some(time) => store.seq_at(time).await?,
            None => Seq::ZERO,
        };
        let before = match updated.before {
            Some(time) => store.seq_at(time).await?.min(at),
            None => at,
        };
        Ok(ChangeRange { after, before: Seq(before.0.saturating_add(1)) })
    }

    /// `true` if the change feed is the cheapest way to read a search.
    async fn prefers_changes(
        &self,
        kind: &'static str,
        filter: Option<&TypeFilter>,
        order: Option<ChangeOrder>,
        range: ChangeRange,
    ) -> Result<bool, ResourceError> {
        if self.is_limited(kind, filter).await? {
            return Ok(false);
        }
        let (store, changes) = (self.resources().store(), range.before.0.saturating_sub(range.after.0));
        if changes <= FEW_CHANGES {
            return Ok(true);
        }
        let clauses = filter.map(TypeFilter::index_clauses).unwrap_or_default();
        if Candidates::some(store, &clauses).await?.is_some() {
            return Ok(false);
        }
        if changes <= LOOKED_AT as u64 {
            return Ok(true);
        }
        // The changes of a small type may be far apart.
        let first = ScanOptions::at(Seq::LATEST).limit(PageLimit { count: MOST_READ, bytes: READ_BYTES });
        let is_small = store.scan_kind(kind, first).await?.next.is_none();
        Ok(!is_small && (order.is_some() || clauses.is_empty()))
    }

    async fn read_changes(
        &self,
        kind: &'static str,
        mut page: FillingPage<'_>,
        cursor: ChangeCursor,
        mut range: ChangeRange,
    ) -> Result<ResourcePage, ResourceError> {
        let store = self.resources().store();
        let mut reached = cursor.last;
        loop {
            cpu_budget::check()?;
            match (cursor.order, reached) {
                (ChangeOrder::OldestFirst, Some(last)) => range.after = range.after.max(last),
                (ChangeOrder::NewestFirst, Some(last)) => range.before = range.before.min(last),
                (_, None) => {}
            }
            let count = page.missing().saturating_add(1).clamp(FEWEST_READ, MOST_READ);
            let (changes, rest) = self.changes_in(kind, cursor.order, range, count).await?;
            let is_live = |change: &&ChangeRecord| !change.deleted;
            let ids = changes.iter().filter(is_live).map(|change| change.key.id.clone()).collect();
            let mut versions = store.read_many(kind, ids, cursor.at, READ_BYTES).await?.into_iter();
            for change in &changes {
                if !change.deleted {
                    let Some(version) = versions.next() else { break };
                    // A resource has the place of its last change.
                    if let Some(version) = version.filter(|version| version.seq == change.seq) {
                        let is_visible = self.contains_version(&version).await?;
                        if !page.examine(version, is_visible)? {
                            let last = reached.unwrap_or(match cursor.order {
                                ChangeOrder::OldestFirst => range.after,
                                ChangeOrder::NewestFirst => range.before,
                            });
                            return Ok(page.end_at(cursor.after(last)));
                        }
                    } else {
                        page.pass();
                    }
                }
                reached = Some(change.seq);
            }
            let is_read = changes.last().is_none_or(|last| reached == Some(last.seq));
            match rest {
                None if is_read => return Ok(page.end_last()),
                Some(rest) if is_read => reached = Some(rest),
                _ => {}
            }
            let most = if page.is_empty() { LOOKED_AT_FOR_ONE } else { LOOKED_AT };
            if page.looked_at >= most
                && let Some(last) = reached
            {
                return Ok(page.end_at(cursor.after(last)));
            }
        }
    }

    /// The next changes of a type in a range, and the number at which the range continues, if it does.
    async fn changes_in(
        &self,
        kind: &'static str,
        order: ChangeOrder,
        range: ChangeRange,
        count: usize,
    ) -> Result<(Vec<ChangeRecord>, Option<Seq>), StoreError> {
        let store = self.resources().store();
        match order {
            ChangeOrder::OldestFirst => {
                let position = RESOURCE_TYPES.iter().position(|name| *name == kind);
                let kinds = position.map(|index| &RESOURCE_TYPES[index..=index]).unwrap_or_default();
                let mut changes = store.changes_of(kinds, range.after, count).await?;
                let is_full = changes.len() == count;
                changes.retain(|change| change.seq < range.before);
                let rest = changes.last().map(|last| last.seq).filter(|_| is_full && changes.len() == count);
                Ok((changes, rest))
            }
            ChangeOrder::NewestFirst => {
                let range =
                    ChangesBefore { before: range.before, after: range.after, count, examined: EXAMINED };
                let page = store.changes_before(Some(kind), range).await?;
                Ok((page.changes, page.next))
            }
        }
    }
}
