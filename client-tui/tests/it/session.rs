//! The session of the user against mock servers: device sign-in, renewal of tokens, the token file, and
//! sign-out.

use std::path::{Path, PathBuf};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use serde_json::{Value, json};
use trefoil_tui::api::{Api, ApiError, Bearer, Introspection, Revocation, TokenKind, ValidateCode};
use trefoil_tui::journey::{self, Patience, Step};
use trefoil_tui::profile::Profile;
use trefoil_tui::profile::{BackendProfile, ClientCredential};
use wiremock::matchers::{body_string_contains, header, method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::{CLOCK, now, profile};

/// Starts a server with a discovery document.
async fn server() -> MockServer {
    let server = MockServer::start().await;
    let at = |path: &str| format!("{}{path}", server.uri());
    let configuration = json!({
        "issuer": server.uri(),
        "authorization_endpoint": at("/authorize"),
        "token_endpoint": at("/token"),
        "userinfo_endpoint": at("/userinfo"),
        "revocation_endpoint": at("/revoke"),
        "device_authorization_endpoint": at("/device"),
        "end_session_endpoint": at("/logout"),
    });
    Mock::given(path("/.well-known/openid-configuration"))
        .respond_with(ResponseTemplate::new(200).set_body_json(configuration))
        .mount(&server)
        .await;
    let nobody = "http://localhost/callback?error=login_required";
    Mock::given(path("/authorize"))
        .respond_with(ResponseTemplate::new(302).insert_header("location", nobody))
        .mount(&server)
        .await;
    let prompt = json!({
        "device_code": "d1", "user_code": "WDJB-MJHT", "verification_uri": at("/go"),
        "verification_uri_complete": at("/go?code=WDJB-MJHT"), "expires_in": 600, "interval": 5,
    });
    Mock::given(path("/device"))
        .respond_with(ResponseTemplate::new(200).set_body_json(prompt))
        .mount(&server)
        .await;
    server
}

fn id_token(server: &MockServer) -> String {
    let claims = json!({ "iss": server.uri(), "aud": "native", "exp": now().as_second() + 300, "sub": "s1" });
    format!("e30.{}.sig", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

/// Returns a response of the token endpoint.
fn tokens(server: &MockServer, access: &str, refresh: &str, expires_in: u32) -> Value {
    json!({
        "access_token": access, "token_type": "Bearer", "expires_in": expires_in,
        "refresh_token": refresh, "scope": "openid", "id_token": id_token(server),
    })
}

/// Answers requests to the token endpoint that contain a text, up to `times`.
async fn answer_token(server: &MockServer, contains: &str, response: ResponseTemplate, times: u64) {
    Mock::given(path("/token"))
        .and(body_string_contains(contains))
        .respond_with(response)
        .up_to_n_times(times)
        .expect(times)
        .mount(server)
        .await;
}

fn api(server: &MockServer, token_file: Option<PathBuf>) -> Api {
    trefoil_tui::install_crypto();
    let profile = Profile { token_file, ..profile(&server.uri()) };
    Api::new(profile, CLOCK, Box::new(drop)).unwrap()
}

/// Signs in on a device with the demo tokens.
async fn sign_in(server: &MockServer, api: &Api, response: Value) {
    answer_token(server, "device_code=d1", ResponseTemplate::new(200).set_body_json(response), 1).await;
    let pending = api.begin_device_sign_in("openid user/Secret.rs").await.unwrap();
    api.finish_device_sign_in(&pending).await.unwrap();
}

/// Answers requests for userinfo with this token, and expects this number of them.
async fn expect_userinfo(server: &MockServer, token: &str, times: u64) {
    Mock::given(path("/userinfo"))
        .and(header("authorization", format!("Bearer {token}").as_str()))
        .respond_with(ResponseTemplate::new(200).set_body_json(json!({ "sub": "s1" })))
        .expect(times)
        .mount(server)
        .await;
}

/// Sends a request as the user to an endpoint that accepts only this token.
async fn request_with(server: &MockServer, api: &Api, token: &str) {
    Mock::given(path("/userinfo"))
        .and(header("authorization", format!("Bearer {token}").as_str()))
        .respond_with(ResponseTemplate::new(200).set_body_json(json!({ "sub": "s1" })))
        .expect(1)
        .mount(server)
        .await;
    api.userinfo(&Bearer::User).await.unwrap();
}

/// A client that the server does not know is reported before the browser opens.
#[tokio::test]
async fn a_sign_in_that_cannot_succeed_opens_no_browser() {
    for (answer, expected) in [
        (
            ResponseTemplate::new(400).set_body_string("<h1>Unknown client</h1>"),
            "400 Bad Request \"Unknown client\"",
        ),
        (
            ResponseTemplate::new(302).insert_header(
                "location",
                "http://localhost/callback?error=invalid_scope&error_description=x",
            ),
            "invalid_scope (x)",
        ),
    ] {
        let server = MockServer::start().await;
        let at = |path: &str| format!("{}{path}", server.uri());
        let configuration = json!({
            "issuer": server.uri(), "authorization_endpoint": at("/authorize"), "token_endpoint": at("/token"),
        });
        Mock::given(path("/.well-known/openid-configuration"))
            .respond_with(ResponseTemplate::new(200).set_body_json(configuration))
            .mount(&server)
            .await;
        Mock::given(path("/authorize")).respond_with(answer).expect(1).mount(&server).await;
        let api = api(&server, None);
        let (_paste, pasted) = tokio::sync::mpsc::channel(1);
        let tell = |step| panic!("{step:?}");
        let error = journey::sign_in(&api, "openid", Patience::ENDLESS, pasted, tell).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        let requests = server.received_requests().await.unwrap();
        let trial = requests.iter().find(|request| request.url.path() == "/authorize").unwrap();
        let has = |name: &str| trial.url.query_pairs().any(|(key, _)| key == name);
        assert!(has("prompt") && has("state") && has("nonce") && has("code_challenge"), "{}", trial.url);
        assert!(!has("request_uri") && !trial.headers.contains_key("cookie"));
    }
}

/// An answer does not fill the memory.
#[tokio::test]
async fn a_very_long_answer_is_refused() {
    let server = server().await;
    let long = ResponseTemplate::new(200).set_body_string(" ".repeat((64 << 20) + 1));
    Mock::given(path("/userinfo")).respond_with(long).mount(&server).await;
    let error = api(&server, None).userinfo(&Bearer::Anonymous).await.unwrap_err();
    assert!(error.to_string().contains("more than 64 MiB"), "{error}");
}

/// RFC 8414 and SMART App Launch describe servers without OpenID Connect.
#[tokio::test]
async fn a_server_without_openid_connect_is_found() {
    for document in ["/.well-known/oauth-authorization-server", "/fhir/R4/.well-known/smart-configuration"] {
        let server = MockServer::start().await;
        let at = |path: &str| format!("{}{path}", server.uri());
        let metadata = json!({
            "issuer": server.uri(), "authorization_endpoint": at("/authorize"), "token_endpoint": at("/token"),
        });
        Mock::given(path(document))
            .respond_with(ResponseTemplate::new(200).set_body_json(metadata))
            .mount(&server)
            .await;
        let api = api(&server, None);
        let pending = api.begin_sign_in("http://localhost:1/callback", "openid").await.unwrap();
        assert!(pending.url.as_str().starts_with(&at("/authorize?")), "{}", pending.url);
        // The audience of SMART App Launch is the server of the resources.
        let audience = pending.url.query_pairs().find(|(name, _)| name == "aud").map(|(_, value)| value);
        let expected = document.contains("smart").then(|| at("/fhir/R4"));
        assert_eq!(audience.as_deref(), expected.as_deref());
        let missing = api.userinfo(&Bearer::Anonymous).await.unwrap_err();
        assert!(missing.to_string().contains("no userinfo endpoint"), "{missing}");
    }
}

/// A browser shows the result of the exchange, and not only that a code has arrived.
#[tokio::test]
async fn the_page_in_the_browser_follows_the_exchange() {
    for (status, body, title, text) in [
        (200, None, "You are signed in", "close this window"),
        (400, Some("invalid_grant"), "The sign-in did not succeed", "&lt;b&gt;used&lt;/b&gt;"),
        (400, Some("invalid_client"), "The sign-in did not succeed", "check the profile"),
    ] {
        let server = server().await;
        let api = api(&server, None);
        let (url, mut pages) = tokio::sync::mpsc::unbounded_channel();
        let tell = move |step| {
            let Step::GoTo { url: address, .. } = step else { return };
            url.send(address).unwrap();
        };
        let (_paste, pasted) = tokio::sync::mpsc::channel(1);
        let signing_in = journey::sign_in(&api, "openid", Patience::ENDLESS, pasted, tell);
        let browse = async {
            let address = url::Url::parse(&pages.recv().await.unwrap()).unwrap();
            let find =
                |name: &str| address.query_pairs().find(|(key, _)| key == name).unwrap().1.into_owned();
            let nonce = find("nonce");
            let claims = json!({
                "iss": server.uri(), "aud": "native", "exp": now().as_second() + 300, "sub": "s1", "nonce": nonce,
            });
            let id_token = format!("e30.{}.sig", URL_SAFE_NO_PAD.encode(claims.to_string()));
            let response = match body {
                Some(error) => json!({ "error": error, "error_description": "<b>used</b>" }),
                None => json!({ "access_token": "a1", "token_type": "Bearer", "id_token": id_token }),
            };
            answer_token(&server, "code=c1", ResponseTemplate::new(status).set_body_json(response), 1).await;
            let redirect = format!("{}?code=c1&state={}", find("redirect_uri"), find("state"));
            reqwest::get(redirect).await.unwrap().text().await.unwrap()
        };
        let (signed_in, page) = tokio::join!(signing_in, browse);
        assert_eq!(signed_in.is_ok(), status == 200, "{signed_in:?}");
        assert!(page.contains(title) && page.contains(text), "{page}");
    }
}

#[tokio::test]
async fn a_user_signs_in_on_another_device() {
    let server = server().await;
    let api = api(&server, None);
    let pending = |code: &str| ResponseTemplate::new(400).set_body_json(json!({ "error": code }));
    answer_token(&server, "device_code=d1", pending("authorization_pending"), 2).await;
    answer_token(&server, "device_code=d1", pending("slow_down"), 1).await;
    let response = ResponseTemplate::new(200).set_body_json(tokens(&server, "a1", "r1", 3600));
    answer_token(&server, "device_code=d1", response, 1).await;
    let pending = api.begin_device_sign_in("openid user/Secret.rs").await.unwrap();
    assert_eq!(pending.prompt.user_code, "WDJB-MJHT");
    assert_eq!(pending.prompt.expires_at.as_second() - now().as_second(), 600);
    let session = api.finish_device_sign_in(&pending).await.unwrap().session;
    assert_eq!((session.subject.as_deref(), session.renewable), (Some("s1"), true));
    assert_eq!(session.refused_scopes(), ["user/Secret.rs"]);
    request_with(&server, &api, "a1").await;
}

#[tokio::test]
async fn a_denied_sign_in_says_what_to_do() {
    for (code, says) in [("access_denied", "denied the sign-in"), ("expired_token", "start again")] {
        let server = server().await;
        let api = api(&server, None);
        let response = ResponseTemplate::new(400).set_body_json(json!({ "error": code }));
        answer_token(&server, "device_code=d1", response, 1).await;
        let pending = api.begin_device_sign_in("openid").await.unwrap();
        let error = api.finish_device_sign_in(&pending).await.unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[tokio::test]
async fn concurrent_requests_renew_the_token_once() {
    let server = server().await;
    let api = api(&server, None);
    // The token expires within the time at which it is renewed.
    sign_in(&server, &api, tokens(&server, "a1", "r1", 10)).await;
    let renewed =
        json!({ "access_token": "a2", "token_type": "Bearer", "expires_in": 3600, "refresh_token": "r2" });
    answer_token(&server, "refresh_token=r1", ResponseTemplate::new(200).set_body_json(renewed), 1).await;
    expect_userinfo(&server, "a2", 2).await;
    let (one, two) = tokio::join!(api.userinfo(&Bearer::User), api.userinfo(&Bearer::User));
    assert!(one.is_ok() && two.is_ok(), "{one:?} {two:?}");
    let session = api.session().await.unwrap();
    assert_eq!(session.subject.as_deref(), Some("s1"), "the response had no ID token");
    assert_eq!(session.expires_at.as_second() - now().as_second(), 3600);
}

#[tokio::test]
async fn an_ended_session_asks_for_a_new_sign_in() {
    let server = server().await;
    let api = api(&server, None);
    sign_in(&server, &api, tokens(&server, "a1", "r1", 10)).await;
    let refusal = ResponseTemplate::new(400).set_body_json(json!({ "error": "invalid_grant" }));
    answer_token(&server, "refresh_token=r1", refusal, 1).await;
    let error = api.userinfo(&Bearer::User).await.unwrap_err();
    assert!(error.to_string().contains("sign in again"), "{error}");
}

#[cfg(unix)]
fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[cfg(unix)]
#[tokio::test]
async fn a_later_process_continues_the_session() {
    let server = server().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens/t.json");
    sign_in(&server, &api(&server, Some(file.clone())), tokens(&server, "a1", "r1", 10)).await;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    let later = api(&server, Some(file.clone()));
    assert_eq!(later.restore_session().await.unwrap().subject.as_deref(), Some("s1"));
    // The refresh token is used once: the file must contain its successor afterwards.
    let response = ResponseTemplate::new(200).set_body_json(tokens(&server, "a2", "r2", 3600));
    answer_token(&server, "refresh_token=r1", response, 1).await;
    request_with(&server, &later, "a2").await;
    assert!(std::fs::read_to_string(&file).unwrap().contains("\"r2\""));
    let error = ResponseTemplate::new(200);
    Mock::given(path("/revoke")).respond_with(error).expect(2).mount(&server).await;
    let signed_out = later.sign_out().await.unwrap();
    assert_eq!(signed_out.revocation, Revocation::Revoked);
    let end_session = signed_out.end_session.unwrap();
    assert_eq!(end_session, format!("{}/logout?client_id=native", server.uri()), "it has no token");
    assert!(!file.exists());
    assert!(matches!(later.userinfo(&Bearer::User).await, Err(ApiError::NotSignedIn)));
}

#[tokio::test]
async fn a_sign_out_without_the_server_ends_the_session_and_is_completed_later() {
    let server = server().await;
    let folder = tempfile::tempdir().unwrap();
    let (file, pending) = (folder.path().join("t.json"), folder.path().join("t.revoke"));
    let signed_in = async || {
        let api = api(&server, Some(file.clone()));
        sign_in(&server, &api, tokens(&server, "a1", "r1", 3600)).await;
        api
    };
    let away = ResponseTemplate::new(503);
    let away = Mock::given(path("/revoke")).respond_with(away).mount_as_scoped(&server).await;
    let signed_out = signed_in().await.sign_out().await.unwrap();
    assert!(matches!(signed_out.revocation, Revocation::Pending(_)), "{signed_out:?}");
    assert_eq!(std::fs::read_to_string(&pending).unwrap(), r#"["r1"]"#, "neither access nor ID token");
    assert!(!file.exists());

    let later = api(&server, Some(file.clone()));
    assert_eq!(later.restore_session().await, None, "it is not used to sign in");
    later.revoke_pending().await.unwrap_err();
    assert!(pending.exists());
    drop(away);
    let revoked = Mock::given(path("/revoke")).and(body_string_contains("token=r1&"));
    let revoked = revoked.respond_with(ResponseTemplate::new(200)).expect(1).mount_as_scoped(&server).await;
    assert_eq!(later.revoke_pending().await.unwrap().unwrap().revocation, Revocation::Revoked);
    assert!(!pending.exists());
    assert_eq!(later.revoke_pending().await.unwrap(), None);
    drop(revoked);

    let again = signed_in().await;
    let away = ResponseTemplate::new(503);
    Mock::given(path("/revoke")).respond_with(away).mount(&server).await;
    again.sign_out().await.unwrap();
    assert!(again.forget_pending().unwrap() && !pending.exists());
    assert!(!again.forget_pending().unwrap());
}

#[tokio::test]
async fn tokens_that_cannot_be_stored_are_kept_in_memory() {
    let server = server().await;
    let folder = tempfile::tempdir().unwrap();
    // No file can be created below a file, as on a full disk.
    std::fs::write(folder.path().join("full"), "").unwrap();
    let api = api(&server, Some(folder.path().join("full/t.json")));
    sign_in(&server, &api, tokens(&server, "a1", "r1", 10)).await;
    assert!(api.session().await.unwrap().not_stored.is_some());
    let response = ResponseTemplate::new(200).set_body_json(tokens(&server, "a2", "r2", 3600));
    answer_token(&server, "refresh_token=r1", response, 1).await;
    request_with(&server, &api, "a2").await;
    Mock::given(path("/revoke")).respond_with(ResponseTemplate::new(200)).expect(2).mount(&server).await;
    assert_eq!(api.sign_out().await.unwrap().revocation, Revocation::Revoked);
}

#[tokio::test]
async fn confidential_clients_authenticate() {
    let server = server().await;
    trefoil_tui::install_crypto();
    let with = |credential: ClientCredential| {
        let profile = Profile { client_credential: Some(credential), ..profile(&server.uri()) };
        Api::new(profile, CLOCK, Box::new(drop)).unwrap()
    };
    let basic = with(ClientCredential::Secret("s3cret".to_owned()));
    // native:s3cret
    Mock::given(path("/token"))
        .and(header("authorization", "Basic bmF0aXZlOnMzY3JldA=="))
        .respond_with(ResponseTemplate::new(200).set_body_json(tokens(&server, "a1", "r1", 3600)))
        .expect(1)
        .up_to_n_times(1)
        .mount(&server)
        .await;
    let pending = basic.begin_device_sign_in("openid").await.unwrap();
    basic.finish_device_sign_in(&pending).await.unwrap();
    let signed = with(profile(&server.uri()).backend.unwrap().credential);
    let pending = ResponseTemplate::new(400).set_body_json(json!({ "error": "authorization_pending" }));
    answer_token(&server, "client_assertion=ey", pending, 2).await;
    answer_token(
        &server,
        "client_assertion=ey",
        ResponseTemplate::new(200).set_body_json(tokens(&server, "a1", "r1", 9)),
        1,
    )
    .await;
    let pending = signed.begin_device_sign_in("openid").await.unwrap();
    signed.finish_device_sign_in(&pending).await.unwrap();
    Mock::given(path("/revoke")).respond_with(ResponseTemplate::new(200)).mount(&server).await;
    signed.sign_out().await.unwrap();
    // A server accepts an assertion only once.
    let requests = server.received_requests().await.unwrap();
    let bodies = requests.iter().map(|request| String::from_utf8_lossy(&request.body).into_owned());
    let assertions: Vec<_> = bodies
        .filter_map(|body| Some(body.split("client_assertion=").nth(1)?.split('&').next()?.to_owned()))
        .collect();
    let different: std::collections::BTreeSet<_> = assertions.iter().collect();
    let count = (assertions.len(), different.len());
    assert_eq!(count, (6, 6), "one for the code, three for the polls, two for the revocations");
    for assertion in &assertions {
        let claims = URL_SAFE_NO_PAD.decode(assertion.split('.').nth(1).unwrap()).unwrap();
        let claims: Value = serde_json::from_slice(&claims).unwrap();
        assert_eq!(claims["aud"], format!("{}/token", server.uri()));
    }
}

#[tokio::test]
async fn a_backend_client_may_have_a_secret() {
    let server = server().await;
    trefoil_tui::install_crypto();
    let token =
        json!({ "access_token": "b1", "token_type": "Bearer", "expires_in": 300, "scope": "system/*.read" });
    Mock::given(path("/token"))
        // backend:s3 cret, encoded as in a form
        .and(header("authorization", "Basic YmFja2VuZDpzMytjcmV0"))
        .and(body_string_contains("grant_type=client_credentials"))
        .respond_with(ResponseTemplate::new(200).set_body_json(token))
        .expect(1)
        .mount(&server)
        .await;
    let with = |secret: &str| {
        let credential = ClientCredential::Secret(secret.to_owned());
        let backend = Some(BackendProfile { client_id: "backend".to_owned(), credential });
        Api::new(Profile { backend, ..profile(&server.uri()) }, CLOCK, Box::new(drop)).unwrap()
    };
    assert_eq!(with("s3 cret").backend_token().await.unwrap(), "b1");
    let body = json!({ "error": "invalid_client" });
    let response = ResponseTemplate::new(401).set_body_json(body);
    Mock::given(path("/token")).respond_with(response).mount(&server).await;
    let error = with("wrong").backend_token().await.unwrap_err().to_string();
    assert!(error.contains("check --backend-client and --backend-secret-file"), "{error}");
}

#[tokio::test]
async fn an_anonymous_request_has_no_token() {
    let server = server().await;
    Mock::given(method("POST"))
        .respond_with(ResponseTemplate::new(200).set_body_json(json!({ "parameter": [
            { "name": "result", "valueBoolean": true },
        ]})))
        .mount(&server)
        .await;
    let api = api(&server, None);
    api.validate_code(&ValidateCode::default(), &Bearer::Anonymous).await.unwrap();
    let requests = server.received_requests().await.unwrap();
    assert!(!requests[0].headers.contains_key("authorization"));
}

/// Two runs of the program share a token file; the refresh token may be used only once.
#[tokio::test]
async fn two_processes_renew_the_token_once() {
    let server = server().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.json");
    let first = api(&server, Some(file.clone()));
    sign_in(&server, &first, tokens(&server, "a1", "r1", 10)).await;
    let second = api(&server, Some(file));
    second.restore_session().await.unwrap();
    let response = ResponseTemplate::new(200).set_body_json(tokens(&server, "a2", "r2", 3600));
    answer_token(&server, "refresh_token=r1", response, 1).await;
    expect_userinfo(&server, "a2", 2).await;
    assert!(first.userinfo(&Bearer::User).await.is_ok());
    assert!(second.userinfo(&Bearer::User).await.is_ok());
}

/// Returns a server whose discovery document has these further members.
async fn server_with(more: Value) -> MockServer {
    let server = MockServer::start().await;
    let mut configuration = json!({
        "issuer": server.uri(),
        "authorization_endpoint": format!("{}/authorize", server.uri()),
        "token_endpoint": format!("{}/token", server.uri()),
        "userinfo_endpoint": format!("{}/userinfo", server.uri()),
    });
    let more = more.as_object().unwrap().iter();
    let more =
        more.map(|(name, path)| (name.clone(), json!(format!("{}{}", server.uri(), path.as_str().unwrap()))));
    configuration.as_object_mut().unwrap().extend(more);
    Mock::given(path("/.well-known/openid-configuration"))
        .respond_with(ResponseTemplate::new(200).set_body_json(configuration))
        .mount(&server)
        .await;
    server
}

/// Introspects a token with this profile.
async fn introspect(profile: Profile) -> Introspection {
    trefoil_tui::install_crypto();
    let api = Api::new(profile, CLOCK, Box::new(drop)).unwrap();
    let inspection = api.inspect_given("secret-token", true).await;
    let is_active = matches!(inspection.introspection, Some(Introspection::Active { .. }));
    assert_eq!(inspection.granted_scope(), if is_active { "openid" } else { "" });
    inspection.introspection.unwrap()
}

#[tokio::test]
async fn a_confidential_client_introspects_a_token() {
    let server = server_with(json!({ "introspection_endpoint": "/introspect" })).await;
    let response = json!({ "active": true, "scope": "openid", "username": "willow" });
    // RFC 6749 2.3.1: the secret is encoded as in a form.
    let basic = format!("Basic {}", STANDARD.encode("native:a%3Ab+c"));
    Mock::given(method("POST"))
        .and(path("/introspect"))
        .and(header("authorization", basic.as_str()))
        .and(body_string_contains("token=secret-token&token_type_hint=access_token"))
        .respond_with(ResponseTemplate::new(200).set_body_json(response))
        .expect(1)
        .mount(&server)
        .await;
    let secret = Some(ClientCredential::Secret("a:b c".to_owned()));
    let with_secret = Profile { client_credential: secret, ..profile(&server.uri()) };
    let Introspection::Active { client, members } = introspect(with_secret).await else { panic!() };
    assert_eq!(
        (client.as_str(), &members["username"], members.get("active")),
        ("native", &json!("willow"), None)
    );

    Mock::given(path("/introspect"))
        .and(body_string_contains("client_assertion="))
        .respond_with(ResponseTemplate::new(200).set_body_json(json!({ "active": false })))
        .mount(&server)
        .await;
    // The client for users is public, so that the backend client asks.
    let inactive = Introspection::Inactive { client: "backend".to_owned() };
    assert_eq!(introspect(profile(&server.uri())).await, inactive);
}

#[tokio::test]
async fn a_missing_introspection_has_a_reason() {
    let check = async |profile: Profile, says: &str| match introspect(profile).await {
        Introspection::NotAsked { reason } | Introspection::Unavailable { reason } => {
            assert!(reason.contains(says), "{reason}");
        }
        other => panic!("{other:?}"),
    };
    let server = server_with(json!({})).await;
    check(profile(&server.uri()), "the server offers no introspection").await;
    let public = Profile { backend: None, ..profile(&server.uri()) };
    check(public, "this client may not introspect").await;
    let server = server_with(json!({ "introspection_endpoint": "/introspect" })).await;
    check(profile(&server.uri()), "404").await;
    Mock::given(path("/introspect"))
        .respond_with(ResponseTemplate::new(200).set_body_json(json!({})))
        .mount(&server)
        .await;
    check(profile(&server.uri()), "the member 'active' is missing").await;
    let api = Api::new(profile(&server.uri()), CLOCK, Box::new(drop)).unwrap();
    assert!(api.inspect(TokenKind::UserAccess, true).await.is_err(), "no user is signed in");
}
