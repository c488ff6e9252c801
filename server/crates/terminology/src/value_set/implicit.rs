//! Value sets that no resource defines, but an address: those of SNOMED CT (`?fhir_vs`, FHIR R4 4.3.15) and of LOINC
//! (`http://loinc.org/vs`).

use std::borrow::Cow;

use super::filter::{Filter, Op};
use super::{Include, ValueSet};
use crate::ecl::Constraint;
use crate::load::{LOINC, SNOMED_CT};
use crate::wire;

/// The value set that an address stands for, where it is such an address. What is wrong with it is told when it is
/// used.
pub(crate) fn value_set(url: &str) -> Option<ValueSet> {
    snomed_ct(url).or_else(|| loinc(url))
}

/// `http://snomed.info/sct[/MODULE[/version/DATE]]?fhir_vs[=…]`
fn snomed_ct(url: &str) -> Option<ValueSet> {
    let (base, query) = url.split_once('?')?;
    let edition = base.strip_prefix(SNOMED_CT).or_else(|| base.strip_prefix("http://snomed.info/xsct"))?;
    if !(edition.is_empty() || edition.starts_with('/')) {
        return None;
    }
    let version = (!edition.is_empty()).then(|| base.to_owned());
    let asked = match query.strip_prefix("fhir_vs")? {
        "" => "",
        rest => rest.strip_prefix('=')?,
    };
    let filter = if asked.is_empty() {
        None
    } else if asked == "refset" {
        Some((written("concept", "in", "*"), Ok(Op::IsSubset)))
    } else if let Some(code) = asked.strip_prefix("isa/") {
        Some((written("concept", "is-a", code), Ok(Op::IsA)))
    } else if let Some(code) = asked.strip_prefix("refset/") {
        Some((written("concept", "in", code), Ok(Op::MemberOf)))
    } else {
        let text = decode(asked.strip_prefix("ecl/")?);
        let constraint = Constraint::parse(&text).map_err(|fault| fault.to_string());
        Some((written("constraint", "=", &text), constraint.map(|constraint| Op::Ecl(Box::new(constraint)))))
    };
    Some(of(url, SNOMED_CT, version, filter))
}

/// `http://loinc.org/vs`, `/vs/LL…` (answer lists), `/vs/LG…` (groups), `/vs/LP…` (parts and what is below them).
fn loinc(url: &str) -> Option<ValueSet> {
    let rest = url.strip_prefix(LOINC)?.strip_prefix("/vs")?;
    let filter = match rest.strip_prefix('/') {
        None if rest.is_empty() => None,
        Some(code) if code.starts_with("LL") || code.starts_with("LG") => {
            Some((written("LIST", "=", code), Ok(Op::MemberOf)))
        }
        Some(code) if code.starts_with("LP") => Some((written("concept", "is-a", code), Ok(Op::IsA))),
        _ => return None,
    };
    Some(of(url, LOINC, None, filter))
}

fn written(property: &str, op: &str, value: &str) -> wire::Filter {
    wire::Filter { property: property.to_owned(), op: op.to_owned(), value: value.to_owned() }
}

fn of(
    url: &str,
    system: &str,
    version: Option<String>,
    filter: Option<(wire::Filter, Result<Op, String>)>,
) -> ValueSet {
    let mut set = ValueSet { url: url.to_owned(), status: Some("active".to_owned()), ..ValueSet::default() };
    let version = version.map(Box::from);
    let mut include = Include { system: Some(system.into()), version, ..Include::default() };
    if let Some((written, op)) = filter {
        match Filter::ready(written, op, system, "ValueSet.url") {
            Ok(filter) => include.filters.push(filter),
            Err(fault) => set.compose.set_fault(fault),
        }
    }
    set.compose.include.push(include);
    set.compose.finish();
    set
}

/// Undoes percent-encoding, where the address was not decoded already.
fn decode(text: &str) -> Cow<'_, str> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let hex = |at: usize| after.get(at).and_then(|byte| char::from(*byte).to_digit(16));
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
