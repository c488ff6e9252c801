//! Requirements: the statements that cases test.

use serde::Deserialize;

/// How strictly a requirement binds (RFC 2119).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Level {
    /// Holds without exception.
    Must,
    /// Holds unless there is a good reason.
    Should,
    /// Is allowed.
    May,
}

impl Level {
    /// Returns the keyword of RFC 2119.
    pub fn keyword(self) -> &'static str {
        match self {
            Self::Must => "MUST",
            Self::Should => "SHOULD",
            Self::May => "MAY",
        }
    }
}

/// The part of a server that a requirement binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BoundActor {
    /// Sign-in, tokens, claims.
    AuthorizationServer,
    /// Validation, subsumption, lookup and expansion.
    TerminologyServer,
    /// Bulk export.
    BulkServer,
    /// The rest of the FHIR interface.
    FhirServer,
    /// All of them.
    Server,
}

/// A statement of a standard, or one of our own rules (a house rule).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// Specification, section and slug. An id never changes.
    pub id: String,
    /// How strictly it binds.
    pub level: Level,
    /// The part of a server that must meet the requirement.
    pub actor: BoundActor,
    /// Address of the clause of the standard that states it.
    #[serde(default)]
    pub standard: Option<String>,
    /// Place in the project's documents that states it: file and anchor.
    #[serde(default)]
    pub house: Option<String>,
    /// The statement in our words.
    pub gist: String,
}

impl Requirement {
    /// Returns the place of the statement: an address, or a file and an anchor.
    pub fn source(&self) -> &str {
        self.standard.as_deref().or(self.house.as_deref()).unwrap_or_default()
    }
}
