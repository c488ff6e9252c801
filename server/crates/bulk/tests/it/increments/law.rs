//! Law: a copy that a client keeps by increments equals a full export, with supporting resources,
//! Provenance, nested Groups, memberships that end, and erasures. The increments list everything that the
//! client must remove.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;
use store::Store;
use trefoil_bulk::{ExportLevel, GroupLeavers};

use super::{Kept, SECOND, apply_lists, group_of};
use crate::support::{BASE, Setup, cases, finish, in_database, wait};

#[derive(Debug, Clone)]
enum Change {
    Patient(usize, u8),
    /// An Observation with a status belongs to a Patient, or to none, and may have a performer.
    Observation(usize, Option<usize>, bool, Option<Performer>),
    /// Provenance of two resources with a time, some of which may not exist or be of another type.
    Provenance(usize, [(&'static str, usize); 2], u8),
    /// A Practitioner with an Organization.
    Practitioner(usize, usize),
    Organization(usize, u8),
    /// A Device, which may belong to a Patient.
    Device(usize, Option<usize>),
    Delete(&'static str, usize),
    /// The Group has these members, as bits; the membership of the last one ends soon.
    Members(u8),
    /// The nested Group has these members.
    Nested(u8),
    DeleteNested,
    /// A Patient is erased with the whole record.
    Erase(usize),
    Pass,
}

/// A resource that may be supporting: its type and number.
type Performer = (&'static str, usize);

fn change() -> impl Strategy<Value = Change> {
    let number = || 0_usize..5;
    let performer = || (prop::sample::select(vec!["Practitioner", "Organization", "Device"]), 0_usize..3);
    let target =
        || (prop::sample::select(vec!["Observation", "Observation", "Device", "Practitioner"]), 0_usize..4);
    prop_oneof![
        2 => (number(), any::<u8>()).prop_map(|(number, value)| Change::Patient(number, value)),
        4 => (number(), proptest::option::weighted(0.9, number()), any::<bool>(), proptest::option::of(performer()))
            .prop_map(|(number, patient, is_final, performer)| {
                Change::Observation(number, patient, is_final, performer)
            }),
        2 => (number(), [target(), target()], 0..3_u8)
            .prop_map(|(number, targets, recorded)| Change::Provenance(number, targets, recorded)),
        1 => (0_usize..3, 0_usize..3).prop_map(|(number, of)| Change::Practitioner(number, of)),
        1 => (0_usize..3, any::<u8>()).prop_map(|(number, value)| Change::Organization(number, value)),
        1 => (0_usize..3, proptest::option::of(number())).prop_map(|(number, of)| Change::Device(number, of)),
        3 => (prop::sample::select(KINDS.to_vec()), number())
            .prop_map(|(kind, number)| Change::Delete(kind, number)),
        2 => (0_u8..32).prop_map(Change::Members),
        1 => (0_u8..32).prop_map(Change::Nested),
        1 => Just(Change::DeleteNested),
        1 => number().prop_map(Change::Erase),
        1 => Just(Change::Pass),
    ]
}

/// The types that the law writes.
const KINDS: [&str; 6] = ["Device", "Observation", "Organization", "Patient", "Practitioner", "Provenance"];

/// The Patients whose bits are set.
fn patients(bits: u8) -> impl Iterator<Item = String> {
    (0..5).filter(move |number| bits >> number & 1 == 1).map(|number| format!("p{number}"))
}

impl Change {
    async fn put_group(setup: &Setup, members: u8) {
        let mut group = group_of(patients(members));
        let members = group["member"].as_array_mut().unwrap();
        if let Some(last) = members.last_mut() {
            last["period"] = json!({ "end": fhir::instant::format(setup.now() + SECOND) });
        }
        members.push(json!({ "entity": { "reference": "Group/nested" } }));
        setup.put("Group", "g", group).await;
    }

    async fn carry_out(&self, setup: &Setup) {
        let reference =
            |kind: &str, number: usize| json!({ "reference": format!("{kind}/{}{number}", letter(kind)) });
        match *self {
            Self::Patient(number, value) => {
                setup.put("Patient", &format!("p{number}"), json!({ "language": value.to_string() })).await;
            }
            Self::Observation(number, patient, is_final, performer) => {
                let mut body = json!({ "status": if is_final { "final" } else { "registered" } });
                if let Some(patient) = patient {
                    body["subject"] = reference("Patient", patient);
                }
                match performer {
                    Some(("Device", device)) => body["device"] = reference("Device", device),
                    Some((kind, number)) => body["performer"] = json!([reference(kind, number)]),
                    None => {}
                }
                setup.put("Observation", &format!("o{number}"), body).await;
            }
            Self::Practitioner(number, organization) => {
                let body = json!({ "qualification": [{
                    "code": { "text": "x" }, "issuer": reference("Organization", organization),
                }] });
                setup.put("Practitioner", &format!("h{number}"), body).await;
            }
            Self::Organization(number, value) => {
                setup.put("Organization", &format!("z{number}"), json!({ "name": value.to_string() })).await;
            }
            Self::Device(number, patient) => {
                let patient = patient.map(|patient| reference("Patient", patient));
                let body = patient.map_or(json!({}), |patient| json!({ "patient": patient }));
                setup.put("Device", &format!("d{number}"), body).await;
            }
            Self::Provenance(number, targets, recorded) => {
                let targets = targets.map(|(kind, number)| reference(kind, number));
                let recorded = format!("2026-01-0{}T00:00:00Z", recorded + 1);
                let body = json!({ "target": targets, "recorded": recorded });
                setup.put("Provenance", &format!("v{number}"), body).await;
            }
            Self::Delete(kind, number) => setup.delete(kind, &format!("{}{number}", letter(kind))).await,
            Self::Members(bits) => Self::put_group(setup, bits).await,
            Self::Nested(bits) => setup.put("Group", "nested", group_of(patients(bits))).await,
            Self::DeleteNested => setup.delete("Group", "nested").await,
            Self::Erase(number) => {
                setup.pass(Duration::from_millis(1));
                let patient = format!("Patient/p{number}");
                // A Patient who never existed is refused.
                drop(resources::erase::erase(&setup.store, &patient, BASE, setup.now(), |_| {}).await);
            }
            Self::Pass => setup.pass(Duration::from_millis(700)),
        }
    }
}

fn letter(kind: &str) -> char {
    match kind {
        "Patient" => 'p',
        "Observation" => 'o',
        "Practitioner" => 'h',
        "Organization" => 'z',
        "Device" => 'd',
        _ => 'v',
    }
}

/// Follows a history of changes by increments, and compares the copy with a full export at the end.
async fn converge(store: Store, rounds: &[Vec<Change>], level: ExportLevel, query: &[(&str, &str)]) {
    let setup = Setup::on(store, |options| {
        options.file_size = 300;
        options.nested_groups = true;
        options.group_leavers = GroupLeavers::Deleted;
    });
    Change::put_group(&setup, 3).await;
    let mut mirror = Kept::new();
    let mut since = None::<String>;
    for round in rounds {
        for change in round {
            change.carry_out(&setup).await;
        }
        let mut increment = query.to_vec();
        increment.extend(since.iter().map(|since| ("_since", since.as_str())));
        let request = setup.request(level.clone(), &increment);
        let manifest = match setup.bulk.kick_off(request, setup.now()).await {
            Ok(job) => finish(&setup.bulk, &job, setup.now()).await,
            Err(error) => {
                assert!(error.to_string().contains("records were erased"), "{error}");
                mirror.clear();
                setup.export(level.clone(), query).await
            }
        };
        apply_lists(&setup, &manifest, &mut mirror).await;
        since = Some(manifest["transactionTime"].as_str().unwrap().to_owned());
    }
    let mut full = Kept::new();
    apply_lists(&setup, &setup.export(level, query).await, &mut full).await;
    assert_eq!(mirror, full);
}

/// The levels and searches of the exports in this law.
fn export() -> impl Strategy<Value = (ExportLevel, Vec<(&'static str, &'static str)>)> {
    let levels = vec![ExportLevel::System, ExportLevel::Patient, ExportLevel::Group("g".to_owned())];
    let types = ("_type", "Observation,Patient,Provenance");
    let filter = ("_typeFilter", "Observation?status=final");
    let (latest, relevant) = (
        ("includeAssociatedData", "LatestProvenanceResources"),
        ("includeAssociatedData", "RelevantProvenanceResources"),
    );
    let queries = vec![
        vec![types],
        vec![types, filter],
        vec![("_type", "Observation")],
        // Resources that are exported because of others.
        vec![("_type", "Observation,Patient,Practitioner")],
        vec![("_type", "Device,Observation"), filter],
        vec![("includeAssociatedData", "_supporting")],
        vec![relevant],
        vec![("_type", "Observation"), latest],
        vec![("_type", "Device,Observation,Organization"), latest],
        vec![("_type", "Observation"), filter, relevant],
    ];
    (prop::sample::select(levels), prop::sample::select(queries))
}

fn histories() -> impl Strategy<Value = Vec<Vec<Change>>> {
    proptest::collection::vec(proptest::collection::vec(change(), 0..8), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 200, ..ProptestConfig::with_cases(cases("memory", 200)) })]

    #[test]
    fn increments_that_list_leavers_converge(rounds in histories(), (level, query) in export()) {
        wait(converge(Store::memory(), &rounds, level, &query));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 50, ..ProptestConfig::with_cases(cases("file", 50)) })]

    #[test]
    fn increments_that_list_leavers_converge_on_files(rounds in histories(), (level, query) in export()) {
        let dir = tempfile::tempdir().unwrap();
        wait(converge(Store::open(dir.path()).unwrap(), &rounds, level, &query));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20, ..ProptestConfig::with_cases(cases("postgres", 20)) })]

    #[test]
    fn increments_that_list_leavers_converge_in_a_database(
        rounds in histories(), (level, query) in export(),
    ) {
        wait(async {
            if let Some(store) = in_database().await {
                converge(store, &rounds, level, &query).await;
            }
        });
    }
}
