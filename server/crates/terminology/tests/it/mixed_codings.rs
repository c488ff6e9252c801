//! Law of CodeableConcepts whose codings are of different systems and versions, as the records of hospitals
//! have them, with the code systems of R4 beside those of R5.

use std::collections::BTreeSet;

use fhir::Parameters;
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use trefoil_terminology::{OperationInput, OperationLevel, Terminology, TerminologyOperation};

use crate::support::{put, run};

/// A code system that FHIR itself defines, so that R4's version is used if none is stated.
const KNOWN: &str = "http://hl7.org/fhir/encounter-shape";
const LOCAL: &str = "http://hospital.example/codes";
const CODES: [&str; 5] = ["a", "b", "c", "d", "e"];

#[derive(Debug, Clone)]
struct Setup {
    /// Codes of the version of R4 and of R5.
    r4: BTreeSet<usize>,
    r5: BTreeSet<usize>,
    /// Codes that the value set lists; `None` for all of the code system.
    listed: Option<BTreeSet<usize>>,
    /// Whether the version of R5 was stored last.
    is_r5_last: bool,
    /// Whether the request follows the rules of HL7's ecosystem.
    is_ecosystem: bool,
    codings: Vec<Coding>,
}

#[derive(Debug, Clone)]
struct Coding {
    /// Whether the code is of the system that the server knows.
    is_known: bool,
    /// Whether the coding states a version, which is not stored.
    has_version: bool,
    code: usize,
}

fn setup() -> impl Strategy<Value = Setup> {
    let codes = || proptest::collection::btree_set(0..CODES.len(), 1..CODES.len());
    let coding = (0..4_u8, 0..4_u8, 0..CODES.len()).prop_map(|(system, version, code)| Coding {
        is_known: system > 0,
        has_version: version == 0,
        code,
    });
    let codings = proptest::collection::vec(coding, 1..4);
    (codes(), codes(), proptest::option::of(codes()), any::<[bool; 2]>(), codings).prop_map(
        |(r4, r5, listed, [is_r5_last, is_ecosystem], codings)| Setup {
            r4,
            r5,
            listed,
            is_r5_last,
            is_ecosystem,
            codings,
        },
    )
}

impl Setup {
    fn terminology(&self) -> Terminology {
        let system = |version: &str, codes: &BTreeSet<usize>| {
            let concepts: Vec<Json> = codes.iter().map(|at| json!({ "code": CODES[*at] })).collect();
            put(&json!({ "resourceType": "CodeSystem", "id": format!("v{version}"), "url": KNOWN, "version": version,
                "status": "active", "content": "complete", "concept": concepts })
            .to_string())
        };
        let mut systems = [system("4.0.1", &self.r4), system("5.0.0", &self.r5)];
        if !self.is_r5_last {
            systems.reverse();
        }
        let mut include = json!({ "system": KNOWN });
        if let Some(list) = &self.listed {
            include["concept"] = list.iter().map(|at| json!({ "code": CODES[*at] })).collect();
        }
        let set = json!({ "resourceType": "ValueSet", "id": "set", "url": "urn:set", "status": "active",
            "compose": { "include": [include] } });
        let terminology = Terminology::default();
        terminology.apply(systems);
        terminology.apply([put(&set.to_string())]);
        terminology
    }

    /// Whether the concept is valid: one coding is in the set. The ecosystem also requires that no coding has
    /// an unknown code of the system and version that the server has.
    fn is_valid(&self) -> bool {
        let judged = self.codings.iter().filter(|coding| coding.is_known && !coding.has_version);
        let is_listed = |code: &usize| self.listed.as_ref().is_none_or(|list| list.contains(code));
        let codes: Vec<usize> = judged.map(|coding| coding.code).collect();
        let is_faulty = self.is_ecosystem && codes.iter().any(|code| !self.r4.contains(code));
        !is_faulty && codes.iter().any(|code| self.r4.contains(code) && is_listed(code))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_concept_is_valid_by_its_known_codings(setup in setup()) {
        let codings: Vec<Json> = setup.codings.iter().map(|coding| {
            let mut json = json!({ "system": if coding.is_known { KNOWN } else { LOCAL }, "code": CODES[coding.code] });
            if coding.has_version {
                json["version"] = "9".into();
            }
            json
        }).collect();
        let mut parameters = vec![
            json!({ "name": "url", "valueUri": "urn:set" }),
            json!({ "name": "codeableConcept", "valueCodeableConcept": { "coding": codings } }),
        ];
        if setup.is_ecosystem {
            parameters.push(json!({ "name": "uuid", "valueString": "1" }));
        }
        let body = json!({ "resourceType": "Parameters", "parameter": parameters });
        let body: Parameters = serde_json::from_value(body).unwrap();
        let input = OperationInput::from_body(&body);
        let response = run(&setup.terminology(), TerminologyOperation::ValidateCode, OperationLevel::Type, input);
        let response = serde_json::to_value(response.unwrap()).unwrap();
        let parameters = response["parameter"].as_array().unwrap();
        let result = parameters.iter().find(|one| one["name"] == "result").unwrap();
        prop_assert_eq!(&result["valueBoolean"], &json!(setup.is_valid()), "{}", response);
        // Unknown systems and versions do not decide about a valid concept.
        let is_blamed = parameters.iter().any(|one| one["name"] == "x-caused-by-unknown-system");
        prop_assert!(!(setup.is_valid() && is_blamed), "{}", response);
    }
}
