//! A text of a concept: its display or one of its designations, with language and purpose.

use super::known_systems::{SNOMED_CT, SNOMED_CT_DEFINITION, SNOMED_CT_NAME};

/// A text of a concept, with its language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConceptText<'a> {
    pub(crate) text: &'a str,
    pub(crate) language: Option<&'a str>,
    /// Standards status, if the text is no longer correct.
    pub(crate) retired: Option<&'a str>,
    pub(crate) kind: TextKind,
    /// Language reference sets of SNOMED CT that contain the text; see [`DescriptionFacts::dialects`].
    ///
    /// [`DescriptionFacts::dialects`]: crate::indexing::DescriptionFacts::dialects
    pub(crate) dialects: &'a str,
    /// Preference among the texts of a language by these reference sets, of which the lowest is best.
    pub(crate) preference: u8,
}

impl<'a> ConceptText<'a> {
    /// A current display without a special purpose.
    pub(crate) fn own(text: &'a str, language: Option<&'a str>) -> Self {
        Self { text, language, retired: None, kind: TextKind::Display, dialects: "", preference: 0 }
    }
}

/// Purpose of a text. The order is the order of preference for the display.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TextKind {
    Display,
    /// A synonym or similar: accepted as a display, but not proposed.
    Other,
    /// The fully specified name of SNOMED CT, which is unambiguous but not what people write.
    FullySpecifiedName,
    /// The definition of the concept, which is not a name.
    Definition,
}

impl TextKind {
    /// The purpose that the `use` of a designation states.
    pub(crate) fn from_use(system: Option<&str>, code: Option<&str>) -> Self {
        match (system.unwrap_or_default(), code.unwrap_or_default()) {
            ("http://terminology.hl7.org/CodeSystem/designation-usage", "display")
            | ("http://terminology.hl7.org/CodeSystem/hl7TermMaintInfra", "preferredForLanguage")
            | (SNOMED_CT, "900000000000548007") => Self::Display,
            ("http://terminology.hl7.org/CodeSystem/designation-usage", "definition")
            | (SNOMED_CT, SNOMED_CT_DEFINITION) => Self::Definition,
            (SNOMED_CT, SNOMED_CT_NAME) => Self::FullySpecifiedName,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::ConceptText;

    /// One English display and two German ones, of which the second is withdrawn.
    pub(crate) fn cold_displays() -> Vec<ConceptText<'static>> {
        let display = |text, language, retired| ConceptText { retired, ..ConceptText::own(text, language) };
        vec![
            display("Cold", Some("en"), None),
            display("Schnupfen", Some("de"), None),
            display("Katarrh", Some("de"), Some("withdrawn")),
        ]
    }
}
