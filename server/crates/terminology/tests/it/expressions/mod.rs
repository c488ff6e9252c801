//! Post-coordinated expressions: a law against a naive classifier over random terminologies, and examples.

mod examples;
mod naive;

use std::collections::BTreeSet;

use fhir::Parameters;
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use trefoil_terminology::indexing::{
    ContentMode, HierarchyMeaning, IndexBuilder, MemberFacts, ResourceHeader, SNOMED_CT,
};
use trefoil_terminology::{
    ConceptModelMode, OperationInput, OperationLevel, Terminology, TerminologyChange, TerminologyOperation,
};

use self::naive::{ATTRIBUTES, CONCEPTS, Part, Stated, code, hierarchy, stated};
use crate::support::{run, run_expand, short};

fn ask(terminology: &Terminology, operation: TerminologyOperation, body: &Json) -> Parameters {
    let body: Parameters = serde_json::from_value(body.clone()).unwrap();
    run(terminology, operation, OperationLevel::Type, OperationInput::from_body(&body)).unwrap()
}

fn subsumption(terminology: &Terminology, a: &str, b: &str) -> String {
    let body = json!({ "resourceType": "Parameters", "parameter": [
        { "name": "system", "valueUri": SNOMED_CT }, { "name": "codeA", "valueCode": a }, { "name": "codeB", "valueCode": b }] });
    ask(terminology, TerminologyOperation::Subsumes, &body).text("outcome").unwrap().to_owned()
}

/// Whether a value set of SNOMED CT with one filter contains a code.
fn is_member(terminology: &Terminology, filter: [&str; 3], expression: &str) -> bool {
    let [property, op, value] = filter;
    let body = json!({ "resourceType": "Parameters", "parameter": [
        { "name": "valueSet", "resource": { "resourceType": "ValueSet", "url": "urn:set", "status": "active", "compose": {
            "include": [{ "system": SNOMED_CT, "filter": [{ "property": property, "op": op, "value": value }] }] } } },
        { "name": "system", "valueUri": SNOMED_CT }, { "name": "code", "valueCode": expression }] });
    short(Ok(ask(terminology, TerminologyOperation::ValidateCode, &body))).starts_with("true")
}

/// Whether a value set that lists a code contains another one.
fn is_listed(terminology: &Terminology, list: &str, code: &str) -> bool {
    let body = json!({ "resourceType": "Parameters", "parameter": [
        { "name": "valueSet", "resource": { "resourceType": "ValueSet", "url": "urn:set", "status": "active", "compose": {
            "include": [{ "system": SNOMED_CT, "concept": [{ "code": list }] }] } } },
        { "name": "system", "valueUri": SNOMED_CT }, { "name": "code", "valueCode": code }] });
    short(Ok(ask(terminology, TerminologyOperation::ValidateCode, &body))).starts_with("true")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn expressions_are_classified_as_by_their_definitions(
        hierarchy in hierarchy(),
        a in stated(true),
        b in stated(true),
        at in ATTRIBUTES.end..CONCEPTS,
        attribute in ATTRIBUTES,
    ) {
        let terminology = hierarchy.terminology();
        let meanings = [&a, &b, &Stated::alone(at)].map(|stated| (stated.text(), hierarchy.meaning(stated)));
        for (one, meaning) in &meanings {
            for (other, others) in &meanings {
                let expected = match (hierarchy.subsumes(meaning, others), hierarchy.subsumes(others, meaning)) {
                    (true, true) => "equivalent",
                    (true, false) => "subsumes",
                    (false, true) => "subsumed-by",
                    (false, false) => "not-subsumed",
                };
                // A concept alone, beside another one, has the place that the release states.
                if one != other || one.contains(':') {
                    prop_assert_eq!(subsumption(&terminology, one, other), expected, "{} and {}", one, other);
                }
            }
        }
        let (text, meaning) = &meanings[0];
        if !text.contains([':', '+']) {
            return Ok(());
        }
        let is_below = meaning.subsumers.contains(&at);
        prop_assert_eq!(is_member(&terminology, ["concept", "is-a", &code(at)], text), is_below);
        prop_assert_eq!(is_member(&terminology, ["concept", "is-not-a", &code(at)], text), !is_below);
        prop_assert_eq!(is_member(&terminology, ["constraint", "=", &format!("< {}", code(at))], text), is_below);
        let constraint = format!("* MINUS << {}", code(at));
        prop_assert_eq!(is_member(&terminology, ["constraint", "=", &constraint], text), !is_below);
        let refined = meaning.groups.iter().flatten().any(|(name, part)| {
            hierarchy.is_a(*name, attribute) && hierarchy.is_below(part, &Part::Concept(at))
        });
        let constraint = format!("* : << {} = << {}", code(attribute), code(at));
        prop_assert_eq!(is_member(&terminology, ["constraint", "=", &constraint], text), refined, "{}", constraint);
        let in_group = meaning.groups.iter().zip(&meaning.ungrouped).filter(|(_, ungrouped)| !*ungrouped).any(|(group, _)| {
            group.iter().any(|(name, part)| hierarchy.is_a(*name, attribute) && hierarchy.is_below(part, &Part::Concept(at)))
        });
        let constraint = format!("* : {{ << {} = << {} }}", code(attribute), code(at));
        prop_assert_eq!(is_member(&terminology, ["constraint", "=", &constraint], text), in_group, "{}", constraint);
        // The same expression, stated otherwise, is in a value set that lists it.
        let with_blanks = text.replace('=', " = ").replace(',', " , ");
        prop_assert!(is_listed(&terminology, &with_blanks, text), "{}", with_blanks);
        prop_assert_eq!(subsumption(&terminology, &format!("<<<{with_blanks}"), &format!("<<< {text}")), "equivalent");
        if !hierarchy.is_classified() {
            return Ok(());
        }
        // The normal form means the same.
        let body = json!({ "resourceType": "Parameters", "parameter": [
            { "name": "system", "valueUri": SNOMED_CT }, { "name": "code", "valueCode": text },
            { "name": "property", "valueCode": "normalFormTerse" }] });
        let response = serde_json::to_value(ask(&terminology, TerminologyOperation::Lookup, &body)).unwrap();
        let properties = response["parameter"].as_array().unwrap().iter().filter(|one| one["name"] == "property");
        let terse: Vec<_> = properties.map(|one| one["part"][1]["valueString"].as_str().unwrap().to_owned()).collect();
        prop_assert_eq!(terse.len(), 1, "{}", response);
        if terse[0].contains([':', '+']) {
            prop_assert_eq!(subsumption(&terminology, text, &terse[0]), "equivalent", "{}", terse[0]);
        }
    }
}
