//! `CodeSystem/$subsumes` (FHIR R4): the relation of two codes of a code system.

use fhir::Parameters;

use super::{OperationInput, OperationLevel};
use crate::catalog::{Catalog, built_in};
use crate::code_system::{CodeSystem, LocatedConcept, Subsumption};
use crate::expression::{self, ExpressionFault};
use crate::interface::parameters::{CODE_A, CODE_B, CODING_A, CODING_B, SUBSUMES_SYSTEM, VERSION};
use crate::model::error::malformed;
use crate::model::known_systems::ISO_3166;
use crate::model::resource_json::ContentMode;
use crate::model::{Budget, TxError, Unprocessable};

/// The two codes with their parameters, and system and version in the request.
struct SubsumesRequest<'a> {
    codes: [(&'static str, &'a str); 2],
    system: Option<&'a str>,
    version: Option<&'a str>,
}

/// Answers `$subsumes`.
pub(crate) fn answer_subsumes(
    catalog: &Catalog,
    level: OperationLevel<'_>,
    input: OperationInput<'_>,
    budget: &Budget<'_>,
) -> Result<Parameters, TxError> {
    budget.set_activity("comparing codes");
    let request = SubsumesRequest::read(input)?;
    let system = match level {
        OperationLevel::Instance(id) => {
            let system = catalog.code_system_by_id(id, budget)?;
            request.check_instance(system)?;
            system
        }
        OperationLevel::Type => {
            let url = request.system.ok_or_else(|| TxError::Missing {
                what: "parameter 'system' is required unless the operation is called on a CodeSystem"
                    .to_owned(),
            })?;
            let unknown = || TxError::UnknownCodeSystem {
                system: url.to_owned(),
                version: request.version.map(String::from),
                known: catalog.code_system_versions(url),
            };
            // Also finds supplements, so that the error can state the reason.
            let code_system = catalog.code_system(url, request.version).or_else(|| catalog.supplement(url));
            code_system.ok_or_else(unknown)?.get(budget)?
        }
    };
    let mut out = Parameters::new();
    let is_expression = |(_, code): &(&str, &str)| expression::is_expression(&system.url, code);
    let outcome = if catalog.is_endless(&system.url) {
        compare_grammar_codes(catalog, system, request.codes, budget)?
    } else if request.codes.iter().any(is_expression) {
        compare_expressions(system, request.codes, budget)?
    } else {
        compare_codes(catalog, system, request.codes, budget)?
    };
    out.push_code("outcome", outcome.code());
    Ok(out)
}

impl<'a> SubsumesRequest<'a> {
    fn read(input: OperationInput<'a>) -> Result<Self, TxError> {
        let codings = [input.coding(CODING_A)?, input.coding(CODING_B)?];
        let codes = [input.text(CODE_A)?, input.text(CODE_B)?];
        let missing = |name: &str| TxError::Missing { what: format!("parameter '{name}' is missing") };
        let (mut system, mut version) = (input.text(SUBSUMES_SYSTEM)?, input.text(VERSION)?);
        let codes = match (codes, codings) {
            ([a, b], [None, None]) => {
                [("codeA", a.ok_or_else(|| missing("codeA"))?), ("codeB", b.ok_or_else(|| missing("codeB"))?)]
            }
            ([None, None], [a, b]) => {
                let a = a.ok_or_else(|| missing("codingA"))?;
                let b = b.ok_or_else(|| missing("codingB"))?;
                for (name, coding) in [("codingA", a), ("codingB", b)] {
                    merge_coding_member(name, "system", &mut system, coding.system.as_deref())?;
                    merge_coding_member(name, "version", &mut version, coding.version.as_deref())?;
                }
                let code = |name, code: Option<&'a str>| {
                    code.filter(|code| !code.is_empty()).ok_or_else(|| malformed(name, "it has no code"))
                };
                [
                    ("codingA", code("codingA", a.code.as_deref())?),
                    ("codingB", code("codingB", b.code.as_deref())?),
                ]
            }
            _ => return Err(malformed("codeA", "send either codeA and codeB or codingA and codingB")),
        };
        Ok(Self { codes, system, version })
    }

    /// Checks system and version of the request against the instance in the path.
    fn check_instance(&self, system: &CodeSystem) -> Result<(), TxError> {
        if let Some(url) = self.system.filter(|url| *url != system.url) {
            return Err(malformed(
                "system",
                format!("'{url}' is not the system of this CodeSystem, '{}'", system.url),
            ));
        }
        match self.version.filter(|version| Some(*version) != system.version.as_deref()) {
            None => Ok(()),
            Some(version) => Err(TxError::UnknownCodeSystem {
                system: system.url.clone(),
                version: Some(version.to_owned()),
                known: system.version.iter().cloned().collect(),
            }),
        }
    }
}

/// Sets a value from a coding, and checks that it does not contradict an earlier one.
fn merge_coding_member<'a>(
    name: &str,
    member: &str,
    current: &mut Option<&'a str>,
    coding: Option<&'a str>,
) -> Result<(), TxError> {
    match (*current, coding) {
        (Some(before), Some(now)) if before != now => Err(malformed(
            name,
            format!("its {member} '{now}' differs from the {member} '{before}' of another parameter"),
        )),
        (_, now) => {
            *current = current.or(now);
            Ok(())
        }
    }
}

/// Compares codes of a grammar. Each code is looked up separately, and no code is an ancestor of another.
fn compare_grammar_codes(
    catalog: &Catalog,
    frame: &CodeSystem,
    codes: [(&'static str, &str); 2],
    budget: &Budget<'_>,
) -> Result<Subsumption, TxError> {
    let word = |(parameter, code): (&'static str, &str)| {
        let system = catalog
            .code_system_for(&frame.url, None, code, budget)?
            .map(|resource| resource.get(budget))
            .transpose()?;
        let resource = system.and_then(|system| Some(system.code(system.find(code)?).to_owned()));
        resource.ok_or_else(|| unknown_code(frame, parameter, code, None))
    };
    Ok(match word(codes[0])? == word(codes[1])? {
        true => Subsumption::Equivalent,
        false => Subsumption::NotSubsumed,
    })
}

/// Compares two codes, of which at least one is an expression of SNOMED CT.
fn compare_expressions(
    system: &CodeSystem,
    codes: [(&'static str, &str); 2],
    budget: &Budget<'_>,
) -> Result<Subsumption, TxError> {
    require_codes(system)?;
    system.require_is_a_hierarchy()?;
    expression::compare(system, codes.map(|(_, code)| code), budget).map_err(|(which, fault)| match fault {
        ExpressionFault::Exhausted(exhausted) => exhausted.into(),
        fault => unknown_code(system, codes[which].0, codes[which].1, Some(fault.to_string())),
    })
}

/// Checks that a code system has codes to compare.
fn require_codes(system: &CodeSystem) -> Result<(), TxError> {
    match system.content {
        ContentMode::Complete | ContentMode::Fragment => Ok(()),
        content => Err(Unprocessable::Content { system: system.url.clone(), content: content.name() }.into()),
    }
}

fn unknown_code(system: &CodeSystem, parameter: &'static str, code: &str, reason: Option<String>) -> TxError {
    TxError::UnknownCode {
        reason,
        parameter,
        code: code.to_owned(),
        system: system.url.clone(),
        version: system.version.clone(),
    }
}

fn compare_codes(
    catalog: &Catalog,
    system: &CodeSystem,
    codes: [(&'static str, &str); 2],
    budget: &Budget<'_>,
) -> Result<Subsumption, TxError> {
    require_codes(system)?;
    let [a, b] = system.locate_all(codes.map(|(_, code)| code));
    let located = |concept: Option<LocatedConcept>, (parameter, code): (&'static str, &str)| match concept {
        Some(concept) => Ok(concept),
        None => Err(unknown_code(system, parameter, code, catalog.edition_with(system, code, budget)?)),
    };
    let (a, b) = (located(a, codes[0])?, located(b, codes[1])?);
    let is_same_country = system.url == ISO_3166 && built_in::is_same_country(codes[0].1, codes[1].1);
    if a.at == b.at || is_same_country {
        return Ok(Subsumption::Equivalent);
    }
    let hierarchy = system.require_is_a_hierarchy()?;
    budget.spend(1 + 2 * hierarchy.walk_steps())?;
    Ok(Subsumption::between(hierarchy, a, b))
}
