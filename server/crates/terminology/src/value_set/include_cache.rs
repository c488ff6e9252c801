//! A cache of the concepts that pass the filters of an include, filled when the include is tested often.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwapOption;

use super::filter::ValueSetFilter;
use crate::code_system::concept_set::ConceptSet;
use crate::code_system::{CodeSystem, LocatedConcept};
use crate::model::{Budget, Unprocessable};

/// The cache is filled once the number of tests exceeds the number of concepts divided by this constant.
/// Computing the set then costs a few times as much as all tests before it, and each later test reads one
/// bit.
const CONCEPTS_PER_TEST: usize = 4;

/// The cache of one include, for the code system of the last test.
#[derive(Debug, Default)]
pub(crate) struct IncludeCache {
    tests_so_far: AtomicUsize,
    cached: ArcSwapOption<CachedSet>,
}

impl IncludeCache {
    /// The size in memory, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.cached.load().as_ref().map_or(0, |cached| cached.bits.words() * 8)
    }
}

#[derive(Debug)]
struct CachedSet {
    /// Instance number of the code system.
    instance: u32,
    bits: ConceptSet,
}

impl IncludeCache {
    /// Returns whether a concept passes all filters.
    ///
    /// # Errors
    /// [`Unprocessable`] if a filter does not fit the code system.
    pub(crate) fn admits(
        &self,
        filters: &[ValueSetFilter],
        system: &CodeSystem,
        concept: LocatedConcept,
        budget: &Budget<'_>,
    ) -> Result<bool, Unprocessable> {
        if filters.is_empty() {
            return Ok(true);
        }
        if filters.iter().any(|filter| filter.is_certainly_rejected(system, concept)) {
            return Ok(false);
        }
        let concept_number = concept.at;
        if system.is_excerpt() {
            // The cache is for the whole code system, which answers most tests.
            return passes_all(filters, system, concept, budget);
        }
        if let Some(cached) = &*self.cached.load()
            && cached.instance == system.instance()
        {
            return Ok(cached.bits.has(concept_number));
        }
        // Concurrent tests may be missed. An exact counter would make the threads wait for one another.
        let tests_so_far = self.tests_so_far.load(Ordering::Relaxed) + 1;
        self.tests_so_far.store(tests_so_far, Ordering::Relaxed);
        if tests_so_far > system.len() / CONCEPTS_PER_TEST {
            // If computing the set needs too much of the budget, or a filter does not fit, the test continues
            // without it. With an inline budget the request ends here; it is repeated with a full budget,
            // which then computes the set.
            let concepts_result = budget.with_half(|budget| passing_concepts(filters, system, budget));
            if !matches!(&concepts_result, Err(Unprocessable::Exhausted(_))) {
                self.tests_so_far.store(0, Ordering::Relaxed);
            }
            match concepts_result {
                Ok(Some(bits)) => {
                    let is_in = bits.has(concept_number);
                    self.cached.store(Some(Arc::new(CachedSet { instance: system.instance(), bits })));
                    return Ok(is_in);
                }
                Err(Unprocessable::Exhausted(exhausted)) => return Err(exhausted.into()),
                Ok(None) | Err(_) => {}
            }
        }
        passes_all(filters, system, concept, budget)
    }
}

/// Returns whether a concept passes each of these filters.
fn passes_all(
    filters: &[ValueSetFilter],
    system: &CodeSystem,
    concept: LocatedConcept,
    budget: &Budget<'_>,
) -> Result<bool, Unprocessable> {
    for filter in filters {
        if !filter.admits(system, concept, budget)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// All concepts that pass the filters.
///
/// # Errors
/// [`Unprocessable`] if a filter does not fit the code system.
pub(crate) fn passing_concepts(
    filters: &[ValueSetFilter],
    system: &CodeSystem,
    budget: &Budget<'_>,
) -> Result<ConceptSet, Unprocessable> {
    budget.set_activity("evaluating the filters of a value set");
    let all = ConceptSet::full(system.len());
    let before = budget.memory();
    budget.spend_words(all.words(), true)?;
    let among = |among: ConceptSet, filter: &ValueSetFilter| {
        budget.spend_words(among.words(), false)?;
        filter.members(system, among, budget)
    };
    let mut bits = filters.iter().try_fold(all, among)?;
    bits.trim();
    // The sets of the single filters were dropped. A value set with many includes holds one small set for
    // each.
    budget.restore_memory(before);
    budget.spend_words(bits.words(), true)?;
    Ok(bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::resource_json;
    use crate::model::resource_json::ResourceHeader;

    /// A code system of `count` concepts, of which `below` are in one tree under `c0`.
    fn system(below: u32, count: u32) -> CodeSystem {
        let alone: Vec<_> = (below..count).map(|n| serde_json::json!({ "code": format!("c{n}") })).collect();
        let under: Vec<_> = (1..below).map(|n| serde_json::json!({ "code": format!("c{n}") })).collect();
        let mut concept = vec![serde_json::json!({ "code": "c0", "concept": under })];
        concept.extend(alone);
        let json =
            serde_json::json!({ "resourceType": "CodeSystem", "content": "complete", "concept": concept });
        let header: ResourceHeader = serde_json::from_value(json.clone()).unwrap();
        CodeSystem::compile(&header, json.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn the_cache_agrees_with_the_filters_for_each_code_system() {
        let json =
            resource_json::FilterJson { property: "concept".into(), op: "is-a".into(), value: "c0".into() };
        let filters = [ValueSetFilter::compile(&json, "", String::new()).unwrap()];
        let cache = IncludeCache::default();
        let systems = [system(20, 40), system(30, 40)];
        for round in 0..3 {
            for system in &systems {
                for concept_number in 0..system.len() as u32 {
                    let budget = &Budget::default();
                    let expected = filters[0]
                        .admits(system, system.hierarchy().concept_at(concept_number), budget)
                        .unwrap();
                    let concept = system.locate(system.code(concept_number)).unwrap();
                    assert_eq!(
                        cache.admits(&filters, system, concept, budget).unwrap(),
                        expected,
                        "{round}: {concept_number}"
                    );
                }
                assert!(
                    cache.cached.load().as_ref().is_some_and(|cached| cached.instance == system.instance())
                );
            }
        }
    }
}
