//! The validation of one coding: what is reported about it, and where.

use fhir::{Coding, Severity};

use super::coding_validator::{CodingResult, CodingValidator};
use super::concept_model::ConceptModel;
use super::display_check::{self, DisplayVerdict};
use super::request::CodingPath;
use crate::catalog::ConceptModelMode;
use crate::code_system::CodeSystem;
use crate::grammar::{self, CodeGrammar};
use crate::membership::members::GRAMMAR_CODE_WORDS;
use crate::membership::search::CodeMatch;
use crate::membership::version_pins::pinned;
use crate::model::known_systems::UCUM;
use crate::model::resource_json::ContentMode;
use crate::model::{TxError, canonical};
use crate::ops::messages::ValidationIssue;
use crate::ops::resource_state::ResourceState;

/// Number of steps for composing the texts of a validated coding, in addition to the steps of the search.
const CODING_STEPS: usize = 50;

/// One coding, with what was reported about it so far.
pub(super) struct CodingValidation<'v, 'a, 'r, 'q> {
    validator: &'v CodingValidator<'a, 'r>,
    /// Place of the coding in the request.
    path: CodingPath,
    result: CodingResult<'q>,
}

impl<'v, 'a, 'r, 'q> CodingValidation<'v, 'a, 'r, 'q> {
    /// Validates a coding.
    ///
    /// # Errors
    /// [`TxError`] if the request cannot be evaluated.
    pub(super) fn run(
        validator: &'v CodingValidator<'a, 'r>,
        coding: &'q Coding,
        path: CodingPath,
    ) -> Result<CodingResult<'q>, TxError> {
        let mut validation = Self { validator, path, result: CodingResult::new(coding) };
        validation.validate()?;
        Ok(validation.result)
    }

    fn validate(&mut self) -> Result<(), TxError> {
        let (validator, coding) = (self.validator, self.result.coding);
        validator.budget.spend(CODING_STEPS)?;
        if self.code().is_empty() {
            // Another coding of the concept has a code.
            self.report(ValidationIssue::no_code());
            return Ok(());
        }
        let Some(system) = coding.system.as_deref().filter(|system| !system.is_empty()) else {
            self.report_not_in_set();
            self.report(ValidationIssue::no_system());
            return Ok(());
        };
        if CodeGrammar::for_system(system).is_some() {
            validator.budget.spend_words(GRAMMAR_CODE_WORDS, true)?;
        }
        let mut matches = match validator.system {
            Some(only) => validator.in_system(only, coding)?,
            None => validator.search(system, coding)?,
        };
        if validator.request.active_only {
            let is_inactive = |member: &CodeMatch<'_>| {
                member.system.zip(member.concept).is_some_and(|(system, concept)| system.is_inactive(concept))
            };
            let (inactive, active): (Vec<_>, Vec<_>) = matches.members.into_iter().partition(is_inactive);
            matches.members = active;
            matches.inactive.extend(inactive);
        }
        if let Some(fault) = &matches.fault {
            self.report(ValidationIssue::include_left_out(fault));
        }
        if let Some(member) = validator.best_match(&matches.members, coding)? {
            self.result.in_set = true;
            self.report_match(member)
        } else if let Some((system, version)) = matches.unknown.into_iter().next() {
            self.report_undecided(&system, version.as_deref())
        } else if let Some(member) = matches.inactive.first() {
            self.report_at("code", ValidationIssue::not_active(self.code()));
            self.report_not_in_set();
            self.report_match(member)
        } else {
            self.report_not_in_set();
            self.report_non_member(system)
        }
    }

    fn code(&self) -> &'q str {
        self.result.coding.code.as_deref().unwrap_or_default()
    }

    /// Adds an issue about the whole coding.
    fn report(&mut self, issue: ValidationIssue) {
        self.result.issues.push(issue.at(self.path.coding_path()));
    }

    /// Adds an issue about a member of the coding.
    fn report_at(&mut self, member: &str, issue: ValidationIssue) {
        self.result.issues.push(issue.at(self.path.member_path(member)));
    }

    /// Reports that the code is not in the value set, unless a code system is validated.
    fn report_not_in_set(&mut self) {
        if self.validator.system.is_some() {
            return;
        }
        let coding = self.result.coding;
        let system = canonical::join(coding.system.as_deref().unwrap_or_default(), coding.version.as_deref());
        let mut coding_text = format!("{system}#{}", self.code());
        if let Some(display) = &coding.display {
            coding_text.push_str(&format!(" ('{display}')"));
        }
        let one_of_several = matches!(self.path, CodingPath::Concept(_));
        let set = self.validator.set.canonical();
        self.report_at("code", ValidationIssue::not_in_value_set(&coding_text, &set, one_of_several));
    }

    /// Reports everything about a code that is in the value set.
    fn report_match(&mut self, member: &CodeMatch<'a>) -> Result<(), TxError> {
        let url = self.result.coding.system.as_deref().unwrap_or_default();
        self.result.version = member.version().map(String::from);
        let Some(system) = member.system else {
            self.report_at("system", ValidationIssue::taken_on_trust(url));
            return self.check_display(member);
        };
        self.check_version(system, member);
        match member.concept {
            Some(concept) => {
                self.report_concept(system, concept, member);
                self.check_concept_model(system, member.is_of_all)?;
            }
            None => {
                let version = system.version.as_deref();
                self.report_at("code", ValidationIssue::unknown_code_in_fragment(self.code(), url, version));
            }
        }
        self.check_display(member)?;
        self.report_states(system, member);
        Ok(())
    }

    fn report_concept(&mut self, system: &CodeSystem, concept: u32, member: &CodeMatch<'a>) {
        let (code, right) = (self.code(), system.code(concept));
        if right != code {
            let canonical = canonical::join(&system.url, system.version.as_deref());
            self.result.normalized_code = Some(right.to_owned());
            self.report_at("code", ValidationIssue::case_difference(code, right, &canonical));
        }
        if let Some(remark) = grammar::remark(&system.url, code) {
            self.report_at("code", ValidationIssue::grammar_remark(code, &remark));
        }
        if system.is_abstract(concept) && !self.validator.request.abstract_allowed {
            self.result.in_set = false;
            self.report_at("code", ValidationIssue::abstract_code(&system.url, code));
            self.report_not_in_set();
        }
        if system.is_inactive(concept) {
            let status = system.concept_status(concept).filter(|status| *status != "inactive");
            self.result.inactive = true;
            self.result.status = status.map(String::from);
            self.report(ValidationIssue::inactive(code, status));
        } else if system.is_deprecated(concept) {
            self.result.status = Some("deprecated".to_owned());
            self.report(ValidationIssue::deprecated(code));
        }
        if member.listed.is_some_and(|code| code.deprecated) {
            let set = member.set.canonical();
            self.report_at("code", ValidationIssue::deprecated_in_value_set(code, &system.url, &set));
        }
    }

    /// Reports what SNOMED CT's concept model forbids in an expression. An expression in a value set that
    /// selects codes is one that its author wanted, so that only other answers say that it was not checked,
    /// as HL7's tests expect.
    fn check_concept_model(&mut self, system: &CodeSystem, is_of_all: bool) -> Result<(), TxError> {
        if !system.is_excerpt() {
            return Ok(());
        }
        let CodingValidator { catalog, budget, .. } = *self.validator;
        let mode = catalog.concept_model();
        let whole = catalog.code_system(&system.url, system.version.as_deref());
        let whole = whole
            .filter(|_| mode != ConceptModelMode::Off)
            .map(|resource| resource.get(budget))
            .transpose()?;
        match whole.and_then(|whole| ConceptModel::of(whole, budget)) {
            None if is_of_all => self.report_at("code", ValidationIssue::concept_model_not_checked()),
            None => {}
            Some(model) => {
                for fault in model.faults(self.code())? {
                    let is_rejected = mode == ConceptModelMode::Reject;
                    self.result.in_set &= !is_rejected;
                    self.report_at("code", ValidationIssue::concept_model_fault(&fault, is_rejected));
                }
            }
        }
        Ok(())
    }

    fn check_version(&mut self, system: &CodeSystem, member: &CodeMatch<'a>) {
        let CodingValidator { catalog, request, .. } = self.validator;
        let actual = system.version.as_deref().unwrap_or_default();
        if let Some(required) = pinned(&request.pins.check, &system.url)
            && !canonical::matches(required, actual)
        {
            self.report_at("version", ValidationIssue::version_check(&system.url, actual, required));
        }
        let requested = self.result.coding.version.as_deref();
        let is_chosen = requested.is_some() || request.pins.replacing(&system.url, None).is_some();
        if system.header.version_needed && !is_chosen {
            self.report_at("version", ValidationIssue::no_version(&system.url, self.code(), actual));
        }
        let Some(version) = requested.filter(|requested| !canonical::matches(requested, actual)) else {
            return;
        };
        let is_stored = catalog.code_system(&system.url, Some(version)).is_some();
        let stated = member.written_version;
        let issue = match (request.pins.replacing(&system.url, stated), stated) {
            (Some(pin), _) => {
                ValidationIssue::version_mismatch(&system.url, pin, Some(stated.unwrap_or_default()), version)
            }
            (None, None) if is_stored => {
                ValidationIssue::version_mismatch(&system.url, actual, None, version)
            }
            (None, None) => ValidationIssue::default_version_mismatch(&system.url, actual, version),
            (None, Some(stated)) => ValidationIssue::version_mismatch(&system.url, stated, None, version),
        };
        self.report_at("version", issue);
        if !is_stored {
            self.report_unknown_version(&system.url, version);
        }
    }

    fn report_unknown_version(&mut self, system: &str, version: &str) {
        let versions = self.validator.catalog.code_system_versions(system);
        self.report_at("system", ValidationIssue::unknown_code_system(system, Some(version), &versions));
        self.result.missing.push(canonical::join(system, Some(version)));
    }

    fn check_display(&mut self, member: &CodeMatch<'a>) -> Result<(), TxError> {
        let (validator, coding) = (self.validator, self.result.coding);
        let displays = validator.displays(member)?;
        self.result.display = validator.languages.choose(&displays).map(String::from);
        let Some(display) = coding.display.as_deref().filter(|_| !displays.is_empty()) else {
            return Ok(());
        };
        let url = coding.system.as_deref().unwrap_or_default();
        // UCUM has no official displays; a value set may list some.
        let is_listed = member.listed.is_some_and(|code| code.display.is_some());
        if url == UCUM && !is_listed && validator.catalog.is_endless(url) {
            return Ok(());
        }
        let code = self.code();
        let concept_text = format!("{url}#{code}");
        let issue = match display_check::compare_display(display, &displays, &validator.languages) {
            DisplayVerdict::Right => return Ok(()),
            // For a code that is not in the set, only errors are reported.
            DisplayVerdict::RightByDefault { .. } if !self.result.in_set => return Ok(()),
            DisplayVerdict::RightByDefault { languages } => {
                ValidationIssue::display_by_default(display, &concept_text, &languages)
            }
            DisplayVerdict::Retired { right } => ValidationIssue::retired_display(display, code, &right),
            DisplayVerdict::WrongByDefault { languages, default } => {
                ValidationIssue::wrong_display_by_default(display, &concept_text, &languages, default)
            }
            DisplayVerdict::Wrong { whitespace, languages, right } => {
                ValidationIssue::wrong_display(display, &concept_text, whitespace, &right, &languages)
            }
        };
        // The user who assigned the meaning of a code, or combined concepts, also chose the display.
        let is_assigned = member
            .system
            .zip(member.concept)
            .is_some_and(|(system, concept)| system.is_excerpt() || system.is_user_assigned(concept));
        let soften = validator.request.lenient_display && issue.issue.severity == Severity::Error;
        let issue = match () {
            () if is_assigned => issue.into_information(),
            () if soften => issue.into_warning(),
            () => issue,
        };
        self.report_at("display", issue);
        Ok(())
    }

    /// Reports a code system and imported value sets that are not, or no longer, intended for use. These
    /// issues have no path.
    fn report_states(&mut self, system: &CodeSystem, member: &CodeMatch<'_>) {
        let source = ResourceState::of_value_set(member.set);
        if let Some(status) = ResourceState::of_system(system).state_to_report(&source) {
            let canonical = canonical::join(&system.url, system.version.as_deref());
            self.result.issues.push(ValidationIssue::status(status, "CodeSystem", &canonical));
        }
        let own = ResourceState::of_value_set(self.validator.set);
        for set in &member.via {
            if let Some(status) = ResourceState::of_value_set(set).state_to_report(&own) {
                self.result.issues.push(ValidationIssue::status(status, "ValueSet", &set.canonical()));
            }
        }
    }

    /// Reports that the value set needs a code system or version that is not stored.
    fn report_undecided(&mut self, system: &str, version: Option<&str>) -> Result<(), TxError> {
        let (validator, requested) = (self.validator, self.result.coding.version.as_deref());
        if let (Some(version), Some(requested)) = (version, requested)
            && version != requested
        {
            self.report_at("version", ValidationIssue::version_mismatch(system, version, None, requested));
        }
        let versions = validator.catalog.code_system_versions(system);
        self.report_at("system", ValidationIssue::unknown_code_system(system, version, &versions));
        self.result.undecided = true;
        self.result.missing.push(canonical::join(system, version.filter(|_| !versions.is_empty())));
        // The display of another version helps a person more than none.
        if let Some(resource) =
            validator.catalog.code_system(system, validator.wanted_version(system, requested))
        {
            let system = resource.get(validator.budget)?;
            self.result.version = system.version.clone();
            let concept = system.find(self.code());
            self.result.display = concept.and_then(|concept| system.display(concept)).map(String::from);
        }
        Ok(())
    }

    /// Reports what the code system contains about a code that is not in the value set.
    fn report_non_member(&mut self, url: &str) -> Result<(), TxError> {
        let (validator, code) = (self.validator, self.code());
        if validator.request.membership_only {
            return Ok(());
        }
        let version = validator.wanted_version(url, self.result.coding.version.as_deref());
        let Some(resource) = validator.catalog.code_system_for(url, version, code, validator.budget)? else {
            return self.report_unknown_system(url, version);
        };
        let system = resource.get(validator.budget)?;
        self.result.version = system.version.clone();
        match system.find(code) {
            Some(concept) => {
                let member = validator.system_match(system, Some(concept));
                self.check_display(&member)?;
                self.report_states(system, &member);
            }
            None if system.content == ContentMode::Complete => {
                let version = system.version.as_deref();
                self.report_at("code", ValidationIssue::unknown_code(code, url, version));
                let is_grammar = validator.catalog.is_endless(url);
                let rejection = match grammar::rejection_reason(url, code).filter(|_| is_grammar) {
                    None => validator.catalog.expression_fault(system, code, validator.budget)?,
                    rejection => rejection,
                };
                if let Some(reason) = rejection {
                    self.report_at("code", ValidationIssue::not_in_grammar(code, &reason));
                } else if let Some(edition) =
                    validator.catalog.edition_with(system, code, validator.budget)?
                {
                    self.report_at("code", ValidationIssue::in_other_edition(code, &edition));
                }
            }
            None => {}
        }
        Ok(())
    }

    fn report_unknown_system(&mut self, system: &str, version: Option<&str>) -> Result<(), TxError> {
        let CodingValidator { catalog, budget, .. } = self.validator;
        let has_other_version = catalog.code_system(system, None).is_some();
        let issue = if let Some(version) = version.filter(|_| has_other_version) {
            self.report_unknown_version(system, version);
            return Ok(());
        } else if let Some(supplement) = catalog.supplement(system) {
            let version = supplement.header().and_then(|header| header.version.as_deref());
            ValidationIssue::system_is_supplement(&canonical::join(system, version))
        } else if catalog.value_set(system, None, budget)?.is_some() {
            ValidationIssue::system_is_value_set(system)
        } else if !system.contains(':') && !matches!(self.path, CodingPath::Code) {
            ValidationIssue::relative_system()
        } else {
            self.result.missing.push(system.to_owned());
            match version {
                None if system.contains(':') => ValidationIssue::foreign_code_system(system),
                _ => ValidationIssue::unknown_code_system(system, version, &[]),
            }
        };
        self.report_at("system", issue);
        Ok(())
    }
}
