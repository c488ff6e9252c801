//! A property whose value is a Coding, and its form among the texts of the index.

use super::description_facts::SEPARATOR;

/// A Coding; an empty text is an absent member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CodingProperty<'a> {
    pub(crate) code: &'a str,
    pub(crate) system: &'a str,
    pub(crate) display: &'a str,
}

impl<'a> CodingProperty<'a> {
    /// The text that is stored. A Coding without system and display is stored as its code.
    pub(super) fn to_stored(self) -> String {
        let Self { code, system, display } = self;
        match (system, display) {
            ("", "") => code.to_owned(),
            _ => format!("{code}{SEPARATOR}{system}{SEPARATOR}{display}"),
        }
    }

    /// Reads a stored text; `None` if it is not a Coding.
    pub(crate) fn from_stored(text: &'a str) -> Option<Self> {
        let (code, rest) = text.split_once(SEPARATOR)?;
        let (system, display) = rest.split_once(SEPARATOR)?;
        Some(Self { code, system, display })
    }
}
