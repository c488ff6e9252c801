//! `$validate-code` (FHIR R4) on ValueSet and on CodeSystem: whether a code is a member, and whether its
//! display and version are correct. Also `ValueSet/$batch-validate-code` (HL7's terminology ecosystem).
//!
//! Each coding is validated separately ([`coding_validator`]), and [`ValidateAnswer`] combines the results.

pub(crate) mod batch;
mod code_system;
mod coding_validation;
mod coding_validator;
mod concept_model;
mod display_check;
mod location_rule;
mod request;

use std::collections::HashSet;

use fhir::{Coding, OperationOutcome, Parameters, Severity};

pub(crate) use self::batch::answer_batch;
pub(crate) use self::code_system::answer_code_system;
use self::coding_validation::CodingValidation;
use self::coding_validator::{CodingResult, CodingValidator};
use self::location_rule::LocationRule;
use self::request::{CodingPath, ValidateOperation, ValidateRequest, ValidateSubject};
use super::concept_texts::{self, LoadedSupplement};
use super::messages::ValidationIssue;
use super::shared_parameters::{resolve_contained, sent_value_set};
use super::{OperationInput, OperationLevel};
use crate::catalog::Catalog;
use crate::interface::parameters::{CONTEXT, VALUE_SET_URL, VALUE_SET_VERSION};
use crate::membership::imports::{self, ValueSetScope};
use crate::membership::version_pins::pinned;
use crate::model::language::LanguageRanges;
use crate::model::{Budget, TxError, Unprocessable, canonical};
use crate::value_set::ValueSet;

/// Answers `ValueSet/$validate-code`.
pub(crate) fn answer_validate_code(
    catalog: &Catalog,
    level: OperationLevel<'_>,
    input: OperationInput<'_>,
    budget: &Budget<'_>,
) -> Result<Parameters, TxError> {
    budget.set_activity("validating codes");
    let request = ValidateRequest::read(input, ValidateOperation::ValueSet, budget)?;
    let inline;
    let scope = match level {
        OperationLevel::Instance(id) => ValueSetScope::uncontained(catalog.value_set_by_id(id, budget)?),
        OperationLevel::Type => match sent_value_set(input, budget)? {
            Some(set) => {
                inline = set;
                resolve_contained(&inline, input, request.ecosystem)?
            }
            None => ValueSetScope::uncontained(find_value_set(catalog, &request, input, budget)?),
        },
    };
    let ValueSetScope { container, set } = scope;
    match imports::check_value_set(catalog, scope, &request.pins, request.ecosystem, budget) {
        Ok(()) => {}
        // The value set exists, but not its import. In the ecosystem this is a negative answer.
        Err(TxError::UnknownValueSet { url, ecosystem: true }) => {
            return Ok(undefined_answer(&request, ValidationIssue::unknown_value_set(&url)));
        }
        Err(error) => return Err(error),
    }
    let validator = CodingValidator {
        catalog,
        budget,
        request: &request,
        set,
        container,
        system: None,
        supplements: supplements(catalog, &request, set, budget)?,
        languages: languages(&request, set)?,
    };
    let response = match &request.subject {
        ValidateSubject::Code(coding) if coding.system.is_none() => infer_system(&validator, coding)?,
        _ => validate_all_codings(&validator)?,
    };
    Ok(response.into_parameters(LocationRule::for_request(catalog, &request, input, budget)?))
}

/// Validates all codings of the request.
fn validate_all_codings(validator: &CodingValidator<'_, '_>) -> Result<ValidateAnswer, TxError> {
    // Of a CodeableConcept, `CodeSystem/$validate-code` validates only the codings from the requested system.
    let several = matches!(validator.request.subject, ValidateSubject::Concept(_));
    let counts = |coding: &Coding| {
        validator.system.is_none_or(|system| !several || coding.system.as_deref() == Some(&system.url))
    };
    let codings = validator.request.codings().into_iter().filter(|(_, coding)| counts(coding));
    let (mut results, mut held) = (Vec::new(), None);
    for (path, coding) in codings {
        match CodingValidation::run(validator, coding, path) {
            // Another coding may be valid.
            Err(TxError::Unprocessable(Unprocessable::Filter(fault)))
                if several && fault.is_of_other_version =>
            {
                let issue = ValidationIssue::include_left_out(&fault).at(path.member_path("code"));
                results.push(CodingResult { issues: vec![issue], ..CodingResult::new(coding) });
                held.get_or_insert(fault);
            }
            result => results.push(result?),
        }
    }
    if let Some(fault) = held.filter(|_| !results.iter().any(CodingResult::is_valid)) {
        return Err(Unprocessable::Filter(fault).into());
    }
    let mut response = match &validator.request.subject {
        ValidateSubject::Concept(_) => answer_concept(validator, results),
        ValidateSubject::Code(_) | ValidateSubject::Coding(_) => {
            answer_coding(validator, results.swap_remove(0))
        }
    };
    response.issues.extend(validator.set_status());
    Ok(response)
}

/// The answer for a value set that is not completely defined and therefore has no members.
fn undefined_answer(request: &ValidateRequest<'_>, reason: ValidationIssue) -> Parameters {
    let mut response = ValidateAnswer { issues: vec![reason], ..ValidateAnswer::default() };
    match &request.subject {
        ValidateSubject::Code(coding) => response.copy_coding(coding),
        ValidateSubject::Coding(coding) => response.copy_coding(coding),
        ValidateSubject::Concept(concept) => response.concept = Some((*concept).clone()),
    }
    response.into_parameters(LocationRule::Always)
}

fn find_value_set<'a>(
    catalog: &'a Catalog,
    request: &ValidateRequest<'_>,
    input: OperationInput<'_>,
    budget: &Budget<'_>,
) -> Result<&'a ValueSet, TxError> {
    let canonical = match (input.text(VALUE_SET_URL)?, input.text(CONTEXT)?) {
        (Some(url), _) => url,
        (None, Some(context)) => catalog.bound_value_set(context, budget)?,
        (None, None) => {
            return Err(TxError::Missing {
                what: "parameter 'url' is required unless the operation is called on a ValueSet".to_owned(),
            });
        }
    };
    let (url, in_url) = canonical::split(canonical);
    let pin = pinned(&request.pins.value_sets, url);
    let requested_version = input.text(VALUE_SET_VERSION)?.or(in_url).or(pin);
    let set = match requested_version {
        None => catalog.value_set_of(url, request.pins.date.as_deref(), budget)?,
        version => catalog.value_set(url, version, budget)?,
    };
    let unknown = || TxError::UnknownValueSet {
        url: canonical::join(url, requested_version),
        ecosystem: request.ecosystem,
    };
    set.ok_or_else(unknown)
}

/// The supplements that the request or the value set requires.
fn supplements<'a>(
    catalog: &'a Catalog,
    request: &ValidateRequest<'_>,
    set: &ValueSet,
    budget: &Budget<'_>,
) -> Result<Vec<LoadedSupplement<'a>>, TxError> {
    let requested = request.supplements.iter().copied().chain(set.supplements.iter().map(String::as_str));
    Ok(concept_texts::find_supplements(catalog, requested, budget)?)
}

/// The languages from the source with the highest precedence: the request, the value set's fixed list, the
/// header, and the language of the value set.
fn languages(request: &ValidateRequest<'_>, set: &ValueSet) -> Result<LanguageRanges, TxError> {
    match (&request.languages, &set.display_language, &request.header_languages) {
        (Some(requested), ..) => Ok(requested.clone()),
        (None, Some(fixed), _) => LanguageRanges::parse(fixed),
        (None, None, Some(header)) => Ok(header.clone()),
        // The language of a resource is not a request, so an invalid one is ignored.
        (None, None, None) => {
            Ok(set.language.as_deref().and_then(|own| LanguageRanges::parse(own).ok()).unwrap_or_default())
        }
    }
}

/// Finds the one code system of the value set that has the code (`inferSystem`).
fn infer_system(validator: &CodingValidator<'_, '_>, coding: &Coding) -> Result<ValidateAnswer, TxError> {
    let code = coding.code.as_deref().unwrap_or_default();
    let mut matches = Vec::new();
    let scope = ValueSetScope { container: validator.container, set: validator.set };
    for system in
        imports::code_systems_of(validator.catalog, scope, &validator.request.pins, validator.budget)?
    {
        if !validator.search(system, coding)?.members.is_empty() {
            matches.push(system);
        }
    }
    let set = validator.set.canonical();
    let reason = match matches.as_slice() {
        [system] => {
            let coding = Coding { system: Some((*system).to_owned()), ..coding.clone() };
            let mut response =
                answer_coding(validator, CodingValidation::run(validator, &coding, CodingPath::Code)?);
            response.issues.extend(validator.set_status());
            return Ok(response);
        }
        [] => ValidationIssue::cannot_infer(code, &set),
        several => ValidationIssue::cannot_choose(code, &set, several),
    };
    let issues = vec![
        ValidationIssue::not_in_value_set(&format!("#{code}"), &set, false).at("code".to_owned()),
        reason.at("code".to_owned()),
    ];
    Ok(ValidateAnswer { code: Some(code.to_owned()), issues, ..ValidateAnswer::default() })
}

/// The content of an answer. Parameters are written in a fixed order.
#[derive(Debug, Default)]
struct ValidateAnswer {
    result: bool,
    display: Option<String>,
    code: Option<String>,
    system: Option<String>,
    version: Option<String>,
    normalized_code: Option<String>,
    inactive: bool,
    status: Option<String>,
    concept: Option<fhir::CodeableConcept>,
    /// Code systems that are not stored.
    missing: Vec<String>,
    /// Whether the code is not in the value set, regardless of those code systems.
    decided: bool,
    issues: Vec<ValidationIssue>,
}

impl ValidateAnswer {
    /// Repeats the coding of the request.
    fn copy_coding(&mut self, coding: &Coding) {
        self.code = coding.code.clone();
        self.system = coding.system.clone();
        self.version = coding.version.clone();
    }

    fn into_parameters(mut self, location: LocationRule) -> Parameters {
        if !location.applies_to(&self.issues) {
            self.issues.iter_mut().for_each(|note| note.issue.location.clear());
        }
        let mut out = Parameters::new();
        out.push_boolean("result", self.result);
        let is_in_message =
            |note: &&ValidationIssue| note.in_message || note.issue.severity == Severity::Error;
        let mut texts: Vec<_> =
            self.issues.iter().filter(is_in_message).map(|note| note.issue.text()).collect();
        // HL7's tests compare the message as a whole, so that its order must not depend on that of the
        // checks.
        texts.sort_unstable();
        texts.dedup();
        let message = texts.join("; ");
        if !message.is_empty() {
            out.push_string("message", message);
        }
        if let Some(display) = self.display {
            out.push_string("display", display);
        }
        if let Some(code) = self.code {
            out.push_code("code", code);
        }
        if let Some(system) = self.system {
            out.push_uri("system", system);
        }
        if let Some(version) = self.version {
            out.push_string("version", version);
        }
        if let Some(code) = self.normalized_code {
            out.push_code("normalized-code", code);
        }
        if self.inactive {
            out.push_boolean("inactive", true);
        }
        if let Some(status) = self.status {
            out.push_code("status", status);
        }
        if let Some(concept) = self.concept {
            out.push("codeableConcept", fhir::Value::CodeableConcept(concept));
        }
        let name = if self.decided { "x-unknown-system" } else { "x-caused-by-unknown-system" };
        for canonical in self.missing {
            out.push(name, fhir::Value::Text("Canonical", canonical));
        }
        if !self.issues.is_empty() {
            let issues = self.issues.into_iter().map(|note| note.issue).collect();
            out.push_outcome("issues", OperationOutcome::new(issues));
        }
        out
    }
}

fn answer_coding(validator: &CodingValidator<'_, '_>, result: CodingResult<'_>) -> ValidateAnswer {
    // Only the parameters of the terminology ecosystem distinguish an unknown code system that decides the
    // result from one that does not: a code that is outside of the value set in any case.
    let decided = validator.request.ecosystem && !result.in_set && !result.undecided;
    ValidateAnswer { result: result.is_valid(), decided, ..to_answer(result) }
}

/// Converts the result of one coding to an answer, with `result` left open.
fn to_answer(result: CodingResult<'_>) -> ValidateAnswer {
    let coding = result.coding;
    ValidateAnswer {
        result: false,
        display: result.display,
        code: coding.code.clone(),
        system: coding.system.clone(),
        version: result.version,
        normalized_code: result.normalized_code,
        inactive: result.inactive,
        status: result.status,
        concept: None,
        missing: result.missing,
        decided: false,
        issues: result.issues,
    }
}

/// Combines the results of a concept. It is valid if one coding is in the value set (FHIR R4). Records
/// contain local codes next to standard ones: if one coding is valid, another one of an unknown code system
/// or version has only warnings. The ecosystem requires that the other codings have no error; in the plain
/// interface their errors become warnings too.
fn answer_concept(validator: &CodingValidator<'_, '_>, mut results: Vec<CodingResult<'_>>) -> ValidateAnswer {
    let plain = !validator.request.ecosystem;
    let right = results.iter().position(CodingResult::is_valid);
    if let Some(right) = right {
        let others = results.iter_mut().enumerate().filter(|(index, _)| *index != right);
        let others = others.filter(|(_, other)| plain || !other.missing.is_empty());
        others.for_each(|(_, other)| other.accept_beside_valid());
    }
    let member = right.or_else(|| results.iter().position(|one| one.in_set));
    let undecided = results.iter().any(|one| one.undecided);
    let valid = member.is_some() && results.iter().all(CodingResult::has_no_error);
    let mut response = match member {
        Some(index) => to_answer(results.remove(index)),
        // If several codings were validated, the answer does not describe a single one of them.
        None => ValidateAnswer {
            inactive: results.iter().any(|one| one.inactive),
            status: results.iter().find_map(|one| one.status.clone()),
            version: results.first().filter(|_| undecided).and_then(|one| one.version.clone()),
            ..ValidateAnswer::default()
        },
    };
    let mut missing: HashSet<String> = response.missing.iter().cloned().collect();
    for one in results {
        response.issues.extend(one.issues);
        response
            .missing
            .extend(one.missing.into_iter().filter(|canonical| missing.insert(canonical.clone())));
    }
    if member.is_none() && !undecided && validator.system.is_none() {
        let set = validator.set.canonical();
        response.issues.insert(0, ValidationIssue::no_valid_coding(&set));
    }
    if let ValidateSubject::Concept(concept) = &validator.request.subject {
        response.concept = Some((*concept).clone());
    }
    let decided = !plain && member.is_none() && !undecided;
    ValidateAnswer { result: valid, decided, ..response }
}
