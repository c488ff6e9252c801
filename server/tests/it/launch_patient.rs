//! Tests of the launch patient: the page on which a clinician chooses a patient, and the patients of carers.

use std::fmt::Write as _;

use serde_json::{Value, json};
use test_parties::{answer_parameter, hidden_fields};

use crate::sign_in::{Browser, location};
use crate::support::Server;

const APP: &str = "https://app.example/cb";
const SCOPE: &str = "openid fhirUser launch/patient patient/*.rs offline_access";
/// Verifier and challenge of RFC 7636, appendix B.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
const PASSWORD: &str = "a long enough password";

/// Starts a server with an application, a user and some resources.
fn server_with(user: &[&str], resources: &[Value]) -> Server {
    let mut server = Server::in_fresh_folder();
    let mut lines = String::new();
    for resource in resources {
        writeln!(lines, "{resource}").unwrap();
    }
    let file = server.data().join("resources.ndjson");
    std::fs::write(&file, lines).unwrap();
    let add = ["client", "add", "app", "--redirect-uri", APP, "--scope", SCOPE];
    for setup in [
        server.trefoil(&["import", file.to_str().unwrap()]),
        server.trefoil(&add),
        server.add_user(&[&["ada"], user].concat(), PASSWORD),
    ] {
        assert!(setup.status.success(), "{setup:?}");
    }
    server.start();
    server
}

/// Signs in, and returns the URL to which the browser is redirected first: a page or the application.
async fn begin(browser: &mut Browser<'_>, server: &Server) -> String {
    begin_with(browser, server, SCOPE).await
}

async fn begin_with(browser: &mut Browser<'_>, server: &Server, scope: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs([
        ("response_type", "code"),
        ("client_id", "app"),
        ("redirect_uri", APP),
        ("scope", scope),
        ("code_challenge", CHALLENGE),
        ("code_challenge_method", "S256"),
    ]);
    query.append_pair("aud", &server.fhir());
    let to = browser.get(&format!("{}/oauth2/authorize?{}", server.base(), query.finish())).await;
    let to = submit(browser, &location(&to), &[("username", "ada"), ("password", PASSWORD)]).await;
    location(&browser.get(&to).await)
}

/// Submits the form of a page with more fields, and returns the URL to which the browser is redirected.
pub async fn submit(browser: &mut Browser<'_>, page: &str, fields: &[(&str, &str)]) -> String {
    let page_text = browser.get(page).await.text().await.unwrap();
    let forms = page_text.split("<form ").skip(1).find(|form| form.starts_with("method=\"post\"")).unwrap();
    let mut form = hidden_fields(forms);
    form.extend(fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let address = page.split('?').next().unwrap();
    let response = browser.send(browser.client.post(address).form(&form)).await;
    assert_eq!(response.status(), 303);
    location(&response)
}

/// Allows what the application asks for, and redeems its code.
async fn allow(browser: &mut Browser<'_>, server: &Server, consent: &str) -> Value {
    let to = submit(browser, consent, &[("answer", "allow")]).await;
    let to = location(&browser.get(&to).await);
    let code = answer_parameter(&to, "code").unwrap_or_else(|| panic!("no code in {to}"));
    let form = [
        ("grant_type", "authorization_code"),
        ("client_id", "app"),
        ("code", &code),
        ("redirect_uri", APP),
        ("code_verifier", VERIFIER),
    ];
    post_token(server, &form).await.1
}

async fn post_token(server: &Server, form: &[(&str, &str)]) -> (u16, Value) {
    let request = server.client().post(format!("{}/oauth2/token", server.base())).form(form);
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

async fn read_status(server: &Server, token: &str, path: &str) -> u16 {
    let request = server.client().get(format!("{}/{path}", server.fhir())).bearer_auth(token);
    request.send().await.unwrap().status().as_u16()
}

/// Ids of the patients on the page that the search with this text shows.
async fn found(browser: &mut Browser<'_>, page: &str, text: &str) -> Vec<String> {
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("name", text).finish();
    let page_text = browser.get(&format!("{page}&{query}")).await.text().await.unwrap();
    let choices = page_text.split("name=\"patient\" value=\"").skip(1);
    let ids: Vec<_> = choices.map(|rest| rest.split('"').next().unwrap().to_owned()).collect();
    assert_eq!(ids.is_empty(), page_text.contains("No patient with this name was found."), "{text}");
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_12_000_patients_is_found_by_each_of_its_properties() {
    let patient = |number: u32| {
        json!({
            "resourceType": "Patient",
            "id": format!("p{number:05}"),
            "identifier": [{ "system": "https://hospital.example/mrn", "value": format!("MRN-{number}") }],
            "name": [
                { "family": format!("Example{number}"), "given": ["Ida", "Lou"] },
                { "use": "maiden", "family": format!("Birthname{number}") },
            ],
            "birthDate": format!("{}-03-{:02}", 1900 + number % 100, 1 + number % 28),
        })
    };
    let patients: Vec<_> = (0..12_000).map(patient).collect();
    let server = server_with(&["--allowed-scopes", "openid offline_access user/*.rs"], &patients);
    let mut browser = Browser::new(&server);
    let page = begin(&mut browser, &server).await;
    assert!(page.contains("/patient?"), "{page}");
    for text in [
        "p11987",
        "MRN-11987",
        "Example11987",
        "example11987 ida",
        "Birthname11987",
        "Lou Example11987",
        "Ida 1987-03-04 Example119",
        "04.03.1987 Example11987",
    ] {
        let ids = found(&mut browser, &page, text).await;
        assert_eq!(ids, ["p11987"], "{text}");
    }
    for text in ["Example12000", "p12000", "Ida Nobody", "1987-03-05 Example11987", "a,b|c", "%", "MRN-"] {
        assert_eq!(found(&mut browser, &page, text).await, [""; 0], "{text}");
    }
    // Names that many patients have fill pages, and so does an empty text.
    for text in ["", "Ida"] {
        assert_eq!(found(&mut browser, &page, text).await.len(), 20, "{text}");
    }
    let to = submit(&mut browser, &page, &[("patient", "p11987")]).await;
    let consent = location(&browser.get(&to).await);
    let consent_page = browser.get(&consent).await.text().await.unwrap();
    assert!(
        consent_page.contains("Ida Lou Example11987") && consent_page.contains("1987-03-04"),
        "{consent_page}"
    );
    assert_eq!(allow(&mut browser, &server, &consent).await["patient"], "p11987");
}

fn patient(id: &str) -> Value {
    json!({ "resourceType": "Patient", "id": id, "name": [{ "family": id }] })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_carer_has_the_patients_of_the_relation_until_it_ends() {
    let related = |active: bool, end: &str| {
        json!({
            "resourceType": "RelatedPerson", "id": "r", "active": active,
            "patient": { "reference": "Patient/child" }, "period": { "start": "2020", "end": end },
        })
    };
    let resources = [patient("child"), patient("other"), related(true, "2100")];
    let server = server_with(&["--fhir-user", "RelatedPerson/r"], &resources);
    let mut browser = Browser::new(&server);
    // One patient needs no choice.
    let consent = begin(&mut browser, &server).await;
    assert!(consent.contains("/consent?"), "{consent}");
    let tokens = allow(&mut browser, &server, &consent).await;
    assert_eq!(tokens["patient"], "child");
    let access = tokens["access_token"].as_str().unwrap();
    assert_eq!(read_status(&server, access, "Patient/child").await, 200);
    assert_eq!(read_status(&server, access, "Patient/other").await, 404);
    let refresh = |tokens: &Value| {
        let token = tokens["refresh_token"].as_str().unwrap().to_owned();
        let server = &server;
        async move {
            let form = [("grant_type", "refresh_token"), ("client_id", "app"), ("refresh_token", &*token)];
            post_token(server, &form).await
        }
    };
    let (status, tokens) = refresh(&tokens).await;
    assert_eq!((status, &tokens["patient"]), (200, &json!("child")));
    for relation in [related(false, "2100"), related(true, "2024-12-31")] {
        let file = server.data().join("ended.json");
        std::fs::write(&file, relation.to_string()).unwrap();
        assert!(server.trefoil(&["import", file.to_str().unwrap()]).status.success());
        let (status, refused) = refresh(&tokens).await;
        assert_eq!((status, &refused["error"]), (400, &json!("invalid_grant")), "{relation}");
        assert_eq!(read_status(&server, access, "Patient/child").await, 403, "{relation}");
        let response = begin(&mut Browser::new(&server), &server).await;
        assert_eq!(answer_parameter(&response, "error").as_deref(), Some("access_denied"), "{relation}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_exactly_the_patients_of_a_carer() {
    let person = json!({
        "resourceType": "Person", "id": "carer",
        "link": [
            { "target": { "reference": "Patient/a" } },
            { "target": { "reference": "RelatedPerson/r" }, "assurance": "level3" },
            { "target": { "reference": "Patient/doubtful" }, "assurance": "level1" },
            { "target": { "reference": "Practitioner/x" } },
        ],
    });
    let related =
        json!({ "resourceType": "RelatedPerson", "id": "r", "patient": { "reference": "Patient/b" } });
    let patients = ["a", "b", "c", "doubtful", "stranger"].map(patient);
    let resources = [&patients[..], &[person, related]].concat();
    let server = server_with(&["--fhir-user", "Person/carer", "--patient", "c"], &resources);
    let mut browser = Browser::new(&server);
    let page = begin(&mut browser, &server).await;
    assert!(page.contains("/patient?"), "{page}");
    assert_eq!(found(&mut browser, &page, "").await, ["a", "b", "c"]);
    assert_eq!(found(&mut browser, &page, "b").await, ["b"]);
    assert_eq!(found(&mut browser, &page, "stranger").await, [""; 0]);
    let to = submit(&mut browser, &page, &[("patient", "b")]).await;
    let consent = location(&browser.get(&to).await);
    let tokens = allow(&mut browser, &server, &consent).await;
    assert_eq!(tokens["patient"], "b");
    let access = tokens["access_token"].as_str().unwrap();
    assert_eq!(read_status(&server, access, "Patient/b").await, 200);
    assert_eq!(read_status(&server, access, "Patient/c").await, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_carer_who_may_write_does_not_prolong_the_relation() {
    let related = json!({
        "resourceType": "RelatedPerson", "id": "r", "active": true, "birthDate": "1980",
        "patient": { "reference": "Patient/child" }, "period": { "start": "2020", "end": "2100" },
    });
    let resources = [patient("child"), related.clone()];
    let scopes = format!("{SCOPE} patient/*.cruds");
    let user = ["--fhir-user", "RelatedPerson/r", "--allowed-scopes", &scopes];
    let server = server_with(&user, &resources);
    assert!(server.trefoil(&["client", "change", "app", "--scope", &scopes]).status.success());
    let mut browser = Browser::new(&server);
    let consent = begin_with(&mut browser, &server, &scopes).await;
    let tokens = allow(&mut browser, &server, &consent).await;
    let access = tokens["access_token"].as_str().unwrap();
    let (at, fhir) = (format!("{}/RelatedPerson/r", server.fhir()), "application/fhir+json");
    let send = async |method: reqwest::Method, body: Value| {
        let request = server.client().request(method, &at).bearer_auth(access);
        let response = request.header("content-type", fhir).body(body.to_string()).send().await.unwrap();
        let status = response.status().as_u16();
        (status, response.text().await.unwrap())
    };
    let (mut endless, mut older) = (related.clone(), related.clone());
    endless["period"] = json!({ "start": "2020" });
    older["birthDate"] = json!("1970");
    let bundle = json!({ "resourceType": "Bundle", "type": "transaction", "entry": [
        { "resource": endless, "request": { "method": "PUT", "url": "RelatedPerson/r" } },
    ]});
    for (method, body) in [(reqwest::Method::PUT, endless), (reqwest::Method::DELETE, json!({}))] {
        let (status, text) = send(method.clone(), body).await;
        assert!(status == 403 && text.contains("decides whose data"), "{method}: {status} {text}");
    }
    let request = server.client().post(server.fhir()).bearer_auth(access).header("content-type", fhir);
    assert_eq!(request.body(bundle.to_string()).send().await.unwrap().status(), 403);
    let (status, text) = send(reqwest::Method::PUT, older).await;
    assert_eq!(status, 200, "{text}");
}
