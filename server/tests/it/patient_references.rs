//! Law: a client that is limited to some Patients sees and changes exactly the resources that refer to
//! them, for every element of FHIR R4 that may refer to a Patient, on every route and every engine.

use std::collections::BTreeSet;

use fhir::patient_compartment;
use fhir::patient_references::{self, ReferencePath, WithoutPatient, without_patient};
use fhir::search_parameters::{self, SearchParameter, ValueComparison};
use fhir::structures::elements;
use reqwest::{Method, StatusCode};
use serde_json::{Map, Value, json};
use test_database::TestDatabase;
use test_parties::answer_parameter;

use crate::launch_patient::submit;
use crate::sign_in::{Browser, location};
use crate::support::{Server, manifest_at};

const SCOPES: &str = "system/*.cruds";
const APP: &str = "https://app.example/cb";
const PASSWORD: &str = "a long enough password";
/// Verifier and challenge of RFC 7636, appendix B.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

/// An element that may refer to a Patient, with a resource for each case.
struct ElementCase {
    kind: &'static str,
    path: String,
    number: usize,
}

impl ElementCase {
    fn id(&self, whom: &str) -> String {
        format!("e{:03}-{whom}", self.number)
    }

    /// A resource in which only this element refers to a Patient.
    fn resource(&self, whom: &str) -> Value {
        let mut resource = json!({ "resourceType": self.kind, "id": self.id(whom) });
        if self.kind == "Binary" {
            resource["contentType"] = "text/plain".into();
        }
        let reference = json!({ "reference": format!("Patient/{whom}") });
        let path: Vec<&str> = self.path.split('.').collect();
        let member = nested(self.kind, &path, reference);
        resource.as_object_mut().unwrap().extend(member);
        resource
    }

    fn is_of_compartment(&self) -> bool {
        patient_compartment::paths(self.kind).contains(&&*self.path)
    }
}

/// The member at a path, with arrays where the elements repeat.
fn nested(structure: &str, path: &[&str], value: Value) -> Map<String, Value> {
    let [name, rest @ ..] = path else { panic!("a path is not empty") };
    let element = elements(structure).iter().find(|element| {
        element.name == *name || element.is_choice && name.strip_suffix("Reference") == Some(element.name)
    });
    let element = element.unwrap_or_else(|| panic!("{structure}.{name}"));
    let value = match rest {
        [] => value,
        rest => nested(element.types[0], rest, value).into(),
    };
    let value = if element.repeats { json!([value]) } else { value };
    Map::from_iter([((*name).to_owned(), value)])
}

/// Every element of the table, those of repeated elements also below the repetition.
fn cases() -> Vec<ElementCase> {
    let mut cases = Vec::new();
    for &kind in fhir::RESOURCE_TYPES {
        let paths = patient_references::paths(kind);
        let references = paths.iter().filter_map(|path| match path {
            ReferencePath::Reference(path) => Some((*path).to_owned()),
            ReferencePath::Repeated { .. } => None,
        });
        let references: Vec<String> = references.collect();
        let repeated = paths.iter().flat_map(|path| match path {
            ReferencePath::Repeated { path, of } => {
                let below = references.iter().filter_map(|own| own.strip_prefix(of)?.strip_prefix('.'));
                below.map(|below| format!("{path}.{below}")).collect()
            }
            ReferencePath::Reference(_) => Vec::new(),
        });
        let repeated: Vec<String> = repeated.collect();
        for path in references.into_iter().chain(repeated) {
            cases.push(ElementCase { kind, path, number: cases.len() });
        }
    }
    cases
}

/// The types that are readable by reference, with two resources: `List`s of the one and of the other
/// Patient refer to them.
fn shared_kinds() -> impl Iterator<Item = &'static str> {
    let kinds = fhir::RESOURCE_TYPES.iter().copied();
    kinds.filter(|kind| without_patient(kind) == WithoutPatient::ByReference)
}

fn list(id: &str, whom: &str, items: impl Iterator<Item = String>) -> Value {
    let entries: Vec<Value> = items.map(|item| json!({ "item": { "reference": item } })).collect();
    json!({ "resourceType": "List", "id": id, "status": "current", "mode": "working",
        "subject": { "reference": format!("Patient/{whom}") }, "entry": entries })
}

fn minimal(kind: &str, id: &str) -> Value {
    let mut resource = json!({ "resourceType": kind, "id": id });
    match kind {
        "Binary" => resource["contentType"] = "text/plain".into(),
        "Bundle" => resource["type"] = "collection".into(),
        _ => {}
    }
    resource
}

fn resources(cases: &[ElementCase]) -> Vec<Value> {
    let mut all: Vec<Value> = ["in", "out"].map(|id| json!({ "resourceType": "Patient", "id": id })).into();
    all.push(json!({ "resourceType": "Group", "id": "limit", "type": "person", "actual": true,
        "member": [{ "entity": { "reference": "Patient/in" } }] }));
    for case in cases {
        all.extend(["in", "out"].map(|whom| case.resource(whom)));
        all.push(minimal(case.kind, &case.id("none")));
    }
    for whom in ["in", "out"] {
        for kind in shared_kinds() {
            all.push(minimal(kind, &format!("shared-{whom}")));
        }
        let items = shared_kinds().map(|kind| format!("{kind}/shared-{whom}"));
        all.push(list(&format!("list-{whom}"), whom, items));
        let patient = json!({ "resource": { "resourceType": "Patient", "id": whom } });
        all.push(json!({ "resourceType": "Bundle", "id": format!("document-{whom}"), "type": "document",
            "entry": [patient] }));
    }
    let patients = ["in", "out"].map(|id| json!({ "resource": { "resourceType": "Patient", "id": id } }));
    all.push(
        json!({ "resourceType": "Bundle", "id": "document-of-both", "type": "document", "entry": patients }),
    );
    // A reference through a resource that has no Patient itself.
    all.push(minimal("Device", "far-in"));
    all.push(json!({ "resourceType": "Task", "id": "house", "status": "draft", "intent": "order",
        "focus": { "reference": "Device/far-in" } }));
    all.push(list("list-of-task", "in", ["Task/house".to_owned()].into_iter()));
    // Content of an attachment.
    for whom in ["in", "out"] {
        all.push(minimal("Binary", &format!("scan-{whom}")));
        all.push(
            json!({ "resourceType": "DocumentReference", "id": format!("scan-{whom}"), "status": "current",
            "subject": { "reference": format!("Patient/{whom}") },
            "content": [{ "attachment": { "url": format!("Binary/scan-{whom}") } }] }),
        );
    }
    all
}

/// Whether the limited client sees a resource of [`resources`].
fn is_visible(kind: &str, id: &str, sees_others: bool) -> bool {
    match id {
        "limit" => sees_others,
        "house" | "list-of-task" => true,
        "document-of-both" => false,
        _ if id.ends_with("none") => without_patient(kind) == WithoutPatient::Visible && sees_others,
        _ => id.ends_with("in"),
    }
}

/// A client of the server with a token.
struct LimitedClient<'a> {
    server: &'a Server,
    client: reqwest::Client,
    token: String,
    /// Whether the client also sees types that are not about patients.
    sees_others: bool,
    checks: usize,
}

impl LimitedClient<'_> {
    async fn send(&mut self, method: Method, path: &str, body: Option<&Value>) -> (StatusCode, Value) {
        let url =
            if path.contains("://") { path.to_owned() } else { format!("{}/{path}", self.server.fhir()) };
        let request = self.client.request(method, url).bearer_auth(&self.token);
        let request = request.header("accept", "application/fhir+json");
        let request = match body {
            Some(body) => request.header("content-type", "application/fhir+json").body(body.to_string()),
            None => request,
        };
        let response = request.send().await.unwrap();
        let status = response.status();
        self.checks += 1;
        (status, serde_json::from_slice(&response.bytes().await.unwrap()).unwrap_or_default())
    }

    async fn get(&mut self, path: &str) -> (StatusCode, Value) {
        self.send(Method::GET, path, None).await
    }

    /// The ids of a type on all pages of a search or a history.
    async fn ids(&mut self, path: &str, kind: &str) -> BTreeSet<String> {
        let (mut ids, mut next) = (BTreeSet::new(), Some(path.to_owned()));
        while let Some(path) = next {
            let (status, bundle) = self.get(&path).await;
            assert_eq!(status, StatusCode::OK, "{path}: {bundle}");
            for entry in bundle["entry"].as_array().into_iter().flatten() {
                if entry["resource"]["resourceType"] == kind {
                    ids.insert(entry["resource"]["id"].as_str().unwrap().to_owned());
                }
            }
            let links = bundle["link"].as_array().unwrap();
            let link = links.iter().find(|link| link["relation"] == "next");
            next = link.map(|link| link["url"].as_str().unwrap().to_owned());
        }
        ids
    }

    /// Compares all reads with the law.
    async fn check_reads(&mut self, all: &[Value]) {
        let sees_others = self.sees_others;
        let mut kinds: BTreeSet<&str> = BTreeSet::new();
        for resource in all {
            let [kind, id] = ["resourceType", "id"].map(|member| resource[member].as_str().unwrap());
            kinds.insert(kind);
            let is_expected = is_visible(kind, id, sees_others);
            let expected = if is_expected { StatusCode::OK } else { StatusCode::NOT_FOUND };
            for path in ["", "/_history/1", "/_history"] {
                let path = format!("{kind}/{id}{path}");
                assert_eq!(self.get(&path).await.0, expected, "{path}: {resource}");
            }
            let ids = self.ids(&format!("{kind}?_id={id}"), kind).await;
            assert_eq!(ids.contains(id), is_expected, "{kind}?_id={id}");
        }
        for kind in kinds {
            let own = all.iter().filter(|resource| resource["resourceType"] == kind);
            let expected: BTreeSet<String> = own
                .map(|resource| resource["id"].as_str().unwrap().to_owned())
                .filter(|id| is_visible(kind, id, sees_others))
                .collect();
            let ours = |ids: BTreeSet<String>| -> BTreeSet<String> {
                let is_ours = |id: &String| {
                    all.iter().any(|resource| resource["resourceType"] == kind && resource["id"] == **id)
                };
                ids.into_iter().filter(is_ours).collect()
            };
            let current_ids = self.ids(&format!("{kind}?_count=1000"), kind).await;
            assert_eq!(ours(current_ids), expected, "search of {kind}");
            let found_ids = self.ids(&format!("{kind}/_history?_count=1000"), kind).await;
            assert_eq!(ours(found_ids), expected, "history of {kind}");
            let is_reference =
                |parameter: SearchParameter| parameter.comparison == ValueComparison::Reference;
            if search_parameters::parameters(kind).any(is_reference) {
                let search = format!("Patient?_id=in&_revinclude={kind}:*&_count=1000");
                assert!(ours(self.ids(&search, kind).await).is_subset(&expected), "{search}");
            }
            let lists = "List?_id=list-in,list-out,list-of-task&_include=List:item";
            let ids = self.ids(lists, kind).await;
            assert!(ours(ids).is_subset(&expected), "_include of {kind}");
        }
    }

    /// Tries to change what belongs to others, and to move what is visible to others.
    async fn check_writes(&mut self, cases: &[ElementCase]) {
        for case in cases {
            let (kind, own, other) = (case.kind, case.id("in"), case.id("out"));
            let mut moved = case.resource("out");
            let statuses = [StatusCode::FORBIDDEN, StatusCode::NOT_FOUND];
            for path in [format!("{kind}/{other}"), format!("{kind}?_id={other}")] {
                let (status, answer) = self.send(Method::PUT, &path, Some(&moved)).await;
                assert!(statuses.contains(&status), "PUT {path}: {status} {answer}");
            }
            let path = format!("{kind}/{other}");
            let (status, answer) = self.send(Method::DELETE, &path, None).await;
            assert!(statuses.contains(&status), "DELETE {path}: {status} {answer}");
            let (status, _) = self.send(Method::DELETE, &format!("{kind}?_id={other}"), None).await;
            assert!(
                status == StatusCode::NO_CONTENT || statuses.contains(&status),
                "{kind}?_id={other}: {status}"
            );
            moved["id"] = own.clone().into();
            let path = format!("{kind}/{own}");
            let (status, answer) = self.send(Method::PUT, &path, Some(&moved)).await;
            assert!(statuses.contains(&status), "PUT {path}: {status} {answer}");
            let create = case.resource("out");
            let (status, answer) = self.send(Method::POST, kind, Some(&create)).await;
            assert!(statuses.contains(&status), "POST {kind} {create}: {status} {answer}");
            for bundle in ["batch", "transaction"] {
                let request = json!({ "method": "DELETE", "url": format!("{kind}/{other}") });
                let bundle =
                    json!({ "resourceType": "Bundle", "type": bundle, "entry": [{ "request": request }] });
                let (status, answer) = self.send(Method::POST, "", Some(&bundle)).await;
                assert_eq!(status, StatusCode::FORBIDDEN, "{bundle}: {answer}");
            }
        }
    }
}

/// Checks that only what the law permits was changed.
async fn check_unchanged(server: &Server, token: &str, cases: &[ElementCase]) {
    let client = server.client();
    for case in cases {
        for whom in ["in", "out"] {
            let url = format!("{}/{}/{}/_history", server.fhir(), case.kind, case.id(whom));
            let history: Value =
                client.get(&url).bearer_auth(token).send().await.unwrap().json().await.unwrap();
            assert_eq!(history["entry"].as_array().map(Vec::len), Some(1), "{url}: {history}");
        }
    }
}

/// Compares an export of the Group by the limited client with the law.
async fn check_export(reader: &LimitedClient<'_>, cases: &[ElementCase]) {
    let (client, server) = (&reader.client, reader.server);
    let kick_off = format!("{}/Group/limit/$export?includeAssociatedData=_supporting", server.fhir());
    let response = client.get(kick_off).bearer_auth(&reader.token).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::ACCEPTED);
    let status = response.headers()["content-location"].to_str().unwrap().to_owned();
    let manifest = manifest_at(client, &reader.token, &status).await;
    let mut exported = BTreeSet::new();
    for file in manifest["output"].as_array().unwrap() {
        let url = file["url"].as_str().unwrap();
        let text = client.get(url).bearer_auth(&reader.token).send().await.unwrap().text().await.unwrap();
        for line in text.lines() {
            let resource: Value = serde_json::from_str(line).unwrap();
            let [kind, id] = ["resourceType", "id"].map(|name| resource[name].as_str().unwrap().to_owned());
            exported.insert(format!("{kind}/{id}"));
        }
    }
    for case in cases {
        let reference = |whom: &str| format!("{}/{}", case.kind, case.id(whom));
        assert!(!exported.contains(&reference("out")), "{}", reference("out"));
        assert!(!exported.contains(&reference("none")), "{}", reference("none"));
        let is_exported = exported.contains(&reference("in"));
        assert!(is_exported || !case.is_of_compartment(), "{}: {}", reference("in"), case.path);
    }
    assert!(exported.contains("Device/shared-in") && !exported.contains("Device/shared-out"));
}

/// A token of a user whose record is that of a Patient.
async fn patient_token(server: &Server) -> String {
    let mut browser = Browser::new(server);
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs([("response_type", "code"), ("client_id", "app"), ("redirect_uri", APP)]);
    query.extend_pairs([("scope", "launch/patient patient/*.rs"), ("code_challenge", CHALLENGE)]);
    query.extend_pairs([("code_challenge_method", "S256"), ("aud", &server.fhir())]);
    let page = browser.get(&format!("{}/oauth2/authorize?{}", server.base(), query.finish())).await;
    let next = submit(&mut browser, &location(&page), &[("username", "ada"), ("password", PASSWORD)]).await;
    let redirect = location(&browser.get(&next).await);
    let code = answer_parameter(&redirect, "code").unwrap_or_else(|| panic!("no code in {redirect}"));
    let form = [
        ("grant_type", "authorization_code"),
        ("client_id", "app"),
        ("code", &code),
        ("redirect_uri", APP),
        ("code_verifier", VERIFIER),
    ];
    let url = format!("{}/oauth2/token", server.base());
    let response: Value = server.client().post(url).form(&form).send().await.unwrap().json().await.unwrap();
    response["access_token"].as_str().unwrap_or_else(|| panic!("{response}")).to_owned()
}

/// Registers a client with this id, and returns a token of it.
pub async fn token_of(server: &Server, id: &str, flags: &[&str]) -> String {
    let secret = register(server, id, flags);
    token_for(server, id, &secret).await
}

/// Registers a client with this id, and returns its secret.
pub fn register(server: &Server, id: &str, flags: &[&str]) -> String {
    let add = ["client", "add", id, "--auth-method", "client_secret_post", "--json"];
    let add = [&add[..], &["--grant-type", "client_credentials", "--scope", SCOPES], flags].concat();
    let added = String::from_utf8(server.trefoil(&add).stdout).unwrap();
    let secret = added.lines().find_map(|line| {
        serde_json::from_str::<Value>(line).unwrap()["client_secret"].as_str().map(str::to_owned)
    });
    secret.unwrap_or_else(|| panic!("{added}"))
}

/// Returns a token of a client.
pub async fn token_for(server: &Server, id: &str, secret: &str) -> String {
    let form = [
        ("grant_type", "client_credentials"),
        ("client_id", id),
        ("client_secret", secret),
        ("scope", SCOPES),
    ];
    let url = format!("{}/oauth2/token", server.base());
    let response: Value = server.client().post(url).form(&form).send().await.unwrap().json().await.unwrap();
    response["access_token"].as_str().unwrap_or_else(|| panic!("{response}")).to_owned()
}

async fn check(server: Server) {
    let cases = cases();
    let all = resources(&cases);
    let file = server.data().join("all.ndjson");
    std::fs::write(&file, all.iter().map(|resource| format!("{resource}\n")).collect::<String>()).unwrap();
    let imported = server.trefoil(&["import", "--keep-bundles", file.to_str().unwrap()]);
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
    let token = token_of(&server, "limited", &["--group", "limit"]).await;
    let client = server.client();
    let mut limited_client =
        LimitedClient { server: &server, client: client.clone(), token, sees_others: true, checks: 0 };
    limited_client.check_reads(&all).await;
    check_export(&limited_client, &cases).await;
    limited_client.check_writes(&cases).await;
    let everything = token_of(&server, "everything", &[]).await;
    check_unchanged(&server, &everything, &cases).await;

    let app = ["client", "add", "app", "--redirect-uri", APP, "--first-party", "--scope"];
    assert!(server.trefoil(&[&app[..], &["launch/patient patient/*.rs"]].concat()).status.success());
    assert!(server.add_user(&["ada", "--fhir-user", "Patient/in"], PASSWORD).status.success());
    let token = patient_token(&server).await;
    let mut app = LimitedClient { server: &server, client, token, sees_others: false, checks: 0 };
    app.check_reads(&all).await;
    let (elements, requests) = (cases.len(), limited_client.checks + app.checks);
    println!("{elements} elements, {} resources, {requests} requests", all.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_law_holds_in_a_folder() {
    let mut server = Server::in_fresh_folder().over_plain_http();
    server.start();
    check(server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_law_holds_in_memory() {
    let mut server = Server::in_fresh_folder().over_plain_http();
    server.start_with(&["--store", "memory"]);
    check(server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_law_holds_in_a_database() {
    let Some(database) = TestDatabase::shared() else { return };
    let url = database.create().unwrap();
    let server = Server::in_fresh_folder().over_plain_http();
    let base = server.base();
    let mut server = server.sharing(&base, &url);
    server.start();
    check(server).await;
}
