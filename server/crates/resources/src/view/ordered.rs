//! Searches ordered by a date or by the id, read from the index of the store in this order: a page costs as
//! much as the entries up to its last resource.

use store::{
    IndexEntry, IndexLookup, IndexRange, KeyOrder, Seq, Store, StoreError, Versions as _, cpu_budget,
};

use crate::result::sort::SortKey;
use crate::search::filter::TypeFilter;
use crate::search::index::candidates::{Candidates, SOME};
use crate::search::index::terms::{DateSet, TermName};
use crate::view::pages::{FillingPage, LOOKED_AT, LOOKED_AT_FOR_ONE, ResourcePage, SearchLimit};
use crate::{CompartmentView, ResourceError};

/// Minimum and maximum number of entries that are read at a time.
const FEWEST_READ: usize = 16;
const MOST_READ: usize = 1_000;
/// Maximum size of the bodies that are read at a time.
const READ_BYTES: usize = 512 * 1024;
/// Maximum number of ids that are collected to pass over the entries of others. Beyond this number, matches
/// are so frequent that reading the next resources costs less.
const COLLECTED: usize = 5_000;
/// Number of entries that cost as much as an examined resource.
const ENTRIES_PER_RESOURCE: usize = 20;

/// The entries of the store that have the order of a search.
#[derive(Debug, Clone, Copy)]
struct EntryOrder {
    kind: &'static str,
    source: EntrySource,
    order: KeyOrder,
}

#[derive(Debug, Clone, Copy)]
enum EntrySource {
    Ids,
    Dates(TermName),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct OrderPlace {
    /// Milliseconds since 1970, or 0 in the order of ids.
    time: i64,
    id: String,
}

/// The position of a page: the sequence number of the snapshot, and what precedes the page.
#[derive(Debug, Clone)]
struct OrderCursor {
    at: Seq,
    position: OrderPosition,
}

#[derive(Debug, Clone)]
enum OrderPosition {
    /// All resources up to this place; none before the first page.
    Place(Option<OrderPlace>),
    /// All resources with a date, and those before this cursor of a search of the others.
    Rest(String),
}

/// The texts between the number and the position of a cursor. No compartment has these names.
const PLACE: &str = "ordered";
const REST: &str = "rest";

impl OrderCursor {
    /// `None` for a cursor of another search.
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '~');
        let (at, position, rest) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?);
        let position = match position {
            PLACE => {
                let (time, id) = rest.split_once('~')?;
                OrderPosition::Place(Some(OrderPlace { time: time.parse().ok()?, id: id.to_owned() }))
            }
            REST => OrderPosition::Rest(rest.to_owned()),
            _ => return None,
        };
        Some(Self { at: Seq(at), position })
    }

    /// The text of a cursor after a place.
    fn after(at: Seq, place: &OrderPlace) -> String {
        format!("{at}~{PLACE}~{}~{}", place.time, place.id)
    }
}

impl EntryOrder {
    /// `None` if no entries have the order of these keys.
    fn of(kind: &'static str, keys: &[SortKey]) -> Option<Self> {
        let (first, rest) = keys.split_first()?;
        // Equal dates have the order of the ids.
        let is_by_id = |key: &SortKey| key.parameter.code == "_id";
        if !rest.iter().all(|key| is_by_id(key) && key.is_descending == first.is_descending) {
            return None;
        }
        let source = match is_by_id(first) {
            true => EntrySource::Ids,
            false => EntrySource::Dates(TermName::of_dates(kind, &first.parameter)?),
        };
        let order = if first.is_descending { KeyOrder::Descending } else { KeyOrder::Ascending };
        Some(Self { kind, source, order })
    }

    /// Up to `count` places after one. The result is empty only at the end.
    async fn places(
        self,
        store: &Store,
        after: Option<&OrderPlace>,
        count: usize,
    ) -> Result<Vec<OrderPlace>, StoreError> {
        let name = match self.source {
            EntrySource::Dates(name) => name,
            EntrySource::Ids => {
                let after = after.map(|place| place.id.as_str());
                let ids = store.ids(self.kind, self.order, after, count).await?;
                return Ok(ids.into_iter().map(|id| OrderPlace { time: 0, id }).collect());
            }
        };
        let other = match self.order {
            KeyOrder::Ascending => DateSet::From,
            KeyOrder::Descending => DateSet::Until,
        };
        let lookup = |set| {
            let entry =
                |place: &OrderPlace| IndexEntry { term: name.date(set, place.time), id: place.id.clone() };
            let all = name.dates(set, i64::MIN, i64::MAX);
            IndexLookup::first(all, count).ordered(self.order).after(after.map(entry))
        };
        let entries = store.index_entries(vec![lookup(DateSet::Single), lookup(other)]).await?;
        let mut places: Vec<OrderPlace> = entries
            .into_iter()
            .flatten()
            .filter_map(|IndexEntry { term, id }| Some(OrderPlace { time: TermName::time(&term)?, id }))
            .collect();
        match self.order {
            KeyOrder::Ascending => places.sort_unstable(),
            KeyOrder::Descending => places.sort_unstable_by(|a, b| b.cmp(a)),
        }
        // Each set returned its first ones, so that the first of both are complete.
        places.truncate(count);
        places.dedup();
        Ok(places)
    }

    /// `true` if each resource has all its entries.
    async fn is_complete(self, store: &Store) -> Result<bool, StoreError> {
        let EntrySource::Dates(name) = self.source else { return Ok(true) };
        let overflown = IndexLookup::first(IndexRange::Term(name.overflow()), 1);
        Ok(store.index_entries(vec![overflown]).await?.iter().all(Vec::is_empty))
    }

    /// `true` if a resource with this body belongs at a place. The index also has entries of its former
    /// versions.
    fn is_at(self, key: &SortKey, place: &OrderPlace, body: &[u8]) -> bool {
        match self.source {
            EntrySource::Ids => true,
            EntrySource::Dates(_) => key.time(body) == Some(place.time),
        }
    }
}

impl CompartmentView<'_> {
    /// Returns resources of a search in the order of `_sort`, up to a limit. The cursor
    /// [`ResourcePage::next`] of a page continues the search. Returns `None` if the store has no entries in
    /// this order, another way to read the search costs less, or the cursor is that of another way.
    ///
    /// # Errors
    /// A store error, or the end of the budget of the request.
    pub async fn search_by_index(
        &self,
        kind: &'static str,
        filter: Option<&TypeFilter>,
        keys: &[SortKey],
        from: Option<&str>,
        limit: impl Into<SearchLimit>,
    ) -> Result<Option<ResourcePage>, ResourceError> {
        let store = self.resources().store();
        let (Some(order), Some(key)) = (EntryOrder::of(kind, keys), keys.first()) else { return Ok(None) };
        let cursor = match from {
            Some(text) => OrderCursor::read(text),
            None if self.is_limited(kind, filter).await? || !order.is_complete(store).await? => None,
            None => Some(OrderCursor { at: store.last_seq().await?, position: OrderPosition::Place(None) }),
        };
        let Some(OrderCursor { at, position }) = cursor else { return Ok(None) };
        let page = FillingPage::new(filter, limit.into());
        let after = match position {
            OrderPosition::Rest(from) => {
                return self.read_rest(kind, page, key, Some(&from), at).await.map(Some);
            }
            OrderPosition::Place(after) => after,
        };
        let candidates = Candidates::common(store, &self.all_clauses(filter), COLLECTED).await?;
        if from.is_none() && candidates.as_ref().is_some_and(|ids| ids.len() <= SOME) {
            return Ok(None);
        }
        let ordered = OrderedSearch { order, key, at, wanted: candidates };
        self.read_ordered(ordered, page, after).await.map(Some)
    }

    async fn read_ordered(
        &self,
        search: OrderedSearch<'_>,
        mut page: FillingPage<'_>,
        mut after: Option<OrderPlace>,
    ) -> Result<ResourcePage, ResourceError> {
        let OrderedSearch { order, key, at, wanted } = search;
        let store = self.resources().store();
        let mut count = page.missing().saturating_add(1).clamp(FEWEST_READ, MOST_READ);
        let mut passed = 0;
        loop {
            cpu_budget::check()?;
            let places = order.places(store, after.as_ref(), count).await?;
            let Some(last) = places.last().cloned() else { break };
            let all = places.len();
            let places: Vec<OrderPlace> = match &wanted {
                Some(candidate_ids) => places
                    .into_iter()
                    .filter(|place| candidate_ids.binary_search(&place.id).is_ok())
                    .collect(),
                None => places,
            };
            passed += all - places.len();
            let mut rest = &places[..];
            while !rest.is_empty() {
                let ids = rest.iter().map(|place| place.id.clone()).collect();
                let versions = store.read_many(order.kind, ids, at, READ_BYTES).await?;
                let (read, unread) = rest.split_at(versions.len());
                for (place, version) in read.iter().zip(versions) {
                    let is_here = |body: &bytes::Bytes| order.is_at(key, place, body);
                    match version.filter(|version| version.body.as_ref().is_some_and(is_here)) {
                        Some(version) => {
                            let is_visible = self.contains_version(&version).await?;
                            // A page that is full has a resource, and so a place before this one.
                            if !page.examine(version, is_visible)?
                                && let Some(before) = &after
                            {
                                return Ok(page.end_at(OrderCursor::after(at, before)));
                            }
                        }
                        None => page.pass(),
                    }
                    after = Some(place.clone());
                }
                rest = unread;
            }
            let most = if page.is_empty() { LOOKED_AT_FOR_ONE } else { LOOKED_AT };
            if page.looked_at + passed / ENTRIES_PER_RESOURCE >= most {
                return Ok(page.end_at(OrderCursor::after(at, &last)));
            }
            after = Some(last);
            count = (2 * count).min(MOST_READ);
        }
        match order.source {
            EntrySource::Ids => Ok(page.end_last()),
            EntrySource::Dates(_) => self.read_rest(order.kind, page, key, None, at).await,
        }
    }

    /// Reads the resources without a value of a key, which come last.
    async fn read_rest(
        &self,
        kind: &'static str,
        page: FillingPage<'_>,
        key: &SortKey,
        from: Option<&str>,
        at: Seq,
    ) -> Result<ResourcePage, ResourceError> {
        let has_none = |body: &[u8]| !key.has_value(body);
        let page = self.search_page(kind, page.only(&has_none), from, at).await?;
        Ok(ResourcePage { next: page.next.map(|next| format!("{at}~{REST}~{next}")), ..page })
    }
}

/// A search in the order of entries.
struct OrderedSearch<'a> {
    order: EntryOrder,
    key: &'a SortKey,
    at: Seq,
    /// The ids that may match, sorted, if they are few enough to be collected.
    wanted: Option<Vec<String>>,
}
