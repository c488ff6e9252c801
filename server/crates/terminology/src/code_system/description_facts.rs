//! The facts of a description of SNOMED CT.

/// Separator of the parts of an interned text.
pub(super) const SEPARATOR: char = '\u{1f}';

/// Data of a description, as a release of SNOMED CT states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptionFacts<'a> {
    /// Id of the description.
    pub id: u64,
    /// Module of the description.
    pub module: &'a str,
    /// Date of its current state, as `YYYYMMDD`.
    pub effective_time: &'a str,
    /// Language reference sets that contain it, separated by spaces: `ID+` if it is preferred there, `ID-` if
    /// it is acceptable.
    pub dialects: &'a str,
}
