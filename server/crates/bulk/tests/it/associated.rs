//! Tests of Provenance, of supporting resources, and of members of large and nested Groups.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use store::{DatabaseLimits, DatabaseUrl, Store};
use test_database::TestDatabase;
use trefoil_bulk::{ExportLevel, GroupLeavers, GuideVersion, KickOffError, KickOffMethod};

use crate::support::{Setup, finish};

fn reference(to: &str) -> Value {
    json!({ "reference": to })
}

/// Returns the ids of the exported resources of one type.
async fn ids(setup: &Setup, level: ExportLevel, query: &[(&str, &str)], kind: &str) -> BTreeSet<String> {
    let manifest = setup.export(level, query).await;
    setup.read(&setup.bulk, &manifest).await.remove(kind).unwrap_or_default()
}

fn set(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

/// Checks the exported Provenance beside `others` Provenance of another patient.
async fn check_provenance(store: Store, others: usize) {
    let setup = Setup::on(store, |_| {});
    for patient in ["p", "q"] {
        setup.put("Patient", patient, json!({})).await;
    }
    setup.put("Condition", "c", json!({ "subject": reference("Patient/p") })).await;
    setup.put("Observation", "o", json!({ "subject": reference("Patient/p"), "status": "final" })).await;
    let of = |targets: &[&str], recorded: &str| json!({ "target": targets.iter().map(|t| reference(t)).collect::<Vec<_>>(), "recorded": recorded });
    // The Provenance that is written last does not have the latest `recorded` time.
    setup.put("Provenance", "new", of(&["Condition/c"], "2025-01-01T00:00:00Z")).await;
    setup.put("Provenance", "old", of(&["Condition/c"], "2020-01-01T00:00:00Z")).await;
    setup.put("Provenance", "both", of(&["Observation/o", "Condition/c"], "2022-01-01T00:00:00Z")).await;
    setup.put("Provenance", "other", of(&["Patient/q"], "2026-01-01T00:00:00Z")).await;
    setup.put("Provenance", "stray", of(&["Device/d"], "2026-01-01T00:00:00Z")).await;
    for number in 0..others {
        let stray = of(&["Patient/q"], "2026-01-01T00:00:00Z");
        setup.put("Provenance", &format!("of-q-{number}"), stray).await;
    }
    setup.put("Group", "g", json!({ "member": [{ "entity": reference("Patient/p") }] })).await;
    let group = || ExportLevel::Group("g".to_owned());
    let associated = |value: &'static str| [("_type", "Condition"), ("includeAssociatedData", value)];
    for level in [group(), ExportLevel::Patient, ExportLevel::System] {
        let all = ids(&setup, level.clone(), &associated("RelevantProvenanceResources"), "Provenance").await;
        assert_eq!(all, set(&["new", "old", "both"]), "{level:?}");
        let latest = ids(&setup, level.clone(), &associated("LatestProvenanceResources"), "Provenance").await;
        assert_eq!(latest, set(&["new"]), "{level:?}");
    }
    let both = [("includeAssociatedData", "LatestProvenanceResources")];
    assert_eq!(ids(&setup, group(), &both, "Provenance").await, set(&["new", "both"]));
    assert_eq!(ids(&setup, group(), &[], "Provenance").await, set(&["new", "old", "both"]));
    let mut of_patients = ids(&setup, ExportLevel::Patient, &[], "Provenance").await;
    of_patients.retain(|id| !id.starts_with("of-q-"));
    assert_eq!(of_patients, set(&["new", "old", "both", "other"]));
    assert_eq!(ids(&setup, ExportLevel::System, &[], "Provenance").await.len(), 5 + others);
    setup.put("Group", "empty", json!({ "member": [] })).await;
    assert_eq!(ids(&setup, ExportLevel::Group("empty".to_owned()), &[], "Provenance").await, set(&[]));
    assert_eq!(ids(&setup, group(), &[("_type", "Condition")], "Provenance").await, set(&[]));
}

#[tokio::test]
async fn only_provenance_of_exported_resources_is_exported() {
    // With few Provenance all are read, with many those of the members' resources.
    for others in [0, 200] {
        check_provenance(Store::memory(), others).await;
        let folder = tempfile::tempdir().unwrap();
        check_provenance(Store::open(folder.path()).unwrap(), others).await;
        if let Some(database) = TestDatabase::shared() {
            let url = DatabaseUrl::new(database.create().unwrap(), None);
            check_provenance(Store::postgres(&url, DatabaseLimits::default()).await.unwrap(), others).await;
        }
    }
}

#[tokio::test]
async fn supporting_resources_are_exported_once_with_their_own_references() {
    let setup = Setup::new();
    for patient in ["p", "q"] {
        setup.put("Patient", patient, json!({ "managingOrganization": reference("Organization/o1") })).await;
    }
    let encounter_fields = json!({ "subject": reference("Patient/p"), "participant": [
        { "individual": reference("https://s.example/fhir/R4/PractitionerRole/r") },
        { "individual": reference("https://elsewhere.example/Practitioner/d2") } ] });
    setup.put("Encounter", "e", encounter_fields).await;
    let role =
        json!({ "practitioner": reference("Practitioner/d1"), "organization": reference("Organization/o2") });
    setup.put("PractitionerRole", "r", role).await;
    for practitioner in ["d1", "d2"] {
        setup.put("Practitioner", practitioner, json!({})).await;
    }
    setup.put("Organization", "o1", json!({})).await;
    setup.put("Organization", "o2", json!({ "partOf": reference("Organization/o3") })).await;
    setup.put("Organization", "o3", json!({ "partOf": reference("Organization/o2") })).await;
    setup.put("Organization", "o4", json!({})).await;
    setup.put("Group", "g", json!({ "member": [{ "entity": reference("Patient/p") }] })).await;
    for level in [ExportLevel::Group("g".to_owned()), ExportLevel::Patient] {
        let manifest = setup.export(level.clone(), &[("includeAssociatedData", "_supporting")]).await;
        let mut all = setup.read(&setup.bulk, &manifest).await;
        assert_eq!(all.remove("Organization").unwrap(), set(&["o1", "o2", "o3"]), "{level:?}");
        assert_eq!(all.remove("Practitioner").unwrap(), set(&["d1"]));
        assert_eq!(all.remove("PractitionerRole").unwrap(), set(&["r"]));
        assert_eq!(all.keys().collect::<Vec<_>>(), ["Encounter", "Patient"]);
        assert!(!setup.read(&setup.bulk, &setup.export(level, &[]).await).await.contains_key("Organization"));
    }
    // At system level, types in `_type` are exported in full, and only other types depend on references.
    let query = [("_type", "Patient,Practitioner"), ("includeAssociatedData", "_supporting")];
    let all = setup.read(&setup.bulk, &setup.export(ExportLevel::System, &query).await).await;
    assert_eq!(all["Practitioner"], set(&["d1", "d2"]));
    assert_eq!(all["Organization"], set(&["o1"]));
    // A changed resource that refers to the Organization is sufficient: the Organization itself has not
    // changed since.
    let since = fhir::instant::format(setup.now());
    setup.put("Patient", "p", json!({ "managingOrganization": reference("Organization/o4") })).await;
    let query = [("_since", since.as_str()), ("includeAssociatedData", "_supporting")];
    let all = setup.read(&setup.bulk, &setup.export(ExportLevel::Patient, &query).await).await;
    assert_eq!(all["Patient"], set(&["p"]));
    assert_eq!(all["Organization"], set(&["o4"]));
}

/// The references under `output` and under `deleted` of an increment, sorted.
async fn increment(setup: &Setup, query: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
    let manifest = setup.export(ExportLevel::Patient, query).await;
    let exported = setup.read(&setup.bulk, &manifest).await.into_iter();
    let output = exported.flat_map(|(kind, ids)| ids.into_iter().map(move |id| format!("{kind}/{id}")));
    let mut deleted = Vec::new();
    for file in manifest["deleted"].as_array().into_iter().flatten() {
        for line in setup.file(&setup.bulk, file["url"].as_str().unwrap()).await.lines() {
            let bundle: Value = serde_json::from_str(line).unwrap();
            let entries = bundle["entry"].as_array().unwrap().iter();
            deleted.extend(entries.map(|entry| entry["request"]["url"].as_str().unwrap().to_owned()));
        }
    }
    deleted.sort_unstable();
    (output.collect(), deleted)
}

fn texts(references: &[&str]) -> Vec<String> {
    references.iter().map(|&reference| reference.to_owned()).collect()
}

#[tokio::test]
async fn an_increment_has_supporting_resources_of_unchanged_ones() {
    let setup = Setup::with(|options| options.group_leavers = GroupLeavers::Deleted);
    setup.put("Patient", "p", json!({ "generalPractitioner": [reference("Practitioner/changed")] })).await;
    let encounter_fields = json!({ "subject": reference("Patient/p"), "participant": [
        { "individual": reference("Practitioner/gone") }, { "individual": reference("Practitioner/later") } ] });
    setup.put("Encounter", "e", encounter_fields).await;
    for id in ["changed", "gone", "unrelated"] {
        setup.put("Practitioner", id, json!({})).await;
    }
    let since = setup.store_time().await;
    let query = [("_since", since.as_str()), ("_type", "Encounter,Patient,Practitioner")];
    assert_eq!(increment(&setup, &query).await, (texts(&[]), texts(&[])));
    for id in ["changed", "later", "unrelated"] {
        setup.put("Practitioner", id, json!({ "active": true })).await;
    }
    setup.delete("Practitioner", "gone").await;
    let output = texts(&["Practitioner/changed", "Practitioner/later"]);
    assert_eq!(increment(&setup, &query).await, (output, texts(&["Practitioner/gone"])));
}

#[tokio::test]
async fn an_increment_has_the_latest_provenance_of_unchanged_resources() {
    let setup = Setup::with(|options| options.group_leavers = GroupLeavers::Deleted);
    setup.put("Patient", "p", json!({})).await;
    setup.put("Condition", "c", json!({ "subject": reference("Patient/p") })).await;
    let of = |time: &str| json!({ "target": [reference("Condition/c")], "recorded": time });
    setup.put("Provenance", "first", of("2025-01-01T00:00:00Z")).await;
    let since = setup.store_time().await;
    setup.put("Provenance", "second", of("2026-01-01T00:00:00Z")).await;
    let query =
        |value| [("_since", since.as_str()), ("_type", "Condition"), ("includeAssociatedData", value)];
    let latest = increment(&setup, &query("LatestProvenanceResources")).await;
    assert_eq!(latest, (texts(&["Provenance/second"]), texts(&["Provenance/first"])));
    let relevant = increment(&setup, &query("RelevantProvenanceResources")).await;
    assert_eq!(relevant, (texts(&["Provenance/second"]), texts(&[])));
}

#[tokio::test]
async fn a_supporting_type_in_type_gives_the_resources_that_are_referred_to() {
    let mut setup = Setup::with(|options| options.guide = GuideVersion::V3);
    setup.put("Patient", "p", json!({ "managingOrganization": reference("Organization/o") })).await;
    let encounter_fields = json!({ "subject": reference("Patient/p"), "participant": [{ "individual": reference("Practitioner/d") }] });
    setup.put("Encounter", "e", encounter_fields).await;
    for id in ["o", "other"] {
        setup.put("Organization", id, json!({})).await;
    }
    setup.put("Practitioner", "d", json!({})).await;
    setup.put("Group", "g", json!({ "member": [{ "entity": reference("Patient/p") }] })).await;
    let group = || ExportLevel::Group("g".to_owned());
    let read = async |setup: &Setup, level: ExportLevel, query: &[(&str, &str)]| {
        let all = setup.read(&setup.bulk, &setup.export(level, query).await).await;
        all.into_iter()
            .flat_map(|(kind, ids)| ids.into_iter().map(move |id| format!("{kind}/{id}")))
            .collect()
    };
    for level in [group(), ExportLevel::Patient] {
        let ids: Vec<String> = read(&setup, level.clone(), &[("_type", "Organization,Patient")]).await;
        assert_eq!(ids, ["Organization/o", "Patient/p"], "{level:?}");
        let ids: Vec<String> = read(&setup, level, &[("_type", "Practitioner,Patient")]).await;
        assert_eq!(ids, ["Patient/p"]);
    }
    let ids: Vec<String> = read(&setup, group(), &[]).await;
    assert_eq!(ids, ["Encounter/e", "Patient/p"]);
    // With the setting, the default export of a Group has all of them.
    setup.bulk = setup.reopened_with(|options| options.supporting = true);
    let ids: Vec<String> = read(&setup, group(), &[]).await;
    assert_eq!(ids, ["Encounter/e", "Organization/o", "Patient/p", "Practitioner/d"]);
    let ids: Vec<String> = read(&setup, group(), &[("_type", "Patient")]).await;
    assert_eq!(ids, ["Patient/p"]);
    let ids: Vec<String> = read(&setup, ExportLevel::Patient, &[]).await;
    assert_eq!(ids, ["Encounter/e", "Patient/p"]);
}

#[tokio::test]
async fn supporting_resources_are_limited_to_what_the_client_may_read() {
    let setup = Setup::new();
    setup.put("Patient", "p", json!({ "managingOrganization": reference("Organization/o") })).await;
    setup.put("Organization", "o", json!({})).await;
    let mut request = setup.request(ExportLevel::Patient, &[("includeAssociatedData", "_supporting")]);
    request.types = trefoil_bulk::TypeAccess::only(["Patient"]);
    let job = setup.bulk.kick_off(request, setup.now()).await.unwrap();
    let manifest = finish(&setup.bulk, &job, setup.now()).await;
    let all = setup.read(&setup.bulk, &manifest).await;
    assert_eq!(all.keys().collect::<Vec<_>>(), ["Patient"]);
}

#[tokio::test]
async fn patients_are_checked_at_the_kick_off() {
    let setup = Setup::new();
    for patient in ["p", "q"] {
        setup.put("Patient", patient, json!({})).await;
    }
    setup.put("Group", "g", json!({ "member": [{ "entity": reference("Patient/p") }] })).await;
    let ask = |level: ExportLevel, patients: &'static str, lenient: bool| {
        let mut request = setup.request(level, &[("patient", patients)]);
        (request.by, request.lenient) = (KickOffMethod::Post, lenient);
        setup.bulk.kick_off(request, setup.now())
    };
    let error = ask(ExportLevel::Patient, "Patient/p,Patient/x", false).await.unwrap_err();
    assert_eq!(error.to_string(), "parameter 'patient': not found: Patient/x");
    let error = ask(ExportLevel::Group("g".to_owned()), "Patient/q", false).await.unwrap_err();
    assert!(matches!(error, KickOffError::UnknownPatients { reason: "not in the Group", .. }));
    let job = ask(ExportLevel::Group("g".to_owned()), "Patient/p,Patient/q", true).await.unwrap();
    let manifest = finish(&setup.bulk, &job, setup.now()).await;
    assert_eq!(setup.read(&setup.bulk, &manifest).await["Patient"], set(&["p"]));
    assert_eq!(manifest["error"][0]["count"], 1);
}

#[tokio::test]
async fn a_patient_export_omits_resources_of_missing_patients() {
    let setup = Setup::new();
    setup.put("Patient", "p", json!({})).await;
    setup.put("Observation", "of-p", json!({ "status": "final", "subject": reference("Patient/p") })).await;
    setup
        .put("Observation", "of-nobody", json!({ "status": "final", "subject": reference("Patient/x") }))
        .await;
    setup.put("Observation", "of-group", json!({ "status": "final", "subject": reference("Group/g") })).await;
    setup.put("Organization", "o", json!({})).await;
    let all = setup.read(&setup.bulk, &setup.export(ExportLevel::Patient, &[]).await).await;
    assert_eq!(all.keys().collect::<Vec<_>>(), ["Observation", "Patient"]);
    assert_eq!(all["Observation"], set(&["of-p"]));
}

#[tokio::test]
async fn a_large_group_is_exported_like_a_small_one() {
    const MEMBERS: usize = 120_000;
    let setup = Setup::new();
    let rules = resources::prepare::ResourceRules { bytes: 64 << 20, ..Default::default() };
    setup.resources.set_rules(rules);
    for patient in ["m0000001", "m0099999", "other"] {
        setup.put("Patient", patient, json!({})).await;
        let body = json!({ "status": "final", "subject": { "reference": format!("Patient/{patient}") },
            "performer": [{ "reference": "Patient/m0000002" }] });
        setup.put("Observation", &format!("o-{patient}"), body).await;
        let target = json!([{ "reference": format!("Observation/o-{patient}") }]);
        setup.put("Provenance", &format!("v-{patient}"), json!({ "target": target })).await;
    }
    let observation = json!({ "status": "final", "subject": { "reference": "Patient/other" } });
    setup.put("Observation", "alone", observation).await;
    let group = |members: usize| {
        let member = |n: usize| json!({ "entity": { "reference": format!("Patient/m{n:07}") } });
        json!({ "member": (0..members).map(|n| member(n * 7919 % members)).collect::<Vec<_>>() })
    };
    setup.put("Group", "large", group(MEMBERS)).await;
    let exported = async |id: &str| {
        let manifest = setup.export(ExportLevel::Group(id.to_owned()), &[]).await;
        setup.read(&setup.bulk, &manifest).await
    };
    let large = exported("large").await;
    assert_eq!(large["Patient"], set(&["m0000001", "m0099999"]));
    assert_eq!(large["Observation"], set(&["o-m0000001", "o-m0099999", "o-other"]));
    assert_eq!(large["Provenance"], set(&["v-m0000001", "v-m0099999", "v-other"]));
    let few = [1, 2, 99_999].map(|n| json!({ "entity": { "reference": format!("Patient/m{n:07}") } }));
    setup.put("Group", "small", json!({ "member": few })).await;
    assert_eq!(exported("small").await, large);
}
