//! Search values, and their comparison with values of a resource (FHIR R4, search, parameter types).

use std::borrow::Cow;

use fhir::search_parameters::{ElementPath, SearchParameter, ValueComparison};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Timestamp};
use serde::Deserialize;
use serde_json::value::RawValue;
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

use super::modifier::{PLAIN, SearchModifier, TextComparison};
use super::narrative;
use crate::body::json::{Text, text, values};
use crate::body::references::{local, split_version};

/// The comparison that a prefix of an ordered value requests (`eq`, `lt`, …).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SearchPrefix {
    Eq,
    Ne,
    Gt,
    Lt,
    Ge,
    Le,
    Sa,
    Eb,
    Ap,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SearchValue {
    Date(SearchPrefix, Range<Timestamp>),
    Number(SearchPrefix, Range<f64>, f64),
    Quantity(SearchPrefix, Range<f64>, f64, Unit),
    Reference(Target),
    /// The value must begin with this text. Both are compared in folded form.
    StartsWith(String),
    /// The value must contain this text. Both are compared in folded form.
    Contains(String),
    Exactly(String),
    /// The text of the narrative must have words that begin with each of these, in folded form.
    Words(Vec<String>),
    Token {
        system: System,
        code: Option<String>,
    },
    Uri(String),
}

/// A range that includes its first value and excludes its last.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Range<T> {
    pub from: T,
    pub to: T,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Unit {
    pub system: Option<String>,
    pub code: Option<String>,
}

/// The search value of a reference parameter.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Target {
    /// A resource of this server. The type is set if the search contains it. With a version, only references
    /// to this version match.
    Local { kind: Option<&'static str>, id: String, version: Option<String> },
    /// A reference with exactly this URL.
    Address(String),
}

/// The system in the search value of a token.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum System {
    Any,
    None,
    Is(String),
}

/// The context in which a search value is parsed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SearchContext<'a> {
    pub fhir_base: &'a str,
    /// Time of the export, which `ap` compares dates with.
    pub at: Timestamp,
}

impl SearchValue {
    /// The earliest time that a date permits, or `None` if it permits all earlier ones, or is no date.
    pub fn earliest(&self) -> Option<Timestamp> {
        match self {
            Self::Date(SearchPrefix::Ne | SearchPrefix::Lt | SearchPrefix::Le | SearchPrefix::Eb, _) => None,
            Self::Date(_, range) => Some(range.from),
            _ => None,
        }
    }

    /// The latest time that a date permits, or `None` if it permits all later ones, or is no date.
    pub fn latest(&self) -> Option<Timestamp> {
        match self {
            Self::Date(SearchPrefix::Ne | SearchPrefix::Gt | SearchPrefix::Ge | SearchPrefix::Sa, _) => None,
            Self::Date(_, range) => Some(range.to),
            _ => None,
        }
    }

    /// Parses one value of a parameter.
    pub fn read(
        parameter: &SearchParameter,
        modifier: Option<SearchModifier>,
        value: &str,
        context: SearchContext<'_>,
    ) -> Result<Self, String> {
        let plain = unescaped(value);
        if plain.is_empty() {
            return Err("a value is empty".to_owned());
        }
        match parameter.comparison {
            ValueComparison::Date => {
                let (prefix, rest) = prefixed(&plain);
                let range = date(rest).ok_or_else(|| format!("'{rest}' is not a date"))?;
                Ok(Self::Date(
                    prefix,
                    // "Approximately" is relative to how far the date is from now (FHIR R4, search prefixes).
                    if prefix == SearchPrefix::Ap { around(range, context.at) } else { range },
                ))
            }
            ValueComparison::Number => {
                let (prefix, rest) = prefixed(&plain);
                let (number, range) = number(rest, prefix)?;
                Ok(Self::Number(prefix, range, number))
            }
            ValueComparison::Quantity => {
                let mut parts = split(value, '|').map(unescaped);
                let first = parts.next().unwrap_or_default();
                let (prefix, rest) = prefixed(&first);
                let (number, range) = number(rest, prefix)?;
                let mut part = || parts.next().filter(|part| !part.is_empty());
                let unit = Unit { system: part(), code: part() };
                if parts.next().is_some() {
                    return Err(format!("'{value}' is not number|system|code"));
                }
                Ok(Self::Quantity(prefix, range, number, unit))
            }
            ValueComparison::Reference => Ok(Self::Reference(target(&plain, modifier, context)?)),
            ValueComparison::String if parameter.places.iter().all(is_narrative) => {
                let folded = folded(&plain);
                let words: Vec<String> = narrative::words(&folded).map(str::to_owned).collect();
                match words.is_empty() {
                    true => Err(format!("'{plain}' has no letter or digit")),
                    false => Ok(Self::Words(words)),
                }
            }
            ValueComparison::String => Ok(match modifier.map_or(PLAIN, SearchModifier::rules).texts {
                TextComparison::Whole => Self::Exactly(plain),
                TextComparison::Part => Self::Contains(folded(&plain)),
                TextComparison::Beginning => Self::StartsWith(folded(&plain)),
            }),
            ValueComparison::Token => token(parameter, value),
            ValueComparison::Uri => Ok(Self::Uri(plain)),
        }
    }

    /// `true` if a value of the resource matches this search value.
    pub fn is(&self, place: &ElementPath, value: &RawValue, fhir_base: &str) -> bool {
        match self {
            Self::Date(prefix, wanted) => {
                dates(place.data, value).iter().any(|date| compare_dates(*prefix, *wanted, *date))
            }
            Self::Number(prefix, range, number) => {
                value.get().parse().is_ok_and(|own| compare(*prefix, *range, *number, own, own))
            }
            Self::Quantity(prefix, range, number, unit) if place.data == "Range" => {
                quantity_range(value).is_some_and(|own| own.is(*prefix, *range, *number, unit))
            }
            Self::Quantity(prefix, range, number, unit) => {
                quantity(value).is_some_and(|quantity| quantity.is(*prefix, *range, *number, unit))
            }
            Self::Reference(target) => target.is_of(place, value, fhir_base),
            Self::StartsWith(wanted) => {
                texts(place.data, value).any(|text| folded(&text).starts_with(wanted))
            }
            Self::Contains(wanted) => texts(place.data, value).any(|text| folded(&text).contains(wanted)),
            Self::Exactly(wanted) => texts(place.data, value).any(|text| *text == **wanted),
            Self::Words(wanted) => text(value).is_some_and(|html| {
                let there = folded(&narrative::plain_text(&html));
                let begins = |begin: &String| narrative::words(&there).any(|word| word.starts_with(begin));
                wanted.iter().all(begins)
            }),
            Self::Token { system, code } => {
                // FHIR prefers too many matches to too few, so codes are compared without regard to case, but
                // ids exactly.
                let is_same = if place.data == "id" { str::eq } else { folded_case };
                let is_implicit = matches!(system, System::Is(system) if place.system == Some(system));
                let system = if is_implicit { &System::Any } else { system };
                tokens(place, value).iter().any(|token| token.is(system, code.as_deref(), is_same))
            }
            Self::Uri(wanted) => text(value).is_some_and(|uri| is_uri(&uri, wanted)),
        }
    }
}

/// Splits a text at separators that are not escaped with a backslash.
pub(crate) fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    text.split(move |c| {
        let splits = c == separator && !escaped;
        escaped = c == '\\' && !escaped;
        splits
    })
}

/// Removes the backslashes that escape `,`, `|`, `$` and backslashes.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(c) = letters.next() {
        match letters.peek() {
            Some(&next) if c == '\\' && matches!(next, ',' | '|' | '$' | '\\') => {
                out.push(next);
                letters.next();
            }
            _ => out.push(c),
        }
    }
    out
}

fn prefixed(text: &str) -> (SearchPrefix, &str) {
    let prefix = match text.get(..2) {
        Some("eq") => SearchPrefix::Eq,
        Some("ne") => SearchPrefix::Ne,
        Some("gt") => SearchPrefix::Gt,
        Some("lt") => SearchPrefix::Lt,
        Some("ge") => SearchPrefix::Ge,
        Some("le") => SearchPrefix::Le,
        Some("sa") => SearchPrefix::Sa,
        Some("eb") => SearchPrefix::Eb,
        Some("ap") => SearchPrefix::Ap,
        _ => return (SearchPrefix::Eq, text),
    };
    (prefix, &text[2..])
}

/// The text in folded form: lower case and without accents.
pub(crate) fn folded(text: &str) -> String {
    text.nfd().filter(|c| !is_combining_mark(*c)).flat_map(char::to_lowercase).collect()
}

// Dates
// ---------------------------------------------------------------------------------------------------------------

/// The period that a date or time covers at its precision. A time without a zone is in UTC.
fn date(text: &str) -> Option<Range<Timestamp>> {
    let text = text.replace(' ', "+");
    let Some((day, time)) = text.split_once('T') else {
        let span = match text.len() {
            4 => Span::new().years(1),
            7 => Span::new().months(1),
            10 => Span::new().days(1),
            _ => return None,
        };
        let from = fhir::instant::parse_partial(&text).ok()?;
        let to = from.to_zoned(TimeZone::UTC).checked_add(span).ok()?.timestamp();
        return Some(Range { from, to });
    };
    let zone_at = time.find(['Z', '+', '-']).unwrap_or(time.len());
    let (clock, zone) = time.split_at(zone_at);
    let zone = if zone.is_empty() { "Z" } else { zone };
    let (clock, length) = match clock.len() {
        5 => (format!("{clock}:00"), SignedDuration::from_mins(1)),
        8 => (clock.to_owned(), SignedDuration::from_secs(1)),
        _ => (clock.to_owned(), SignedDuration::from_millis(1)),
    };
    let from = fhir::instant::parse(&format!("{day}T{clock}{zone}")).ok()?;
    Some(Range { from, to: from.checked_add(length).ok()? })
}

/// The range for the prefix `ap`: extended on both sides by a tenth of the time between the date and the
/// export.
fn around(range: Range<Timestamp>, time: Timestamp) -> Range<Timestamp> {
    let tenth = time.duration_since(range.from).abs() / 10;
    Range {
        from: range.from.checked_sub(tenth).unwrap_or(Timestamp::MIN),
        to: range.to.checked_add(tenth).unwrap_or(Timestamp::MAX),
    }
}

#[derive(Deserialize)]
struct SearchPeriod<'a> {
    #[serde(borrow)]
    start: Option<Text<'a>>,
    #[serde(borrow)]
    end: Option<Text<'a>>,
}

/// The times that a value of the resource covers. A period without start or end is unbounded on that side. A
/// period that ends before its start covers none.
pub(crate) fn dates(data: &str, value: &RawValue) -> Vec<Range<Timestamp>> {
    match data {
        "Period" => {
            let Ok(period) = serde_json::from_str::<SearchPeriod<'_>>(value.get()) else { return Vec::new() };
            let from = period.start.as_deref().map_or(Some(Timestamp::MIN), |text| Some(date(text)?.from));
            let to = period.end.as_deref().map_or(Some(Timestamp::MAX), |text| Some(date(text)?.to));
            let is_empty = period.start.is_none() && period.end.is_none();
            from.zip(to)
                .filter(|(from, to)| !is_empty && from < to)
                .map(|(from, to)| Range { from, to })
                .into_iter()
                .collect()
        }
        "Timing" => {
            let mut events = Vec::new();
            values(value, &["event"], &mut events);
            let mut all: Vec<_> = events.iter().flat_map(|event| dates("dateTime", event)).collect();
            events.clear();
            values(value, &["repeat", "boundsPeriod"], &mut events);
            all.extend(events.iter().flat_map(|bounds| dates("Period", bounds)));
            all
        }
        _ => text(value).and_then(|text| date(&text)).into_iter().collect(),
    }
}

fn compare_dates(prefix: SearchPrefix, wanted_range: Range<Timestamp>, own_range: Range<Timestamp>) -> bool {
    let holds = wanted_range.from <= own_range.from && own_range.to <= wanted_range.to;
    match prefix {
        SearchPrefix::Eq => holds,
        SearchPrefix::Ne => !holds,
        SearchPrefix::Gt => own_range.to > wanted_range.to,
        SearchPrefix::Lt => own_range.from < wanted_range.from,
        SearchPrefix::Ge => holds || own_range.to > wanted_range.to,
        SearchPrefix::Le => holds || own_range.from < wanted_range.from,
        SearchPrefix::Sa => own_range.from >= wanted_range.to,
        SearchPrefix::Eb => own_range.to <= wanted_range.from,
        SearchPrefix::Ap => own_range.from < wanted_range.to && wanted_range.from < own_range.to,
    }
}

// Numbers and quantities
// ----------------------------------------------------------------------------------------------

/// Parses a number and returns it with the range that its digits imply: 100 means from 99.5 to less than
/// 100.5. With the prefix `ap`, the range extends by a tenth of the number.
fn number(text: &str, prefix: SearchPrefix) -> Result<(f64, Range<f64>), String> {
    let wrong = || format!("'{text}' is not a number");
    let is_written_so =
        text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e' | b'E'));
    let number: f64 = text.parse().ok().filter(|_| is_written_so).ok_or_else(wrong)?;
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().map_err(|_| wrong())?;
    let decimals = mantissa.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let decimals = i32::try_from(decimals).map_err(|_| wrong())?;
    let half = match prefix {
        SearchPrefix::Ap => number.abs() / 10.0,
        _ => 10_f64.powi(exponent.saturating_sub(decimals)) / 2.0,
    };
    Ok((number, Range { from: number - half, to: number + half }))
}

/// Compares a value of the resource, which is between `low` and `high`, with the search value.
fn compare(prefix: SearchPrefix, wanted_range: Range<f64>, number: f64, low: f64, high: f64) -> bool {
    let holds = wanted_range.from <= low && high < wanted_range.to;
    match prefix {
        SearchPrefix::Eq => holds,
        SearchPrefix::Ne => !holds,
        SearchPrefix::Gt => high > number,
        SearchPrefix::Lt => low < number,
        SearchPrefix::Ge => high >= number,
        SearchPrefix::Le => low <= number,
        SearchPrefix::Sa => low > number,
        SearchPrefix::Eb => high < number,
        SearchPrefix::Ap => low <= wanted_range.to && high >= wanted_range.from,
    }
}

/// The members of a Quantity or Money that are compared.
#[derive(Deserialize)]
struct Quantity<'a> {
    value: Option<f64>,
    #[serde(borrow)]
    comparator: Option<Text<'a>>,
    #[serde(borrow)]
    system: Option<Text<'a>>,
    #[serde(borrow)]
    code: Option<Text<'a>>,
    #[serde(borrow)]
    unit: Option<Text<'a>>,
    #[serde(borrow)]
    currency: Option<Text<'a>>,
}

fn quantity(value: &RawValue) -> Option<Quantity<'_>> {
    serde_json::from_str(value.get()).ok()
}

/// A Range, which has the unit of its limits.
struct QuantityRange<'a> {
    low: f64,
    high: f64,
    unit: Quantity<'a>,
}

fn quantity_range(value: &RawValue) -> Option<QuantityRange<'_>> {
    #[derive(Deserialize)]
    struct Limits<'a> {
        #[serde(borrow)]
        low: Option<Quantity<'a>>,
        #[serde(borrow)]
        high: Option<Quantity<'a>>,
    }
    let Limits { low, high } = serde_json::from_str(value.get()).ok()?;
    let value_of = |limit: &Option<Quantity<'_>>| limit.as_ref().and_then(|limit| limit.value);
    let (from, to) = (value_of(&low), value_of(&high));
    let (low_value, high_value) = (from.unwrap_or(f64::NEG_INFINITY), to.unwrap_or(f64::INFINITY));
    Some(QuantityRange { low: low_value, high: high_value, unit: low.or(high)? })
}

impl QuantityRange<'_> {
    fn is(&self, prefix: SearchPrefix, range: Range<f64>, number: f64, unit: &Unit) -> bool {
        self.unit.is_of(unit) && compare(prefix, range, number, self.low, self.high)
    }
}

/// The number of a Quantity or Money.
pub(crate) fn quantity_value(value: &RawValue) -> Option<f64> {
    quantity(value)?.value
}

impl Quantity<'_> {
    fn is(&self, prefix: SearchPrefix, range: Range<f64>, number: f64, unit: &Unit) -> bool {
        let Some(value) = self.value else { return false };
        let (low, high) = match self.comparator.as_deref() {
            None => (value, value),
            Some("<" | "<=") => (f64::NEG_INFINITY, value),
            Some(_) => (value, f64::INFINITY),
        };
        self.is_of(unit) && compare(prefix, range, number, low, high)
    }

    /// `true` if the quantity has this unit.
    fn is_of(&self, unit: &Unit) -> bool {
        match (&unit.system, &unit.code) {
            (None, None) => true,
            (None, Some(code)) => {
                [&self.code, &self.unit, &self.currency].into_iter().flatten().any(|token| **token == **code)
            }
            (Some(system), code) => {
                let (found_system, found_code) = match &self.currency {
                    Some(currency) => (Some("urn:iso:std:iso:4217"), Some(currency)),
                    None => (self.system.as_deref(), self.code.as_ref()),
                };
                found_system == Some(system.as_str())
                    && code.as_ref().is_none_or(|code| found_code.is_some_and(|token| **token == **code))
            }
        }
    }
}

// References and addresses
// --------------------------------------------------------------------------------------------

fn target(
    value: &str,
    modifier: Option<SearchModifier>,
    context: SearchContext<'_>,
) -> Result<Target, String> {
    let target_type = match modifier {
        Some(SearchModifier::Type(kind)) => Some(kind),
        _ => None,
    };
    let (unversioned, version) = split_version(value);
    let version = version.map(str::to_owned);
    if value.contains(':') {
        return Ok(match local(unversioned, context.fhir_base) {
            Some((kind, id)) if target_type.is_none_or(|target| target == kind) => {
                Target::Local { kind: Some(kind), id: id.to_owned(), version }
            }
            _ => Target::Address(value.to_owned()),
        });
    }
    let (kind, id) = match unversioned.split_once('/') {
        Some((kind, id)) => {
            let kind_of_target =
                fhir::resource_type(kind).ok_or_else(|| format!("'{kind}' is not a resource type"))?;
            (Some(kind_of_target), id)
        }
        None => (target_type, unversioned),
    };
    if !fhir::is_id(id) || target_type.zip(kind).is_some_and(|(target_type, kind)| target_type != kind) {
        return Err(format!("'{value}' is not a reference such as Patient/123"));
    }
    Ok(Target::Local { kind, id: id.to_owned(), version })
}

#[derive(Deserialize)]
struct Reference<'a> {
    #[serde(borrow)]
    reference: Option<Text<'a>>,
    #[serde(borrow, rename = "type")]
    kind: Option<Text<'a>>,
}

/// Returns whether a value has the system or the target type that the parameter is limited to. The type of a
/// reference is that in its URL, or its member `type`.
pub(crate) fn is_included(place: &ElementPath, value: &RawValue) -> bool {
    let Some(only) = place.only else { return true };
    if place.data == "RelatedArtifact" {
        return artifact_text(place, value).is_some();
    }
    if place.data != "Reference" {
        return !tokens(place, value).is_empty();
    }
    let Ok(parsed) = serde_json::from_str::<Reference<'_>>(value.get()) else { return false };
    let in_url = parsed.reference.as_deref().and_then(|url| {
        let url = url.split("/_history/").next()?;
        fhir::resource_type(url.rsplit('/').nth(1)?)
    });
    in_url.or(parsed.kind.as_deref().and_then(fhir::resource_type)) == Some(only)
}

/// The URL in a Reference, a canonical or a URI.
pub(crate) fn reference_text<'a>(data: &str, value: &'a RawValue) -> Option<Text<'a>> {
    match data {
        "Reference" => serde_json::from_str::<Reference<'_>>(value.get()).ok()?.reference,
        _ => text(value),
    }
}

/// The canonical URL in a related artifact of the type that the parameter is limited to.
fn artifact_text<'a>(place: &ElementPath, value: &'a RawValue) -> Option<Text<'a>> {
    #[derive(Deserialize)]
    struct RelatedArtifact<'a> {
        #[serde(borrow, rename = "type")]
        kind: Text<'a>,
        #[serde(borrow)]
        resource: Option<Text<'a>>,
    }
    let artifact: RelatedArtifact<'_> = serde_json::from_str(value.get()).ok()?;
    artifact.resource.filter(|_| place.only == Some(&*artifact.kind))
}

impl Target {
    fn is_of(&self, place: &ElementPath, value: &RawValue, fhir_base: &str) -> bool {
        let is_artifact = place.data == "RelatedArtifact";
        let reference =
            if is_artifact { artifact_text(place, value) } else { reference_text(place.data, value) };
        let Some(reference) = reference else { return false };
        match self {
            Self::Address(wanted) => is_uri(&reference, wanted),
            Self::Local { kind, id, version } => {
                local(&reference, fhir_base).is_some_and(|(found_kind, found_id)| {
                    found_id == id
                        && version
                            .as_deref()
                            .is_none_or(|version| split_version(&reference).1 == Some(version))
                        && kind.is_none_or(|kind| kind == found_kind)
                        && place.only.is_none_or(|only| is_artifact || only == found_kind)
                })
            }
        }
    }
}

/// `true` if the URIs are equal. A canonical URL without a version matches all versions.
fn is_uri(uri: &str, search_uri: &str) -> bool {
    uri == search_uri || uri.split_once('|').is_some_and(|(url, _)| url == search_uri)
}

// Strings
// -------------------------------------------------------------------------------------------------------------

/// Returns whether the values are narratives, which are compared word by word and are not indexed.
pub(crate) fn is_narrative(place: &ElementPath) -> bool {
    place.data == "xhtml"
}

/// The texts of a value in which a search for a string looks.
pub(crate) fn texts<'a>(data: &str, value: &'a RawValue) -> impl Iterator<Item = Text<'a>> + use<'a> {
    let members: &[&str] = match data {
        "HumanName" => &["text", "family", "given", "prefix", "suffix"],
        "Address" => &["text", "line", "city", "district", "state", "postalCode", "country"],
        _ => &[],
    };
    let mut strings = Vec::new();
    if members.is_empty() {
        strings.push(value);
    }
    for member in members {
        values(value, &[member], &mut strings);
    }
    strings.into_iter().filter_map(text)
}

// Tokens
// --------------------------------------------------------------------------------------------------------------

fn token(parameter: &SearchParameter, value: &str) -> Result<SearchValue, String> {
    let mut parts = split(value, '|').map(unescaped);
    let (first, second) = (parts.next().unwrap_or_default(), parts.next());
    if parts.next().is_some() {
        return Err(format!("'{value}' is not system|code"));
    }
    let (system, code) = match second {
        None => (System::Any, first),
        Some(code) if first.is_empty() => (System::None, code),
        Some(code) => (System::Is(first), code),
    };
    let code = Some(code).filter(|code| !code.is_empty());
    if code.is_none() && !matches!(system, System::Is(_)) {
        return Err("a value is empty".to_owned());
    }
    let is_plain = |place: &ElementPath| matches!(place.data, "code" | "boolean" | "string" | "id" | "uri");
    if let System::Is(named) = &system
        && parameter.places.iter().all(is_plain)
        && parameter.places.iter().all(|place| place.system != Some(named))
    {
        let code = parameter.code;
        return Err(match parameter.places.iter().find_map(|place| place.system) {
            Some(own) => format!("values of '{code}' are of the system {own}: use it, or the code only"),
            None => format!("values of '{code}' have no system of their own: use the code only"),
        });
    }
    Ok(SearchValue::Token { system, code })
}

/// A code or identifier of the resource, with its system.
#[derive(Deserialize)]
pub(crate) struct Token<'a> {
    #[serde(borrow)]
    pub system: Option<Text<'a>>,
    #[serde(borrow, alias = "value")]
    pub code: Option<Text<'a>>,
}

impl Token<'_> {
    /// `true` if the token matches. Systems are compared exactly, codes with `is_same`.
    fn is(&self, system: &System, code: Option<&str>, is_same: fn(&str, &str) -> bool) -> bool {
        let is_system = match system {
            System::Any => true,
            System::None => self.system.is_none(),
            System::Is(system) => self.system.as_ref().is_some_and(|own| **own == **system),
        };
        let same = |code: &str| self.code.as_ref().is_some_and(|own| is_same(own, code));
        is_system && code.is_none_or(same)
    }
}

fn folded_case(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(b) || a.to_lowercase() == b.to_lowercase()
}

pub(crate) fn tokens<'a>(place: &ElementPath, value: &'a RawValue) -> Vec<Token<'a>> {
    let plain = |code: Option<Text<'a>>| Token { system: None, code };
    match place.data {
        "boolean" => vec![plain(Some(Text(Cow::Borrowed(value.get()))))],
        // A date says that something is true.
        "dateTime" => vec![plain(Some(Text(Cow::Borrowed("true"))))],
        "CodeableConcept" => {
            let mut codings = Vec::new();
            values(value, &["coding"], &mut codings);
            codings.iter().filter_map(|coding| serde_json::from_str(coding.get()).ok()).collect()
        }
        "Coding" | "Identifier" | "ContactPoint" => {
            let token: Option<Token<'a>> = serde_json::from_str(value.get()).ok();
            let counts =
                |token: &Token<'_>| place.only.is_none_or(|only| token.system.as_deref() == Some(only));
            token.filter(counts).into_iter().collect()
        }
        _ => vec![plain(text(value))],
    }
}
