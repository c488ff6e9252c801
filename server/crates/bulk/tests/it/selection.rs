//! Tests that an export contains exactly the selection that a simple scan of all resources computes.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::json;
use trefoil_bulk::ExportLevel;

use crate::support::{Setup, finish};

/// A small set of resources: the Patients of each Observation (none, one or two), the targets of each
/// Provenance, and the members of the Group.
#[derive(Debug, Clone)]
struct Population {
    patients: usize,
    observations: Vec<(Option<usize>, Option<usize>)>,
    provenances: Vec<Vec<usize>>,
    members: BTreeSet<usize>,
}

fn population() -> impl Strategy<Value = Population> {
    (1_usize..8).prop_flat_map(|patients| {
        let who = proptest::option::of(0..patients);
        let observations = proptest::collection::vec((who.clone(), who), 0..20);
        let members = proptest::collection::btree_set(0..patients, 0..=patients);
        (Just(patients), observations, members).prop_flat_map(|(patients, observations, members)| {
            let targets = 0..patients + observations.len();
            let provenances = proptest::collection::vec(proptest::collection::vec(targets, 1..4), 0..8);
            (Just(patients), Just(observations), provenances, Just(members)).prop_map(
                |(patients, observations, provenances, members)| Population {
                    patients,
                    observations,
                    provenances,
                    members,
                },
            )
        })
    })
}

/// Returns the reference to a target. Numbers refer to the Patients first, then to the Observations.
fn target(population: &Population, number: usize) -> String {
    match number.checked_sub(population.patients) {
        None => format!("Patient/p{number}"),
        Some(observation) => format!("Observation/o{observation}"),
    }
}

async fn store(setup: &Setup, population: &Population) {
    for number in 0..population.patients {
        setup.put("Patient", &format!("p{number}"), json!({})).await;
    }
    for (number, (subject, performer)) in population.observations.iter().enumerate() {
        let mut body = json!({ "status": "final" });
        if let Some(subject) = subject {
            body["subject"] = json!({ "reference": format!("Patient/p{subject}") });
        }
        if let Some(performer) = performer {
            body["performer"] =
                json!([{ "reference": format!("https://s.example/fhir/R4/Patient/p{performer}") }]);
        }
        setup.put("Observation", &format!("o{number}"), body).await;
    }
    for (number, targets) in population.provenances.iter().enumerate() {
        let targets: Vec<_> =
            targets.iter().map(|t| json!({ "reference": target(population, *t) })).collect();
        setup.put("Provenance", &format!("v{number}"), json!({ "target": targets })).await;
    }
    let members: Vec<_> = population
        .members
        .iter()
        .map(|m| json!({ "entity": { "reference": format!("Patient/p{m}") } }))
        .collect();
    setup.put("Group", "g", json!({ "type": "person", "actual": true, "member": members })).await;
}

/// Returns the expected selection of the Group, computed by a scan of all resources.
fn selected(population: &Population) -> BTreeMap<String, BTreeSet<String>> {
    let is_member = |who: &Option<usize>| who.is_some_and(|who| population.members.contains(&who));
    let patients: BTreeSet<usize> = population
        .observations
        .iter()
        .enumerate()
        .filter(|(_, (subject, performer))| is_member(subject) || is_member(performer))
        .map(|(number, _)| number)
        .collect();
    let is_exported = |number: &usize| match number.checked_sub(population.patients) {
        None => population.members.contains(number),
        Some(observation) => patients.contains(&observation),
    };
    let provenances =
        population.provenances.iter().enumerate().filter(|(_, targets)| targets.iter().any(is_exported));
    let ids_of = |letter: &str, numbers: Vec<usize>| -> BTreeSet<String> {
        numbers.into_iter().map(|number| format!("{letter}{number}")).collect()
    };
    let mut all = BTreeMap::from([
        ("Patient".to_owned(), ids_of("p", population.members.iter().copied().collect())),
        ("Observation".to_owned(), ids_of("o", patients.iter().copied().collect())),
        ("Provenance".to_owned(), ids_of("v", provenances.map(|(number, _)| number).collect())),
    ]);
    all.retain(|_, ids| !ids.is_empty());
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn an_export_contains_exactly_its_selection(population in population()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let setup = Setup::new();
            store(&setup, &population).await;
            let group = setup.export(ExportLevel::Group("g".to_owned()), &[]).await;
            assert_eq!(setup.read(&setup.bulk, &group).await, selected(&population));

            let system = setup.read(&setup.bulk, &setup.export(ExportLevel::System, &[]).await).await;
            let count = |kind: &str| system.get(kind).map_or(0, BTreeSet::len);
            assert_eq!(count("Patient"), population.patients);
            assert_eq!(count("Observation"), population.observations.len());
            assert_eq!(count("Provenance"), population.provenances.len());
            assert_eq!(count("Group"), 1);
        });
    }
}

/// Status and code of an Observation.
type Finding = (bool, u8);

/// `_typeFilter` and the condition that it states. Some are looked up in the search index, and some are not.
type FilterCase = (&'static [&'static str], fn(usize, Finding) -> bool);

const FILTERS: [FilterCase; 7] = [
    (&["Observation?code=c1"], |_, (_, code)| code == 1),
    (&["Observation?code=c1&status=final"], |_, (is_final, code)| code == 1 && is_final),
    (&["Observation?code=c0,c2"], |_, (_, code)| code != 1),
    (&["Observation?code=c0", "Observation?status=final"], |_, (is_final, code)| code == 0 || is_final),
    (&["Observation?code=c0", "Observation?status:not=final"], |_, (is_final, code)| code == 0 || !is_final),
    (&["Observation?_id=o1,o3"], |number, _| number == 1 || number == 3),
    (&["Observation?code=c1", "Patient?active=true"], |_, (_, code)| code == 1),
];

async fn put_finding(setup: &Setup, number: usize, (is_final, code): Finding) {
    let status = if is_final { "final" } else { "amended" };
    let body = json!({ "status": status, "code": { "coding": [{ "code": format!("c{code}") }] } });
    setup.put("Observation", &format!("o{number}"), body).await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_filtered_export_contains_what_matched_at_its_kick_off(
        findings in proptest::collection::vec((any::<bool>(), 0_u8..3), 1..12),
        later in proptest::collection::vec((0_usize..14, proptest::option::of((any::<bool>(), 0_u8..3))), 0..12),
        case in 0..FILTERS.len(),
        restart in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let setup = Setup::new();
            for (number, finding) in findings.iter().enumerate() {
                put_finding(&setup, number, *finding).await;
            }
            let (filters, is_met) = FILTERS[case];
            let query: Vec<_> = filters.iter().map(|filter| ("_typeFilter", *filter)).collect();
            let request = setup.request(ExportLevel::System, &query);
            let job = setup.bulk.kick_off(request, setup.now()).await.unwrap();
            for (number, write) in later {
                match write {
                    Some(finding) => put_finding(&setup, number, finding).await,
                    None => drop(setup.resources.delete("Observation", &format!("o{number}"), None, setup.now()).await),
                }
            }
            let reopened = setup.reopened();
            let bulk = if restart { &reopened } else { &setup.bulk };
            if restart {
                bulk.resume().await.unwrap();
            }
            let manifest = finish(bulk, &job, setup.now()).await;
            let exported = setup.read(bulk, &manifest).await.remove("Observation").unwrap_or_default();
            let met = |(number, finding): (usize, &Finding)| is_met(number, *finding).then(|| format!("o{number}"));
            let expected: BTreeSet<String> = findings.iter().enumerate().filter_map(met).collect();
            assert_eq!(exported, expected, "{filters:?}");
        });
    }
}

#[tokio::test]
async fn since_and_until_are_strict_and_types_are_a_filter() {
    let setup = Setup::new();
    setup.put("Patient", "before", json!({})).await;
    setup.pass(std::time::Duration::from_millis(1));
    let first = setup.export(ExportLevel::System, &[]).await;
    let moment = first["transactionTime"].as_str().unwrap().to_owned();
    setup.put("Patient", "after", json!({})).await;
    setup.put("Observation", "o", json!({ "status": "final" })).await;
    let read = async |query: &[(&str, &str)]| {
        let manifest = setup.export(ExportLevel::System, query).await;
        let all = setup.read(&setup.bulk, &manifest).await;
        all.into_iter()
            .flat_map(|(kind, ids)| ids.into_iter().map(move |id| format!("{kind}/{id}")))
            .collect::<Vec<_>>()
    };
    assert_eq!(read(&[("_since", &moment)]).await, ["Observation/o", "Patient/after"]);
    assert_eq!(read(&[("_since", &moment), ("_type", "Patient")]).await, ["Patient/after"]);
    assert_eq!(read(&[("_until", &moment)]).await, ["Patient/before"]);
    assert_eq!(read(&[("_type", "Observation,Patient")]).await.len(), 3);
    setup.resources.delete("Patient", "after", None, setup.now()).await.unwrap();
    assert_eq!(read(&[("_since", &moment)]).await, ["Observation/o"]);
}
