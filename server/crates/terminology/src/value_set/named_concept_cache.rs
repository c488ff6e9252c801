//! The cached position of the concept that a filter names.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::code_system::{AncestorFilter, CodeSystem};

/// A cache of the concept that the filter names in the code system of the last test: its interval, and the
/// halves of its ancestor filter. The high half of each value is the instance number of the code system, so
/// that the value is not used for another one. Instance numbers start at 1.
#[derive(Debug, Default)]
pub(super) struct NamedConceptCache([AtomicU64; 4]);

impl NamedConceptCache {
    /// The cached concept, if it belongs to this code system.
    pub(super) fn get(&self, system: &CodeSystem) -> Option<(Range<u32>, AncestorFilter)> {
        let part = |which: usize| {
            let packed = self.0[which].load(Ordering::Relaxed);
            (packed >> 32 == u64::from(system.instance())).then_some(packed as u32)
        };
        Some((part(0)?..part(1)?, AncestorFilter::from_halves([part(2)?, part(3)?])))
    }

    /// Stores the concept in a code system.
    pub(super) fn set(&self, system: &CodeSystem, interval: &Range<u32>, above: AncestorFilter) {
        let [high, low] = above.to_halves();
        for (place, part) in self.0.iter().zip([interval.start, interval.end, high, low]) {
            place.store(u64::from(system.instance()) << 32 | u64::from(part), Ordering::Relaxed);
        }
    }
}
