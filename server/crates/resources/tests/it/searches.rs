//! Compares searches with a naive evaluator, for every search parameter and modifier, on random resources
//! with several versions. The evaluator reads JSON trees and looks up no index.
//!
//! `TREFOIL_CASES` sets the number of random cases.

use std::collections::BTreeMap;

use fastrand::Rng;
use fhir::search_parameters::{self, ElementPath, SearchParameter, ValueComparison};
use jiff::Timestamp;
use serde_json::{Value, json};
use store::Store;
use trefoil_resources::filter::TypeFilter;
use trefoil_resources::{CompartmentView, ResourceRules, Resources, Restriction, Validation, ViewPart};

use crate::now;

const BASE: &str = "https://here.example/fhir/R4";
const DEFAULT_CASES: u64 = 200;

/// Dates with the first instant that they cover and the first instant after it.
const DATES: [(&str, &str, &str); 8] = [
    ("2019", "2019-01-01T00:00:00Z", "2020-01-01T00:00:00Z"),
    ("2020-02", "2020-02-01T00:00:00Z", "2020-03-01T00:00:00Z"),
    ("2020-02-29", "2020-02-29T00:00:00Z", "2020-03-01T00:00:00Z"),
    ("2020-03-01", "2020-03-01T00:00:00Z", "2020-03-02T00:00:00Z"),
    ("2020-03-01T10:30:00Z", "2020-03-01T10:30:00Z", "2020-03-01T10:30:01Z"),
    ("2020-03-01T00:15:00+02:00", "2020-02-29T22:15:00Z", "2020-02-29T22:15:01Z"),
    ("2020-03-01T10:30:00.250Z", "2020-03-01T10:30:00.250Z", "2020-03-01T10:30:00.251Z"),
    ("2023-11-14", "2023-11-14T00:00:00Z", "2023-11-15T00:00:00Z"),
];
/// Numbers with the range that their digits imply.
const NUMBERS: [(&str, f64, f64); 5] =
    [("0.26", 0.255, 0.265), ("0.3", 0.25, 0.35), ("1", 0.5, 1.5), ("100", 99.5, 100.5), ("-2", -2.5, -1.5)];
/// Texts with their folded form.
const TEXTS: [(&str, &str); 6] = [
    ("Müller", "muller"),
    ("muller-Lüdenscheidt von und zu Hohenfels", "muller-ludenscheidt von und zu hohenfels"),
    ("MULLER-LÜDENSCHEIDT VON UND ZU HOHENSTEIN", "muller-ludenscheidt von und zu hohenstein"),
    ("Zoé", "zoe"),
    ("zo", "zo"),
    ("Ångström", "angstrom"),
];
const SYSTEMS: [&str; 2] = ["http://loinc.org", "urn:oid:1.2.3"];
const CODES: [&str; 4] = ["final", "FINAL", "8302-2", "email"];
const URIS: [&str; 4] =
    ["http://x.example/vs", "http://x.example/vs|2", "http://x.example/vs|3", "urn:oid:1.2.3"];
const IDS: [&str; 3] = ["a", "b", "c"];
const PREFIXES: [&str; 10] = ["", "eq", "ne", "gt", "lt", "ge", "le", "sa", "eb", "ap"];

fn pick<T: Copy>(rng: &mut Rng, all: &[T]) -> T {
    all[rng.usize(..all.len())]
}

fn instant(text: &str) -> Timestamp {
    fhir::instant::parse(text).unwrap()
}

// Random resources
// ----------------------------------------------------------------------------------------------------

fn random_value(rng: &mut Rng, place: &ElementPath) -> Value {
    let date = |rng: &mut Rng| pick(rng, &DATES).0;
    let number = |rng: &mut Rng| pick(rng, &[0.26, 0.3, 0.31, 1.0, 99.7, 100.0, -2.0]);
    match place.data {
        "boolean" => json!(rng.bool()),
        "integer" => json!(rng.i32(-2..3)),
        "decimal" => json!(number(rng)),
        "date" | "dateTime" | "instant" => json!(date(rng)),
        "Period" => {
            let mut period = json!({});
            for bound in ["start", "end"] {
                if rng.bool() {
                    period[bound] = json!(date(rng));
                }
            }
            period
        }
        "Timing" => {
            json!({ "event": [date(rng), date(rng)], "repeat": { "boundsPeriod": { "end": date(rng) } } })
        }
        "Quantity" | "Money" => {
            let mut quantity = json!({ "value": number(rng) });
            match rng.u8(..4) {
                0 => quantity["comparator"] = json!(pick(rng, &["<", "<=", ">", ">="])),
                1 => quantity["currency"] = json!("EUR"),
                _ => {
                    quantity["unit"] = json!("kilo");
                    quantity["system"] = json!(pick(rng, &SYSTEMS));
                    quantity["code"] = json!("kg");
                }
            }
            quantity
        }
        "Reference" => {
            let id = pick(rng, &IDS);
            match rng.u8(..6) {
                0 => json!({ "reference": format!("Group/{id}") }),
                1 => json!({ "reference": format!("{BASE}/Patient/{id}") }),
                2 => json!({ "reference": format!("https://other.example/fhir/Patient/{id}") }),
                3 => json!({ "reference": format!("Patient/{id}/_history/1") }),
                4 => json!({ "identifier": { "value": id }, "type": "Patient" }),
                _ => json!({ "reference": format!("Patient/{id}") }),
            }
        }
        "canonical" | "uri" | "url" => json!(pick(rng, &URIS)),
        "RelatedArtifact" => {
            let kind = if rng.bool() { place.only.unwrap() } else { "citation" };
            match rng.bool() {
                true => json!({ "type": kind, "resource": pick(rng, &URIS) }),
                false => json!({ "type": kind }),
            }
        }
        "Range" => {
            let mut range = json!({});
            for bound in ["low", "high"] {
                if rng.u8(..4) > 0 {
                    let system = pick(rng, &SYSTEMS);
                    range[bound] =
                        json!({ "value": number(rng), "unit": "kilo", "system": system, "code": "kg" });
                }
            }
            range
        }
        "HumanName" => json!({ "family": pick(rng, &TEXTS).0, "given": [pick(rng, &TEXTS).0] }),
        "Address" => json!({ "line": [pick(rng, &TEXTS).0], "city": pick(rng, &TEXTS).0 }),
        "CodeableConcept" => json!({ "coding": [coding(rng), coding(rng)], "text": "x" }),
        "Coding" => coding(rng),
        "Identifier" => json!({ "system": pick(rng, &SYSTEMS), "value": pick(rng, &CODES) }),
        "ContactPoint" => {
            json!({ "system": pick(rng, &["email", "phone"]), "value": pick(rng, &CODES) })
        }
        "code" | "id" => json!(pick(rng, &CODES)),
        "string" | "markdown" | "xhtml" => json!(pick(rng, &TEXTS).0),
        other => panic!("no values for the data type {other}"),
    }
}

fn coding(rng: &mut Rng) -> Value {
    let mut coding = json!({ "code": pick(rng, &CODES) });
    if rng.bool() {
        coding["system"] = json!(pick(rng, &SYSTEMS));
    }
    coding
}

/// Adds a value at a path. Members that exist are turned into arrays or extended.
fn insert(into: &mut Value, path: &[&str], value: Value) {
    let [name, rest @ ..] = path else { return };
    let slot = &mut into[*name];
    if rest.is_empty() {
        *slot = match slot.take() {
            Value::Null => value,
            Value::Array(mut all) => {
                all.push(value);
                Value::Array(all)
            }
            one => Value::Array(vec![one, value]),
        };
        return;
    }
    match slot {
        Value::Array(all) => {
            if let Some(last) = all.iter_mut().rev().find(|one| one.is_object()) {
                insert(last, rest, value);
            }
        }
        Value::Object(_) => insert(slot, rest, value),
        _ => {
            let mut object = json!({});
            insert(&mut object, rest, value);
            *slot = json!([object]);
        }
    }
}

fn random_resource(rng: &mut Rng, kind: &str, id: &str, parameters: &[SearchParameter]) -> Value {
    let mut resource = json!({ "resourceType": kind, "id": id, "meta": {} });
    let many = if rng.u8(..20) == 0 { 80 } else { 2 };
    for parameter in parameters {
        // A choice of data types has one value only, as in FHIR.
        let place = &parameter.places[rng.usize(..parameter.places.len())];
        if matches!(place.path[..], ["id"] | ["meta", "lastUpdated"]) {
            continue;
        }
        for _ in 0..rng.usize(..=many) {
            insert(&mut resource, &place.path, random_value(rng, place));
        }
    }
    resource
}

// The naive evaluator
// -------------------------------------------------------------------------------------------------

fn values<'a>(value: &'a Value, path: &[&str], values_of_path: &mut Vec<&'a Value>) {
    match (value, path) {
        (Value::Null, _) => {}
        (Value::Array(all), _) => all.iter().for_each(|one| values(one, path, values_of_path)),
        (_, []) => values_of_path.push(value),
        (_, [name, rest @ ..]) => values(&value[*name], rest, values_of_path),
    }
}

/// A parameter of a random search.
#[derive(Debug)]
struct NaiveClause {
    name: String,
    /// Alternatives; the texts as they are sent.
    wanted: Vec<String>,
    modifier: Option<&'static str>,
    parameter: SearchParameter,
}

fn random_clause(rng: &mut Rng, parameter: &SearchParameter) -> NaiveClause {
    let modifiers: &[Option<&'static str>] = match parameter.comparison {
        _ if parameter.code == "_text" => &[None, None, Some("missing")],
        ValueComparison::Token => &[None, None, Some("not"), Some("missing")],
        ValueComparison::String => &[None, None, Some("exact"), Some("contains"), Some("missing")],
        ValueComparison::Reference => &[None, None, Some("Patient"), Some("Group"), Some("missing")],
        _ => &[None, None, None, Some("missing")],
    };
    let modifier = pick(rng, modifiers);
    let count = rng.usize(1..3);
    let texts = match modifier {
        Some("missing") => vec![pick(rng, &["true", "false"]).to_owned()],
        _ => (0..count).map(|_| random_wanted(rng, parameter, modifier)).collect(),
    };
    let name = match modifier {
        Some(modifier) => format!("{}:{modifier}", parameter.code),
        None => parameter.code.to_owned(),
    };
    NaiveClause { name, wanted: texts, modifier, parameter: parameter.clone() }
}

fn random_wanted(rng: &mut Rng, parameter: &SearchParameter, modifier: Option<&str>) -> String {
    let is_plain = parameter
        .places
        .iter()
        .all(|place| matches!(place.data, "code" | "boolean" | "string" | "id" | "uri" | "dateTime"));
    let implicit = parameter.places.iter().find_map(|place| place.system);
    match parameter.comparison {
        ValueComparison::Date => format!("{}{}", pick(rng, &PREFIXES), pick(rng, &DATES).0),
        ValueComparison::Number => format!("{}{}", pick(rng, &PREFIXES), pick(rng, &NUMBERS).0),
        ValueComparison::Quantity => {
            let unit =
                pick(rng, &["", "", "|http://loinc.org|kg", "||kilo", "||EUR", "|urn:iso:std:iso:4217|EUR"]);
            format!("{}{}{unit}", pick(rng, &PREFIXES), pick(rng, &NUMBERS).0)
        }
        ValueComparison::Reference => {
            let id = pick(rng, &IDS);
            match (modifier, rng.u8(..4)) {
                (Some(_), _) | (None, 0) => id.to_owned(),
                (None, 1) => format!("Patient/{id}"),
                (None, 2) => format!("{BASE}/Patient/{id}"),
                (None, _) => {
                    pick(rng, &["https://other.example/fhir/Patient/a", URIS[0], URIS[1]]).to_owned()
                }
            }
        }
        ValueComparison::String => {
            let text = pick(rng, &TEXTS).0;
            let end = text.char_indices().map(|(at, c)| at + c.len_utf8()).nth(rng.usize(1..40));
            text[..end.unwrap_or(text.len())].to_owned()
        }
        ValueComparison::Token if parameter.code == "_id" => pick(rng, &["0", "1", "7", "x"]).to_owned(),
        ValueComparison::Token => {
            let boolean = parameter.places.iter().any(|place| place.data == "boolean");
            let code = if boolean { pick(rng, &["true", "false"]) } else { pick(rng, &CODES) };
            match rng.u8(..4) {
                0 if !is_plain => format!("{}|{code}", pick(rng, &SYSTEMS)),
                1 if !is_plain => format!("{}|", pick(rng, &SYSTEMS)),
                2 => format!("|{code}"),
                3 if implicit.is_some() => format!("{}|{code}", implicit.unwrap()),
                _ => code.to_owned(),
            }
        }
        ValueComparison::Uri => pick(rng, &URIS).to_owned(),
    }
}

impl NaiveClause {
    fn is_met(&self, resource: &Value) -> bool {
        let mut all = Vec::new();
        for place in &self.parameter.places {
            let mut ids = Vec::new();
            values(resource, &place.path, &mut ids);
            all.extend(ids.into_iter().map(|value| (place, value)));
        }
        // A Patient without an element that says so is not deceased.
        let is_false = |text: &String| {
            self.parameter.code == "deceased" && all.is_empty() && text.trim_start_matches('|') == "false"
        };
        let any =
            |text: &String| is_false(text) || all.iter().any(|(place, value)| self.is(text, place, value));
        match self.modifier {
            Some("missing") => {
                let has = all.iter().any(|(place, value)| is_in_scope(place, value));
                has != (self.wanted[0] == "true")
            }
            Some("not") => !self.wanted.iter().any(any),
            _ => self.wanted.iter().any(any),
        }
    }

    fn is(&self, search_text: &str, place: &ElementPath, value: &Value) -> bool {
        match self.parameter.comparison {
            ValueComparison::Date => {
                let (prefix, text) = prefix(search_text);
                spans(place.data, value).into_iter().any(|span| is_date(prefix, text, span))
            }
            ValueComparison::Number => {
                let (prefix, text) = prefix(search_text);
                value.as_f64().is_some_and(|number| is_number(prefix, text, number, number))
            }
            ValueComparison::Quantity if place.data == "Range" => is_range(search_text, value),
            ValueComparison::Quantity => is_quantity(search_text, value),
            ValueComparison::Reference => is_reference(search_text, self.modifier, place, value),
            ValueComparison::String => {
                let folded = TEXTS.iter().find(|(text, _)| text.starts_with(search_text)).unwrap();
                let folded: String = folded.1.chars().take(search_text.chars().count()).collect();
                let members: &[&str] = match place.data {
                    "HumanName" => &["text", "family", "given", "prefix", "suffix"],
                    "Address" => &["text", "line", "city", "district", "state", "postalCode", "country"],
                    _ => &[],
                };
                let mut texts = if members.is_empty() { vec![value] } else { Vec::new() };
                members.iter().for_each(|member| values(value, &[member], &mut texts));
                let entry = |text: &Value| TEXTS.iter().find(|(plain, _)| text == plain);
                texts.into_iter().filter_map(entry).any(|(plain, found)| match self.modifier {
                    None if place.data == "xhtml" => {
                        let words = |text: &str| -> Vec<String> {
                            let words = text.split(|c: char| !c.is_alphanumeric());
                            words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
                        };
                        let there = words(found);
                        let begins =
                            |word_begin: &String| there.iter().any(|word| word.starts_with(word_begin));
                        words(&folded).iter().all(begins)
                    }
                    Some("exact") => *plain == search_text,
                    Some("contains") => found.contains(&folded),
                    _ => found.starts_with(&folded),
                })
            }
            ValueComparison::Token => is_token(search_text, place, value),
            ValueComparison::Uri => is_uri(search_text, value.as_str().unwrap_or_default()),
        }
    }
}

fn is_in_scope(place: &ElementPath, value: &Value) -> bool {
    match (place.only, place.data) {
        (None, _) => true,
        (Some(only), "Reference") => match value["reference"].as_str() {
            Some(reference) => reference.contains(&format!("{only}/")),
            None => value["type"] == only,
        },
        (Some(only), "RelatedArtifact") => value["type"] == only && value["resource"].is_string(),
        (Some(only), _) => value["system"] == only,
    }
}

fn prefix(text: &str) -> (&str, &str) {
    match PREFIXES.iter().find(|prefix| !prefix.is_empty() && text.starts_with(**prefix)) {
        Some(prefix) => text.split_at(prefix.len()),
        None => ("eq", text),
    }
}

type Span = (Timestamp, Timestamp);

fn span(date: &str) -> Span {
    let (_, from, to) = DATES.iter().find(|(text, ..)| *text == date).unwrap();
    (instant(from), instant(to))
}

fn spans(data: &str, value: &Value) -> Vec<Span> {
    match data {
        "Period" => {
            let (start, end) = (value["start"].as_str(), value["end"].as_str());
            if start.is_none() && end.is_none() {
                return Vec::new();
            }
            let (from, to) = (
                start.map_or(Timestamp::MIN, |date| span(date).0),
                end.map_or(Timestamp::MAX, |date| span(date).1),
            );
            if from < to { vec![(from, to)] } else { Vec::new() }
        }
        "Timing" => {
            let events = value["event"].as_array().unwrap();
            let mut all: Vec<_> = events.iter().map(|date| span(date.as_str().unwrap())).collect();
            all.extend(spans("Period", &value["repeat"]["boundsPeriod"]));
            all
        }
        _ => value.as_str().map(span).into_iter().collect(),
    }
}

fn is_date(prefix: &str, text: &str, (low, high): Span) -> bool {
    let (from, to) = span(text);
    let inside = from <= low && high <= to;
    match prefix {
        "eq" => inside,
        "ne" => !inside,
        "gt" => high > to,
        "lt" => low < from,
        "ge" => inside || high > to,
        "le" => inside || low < from,
        "sa" => low >= to,
        "eb" => high <= from,
        _ => {
            let tenth = now().duration_since(from).abs() / 10;
            low < to + tenth && from - tenth < high
        }
    }
}

fn is_number(prefix: &str, number_text: &str, low: f64, high: f64) -> bool {
    let (_, from, to) = *NUMBERS.iter().find(|(text, ..)| *text == number_text).unwrap();
    let number: f64 = number_text.parse().unwrap();
    let inside = from <= low && high < to;
    match prefix {
        "eq" => inside,
        "ne" => !inside,
        "gt" => high > number,
        "lt" => low < number,
        "ge" => high >= number,
        "le" => low <= number,
        "sa" => low > number,
        "eb" => high < number,
        _ => low <= number + number.abs() / 10.0 && high >= number - number.abs() / 10.0,
    }
}

fn is_quantity(text: &str, value: &Value) -> bool {
    let (number, unit) = text.split_once('|').unwrap_or((text, ""));
    let (prefix, number) = prefix(number);
    let Some(amount) = value["value"].as_f64() else { return false };
    let (low, high) = match value["comparator"].as_str() {
        None => (amount, amount),
        Some("<" | "<=") => (f64::NEG_INFINITY, amount),
        Some(_) => (amount, f64::INFINITY),
    };
    is_unit(unit, value) && is_number(prefix, number, low, high)
}

/// A Range is compared like a quantity that is somewhere between its limits.
fn is_range(text: &str, value: &Value) -> bool {
    let (number, unit) = text.split_once('|').unwrap_or((text, ""));
    let (prefix, number) = prefix(number);
    let low = value["low"]["value"].as_f64().unwrap_or(f64::NEG_INFINITY);
    let high = value["high"]["value"].as_f64().unwrap_or(f64::INFINITY);
    let limit = value.get("low").or(value.get("high"));
    limit.is_some_and(|limit| is_unit(unit, limit)) && is_number(prefix, number, low, high)
}

/// Returns whether a quantity has the unit `system|code`, of which both can be empty.
fn is_unit(unit: &str, value: &Value) -> bool {
    let (system, code) = unit.split_once('|').unwrap_or((unit, ""));
    let (found_system, found_code) = match value["currency"].as_str() {
        Some(currency) => (json!("urn:iso:std:iso:4217"), json!(currency)),
        None => (value["system"].clone(), value["code"].clone()),
    };
    match (system, code) {
        ("", "") => true,
        ("", code) => found_code == code || value["unit"] == code,
        (system, code) => found_system == system && found_code == code,
    }
}

fn is_reference(reference_text: &str, modifier: Option<&str>, place: &ElementPath, value: &Value) -> bool {
    let text = match place.data {
        "Reference" => &value["reference"],
        "RelatedArtifact" if is_in_scope(place, value) => &value["resource"],
        "RelatedArtifact" => return false,
        _ => value,
    };
    let Some(text) = text.as_str() else { return false };
    let local = text.strip_prefix(BASE).map(|rest| rest.trim_start_matches('/')).unwrap_or(text);
    let reference =
        reference_text.strip_prefix(BASE).map(|rest| rest.trim_start_matches('/')).unwrap_or(reference_text);
    if reference.contains(':') {
        return is_uri(reference, text);
    }
    if local.contains(':') {
        return false;
    }
    let Some((kind, id)) = local.trim_end_matches("/_history/1").split_once('/') else { return false };
    let is_kind = |target: Option<&str>| target.is_none_or(|target_type| target_type == kind);
    let (wanted_kind, wanted_id) =
        reference.split_once('/').map_or((None, reference), |(kind, id)| (Some(kind), id));
    wanted_id == id
        && is_kind(wanted_kind)
        && is_kind(modifier)
        && (place.data != "Reference" || is_kind(place.only))
}

fn code_of<'a>(value: &'a Value, member: &str) -> (Option<&'a str>, String) {
    (value["system"].as_str(), value[member].as_str().unwrap_or_default().to_owned())
}

fn is_token(text: &str, place: &ElementPath, value: &Value) -> bool {
    let codings: Vec<(Option<&str>, String)> = match place.data {
        "CodeableConcept" => {
            let mut codings = Vec::new();
            values(value, &["coding"], &mut codings);
            codings.into_iter().map(|coding| code_of(coding, "code")).collect()
        }
        "Coding" => vec![code_of(value, "code")],
        "Identifier" | "ContactPoint" => {
            if !is_in_scope(place, value) {
                return false;
            }
            vec![code_of(value, "value")]
        }
        "boolean" => vec![(None, value.to_string())],
        "dateTime" => vec![(None, "true".to_owned())],
        _ => vec![(None, value.as_str().unwrap_or_default().to_owned())],
    };
    codings.iter().any(|(system, code)| {
        // Ids are compared exactly, all other codes without case.
        let is_code = |text: &str| {
            if place.data == "id" { text == code } else { text.eq_ignore_ascii_case(code) }
        };
        match text.split_once('|') {
            None => is_code(text),
            Some(("", text)) => system.is_none() && is_code(text),
            Some((text, "")) => *system == Some(text),
            Some((wanted_system, text)) => {
                [*system, place.system].contains(&Some(wanted_system)) && is_code(text)
            }
        }
    })
}

fn is_uri(text: &str, uri: &str) -> bool {
    uri == text || uri.split_once('|').is_some_and(|(url, _)| url == text)
}

// The comparison
// ------------------------------------------------------------------------------------------------------

/// Writes random resources and compares the results of random searches.
async fn run_case(rng: &mut Rng, covered: &mut BTreeMap<String, u64>) {
    // Few types have numbers and quantities.
    let kind = match rng.u8(..4) {
        0 => pick(rng, &["ChargeItem", "Observation", "Patient", "RiskAssessment"]),
        _ => pick(rng, fhir::RESOURCE_TYPES),
    };
    let of_type: Vec<_> = search_parameters::parameters(kind)
        .chain(search_parameters::parameters("Resource"))
        .filter(|parameter| parameter.code != "_lastUpdated")
        .collect();
    let used: Vec<SearchParameter> = (0..4).map(|_| of_type[rng.usize(..of_type.len())].clone()).collect();
    let resources = Resources::at(Store::memory(), BASE);
    // A search must not fail for what was stored before resources were validated.
    resources.set_rules(ResourceRules { validation: Validation::Off, ..resources.rules() });
    let mut newest = BTreeMap::new();
    for _ in 0..rng.usize(1..60) {
        let id = rng.u8(..40).to_string();
        if rng.u8(..8) == 0 {
            resources.delete(kind, &id, None, now()).await.unwrap();
            newest.remove(&id);
            continue;
        }
        let resource = random_resource(rng, kind, &id, &used);
        resources.update(kind, &id, resource.to_string(), None, now()).await.unwrap();
        newest.insert(id, resource);
    }
    for _ in 0..8 {
        let clauses: Vec<_> = (0..rng.usize(1..4))
            .map(|_| {
                let at = rng.usize(..used.len());
                random_clause(rng, &used[at])
            })
            .collect();
        // The same search, and as granular scopes: a part of the parameters restricts the view, and the view
        // is a union.
        let filter = |clauses: &[NaiveClause]| {
            let query = clauses.iter().map(|clause| (clause.name.clone(), clause.wanted.join(",")));
            let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
            (!clauses.is_empty()).then(|| TypeFilter::read(&format!("{kind}?{query}"), BASE, now()).unwrap())
        };
        let part =
            |clauses: &[NaiveClause]| ViewPart { restriction: Restriction::None, filter: filter(clauses) };
        let count = rng.usize(1..30);
        let expected = ids_of(&newest, |resource| clauses.iter().all(|clause| clause.is_met(resource)));
        let all = resources.restricted_to(Restriction::None);
        assert_eq!(searched(&all, kind, filter(&clauses), count).await, expected, "{clauses:?}");
        let (scope, rest) = clauses.split_at(1);
        let narrow = resources.restricted_to_parts(vec![part(scope)]);
        assert_eq!(searched(&narrow, kind, filter(rest), count).await, expected, "{scope:?} {rest:?}");
        let union = resources
            .restricted_to_parts(clauses.iter().map(|one| part(std::slice::from_ref(one))).collect());
        let expected = ids_of(&newest, |resource| clauses.iter().any(|clause| clause.is_met(resource)));
        assert_eq!(searched(&union, kind, None, count).await, expected, "any of {clauses:?}");
        for id in newest.keys() {
            assert_eq!(union.read(kind, id).await.is_ok(), expected.contains(id), "{id} {clauses:?}");
        }
        for clause in clauses {
            let modifier = clause.modifier.unwrap_or_default();
            *covered.entry(format!("{:?} {modifier}", clause.parameter.comparison)).or_default() += 1;
        }
    }
}

/// Returns the ids of the resources for which `is_met` returns `true`, sorted.
fn ids_of(newest: &BTreeMap<String, Value>, is_met: impl Fn(&Value) -> bool) -> Vec<String> {
    newest.iter().filter(|(_, resource)| is_met(resource)).map(|(id, _)| id.clone()).collect()
}

/// Returns the ids on all pages of a search, sorted.
async fn searched(
    view: &CompartmentView<'_>,
    kind: &'static str,
    filter: Option<TypeFilter>,
    count: usize,
) -> Vec<String> {
    let (mut found, mut from) = (Vec::new(), None::<String>);
    loop {
        let page = view.search(kind, filter.as_ref(), from.as_deref(), count).await.unwrap();
        assert!(page.resources.len() <= count);
        found.extend(page.resources.into_iter().map(|resource| resource.id));
        from = page.next;
        if from.is_none() {
            found.sort();
            return found;
        }
    }
}

#[tokio::test]
async fn searches_agree_with_a_naive_evaluator() {
    let cases = std::env::var("TREFOIL_CASES").ok().and_then(|cases| cases.parse().ok());
    let mut covered = BTreeMap::new();
    for seed in 0..cases.unwrap_or(DEFAULT_CASES) {
        let mut rng = Rng::with_seed(seed);
        println!("case {seed}");
        run_case(&mut rng, &mut covered).await;
    }
    // Each comparison and modifier was tried.
    assert_eq!(covered.len(), 19, "{covered:?}");
}
