//! The parts of a request that several operations read: the value set that it contains, the versions that it
//! fixes, and its date.

use serde_json::value::RawValue;

use super::OperationInput;
use crate::catalog::BYTES_PER_STEP;
use crate::interface::parameters::{
    CHECK_SYSTEM_VERSION, DATE, DEFAULT_SYSTEM_VERSION, DEFAULT_VALUE_SET_VERSION, FORCE_SYSTEM_VERSION,
    OneResource, Texts, VALUE_SET, VALUE_SET_URL,
};
use crate::membership::imports::ValueSetScope;
use crate::membership::version_pins::VersionPins;
use crate::model::error::malformed;
use crate::model::resource_json::ResourceHeader;
use crate::model::{Budget, TxError, canonical};
use crate::value_set::ValueSet;

/// Reads `date`, which is a day or a time. Of a time, only the day is used.
pub(crate) fn read_day(input: OperationInput<'_>) -> Result<Option<String>, TxError> {
    let Some(date) = input.text(DATE)? else { return Ok(None) };
    let day = date.split_once('T').map_or(date, |(day, _)| day);
    let digits = |part: &str, length| part.len() == length && part.bytes().all(|b| b.is_ascii_digit());
    let mut lengths = [4, 2, 2].into_iter();
    if day.split('-').all(|part| lengths.next().is_some_and(|length| digits(part, length))) {
        return Ok(Some(day.to_owned()));
    }
    Err(malformed(DATE.row().name, format!("'{date}' is not a date, such as 2026-11-21")))
}

/// Reads the versions that the request fixes.
pub(crate) fn read_pins(input: OperationInput<'_>, budget: &Budget<'_>) -> Result<VersionPins, TxError> {
    let pairs = |parameter: Texts| {
        let pair = |canonical| match canonical::split(canonical) {
            (url, Some(version)) => Ok((url.to_owned(), version.to_owned())),
            (_, None) => {
                let reason = format!("'{canonical}' has no version; write url|version");
                Err(malformed(parameter.row().name, reason))
            }
        };
        let canonicals = input.texts(parameter)?;
        budget.spend(2 * canonicals.len())?;
        canonicals.into_iter().map(pair).collect::<Result<Vec<_>, TxError>>()
    };
    Ok(VersionPins {
        default: pairs(DEFAULT_SYSTEM_VERSION)?,
        check: pairs(CHECK_SYSTEM_VERSION)?,
        force: pairs(FORCE_SYSTEM_VERSION)?,
        value_sets: pairs(DEFAULT_VALUE_SET_VERSION)?,
        date: read_day(input)?,
    })
}

/// The value set that the request contains as a parameter.
pub(crate) fn sent_value_set(
    input: OperationInput<'_>,
    budget: &Budget<'_>,
) -> Result<Option<ValueSet>, TxError> {
    let Some((header, json)) = sent_resource(input, VALUE_SET)? else { return Ok(None) };
    budget.spend(json.get().len() / BYTES_PER_STEP)?;
    ValueSet::compile(&header, json.get().as_bytes())
        .map(Some)
        .map_err(|reason| malformed(VALUE_SET.row().name, reason))
}

/// The resource that the request contains as a parameter of its own.
pub(crate) fn sent_resource<'a>(
    input: OperationInput<'a>,
    parameter: OneResource,
) -> Result<Option<(ResourceHeader, &'a RawValue)>, TxError> {
    let (name, kind) = (parameter.row().name, parameter.row().fhir_type);
    let Some(json) = input.resource(parameter)? else { return Ok(None) };
    let header = read_header(json, name)?;
    if header.resource_type != kind {
        return Err(malformed(name, format!("it contains a {}, not a {kind}", header.resource_type)));
    }
    Ok(Some((header, json)))
}

pub(crate) fn read_header(json: &RawValue, parameter: &str) -> Result<ResourceHeader, TxError> {
    serde_json::from_str(json.get()).map_err(|error| malformed(parameter, error.to_string()))
}

/// The value set in the request, or the one contained in it that `url` refers to as `#id`.
pub(crate) fn resolve_contained<'a>(
    value_set: &'a ValueSet,
    input: OperationInput<'_>,
    ecosystem: bool,
) -> Result<ValueSetScope<'a>, TxError> {
    let Some(id) = input.text(VALUE_SET_URL)?.and_then(|url| url.strip_prefix('#')) else {
        return Ok(ValueSetScope::uncontained(value_set));
    };
    let unknown = || TxError::UnknownValueSet { url: format!("#{id}"), ecosystem };
    Ok(ValueSetScope { container: value_set, set: value_set.contained.get(id).ok_or_else(unknown)? })
}
