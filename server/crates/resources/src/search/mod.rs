//! Searches of one type: the parameters, and their terms in the search index.

pub mod filter;
pub(crate) mod index;
pub(crate) mod type_counts;
