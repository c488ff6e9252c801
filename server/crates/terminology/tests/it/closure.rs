//! The law of `$closure`: however the codes arrive, the relations of all answers are those that a naive walk
//! finds among the codes of the table, and each version can be repeated.

use std::collections::BTreeSet;

use fhir::Coding;
use proptest::prelude::*;
use serde_json::{Value, json};
use trefoil_terminology::{Budget, ClosureRequest, ClosureTable, Terminology, TxError};

use crate::support::put;

const SYSTEM: &str = "urn:closure";
const NOW: &str = "2026-01-01T00:00:00Z";

/// Two codes, of which the second one subsumes the first one.
type Pair = (String, String);

fn terminology(parents: &[Vec<usize>]) -> Terminology {
    let concepts = parents.iter().enumerate().map(|(at, list)| {
        let links: Vec<_> =
            list.iter().map(|above| json!({ "code": "parent", "valueCode": format!("c{above}") })).collect();
        match links.is_empty() {
            true => json!({ "code": format!("c{at}") }),
            false => json!({ "code": format!("c{at}"), "property": links }),
        }
    });
    let system = json!({ "resourceType": "CodeSystem", "id": "s", "url": SYSTEM, "version": "1",
        "status": "active", "content": "complete", "concept": concepts.collect::<Vec<_>>() });
    let terminology = Terminology::default();
    terminology.apply([put(&system.to_string())]);
    terminology
}

fn ask(
    terminology: &Terminology,
    table: &ClosureTable,
    request: ClosureRequest<'_>,
) -> Result<(ClosureTable, Vec<Pair>), TxError> {
    let budget = Budget::default();
    let (table, map) = terminology.closure("law", table, request, NOW, &budget)?;
    let map: Value = serde_json::from_str(map.get()).unwrap();
    assert_eq!(map["version"], table.version.to_string());
    let mut pairs = Vec::new();
    for group in map["group"].as_array().into_iter().flatten() {
        for element in group["element"].as_array().unwrap() {
            for target in element["target"].as_array().unwrap() {
                assert_eq!(target["equivalence"], "subsumes");
                let code = |value: &Value| value["code"].as_str().unwrap().to_owned();
                pairs.push((code(element), code(target)));
            }
        }
    }
    Ok((table, pairs))
}

/// Whether a concept is above another one, by walking.
fn is_above(parents: &[Vec<usize>], above: usize, of: usize) -> bool {
    parents[of].iter().any(|&parent| parent == above || is_above(parents, above, parent))
}

fn hierarchies() -> impl Strategy<Value = (Vec<Vec<usize>>, Vec<Vec<usize>>)> {
    (2_usize..30).prop_flat_map(|len| {
        let parents: Vec<_> =
            (0..len).map(|at| prop::collection::vec(0..at.max(1), 0..if at == 0 { 1 } else { 3 })).collect();
        (parents, prop::collection::vec(prop::collection::vec(0..len, 1..6), 1..8))
    })
}

proptest! {
    #[test]
    fn the_answers_together_are_the_closure((parents, additions) in hierarchies()) {
        let terminology = terminology(&parents);
        let mut table = ClosureTable::default();
        let mut codes = BTreeSet::new();
        let mut pairs: BTreeSet<Pair> = BTreeSet::new();
        let mut after: Vec<(u64, BTreeSet<Pair>)> = vec![(0, BTreeSet::new())];
        for addition in &additions {
            let codings: Vec<_> =
                addition.iter().map(|at| Coding::new(SYSTEM, format!("c{at}"))).collect();
            let before = table.version;
            let (next, new) = ask(&terminology, &table, ClosureRequest::Add(&codings)).unwrap();
            let grows = addition.iter().any(|at| codes.insert(*at));
            codes.extend(addition);
            prop_assert_eq!(next.version, before + u64::from(grows));
            for pair in new {
                prop_assert!(pairs.insert(pair.clone()), "{:?} was told twice", pair);
            }
            table = next;
            after.push((table.version, pairs.clone()));
        }
        let related = |&above: &usize, &of: &usize| is_above(&parents, above, of);
        let expected: BTreeSet<Pair> = codes
            .iter()
            .flat_map(|of| codes.iter().filter(|above| related(above, of)).map(move |above| (format!("c{of}"), format!("c{above}"))))
            .collect();
        prop_assert_eq!(&pairs, &expected);
        // The relations that a client knew at a version and those that are repeated since then are all.
        for (version, known) in after {
            let (same, newer) = ask(&terminology, &table, ClosureRequest::Since(version)).unwrap();
            prop_assert_eq!(&same, &table);
            let newer: BTreeSet<Pair> = newer.into_iter().collect();
            prop_assert!(newer.is_disjoint(&known));
            prop_assert_eq!(known.union(&newer).cloned().collect::<BTreeSet<_>>(), pairs.clone());
        }
        // A table is stored as JSON.
        let copy: ClosureTable = serde_json::from_str(&serde_json::to_string(&table).unwrap()).unwrap();
        prop_assert_eq!(copy, table);
    }
}

#[test]
fn a_table_keeps_its_version_of_the_code_system() {
    let terminology = terminology(&[vec![], vec![0]]);
    let codings = [Coding::new(SYSTEM, "c0"), Coding::new(SYSTEM, "c1")];
    let (table, pairs) = ask(&terminology, &ClosureTable::default(), ClosureRequest::Add(&codings)).unwrap();
    assert_eq!(pairs, [("c1".to_owned(), "c0".to_owned())]);

    // In the newer version, the concepts have no relation.
    let newer = json!({ "resourceType": "CodeSystem", "id": "t", "url": SYSTEM, "version": "2",
        "status": "active", "content": "complete", "concept": [{ "code": "c0" }, { "code": "c1" }] });
    terminology.apply([put(&newer.to_string())]);
    assert_eq!(ask(&terminology, &table, ClosureRequest::Since(0)).unwrap().1, pairs);
    let other = [Coding { version: Some("2".into()), ..Coding::new(SYSTEM, "c1") }];
    let error = ask(&terminology, &table, ClosureRequest::Add(&other)).unwrap_err().to_string();
    assert!(error.contains("its version 2 is not the version 1 of the table"), "{error}");

    // Without its version, the table cannot be continued.
    terminology
        .apply([trefoil_terminology::TerminologyChange::Delete { kind: "CodeSystem", id: "s".into() }]);
    let error = ask(&terminology, &table, ClosureRequest::Since(0)).unwrap_err().to_string();
    assert!(error.contains("urn:closure|1, which is no longer stored; begin the table again"), "{error}");
}
