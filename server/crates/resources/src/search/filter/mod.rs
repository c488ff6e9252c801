//! Searches of one type (FHIR R4, search), and the test whether a resource matches. The parameter
//! `_typeFilter` of an export is a list of searches.
//!
//! A resource must match one of the filters of its type. It matches a filter if it matches all parameters;
//! values between commas are alternatives. Unsupported features are rejected by name: modifiers other than
//! those below, chains, composite parameters, and parameters that affect the result (`_sort`, `_include`, …).
//!
//! | module | contents |
//! |---|---|
//! | [`modifier`] | the modifiers |
//! | `narrative` | the words of a narrative |
//! | `value` | search values and the comparison with values of resources |

pub mod modifier;
mod narrative;
pub(crate) mod value;

use fhir::search_parameters::{self, SearchParameter};
use jiff::{SignedDuration, Timestamp};
use serde_json::value::RawValue;
use store::UpdatedRange;

use self::modifier::{PLAIN, SearchModifier, ValueTest};
use self::value::{SearchContext, SearchValue, split};
use crate::body::json::values;

/// A search of one type.
#[derive(Debug, Clone)]
pub struct TypeFilter {
    /// The resource type that the search applies to.
    pub kind: &'static str,
    pub(crate) clauses: Vec<FilterClause>,
    /// The search as `Type?parameter=value&…`.
    pub(crate) text: String,
    fhir_base: String,
}

/// One parameter of a search, with its values.
#[derive(Debug, Clone)]
pub(crate) struct FilterClause {
    pub parameter: SearchParameter,
    /// See [`modifier::ModifierRules`].
    pub is_indexed: bool,
    pub test: FilterTest,
}

#[derive(Debug, Clone)]
pub(crate) enum FilterTest {
    /// `true` matches resources without a value.
    Missing(bool),
    /// The resource must have one of these values.
    Any(Vec<SearchValue>),
    /// The resource must have none of these values.
    Not(Vec<SearchValue>),
}

/// Splits a value of `_typeFilter` into its filters. A comma separates two filters only if another `Type?`
/// follows.
pub fn list(value: &str) -> Vec<&str> {
    let begins = |text: &str| {
        let kind = text.split_once('?').map(|(kind, _)| kind.trim());
        kind.is_some_and(|kind| !kind.is_empty() && kind.bytes().all(|b| b.is_ascii_alphanumeric()))
    };
    let mut filters = Vec::new();
    let mut start = 0;
    for (offset, _) in value.match_indices(',') {
        if begins(&value[offset + 1..]) {
            filters.push(&value[start..offset]);
            start = offset + 1;
        }
    }
    filters.push(&value[start..]);
    filters
}

/// Maximum number of parameters in a search. Another limit applies to all their values together, because each
/// value is compared with every resource.
pub const MAX_PARAMETERS: usize = 50;
/// Maximum number of values of all parameters of a search together.
pub const MAX_VALUES: usize = 1_000;

impl TypeFilter {
    /// Parses `Type?parameter=value&…`. `at` is the time of the export.
    ///
    /// # Errors
    /// Returns a text with the parameter that is not supported and the reason.
    pub fn read(text: &str, fhir_base: &str, time: Timestamp) -> Result<Self, String> {
        let example = "a filter is a search such as Observation?status=final";
        let (kind, query) = text.split_once('?').ok_or_else(|| format!("'{text}': {example}"))?;
        let kind = fhir::resource_type(kind.trim())
            .ok_or_else(|| format!("{}; {example}", fhir::not_a_type(kind)))?;
        let context = SearchContext { fhir_base, at: time };
        let (mut parameters, mut values) = (0, 0);
        for (_, value) in form_urlencoded::parse(query.as_bytes()) {
            parameters += 1;
            values += 1 + value.bytes().filter(|byte| *byte == b',').count();
        }
        if parameters > MAX_PARAMETERS || values > MAX_VALUES {
            return Err(format!(
                "the search has {parameters} parameters with {values} values; at most {MAX_PARAMETERS} parameters with \
                 {MAX_VALUES} values in all are accepted: send several searches"
            ));
        }
        let clauses = form_urlencoded::parse(query.as_bytes())
            .map(|(name, value)| FilterClause::read(kind, &name, &value, context))
            .collect::<Result<Vec<_>, _>>()?;
        if clauses.is_empty() {
            return Err(format!("'{text}' has no parameter; {example}"));
        }
        let text = format!("{kind}?{query}");
        Ok(Self { kind, clauses, text, fhir_base: fhir_base.to_owned() })
    }

    /// `true` if a search of a type can be evaluated, such as the query of a granular scope (SMART App Launch
    /// 2.2).
    pub fn is_supported(kind: &str, query: &str) -> bool {
        // The time affects results only.
        Self::read(&format!("{kind}?{query}"), "", Timestamp::UNIX_EPOCH).is_ok()
    }

    /// The ids that the search is limited to, or `None` if it has no `_id`.
    pub fn ids(&self) -> Option<Vec<&str>> {
        self.clauses.iter().find_map(|clause| match &clause.test {
            FilterTest::Any(value) if clause.parameter.code == "_id" => Some(
                value
                    .iter()
                    .filter_map(|value| match value {
                        SearchValue::Token { code: Some(code), .. } => Some(code.as_str()),
                        _ => None,
                    })
                    .collect(),
            ),
            _ => None,
        })
    }

    /// The times of the last change that the search is limited to by `_lastUpdated`. It includes at least all
    /// matches.
    pub fn updated_range(&self) -> UpdatedRange {
        let mut range = UpdatedRange::default();
        for clause in self.clauses.iter().filter(|clause| clause.parameter.code == "_lastUpdated") {
            let FilterTest::Any(values) = &clause.test else { continue };
            // A millisecond before the earliest time that one of the values permits, and the latest time.
            let earliest = values.iter().map(SearchValue::earliest).min().flatten();
            let after = earliest.and_then(|time| time.checked_sub(SignedDuration::from_millis(1)).ok());
            range.after = range.after.max(after);
            let latest: Option<Vec<Timestamp>> = values.iter().map(SearchValue::latest).collect();
            if let Some(latest) = latest.and_then(|times| times.into_iter().max()) {
                range.before = Some(range.before.map_or(latest, |before| before.min(latest)));
            }
        }
        range
    }

    /// `true` if a resource of the type matches the search.
    pub fn is_met(&self, resource: &[u8]) -> bool {
        let Ok(resource) = serde_json::from_slice::<&RawValue>(resource) else { return false };
        self.clauses.iter().all(|clause| clause.is_met(resource, &self.fhir_base))
    }
}

impl FilterClause {
    fn read(kind: &str, name: &str, value: &str, context: SearchContext<'_>) -> Result<Self, String> {
        let (code, modifier) = name.split_once(':').map_or((name, None), |(code, m)| (code, Some(m)));
        let wrong = |reason: String| format!("{kind}?{name}: {reason}");
        let Some(parameter) = search_parameters::find(kind, code) else {
            return Err(wrong(format!("'{code}' is not a search parameter that is supported for {kind}")));
        };
        let modifier = match modifier {
            None => None,
            Some(name) => match SearchModifier::named(name, parameter.comparison) {
                Some(SearchModifier::Exact | SearchModifier::Contains)
                    if parameter.places.iter().all(value::is_narrative) =>
                {
                    return Err(wrong(format!("'{code}' looks for words and has no modifier ':{name}'")));
                }
                None => return Err(wrong(format!("the modifier ':{name}' is not supported"))),
                known => known,
            },
        };
        let rules = modifier.map_or(PLAIN, SearchModifier::rules);
        let values = || {
            let read = |value| SearchValue::read(&parameter, modifier, value, context);
            split(value, ',').map(read).collect::<Result<Vec<_>, _>>().map_err(wrong)
        };
        let test = match rules.test {
            ValueTest::OneOf => FilterTest::Any(values()?),
            ValueTest::NoneOf => FilterTest::Not(values()?),
            ValueTest::Absence => match value {
                "true" => FilterTest::Missing(true),
                "false" => FilterTest::Missing(false),
                _ => return Err(wrong("':missing' is true or false".to_owned())),
            },
        };
        let is_narrative = parameter.places.iter().all(value::is_narrative);
        Ok(Self { is_indexed: rules.is_indexed && !is_narrative, parameter, test })
    }

    fn is_met(&self, resource: &RawValue, fhir_base: &str) -> bool {
        let (searched, expected) = match &self.test {
            FilterTest::Missing(missing) => return self.has_value(resource) != *missing,
            FilterTest::Any(searched) => (searched, true),
            FilterTest::Not(searched) => (searched, false),
        };
        let mut values_there = Vec::new();
        let is_there = self.parameter.places.iter().any(|place| {
            values_there.clear();
            values(resource, &place.path, &mut values_there);
            values_there
                .iter()
                .any(|value| searched.iter().any(|search_value| search_value.is(place, value, fhir_base)))
        });
        (is_there || self.is_false_without_value(resource, searched)) == expected
    }

    /// `true` if the search looks for `deceased=false`, and the Patient has no element that says so: the
    /// expression of the parameter is a condition, which is then false.
    fn is_false_without_value(&self, resource: &RawValue, search_values: &[SearchValue]) -> bool {
        let is_false = |value: &SearchValue| matches!(value, SearchValue::Token { code: Some(code), .. } if code == "false");
        self.parameter.code == "deceased" && search_values.iter().any(is_false) && !self.has_value(resource)
    }

    /// Returns whether the resource has a value of the parameter, of the system or target type that the
    /// parameter is limited to.
    fn has_value(&self, resource: &RawValue) -> bool {
        let mut values_there = Vec::new();
        self.parameter.places.iter().any(|place| {
            values_there.clear();
            values(resource, &place.path, &mut values_there);
            values_there.iter().any(|value| value::is_included(place, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const BASE: &str = "https://here.example/fhir/R4";

    fn read(text: &str) -> Result<TypeFilter, String> {
        TypeFilter::read(text, BASE, fhir::instant::parse("2026-01-01T00:00:00Z").unwrap())
    }

    #[track_caller]
    fn check(resource: &serde_json::Value, met: &[&str], unmet: &[&str]) {
        let bytes = resource.to_string();
        for (texts, expected) in [(met, true), (unmet, false)] {
            for text in texts {
                assert_eq!(read(text).unwrap().is_met(bytes.as_bytes()), expected, "{text}");
            }
        }
    }

    #[test]
    fn lists_are_split_where_a_filter_begins() {
        assert_eq!(list("Patient?a=b"), ["Patient?a=b"]);
        assert_eq!(
            list("Observation?code=a,b&status=final,Patient?name=x,Observation?code=c"),
            ["Observation?code=a,b&status=final", "Patient?name=x", "Observation?code=c"]
        );
        assert_eq!(list("Patient"), ["Patient"]);
    }

    #[test]
    fn tokens_are_matched() {
        let observation = json!({ "resourceType": "Observation", "id": "o", "status": "final",
            "code": { "coding": [{ "system": "http://loinc.org", "code": "8302-2" }, { "code": "H" }] },
            "meta": { "tag": [{ "system": "urn:t", "code": "x" }] },
            "identifier": [{ "system": "urn:i", "value": "1|2" }] });
        check(
            &observation,
            &[
                "Observation?status=final",
                "Observation?status=FINAL",
                "Observation?status=amended,final",
                "Observation?status=|final",
                "Observation?status=http://hl7.org/fhir/observation-status|final",
                "Observation?status=http://hl7.org/fhir/observation-status|",
                "Observation?code=8302-2",
                "Observation?code=http://loinc.org|8302-2",
                "Observation?code=http%3A%2F%2Floinc.org%7C8302-2%2C8462-4",
                "Observation?code=http://loinc.org|",
                "Observation?code=|h",
                "Observation?code:not=8462-4",
                "Observation?category:not=vital-signs",
                "Observation?status=final&code=H",
                "Observation?_tag=urn:t|x",
                "Observation?_id=o",
                "Observation?identifier=urn:i|1\\|2",
                "Observation?category:missing=true",
                "Observation?code:missing=false",
            ],
            &[
                "Observation?status=amended",
                "Observation?status=http://hl7.org/fhir/observation-status|amended",
                "Observation?code=|8302-2",
                "Observation?code=http://snomed.info/sct|8302-2",
                "Observation?code:not=8302-2",
                "Observation?category=vital-signs",
                "Observation?status=final&code=Z",
                "Observation?category:missing=false",
                "Observation?_id=p",
            ],
        );
        check(
            &json!({ "active": true, "telecom": [{ "system": "phone", "value": "1" }] }),
            &[
                "Patient?active=true",
                "Patient?phone=1",
                "Patient?telecom=1",
                "Patient?telecom=phone|1",
                "Patient?email:missing=true",
                "Patient?phone:missing=false",
                "Patient?telecom:missing=false",
            ],
            &[
                "Patient?active=false",
                "Patient?email=1",
                "Patient?email:missing=false",
                "Patient?phone:missing=true",
            ],
        );
        let of_group = json!({ "subject": { "reference": "Group/g1" } });
        check(&of_group, &["Observation?patient:missing=true"], &["Observation?subject:missing=true"]);
        for subject in [
            json!({ "reference": "Patient/p1" }),
            json!({ "reference": "https://other.example/fhir/Patient/p1/_history/2" }),
            json!({ "type": "Patient", "identifier": { "value": "1" } }),
        ] {
            check(&json!({ "subject": subject }), &["Observation?patient:missing=false"], &[]);
        }
    }

    #[test]
    fn words_of_the_narrative_are_matched() {
        let div = "<div xmlns=\"http://www.w3.org/1999/xhtml\" title=\"hidden\"><p>Fi&egrave;vre &amp; <b>to</b>ux</p><p>Tea&#8203;1&#x32;</p></div>";
        let set = json!({ "resourceType": "ValueSet", "text": { "status": "generated", "div": div } });
        check(
            &set,
            &[
                "ValueSet?_text=toux",
                "ValueSet?_text=TOU",
                "ValueSet?_text=tea 12",
                "ValueSet?_text=tea,coffee",
                "ValueSet?_text:missing=false",
            ],
            &[
                "ValueSet?_text=oux",
                "ValueSet?_text=hidden",
                "ValueSet?_text=div",
                "ValueSet?_text=amp",
                "ValueSet?_text=toux coffee",
                "ValueSet?_text=xhtml",
            ],
        );
        for wrong in
            ["ValueSet?_text=-", "ValueSet?_text:exact=a", "ValueSet?_text:contains=a", "ValueSet?_text="]
        {
            read(wrong).unwrap_err();
        }
    }

    #[test]
    fn conditions_contexts_and_artifacts_are_matched() {
        for (patient, is_deceased) in [
            (json!({}), false),
            (json!({ "deceasedBoolean": false }), false),
            (json!({ "deceasedBoolean": true }), true),
            (json!({ "deceasedDateTime": "2020" }), true),
        ] {
            let (met, unmet) = match is_deceased {
                true => ("Patient?deceased=true", "Patient?deceased=false"),
                false => ("Patient?deceased=false", "Patient?deceased=true"),
            };
            check(&patient, &[met], &[unmet]);
            check(&patient, &[&unmet.replace('=', ":not=")], &[&met.replace('=', ":not=")]);
        }
        let measure = json!({
            "library": ["http://example.org/Library/l|2"],
            "relatedArtifact": [
                { "type": "depends-on", "resource": "http://example.org/Library/d" },
                { "type": "composed-of", "resource": "https://here.example/fhir/R4/Library/c" },
                { "type": "citation" },
            ],
            "useContext": [
                { "code": { "code": "age" }, "valueRange": {
                    "low": { "value": 18, "system": "http://unitsofmeasure.org", "code": "a" },
                    "high": { "value": 65, "system": "http://unitsofmeasure.org", "code": "a" } } },
                { "code": { "code": "focus" }, "valueCodeableConcept": { "coding": [{ "system": "urn:f", "code": "x" }] } },
            ],
        });
        check(
            &measure,
            &[
                "Measure?depends-on=http://example.org/Library/d",
                "Measure?depends-on=http://example.org/Library/l",
                "Measure?composed-of=Library/c",
                "Measure?successor:missing=true",
                "Measure?composed-of:missing=false",
                "Measure?context=urn:f|x",
                "Measure?context-quantity=gt60",
                "Measure?context-quantity=ge18|http://unitsofmeasure.org|a",
                "Measure?context-quantity=ap40",
            ],
            &[
                "Measure?depends-on=Library/c",
                "Measure?composed-of=http://example.org/Library/d",
                "Measure?context=urn:f|y",
                "Measure?context-quantity=gt70",
                "Measure?context-quantity=40",
                "Measure?context-quantity=gt60||mo",
            ],
        );
        check(
            &json!({ "name": "Gold", "alias": ["Silver"] }),
            &["InsurancePlan?name=silver"],
            &["InsurancePlan?name=bronze"],
        );
    }

    #[test]
    fn dates_are_matched() {
        let on = json!({ "effectiveDateTime": "2020-03-05" });
        check(
            &on,
            &[
                "Observation?date=2020-03-05",
                "Observation?date=2020-03",
                "Observation?date=2020",
                "Observation?date=ne2021",
                "Observation?date=ge2020-03-05",
                "Observation?date=ge2020&date=lt2021",
                "Observation?date=gt2020-03-04",
                "Observation?date=le2020-03-05",
                "Observation?date=sa2020-03-04",
                "Observation?date=eb2020-03-06",
                "Observation?date=lt2020-03-05T12:00:00Z",
                "Observation?date=gt2020-03-05T12:00:00Z",
                "Observation?date=ap2020-06",
            ],
            &[
                "Observation?date=2020-03-05T00:00Z",
                "Observation?date=gt2020-03-05",
                "Observation?date=lt2020-03-05",
                "Observation?date=sa2020-03",
                "Observation?date=ap2025",
            ],
        );
        let from = json!({ "effectivePeriod": { "start": "2020-01-01T10:00:00+01:00" } });
        check(
            &from,
            &["Observation?date=gt2030", "Observation?date=ge2020-01-01", "Observation?date=lt2020-02"],
            &["Observation?date=2020", "Observation?date=eb2030", "Observation?date=lt2019"],
        );
        check(
            &json!({ "meta": { "lastUpdated": "2020-01-01T00:00:00.500Z" } }),
            &["Patient?_lastUpdated=gt2019-12-31T23:59:59Z", "Patient?_lastUpdated=2020-01-01T00:00:00Z"],
            &["Patient?_lastUpdated=gt2020-01-01T01:00:00+00:00"],
        );
    }

    #[test]
    fn numbers_and_quantities_are_matched() {
        let risk = json!({ "prediction": [{ "probabilityDecimal": 0.25 }] });
        check(
            &risk,
            &[
                "RiskAssessment?probability=0.25",
                "RiskAssessment?probability=0.3",
                "RiskAssessment?probability=gt0.2",
                "RiskAssessment?probability=le0.25",
                "RiskAssessment?probability=ap0.27",
            ],
            &["RiskAssessment?probability=0.250001", "RiskAssessment?probability=lt0.25"],
        );
        let weight = json!({ "valueQuantity": { "value": 71.5, "unit": "kilo", "code": "kg", "system": "http://unitsofmeasure.org" } });
        check(
            &weight,
            &[
                "Observation?value-quantity=71.5",
                "Observation?value-quantity=72",
                "Observation?value-quantity=gt70|http://unitsofmeasure.org|kg",
                "Observation?value-quantity=71.5||kilo",
                "Observation?value-quantity=7e1,71.5",
                "Observation?combo-value-quantity=ne70",
            ],
            &[
                "Observation?value-quantity=71",
                "Observation?value-quantity=71.5|http://unitsofmeasure.org|g",
                "Observation?value-quantity=71.5||lb",
                "Observation?component-value-quantity=71.5",
            ],
        );
        check(
            &json!({ "valueQuantity": { "value": 5, "comparator": "<" } }),
            &["Observation?value-quantity=lt1", "Observation?value-quantity=le5"],
            &["Observation?value-quantity=gt5", "Observation?value-quantity=5"],
        );
    }

    #[test]
    fn references_and_uris_are_matched() {
        let observation = json!({ "subject": { "reference": "Patient/p" },
            "performer": [{ "reference": format!("{BASE}/Practitioner/d") },
                { "reference": "https://elsewhere.example/fhir/Organization/o" }],
            "meta": { "profile": ["http://x.example/p|2"] } });
        check(
            &observation,
            &[
                "Observation?patient=p",
                "Observation?patient=Patient/p",
                "Observation?subject:Patient=p",
                "Observation?subject=https://here.example/fhir/R4/Patient/p",
                "Observation?performer=Practitioner/d",
                "Observation?performer=https://elsewhere.example/fhir/Organization/o",
                "Observation?_profile=http://x.example/p",
                "Observation?_profile=http://x.example/p|2",
            ],
            &[
                "Observation?patient=q",
                "Observation?subject:Group=p",
                "Observation?performer=o",
                "Observation?subject=https://elsewhere.example/fhir/Patient/p",
                "Observation?_profile=http://x.example/p|3",
            ],
        );
    }

    #[test]
    fn strings_are_matched() {
        let patient = json!({ "name": [{ "family": "Müller-Lüdenscheidt", "given": ["Zoé"] }],
            "address": [{ "city": "Basel, Stadt" }] });
        check(
            &patient,
            &[
                "Patient?name=muller",
                "Patient?family=MÜLLER",
                "Patient?given=zoe",
                "Patient?family:contains=luden",
                "Patient?family:exact=Müller-Lüdenscheidt",
                "Patient?address=basel\\, s",
                "Patient?address-city=Bern,Basel",
            ],
            &[
                "Patient?name=denscheidt",
                "Patient?family:exact=müller-lüdenscheidt",
                "Patient?address-city=stadt",
                "Patient?given=Z\u{fc}",
            ],
        );
    }

    #[test]
    fn very_long_searches_are_rejected() {
        let read =
            |query: &str| TypeFilter::read(&format!("Observation?{query}"), BASE, Timestamp::UNIX_EPOCH);
        let repeated = |text: &str, count: usize, joint: &str| vec![text; count].join(joint);
        assert!(read(&repeated("status=final", 50, "&")).is_ok());
        assert!(read(&repeated("status=final", 51, "&")).is_err());
        assert!(read(&format!("code={}", repeated("a", 1_000, ","))).is_ok());
        let error = read(&format!("code={}", repeated("a", 1_001, ","))).unwrap_err();
        assert!(error.starts_with("the search has 1 parameters with 1001 values"), "{error}");
    }

    #[test]
    fn unsupported_features_are_rejected_by_name() {
        for (text, reason) in [
            ("Patient", "a filter is a search such as"),
            ("Pony?name=x", "'Pony' is not a resource type"),
            ("Patient?", "has no parameter"),
            ("Patient?shoe-size=1", "'shoe-size' is not a search parameter"),
            ("Patient?_sort=name", "Patient?_sort: '_sort' is not"),
            ("Patient?_include=x", "'_include' is not"),
            ("Patient?_has:Observation:patient:code=1", "'_has' is not"),
            ("Observation?subject.name=x", "'subject.name' is not"),
            ("Observation?code-value-quantity=1", "'code-value-quantity' is not"),
            ("Observation?code:in=x", "the modifier ':in' is not supported"),
            ("Observation?code:text=x", "the modifier ':text' is not supported"),
            ("Patient?name:not=x", "the modifier ':not' is not supported"),
            ("Observation?subject:identifier=x", "the modifier ':identifier' is not supported"),
            ("Observation?code:missing=maybe", "is true or false"),
            ("Observation?date=soon", "'soon' is not a date"),
            ("Observation?value-quantity=much", "'much' is not a number"),
            ("Observation?value-quantity=nan", "'nan' is not a number"),
            (
                "Observation?status=http://x|final",
                "values of 'status' are of the system http://hl7.org/fhir/observation-status: use it, or the code only",
            ),
            (
                "Patient?active=http://x|true",
                "values of 'active' have no system of their own: use the code only",
            ),
            ("Observation?subject=Pony/1", "'Pony' is not a resource type"),
            ("Observation?status=", "a value is empty"),
            ("Observation?status=final,", "a value is empty"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
