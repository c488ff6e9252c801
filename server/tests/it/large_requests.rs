//! Tests of authorization requests that are too large for the response head that proxies accept.

use fastrand::Rng;
use test_parties::{answer_parameter, hidden_fields};

use crate::sign_in::{Browser, location};
use crate::support::Server;

const APP: &str = "https://app.example/cb";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
const PASSWORD: &str = "a long enough password";
/// Maximum size of a response head, without what the client chose.
const MAX_HEAD: usize = 2 * 1024;
/// Maximum length of the query of an accepted request.
const MAX_QUERY: usize = 8 * 1024;

/// The types of US Core, as an application requests them one by one.
const TYPES: [&str; 27] = [
    "AllergyIntolerance",
    "CarePlan",
    "CareTeam",
    "Condition",
    "Coverage",
    "Device",
    "DiagnosticReport",
    "DocumentReference",
    "Encounter",
    "Goal",
    "Immunization",
    "Location",
    "Media",
    "Medication",
    "MedicationDispense",
    "MedicationRequest",
    "Observation",
    "Organization",
    "Patient",
    "Practitioner",
    "PractitionerRole",
    "Procedure",
    "Provenance",
    "Questionnaire",
    "QuestionnaireResponse",
    "RelatedPerson",
    "ServiceRequest",
];
/// The granular scopes of the United States' certification.
const GRANULAR: [&str; 8] = [
    "Condition.rs?category=http://terminology.hl7.org/CodeSystem/condition-category|encounter-diagnosis",
    "Condition.rs?category=http://terminology.hl7.org/CodeSystem/condition-category|problem-list-item",
    "Condition.rs?category=http://hl7.org/fhir/us/core/CodeSystem/condition-category|health-concern",
    "Observation.rs?category=http://terminology.hl7.org/CodeSystem/observation-category|laboratory",
    "Observation.rs?category=http://terminology.hl7.org/CodeSystem/observation-category|social-history",
    "Observation.rs?category=http://terminology.hl7.org/CodeSystem/observation-category|survey",
    "Observation.rs?category=http://terminology.hl7.org/CodeSystem/observation-category|vital-signs",
    "Observation.rs?category=http://hl7.org/fhir/us/core/CodeSystem/us-core-category|sdoh",
];

fn server() -> Server {
    let mut server = Server::in_fresh_folder();
    prepare(&server);
    server.start();
    server
}

/// Adds the application and its user to a server that is not started yet.
pub fn prepare(server: &Server) {
    let scope = "openid fhirUser launch/patient offline_access patient/*.rs user/*.rs";
    let app = ["client", "add", "app", "--redirect-uri", APP, "--scope", scope];
    for response in [
        server.trefoil(&app),
        server.add_user(&["ada", "--allowed-scopes", "openid offline_access user/*.rs"], PASSWORD),
    ] {
        assert!(response.status.success(), "{response:?}");
    }
}

/// The scopes of an application with all types and granular scopes.
fn large_scope() -> String {
    let types = TYPES.iter().map(|kind| format!("patient/{kind}.rs"));
    let granular = GRANULAR.iter().map(|scope| format!("patient/{scope}"));
    let all: Vec<_> = ["openid", "fhirUser", "launch/patient", "offline_access"]
        .into_iter()
        .map(str::to_owned)
        .chain(types)
        .chain(granular)
        .collect();
    all.join(" ")
}

fn query(server: &Server, more: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs([
        ("response_type", "code"),
        ("client_id", "app"),
        ("redirect_uri", APP),
        ("code_challenge", CHALLENGE),
        ("code_challenge_method", "S256"),
        ("aud", &server.fhir()),
    ]);
    query.extend_pairs(more);
    query.finish()
}

/// A query of exactly the maximum length, with this scope.
fn longest_query(server: &Server, scope: &str, parameter: &str) -> String {
    let empty = query(server, &[("scope", scope), (parameter, "")]);
    query(server, &[("scope", scope), (parameter, &"x".repeat(MAX_QUERY - empty.len()))])
}

/// Checks the size of a response head of this server.
fn check_head(response: &reqwest::Response) {
    let to_client =
        response.headers().get("location").is_some_and(|to| to.to_str().unwrap().starts_with(APP));
    let lines = response.headers().iter().filter(|(name, _)| !(to_client && *name == "location"));
    let size: usize = lines.map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    assert!(size + 20 <= MAX_HEAD, "{size} bytes: {:?}", response.headers());
}

/// Goes through all pages to the code, and checks each response head.
async fn reach_code(server: &Server, query: &str) -> String {
    reach_code_with(server, query, check_head).await
}

/// Goes through all pages to the code, and passes each response to a check.
async fn reach_code_with(server: &Server, query: &str, check_head: impl Fn(&reqwest::Response)) -> String {
    let mut browser = Browser::new(server);
    let (base, password) = (server.base(), PASSWORD);
    let mut at = format!("{base}/oauth2/authorize?{query}");
    for _ in 0..12 {
        let response = browser.get(&at).await;
        check_head(&response);
        if response.status().is_redirection() {
            at = location(&response);
            if at.starts_with(APP) {
                return answer_parameter(&at, "code").unwrap_or_else(|| panic!("no code in {at}"));
            }
            continue;
        }
        assert_eq!(response.status(), 200, "{at}");
        let page = response.text().await.unwrap();
        let form = page.split("<form ").skip(1).find(|form| form.starts_with("method=\"post\"")).unwrap();
        let mut form = hidden_fields(form);
        let path = at.strip_prefix(&base).unwrap().split('?').next().unwrap().to_owned();
        let fields: &[(&str, &str)] = match &*path {
            "/sign-in" => &[("username", "ada"), ("password", password)],
            "/patient" => &[("patient", "pat-01")],
            "/consent" => &[("answer", "allow")],
            other => panic!("an unknown page {other}"),
        };
        form.extend(fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let response = browser.send(browser.client.post(format!("{base}{path}")).form(&form)).await;
        check_head(&response);
        assert_eq!(response.status(), 303, "{path}");
        at = location(&response);
    }
    panic!("too many steps");
}

/// Checks that the largest request reaches its code, with a `state` of the usual length: the last response
/// returns it.
pub async fn check_largest(server: &Server) {
    reach_code(server, &longest_query(server, &large_scope(), "nonce")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_request_reaches_its_code_with_small_response_heads() {
    let server = server();
    let scope = large_scope();
    for parameter in ["state", "nonce", "login_hint", "claims_locales", "ui_locales"] {
        reach_code(&server, &longest_query(&server, &scope, parameter)).await;
    }
    reach_code(&server, &longest_query(&server, "openid", "state")).await;
}

/// Law: every accepted request reaches its code, whatever its size.
#[tokio::test(flavor = "multi_thread")]
async fn requests_of_all_sizes_reach_their_code() {
    let server = server();
    let scopes: Vec<_> = large_scope().split(' ').map(str::to_owned).collect();
    let mut random = Rng::with_seed(37);
    for _ in 0..20 {
        let count = random.usize(1..=scopes.len());
        let mut scope = vec!["openid".to_owned()];
        scope.extend(scopes[..count].iter().filter(|scope| *scope != "openid").cloned());
        let state = "s".repeat(random.usize(0..3_000));
        let nonce = "n".repeat(random.usize(0..1_500));
        let query = query(&server, &[("scope", &scope.join(" ")), ("state", &state), ("nonce", &nonce)]);
        if query.len() <= MAX_QUERY {
            reach_code(&server, &query).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_large_requests_ends_no_sign_in() {
    let mut server = Server::in_fresh_folder().with_settings("");
    prepare(&server);
    server.start();
    let large = longest_query(&server, &large_scope(), "state");
    let address = |query: &str| format!("{}/oauth2/authorize?{query}", server.base());
    let client = server.client();
    let mut in_address = 0;
    for _ in 0..700 {
        let to = location(&client.get(address(&large)).send().await.unwrap());
        assert!(to.contains("/sign-in?continue="), "{to}");
        in_address += usize::from(to.len() > MAX_HEAD);
    }
    assert!(in_address > 100, "{in_address}");
    assert!(server.log().contains("4 MiB of one network"), "{}", server.log());
    // From the same network, without a proxy.
    reach_code_with(&server, &large, |_| {}).await;
    let small = query(&server, &[("scope", "openid")]);
    let to = location(&client.get(address(&small)).send().await.unwrap());
    assert!(to.contains("/sign-in?continue="), "{to}");
    reach_code(&server, &small).await;
}
