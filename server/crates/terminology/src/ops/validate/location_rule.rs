//! The rule whether issues have `location` in addition to `expression`.
//!
//! FHIR deprecates `location`, so `expression` alone is always sufficient. Responses to requests without
//! parameters of HL7's terminology ecosystem contain both. HL7's test suite expects both in its older parts
//! and `expression` alone in its newer ones. No rule of FHIR explains the difference; it follows from the
//! kind of the issue and the form of the request.

use fhir::{Coding, Severity};

use super::request::{ValidateRequest, ValidateSubject};
use crate::catalog::Catalog;
use crate::interface::parameters::VALUE_SET;
use crate::model::{Budget, TxError};
use crate::ops::OperationInput;
use crate::ops::messages::ValidationIssue;

/// Kinds of issues that may have `expression` alone, in descending order of the number of requests in which
/// they may.
const ALONE: [&str; 5] = ["code-rule", "this-code-not-in-vs", "invalid-code", "not-in-vs", "invalid-display"];

/// The rule for one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LocationRule {
    Always,
    /// `location` is omitted if an issue of one of these kinds occurs and all issues are of kinds that may
    /// have `expression` alone.
    Without(&'static [&'static str]),
    Never,
}

impl LocationRule {
    /// The rule for a request.
    ///
    /// # Errors
    /// [`TxError`] if the budget is spent.
    pub(super) fn for_request(
        catalog: &Catalog,
        request: &ValidateRequest<'_>,
        input: OperationInput<'_>,
        budget: &Budget<'_>,
    ) -> Result<Self, TxError> {
        let several_versions = |coding: &Coding| {
            let versions = catalog.code_system_versions(coding.system.as_deref().unwrap_or_default()).len();
            budget.spend(1 + versions).map(|()| versions > 1)
        };
        let mut several = false;
        if request.ecosystem && !input.has(VALUE_SET.row()) {
            for (_, coding) in request.codings() {
                several = several || several_versions(coding)?;
            }
        }
        Ok(match &request.subject {
            _ if !request.ecosystem => Self::Always,
            _ if input.has(VALUE_SET.row()) => Self::Never,
            _ if several => Self::Without(&ALONE),
            ValidateSubject::Coding(coding) if coding.display.is_none() => Self::Without(&ALONE[..1]),
            ValidateSubject::Code(_) | ValidateSubject::Coding(_) | ValidateSubject::Concept(_) => {
                Self::Without(&ALONE[..4])
            }
        })
    }

    /// Returns whether an answer with these issues has `location`.
    pub(super) fn applies_to(self, issues: &[ValidationIssue]) -> bool {
        let without = match self {
            Self::Always => return true,
            Self::Never => return false,
            Self::Without(kinds) => kinds,
        };
        // Of the issues that are not errors, only the one for a single coding of several is considered.
        let counts = |note: &&ValidationIssue| {
            note.issue.severity == Severity::Error || issue_kind(note) == "this-code-not-in-vs"
        };
        let wrong: Vec<_> = issues.iter().filter(counts).map(issue_kind).collect();
        let is_alone =
            wrong.iter().any(|kind| without.contains(kind)) && wrong.iter().all(|kind| ALONE.contains(kind));
        !is_alone
    }
}

fn issue_kind(note: &ValidationIssue) -> &str {
    note.issue.details.coding.first().and_then(|coding| coding.code.as_deref()).unwrap_or_default()
}
