//! `CodeSystem/$validate-code` (FHIR R4): whether a code is in a code system, and whether its display and
//! version are correct. A code system counts as the value set of all its codes, so the rules are the same.

use fhir::Parameters;

use super::coding_validator::CodingValidator;
use super::request::{CodingPath, ValidateOperation, ValidateRequest, ValidateSubject};
use super::{LocationRule, ValidateAnswer, languages, supplements, validate_all_codings};
use crate::catalog::{BYTES_PER_STEP, Catalog};
use crate::code_system::CodeSystem;
use crate::interface::parameters::{CODE_SYSTEM, CODE_SYSTEM_ALIAS, CODE_SYSTEM_URL, VERSION};
use crate::model::error::malformed;
use crate::model::resource_json::ContentMode;
use crate::model::{Budget, TxError, canonical};
use crate::ops::messages::ValidationIssue;
use crate::ops::shared_parameters::sent_resource;
use crate::ops::{OperationInput, OperationLevel};
use crate::value_set::ValueSet;

/// Answers `CodeSystem/$validate-code`.
pub(crate) fn answer_code_system(
    catalog: &Catalog,
    level: OperationLevel<'_>,
    input: OperationInput<'_>,
    budget: &Budget<'_>,
) -> Result<Parameters, TxError> {
    budget.set_activity("validating codes");
    let mut request = ValidateRequest::read(input, ValidateOperation::CodeSystem, budget)?;
    let resource;
    let system = match level {
        OperationLevel::Instance(id) => Ok(catalog.code_system_by_id(id, budget)?),
        OperationLevel::Type => match sent_resource(input, CODE_SYSTEM)? {
            Some((header, json)) => {
                budget.spend(json.get().len() / BYTES_PER_STEP)?;
                resource = CodeSystem::compile(&header, json.get().as_bytes())
                    .map_err(|reason| malformed("codeSystem", reason))?;
                Ok(&resource)
            }
            None => find_code_system(catalog, &request, input, budget)?,
        },
    };
    let system = match system {
        Ok(system) if matches!(system.content, ContentMode::Complete | ContentMode::Fragment) => system,
        Ok(system) => {
            let canonical = canonical::join(&system.url, system.version.as_deref());
            let reason = match system.content {
                ContentMode::Supplement => ValidationIssue::system_is_supplement(&canonical),
                _ => ValidationIssue::unknown_code_system(&system.url, None, &[]),
            };
            return Ok(unusable(&request, reason, system.url.clone()));
        }
        Err((reason, canonical)) => return Ok(unusable(&request, reason, canonical)),
    };
    if !match_codings(&mut request, system)? {
        return Ok(unusable(&request, ValidationIssue::no_coding_of_system(&system.url), String::new()));
    }
    // All checks are those of a value set with every code of the system, so that both operations agree.
    let set = ValueSet::of_all(String::new(), None, system.url.clone());
    let validator = CodingValidator {
        catalog,
        budget,
        request: &request,
        set: &set,
        container: &set,
        system: Some(system),
        supplements: supplements(catalog, &request, &set, budget)?,
        languages: languages(&request, &set)?,
    };
    Ok(validate_all_codings(&validator)?.into_parameters(LocationRule::Always))
}

/// Finds the code system that the request names, or else the one that the coding names. The inner error is
/// the reason for a negative answer.
fn find_code_system<'a>(
    catalog: &'a Catalog,
    request: &ValidateRequest<'_>,
    input: OperationInput<'_>,
    budget: &Budget<'_>,
) -> Result<Result<&'a CodeSystem, (ValidationIssue, String)>, TxError> {
    let (path, coding) = request.codings()[0];
    let url_text = input.text(CODE_SYSTEM_URL)?.or(input.text(CODE_SYSTEM_ALIAS)?);
    let Some(canonical) = url_text.or(coding.system.as_deref()) else {
        return match path {
            CodingPath::Code => Err(TxError::Missing {
                what: "parameter 'url' is required unless the operation is called on a CodeSystem".to_owned(),
            }),
            _ => Ok(Err((ValidationIssue::no_system().at(path.coding_path()), String::new()))),
        };
    };
    let (url, in_url) = canonical::split(canonical);
    let own = coding.version.as_deref().filter(|_| coding.system.as_deref() == Some(url));
    let requested_version = input.text(VERSION)?.or(in_url).or(own);
    let requested_version = request.pins.replacing(url, requested_version).or(requested_version);
    let code = coding.code.as_deref().unwrap_or_default();
    let system = match requested_version {
        None => catalog.code_system_of(url, request.pins.date.as_deref(), code, budget)?,
        version => catalog.code_system_for(url, version, code, budget)?,
    };
    if let Some(resource) = system.or_else(|| catalog.supplement(url)) {
        return Ok(Ok(resource.get(budget)?));
    }
    let versions = catalog.code_system_versions(url);
    let (reason, missing) = if catalog.value_set(url, None, budget)?.is_some() {
        (ValidationIssue::system_is_value_set(url), url.to_owned())
    } else if !url.contains(':') && !matches!(path, CodingPath::Code) {
        (ValidationIssue::relative_system(), url.to_owned())
    } else {
        let canonical = canonical::join(url, requested_version.filter(|_| !versions.is_empty()));
        (ValidationIssue::unknown_code_system(url, requested_version, &versions), canonical)
    };
    Ok(Err((reason.at(path.member_path("system")), missing)))
}

/// The answer without a usable code system. `cause` is its canonical URL, if known.
fn unusable(request: &ValidateRequest<'_>, issue: ValidationIssue, cause: String) -> Parameters {
    let (path, coding) = request.codings()[0];
    let reason = match issue.issue.expression.is_empty() && !cause.is_empty() {
        true => issue.at(path.member_path("system")),
        false => issue,
    };
    let missing = Some(cause).filter(|cause| !cause.is_empty()).into_iter().collect();
    let mut response = ValidateAnswer { issues: vec![reason], missing, ..ValidateAnswer::default() };
    match &request.subject {
        ValidateSubject::Concept(concept) => response.concept = Some((*concept).clone()),
        ValidateSubject::Code(_) | ValidateSubject::Coding(_) => response.copy_coding(coding),
    }
    response.into_parameters(LocationRule::Always)
}

/// Checks the codings against the code system, and returns whether any of them is from it. A code without a
/// system is taken as a code of this system. Of a CodeableConcept, only the codings from this system are
/// validated.
///
/// # Errors
/// [`TxError`] if a code or coding is from another system, because FHIR requires them to match.
fn match_codings(request: &mut ValidateRequest<'_>, system: &CodeSystem) -> Result<bool, TxError> {
    let other = |url: &str| format!("'{url}' is not the requested code system, '{}'", system.url);
    match &mut request.subject {
        ValidateSubject::Code(coding) => match &coding.system {
            Some(url) if *url != system.url => Err(malformed("url", other(url))),
            _ => {
                coding.system = Some(system.url.clone());
                Ok(true)
            }
        },
        ValidateSubject::Coding(coding) => match coding.system.as_deref() {
            Some(url) if url != system.url => Err(malformed("coding", other(url))),
            _ => Ok(true),
        },
        ValidateSubject::Concept(concept) => {
            Ok(concept.coding.iter().any(|coding| coding.system.as_deref() == Some(&system.url)))
        }
    }
}
