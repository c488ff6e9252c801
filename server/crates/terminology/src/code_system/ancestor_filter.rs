//! A Bloom filter of the ancestors of a concept, in 64 bits.
//!
//! The filter of a concept contains the bits of all its ancestors and, while these are few, one bit of its
//! own. If the filter of concept A has a bit that the filter of concept B lacks, B is not a descendant of A.
//! This test reads no other data of the hierarchy.

use bytemuck::{Pod, Zeroable};

/// A concept adds its own bit only while its parents have fewer bits than this. A filter with too many bits
/// would reject nothing.
const MOST_INHERITED: u32 = 6;

/// The bits of one concept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub(crate) struct AncestorFilter(u64);

impl AncestorFilter {
    /// A filter without bits, which accepts every concept as a descendant.
    pub(crate) const NOTHING: Self = Self(0);

    /// A filter with all bits: the concept may be a descendant of any concept.
    pub(crate) const ANYTHING: Self = Self(u64::MAX);

    /// The filter of a concept with these parents.
    pub(crate) fn for_concept(parents: impl Iterator<Item = Self>, concept: u32) -> Self {
        let inherited = parents.fold(0_u64, |bits, parent| bits | parent.0);
        let own = 1 << (concept.wrapping_mul(0x9e37_79b9) >> 26);
        Self(if inherited.count_ones() < MOST_INHERITED { inherited | own } else { inherited })
    }

    pub(crate) fn from_halves([high, low]: [u32; 2]) -> Self {
        Self(u64::from(high) << 32 | u64::from(low))
    }

    /// The high and the low half.
    pub(crate) fn to_halves(self) -> [u32; 2] {
        [(self.0 >> 32) as u32, self.0 as u32]
    }

    /// Returns whether a concept with this filter may be the concept with the other filter or one of its
    /// descendants.
    pub(crate) fn may_be_below(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }
}
