//! `_sort` (FHIR R4, search): the matches of a search ordered by values of search parameters, and their
//! number.
//!
//! A sorted search reads all matches before its first page, and keeps the keys and ids of those up to the end
//! of the page. Pages may reach the first [`MAX_SORTED`] matches of any number; the number of resources that
//! are examined is limited.

use std::cmp::Ordering;

use fhir::search_parameters::{self, SearchParameter, ValueComparison};
use serde_json::value::RawValue;
use store::{Seq, Versions as _};

use crate::body::json::values;
use crate::search::filter::TypeFilter;
use crate::search::filter::value::{dates, folded, quantity_value, reference_text, texts, tokens};
use crate::search::index::collect::{ms, only_short_date};
use crate::view::pages::{ResourcePage, SearchLimit};
use crate::write::service::stored;
use crate::{ChangeOrder, CompartmentView, ResourceError, StoredResource};

/// Number of matches that the pages of a sorted search can reach.
pub const MAX_SORTED: usize = 20_000;
/// Maximum number of keys of a sorted search.
const MAX_KEYS: usize = 8;
/// Number of matches that are read at a time.
const PAGE: usize = 500;
/// Maximum cost of a sorted result or a number of matches, about 200,000 examined resources. A full page
/// costs 1. A page with fewer matches may have examined 20,000 resources.
const MAX_COST: usize = 400;
const SPARSE_PAGE_COST: usize = 40;
/// Limit of the pages that are read to sort or count: only keys and ids are kept of them.
const EXAMINED: SearchLimit = SearchLimit { count: PAGE, bytes: 1 << 20 };

/// One key of `_sort`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortKey {
    pub(crate) parameter: SearchParameter,
    pub(crate) is_descending: bool,
}

/// A value by which resources are ordered. All values of a key have the same variant.
#[derive(Debug, Clone, PartialEq)]
enum SortValue {
    Text(String),
    Number(f64),
    /// Milliseconds since 1970.
    Time(i64),
}

impl SortValue {
    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::Number(a), Self::Number(b)) => a.total_cmp(b),
            (Self::Time(a), Self::Time(b)) => a.cmp(b),
            _ => Ordering::Equal,
        }
    }
}

impl SortKey {
    /// Parses the value of `_sort`: codes of search parameters, separated by commas; `-` reverses the order.
    ///
    /// # Errors
    /// Returns a text that names the part that is not supported.
    pub fn list(kind: &str, text: &str) -> Result<Vec<Self>, String> {
        let keys = text.split(',').map(|code| {
            let (code, is_descending) = code.strip_prefix('-').map_or((code, false), |code| (code, true));
            let parameter = search_parameters::find(kind, code).ok_or_else(|| {
                format!("{kind}?_sort: '{code}' is not a search parameter that is supported for {kind}")
            })?;
            Ok(Self { parameter, is_descending })
        });
        let keys: Vec<Self> = keys.collect::<Result<_, String>>()?;
        if keys.len() > MAX_KEYS {
            return Err(format!("{kind}?_sort: {} keys; at most {MAX_KEYS} are accepted", keys.len()));
        }
        Ok(keys)
    }

    /// The order of changes, if these keys ask for it.
    pub fn change_order(keys: &[Self]) -> Option<ChangeOrder> {
        match keys {
            [Self { parameter, is_descending }] if parameter.code == "_lastUpdated" => {
                Some(if *is_descending { ChangeOrder::NewestFirst } else { ChangeOrder::OldestFirst })
            }
            _ => None,
        }
    }

    /// The time by which a resource is ordered, in milliseconds, if this key orders dates. A date of at most
    /// a day counts by its start if it is the only one of the resource: so does the search index. Otherwise
    /// the start of the first date counts, or the end of the last one in descending order.
    pub(crate) fn time(&self, resource: &[u8]) -> Option<i64> {
        if self.parameter.comparison != ValueComparison::Date {
            return None;
        }
        let resource: &RawValue = serde_json::from_slice(resource).ok()?;
        let mut all = Vec::new();
        for place in &self.parameter.places {
            let mut values_there = Vec::new();
            values(resource, &place.path, &mut values_there);
            all.extend(values_there.into_iter().flat_map(|value| dates(place.data, value)));
        }
        only_short_date(&all).or_else(|| match self.is_descending {
            true => all.iter().map(|range| ms(range.to)).max(),
            false => all.iter().map(|range| ms(range.from)).min(),
        })
    }

    /// `true` if a resource has a value of this key.
    pub(crate) fn has_value(&self, resource: &[u8]) -> bool {
        self.value(resource).is_some()
    }

    /// The value by which a resource is ordered: the smallest of its values, or the greatest in descending
    /// order.
    fn value(&self, resource: &[u8]) -> Option<SortValue> {
        if self.parameter.comparison == ValueComparison::Date {
            return self.time(resource).map(SortValue::Time);
        }
        let resource: &RawValue = serde_json::from_slice(resource).ok()?;
        let mut all = Vec::new();
        for place in &self.parameter.places {
            let mut values_there = Vec::new();
            values(resource, &place.path, &mut values_there);
            for value in values_there {
                match self.parameter.comparison {
                    ValueComparison::Date => {}
                    ValueComparison::Number => all.extend(value.get().parse().ok().map(SortValue::Number)),
                    ValueComparison::Quantity => all.extend(quantity_value(value).map(SortValue::Number)),
                    ValueComparison::String => {
                        all.extend(texts(place.data, value).map(|text| SortValue::Text(folded(&text))));
                    }
                    ValueComparison::Token => {
                        let codes = tokens(place, value).into_iter().filter_map(|token| token.code);
                        all.extend(codes.map(|code| SortValue::Text(code.to_string())));
                    }
                    ValueComparison::Reference | ValueComparison::Uri => {
                        all.extend(
                            reference_text(place.data, value).map(|text| SortValue::Text(text.to_string())),
                        );
                    }
                }
            }
        }
        if self.is_descending {
            all.into_iter().max_by(SortValue::compare)
        } else {
            all.into_iter().min_by(SortValue::compare)
        }
    }

    /// Compares the values of two resources. A resource without a value comes last.
    fn compare(&self, a: Option<&SortValue>, b: Option<&SortValue>) -> Ordering {
        match (a, b) {
            (Some(a), Some(b)) if self.is_descending => b.compare(a),
            (Some(a), Some(b)) => a.compare(b),
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
        }
    }
}

/// The text before the offset in the cursor of a sorted search.
const SORTED: &str = "sorted";

impl CompartmentView<'_> {
    /// Returns resources of a sorted search, up to a limit, and the number of all matches. Resources with
    /// equal values are ordered by id, in the direction of the first key; those without a value of it come
    /// last, ascending. The cursor [`ResourcePage::next`] of a page continues the search.
    ///
    /// # Errors
    /// Returns [`ResourceError::Page`] for a cursor that this server did not issue,
    /// [`ResourceError::TooManyMatches`], or a store error.
    pub async fn search_sorted(
        &self,
        kind: &'static str,
        filter: Option<&TypeFilter>,
        keys: &[SortKey],
        from: Option<&str>,
        limit: impl Into<SearchLimit>,
    ) -> Result<(ResourcePage, usize), ResourceError> {
        let (store, limit) = (self.resources().store(), limit.into());
        let (seq, offset) = match from {
            Some(cursor) => read_cursor(cursor).ok_or(ResourceError::Page)?,
            None => (store.last_seq().await?, 0),
        };
        if offset >= MAX_SORTED {
            return Err(ResourceError::PageTooDeep { kind: kind.to_owned(), most: MAX_SORTED });
        }
        let mut first = FirstMatches::new(keys, offset.saturating_add(limit.count).min(MAX_SORTED));
        let search = ExaminedSearch { kind, filter, at: seq, costly: "_sort" };
        self.each_match(search, |resource| first.add(resource)).await?;
        let count = first.count;
        let ids: Vec<String> = first.into_ids().into_iter().skip(offset).collect();
        let mut resources = Vec::with_capacity(ids.len());
        for version in store.read_many(kind, ids, seq, limit.bytes).await?.into_iter().flatten() {
            let id = version.key.id.clone();
            resources.push(stored(kind, &id, Some(version))?);
        }
        let end = offset + resources.len();
        let next = (end < count).then(|| format!("{seq}~{SORTED}~{end}"));
        Ok((ResourcePage { resources, next }, count))
    }

    /// The number of resources that match a search.
    ///
    /// # Errors
    /// Returns [`ResourceError::TooManyMatches`] if too many resources must be examined, or a store error.
    pub async fn count(
        &self,
        kind: &'static str,
        filter: Option<&TypeFilter>,
    ) -> Result<usize, ResourceError> {
        if filter.is_none() && self.is_unrestricted() {
            return Ok(self.resources().count(kind).await? as usize);
        }
        let mut count = 0;
        let seq = self.resources().store().last_seq().await?;
        let search = ExaminedSearch { kind, filter, at: seq, costly: "_total or _summary=count" };
        self.each_match(search, |_| count += 1).await?;
        Ok(count)
    }

    /// Calls `take` for each resource that matches a search at a sequence number.
    async fn each_match(
        &self,
        search: ExaminedSearch<'_>,
        mut take: impl FnMut(StoredResource),
    ) -> Result<(), ResourceError> {
        let ExaminedSearch { kind, filter, at, costly } = search;
        let mut from = None;
        let mut cost = 0;
        loop {
            let page = self.search_at(kind, filter, from.as_deref(), at, EXAMINED).await?;
            cost += if page.resources.len() < PAGE { SPARSE_PAGE_COST } else { 1 };
            page.resources.into_iter().for_each(&mut take);
            from = page.next;
            if from.is_none() {
                return Ok(());
            }
            if cost > MAX_COST {
                return Err(ResourceError::TooManyMatches { kind: kind.to_owned(), costly });
            }
        }
    }
}

/// A search of which all matches are read.
struct ExaminedSearch<'a> {
    kind: &'static str,
    filter: Option<&'a TypeFilter>,
    at: Seq,
    /// The parameter for which all matches are read.
    costly: &'static str,
}

/// The first matches of a sorted search, and the number of all.
struct FirstMatches<'a> {
    keys: &'a [SortKey],
    most: usize,
    matches: Vec<(Vec<Option<SortValue>>, String)>,
    count: usize,
}

impl<'a> FirstMatches<'a> {
    fn new(keys: &'a [SortKey], most: usize) -> Self {
        Self { keys, most, matches: Vec::new(), count: 0 }
    }

    fn add(&mut self, resource: StoredResource) {
        self.count += 1;
        let values = self.keys.iter().map(|key| key.value(&resource.bytes)).collect();
        self.matches.push((values, resource.id));
        // Twice as many as needed are sorted at a time, so that each match costs the same whatever their
        // number is.
        if self.matches.len() >= 2 * self.most.max(PAGE) {
            self.keep_first();
        }
    }

    fn keep_first(&mut self) {
        let keys = self.keys;
        let is_descending = keys.first().is_some_and(|key| key.is_descending);
        self.matches.sort_by(|(a, a_id), (b, b_id)| {
            let by_key = |(index, key): (usize, &SortKey)| key.compare(a[index].as_ref(), b[index].as_ref());
            let first = keys.iter().enumerate().map(by_key).find(|order| order.is_ne());
            let has_value = a.first().is_some_and(Option::is_some);
            first.unwrap_or(Ordering::Equal).then_with(|| match is_descending && has_value {
                true => b_id.cmp(a_id),
                false => a_id.cmp(b_id),
            })
        });
        self.matches.truncate(self.most);
    }

    fn into_ids(mut self) -> Vec<String> {
        self.keep_first();
        self.matches.into_iter().map(|(_, id)| id).collect()
    }
}

/// Parses the cursor of a sorted search: the sequence number, and the number of resources before the page.
fn read_cursor(cursor: &str) -> Option<(Seq, usize)> {
    let mut parts = cursor.splitn(3, '~');
    let (seq, order, offset) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?.parse().ok()?);
    (order == SORTED).then_some((Seq(seq), offset))
}
