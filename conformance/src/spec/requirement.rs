//! Requirements: statements that cases test.

use serde::{Deserialize, Serialize};

/// Level of a requirement (RFC 2119).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "UPPERCASE")]
pub enum Level {
    /// The requirement has no exceptions.
    Must,
    /// The requirement may be ignored for good reasons.
    Should,
    /// The behaviour is optional.
    May,
}

impl Level {
    /// The keyword of RFC 2119.
    pub fn keyword(self) -> &'static str {
        match self {
            Self::Must => "MUST",
            Self::Should => "SHOULD",
            Self::May => "MAY",
        }
    }
}

/// The part of a server to which a requirement applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BoundActor {
    /// Sign-in, tokens, claims.
    AuthorizationServer,
    /// Validation, subsumption, lookup and expansion.
    TerminologyServer,
    /// Export of Bulk Data.
    BulkServer,
    /// The rest of the FHIR interface.
    FhirServer,
    /// All parts of a server.
    Server,
}

impl BoundActor {
    /// The name in words, with its article.
    pub fn name(self) -> &'static str {
        match self {
            Self::AuthorizationServer => "an authorization server",
            Self::TerminologyServer => "a terminology server",
            Self::BulkServer => "a bulk server",
            Self::FhirServer => "a FHIR server",
            Self::Server => "a server",
        }
    }
}

/// A statement of a standard, or one of our own rules (a house rule).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// Id, which consists of specification, section and slug and never changes.
    pub id: String,
    /// Level of the requirement (RFC 2119).
    pub level: Level,
    /// The part of a server that must meet the requirement.
    pub actor: BoundActor,
    /// URL of the clause in a standard that states the requirement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standard: Option<String>,
    /// File and anchor in the documents of the project that state the requirement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub house: Option<String>,
    /// Summary of the statement.
    pub gist: String,
}

impl Requirement {
    /// The kind of the source: `standard` or `house`.
    pub fn kind(&self) -> &'static str {
        if self.standard.is_some() { "standard" } else { "house" }
    }

    /// The specification, which is the first part of the id.
    pub fn specification(&self) -> &str {
        self.id.split('/').next().unwrap_or_default()
    }

    /// The source of the statement: a URL, or a file and an anchor.
    pub fn source(&self) -> &str {
        self.standard.as_deref().or(self.house.as_deref()).unwrap_or_default()
    }
}
