//! Errors of the operations. A negative answer is not an error: it is a Parameters resource with
//! `result=false`. The server chooses the HTTP status, which is in brackets in the comment of each variant.

use fhir::{Issue, IssueCode, OperationOutcome};

use super::budget::{BudgetExhausted, ExhaustionCause};
use super::error_text;
use super::filter_fault::FilterFault;

/// Error of an operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TxError {
    /// A required parameter is missing (400).
    #[error("{what}")]
    Missing {
        /// The missing parameter, and how to send it.
        what: String,
    },
    /// `$validate-code` without a code in any of its forms (400).
    #[error("{}", error_text::NOTHING_TO_VALIDATE)]
    NothingToValidate {
        /// Whether the caller uses HL7's terminology ecosystem (issue code `invalid`) or the plain interface
        /// (`required`).
        ecosystem: bool,
    },
    /// A parameter cannot be used (400).
    #[error("parameter '{parameter}': {reason}")]
    Malformed {
        /// Name of the parameter.
        parameter: String,
        /// Reason why the parameter is invalid, and what to do.
        reason: String,
    },
    /// `displayLanguage` is not a list of languages (400).
    #[error("Invalid displayLanguage: '{0}'")]
    DisplayLanguage(String),
    /// No value set has this canonical URL, which is the parameter `url` or an import (400).
    #[error("{}", error_text::unknown_value_set(url))]
    UnknownValueSet {
        /// Canonical URL as in the request, with `|version` if there is one.
        url: String,
        /// Whether the caller uses HL7's terminology ecosystem (issue code `not-found`) or the plain
        /// interface (`invalid`).
        ecosystem: bool,
    },
    /// No concept map has this canonical URL (404).
    #[error("the concept map '{0}' is not known; store it, or send it as 'conceptMap' or 'tx-resource'")]
    UnknownConceptMap(String),
    /// No CodeSystem, ValueSet or ConceptMap has this id (404).
    #[error("{kind}/{id} is not known")]
    UnknownInstance {
        /// Resource type.
        kind: &'static str,
        /// Id from the path.
        id: String,
    },
    /// No code system has this canonical URL and version (404).
    #[error("{}", error_text::unknown_code_system(system, version.as_deref(), known))]
    UnknownCodeSystem {
        /// Canonical URL of the code system.
        system: String,
        /// Version in the request.
        version: Option<String>,
        /// Versions that are stored.
        known: Vec<String>,
    },
    /// No version of the code system is as old as the day in the request (404).
    #[error("CodeSystem '{system}' has no version of {day} or earlier; its stored versions are: {}", known.join(", "))]
    NotOnDay {
        /// Canonical URL of the code system.
        system: String,
        /// Day in the request.
        day: String,
        /// Versions that are stored.
        known: Vec<String>,
    },
    /// The code system does not have the code, which is an argument of the operation (404).
    #[error("{}", error_text::unreadable_code(code, system, version.as_deref(), reason.as_deref()))]
    UnknownCode {
        /// Parameter that contains the code.
        parameter: &'static str,
        /// Code in the request.
        code: String,
        /// Canonical URL of the code system.
        system: String,
        /// Version of the code system.
        version: Option<String>,
        /// Reason why an expression is not valid.
        reason: Option<String>,
    },
    /// The code system does not have the code whose concept is looked up (404).
    #[error("{}", error_text::unreadable_code(code, system, version.as_deref(), reason.as_deref()))]
    UnknownConcept {
        /// Code in the request.
        code: String,
        /// Canonical URL of the code system.
        system: String,
        /// Version of the code system.
        version: Option<String>,
        /// Reason why an expression is not valid.
        reason: Option<String>,
    },
    /// The request is well-formed, but the stored resources cannot answer it (422).
    #[error(transparent)]
    Unprocessable(#[from] Unprocessable),
}

/// Reason why the stored resources cannot answer a well-formed request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unprocessable {
    /// Value sets import one another in a cycle. The value is the cycle, with its first set at the end again.
    #[error("Cyclic reference detected when including {}", .0.join(" via "))]
    ImportCycle(Vec<String>),
    /// Imports of value sets are nested deeper than the limit.
    #[error("the imports of {value_set} are nested deeper than {limit} levels")]
    ImportsTooDeep {
        /// Canonical URL of the value set in the request.
        value_set: String,
        /// Maximum number of levels.
        limit: usize,
    },
    /// A filter has no value, or has an operator, property or value that cannot be evaluated.
    #[error(transparent)]
    Filter(#[from] Box<FilterFault>),
    /// A value set includes a code system that is not stored, so its codes cannot be listed.
    #[error("{}", error_text::unknown_code_system_in_set(system, version.as_deref(), known))]
    MissingCodeSystem {
        /// Canonical URL of the code system.
        system: String,
        /// Version that the value set needs.
        version: Option<String>,
        /// Versions that are stored.
        known: Vec<String>,
    },
    /// `check-system-version` excludes the version of the code system.
    #[error("{}", error_text::version_not_allowed(system, version, required))]
    VersionNotAllowed {
        /// Canonical URL of the code system.
        system: String,
        /// Version that the value set uses.
        version: String,
        /// Version that the caller requires.
        required: String,
    },
    /// The codes of the system follow a grammar, so they cannot be listed.
    #[error(
        "The code system {system} follows a grammar and has no list of codes, so the value set cannot be expanded"
    )]
    Endless {
        /// Canonical URL of the code system.
        system: String,
    },
    /// The expansion has more codes than one answer may contain.
    #[error("{}", error_text::too_costly(value_set, *limit))]
    TooCostly {
        /// Canonical URL of the value set.
        value_set: String,
        /// Maximum number of codes in an answer.
        limit: usize,
    },
    /// The budget of the request is spent.
    #[error(transparent)]
    Exhausted(#[from] BudgetExhausted),
    /// The value set has too many filters.
    #[error("the value set has {count} filters, more than {limit}; divide it into several value sets")]
    TooManyFilters {
        /// Number of filters.
        count: usize,
        /// Maximum number of filters.
        limit: usize,
    },
    /// The compiled regular expressions of the value set are too large.
    #[error(
        "the regular expressions of the value set take more than {limit_mib} MiB; use shorter repetitions, or [A-Za-z0-9_] \
         instead of \\w"
    )]
    PatternsTooLarge {
        /// Maximum size in MiB.
        limit_mib: usize,
    },
    /// No supplement has the canonical URL in the request.
    #[error("Required supplement not found: {0}")]
    MissingSupplement(String),
    /// The stored resource is invalid.
    #[error("the stored {resource} cannot be used: {reason}")]
    Broken {
        /// Canonical URL, or type and id if it has none.
        resource: String,
        /// Reason why the resource is invalid.
        reason: String,
    },
    /// The hierarchy has a cycle, so subsumption is undefined.
    #[error("the hierarchy of {system} has a cycle: {}", codes.join(" > "))]
    CyclicHierarchy {
        /// Canonical URL of the code system.
        system: String,
        /// Codes of one cycle, with its first code at the end again.
        codes: Vec<String>,
    },
    /// The hierarchy does not mean is-a.
    #[error("the hierarchy of {system} has the meaning {meaning}, which does not define subsumption")]
    HierarchyMeaning {
        /// Canonical URL of the code system.
        system: String,
        /// Value of `hierarchyMeaning` in the code system.
        meaning: &'static str,
    },
    /// The resource has no concepts, only examples, or only additions to another one.
    #[error("{system} has content {content}, so its codes cannot be compared")]
    Content {
        /// Canonical URL of the code system.
        system: String,
        /// Value of `content` in the code system.
        content: &'static str,
    },
}

impl From<BudgetExhausted> for TxError {
    fn from(exhausted: BudgetExhausted) -> Self {
        Self::Unprocessable(exhausted.into())
    }
}

impl TxError {
    /// Returns the limit that was reached, if the error is a spent budget.
    pub fn exhausted(&self) -> Option<ExhaustionCause> {
        match self {
            Self::Unprocessable(Unprocessable::Exhausted(exhausted)) => Some(exhausted.cause),
            _ => None,
        }
    }

    /// Returns the error as an OperationOutcome.
    pub fn outcome(&self) -> OperationOutcome {
        let issue = |code: IssueCode| Issue::error(code, self.to_string());
        match self {
            Self::Missing { .. } => issue(IssueCode::Required),
            Self::NothingToValidate { ecosystem: true } => issue(IssueCode::Invalid),
            Self::NothingToValidate { ecosystem: false } => issue(IssueCode::Required),
            Self::Malformed { parameter, .. } => issue(IssueCode::Invalid).at(parameter.as_str()),
            Self::DisplayLanguage(_) => issue(IssueCode::Processing).tx("invalid-display"),
            // The terminology ecosystem tests expect other issue codes than FHIR R4 suggests.
            Self::UnknownValueSet { ecosystem: true, .. } => issue(IssueCode::NotFound).tx("not-found"),
            Self::UnknownValueSet { ecosystem: false, .. } => issue(IssueCode::Invalid).tx("not-found"),
            Self::UnknownInstance { .. }
            | Self::UnknownCodeSystem { .. }
            | Self::UnknownConceptMap(_)
            | Self::NotOnDay { .. } => issue(IssueCode::NotFound).tx("not-found"),
            Self::UnknownCode { parameter, .. } => {
                issue(IssueCode::CodeInvalid).tx("invalid-code").at(*parameter)
            }
            Self::UnknownConcept { .. } => issue(IssueCode::NotFound).tx("invalid-code"),
            Self::Unprocessable(reason) => match reason {
                Unprocessable::MissingCodeSystem { .. } => issue(IssueCode::NotFound).tx("not-found"),
                Unprocessable::VersionNotAllowed { .. } => issue(IssueCode::Exception).tx("version-error"),
                Unprocessable::Endless { .. } => issue(IssueCode::TooCostly),
                Unprocessable::TooCostly { .. }
                | Unprocessable::Exhausted(_)
                | Unprocessable::TooManyFilters { .. }
                | Unprocessable::PatternsTooLarge { .. } => issue(IssueCode::TooCostly),
                Unprocessable::ImportCycle(_) | Unprocessable::ImportsTooDeep { .. } => {
                    issue(IssueCode::Processing).tx("vs-invalid")
                }
                Unprocessable::Filter(fault) => {
                    issue(IssueCode::Invalid).tx("vs-invalid").at(fault.at.as_str())
                }
                Unprocessable::MissingSupplement(_) => issue(IssueCode::NotFound).tx("not-found"),
                Unprocessable::Broken { .. } | Unprocessable::CyclicHierarchy { .. } => {
                    issue(IssueCode::Processing)
                }
                Unprocessable::HierarchyMeaning { .. } | Unprocessable::Content { .. } => {
                    issue(IssueCode::NotSupported)
                }
            },
        }
        .into()
    }
}

/// The error of a parameter that cannot be used.
pub(crate) fn malformed(parameter: &str, reason: impl Into<String>) -> TxError {
    TxError::Malformed { parameter: parameter.to_owned(), reason: reason.into() }
}
