//! The condition under which a resource is created that must exist only once (see
//! [`crate::request::conditional`]).

use store::{IndexCondition, IndexRange, IndexTerm, Seq, VersionWrite};

use crate::search::filter::TypeFilter;
use crate::search::index::clauses::IndexClause;
use crate::search::index::terms;

/// The condition under which a search still has no match when a resource is created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SearchGuard {
    condition: IndexCondition,
    /// Term of the search, under which the created resource is indexed.
    term: IndexTerm,
}

impl SearchGuard {
    /// The condition for a search at a sequence number. `clause` is an indexed clause of the search with few
    /// entries, if there is one.
    pub fn new(search: &TypeFilter, clause: Option<&IndexClause>, since: Seq) -> Self {
        let term = terms::of_search(&search.text);
        let mut ranges = vec![IndexRange::Term(term.clone())];
        ranges.extend(clause.into_iter().flat_map(|clause| clause.ranges.iter().cloned()));
        Self { condition: IndexCondition { ranges, since }, term }
    }

    /// Adds the condition to the write that creates the resource.
    pub fn apply(self, mut write: VersionWrite) -> VersionWrite {
        write.terms.push(self.term);
        write.unless_indexed(Some(self.condition))
    }
}
