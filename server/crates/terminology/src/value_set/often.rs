//! What the filters of an include let through, as one bit for each concept, from the time on at which the include
//! has been asked often.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwapOption;

use super::bits::Bits;
use super::filter::Filter;
use crate::code_system::{CodeSystem, Concept};
use crate::{Budget, Unprocessable};

/// An include is asked often once it was asked for this part of the concepts that its system has: then making the
/// bits costs a few times what the questions have cost before, and each later one reads a bit.
const OFTEN: usize = 4;

/// The memory of one include, for the code system that was asked last.
#[derive(Debug, Default)]
pub(crate) struct Often {
    asked: AtomicUsize,
    known: ArcSwapOption<Known>,
}

impl Often {
    /// Bytes that it takes in memory.
    pub(crate) fn weight(&self) -> usize {
        self.known.load().as_ref().map_or(0, |known| known.bits.words() * 8)
    }
}

#[derive(Debug)]
struct Known {
    /// Instance of the code system.
    instance: u32,
    bits: Bits,
}

impl Often {
    /// Do all filters let the concept through?
    ///
    /// # Errors
    /// When one does not fit the code system.
    pub(crate) fn admits(
        &self,
        filters: &[Filter],
        system: &CodeSystem,
        concept: Concept,
        budget: &Budget<'_>,
    ) -> Result<bool, Unprocessable> {
        if filters.is_empty() {
            return Ok(true);
        }
        if filters.iter().any(|filter| filter.is_out_of_question(system, concept)) {
            return Ok(false);
        }
        let at = concept.at;
        if let Some(known) = &*self.known.load()
            && known.instance == system.instance()
        {
            return Ok(known.bits.has(at));
        }
        // Some may be lost where several ask at once; counting them all would hold everybody up.
        let asked = self.asked.load(Ordering::Relaxed) + 1;
        self.asked.store(asked, Ordering::Relaxed);
        if asked > system.len() / OFTEN {
            // If the bits take too much of the budget, or a filter does not fit, the question itself goes on below. With
            // an inline budget it ends here and is asked again, and makes the bits then.
            let made = budget.half(|budget| members(filters, system, budget));
            if !matches!(&made, Err(Unprocessable::Exhausted(_))) {
                self.asked.store(0, Ordering::Relaxed);
            }
            match made {
                Ok(Some(bits)) => {
                    let is_in = bits.has(at);
                    self.known.store(Some(Arc::new(Known { instance: system.instance(), bits })));
                    return Ok(is_in);
                }
                Err(Unprocessable::Exhausted(exhausted)) => return Err(exhausted.into()),
                Ok(None) | Err(_) => {}
            }
        }
        for filter in filters {
            if !filter.admits(system, concept, budget)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// All that the filters let through.
///
/// # Errors
/// When one does not fit the code system.
pub(crate) fn members(
    filters: &[Filter],
    system: &CodeSystem,
    budget: &Budget<'_>,
) -> Result<Bits, Unprocessable> {
    budget.during("evaluating the filters of a value set");
    let all = Bits::full(system.len());
    budget.words(all.words(), true)?;
    let among = |among: Bits, filter: &Filter| {
        budget.words(among.words(), false)?;
        filter.members(system, among, budget)
    };
    let mut bits = filters.iter().try_fold(all, among)?;
    bits.trim();
    Ok(bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{self, Header};

    /// Concepts in a chain; `below` hang from `c0`, the others stand alone.
    fn system(below: u32, count: u32) -> CodeSystem {
        let alone: Vec<_> = (below..count).map(|n| serde_json::json!({ "code": format!("c{n}") })).collect();
        let under: Vec<_> = (1..below).map(|n| serde_json::json!({ "code": format!("c{n}") })).collect();
        let mut concept = vec![serde_json::json!({ "code": "c0", "concept": under })];
        concept.extend(alone);
        let json =
            serde_json::json!({ "resourceType": "CodeSystem", "content": "complete", "concept": concept });
        let header: Header = serde_json::from_value(json.clone()).unwrap();
        CodeSystem::compile(&header, json.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn bits_say_what_the_filters_say_for_each_system_its_own() {
        let written = wire::Filter { property: "concept".into(), op: "is-a".into(), value: "c0".into() };
        let filters = [Filter::compile(&written, "", String::new()).unwrap()];
        let often = Often::default();
        let systems = [system(20, 40), system(30, 40)];
        for round in 0..3 {
            for system in &systems {
                for at in 0..system.len() as u32 {
                    let budget = &Budget::default();
                    let expected = filters[0].admits(system, system.hierarchy().concept(at), budget).unwrap();
                    let concept = system.locate(system.code(at)).unwrap();
                    assert_eq!(
                        often.admits(&filters, system, concept, budget).unwrap(),
                        expected,
                        "{round}: {at}"
                    );
                }
                assert!(often.known.load().as_ref().is_some_and(|known| known.instance == system.instance()));
            }
        }
    }
}
