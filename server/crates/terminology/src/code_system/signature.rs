//! What is above a concept, in 64 bits. A concept has the bits of all that is above it, and one of its own while these
//! are few; so where another one has a bit that it has not, it cannot be below that one, which is seen without reading
//! any more of the hierarchy.

use bytemuck::{Pod, Zeroable};

/// A concept adds a bit of its own to those of its parents while these are less than so many: with too many, everything
/// would seem to be below everything.
const MOST_INHERITED: u32 = 6;

/// The bits of one concept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub(crate) struct Signature(u64);

impl Signature {
    /// Nothing is known of what is above: anything may be below it.
    pub(crate) const NOTHING: Self = Self(0);

    /// May be below anything.
    pub(crate) const ANYTHING: Self = Self(u64::MAX);

    /// The signature of a concept with these parents.
    pub(crate) fn below(parents: impl Iterator<Item = Self>, at: u32) -> Self {
        let inherited = parents.fold(0_u64, |bits, parent| bits | parent.0);
        let own = 1 << (at.wrapping_mul(0x9e37_79b9) >> 26);
        Self(if inherited.count_ones() < MOST_INHERITED { inherited | own } else { inherited })
    }

    /// The signature of these halves.
    pub(crate) fn of([high, low]: [u32; 2]) -> Self {
        Self(u64::from(high) << 32 | u64::from(low))
    }

    /// High and low half.
    pub(crate) fn halves(self) -> [u32; 2] {
        [(self.0 >> 32) as u32, self.0 as u32]
    }

    /// Could a concept with this signature be the one with the other, or be below it?
    pub(crate) fn may_be_below(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }
}
