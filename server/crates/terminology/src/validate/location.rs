//! Whether issues carry `location` beside `expression`.
//!
//! FHIR calls `location` deprecated, so that `expression` alone is always enough. In plain answers both
//! are there. HL7's suite wants both in its older parts and `expression` alone in its newer ones, which
//! no single rule of FHIR's explains; what tells them apart is what is wrong and the form of the question.

use fhir::{Coding, Severity};

use super::request::{Request, Subject};
use crate::catalog::Catalog;
use crate::messages::Note;
use crate::{Budget, Input, TxError};

/// Kinds of what is wrong that `expression` may tell alone: the first in any question, the last in the
/// fewest.
const ALONE: [&str; 5] = ["code-rule", "this-code-not-in-vs", "invalid-code", "not-in-vs", "invalid-display"];

/// Whether issues carry `location` too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Location {
    Always,
    /// Unless one of these kinds is wrong and nothing but what `expression` may tell alone.
    Without(&'static [&'static str]),
    Never,
}

impl Location {
    /// What the question says of it.
    ///
    /// # Errors
    /// When the budget ends.
    pub(super) fn of(
        catalog: &Catalog,
        request: &Request<'_>,
        input: Input<'_>,
        budget: &Budget<'_>,
    ) -> Result<Self, TxError> {
        let several_versions = |coding: &Coding| {
            let versions = catalog.code_system_versions(coding.system.as_deref().unwrap_or_default()).len();
            budget.spend(1 + versions).map(|()| versions > 1)
        };
        let mut several = false;
        if request.ecosystem && !input.has("valueSet") {
            for (_, coding) in request.codings() {
                several = several || several_versions(coding)?;
            }
        }
        Ok(match &request.subject {
            _ if !request.ecosystem => Self::Always,
            _ if input.has("valueSet") => Self::Never,
            _ if several => Self::Without(&ALONE),
            Subject::Coding(coding) if coding.display.is_none() => Self::Without(&ALONE[..1]),
            Subject::Code(_) | Subject::Coding(_) | Subject::Concept(_) => Self::Without(&ALONE[..4]),
        })
    }

    /// Is it there in an answer with these issues?
    pub(super) fn is_among(self, notes: &[Note]) -> bool {
        let without = match self {
            Self::Always => return true,
            Self::Never => return false,
            Self::Without(kinds) => kinds,
        };
        // Of lesser severity, only the remark on one coding of several counts.
        let counts =
            |note: &&Note| note.issue.severity == Severity::Error || kind(note) == "this-code-not-in-vs";
        let wrong: Vec<_> = notes.iter().filter(counts).map(kind).collect();
        let is_alone =
            wrong.iter().any(|kind| without.contains(kind)) && wrong.iter().all(|kind| ALONE.contains(kind));
        !is_alone
    }
}

fn kind(note: &Note) -> &str {
    note.issue.details.coding.first().and_then(|coding| coding.code.as_deref()).unwrap_or_default()
}
