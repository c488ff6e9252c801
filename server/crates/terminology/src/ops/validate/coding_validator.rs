//! Validation of one coding against one value set.

use fhir::{Coding, Severity};

use super::display_check::{self, DisplayVerdict};
use super::request::{CodingPath, ValidateRequest};
use super::resource_state::ResourceState;
use crate::catalog::Catalog;
use crate::code_system::CodeSystem;
use crate::grammar::{self, CodeGrammar};
use crate::membership::imports::ValueSetScope;
use crate::membership::members::GRAMMAR_CODE_WORDS;
use crate::membership::search::{CodeMatch, CodeQuery, CodeSearch, SearchResult};
use crate::membership::version_pins::pinned;
use crate::model::concept_text::{ConceptText, TextKind};
use crate::model::language::LanguageRanges;
use crate::model::resource_json::ContentMode;
use crate::model::version_choice::DatedVersion;
use crate::model::{Budget, TxError, canonical};
use crate::ops::concept_texts::{self, LoadedSupplement};
use crate::ops::first_positions::FirstPositions;
use crate::ops::messages::ValidationIssue;
use crate::value_set::ValueSet;

/// Number of steps for composing the texts of a validated coding, in addition to the steps of the search.
const CODING_STEPS: usize = 50;

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

impl CodingResult<'_> {
    pub(super) fn has_no_error(&self) -> bool {
        self.issues.iter().all(|note| note.issue.severity != Severity::Error)
    }

    pub(super) fn is_valid(&self) -> bool {
        self.in_set && self.has_no_error()
    }

    /// Downgrades errors to warnings, because another coding is valid.
    pub(super) fn downgrade_errors(&mut self) {
        let errors = self.issues.iter_mut().filter(|note| note.issue.severity == Severity::Error);
        errors.for_each(|note| note.issue.severity = Severity::Warning);
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

    /// Validates a coding.
    ///
    /// # Errors
    /// [`TxError`] if the request cannot be evaluated.
    pub(super) fn validate_coding<'q>(
        &self,
        coding: &'q Coding,
        path: CodingPath,
    ) -> Result<CodingResult<'q>, TxError> {
        let mut out = CodingResult {
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
        };
        self.budget.spend(CODING_STEPS)?;
        if coding.code.as_deref().is_none_or(str::is_empty) {
            // Another coding of the concept has a code.
            out.issues.push(ValidationIssue::no_code().at(path.coding_path()));
            return Ok(out);
        }
        let Some(system) = coding.system.as_deref().filter(|system| !system.is_empty()) else {
            out.issues.extend(self.not_in_set(coding, path));
            out.issues.push(ValidationIssue::no_system().at(path.coding_path()));
            return Ok(out);
        };
        if CodeGrammar::for_system(system).is_some() {
            self.budget.spend_words(GRAMMAR_CODE_WORDS, true)?;
        }
        let mut result = match self.system {
            Some(only) => self.in_system(only, coding),
            None => self.search(system, coding)?,
        };
        if self.request.active_only {
            let is_inactive =
                |m: &CodeMatch<'_>| m.system.zip(m.concept).is_some_and(|(s, index)| s.is_inactive(index));
            let (inactive, active): (Vec<_>, Vec<_>) = result.members.into_iter().partition(is_inactive);
            result.members = active;
            result.inactive.extend(inactive);
        }
        if let Some(member) = self.best_match(&result.members, coding)? {
            out.in_set = true;
            self.report_match(member, coding, path, &mut out)?;
        } else if let Some((system, wanted)) = result.unknown.into_iter().next() {
            self.report_undecided(&system, wanted.as_deref(), path, &mut out)?;
        } else if let Some(member) = result.inactive.first() {
            out.issues.push(
                ValidationIssue::not_active(coding.code.as_deref().unwrap_or_default())
                    .at(path.member_path("code")),
            );
            out.issues.extend(self.not_in_set(coding, path));
            self.report_match(member, coding, path, &mut out)?;
        } else {
            out.issues.extend(self.not_in_set(coding, path));
            self.report_non_member(system, path, &mut out)?;
        }
        Ok(out)
    }

    /// Finds the code in the requested code system, which counts as a set of all its codes.
    fn in_system(&self, system: &'a CodeSystem, coding: &Coding) -> SearchResult<'a> {
        let concept = coding.code.as_deref().and_then(|code| system.find(code));
        let is_in = concept.is_some() || system.content != ContentMode::Complete;
        let member = || self.system_match(system, concept);
        SearchResult::from_match(is_in.then(member))
    }

    /// The match of a concept in its code system, independent of the value set.
    fn system_match(&self, system: &'a CodeSystem, concept: Option<u32>) -> CodeMatch<'a> {
        let (set, via) = (self.set, Vec::new());
        CodeMatch { system: Some(system), concept, listed: None, set, written_version: None, via }
    }

    /// The issue for a code that is not in the value set; `None` if a code system is validated.
    fn not_in_set(&self, coding: &Coding, path: CodingPath) -> Option<ValidationIssue> {
        if self.system.is_some() {
            return None;
        }
        let system = canonical::join(coding.system.as_deref().unwrap_or_default(), coding.version.as_deref());
        let mut named = format!("{system}#{}", coding.code.as_deref().unwrap_or_default());
        if let Some(display) = &coding.display {
            named.push_str(&format!(" ('{display}')"));
        }
        let set = self.set.canonical();
        let one_of_several = matches!(path, CodingPath::Concept(_));
        Some(ValidationIssue::not_in_value_set(&named, &set, one_of_several).at(path.member_path("code")))
    }

    /// The match that fits the coding best: with its version, then with a known concept, then with its
    /// display, then of the newest version.
    fn best_match<'m>(
        &self,
        members: &'m [CodeMatch<'a>],
        coding: &Coding,
    ) -> Result<Option<&'m CodeMatch<'a>>, TxError> {
        if let [only] = members {
            return Ok(Some(only));
        }
        let fit = |member: &'m CodeMatch<'a>| {
            let named = coding.version.is_some() && member.version() == coding.version.as_deref();
            let shown = match coding.display.as_deref() {
                Some(given) => {
                    display_check::compare_display(given, &self.displays(member)?, &self.languages)
                        == DisplayVerdict::Right
                }
                None => false,
            };
            Ok::<_, TxError>(((named, member.concept.is_some(), shown), member))
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
    fn displays(&self, member: &CodeMatch<'a>) -> Result<Vec<ConceptText<'a>>, TxError> {
        let mut out: Vec<ConceptText<'a>> = Vec::new();
        let mut places = FirstPositions::default();
        let located = member.system.zip(member.concept);
        let listed = member.listed.map(|listed| (listed, member.set.language.as_deref()));
        let of_set = listed.into_iter().flat_map(|(listed, _)| &listed.designations);
        let of_set =
            of_set.map(|d| ConceptText { kind: d.kind, ..ConceptText::own(&d.text, d.language.as_deref()) });
        let added = located.into_iter().flat_map(|(s, concept_number)| {
            concept_texts::additions_to_concept(&self.supplements, s, concept_number)
        });
        let of_systems =
            located.into_iter().chain(added).flat_map(|(s, concept_number)| s.displays(concept_number));
        let all = concept_texts::default_display(located, listed).into_iter().chain(of_set).chain(of_systems);
        for display in all.filter(|display| display.kind != TextKind::Definition) {
            self.budget.spend(1 + self.languages.steps())?;
            match places.find(display.text) {
                // A value set often repeats the display of the code system without a language.
                Some(concept_number) => {
                    let other = &mut out[concept_number];
                    other.language = other.language.or(display.language);
                    other.kind = other.kind.min(display.kind);
                }
                None => {
                    places.push(display.text);
                    out.push(display);
                }
            }
        }
        Ok(out)
    }

    /// Reports everything about a code that is in the value set.
    fn report_match(
        &self,
        member: &CodeMatch<'a>,
        coding: &Coding,
        path: CodingPath,
        out: &mut CodingResult<'_>,
    ) -> Result<(), TxError> {
        let code = coding.code.as_deref().unwrap_or_default();
        let url = coding.system.as_deref().unwrap_or_default();
        out.version = member.version().map(String::from);
        let Some(system) = member.system else {
            out.issues.push(ValidationIssue::taken_on_trust(url).at(path.member_path("system")));
            return self.check_display(member, coding, path, out);
        };
        self.check_version(system, member, coding, path, out);
        match member.concept {
            Some(concept_number) => self.report_concept(system, concept_number, member, coding, path, out),
            None => {
                let note = ValidationIssue::unknown_code_in_fragment(code, url, system.version.as_deref());
                out.issues.push(note.at(path.member_path("code")));
            }
        }
        self.check_display(member, coding, path, out)?;
        self.system_status(system, member, out);
        Ok(())
    }

    fn report_concept(
        &self,
        system: &CodeSystem,
        concept: u32,
        member: &CodeMatch<'a>,
        coding: &Coding,
        path: CodingPath,
        out: &mut CodingResult<'_>,
    ) {
        let code = coding.code.as_deref().unwrap_or_default();
        let right = system.code(concept);
        let canonical = canonical::join(&system.url, system.version.as_deref());
        if right != code {
            out.normalized_code = Some(right.to_owned());
            out.issues
                .push(ValidationIssue::case_difference(code, right, &canonical).at(path.member_path("code")));
        }
        if system.is_abstract(concept) && !self.request.abstract_allowed {
            out.in_set = false;
            out.issues.push(ValidationIssue::abstract_code(&system.url, code).at(path.member_path("code")));
            out.issues.extend(self.not_in_set(coding, path));
        }
        if system.is_inactive(concept) {
            out.inactive = true;
            out.status =
                system.concept_status(concept).filter(|status| *status != "inactive").map(String::from);
            out.issues.push(ValidationIssue::inactive(code, out.status.as_deref()).at(path.coding_path()));
        } else if system.is_deprecated(concept) {
            out.status = Some("deprecated".to_owned());
            out.issues.push(ValidationIssue::deprecated(code).at(path.coding_path()));
        }
        if member.listed.is_some_and(|listed| listed.deprecated) {
            let set = member.set.canonical();
            let note = ValidationIssue::deprecated_in_value_set(code, &system.url, &set);
            out.issues.push(note.at(path.member_path("code")));
        }
    }

    fn check_version(
        &self,
        system: &CodeSystem,
        member: &CodeMatch<'a>,
        coding: &Coding,
        path: CodingPath,
        out: &mut CodingResult<'_>,
    ) {
        let actual = system.version.as_deref().unwrap_or_default();
        if let Some(required) = pinned(&self.request.pins.check, &system.url)
            && !canonical::matches(required, actual)
        {
            let note = ValidationIssue::version_check(&system.url, actual, required);
            out.issues.push(note.at(path.member_path("version")));
        }
        let Some(given) = coding.version.as_deref().filter(|given| !canonical::matches(given, actual)) else {
            return;
        };
        let is_known = self.catalog.code_system(&system.url, Some(given)).is_some();
        let written = member.written_version;
        let note = match (self.request.pins.replacing(&system.url, written), written) {
            (Some(pin), _) => {
                ValidationIssue::version_mismatch(&system.url, pin, Some(written.unwrap_or_default()), given)
            }
            (None, None) if is_known => ValidationIssue::version_mismatch(&system.url, actual, None, given),
            (None, None) => ValidationIssue::default_version_mismatch(&system.url, actual, given),
            (None, Some(written)) => ValidationIssue::version_mismatch(&system.url, written, None, given),
        };
        out.issues.push(note.at(path.member_path("version")));
        if !is_known {
            self.unknown_version(&system.url, given, path, out);
        }
    }

    fn unknown_version(&self, system: &str, version: &str, path: CodingPath, out: &mut CodingResult<'_>) {
        let versions = self.catalog.code_system_versions(system);
        let note = ValidationIssue::unknown_code_system(system, Some(version), &versions);
        out.issues.push(note.at(path.member_path("system")));
        out.missing.push(canonical::join(system, Some(version)));
    }

    fn check_display(
        &self,
        member: &CodeMatch<'a>,
        coding: &Coding,
        path: CodingPath,
        out: &mut CodingResult<'_>,
    ) -> Result<(), TxError> {
        let displays = self.displays(member)?;
        out.display = self.languages.choose(&displays).map(String::from);
        let Some(given) = coding.display.as_deref().filter(|_| !displays.is_empty()) else {
            return Ok(());
        };
        let code = coding.code.as_deref().unwrap_or_default();
        let named = format!("{}#{code}", coding.system.as_deref().unwrap_or_default());
        let note = match display_check::compare_display(given, &displays, &self.languages) {
            DisplayVerdict::Right => return Ok(()),
            // For a code that is not in the set, only errors are reported.
            DisplayVerdict::RightByDefault { .. } if !out.in_set => return Ok(()),
            DisplayVerdict::RightByDefault { languages } => {
                ValidationIssue::display_by_default(given, &named, &languages)
            }
            DisplayVerdict::Retired { right } => ValidationIssue::retired_display(given, code, &right),
            DisplayVerdict::WrongByDefault { languages, default } => {
                ValidationIssue::wrong_display_by_default(given, &named, &languages, default)
            }
            DisplayVerdict::Wrong { whitespace, languages, right } => {
                ValidationIssue::wrong_display(given, &named, whitespace, &right, &languages)
            }
        };
        let soften = self.request.lenient_display && note.issue.severity == Severity::Error;
        let note = if soften { note.into_warning() } else { note };
        out.issues.push(note.at(path.member_path("display")));
        Ok(())
    }

    /// An issue if the value set is not, or no longer, intended for use.
    pub(super) fn set_status(&self) -> Option<ValidationIssue> {
        let canonical = self.set.canonical();
        let status =
            ResourceState::of_value_set(self.set).state_to_report(&ResourceState::of_value_set(self.set))?;
        Some(ValidationIssue::status(status, "ValueSet", &canonical))
    }

    /// Reports a code system and imported value sets that are not, or no longer, intended for use.
    fn system_status(&self, system: &CodeSystem, member: &CodeMatch<'_>, out: &mut CodingResult<'_>) {
        let source = ResourceState::of_value_set(member.set);
        let of_system = ResourceState::of_system(system);
        if let Some(status) = of_system.state_to_report(&source) {
            let canonical = canonical::join(&system.url, system.version.as_deref());
            out.issues.push(ValidationIssue::status(status, "CodeSystem", &canonical));
        }
        let own = ResourceState::of_value_set(self.set);
        for set in &member.via {
            if let Some(status) = ResourceState::of_value_set(set).state_to_report(&own) {
                let canonical = set.canonical();
                out.issues.push(ValidationIssue::status(status, "ValueSet", &canonical));
            }
        }
    }

    /// Reports that the value set needs a code system or version that is not stored.
    fn report_undecided(
        &self,
        system: &str,
        version: Option<&str>,
        path: CodingPath,
        out: &mut CodingResult<'_>,
    ) -> Result<(), TxError> {
        let given = out.coding.version.as_deref();
        if let (Some(version), Some(given)) = (version, given)
            && version != given
        {
            let note = ValidationIssue::version_mismatch(system, version, None, given);
            out.issues.push(note.at(path.member_path("version")));
        }
        let versions = self.catalog.code_system_versions(system);
        let note = ValidationIssue::unknown_code_system(system, version, &versions);
        out.issues.push(note.at(path.member_path("system")));
        out.undecided = true;
        out.missing.push(canonical::join(system, version.filter(|_| !versions.is_empty())));
        if let Some(resource) = self.catalog.code_system(system, self.wanted_version(system, given)) {
            let system = resource.get(self.budget)?;
            out.version = system.version.clone();
            let concept = out.coding.code.as_deref().and_then(|code| system.find(code));
            out.display = concept.and_then(|concept_number| system.display(concept_number)).map(String::from);
        }
        Ok(())
    }

    /// Reports what the code system contains about a code that is not in the value set.
    fn report_non_member(
        &self,
        system: &str,
        path: CodingPath,
        out: &mut CodingResult<'_>,
    ) -> Result<(), TxError> {
        if self.request.membership_only {
            return Ok(());
        }
        let coding = out.coding;
        let requested_version = self.wanted_version(system, coding.version.as_deref());
        let code = coding.code.as_deref().unwrap_or_default();
        let Some(resource) = self.catalog.code_system_for(system, requested_version, code) else {
            return self.report_unknown_system(system, requested_version, path, out);
        };
        let system_of_code = resource.get(self.budget)?;
        out.version = system_of_code.version.clone();
        match system_of_code.find(code) {
            Some(concept) => {
                let member = self.system_match(system_of_code, Some(concept));
                self.check_display(&member, coding, path, out)?;
                self.system_status(system_of_code, &member, out);
            }
            None if system_of_code.content == ContentMode::Complete => {
                let note = ValidationIssue::unknown_code(code, system, system_of_code.version.as_deref());
                out.issues.push(note.at(path.member_path("code")));
                if let Some(why) =
                    grammar::rejection_reason(system, code).filter(|_| self.catalog.is_endless(system))
                {
                    out.issues.push(ValidationIssue::not_in_grammar(code, &why).at(path.member_path("code")));
                }
            }
            None => {}
        }
        Ok(())
    }

    /// The version to use for the code system of the coding.
    fn wanted_version<'v>(&'v self, system: &str, given: Option<&'v str>) -> Option<&'v str> {
        let pins = &self.request.pins;
        pinned(&pins.force, system).or(given).or_else(|| pins.replacing(system, None))
    }

    fn report_unknown_system(
        &self,
        system: &str,
        stated_version: Option<&str>,
        path: CodingPath,
        out: &mut CodingResult<'_>,
    ) -> Result<(), TxError> {
        let concept = path.member_path("system");
        if let Some(version) = stated_version.filter(|_| self.catalog.code_system(system, None).is_some()) {
            self.unknown_version(system, version, path, out);
        } else if let Some(supplement) = self.catalog.supplement(system) {
            let version = supplement.header().and_then(|header| header.version.as_deref());
            out.issues
                .push(ValidationIssue::system_is_supplement(&canonical::join(system, version)).at(concept));
        } else if self.catalog.value_set(system, None, self.budget)?.is_some() {
            out.issues.push(ValidationIssue::system_is_value_set(system).at(concept));
        } else if !system.contains(':') && !matches!(path, CodingPath::Code) {
            out.issues.push(ValidationIssue::relative_system().at(concept));
        } else {
            let note = match stated_version {
                None if system.contains(':') => ValidationIssue::foreign_code_system(system),
                _ => ValidationIssue::unknown_code_system(system, stated_version, &[]),
            };
            out.issues.push(note.at(concept));
            out.missing.push(system.to_owned());
        }
        Ok(())
    }
}
