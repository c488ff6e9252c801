//! Code systems whose codes follow a grammar instead of a list: language tags (BCP 47), media types (BCP 13)
//! and units (UCUM).

pub(crate) mod language_tags;
mod media_types;
mod parsed_code;
pub(crate) mod units;

pub(crate) use self::parsed_code::{ParsedCode, table_rows};
use crate::model::known_systems::{BCP_13, BCP_47, UCUM};

/// Maximum length of a code, in bytes.
const LONGEST: usize = 512;

/// A code system whose codes follow a grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CodeGrammar {
    Languages,
    MediaTypes,
    Units,
}

impl CodeGrammar {
    /// The grammar of a code system.
    pub(crate) fn for_system(url: &str) -> Option<Self> {
        match url {
            BCP_47 => Some(Self::Languages),
            BCP_13 => Some(Self::MediaTypes),
            UCUM => Some(Self::Units),
            _ => None,
        }
    }

    /// Parses a code. The error is the reason why the code is invalid.
    pub(crate) fn parse_code(self, code: &str) -> Result<ParsedCode, String> {
        if code.len() > LONGEST {
            return Err(format!("it is longer than {LONGEST} bytes"));
        }
        match self {
            Self::Languages => language_tags::parse_language_tag(code),
            Self::MediaTypes => media_types::parse_media_type(code),
            Self::Units => units::parse_unit(code),
        }
    }
}

/// Returns why the grammar of a system rejects a code.
pub(crate) fn rejection_reason(url: &str, code: &str) -> Option<String> {
    CodeGrammar::for_system(url)?.parse_code(code).err()
}

/// Says where a code of a system does not follow its grammar, although it is accepted.
pub(crate) fn remark(url: &str, code: &str) -> Option<String> {
    if url == UCUM { units::remark(code) } else { None }
}

/// The value that a filter of a value set compares with, if it is not the literal one. UCUM's `canonical`
/// accepts any expression that is comparable to the unit (FHIR R4, Using UCUM with FHIR).
///
/// # Errors
/// A message if the value is not valid.
pub(crate) fn comparison_value(url: &str, property: &str, value: &str) -> Result<Option<String>, String> {
    match (url, property) {
        (UCUM, units::CANONICAL) => units::canonical(value).map(Some),
        _ => Ok(None),
    }
}
