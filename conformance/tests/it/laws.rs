//! Properties of the running server: the laws for all servers, and exports compared with the demo project.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};
use trefoil_conformance::environment::TestEnvironment;
use trefoil_conformance::environment::preconditions::CaseContext;
use trefoil_conformance::environment::target::{TIMEOUT, TargetKind, TestTarget};
use trefoil_conformance::laws::{self, Broken, LAWS, LawTest};
use trefoil_conformance::profile::Profile;
use trefoil_conformance::run::verdict::Verdict;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::Trial;

/// Checks that a law fails with the smallest value that breaks it, and always for the same seed.
#[test]
fn a_broken_law_is_reported_with_its_smallest_value() {
    let trial = Trial::start();
    let test = LawTest::new(&trial.environment, &trial.runtime, 200, 7);
    let broken = test.for_all(&(0_u32..100_000), 1, |number| {
        Ok((number >= 17).then(|| laws::failure(Vec::new(), format!("{number} is too large"))))
    });
    let Err(Broken::Failed(failure)) = broken else { panic!("{broken:?}") };
    assert_eq!(
        failure.differences,
        ["17 is too large", "no smaller case was found; repeat this one with --seed 7"]
    );
}

#[test]
fn the_server_keeps_all_laws() {
    let trial = Trial::start();
    for law in &LAWS {
        let outcome = laws::test(law, &trial.environment, &trial.runtime, laws::BUDGET, 7);
        assert_eq!(outcome.verdict, Verdict::Pass, "{}", law.id);
    }
}

/// Returns the ids of an export by type. Every id must occur once.
fn exported(trial: &Trial, context: &mut CaseContext, path: &str) -> BTreeMap<String, BTreeSet<String>> {
    let kick_off = trial.ask(context, &format!("get = \"{path}\"\nbearer = \"$system_token\""));
    context.vars.set("status_url", kick_off.header("content-location").unwrap());
    let manifest = trial.ask(context, "get = \"$status_url\"\nbearer = \"$system_token\"\npoll = 202");
    let manifest = manifest.json().unwrap();
    // Members that are not Patients are named; nothing has failed.
    for notes in manifest["error"].as_array().unwrap() {
        let file = format!("get = \"{}\"\nbearer = \"$system_token\"", notes["url"].as_str().unwrap());
        for line in trial.ask(context, &file).text().lines() {
            let outcome: Value = serde_json::from_str(line).unwrap();
            let issue = &outcome["issue"][0];
            assert_eq!(issue["severity"], "information", "{line}");
            assert!(issue["details"]["text"].as_str().unwrap().contains("not exported, because "), "{line}");
        }
    }
    let mut laws_by_fault: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for output in manifest["output"].as_array().unwrap() {
        let (kind, url) = (output["type"].as_str().unwrap(), output["url"].as_str().unwrap());
        let file = trial.ask(context, &format!("get = \"{url}\"\nbearer = \"$system_token\""));
        for line in file.text().lines() {
            let resource: Value = serde_json::from_str(line).unwrap();
            assert_eq!(resource["resourceType"], kind);
            let id = resource["id"].as_str().unwrap().to_owned();
            assert!(
                laws_by_fault.entry(kind.to_owned()).or_default().insert(id.clone()),
                "{kind}/{id} stands twice"
            );
        }
    }
    laws_by_fault
}

#[test]
fn an_export_contains_exactly_the_selected_resources() {
    let trial = Trial::start();
    let mut context = trial.given(&["system-token"]);
    let project = trefoil_fixtures::project();
    let facts = project.facts();
    for group in &project.groups {
        let export = exported(&trial, &mut context, &format!("/fhir/R4/Group/{}/$export", group.id));
        assert_eq!(export, facts.export_of(&group.id, false), "Group/{}", group.id);
    }
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for resource in project.resources() {
        all.entry(resource.kind.clone()).or_default().insert(resource.id.clone());
    }
    assert_eq!(exported(&trial, &mut context, "/fhir/R4/$export"), all);
}

/// Checks that two servers are compared: a Trefoil server with itself, and with one that always gives the
/// same answer.
#[test]
fn two_servers_are_compared() {
    let trial = Trial::start();
    let compare =
        |second: &TestEnvironment| laws::compare((&trial.environment, second), &trial.runtime, 60, 7);
    assert_eq!(compare(&trial.environment), Verdict::Pass);
    let always = json!({ "resourceType": "Parameters", "parameter": [
        { "name": "result", "valueBoolean": true }, { "name": "outcome", "valueCode": "equivalent" },
    ] });
    let (_server, other) = trial.runtime.block_on(async {
        let server = MockServer::start().await;
        let response = ResponseTemplate::new(200).set_body_json(always);
        Mock::given(any()).respond_with(response).mount(&server).await;
        let text = format!("fhir_base = \"{}\"\nanonymous = true\ntx_resources = true\n", server.uri());
        let profile = Profile::from_toml(&text, Path::new(".")).unwrap();
        let target = TestTarget::connect(&server.uri(), profile, TargetKind::Other, TIMEOUT).await.unwrap();
        (server, TestEnvironment::of(target))
    });
    let Verdict::Fail(failure) = compare(&other) else { panic!("a difference") };
    assert_eq!(failure.exchanges.len(), 2);
    assert_eq!(failure.differences[1], "the codes are c0, c1 below c0");
}
