//! Tests of users who come from a hospital's own provider (oidc-provider), with the claims of Keycloak and of
//! Entra.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use test_database::TestDatabase;
use test_parties::{answer_parameter, hidden_fields};

use crate::clients::clients;
use crate::launch_patient::submit;
use crate::sign_in::{Browser, location};
use crate::support::{Server, have, installed};

const APP: &str = "https://app.example/cb";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";

/// The place of the claims in the messages of the provider.
#[derive(Clone, Copy)]
enum ClaimsIn {
    IdToken,
    Userinfo,
}

struct Provider {
    child: Child,
    /// Stays open: the provider ends when it cannot write.
    _output: BufReader<std::process::ChildStdout>,
    issuer: String,
}

impl Drop for Provider {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Provider {
    fn start(redirect_uri: &str, claims: ClaimsIn) -> Self {
        let place = match claims {
            ClaimsIn::IdToken => "id-token",
            ClaimsIn::Userinfo => "userinfo",
        };
        let mut child = Command::new("node")
            .arg(clients().join("hospital_provider.mjs"))
            .args([redirect_uri, place])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut issuer = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut issuer).unwrap();
        Self { child, _output: output, issuer: issuer.trim().to_owned() }
    }

    /// Sets the claims of the user.
    async fn set_claims(&self, claims: &Value) {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        client.post(format!("{}/claims", self.issuer)).body(claims.to_string()).send().await.unwrap();
    }

    /// Follows the redirects of the provider from an authorization request to the callback of the server.
    async fn authorize(&self, request: &str) -> String {
        let none = reqwest::redirect::Policy::none();
        let client = reqwest::Client::builder().redirect(none).no_proxy().build().unwrap();
        let (mut at, mut cookies) = (request.to_owned(), Vec::<(String, String)>::new());
        for _ in 0..10 {
            let pairs: Vec<_> = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let response = client.get(&at).header("cookie", pairs.join("; ")).send().await.unwrap();
            for set in response.headers().get_all("set-cookie") {
                let pair = set.to_str().unwrap().split(';').next().unwrap();
                let (name, value) = pair.split_once('=').unwrap();
                cookies.retain(|(known, _)| known != name);
                cookies.push((name.to_owned(), value.to_owned()));
            }
            assert!(response.status().is_redirection(), "{at}: {}", response.text().await.unwrap());
            let to = location(&response);
            at = if to.starts_with('/') { format!("{}{to}", self.issuer) } else { to };
            if !at.starts_with(&self.issuer) {
                return at;
            }
        }
        panic!("too many redirects: {at}");
    }
}

fn have_provider() -> bool {
    let package = clients().join("node_modules/oidc-provider");
    have("node", "oidc-provider") && installed("oidc-provider", &package)
}

/// The redirect URI of a server with this base URL.
fn redirect_uri(base: &str) -> String {
    format!("{base}/oauth2/idpresponse/Hospital")
}

/// The settings of a server whose users come from the provider.
fn settings_of(server: &Server, provider: &Provider) -> String {
    let secret = server.data().join("secret");
    std::fs::write(&secret, "only-for-this-test").unwrap();
    format!(
        r#"
[[provider]]
name = "Hospital"
issuer = "{}"
client_id = "trefoil"
client_secret_file = "{}"
create_users = true
fhir_user_claim = "fhirUser"
update_claims = "always"

[[provider.mapping]]                  # Entra: the id of a group
claim = "groups"
value = "5f0c7d2e-ward-3"
groups = ["ward-3"]

[[provider.mapping]]                  # Entra: an app role
claim = "roles"
value = "clinician"
allowed_scopes = "user/*.rs"

[[provider.mapping]]                  # Keycloak: a role of the realm
claim = "realm_access.roles"
value = "researcher"
allowed_scopes = "user/Observation.rs"
"#,
        provider.issuer,
        secret.display()
    )
}

/// A server whose users come from the provider; `None` if something is not installed.
async fn hospital(claims: ClaimsIn) -> Option<(Server, Provider)> {
    if !have_provider() {
        return None;
    }
    let server = Server::in_fresh_folder();
    let provider = Provider::start(&redirect_uri(&server.base()), claims);
    let settings = settings_of(&server, &provider);
    fill(&server);
    let mut server = server.with_settings(&settings);
    server.start();
    Some((server, provider))
}

/// Adds an app, and the resources that mappings name.
fn fill(server: &Server) {
    let resources = [
        json!({ "resourceType": "Practitioner", "id": "ann" }),
        json!({ "resourceType": "Patient", "id": "in-ward", "name": [{ "family": "Example" }] }),
        json!({ "resourceType": "Patient", "id": "elsewhere" }),
        json!({
            "resourceType": "Group", "id": "ward-3", "type": "person", "actual": true,
            "member": [{ "entity": { "reference": "Patient/in-ward" } }],
        }),
    ];
    let file = server.data().join("resources.ndjson");
    std::fs::write(&file, resources.map(|resource| format!("{resource}\n")).concat()).unwrap();
    let scope = "openid profile fhirUser offline_access launch/patient patient/*.rs user/*.rs";
    for args in [
        &["import", file.to_str().unwrap()][..],
        &["client", "add", "app", "--redirect-uri", APP, "--scope", scope],
    ] {
        assert!(server.trefoil(args).status.success(), "{args:?}");
    }
}

/// Signs in with these claims, and returns the address at which the app receives its answer.
async fn answer(server: &Server, provider: &Provider, claims: &Value, scope: &str) -> String {
    provider.set_claims(claims).await;
    answer_in(&mut Browser::new(server), server, provider, scope, &[]).await
}

/// Sends an authorization request, and returns the address to which the browser is redirected.
async fn authorize(browser: &mut Browser<'_>, server: &Server, scope: &str, more: &[(&str, &str)]) -> String {
    let query = form_urlencoded::Serializer::new(String::new())
        .extend_pairs([
            ("response_type", "code"),
            ("client_id", "app"),
            ("redirect_uri", APP),
            ("scope", scope),
            ("code_challenge", CHALLENGE),
            ("code_challenge_method", "S256"),
            ("aud", &server.fhir()),
        ])
        .extend_pairs(more)
        .finish();
    location(&browser.get(&format!("{}/oauth2/authorize?{query}", server.base())).await)
}

/// Signs in with this browser and further parameters of the request.
async fn answer_in(
    browser: &mut Browser<'_>,
    server: &Server,
    provider: &Provider,
    scope: &str,
    more: &[(&str, &str)],
) -> String {
    let more = [&[("identity_provider", "Hospital")][..], more].concat();
    let to = authorize(browser, server, scope, &more).await;
    if to.starts_with(APP) {
        return to;
    }
    let callback = provider.authorize(&to).await;
    let mut at = location(&browser.get(&callback).await);
    for _ in 0..4 {
        if at.starts_with(APP) {
            break;
        }
        at = if at.contains("/consent?") {
            submit(browser, &at, &[("answer", "allow")]).await
        } else {
            location(&browser.get(&at).await)
        };
    }
    at
}

/// Signs in with these claims, and returns the answer of the token endpoint.
async fn sign_in(server: &Server, provider: &Provider, claims: &Value, scope: &str) -> Value {
    let at = answer(server, provider, claims, scope).await;
    redeem(server, &at).await
}

/// The answer of the token endpoint for the code that the app has received.
async fn redeem(server: &Server, at: &str) -> Value {
    let code = answer_parameter(at, "code").unwrap_or_else(|| panic!("no code in {at}: {}", server.log()));
    let form = [
        ("grant_type", "authorization_code"),
        ("client_id", "app"),
        ("redirect_uri", APP),
        ("code", &code),
        ("code_verifier", VERIFIER),
    ];
    let response = server.client().post(format!("{}/oauth2/token", server.base())).form(&form).send().await;
    response.unwrap().json().await.unwrap()
}

async fn status(server: &Server, tokens: &Value, path: &str) -> u16 {
    let token = tokens["access_token"].as_str().unwrap();
    let request = server.client().get(format!("{}/{path}", server.fhir())).bearer_auth(token);
    request.send().await.unwrap().status().as_u16()
}

async fn userinfo(server: &Server, tokens: &Value) -> Value {
    let token = tokens["access_token"].as_str().unwrap();
    let request = server.client().get(format!("{}/oauth2/userinfo", server.base())).bearer_auth(token);
    request.send().await.unwrap().json().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_of_the_userinfo_endpoint_give_rights() {
    let Some((server, provider)) = hospital(ClaimsIn::Userinfo).await else { return };
    let claims = json!({ "name": "Ann Example", "roles": ["clinician"], "fhirUser": "Practitioner/ann" });
    let tokens = sign_in(&server, &provider, &claims, "openid profile fhirUser user/*.rs").await;
    assert_eq!(tokens["scope"], "openid profile fhirUser user/*.rs", "{tokens}");
    assert_eq!(userinfo(&server, &tokens).await["name"], "Ann Example");
    // The role was lost.
    let tokens = sign_in(&server, &provider, &json!({ "name": "Ann Example" }), "openid user/*.rs").await;
    assert_eq!(tokens["scope"], "openid", "{tokens}");
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_give_rights_until_they_are_lost() {
    let Some((server, provider)) = hospital(ClaimsIn::IdToken).await else { return };
    let all = "openid profile fhirUser offline_access user/*.rs";

    // Entra: ids of groups, an app role, and the resource of the user.
    let entra = json!({
        "name": "Ann Example", "groups": ["5f0c7d2e-ward-3", "other"], "roles": ["clinician"],
        "fhirUser": "Practitioner/ann",
    });
    let tokens = sign_in(&server, &provider, &entra, all).await;
    assert_eq!(tokens["scope"], all, "{tokens}");
    let info = userinfo(&server, &tokens).await;
    assert_eq!(
        (&info["name"], &info["fhirUser"]),
        (&json!("Ann Example"), &json!(format!("{}/Practitioner/ann", server.fhir())))
    );
    assert_eq!(status(&server, &tokens, "Patient/elsewhere").await, 200);
    let refresh = tokens["refresh_token"].as_str().unwrap().to_owned();

    // The role is lost at the next sign-in: so are the scopes that it gave, in tokens of before too. The
    // group gives its patients.
    let ward =
        json!({ "name": "Ann Renamed", "groups": ["5f0c7d2e-ward-3"], "fhirUser": "Practitioner/missing" });
    let later =
        sign_in(&server, &provider, &ward, "openid profile fhirUser launch/patient patient/*.rs").await;
    assert_eq!(
        (&later["patient"], &later["scope"]),
        (&json!("in-ward"), &json!("openid profile launch/patient patient/*.rs"))
    );
    assert_eq!(userinfo(&server, &later).await["name"], "Ann Renamed");
    assert_eq!(status(&server, &later, "Patient/in-ward").await, 200);
    assert_eq!(
        status(&server, &tokens, "Patient/elsewhere").await,
        404,
        "the token of before lost its access"
    );
    let log = server.log();
    assert!(log.contains("Practitioner/missing") && log.contains("does not exist here"), "{log}");

    // Keycloak: a nested claim.
    let keycloak = json!({ "realm_access": { "roles": ["researcher", "offline_access"] } });
    let later = sign_in(&server, &provider, &keycloak, "openid user/Observation.rs").await;
    assert_eq!(later["scope"], "openid user/Observation.rs");
    assert_eq!(status(&server, &later, "Observation").await, 200);
    // Without role and group, the tokens of before have no scope for patients, nor do their successors.
    assert_eq!(status(&server, &tokens, "Patient/in-ward").await, 403);
    let form = [("grant_type", "refresh_token"), ("client_id", "app"), ("refresh_token", &refresh)];
    let response = server.client().post(format!("{}/oauth2/token", server.base())).form(&form);
    let refreshed: Value = response.send().await.unwrap().json().await.unwrap();
    assert!(!refreshed["scope"].as_str().unwrap_or_default().contains("user/"), "{refreshed}");

    // Entra with a link in place of the groups: none of their rights, and a line in the log.
    let overage = json!({
        "_claim_names": { "groups": "src1" },
        "_claim_sources": { "src1": { "endpoint": "https://graph.example/users/ann/getMemberObjects" } },
    });
    let tokens = sign_in(&server, &provider, &overage, "openid profile").await;
    assert_eq!(tokens["scope"], "openid profile");
    let log = server.log();
    assert!(log.contains("sent a link in place of this claim"), "{log}");

    // Members that an administrator sets by hand stay, and are marked.
    let list = String::from_utf8(server.trefoil(&["user", "list"]).stdout).unwrap();
    let name = list.lines().find(|line| line.contains("Ann Renamed")).unwrap();
    let name = name.split_whitespace().next().unwrap();
    let by_hand = ["user", "change", name, "--allowed-scopes", "openid user/Patient.rs", "--name", "By Hand"];
    assert!(server.trefoil(&by_hand).status.success());
    let tokens = sign_in(&server, &provider, &entra, "openid profile user/Patient.rs").await;
    assert_eq!(tokens["scope"], "openid user/Patient.rs");
    let user = String::from_utf8(server.trefoil(&["user", "show", name]).stdout).unwrap();
    assert!(
        user.contains("By Hand") && user.contains("set by hand") && user.contains("allowed_scopes name"),
        "{user}"
    );
}

/// Runs a command of an administrator.
fn run(server: &Server, args: &[&str]) -> String {
    let output = server.trefoil(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_never_comes_back_as_a_second_user() {
    let Some((server, provider)) = hospital(ClaimsIn::IdToken).await else { return };
    let claims = json!({ "name": "Ann Example", "roles": ["clinician"] });
    let users = || -> Vec<Value> {
        let list = run(&server, &["user", "list", "--json"]);
        list.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let signed_in = async || {
        let tokens = sign_in(&server, &provider, &claims, "openid user/*.rs").await;
        userinfo(&server, &tokens).await["sub"].as_str().unwrap().to_owned()
    };
    let is_refused = async || {
        let at = answer(&server, &provider, &claims, "openid").await;
        assert_eq!(answer_parameter(&at, "error").as_deref(), Some("access_denied"), "{at}");
    };
    let sub = signed_in().await;
    let all = users();
    let name = all.iter().find(|user| user["sub"] == sub.as_str()).unwrap()["username"].as_str().unwrap();

    // The help desk sets a password: the account of the hospital stays that of the user.
    let password = "three green umbrellas in the rain";
    assert!(server.with_password(&["user", "set-password", name], password).status.success());
    assert_eq!(signed_in().await, sub);
    // An administrator closes the account, one command after the other.
    run(&server, &["user", "disable", name]);
    is_refused().await;
    run(&server, &["user", "remove-methods", name, "--all", "--yes"]);
    is_refused().await;
    let status = run(&server, &["status"]);
    assert!(status.contains("Ann Example") && status.contains(name), "{status}");
    run(&server, &["user", "enable", name]);
    is_refused().await;
    assert_eq!(users().len(), all.len());

    // After the user was deleted, only an administrator lets the person in again.
    run(&server, &["user", "delete", name, "--yes"]);
    is_refused().await;
    run(&server, &["user", "delete", &sub, "--forget", "--yes"]);
    let later = signed_in().await;
    assert_ne!(later, sub);
    assert_eq!(users().len(), all.len());
}

fn auth_time(tokens: &Value) -> Option<i64> {
    let claims = tokens["id_token"].as_str().unwrap().split('.').nth(1).unwrap();
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
    claims["auth_time"].as_i64()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authentication_of_unknown_time_is_never_recent() {
    // The provider sends `auth_time` only after `max_age`.
    let Some((server, provider)) = hospital(ClaimsIn::IdToken).await else { return };
    provider.set_claims(&json!({ "name": "Ann Example" })).await;
    let mut browser = Browser::new(&server);
    let at = answer_in(&mut browser, &server, &provider, "openid", &[]).await;
    let tokens = redeem(&server, &at).await;
    assert_eq!(auth_time(&tokens), None);
    let silent = [("prompt", "none"), ("max_age", "3600")];
    let at = answer_in(&mut browser, &server, &provider, "openid", &silent).await;
    assert_eq!(answer_parameter(&at, "error").as_deref(), Some("login_required"), "{at}");

    // The console and changes on the account page need a recent authentication, for which they ask the
    // provider.
    let sub = userinfo(&server, &tokens).await["sub"].as_str().unwrap().to_owned();
    let users = run(&server, &["user", "list", "--json"]);
    let user = users.lines().find(|line| line.contains(&sub)).unwrap();
    let user: Value = serde_json::from_str(user).unwrap();
    run(&server, &["user", "change", user["username"].as_str().unwrap(), "--administrator"]);
    // Another right ended the session.
    answer_in(&mut browser, &server, &provider, "openid", &[]).await;
    let console = format!("{}/console", server.base());
    let refusal = browser.get(&console).await;
    assert_eq!(refusal.status(), 403);
    assert!(refusal.text().await.unwrap().contains("recent sign-in"));
    let begin = format!("{}/sign-in/with/Hospital?continue=console%3Dyes", server.base());
    let to = location(&browser.get(&begin).await);
    assert!(to.contains("prompt=login"), "{to}");
    let callback = provider.authorize(&to).await;
    assert_eq!(location(&browser.get(&callback).await), console);
    assert_eq!(browser.get(&console).await.status(), 200);

    // The same counts for an app that asks for it.
    let start = jiff::Timestamp::now().as_second();
    let at =
        answer_in(&mut Browser::new(&server), &server, &provider, "openid", &[("prompt", "login")]).await;
    let time = auth_time(&redeem(&server, &at).await).unwrap();
    assert!((start - 1..=jiff::Timestamp::now().as_second()).contains(&time), "{start} {time}");
}

/// Signs in with a password of this server, and returns the answer of the token endpoint.
async fn sign_in_here(server: &Server, name: &str, password: &str, scope: &str) -> Value {
    let mut browser = Browser::new(server);
    let page = authorize(&mut browser, server, scope, &[]).await;
    let mut at = submit(&mut browser, &page, &[("username", name), ("password", password)]).await;
    while !at.starts_with(APP) {
        at = if at.contains("/consent?") {
            submit(&mut browser, &at, &[("answer", "allow")]).await
        } else {
            location(&browser.get(&at).await)
        };
    }
    redeem(server, &at).await
}

/// Status and content of the answer to a password on the sign-in page.
async fn password_page(server: &Server, name: &str, password: &str) -> (u16, String) {
    let mut browser = Browser::new(server);
    let page = format!("{}/sign-in", server.base());
    let text = browser.get(&page).await.text().await.unwrap();
    let of_page = text.split("<form ").skip(1).find(|form| form.starts_with("method=\"post\"")).unwrap();
    let mut form = hidden_fields(of_page);
    form.extend([("username".to_owned(), name.to_owned()), ("password".to_owned(), password.to_owned())]);
    let response = browser.send(browser.client.post(&page).form(&form)).await;
    (response.status().as_u16(), response.text().await.unwrap())
}

/// Checks that the account page of a user without own sign-in methods offers none, and accepts none.
async fn check_account_without_own_methods(server: &Server, provider: &Provider, claims: &Value) {
    let mut browser = Browser::new(server);
    provider.set_claims(claims).await;
    let begin = format!("{}/sign-in/with/Hospital", server.base());
    let to = location(&browser.get(&begin).await);
    let callback = provider.authorize(&to).await;
    let account = location(&browser.get(&callback).await);
    let page = browser.get(&account).await.text().await.unwrap();
    assert!(page.contains("You sign in with Hospital.") && !page.contains("New password"), "{page}");
    assert!(!page.contains("action=\"/account/passkeys\"") && !page.contains("recovery-codes"), "{page}");
    let token = hidden_fields(&page).into_iter().find(|(name, _)| name == "csrf").unwrap();
    for (path, field) in [
        ("password", ("new", "four yellow boats under a bridge")),
        ("passkeys/options", ("", "")),
        ("passkeys", ("name", "phone")),
        ("passkeys/ask", ("ask", "yes")),
        ("recovery-codes", ("", "")),
    ] {
        let form = [(token.0.as_str(), token.1.as_str()), field];
        let url = format!("{}/account/{path}", server.base());
        let response = browser.send(browser.client.post(&url).form(&form)).await;
        let status = response.status();
        let text = response.text().await.unwrap();
        assert!(status == 403 && text.contains("You sign in with Hospital."), "{path}: {status} {text}");
    }
}

async fn refresh(server: &Server, token: &Value) -> Value {
    let token = token["refresh_token"].as_str().unwrap();
    let form = [("grant_type", "refresh_token"), ("client_id", "app"), ("refresh_token", token)];
    let response = server.client().post(format!("{}/oauth2/token", server.base())).form(&form);
    response.send().await.unwrap().json().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_of_a_mapping_end_with_what_gave_them() {
    let Some((server, provider)) = hospital(ClaimsIn::IdToken).await else { return };
    let claims = json!({ "name": "Ann Example", "roles": ["clinician"] });
    let scope = "openid offline_access user/*.rs";
    let tokens = sign_in(&server, &provider, &claims, scope).await;
    assert_eq!(tokens["scope"], scope, "{tokens}");
    let sub = userinfo(&server, &tokens).await["sub"].as_str().unwrap().to_owned();
    let users = run(&server, &["user", "list", "--json"]);
    let user: Value = serde_json::from_str(users.lines().find(|line| line.contains(&sub)).unwrap()).unwrap();
    let name = user["username"].as_str().unwrap();
    let user = run(&server, &["user", "show", name]);
    assert!(user.contains("roles=clinician") && user.contains(&provider.issuer), "{user}");

    // An own password brings none of the rights of the hospital.
    let password = "three green umbrellas in the rain";
    assert!(server.with_password(&["user", "set-password", name], password).status.success());
    let here = sign_in_here(&server, name, password, scope).await;
    assert_eq!(here["scope"], "openid offline_access", "{here}");

    // The hospital may be the only way to sign in.
    let settings = server.data().join("trefoil.toml");
    let all = std::fs::read_to_string(&settings).unwrap();
    let reload = |text: &str| {
        std::fs::write(&settings, text).unwrap();
        run(&server, &["reload"]);
    };
    reload(&all.replace("create_users = true", "create_users = true\nown_methods = false"));
    let (status_of_page, page) = password_page(&server, name, password).await;
    assert!(status_of_page == 403 && page.contains("Sign in with Hospital"), "{status_of_page} {page}");
    check_account_without_own_methods(&server, &provider, &claims).await;
    reload(&all);
    assert_eq!(password_page(&server, name, password).await.0, 303);

    // A reload without the mapping, and one without the provider, count at once.
    let tokens = sign_in(&server, &provider, &claims, scope).await;
    assert_eq!(status(&server, &tokens, "Patient/elsewhere").await, 200);
    reload(&all.replace("\"clinician\"", "\"surgeon\""));
    assert_eq!(status(&server, &tokens, "Patient/elsewhere").await, 403);
    let refreshed = refresh(&server, &tokens).await;
    assert_eq!(refreshed["scope"], "openid offline_access", "{refreshed}");
    reload(&all);
    let refreshed = refresh(&server, &refreshed).await;
    assert_eq!(refreshed["scope"], scope, "{refreshed}");
    reload("");
    assert_eq!(status(&server, &refreshed, "Patient/elsewhere").await, 403);
    assert_eq!(refresh(&server, &refreshed).await["error"], "invalid_grant");
    let here = refresh(&server, &here).await;
    assert_eq!(here["scope"], "openid offline_access", "{here}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_node_counts_rights_by_its_own_configuration() {
    let Some(database) = TestDatabase::shared().filter(|_| have_provider()) else { return };
    let database = database.create().unwrap();
    let [first, second] = [Server::in_fresh_folder(), Server::in_fresh_folder()];
    let base = first.base().replace("https:", "http:");
    let provider = Provider::start(&redirect_uri(&base), ClaimsIn::IdToken);
    let nodes = [first, second].map(|node| {
        let settings = settings_of(&node, &provider);
        let mut node = node.sharing(&base, &database).with_settings(&settings);
        node.start();
        (node, settings)
    });
    let [(first, _), (second, settings)] = &nodes;
    fill(first);
    let claims = json!({ "name": "Ann Example", "roles": ["clinician"] });
    let scope = "openid offline_access user/*.rs";
    let tokens = sign_in(first, &provider, &claims, scope).await;
    let read = async |tokens: &Value| {
        [status(first, tokens, "Patient/elsewhere").await, status(second, tokens, "Patient/elsewhere").await]
    };
    let reload = |text: &str| {
        std::fs::write(second.data().join("trefoil.toml"), text).unwrap();
        run(second, &["reload"]);
    };
    assert_eq!(read(&tokens).await, [200, 200]);
    reload("");
    assert_eq!(read(&tokens).await, [200, 403]);
    assert_eq!(refresh(second, &tokens).await["error"], "invalid_grant");
    let refreshed = refresh(first, &tokens).await;
    assert_eq!(refreshed["scope"], scope, "{refreshed}");
    reload(&settings.replace("\"clinician\"", "\"surgeon\""));
    assert_eq!(read(&refreshed).await, [200, 403]);
    reload(settings);
    assert_eq!(read(&refreshed).await, [200, 200]);
}
