//! Tests of exports over time. A full export with any chain of incremental exports equals a later full
//! export. An export contains the state at its kick-off, regardless of concurrent writes.

mod law;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use proptest::prelude::*;
use resources::{ResourceRules, Validation};
use serde_json::{Value, json};
use store::{PageLimit, ResourceKey, Seq, Store, Versions as _};
use trefoil_bulk::{ExportLevel, GroupLeavers, KickOffError};

use crate::support::{BASE, Setup, finish};

/// The JSON of each resource that a client has received, by reference.
type Kept = BTreeMap<String, String>;

const SECOND: SignedDuration = SignedDuration::from_secs(1);

#[derive(Debug, Clone)]
enum Write {
    Put {
        observation: bool,
        number: usize,
        value: u8,
    },
    Delete {
        observation: bool,
        number: usize,
    },
    /// The Group gets these members, as bits.
    Members {
        bits: u8,
    },
}

fn write() -> impl Strategy<Value = Write> {
    prop_oneof![
        2 => (any::<bool>(), 0_usize..6, any::<u8>())
            .prop_map(|(observation, number, value)| Write::Put { observation, number, value }),
        1 => (any::<bool>(), 0_usize..6)
            .prop_map(|(observation, number)| Write::Delete { observation, number }),
        1 => (0_u8..64).prop_map(|bits| Write::Members { bits }),
    ]
}

fn group_of<I: std::fmt::Display>(patients: impl IntoIterator<Item = I>) -> Value {
    let member = |id: I| json!({ "entity": { "reference": format!("Patient/{id}") } });
    json!({ "member": patients.into_iter().map(member).collect::<Vec<_>>() })
}

async fn carry_out(setup: &Setup, write: &Write) {
    match *write {
        Write::Members { bits } => {
            let members = (0..6).filter(|number| bits >> number & 1 == 1).map(|number| format!("p{number}"));
            setup.put("Group", "g", group_of(members)).await;
        }
        Write::Put { observation: false, number, value } => {
            setup.put("Patient", &format!("p{number}"), json!({ "language": value.to_string() })).await;
        }
        Write::Put { observation: true, number, value } => {
            let body = json!({ "issued": format!("2026-01-31T08:00:00.{value:03}Z"), "subject": { "reference": format!("Patient/p{number}") } });
            setup.put("Observation", &format!("o{number}"), body).await;
        }
        Write::Delete { observation, number } => {
            let (kind, letter) = if observation { ("Observation", 'o') } else { ("Patient", 'p') };
            setup.delete(kind, &format!("{letter}{number}")).await;
        }
    }
}

/// The texts of the OperationOutcomes in `error`.
async fn notes(setup: &Setup, manifest: &Value) -> Vec<String> {
    let mut texts = Vec::new();
    for file in manifest["error"].as_array().unwrap() {
        for line in setup.file(&setup.bulk, file["url"].as_str().unwrap()).await.lines() {
            let outcome: Value = serde_json::from_str(line).unwrap();
            assert_eq!(outcome["issue"][0]["severity"], "information", "{line}");
            texts.push(outcome["issue"][0]["details"]["text"].as_str().unwrap().to_owned());
        }
    }
    texts
}

/// Applies the files of a manifest to the client's resources. Those of Patients who have left the Group are
/// removed first; each Observation is in one compartment.
async fn apply(setup: &Setup, manifest: &Value, mirror: &mut Kept) {
    for text in notes(setup, manifest).await {
        let patient = text.split_once(" is no longer a member of the Group").unwrap().0.to_owned();
        let observation = patient.replace("Patient/p", "Observation/o");
        mirror.retain(|name, _| *name != patient && *name != observation);
    }
    apply_lists(setup, manifest, mirror).await;
}

/// Applies the lists `output` and `deleted` of a manifest.
async fn apply_lists(setup: &Setup, manifest: &Value, mirror: &mut Kept) {
    let mut fresh = Vec::new();
    for file in manifest["output"].as_array().unwrap() {
        for line in setup.file(&setup.bulk, file["url"].as_str().unwrap()).await.lines() {
            let resource: Value = serde_json::from_str(line).unwrap();
            let name = format!(
                "{}/{}",
                resource["resourceType"].as_str().unwrap(),
                resource["id"].as_str().unwrap()
            );
            fresh.push(name.clone());
            mirror.insert(name, line.to_owned());
        }
    }
    for file in manifest["deleted"].as_array().into_iter().flatten() {
        assert_eq!(file["type"], "Bundle");
        let text = setup.file(&setup.bulk, file["url"].as_str().unwrap()).await;
        assert_eq!(text.lines().count() as u64, file["count"].as_u64().unwrap());
        for line in text.lines() {
            let bundle: Value = serde_json::from_str(line).unwrap();
            assert_eq!(bundle["type"], "transaction");
            for entry in bundle["entry"].as_array().unwrap() {
                assert_eq!(entry["request"]["method"], "DELETE");
                let name = entry["request"]["url"].as_str().unwrap();
                assert!(
                    !fresh.iter().any(|fresh| fresh == name),
                    "{name} is in both the output and the deletes"
                );
                mirror.remove(name);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 50, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn a_full_export_with_increments_equals_a_later_full_export(
        rounds in proptest::collection::vec(proptest::collection::vec(write(), 0..8), 1..6), group: bool,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let setup = Setup::with_files_of(300);
            setup.put("Group", "g", group_of(["p0", "p1"])).await;
            let level = if group { ExportLevel::Group("g".to_owned()) } else { ExportLevel::System };
            let mut mirror = Kept::new();
            let mut since = None::<String>;
            let (mut stored, mut members) = (BTreeSet::new(), 0b11);
            for round in &rounds {
                for write in round {
                    carry_out(&setup, write).await;
                    match *write {
                        Write::Put { observation, number, .. } => drop(stored.insert((observation, number))),
                        Write::Delete { observation, number } => drop(stored.remove(&(observation, number))),
                        Write::Members { bits } => members = bits,
                    }
                }
                let query: Vec<_> = since.iter().map(|since| ("_since", since.as_str())).collect();
                let manifest = setup.export(level.clone(), &query).await;
                apply(&setup, &manifest, &mut mirror).await;
                since = Some(manifest["transactionTime"].as_str().unwrap().to_owned());
            }
            let mut full = Kept::new();
            apply(&setup, &setup.export(level, &[]).await, &mut full).await;
            assert_eq!(mirror, full);
            let in_level = stored.iter().filter(|(_, number)| !group || members >> number & 1 == 1);
            let mut expected: BTreeSet<_> = in_level
                .map(|(observation, number)| match observation {
                    true => format!("Observation/o{number}"),
                    false => format!("Patient/p{number}"),
                })
                .collect();
            expected.extend((!group).then(|| "Group/g".to_owned()));
            assert_eq!(full.into_keys().collect::<BTreeSet<_>>(), expected);
        });
    }
}

#[tokio::test]
async fn resources_that_left_an_export_are_named_or_listed() {
    for group_leavers in [GroupLeavers::Outcome, GroupLeavers::Deleted] {
        let setup = Setup::with(|options| options.group_leavers = group_leavers);
        for patient in ["a", "b", "z"] {
            setup.put("Patient", patient, json!({})).await;
        }
        let of = |patient: &str| json!({ "status": "final", "subject": { "reference": format!("Patient/{patient}") } });
        for (id, patient) in [("moved", "a"), ("stays", "a"), ("old", "b"), ("unmatched", "a")] {
            setup.put("Observation", id, of(patient)).await;
        }
        let provenance = json!({ "target": [{ "reference": "Observation/moved" }] });
        setup.put("Provenance", "of-moved", provenance).await;
        setup.put("Group", "g", group_of(["a", "b"])).await;
        let since = setup.store_time().await;
        setup.put("Observation", "moved", of("z")).await;
        setup.put("Observation", "unmatched", json!({ "subject": { "reference": "Patient/a" } })).await;
        setup.put("Group", "g", group_of(["a"])).await;
        let types = ("_type", "Observation,Patient,Provenance");
        let search = ("_typeFilter", "Observation?status=final");
        let query = [("_since", since.as_str()), types, search];
        let manifest = setup.export(ExportLevel::Group("g".to_owned()), &query).await;
        let texts = notes(&setup, &manifest).await;
        let mut names = Vec::new();
        for file in manifest["deleted"].as_array().into_iter().flatten() {
            let text = setup.file(&setup.bulk, file["url"].as_str().unwrap()).await;
            let bundle: Value = serde_json::from_str(text.trim()).unwrap();
            let entries = bundle["entry"].as_array().unwrap().iter();
            names.extend(entries.map(|entry| entry["request"]["url"].as_str().unwrap().to_owned()));
        }
        names.sort_unstable();
        if group_leavers == GroupLeavers::Outcome {
            assert_eq!(texts.len(), 2, "{texts:?}");
            assert!(texts[0].starts_with("Patient/b is no longer a member of the Group;"), "{texts:?}");
            let reason = "no longer in this export, because they belong to other patients, match no search, or are \
                        not referred to any more: Observation/moved, Observation/unmatched, Provenance/of-moved; \
                        remove them from your copy";
            assert_eq!((texts[1].as_str(), names.is_empty()), (reason, true));
        } else {
            let reasons = [
                "Observation/moved",
                "Observation/old",
                "Observation/unmatched",
                "Patient/b",
                "Provenance/of-moved",
            ];
            assert_eq!((texts.is_empty(), &names[..]), (true, &reasons.map(str::to_owned)[..]));
        }
    }
}

#[tokio::test]
async fn deletions_are_listed_for_requested_types_only() {
    let setup = Setup::new();
    setup.put("Patient", "p", json!({})).await;
    setup.put("Observation", "o", json!({})).await;
    let since = setup.store_time().await;
    setup.delete("Patient", "p").await;
    setup.delete("Observation", "o").await;
    let manifest = setup.export(ExportLevel::System, &[("_since", &since), ("_type", "Patient")]).await;
    let text = setup.file(&setup.bulk, manifest["deleted"][0]["url"].as_str().unwrap()).await;
    assert!(text.contains("Patient/p") && !text.contains("Observation"), "{text}");
    let until = setup.store_time().await;
    setup.put("Patient", "late", json!({})).await;
    setup.delete("Patient", "late").await;
    let manifest = setup.export(ExportLevel::System, &[("_since", &since), ("_until", &until)]).await;
    let text = setup.file(&setup.bulk, manifest["deleted"][0]["url"].as_str().unwrap()).await;
    assert!(text.contains("Patient/p") && !text.contains("late"), "{text}");
}

#[tokio::test]
async fn deleted_resources_are_listed_if_a_version_matched_the_search() {
    let setup = Setup::new();
    let code = |code: &str| json!({ "code": { "coding": [{ "code": code }] } });
    let target = |id: &str| json!({ "target": [{ "reference": format!("Observation/{id}") }] });
    for (id, codes) in [("always", &["a", "a"][..]), ("once", &["a", "b", "c"]), ("never", &["b", "c"])] {
        for name in codes {
            setup.put("Observation", id, code(name)).await;
        }
        setup.put("Provenance", id, target(id)).await;
    }
    let since = setup.store_time().await;
    for id in ["always", "once", "never"] {
        setup.delete("Observation", id).await;
        setup.delete("Provenance", id).await;
    }
    let deleted = async |query: &[(&str, &str)]| -> Vec<String> {
        let query = [&[("_since", since.as_str())], query].concat();
        let manifest = setup.export(ExportLevel::System, &query).await;
        let text = setup.file(&setup.bulk, manifest["deleted"][0]["url"].as_str().unwrap()).await;
        let bundle: Value = serde_json::from_str(&text).unwrap();
        let entries = bundle["entry"].as_array().unwrap().iter();
        let mut urls: Vec<String> =
            entries.map(|entry| entry["request"]["url"].as_str().unwrap().to_owned()).collect();
        // Deleted resources that left the export follow the others.
        urls.sort_unstable();
        urls
    };
    let observations = ("_type", "Observation");
    assert_eq!(
        deleted(&[observations, ("_typeFilter", "Observation?code=a")]).await,
        ["Observation/always", "Observation/once"]
    );
    assert_eq!(
        deleted(&[observations, ("_typeFilter", "Observation?code=x,b")]).await,
        ["Observation/never", "Observation/once"]
    );
    let all = ["Observation/always", "Observation/never", "Observation/once"];
    assert_eq!(deleted(&[observations]).await, all);
    let of_targets = [
        ("_type", "Observation,Provenance"),
        ("_typeFilter", "Observation?code=a"),
        ("includeAssociatedData", "RelevantProvenanceResources"),
    ];
    assert_eq!(
        deleted(&of_targets).await,
        ["Observation/always", "Observation/once", "Provenance/always", "Provenance/once"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_export_is_a_snapshot_during_concurrent_writes() {
    const IDS: usize = 40;
    let dir = tempfile::tempdir().unwrap();
    let setup = Arc::new(Setup::on(Store::open(dir.path()).unwrap(), |options| options.file_size = 2_000));
    let writers: Vec<_> = (0..8_usize)
        .map(|writer| {
            let setup = setup.clone();
            tokio::spawn(async move {
                for round in 0..60_usize {
                    let id = format!("p{}", (writer * 7 + round * 11) % IDS);
                    if (writer + round) % 4 == 0 {
                        setup.delete("Patient", &id).await;
                    } else {
                        setup.put("Patient", &id, json!({ "language": format!("{writer}-{round}") })).await;
                    }
                }
            })
        })
        .collect();
    let mut manifests = Vec::new();
    while manifests.len() < 6 || writers.iter().any(|writer| !writer.is_finished()) {
        let job = setup.bulk.kick_off(setup.request(ExportLevel::System, &[]), setup.now()).await.unwrap();
        manifests.push(finish(&setup.bulk, &job, setup.now()).await);
    }
    for writer in writers {
        writer.await.unwrap();
    }
    for manifest in manifests {
        let time = fhir::instant::parse(manifest["transactionTime"].as_str().unwrap()).unwrap();
        let mut expected = Kept::new();
        for number in 0..IDS {
            let key = ResourceKey::new("Patient", format!("p{number}"));
            let history = setup.store.history(&key, Seq::LATEST, PageLimit { count: 1_000, bytes: 1 << 24 });
            let then = history.await.unwrap().into_iter().find(|version| version.updated <= time);
            if let Some(body) = then.and_then(|version| version.body) {
                expected.insert(key.to_string(), String::from_utf8(body.to_vec()).unwrap());
            }
        }
        let mut exported = Kept::new();
        apply(&setup, &manifest, &mut exported).await;
        assert_eq!(exported, expected);
    }
}

#[tokio::test]
async fn a_patient_who_joins_a_group_is_exported_in_full() {
    let setup = Setup::new();
    for patient in ["member", "joiner", "stranger"] {
        setup.put("Patient", patient, json!({})).await;
        let subject =
            json!({ "subject": { "reference": format!("Patient/{patient}") }, "effectiveDateTime": "1999" });
        setup.put("Observation", &format!("of-{patient}"), subject).await;
    }
    setup.put("Group", "inner", group_of(["member"])).await;
    let since = setup.store_time().await;
    let level = ExportLevel::Group("inner".to_owned());
    let read = async |query: &[(&str, &str)]| {
        let manifest = setup.export(level.clone(), query).await;
        setup.read(&setup.bulk, &manifest).await.into_values().flatten().collect::<Vec<_>>().len()
    };
    assert_eq!(read(&[("_since", &since)]).await, 0);
    setup.put("Group", "inner", group_of(["member", "joiner"])).await;
    // The joiner with its Observation, however old, and only those of the requested types.
    assert_eq!(read(&[("_since", &since)]).await, 2);
    assert_eq!(read(&[("_since", &since), ("_type", "Observation")]).await, 1);
    assert_eq!(read(&[("_since", &since), ("_typeFilter", "Observation?date=gt2000")]).await, 1);
    // A Group that is newer than the time has joiners only.
    setup.put("Group", "later", group_of(["stranger"])).await;
    let later = setup.export(ExportLevel::Group("later".to_owned()), &[("_since", &since)]).await;
    let count: usize = setup.read(&setup.bulk, &later).await.into_values().map(|ids| ids.len()).sum();
    assert_eq!(count, 2);
}

#[tokio::test]
async fn a_patient_who_leaves_a_group_is_named() {
    let setup = Setup::new();
    for patient in ["a", "b"] {
        setup.put("Patient", patient, json!({})).await;
    }
    setup.put("Group", "g", group_of(["a", "b", "a"])).await;
    let since = setup.store_time().await;
    setup.put("Group", "g", group_of(["b"])).await;
    let level = ExportLevel::Group("g".to_owned());
    let exported = async |query: &[(&str, &str)]| {
        let manifest = setup.export(level.clone(), query).await;
        (setup.read(&setup.bulk, &manifest).await.remove("Patient"), notes(&setup, &manifest).await)
    };
    let (patients, texts) = exported(&[("_since", &since)]).await;
    assert_eq!(patients, None);
    assert_eq!(
        texts,
        [
            "Patient/a is no longer a member of the Group; remove its resources from your copy, unless they are also in the compartment of a member"
        ]
    );
    assert_eq!(exported(&[]).await, (Some(["b".to_owned()].into()), vec![]));
    // Nobody has left an inactive Group: its members are not known.
    let mut inactive = group_of(["b"]);
    inactive["active"] = false.into();
    setup.put("Group", "g", inactive).await;
    let expected = "Group/g: not exported, because the Group is inactive (active is false)";
    for query in [&[("_since", since.as_str())][..], &[]] {
        assert_eq!(exported(query).await, (None, vec![expected.to_owned()]));
    }
    // Who was not a member at that time because the membership began later has joined since.
    let mut later = group_of(["b"]);
    later["member"][0]["period"] = json!({ "start": fhir::instant::format(setup.now() + SECOND) });
    setup.put("Group", "g", later).await;
    let since = setup.store_time().await;
    let expected = "Patient/b: not exported, because the membership begins later";
    assert_eq!(exported(&[]).await, (None, vec![expected.to_owned()]));
    setup.pass(Duration::from_secs(2));
    assert_eq!(exported(&[("_since", &since)]).await, (Some(["b".to_owned()].into()), vec![]));
    // Members that are not Patients, and a Group whose members are not exported.
    let mut others = group_of(["b"]);
    for reference in ["Group/other", "Practitioner/p", "Device/d"] {
        others["member"].as_array_mut().unwrap().push(json!({ "entity": { "reference": reference } }));
    }
    setup.put("Group", "g", others).await;
    let expected = [
        "Group/other: not exported, because members of nested Groups are exported only with [bulk] nested_groups = true",
        "Practitioner/p, Device/d: not exported, because the member is not a Patient of this server",
    ];
    assert_eq!(exported(&[]).await, (Some(["b".to_owned()].into()), expected.map(str::to_owned).to_vec()));
}

#[tokio::test]
async fn a_group_without_readable_members_is_refused_at_the_kick_off() {
    let setup = Setup::new();
    // Such Groups were stored before resources were validated.
    let rules = ResourceRules { validation: Validation::Off, ..setup.resources.rules() };
    setup.resources.set_rules(rules);
    let mut descriptive = group_of([] as [&str; 0]);
    descriptive["actual"] = false.into();
    let mut unreadable = group_of(["p"]);
    unreadable["member"][0]["period"] = json!({ "start": "soon" });
    for (id, group, expected) in [
        ("descriptive", descriptive, "Group/descriptive describes possible members (actual is false)"),
        ("odd", json!({ "member": { "entity": "none" } }), "Group/odd cannot be read: "),
        ("unreadable", unreadable, "the period of Patient/p has no readable start: 'soon'"),
    ] {
        setup.put("Group", id, group).await;
        let request = setup.request(ExportLevel::Group(id.to_owned()), &[]);
        let error = setup.bulk.kick_off(request, setup.now()).await.unwrap_err();
        assert!(matches!(error, KickOffError::BadGroup(_)), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[tokio::test]
async fn an_erasure_ends_only_the_increments_that_may_have_contained_it() {
    let setup = Setup::new();
    for patient in ["erased", "other"] {
        setup.put("Patient", patient, json!({})).await;
        let subject = json!({ "subject": { "reference": format!("Patient/{patient}") } });
        setup.put("Observation", &format!("of-{patient}"), subject).await;
    }
    setup.put("Group", "with", group_of(["erased", "other"])).await;
    setup.put("Group", "without", group_of(["other"])).await;
    let since = setup.store_time().await;
    setup.pass(Duration::from_millis(1));
    resources::erase::erase(&setup.store, "Patient/erased", BASE, setup.now(), |_| {}).await.unwrap();
    let later = setup.store_time().await;
    let group = |id: &str| ExportLevel::Group(id.to_owned());
    for (level, since, query, is_refused) in [
        (ExportLevel::System, &since, &[][..], true),
        (ExportLevel::Patient, &since, &[], true),
        (group("with"), &since, &[], true),
        (group("with"), &since, &[("_type", "Observation")], true),
        (group("without"), &since, &[], false),
        (group("with"), &later, &[], false),
        (ExportLevel::System, &later, &[], false),
    ] {
        let query = [query, &[("_since", since.as_str())]].concat();
        let response = setup.bulk.kick_off(setup.request(level.clone(), &query), setup.now()).await;
        assert_eq!(response.is_err(), is_refused, "{level:?} {query:?}: {response:?}");
        let text = response.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(!text.contains("Patient/"), "{text}");
    }
    // A Patient who joins after that time was not in the copy.
    setup.put("Patient", "joiner", json!({})).await;
    let since = setup.store_time().await;
    setup.put("Group", "without", group_of(["other", "joiner"])).await;
    setup.pass(Duration::from_millis(1));
    resources::erase::erase(&setup.store, "Patient/joiner", BASE, setup.now(), |_| {}).await.unwrap();
    let request = setup.request(group("without"), &[("_since", since.as_str())]);
    assert!(setup.bulk.kick_off(request, setup.now()).await.is_ok());
}
