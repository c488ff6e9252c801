//! The context in which the codings of a request are validated: the search in the value set, and the texts of
//! its members.

use fhir::{Coding, Severity};

use super::display_check::{self, DisplayVerdict};
use super::request::ValidateRequest;
use crate::catalog::Catalog;
use crate::code_system::CodeSystem;
use crate::expression::ExpressionFault;
use crate::membership::imports::ValueSetScope;
use crate::membership::search::{CodeMatch, CodeQuery, CodeSearch, SearchResult};
use crate::membership::version_pins::pinned;
use crate::model::concept_text::{ConceptText, TextKind};
use crate::model::language::LanguageRanges;
use crate::model::resource_json::ContentMode;
use crate::model::version_choice::DatedVersion;
use crate::model::{Budget, TxError};
use crate::ops::concept_texts::{self, LoadedSupplement};
use crate::ops::first_positions::FirstPositions;
use crate::ops::messages::ValidationIssue;
use crate::ops::resource_state::ResourceState;
use crate::value_set::ValueSet;

/// The context in which all codings of a request are validated.
pub(super) struct CodingValidator<'a, 'r> {
    pub(super) catalog: &'a Catalog,
    pub(super) budget: &'r Budget<'r>,
    pub(super) request: &'r ValidateRequest<'r>,
    pub(super) set: &'a ValueSet,
    /// The resource that contains the value set; the value set itself if it is not contained.
    pub(super) container: &'a ValueSet,
    /// The requested code system; `None` if the request names a value set.
    pub(super) system: Option<&'a CodeSystem>,
    pub(super) supplements: Vec<LoadedSupplement<'a>>,
    pub(super) languages: LanguageRanges,
}

#[derive(Debug)]
pub(super) struct CodingResult<'q> {
    pub(super) coding: &'q Coding,
    /// Whether the code is in the value set and allowed.
    pub(super) in_set: bool,
    pub(super) display: Option<String>,
    /// Version of the code system in which the code was validated.
    pub(super) version: Option<String>,
    pub(super) normalized_code: Option<String>,
    pub(super) inactive: bool,
    pub(super) status: Option<String>,
    /// Canonical URLs of code systems that are not stored.
    pub(super) missing: Vec<String>,
    /// Whether the value set needs one of the missing code systems, so that membership cannot be determined.
    pub(super) undecided: bool,
    pub(super) issues: Vec<ValidationIssue>,
}

impl<'q> CodingResult<'q> {
    /// The result before anything is known about the coding.
    pub(super) fn new(coding: &'q Coding) -> Self {
        Self {
            coding,
            in_set: false,
            display: None,
            version: None,
            normalized_code: None,
            inactive: false,
            status: None,
            missing: Vec::new(),
            undecided: false,
            issues: Vec::new(),
        }
    }

    pub(super) fn has_no_error(&self) -> bool {
        self.issues.iter().all(|note| note.issue.severity != Severity::Error)
    }

    pub(super) fn is_valid(&self) -> bool {
        self.in_set && self.has_no_error()
    }

    /// Downgrades errors to warnings, because another coding is valid. Code systems that are missing did not
    /// decide the result.
    pub(super) fn accept_beside_valid(&mut self) {
        let errors = self.issues.iter_mut().filter(|note| note.issue.severity == Severity::Error);
        errors.for_each(|note| note.issue.severity = Severity::Warning);
        self.missing.clear();
    }
}

impl<'a> CodingValidator<'a, '_> {
    /// Searches for a code of a system in the value set.
    pub(super) fn search(&self, system: &str, coding: &Coding) -> Result<SearchResult<'a>, TxError> {
        let code = coding.code.as_deref().unwrap_or_default();
        let query = CodeQuery { system, version: coding.version.as_deref(), code };
        let trust_lists = !self.request.ecosystem;
        CodeSearch::new(self.catalog, query, &self.request.pins, trust_lists, self.budget)
            .search_value_set(ValueSetScope { container: self.container, set: self.set })
    }

    /// Finds the code in the requested code system, which counts as a set of all its codes.
    ///
    /// # Errors
    /// [`TxError`] if the budget is spent before an expression is classified.
    pub(super) fn in_system(
        &self,
        system: &'a CodeSystem,
        coding: &Coding,
    ) -> Result<SearchResult<'a>, TxError> {
        let code = coding.code.as_deref().unwrap_or_default();
        let system = match self.catalog.expression_in(system, code, self.budget) {
            Ok(excerpt) => excerpt.unwrap_or(system),
            Err(ExpressionFault::Exhausted(exhausted)) => return Err(exhausted.into()),
            // The code is reported as unknown.
            Err(_) => system,
        };
        let concept = system.find(code);
        let is_in = concept.is_some() || system.content != ContentMode::Complete;
        let member = || self.system_match(system, concept);
        Ok(SearchResult::from_match(is_in.then(member)))
    }

    /// The match of a concept in its code system, independent of the value set.
    pub(super) fn system_match(&self, system: &'a CodeSystem, concept: Option<u32>) -> CodeMatch<'a> {
        let (set, via) = (self.set, Vec::new());
        CodeMatch {
            system: Some(system),
            concept,
            listed: None,
            set,
            written_version: None,
            is_of_all: true,
            via,
        }
    }

    /// The match that fits the coding best: with its version, then with a known concept, then with its
    /// display, then of the newest version.
    pub(super) fn best_match<'m>(
        &self,
        members: &'m [CodeMatch<'a>],
        coding: &Coding,
    ) -> Result<Option<&'m CodeMatch<'a>>, TxError> {
        if let [only] = members {
            return Ok(Some(only));
        }
        let fit = |member: &'m CodeMatch<'a>| {
            let has_version = coding.version.is_some() && member.version() == coding.version.as_deref();
            let display = match coding.display.as_deref() {
                Some(text) => {
                    display_check::compare_display(text, &self.displays(member)?, &self.languages)
                        == DisplayVerdict::Right
                }
                None => false,
            };
            Ok::<_, TxError>(((has_version, member.concept.is_some(), display), member))
        };
        let fits = members.iter().map(fit).collect::<Result<Vec<_>, _>>()?;
        let best = fits.into_iter().max_by(|(a, one), (b, other)| {
            let version = |member: &'m CodeMatch<'a>| {
                let date = member.system.and_then(|system| system.header.date.as_deref());
                DatedVersion::new(member.version(), date)
            };
            a.cmp(b).then_with(|| version(one).compare(&version(other)).0)
        });
        Ok(best.map(|(_, member)| member))
    }

    /// All displays of a match, the default first: those of the value set, then of the code system, then of
    /// supplements. Definitions are not displays.
    pub(super) fn displays(&self, member: &CodeMatch<'a>) -> Result<Vec<ConceptText<'a>>, TxError> {
        let mut out: Vec<ConceptText<'a>> = Vec::new();
        let mut places = FirstPositions::default();
        let located = member.system.zip(member.concept);
        let list_code = member.listed.map(|code| (code, member.set.language.as_deref()));
        let of_set = list_code.into_iter().flat_map(|(list_code, _)| &list_code.designations);
        let of_set =
            of_set.map(|d| ConceptText { kind: d.kind, ..ConceptText::own(&d.text, d.language.as_deref()) });
        let added = located.into_iter().flat_map(|(system, concept)| {
            concept_texts::additions_to_concept(&self.supplements, system, concept)
        });
        let of_systems =
            located.into_iter().chain(added).flat_map(|(system, concept)| system.displays(concept));
        let all =
            concept_texts::default_display(located, list_code).into_iter().chain(of_set).chain(of_systems);
        for display in all.filter(|display| display.kind != TextKind::Definition) {
            self.budget.spend(1 + self.languages.steps())?;
            match places.find(display.text) {
                // A value set often repeats the display of the code system without a language.
                Some(index) => {
                    let other = &mut out[index];
                    other.language = other.language.or(display.language);
                    other.kind = other.kind.min(display.kind);
                    if other.dialects.is_empty() {
                        (other.dialects, other.preference) = (display.dialects, display.preference);
                    }
                }
                None => {
                    places.push(display.text);
                    out.push(display);
                }
            }
        }
        Ok(out)
    }

    /// An issue if the value set is not, or no longer, intended for use.
    pub(super) fn set_status(&self) -> Option<ValidationIssue> {
        let canonical = self.set.canonical();
        let status =
            ResourceState::of_value_set(self.set).state_to_report(&ResourceState::of_value_set(self.set))?;
        Some(ValidationIssue::status(status, "ValueSet", &canonical))
    }

    /// The version to use for the code system of the coding.
    pub(super) fn wanted_version<'v>(&'v self, system: &str, requested: Option<&'v str>) -> Option<&'v str> {
        let pins = &self.request.pins;
        pinned(&pins.force, system).or(requested).or_else(|| pins.replacing(system, None))
    }
}
