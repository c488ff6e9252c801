//! The ids of resources that may match a search, read from the search index in the order of their bytes.

use store::{IndexEntry, IndexLookup, IndexRange, IndexTerm, Store, StoreError, Versions};

use super::clauses::IndexClause;
use crate::search::filter::TypeFilter;

/// Numbers of candidates that are collected and sorted. A search first looks for a clause with few
/// candidates.
const FEW: usize = 64;
pub(crate) const SOME: usize = 1_000;
pub(crate) const MANY: usize = 20_000;
/// Maximum number of ranges in one lookup.
const RANGES: usize = 16;

#[derive(Debug)]
pub(crate) enum Candidates {
    /// All ids, sorted.
    Collected(Vec<String>),
    /// The ids under these terms, merged while they are read.
    Merged(Vec<IndexTerm>),
}

/// Result of collecting the ids of a clause.
enum CollectedIds {
    All(Vec<String>),
    /// There are more than the limit. `reached` is the id up to which all are known, if the clause consists
    /// of terms.
    More {
        reached: Option<String>,
    },
}

impl Candidates {
    /// The candidates of the first clause that has only few.
    pub async fn few(store: &Store, clauses: &[IndexClause]) -> Result<Option<Self>, StoreError> {
        Self::at_most(store, clauses, FEW).await
    }

    /// The candidates of the first clause that has not many.
    pub async fn some(store: &Store, clauses: &[IndexClause]) -> Result<Option<Self>, StoreError> {
        Self::at_most(store, clauses, SOME).await
    }

    /// The candidates that all clauses have in common, as far as their numbers are limited, or `None` if no
    /// clause limits the search well. A scan of the type then finds matches quickly.
    pub async fn best(store: &Store, clauses: &[IndexClause]) -> Result<Option<Self>, StoreError> {
        if let Some(candidates) = Self::some(store, clauses).await? {
            return Ok(Some(candidates));
        }
        let mut best: Option<(String, &IndexClause)> = None;
        let mut common: Option<Vec<String>> = None;
        for clause in clauses {
            match collect(store, clause, MANY).await? {
                CollectedIds::All(ids) => {
                    common = Some(match common {
                        Some(common) => intersection(common, &ids),
                        None => ids,
                    });
                }
                // The greater the last of equally many ids is, the fewer ids there are in all.
                CollectedIds::More { reached: Some(reached) }
                    if best.as_ref().is_none_or(|(key, _)| *key < reached) =>
                {
                    best = Some((reached, clause));
                }
                CollectedIds::More { .. } => {}
            }
        }
        if let Some(common) = common {
            return Ok(Some(Self::Collected(common)));
        }
        Ok(best.and_then(|(_, clause)| clause.terms().map(Self::Merged)))
    }

    /// The ids that the clauses with fewer than `limit` ids have in common, sorted, or `None` if there is no
    /// such clause.
    pub async fn common(
        store: &Store,
        clauses: &[IndexClause],
        limit: usize,
    ) -> Result<Option<Vec<String>>, StoreError> {
        let mut common: Option<Vec<String>> = None;
        for clause in clauses {
            if let CollectedIds::All(ids) = collect(store, clause, limit).await? {
                common = Some(match common {
                    Some(common) => intersection(common, &ids),
                    None => ids,
                });
            }
        }
        Ok(common)
    }

    async fn at_most(
        store: &Store,
        clauses: &[IndexClause],
        limit: usize,
    ) -> Result<Option<Self>, StoreError> {
        for clause in clauses {
            if let CollectedIds::All(ids) = collect(store, clause, limit).await? {
                return Ok(Some(Self::Collected(ids)));
            }
        }
        Ok(None)
    }

    /// Up to `count` ids after `after`, sorted, each once.
    pub async fn next(
        &self,
        store: &Store,
        after: Option<&str>,
        count: usize,
    ) -> Result<Vec<String>, StoreError> {
        match self {
            Self::Collected(ids) => {
                let start = after.map_or(0, |after| ids.partition_point(|id| id.as_str() <= after));
                Ok(ids[start..].iter().take(count).cloned().collect())
            }
            Self::Merged(terms) => {
                let (mut ids, reached) = first_ids(store, terms, after, count).await?;
                ids.retain(|id| reached.as_ref().is_none_or(|reached| id <= reached));
                ids.truncate(count);
                Ok(ids)
            }
        }
    }
}

impl IndexClause {
    /// The terms, or `None` if the clause contains a range of terms.
    fn terms(&self) -> Option<Vec<IndexTerm>> {
        let term = |range: &IndexRange| match range {
            IndexRange::Term(term) => Some(term.clone()),
            IndexRange::Between(..) => None,
        };
        self.ranges.iter().map(term).collect()
    }
}

impl TypeFilter {
    /// The ids of the resources that may match one of the searches at any sequence number, sorted, or `None`
    /// if the search index does not limit each search to `limit` ids, or if finding that out reads more than
    /// `entries` index entries. The ids that are read are subtracted from `entries`. All searches must have
    /// the same type.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the read fails.
    pub async fn candidates(
        searches: &[&Self],
        store: &Store,
        limit: usize,
        entries: &mut usize,
    ) -> Result<Option<Vec<String>>, StoreError> {
        let mut all: Vec<String> = Vec::new();
        'searches: for search in searches {
            if let Some(ids) = search.ids() {
                all.extend(ids.into_iter().filter(|id| fhir::is_id(id)).map(str::to_owned));
                continue;
            }
            for clause in &search.index_clauses() {
                let limit = limit.min(*entries);
                if limit == 0 {
                    return Ok(None);
                }
                let collected = collect(store, clause, limit).await?;
                if let CollectedIds::All(ids) = collected {
                    *entries -= ids.len();
                    all.extend(ids);
                    continue 'searches;
                }
                *entries -= limit;
            }
            return Ok(None);
        }
        all.sort_unstable();
        all.dedup();
        Ok(Some(all))
    }
}

/// A clause with few entries in the search index and its ids, or `None`.
pub(crate) async fn small_clause<'a>(
    store: &Store,
    clauses: &'a [IndexClause],
) -> Result<Option<(&'a IndexClause, Vec<String>)>, StoreError> {
    for clause in clauses {
        if let CollectedIds::All(ids) = collect(store, clause, SOME).await? {
            return Ok(Some((clause, ids)));
        }
    }
    Ok(None)
}

/// Collects the ids of a clause, unless there are `limit` or more.
async fn collect(store: &Store, clause: &IndexClause, limit: usize) -> Result<CollectedIds, StoreError> {
    let mut ids = Vec::new();
    for ranges in clause.ranges.chunks(RANGES) {
        let lookups = ranges.iter().map(|range| IndexLookup::first(range.clone(), limit)).collect();
        let read = store.index_entries(lookups).await?;
        let full = read.iter().filter(|entries| entries.len() == limit);
        let reached = clause.terms().map(|_| full.filter_map(last_id).min().unwrap_or_default());
        ids.extend(read.into_iter().flatten().map(|entry| entry.id));
        if ids.len() >= limit {
            return Ok(CollectedIds::More { reached });
        }
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(CollectedIds::All(ids))
}

/// The ids that are in both sorted lists.
fn intersection(mut ids: Vec<String>, others: &[String]) -> Vec<String> {
    ids.retain(|id| others.binary_search(id).is_ok());
    ids
}

fn last_id<T: AsRef<[IndexEntry]>>(entries: T) -> Option<String> {
    entries.as_ref().last().map(|entry| entry.id.clone())
}

/// The first `count` ids of each term after `after`, sorted, each once, and the id up to which they are
/// complete (`None` if they are complete).
async fn first_ids(
    store: &Store,
    terms: &[IndexTerm],
    after: Option<&str>,
    count: usize,
) -> Result<(Vec<String>, Option<String>), StoreError> {
    let (mut ids, mut reached) = (Vec::new(), None::<String>);
    for terms in terms.chunks(RANGES) {
        let lookup = |term: &IndexTerm| {
            let after = after.map(|id| IndexEntry { term: term.clone(), id: id.to_owned() });
            IndexLookup::first(IndexRange::Term(term.clone()), count).after(after)
        };
        for entries in store.index_entries(terms.iter().map(lookup).collect()).await? {
            if entries.len() == count
                && let Some(last) = last_id(&entries)
                && reached.as_ref().is_none_or(|reached| last < *reached)
            {
                reached = Some(last);
            }
            ids.extend(entries.into_iter().map(|entry| entry.id));
        }
        ids.sort_unstable();
        ids.dedup();
    }
    Ok((ids, reached))
}
