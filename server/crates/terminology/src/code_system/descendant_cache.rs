//! The descendants of concepts that were asked for, as sets. Concepts with several parents are all over the
//! memory, so that collecting many of them takes longer than any other part of an expansion, and the pages of
//! an expansion, and the searches in it, ask for the same ones.

use std::sync::{Arc, OnceLock};

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::concept_set::ConceptSet;
use super::hierarchy::ConceptHierarchy;
use crate::model::Budget;
use crate::model::budget::BudgetExhausted;

/// Maximum memory of the sets of one code system, in bytes.
const MAX_BYTES: u64 = 16 << 20;
/// Memory of an entry beside its words, in bytes.
const ENTRY_BYTES: u64 = 128;
/// Expected number of entries, by which the cache divides its memory.
const ENTRIES: usize = 512;
/// Number of descendants from which their set is kept.
const MANY: usize = 256;

/// The cache of one code system.
#[derive(Debug, Default)]
pub(super) struct DescendantCache(OnceLock<Cache<u32, Arc<ConceptSet>, SetWeight>>);

#[derive(Debug, Clone)]
struct SetWeight;

impl Weighter<u32, Arc<ConceptSet>> for SetWeight {
    fn weight(&self, _: &u32, set: &Arc<ConceptSet>) -> u64 {
        8 * set.words() as u64 + ENTRY_BYTES
    }
}

impl DescendantCache {
    /// The approximate size in memory, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.0.get().map_or(0, |cache| cache.weight() as usize)
    }

    /// The descendants of a concept, without itself. The hierarchy must not have a cycle.
    ///
    /// # Errors
    /// [`BudgetExhausted`] if they are not known and the budget is spent.
    pub(super) fn descendants(
        &self,
        hierarchy: &ConceptHierarchy,
        of: u32,
        budget: &Budget<'_>,
    ) -> Result<Arc<ConceptSet>, BudgetExhausted> {
        if let Some(set) = self.0.get().and_then(|cache| cache.get(&of)) {
            budget.spend_words(set.words(), false)?;
            return Ok(set);
        }
        let mut below = ConceptSet::empty(hierarchy.len());
        budget.spend_words(below.words(), false)?;
        below.add_descendants(hierarchy, of, budget)?;
        below.trim();
        budget.spend_words(below.words(), true)?;
        let below = Arc::new(below);
        if below.count() >= MANY {
            let cache = self.0.get_or_init(|| Cache::with_weighter(ENTRIES, MAX_BYTES, SetWeight));
            cache.insert(of, Arc::clone(&below));
        }
        Ok(below)
    }
}
