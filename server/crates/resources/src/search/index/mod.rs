//! The search index: the terms under which the store can find a resource, and the terms that a search looks
//! up.
//!
//! A resource that matches a search has at least one of the terms of each clause that is indexed. The reverse
//! does not hold: terms are hashes or prefixes, and the store keeps the terms of all versions (see
//! [`store::IndexTerm`]). A search therefore reads the candidates and applies its filter to each.
//!
//! | module | contents |
//! |---|---|
//! | `elements` | the elements of each type that are indexed, as a tree of member names |
//! | `terms` | the encoding of terms |
//! | `collect` | the terms of a resource |
//! | `clauses` | the terms of a search |
//! | `referrers` | the terms of resources that refer to one without a Patient |
//! | `candidates` | the ids of the resources that may match, read from the store |
//!
//! Indexed are tokens, references, URIs, dates and the beginnings of strings. Numbers, quantities, and the
//! modifiers `:not`, `:missing` and `:contains` are not.

pub(crate) mod candidates;
pub(crate) mod clauses;
pub(crate) mod collect;
pub(crate) mod elements;
pub(crate) mod referrers;
pub(crate) mod terms;

#[cfg(test)]
mod tests;
