//! Status, properties and other attributes of concepts.

/// Number that means "none".
pub(super) const NONE: u32 = u32::MAX;

/// Bit that distinguishes the number of a text from that of a concept.
pub(super) const LITERAL: u32 = 1 << 31;

pub(crate) const INACTIVE: u8 = 1;

/// Flag of an abstract concept, which groups other concepts and must not be used itself.
pub(crate) const ABSTRACT: u8 = 2;

/// Flag of a deprecated concept that is still active.
pub(crate) const DEPRECATED: u8 = 4;

/// A defining relationship of a concept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConceptAttribute<'a> {
    /// Relationships with the same group number belong together; in group 0 each one is independent.
    pub(crate) group: u32,
    pub(crate) kind: u32,
    pub(crate) value: AttributeValue<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttributeValue<'a> {
    Concept(u32),
    /// As published: `#5`, `"text"`.
    Literal(&'a str),
}
