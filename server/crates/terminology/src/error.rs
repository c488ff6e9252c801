//! Why a question could not be judged. A negative answer is not an error: it is a Parameters
//! resource with `result=false`. Statuses are the edge's business; the comments name those that
//! DESIGN section 4 gives.

use fhir::{Issue, IssueCode, OperationOutcome};

use crate::budget::{Cause, Exhausted};
use crate::messages;

/// Why `$validate-code` or `$subsumes` could not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TxError {
    /// A parameter that is needed is not there (400).
    #[error("{what}")]
    Missing {
        /// What is missing and how to give it.
        what: String,
    },
    /// `$validate-code` without a code in any of its forms (400).
    #[error("{}", messages::NOTHING_TO_VALIDATE)]
    NothingToValidate {
        /// Does the caller speak HL7's terminology ecosystem (issue code `invalid`) or the plain
        /// interface (`required`)?
        ecosystem: bool,
    },
    /// A parameter is there but cannot be used (400).
    #[error("parameter '{parameter}': {why}")]
    Malformed {
        /// Name of the parameter.
        parameter: String,
        /// What was wrong with it and what to do.
        why: String,
    },
    /// `displayLanguage` is no list of languages (400).
    #[error("Invalid displayLanguage: '{0}'")]
    DisplayLanguage(String),
    /// No value set with this address, asked for by `url` or imported by another one (400).
    #[error("{}", messages::unknown_value_set(url))]
    UnknownValueSet {
        /// The canonical URL as it was given, `|version` included.
        url: String,
        /// Does the caller speak HL7's terminology ecosystem (issue code `not-found`) or the plain
        /// interface (`invalid`)?
        ecosystem: bool,
    },
    /// No CodeSystem or ValueSet with this id (404).
    #[error("{kind}/{id} is not known")]
    UnknownInstance {
        /// Resource type.
        kind: &'static str,
        /// The id from the path.
        id: String,
    },
    /// No code system with this address or version (404).
    #[error("{}", messages::unknown_code_system(system, version.as_deref(), known))]
    UnknownCodeSystem {
        /// Canonical URL.
        system: String,
        /// The version that was asked for.
        version: Option<String>,
        /// The versions that are there.
        known: Vec<String>,
    },
    /// No version of the code system was there on the day that was asked for (404).
    #[error("CodeSystem '{system}' was not there on {day}; its versions here are later: {}", known.join(", "))]
    NotOnDay {
        /// Canonical URL.
        system: String,
        /// The day.
        day: String,
        /// The versions that are there.
        known: Vec<String>,
    },
    /// The code system has no such code, where the operation needs one (404).
    #[error("{}", messages::unknown_code(code, system, version.as_deref()))]
    UnknownCode {
        /// The parameter that held the code.
        parameter: &'static str,
        /// The code.
        code: String,
        /// Canonical URL of the code system.
        system: String,
        /// Version of the code system.
        version: Option<String>,
    },
    /// The code system has no such code, where the concept itself was asked for (404).
    #[error("{}", messages::unknown_code(code, system, version.as_deref()))]
    UnknownConcept {
        /// The code.
        code: String,
        /// Canonical URL of the code system.
        system: String,
        /// Version of the code system.
        version: Option<String>,
    },
    /// The request is well formed, but what is stored cannot answer it (422).
    #[error(transparent)]
    Unprocessable(#[from] Unprocessable),
}

/// Why a stored resource cannot answer a well formed question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unprocessable {
    /// Value sets import one another in a circle.
    #[error("Cyclic reference detected when including {}", .0.join(" via "))]
    ImportCycle(Vec<String>),
    /// Value sets import one another through more levels than are followed.
    #[error("the imports of {value_set} are nested deeper than {limit} levels")]
    ImportsTooDeep {
        /// Canonical URL of the set that was asked for.
        value_set: String,
        /// How many levels are followed.
        limit: usize,
    },
    /// A filter has no value, or names an operator, property or value that cannot be judged.
    #[error(transparent)]
    Filter(#[from] Box<FilterFault>),
    /// A value set draws on a code system that is not here, so nobody can list its codes.
    #[error("{}", messages::unknown_code_system_in_set(system, version.as_deref(), known))]
    MissingCodeSystem {
        /// Canonical URL.
        system: String,
        /// The version that the value set needs.
        version: Option<String>,
        /// The versions that are there.
        known: Vec<String>,
    },
    /// The caller allows only other versions of a code system (`check-system-version`).
    #[error("{}", messages::version_not_allowed(system, version, required))]
    VersionNotAllowed {
        /// Canonical URL.
        system: String,
        /// The version that the value set would use.
        version: String,
        /// The version that the caller wants.
        required: String,
    },
    /// The codes of a system are known by a grammar only, so they cannot be listed.
    #[error(
        "The code system {system} has a grammar and no end of codes, so the value set cannot be expanded"
    )]
    Endless {
        /// Canonical URL.
        system: String,
    },
    /// The expansion has more codes than one answer may hold.
    #[error("{}", messages::too_costly(value_set, *limit))]
    TooCostly {
        /// Canonical URL of the value set.
        value_set: String,
        /// How many codes one answer may hold.
        limit: usize,
    },
    /// The question took more work than one question may cause.
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
    /// A value set has more filters than one may have.
    #[error("the value set has {count} filters, more than {limit}; divide it into several value sets")]
    TooManyFilters {
        /// How many it has.
        count: usize,
        /// How many it may have.
        limit: usize,
    },
    /// The regular expressions of a value set take more memory than those of one value set may.
    #[error(
        "the regular expressions of the value set take more than {limit_mib} MiB; use shorter repetitions, or [A-Za-z0-9_] \
         instead of \\w"
    )]
    PatternsTooLarge {
        /// How many MiB they may take.
        limit_mib: usize,
    },
    /// A supplement that was asked for is not known.
    #[error("Required supplement not found: {0}")]
    MissingSupplement(String),
    /// The stored resource could not be read.
    #[error("the stored {resource} cannot be used: {why}")]
    Broken {
        /// Canonical URL, or type and id where it has none.
        resource: String,
        /// What is wrong with it.
        why: String,
    },
    /// The concepts are arranged in a circle, so that nothing follows about them.
    #[error("the hierarchy of {system} has a circle: {}", codes.join(" > "))]
    CyclicHierarchy {
        /// Canonical URL.
        system: String,
        /// The codes of one circle, the first again at the end.
        codes: Vec<String>,
    },
    /// The hierarchy does not mean is-a.
    #[error("the hierarchy of {system} means {meaning}, which says nothing about subsumption")]
    HierarchyMeaning {
        /// Canonical URL.
        system: String,
        /// Its `hierarchyMeaning`.
        meaning: &'static str,
    },
    /// The resource holds no concepts, only examples, or only additions to another one.
    #[error("{system} has content {content}, so its codes cannot be compared")]
    Content {
        /// Canonical URL.
        system: String,
        /// Its `content`.
        content: &'static str,
    },
}

/// A filter of a value set that cannot be judged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", messages::filter_fault(self))]
pub struct FilterFault {
    /// Canonical URL of the filtered system.
    pub system: String,
    /// Property of the filter.
    pub property: String,
    /// Operator of the filter.
    pub op: String,
    /// Value of the filter; empty where that is the fault.
    pub value: String,
    /// Where it stands, such as `ValueSet.compose.include[0].filter[0]`.
    pub at: String,
    /// What is wrong.
    pub why: String,
}

impl From<Exhausted> for TxError {
    fn from(exhausted: Exhausted) -> Self {
        Self::Unprocessable(exhausted.into())
    }
}

impl TxError {
    /// Why the budget ended, if that is the error.
    pub fn exhausted(&self) -> Option<Cause> {
        match self {
            Self::Unprocessable(Unprocessable::Exhausted(exhausted)) => Some(exhausted.cause),
            _ => None,
        }
    }

    /// The error as FHIR tells it.
    pub fn outcome(&self) -> OperationOutcome {
        let issue = |code: IssueCode| Issue::error(code, self.to_string());
        match self {
            Self::Missing { .. } => issue(IssueCode::Required),
            Self::NothingToValidate { ecosystem: true } => issue(IssueCode::Invalid),
            Self::NothingToValidate { ecosystem: false } => issue(IssueCode::Required),
            Self::Malformed { parameter, .. } => issue(IssueCode::Invalid).at(parameter.as_str()),
            Self::DisplayLanguage(_) => issue(IssueCode::Processing).tx("invalid-display"),
            Self::UnknownValueSet { ecosystem: true, .. } => issue(IssueCode::NotFound).tx("not-found"),
            Self::UnknownValueSet { ecosystem: false, .. } => issue(IssueCode::Invalid).tx("not-found"),
            Self::UnknownInstance { .. } | Self::UnknownCodeSystem { .. } | Self::NotOnDay { .. } => {
                issue(IssueCode::NotFound).tx("not-found")
            }
            Self::UnknownCode { parameter, .. } => {
                issue(IssueCode::CodeInvalid).tx("invalid-code").at(*parameter)
            }
            Self::UnknownConcept { .. } => issue(IssueCode::NotFound).tx("invalid-code"),
            Self::Unprocessable(why) => match why {
                Unprocessable::MissingCodeSystem { .. } => issue(IssueCode::NotFound).tx("not-found"),
                Unprocessable::VersionNotAllowed { .. } => issue(IssueCode::Exception).tx("version-error"),
                Unprocessable::Endless { .. } => issue(IssueCode::TooCostly).tx("too-costly"),
                Unprocessable::TooCostly { .. }
                | Unprocessable::Exhausted(_)
                | Unprocessable::TooManyFilters { .. }
                | Unprocessable::PatternsTooLarge { .. } => issue(IssueCode::TooCostly).tx("too-costly"),
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
