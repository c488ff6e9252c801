//! Properties of all requests, tested over HTTPS with random values and with all codes of the demo project.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};
use trefoil_conformance::environment::cookies::CookieJar;
use trefoil_conformance::environment::preconditions::CaseContext;

use crate::Trial;

/// Returns a test runner that generates the same cases in every run.
fn runner(cases: u32) -> TestRunner {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

/// Returns the code systems of the demo project: canonical URL and codes. Each code also occurs with its case changed,
/// and one code is unknown.
fn code_systems(trial: &Trial, scene: &mut CaseContext) -> Vec<(String, Vec<String>)> {
    let ids: Vec<String> = match scene.vars.get("code_systems") {
        Some(Value::Array(all)) => {
            all.iter().map(|system| system["id"].as_str().unwrap().to_owned()).collect()
        }
        _ => panic!("the demo has code systems"),
    };
    let read = |id: String| {
        let system = trial
            .ask(scene, &format!("get = \"/fhir/R4/CodeSystem/{id}\"\nbearer = \"$system_token\""))
            .json()
            .unwrap();
        let mut codes = Vec::new();
        collect_codes(&system["concept"], &mut codes);
        assert!(codes.len() > 5, "{id} has only {codes:?}");
        let changed: Vec<_> = codes.iter().take(5).map(|code| code.to_uppercase()).collect();
        codes.extend(changed);
        codes.push("in no system".to_owned());
        (system["url"].as_str().unwrap().to_owned(), codes)
    };
    ids.into_iter().map(read).collect()
}

fn collect_codes(concepts: &Value, codes: &mut Vec<String>) {
    for concept in concepts.as_array().into_iter().flatten() {
        codes.push(concept["code"].as_str().unwrap().to_owned());
        collect_codes(&concept["concept"], codes);
    }
}

/// Sends an operation by GET and by POST with the same parameters.
fn by_get_and_by_post(
    trial: &Trial,
    scene: &mut CaseContext,
    path: &str,
    parameters: &[(&str, &str, &str)],
) -> [(u16, Value); 2] {
    let query: BTreeMap<_, _> = parameters.iter().map(|(name, _, value)| (*name, *value)).collect();
    let body: Vec<_> = parameters
        .iter()
        .map(|(name, kind, value)| json!({ "name": name, format!("value{kind}"): value }))
        .collect();
    let body = json!({ "resourceType": "Parameters", "parameter": body });
    let get = json!({ "get": path, "query": query, "bearer": "$system_token" });
    let post = json!({ "post": path, "json": body, "bearer": "$system_token" });
    [get, post].map(|request| {
        let answer = trial.ask(scene, &toml::to_string(&request).unwrap());
        (answer.status.as_u16(), answer.json().unwrap())
    })
}

#[test]
fn get_and_post_have_equal_answers() {
    let trial = Trial::start();
    let mut scene = trial.given(&["system-token"]);
    let systems = code_systems(&trial, &mut scene);
    let sets: Vec<String> = match scene.vars.get("value_sets") {
        Some(Value::Array(all)) => all.iter().map(|set| set["url"].as_str().unwrap().to_owned()).collect(),
        _ => panic!("the demo has value sets"),
    };
    let scene = std::cell::RefCell::new(scene);
    let chance = (any::<Index>(), any::<Index>(), any::<Index>(), any::<Index>());
    let law = |(system, a, b, set): (Index, Index, Index, Index)| {
        let (url, codes) = system.get(&systems);
        let (a, b, set) = (a.get(codes), b.get(codes), set.get(&sets));
        let mut scene = scene.borrow_mut();
        let [get, post] = by_get_and_by_post(
            &trial,
            &mut scene,
            "/fhir/R4/CodeSystem/$subsumes",
            &[("system", "Uri", url), ("codeA", "Code", a), ("codeB", "Code", b)],
        );
        prop_assert_eq!(get, post, "$subsumes of {} and {} in {}", a, b, url);
        let [get, post] = by_get_and_by_post(
            &trial,
            &mut scene,
            "/fhir/R4/ValueSet/$validate-code",
            &[("url", "Uri", set), ("system", "Uri", url), ("code", "Code", a)],
        );
        prop_assert_eq!(get.0, 200);
        prop_assert_eq!(get, post, "$validate-code of {} in {}", a, set);
        Ok(())
    };
    runner(60).run(&chance, law).unwrap();
}

#[test]
fn a_code_can_be_exchanged_at_most_once() {
    let trial = Trial::start();
    let law = |at_once: usize| {
        let scene = trial.given(&["code"]);
        let request = r#"post = "token"
            form = { grant_type = "authorization_code", client_id = "$public.client_id", redirect_uri = "$redirect_uri", code = "$code", code_verifier = "$verifier" }"#;
        let request = toml::from_str(request).unwrap();
        let sent = trefoil_conformance::wire::build::build_request(&request, &scene.vars).unwrap();
        let redeem = async || {
            let answer = trial.world.target.send(&sent, &mut CookieJar::new()).await.unwrap();
            answer.status.as_u16()
        };
        let all = futures_util::future::join_all((0..at_once).map(|_| redeem()));
        let statuses = trial.runtime.block_on(all);
        prop_assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{:?}", &statuses);
        prop_assert!(statuses.iter().all(|status| matches!(status, 200 | 400)), "{:?}", statuses);
        Ok(())
    };
    runner(8).run(&(2_usize..16), law).unwrap();
}

/// Returns the ids of an export by type. Every id must occur once.
fn exported(trial: &Trial, scene: &mut CaseContext, path: &str) -> BTreeMap<String, BTreeSet<String>> {
    let kick_off = trial.ask(scene, &format!("get = \"{path}\"\nbearer = \"$system_token\""));
    scene.vars.set("status_url", kick_off.header("content-location").unwrap());
    let manifest = trial.ask(scene, "get = \"$status_url\"\nbearer = \"$system_token\"\npoll = 202");
    let manifest = manifest.json().unwrap();
    assert_eq!(manifest["error"], json!([]));
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for output in manifest["output"].as_array().unwrap() {
        let (kind, url) = (output["type"].as_str().unwrap(), output["url"].as_str().unwrap());
        let file = trial.ask(scene, &format!("get = \"{url}\"\nbearer = \"$system_token\""));
        for line in file.text().lines() {
            let resource: Value = serde_json::from_str(line).unwrap();
            assert_eq!(resource["resourceType"], kind);
            let id = resource["id"].as_str().unwrap().to_owned();
            assert!(found.entry(kind.to_owned()).or_default().insert(id.clone()), "{kind}/{id} stands twice");
        }
    }
    found
}

#[test]
fn an_export_contains_exactly_the_selected_resources() {
    let trial = Trial::start();
    let mut scene = trial.given(&["system-token"]);
    let project = trefoil_fixtures::project();
    let facts = project.facts();
    for group in &project.groups {
        let found = exported(&trial, &mut scene, &format!("/fhir/R4/Group/{}/$export", group.id));
        assert_eq!(found, facts.export_of(&group.id, false), "Group/{}", group.id);
    }
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for resource in project.resources() {
        all.entry(resource.kind.clone()).or_default().insert(resource.id.clone());
    }
    assert_eq!(exported(&trial, &mut scene, "/fhir/R4/$export"), all);
}
