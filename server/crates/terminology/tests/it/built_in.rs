//! Built-in code systems, tested through the operations.

use fhir::Parameters;
use trefoil_terminology::{OperationInput, OperationLevel, Terminology};

use crate::support::{put, short, subsumes, validate};

const UCUM: &str = "http://unitsofmeasure.org";

const SETS: &[(&str, &str)] = &[
    ("units", r#"{"system":"http://unitsofmeasure.org"}"#),
    (
        "pressures",
        r#"{"system":"http://unitsofmeasure.org","filter":[{"property":"canonical","op":"=","value":"g.m-1.s-2"}]}"#,
    ),
    (
        "like-kpa",
        r#"{"system":"http://unitsofmeasure.org","filter":[{"property":"canonical","op":"=","value":"kPa"}]}"#,
    ),
    (
        "doses",
        r#"{"system":"http://unitsofmeasure.org","filter":[{"property":"canonical","op":"in","value":"mg/d, [iU]/wk,1"}]}"#,
    ),
    (
        "no-unit",
        r#"{"system":"http://unitsofmeasure.org","filter":[{"property":"canonical","op":"=","value":"mmHg"}]}"#,
    ),
    (
        "lengths",
        r#"{"system":"http://unitsofmeasure.org","filter":[{"property":"property","op":"=","value":"length"}]}"#,
    ),
    (
        "lengths-or-times",
        r#"{"system":"http://unitsofmeasure.org","filter":[{"property":"property","op":"in","value":"length,time"}]}"#,
    ),
    (
        "few-units",
        r#"{"system":"http://unitsofmeasure.org","concept":[{"code":"mm[Hg]","display":"mmHg"},{"code":"mmHg"},{"code":"kPa"}]}"#,
    ),
    ("languages", r#"{"system":"urn:ietf:bcp:47"}"#),
    ("swiss", r#"{"system":"urn:ietf:bcp:47","filter":[{"property":"region","op":"=","value":"CH"}]}"#),
    (
        "countries",
        r#"{"system":"urn:iso:std:iso:3166","filter":[{"property":"code","op":"regex","value":"[A-Z]{3}"}]}"#,
    ),
    ("parts", r#"{"system":"urn:iso:std:iso:3166:-2"}"#),
    (
        "cantons",
        r#"{"system":"urn:iso:std:iso:3166:-2","filter":[{"property":"country","op":"=","value":"CH"}]}"#,
    ),
    ("media", r#"{"system":"urn:ietf:bcp:13"}"#),
    ("money", r#"{"system":"urn:iso:std:iso:4217"}"#),
];

fn terminology(more: &[&str]) -> Terminology {
    let set = |(name, include): &(&str, &str)| {
        format!(
            r#"{{"resourceType":"ValueSet","id":"{name}","url":"urn:{name}","status":"active","compose":{{"include":[{include}]}}}}"#
        )
    };
    let terminology = Terminology::default();
    let sets: Vec<_> = SETS.iter().map(set).collect();
    terminology.apply(sets.iter().map(String::as_str).chain(more.iter().copied()).map(put));
    terminology
}

fn form(text: &str) -> String {
    text.bytes().map(|b| format!("%{b:02X}")).collect()
}

#[track_caller]
fn check(set: &str, system: &str, code: &str, expected: &str) {
    let query = format!("url=urn:{set}&system={system}&code={}", form(code));
    let actual = validate(&terminology(&[]), OperationLevel::Type, &query);
    let outside = format!("The provided code '{system}#{code}' was not found in the value set 'urn:{set}'");
    let unknown = format!("Unknown code '{code}' in the CodeSystem '{system}'");
    let expected = expected.replace("OUTSIDE", &outside).replace("UNKNOWN", &unknown);
    assert_eq!(actual, expected, "{code} in {set}");
}

#[test]
fn codes_of_grammars_are_valid_if_they_can_be_parsed() {
    check("units", UCUM, "mg/dL", "true");
    check("units", UCUM, "mg/DL", "false [OUTSIDE; UNKNOWN]");
    check("pressures", UCUM, "mm[Hg]", "true");
    check("pressures", UCUM, "kPa", "true");
    check("pressures", UCUM, "kg", "false [OUTSIDE]");
    check("few-units", UCUM, "mm[Hg]", "true [mmHg]");
    check("few-units", UCUM, "mmHg", "false [OUTSIDE; UNKNOWN]");
    check("languages", "urn:ietf:bcp:47", "de-CH", "true [German (Switzerland)]");
    check("languages", "urn:ietf:bcp:47", "DE-ch", "true [German (Switzerland)]");
    check("swiss", "urn:ietf:bcp:47", "rm-CH", "true [Romansh (Switzerland)]");
    check("swiss", "urn:ietf:bcp:47", "rm", "false [Romansh] [OUTSIDE]");
    check("media", "urn:ietf:bcp:13", "application/fhir+json", "true");
    check("countries", "urn:iso:std:iso:3166", "CHE", "true [Switzerland]");
    check("countries", "urn:iso:std:iso:3166", "CH", "false [Switzerland] [OUTSIDE]");
    check("parts", "urn:iso:std:iso:3166:-2", "US-CA", "true [California]");
    check("parts", "urn:iso:std:iso:3166:-2", "US-XX", "false [OUTSIDE; UNKNOWN]");
    check("cantons", "urn:iso:std:iso:3166:-2", "CH-ZH", "true [Zürich]");
    check("cantons", "urn:iso:std:iso:3166:-2", "US-CA", "false [California] [OUTSIDE]");
    check("money", "urn:iso:std:iso:4217", "EUR", "true [Euro]");
}

#[test]
fn units_are_filtered_by_what_they_measure() {
    for (set, code, is_in) in [
        // Comparable to the named unit, however it is written.
        ("like-kpa", "mm[Hg]", true),
        ("like-kpa", "N/cm2", true),
        ("like-kpa", "N/cm", false),
        ("doses", "ug/(24.h)", true),
        ("doses", "k[iU]/d", true),
        ("doses", "%", true),
        ("doses", "[IU]/d", false),
        ("doses", "mg", false),
        // Comparable to the base unit of the property. A derived quantity has no such property, as FHIR says.
        ("lengths", "m", true),
        ("lengths", "cm", true),
        ("lengths", "[in_i]", true),
        ("lengths", "L/m2", true),
        ("lengths", "m{height}", true),
        ("lengths", "m2", false),
        ("lengths", "/m", false),
        ("lengths", "1", false),
        ("lengths", "s", false),
        ("lengths-or-times", "a", true),
        ("lengths-or-times", "km", true),
        ("lengths-or-times", "km/h", false),
    ] {
        check(set, UCUM, code, if is_in { "true" } else { "false [OUTSIDE]" });
    }
    let actual =
        validate(&terminology(&[]), OperationLevel::Type, &format!("url=urn:no-unit&system={UCUM}&code=kPa"));
    assert!(actual.starts_with("Unprocessable") && actual.contains("'mmHg' is not a unit"), "{actual}");
}

#[test]
fn a_rejected_code_is_explained() {
    let query = Parameters::from_query("url=urn:languages&system=urn:ietf:bcp:47&code=en-UK");
    let answer =
        terminology(&[]).validate_code(OperationLevel::Type, OperationInput::from_query(&query)).unwrap();
    let json = serde_json::to_string(&answer).unwrap();
    assert!(json.contains("The code 'en-UK' cannot be read: 'uk' is not a registered region"), "{json}");
}

#[test]
fn a_stored_complete_system_takes_precedence_and_a_fragment_does_not() {
    let stored = |content: &str| {
        format!(
            r#"{{"resourceType":"CodeSystem","id":"b","url":"urn:ietf:bcp:47","version":"3","status":"active","content":"{content}","concept":[{{"code":"elv","display":"Elvish"}}]}}"#
        )
    };
    let request = |content: &str, query: &str| {
        let terminology = terminology(&[&stored(content)]);
        validate(
            &terminology,
            OperationLevel::Type,
            &format!("url=urn:languages&system=urn:ietf:bcp:47&{query}"),
        )
    };
    assert_eq!(request("complete", "code=elv"), "true [Elvish]");
    assert!(request("complete", "code=de").starts_with("false"));
    for content in ["fragment", "not-present", "example"] {
        assert_eq!(request(content, "code=de"), "true [German]", "{content}");
        assert!(request(content, "code=elv").starts_with("false"), "{content}");
    }
}

#[test]
fn the_other_operations_use_built_in_systems() {
    let terminology = terminology(&[]);
    let lookup = |query: &str| {
        let query = Parameters::from_query(query);
        match terminology.lookup(OperationInput::from_query(&query)) {
            Ok(answer) => answer.text("display").unwrap_or_default().to_owned(),
            Err(error) => short(Err(error)),
        }
    };
    assert_eq!(lookup("system=urn:ietf:bcp:47&code=en-AU"), "English (Australia)");
    assert_eq!(lookup("system=http://unitsofmeasure.org&code=mg"), "mg");
    assert_eq!(
        lookup("system=http://unitsofmeasure.org&code=furlong"),
        "UnknownConcept(not-found): Unknown code 'furlong' in the CodeSystem 'http://unitsofmeasure.org'"
    );
    let request = |query: &str| subsumes(&terminology, OperationLevel::Type, query);
    assert_eq!(request("system=urn:ietf:bcp:47&codeA=de-CH&codeB=DE-ch"), "equivalent");
    assert_eq!(request("system=urn:ietf:bcp:47&codeA=de&codeB=de-CH"), "not-subsumed");
    assert_eq!(
        request("system=urn:ietf:bcp:47&codeA=de&codeB=xy"),
        "UnknownCode(code-invalid): Unknown code 'xy' in the CodeSystem 'urn:ietf:bcp:47'"
    );
    let expand = |set: &str| {
        let query = Parameters::from_query(&format!("url=urn:{set}&count=2"));
        match terminology.expand(OperationLevel::Type, OperationInput::from_query(&query), "2026-11-21") {
            Err(error) => short(Err(error)),
            Ok(set) => {
                let set: serde_json::Value = serde_json::from_str(set.get()).unwrap();
                let contains = set["expansion"]["contains"].as_array().unwrap();
                contains.iter().map(|item| item["code"].as_str().unwrap()).collect::<Vec<_>>().join(" ")
            }
        }
    };
    assert_eq!(expand("few-units"), "mm[Hg] kPa");
    assert_eq!(expand("countries"), "AND ARE");
    assert!(expand("units").starts_with("Unprocessable(too-costly)"), "{}", expand("units"));
    assert_eq!(terminology.code_systems_by_url()[UCUM], [None]);
    // More codes than the cache can contain.
    for n in 0..20_000 {
        let code = format!("{{{n}}}");
        assert_eq!(lookup(&format!("system=http://unitsofmeasure.org&code={}", form(&code))), code);
    }
}
