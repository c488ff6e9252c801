//! `$translate`: directions, scopes, unmapped codes, dependencies, the names of R5; and a law with random
//! maps.

use std::collections::BTreeSet;

use fhir::{Parameters, Value};
use proptest::prelude::*;
use trefoil_terminology::{OperationInput, OperationLevel, Terminology, TerminologyOperation, TxError};

use crate::support::{body, garden, put, run};

const MAPS: [&str; 4] = [
    r#"{"resourceType":"ConceptMap","id":"wood","url":"urn:wood","version":"3","status":"active",
        "sourceCanonical":"http://garden.example/trees|2","targetUri":"urn:timber-set",
        "group":[{"source":"http://garden.example/plants","target":"urn:timber","element":[
          {"code":"apple","target":[{"code":"fruitwood","display":"Fruitwood","equivalence":"wider"}]},
          {"code":"pear","target":[{"code":"fruitwood","equivalence":"wider"},{"code":"pearwood","equivalence":"equal",
            "product":[{"property":"urn:grain","system":"urn:grains","value":"fine"}]}]},
          {"code":"stone","target":[{"equivalence":"unmatched","comment":"no wood"}]},
          {"code":"elm","target":[{"code":"hard","equivalence":"narrower",
            "dependsOn":[{"property":"urn:age","value":"old"}]}]}],
          "unmapped":{"mode":"fixed","code":"other","display":"Other wood"}},
         {"source":"http://garden.example/plants","target":"http://garden.example/tools","element":[
          {"code":"apple","target":[{"code":"rake","equivalence":"relatedto"}]}]}]}"#,
    r#"{"resourceType":"ConceptMap","id":"tools","url":"urn:tools","status":"active","group":[
        {"source":"http://garden.example/tools","target":"http://garden.example/plants","element":[
          {"code":"Spade","target":[{"code":"crop","equivalence":"inexact"}]}],"unmapped":{"mode":"provided"}}]}"#,
    r#"{"resourceType":"ConceptMap","id":"chain","url":"urn:chain","status":"active","group":[
        {"source":"http://garden.example/plants","target":"urn:timber","unmapped":{"mode":"other-map","url":"urn:wood"}}]}"#,
    r#"{"resourceType":"ConceptMap","id":"circle","url":"urn:circle","status":"active","group":[
        {"source":"urn:timber","target":"urn:x","unmapped":{"mode":"other-map","url":"urn:circle"}}]}"#,
];

fn with_maps() -> Terminology {
    let terminology = garden();
    terminology.apply(MAPS.iter().map(|json| put(json)));
    terminology
}

/// An answer as short text: the result, each match as `relation code (system) < map`, and the message.
fn short(answer: Result<Parameters, TxError>) -> String {
    let response = match answer {
        Ok(response) => response,
        Err(error) => return format!("error: {error}"),
    };
    let result = response.get("result").and_then(|parameter| parameter.value.clone());
    let mut out = format!("{}", result == Some(Value::Boolean(true)));
    for one in response.all("match") {
        let part = |names: [&str; 2]| {
            one.part.iter().find(|part| names.contains(&&*part.name)).and_then(|part| part.value.clone())
        };
        let text = |value: Option<Value>| match value {
            Some(Value::Text(_, text)) => text,
            _ => "?".to_owned(),
        };
        let concept = match part(["concept", ""]) {
            Some(Value::Coding(coding)) => {
                let display = coding.display.map(|display| format!(" '{display}'")).unwrap_or_default();
                format!("{}#{}{display}", coding.system.unwrap_or_default(), coding.code.unwrap_or_default())
            }
            _ => "-".to_owned(),
        };
        let relation = text(part(["equivalence", "relationship"]));
        out.push_str(&format!(" | {relation} {concept} < {}", text(part(["source", "originMap"]))));
    }
    if let Some(message) = response.text("message") {
        out.push_str(&format!(" [{message}]"));
    }
    out
}

fn by_get(terminology: &Terminology, level: OperationLevel<'_>, query: &str) -> String {
    let query = Parameters::from_query(query);
    short(run(terminology, TerminologyOperation::Translate, level, OperationInput::from_query(&query)))
}

fn by_post(terminology: &Terminology, parameters: &str) -> String {
    let parameters = body(parameters);
    let input = OperationInput::from_body(&parameters);
    short(run(terminology, TerminologyOperation::Translate, OperationLevel::Type, input))
}

#[test]
fn a_code_is_translated_by_the_maps_that_fit() {
    let terminology = with_maps();
    const PLANTS: &str = "system=http://garden.example/plants";
    for (query, expected) in [
        (
            format!("url=urn:wood&{PLANTS}&code=apple&targetsystem=urn:timber"),
            "true | wider urn:timber#fruitwood 'Fruitwood' < urn:wood|3",
        ),
        (
            format!("url=urn:wood|3&{PLANTS}&code=apple"),
            "true | wider urn:timber#fruitwood 'Fruitwood' < urn:wood|3 | relatedto http://garden.example/tools#rake \
             'Rake' < urn:wood|3",
        ),
        (
            format!("url=urn:wood&{PLANTS}&code=pear&targetsystem=urn:timber"),
            "true | wider urn:timber#fruitwood < urn:wood|3 | equal urn:timber#pearwood < urn:wood|3",
        ),
        (
            format!("url=urn:wood&{PLANTS}&code=stone"),
            "false | unmatched - < urn:wood|3 ['http://garden.example/plants#stone' has no translation in the \
             concept map]",
        ),
        // A code that no element lists.
        (
            format!("url=urn:wood&{PLANTS}&code=fern"),
            "true | relatedto urn:timber#other 'Other wood' < urn:wood|3",
        ),
        (
            "url=urn:tools&system=http://garden.example/tools&code=rake".to_owned(),
            "true | equal http://garden.example/plants#rake < urn:tools",
        ),
        // The code system ignores case.
        (
            "url=urn:tools&system=http://garden.example/tools&code=SPADE".to_owned(),
            "true | inexact http://garden.example/plants#crop 'Crop' < urn:tools",
        ),
        (
            format!("url=urn:chain&{PLANTS}&code=apple"),
            "true | wider urn:timber#fruitwood 'Fruitwood' < urn:wood|3 | relatedto http://garden.example/tools#rake \
             'Rake' < urn:wood|3",
        ),
        (
            "url=urn:circle&system=urn:timber&code=x".to_owned(),
            "false ['urn:timber#x' has no translation in the concept map]",
        ),
        // Without a map: all between the value sets, or to the code system.
        (
            format!("{PLANTS}&code=apple&targetsystem=urn:timber"),
            "true | wider urn:timber#fruitwood 'Fruitwood' < urn:wood|3",
        ),
        (
            format!(
                "{PLANTS}&code=apple&source=http://garden.example/trees&target=urn:timber-set&targetsystem=urn:timber"
            ),
            "true | wider urn:timber#fruitwood 'Fruitwood' < urn:wood|3",
        ),
        (
            format!("{PLANTS}&code=apple&target=urn:another-set"),
            "false ['http://garden.example/plants#apple' has no translation: no concept map fits; store one, or name it \
             with 'url']",
        ),
        // Backwards.
        (
            "url=urn:wood&system=urn:timber&code=fruitwood&reverse=true".to_owned(),
            "true | narrower http://garden.example/plants#apple 'Apple tree' < urn:wood|3 | narrower \
             http://garden.example/plants#pear 'Pear tree' < urn:wood|3",
        ),
        (
            "system=urn:timber&targetCode=pearwood".to_owned(),
            "true | equivalent http://garden.example/plants#pear 'Pear tree' < urn:wood|3",
        ),
        (
            "system=urn:timber&code=pearwood&reverse=true&source=urn:timber-set&targetsystem=urn:nothing"
                .to_owned(),
            "false [no code of 'urn:nothing' is translated to 'urn:timber#pearwood' in the concept map]",
        ),
        // Names of R5.
        (
            format!("url=urn:wood&{PLANTS}&sourceCode=apple&targetSystem=urn:timber"),
            "true | source-is-narrower-than-target urn:timber#fruitwood 'Fruitwood' < urn:wood|3",
        ),
        // Errors.
        (
            format!("url=urn:none&{PLANTS}&code=apple"),
            "error: the concept map 'urn:none' is not known; store it, or send it as \
             'conceptMap' or 'tx-resource'",
        ),
        ("url=urn:wood&code=apple".to_owned(), "error: parameter 'system' is required with 'code'"),
        (
            format!("url=urn:wood&{PLANTS}&code=apple&sourceCode=apple"),
            "error: parameter 'sourceCode': the request has several codes; send one code, coding or concept",
        ),
        (
            "url=urn:wood".to_owned(),
            "error: one of the parameters 'code' with 'system', 'coding' and 'codeableConcept' is required",
        ),
    ] {
        assert_eq!(by_get(&terminology, OperationLevel::Type, &query), expected, "{query}");
    }
    let on_instance = by_get(&terminology, OperationLevel::Instance("wood"), &format!("{PLANTS}&code=fern"));
    assert_eq!(on_instance, "true | relatedto urn:timber#other 'Other wood' < urn:wood|3");
    let unknown = by_get(&terminology, OperationLevel::Instance("none"), &format!("{PLANTS}&code=fern"));
    assert_eq!(unknown, "error: ConceptMap/none is not known");
}

#[test]
fn a_dependency_must_be_stated() {
    let terminology = with_maps();
    let url = r#"{"name":"url","valueUri":"urn:wood"}"#;
    let elm = r#"{"name":"coding","valueCoding":{"system":"http://garden.example/plants","code":"elm"}}"#;
    let age = |value: &str| {
        format!(
            r#"{{"name":"dependency","part":[{{"name":"element","valueUri":"urn:age"}},
               {{"name":"concept","valueCodeableConcept":{{"text":"{value}"}}}}]}}"#
        )
    };
    let without = by_post(&terminology, &format!("{url},{elm}"));
    assert!(without.starts_with("false [") && without.contains("urn:age = old"), "{without}");
    let young = by_post(&terminology, &format!("{url},{elm},{}", age("young")));
    assert!(young.starts_with("false ["), "{young}");
    let old = by_post(&terminology, &format!("{url},{elm},{}", age("old")));
    assert_eq!(old, "true | narrower urn:timber#hard < urn:wood|3");
    let wrong = by_post(&terminology, &format!(r#"{url},{elm},{{"name":"dependency","part":[]}}"#));
    assert!(wrong.contains("it needs the parts 'element'"), "{wrong}");
}

#[test]
fn every_coding_of_a_concept_is_translated_and_a_map_may_be_sent() {
    let terminology = garden();
    let concept = r#"{"name":"codeableConcept","valueCodeableConcept":{"coding":[
        {"system":"urn:local","code":"1"},{"system":"http://garden.example/plants","code":"pear"}]}}"#;
    let map = format!(r#"{{"name":"conceptMap","resource":{}}}"#, MAPS[0]);
    let response = by_post(&terminology, &format!("{concept},{map}"));
    assert_eq!(
        response,
        "true | wider urn:timber#fruitwood < urn:wood|3 | equal urn:timber#pearwood < urn:wood|3"
    );
    let beside = format!(r#"{{"name":"tx-resource","resource":{}}}"#, MAPS[0]);
    let response =
        by_post(&terminology, &format!(r#"{concept},{beside},{{"name":"url","valueUri":"urn:wood"}}"#));
    assert!(response.starts_with("true | wider"), "{response}");
    let other = r#"{"name":"conceptMap","resource":{"resourceType":"ValueSet"}}"#;
    let response = by_post(&terminology, &format!("{concept},{other}"));
    assert_eq!(response, "error: parameter 'conceptMap': it is a ValueSet, not a ConceptMap");
}

/// Codes of random maps, of which the first 6 can be sources and targets.
const CODES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
const SYSTEMS: [&str; 3] = ["urn:s0", "urn:s1", "urn:s2"];

/// A row of a random map: source system, source code, target system, target code, number of the equivalence.
type MapRow = (usize, usize, usize, usize, usize);

const EQUIVALENCES: [&str; 4] = ["equal", "wider", "disjoint", "inexact"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Each code has exactly the counterparts that a scan of all rows finds, in both directions.
    #[test]
    fn random_maps_agree_with_a_scan(
        rows in prop::collection::btree_set((0..3usize, 0..6usize, 0..3usize, 0..6usize, 0..4usize), 1..40)
    ) {
        let group = |source: usize, target: usize| {
            let element = |code: usize| {
                let targets: Vec<String> = rows.iter()
                    .filter(|row| (row.0, row.1, row.2) == (source, code, target))
                    .map(|row| format!(r#"{{"code":"{}","equivalence":"{}"}}"#, CODES[row.3], EQUIVALENCES[row.4]))
                    .collect();
                (!targets.is_empty())
                    .then(|| format!(r#"{{"code":"{}","target":[{}]}}"#, CODES[code], targets.join(",")))
            };
            let elements: Vec<String> = (0..6).filter_map(element).collect();
            (!elements.is_empty()).then(|| format!(
                r#"{{"source":"{}","target":"{}","element":[{}]}}"#,
                SYSTEMS[source], SYSTEMS[target], elements.join(",")
            ))
        };
        let groups: Vec<String> = (0..9).filter_map(|pair| group(pair / 3, pair % 3)).collect();
        let map = format!(
            r#"{{"resourceType":"ConceptMap","id":"m","url":"urn:m","status":"active","group":[{}]}}"#,
            groups.join(",")
        );
        let terminology = Terminology::default();
        terminology.apply([put(&map)]);
        for (system, code, reverse) in
            (0..3).flat_map(|s| (0..8).flat_map(move |c| [(s, c, false), (s, c, true)]))
        {
            let query = format!("url=urn:m&system={}&code={}&reverse={reverse}", SYSTEMS[system], CODES[code]);
            let query = Parameters::from_query(&query);
            let input = OperationInput::from_query(&query);
            let response = run(&terminology, TerminologyOperation::Translate, OperationLevel::Type, input).unwrap();
            let pairs: BTreeSet<(String, String)> = response
                .all("match")
                .map(|one| {
                    let coding = one.part.iter().find_map(|part| match &part.value {
                        Some(Value::Coding(coding)) => Some(coding.clone()),
                        _ => None,
                    });
                    let coding = coding.unwrap();
                    let equivalence = match &one.part[0].value {
                        Some(Value::Text(_, text)) => text.clone(),
                        other => panic!("{other:?}"),
                    };
                    (format!("{}#{}", coding.system.unwrap(), coding.code.unwrap()), equivalence)
                })
                .collect();
            let matching = rows.iter().filter(|row: &&MapRow| match reverse {
                true => (row.2, row.3) == (system, code),
                false => (row.0, row.1) == (system, code),
            });
            let expected: BTreeSet<(String, String)> = matching
                .map(|row| {
                    let (of, code) = if reverse { (row.0, row.1) } else { (row.2, row.3) };
                    let equivalence = match (EQUIVALENCES[row.4], reverse) {
                        ("wider", true) => "narrower",
                        (other, _) => other,
                    };
                    (format!("{}#{}", SYSTEMS[of], CODES[code]), equivalence.to_owned())
                })
                .collect();
            let is_translated = expected.iter().any(|(_, equivalence)| equivalence != "disjoint");
            prop_assert_eq!(&pairs, &expected);
            prop_assert_eq!(
                response.get("result").unwrap().value.clone(),
                Some(Value::Boolean(is_translated))
            );
        }
    }
}
