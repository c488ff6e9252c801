//! Value sets that are defined by their URL: those of SNOMED CT (`?fhir_vs`, FHIR R4 4.3.15) and of LOINC
//! (`http://loinc.org/vs`), and those of all codes of the built-in code systems of FHIR R4.

use std::borrow::Cow;

use super::ecl::EclConstraint;
use super::filter::{FilterOperator, ValueSetFilter};
use super::{IncludeRule, ValueSet};
use crate::model::known_systems::{
    ADMINISTRATIVE_GENDER, FHIR_VERSION, LOINC, PUBLICATION_STATUS, SNOMED_CT, SNOMED_CT_UNPUBLISHED,
};
use crate::model::resource_json;

/// The value set that a URL defines, if it defines one. Errors in the URL are reported when the value set is
/// used.
pub(crate) fn implicit_value_set(url: &str) -> Option<ValueSet> {
    snomed_ct_value_set(url).or_else(|| loinc_value_set(url)).or_else(|| fhir_value_set(url))
}

/// The value set of all genders or publication statuses of FHIR R4.
fn fhir_value_set(url: &str) -> Option<ValueSet> {
    let name = url.strip_prefix("http://hl7.org/fhir/ValueSet/")?;
    let is_of = |system: &&str| system.strip_prefix("http://hl7.org/fhir/") == Some(name);
    let system = [ADMINISTRATIVE_GENDER, PUBLICATION_STATUS].into_iter().find(is_of)?;
    let version = Some(FHIR_VERSION.to_owned());
    Some(ValueSet { version, ..filtered_value_set(url, system, None, None) })
}

/// The value set of `http://snomed.info/sct[/MODULE[/version/DATE]]?fhir_vs[=…]`.
fn snomed_ct_value_set(url: &str) -> Option<ValueSet> {
    let (base, query) = url.split_once('?')?;
    let edition = base.strip_prefix(SNOMED_CT).or_else(|| base.strip_prefix(SNOMED_CT_UNPUBLISHED))?;
    if !(edition.is_empty() || edition.starts_with('/')) {
        return None;
    }
    let version = (!edition.is_empty()).then(|| base.to_owned());
    let selector = match query.strip_prefix("fhir_vs")? {
        "" => "",
        rest => rest.strip_prefix('=')?,
    };
    let filter = if selector.is_empty() {
        None
    } else if selector == "refset" {
        Some((written_filter("concept", "in", "*"), Ok(FilterOperator::IsSubset)))
    } else if let Some(code) = selector.strip_prefix("isa/") {
        Some((written_filter("concept", "is-a", code), Ok(FilterOperator::IsA)))
    } else if let Some(code) = selector.strip_prefix("refset/") {
        Some((written_filter("concept", "in", code), Ok(FilterOperator::MemberOf)))
    } else {
        let text = decode_percent(selector.strip_prefix("ecl/")?);
        let constraint = EclConstraint::parse(&text).map_err(|fault| fault.to_string());
        Some((
            written_filter("constraint", "=", &text),
            constraint.map(|constraint| FilterOperator::Ecl(Box::new(constraint))),
        ))
    };
    Some(filtered_value_set(url, SNOMED_CT, version, filter))
}

/// The value set of `http://loinc.org/vs`, `/vs/LL…` (answer lists), `/vs/LG…` (groups) or `/vs/LP…` (parts
/// and their descendants).
fn loinc_value_set(url: &str) -> Option<ValueSet> {
    let rest = url.strip_prefix(LOINC)?.strip_prefix("/vs")?;
    let filter = match rest.strip_prefix('/') {
        None if rest.is_empty() => None,
        Some(code) if code.starts_with("LL") || code.starts_with("LG") => {
            Some((written_filter("LIST", "=", code), Ok(FilterOperator::MemberOf)))
        }
        Some(code) if code.starts_with("LP") => {
            Some((written_filter("concept", "is-a", code), Ok(FilterOperator::IsA)))
        }
        _ => return None,
    };
    Some(filtered_value_set(url, LOINC, None, filter))
}

fn written_filter(property: &str, op: &str, value: &str) -> resource_json::FilterJson {
    resource_json::FilterJson { property: property.to_owned(), op: op.to_owned(), value: value.to_owned() }
}

fn filtered_value_set(
    url: &str,
    system: &str,
    version: Option<String>,
    filter: Option<(resource_json::FilterJson, Result<FilterOperator, String>)>,
) -> ValueSet {
    let mut set = ValueSet { url: url.to_owned(), status: Some("active".to_owned()), ..ValueSet::default() };
    let version = version.map(Box::from);
    let mut include = IncludeRule { system: Some(system.into()), version, ..IncludeRule::default() };
    if let Some((written, op)) = filter {
        match ValueSetFilter::with_operator(written, op, system, "ValueSet.url") {
            Ok(filter) => include.filters.push(filter),
            Err(fault) => set.compose.set_fault(fault),
        }
    }
    set.compose.include.push(include);
    set.compose.build_indexes();
    set
}

/// Decodes percent-encoding, if the URL is not decoded yet.
fn decode_percent(text: &str) -> Cow<'_, str> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let hex = |index: usize| after.get(index).and_then(|byte| char::from(*byte).to_digit(16));
        match (byte, hex(0), hex(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = &after[2..];
            }
            _ => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).map_or(Cow::Borrowed(text), Cow::Owned)
}
