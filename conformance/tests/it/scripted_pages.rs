//! Sign-in and sign-out on pages that a script makes, which the profile describes (`sign_in_requests`).

use std::path::Path;

use serde_json::json;
use trefoil_conformance::environment::browser;
use trefoil_conformance::environment::cookies::CookieJar;
use trefoil_conformance::environment::credentials::Credentials;
use trefoil_conformance::environment::page_request::get;
use trefoil_conformance::environment::target::{TIMEOUT, TargetKind, TestTarget};
use trefoil_conformance::profile::Profile;
use wiremock::matchers::{body_json, header, method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

const PROFILE: &str = r#"
[[sign_in_requests]]
page = "/sign-in"
post = "/session"
headers = { X-Page = "$html.csrf_token", X-Cookie = "$cookie.XSRF_TOKEN" }
json = { email = "$person.username", password = "$person.password" }

[[sign_in_requests]]
page = "/sign-in"
get = "$answer.next"

[[sign_in_requests]]
page = "/sign-out"
post = "/session/end"
headers = { X-Page = "$html.csrf_token" }

[[sign_in_requests]]
page = "/sign-out"
get = "$answer.next"
"#;
const CLIENT: &str = "https://app.example/callback";
const GOODBYE: &str = "https://app.example/goodbye";

/// A server whose pages contain a token against forgery as JSON, and whose scripts send it in a header.
async fn scripted_server() -> MockServer {
    let server = MockServer::start().await;
    let url = server.uri();
    let mount = async |method_name: &str, at: &str, response: ResponseTemplate| {
        Mock::given(method(method_name)).and(path(at)).respond_with(response).mount(&server).await;
    };
    let metadata = json!({
        "issuer": url, "jwks_uri": format!("{url}/keys"), "authorization_endpoint": format!("{url}/authorize"),
        "end_session_endpoint": format!("{url}/sign-out"),
    });
    let page = |token: &str| {
        let script = format!(r#"<script type="application/json">{{"csrf-token": "{token}"}}</script>"#);
        ResponseTemplate::new(200).set_body_raw(script, "text/html")
    };
    let to = |location: &str| ResponseTemplate::new(302).insert_header("location", location);
    let next = |next: &str| ResponseTemplate::new(200).set_body_json(json!({ "next": next }));
    mount("GET", "/.well-known/openid-configuration", ResponseTemplate::new(200).set_body_json(metadata))
        .await;
    mount("GET", "/keys", ResponseTemplate::new(200).set_body_json(json!({ "keys": [] }))).await;
    mount("GET", "/authorize", to("/sign-in")).await;
    let sign_in = page("of-the-page").insert_header("set-cookie", "XSRF-TOKEN=of-the-cookie; Path=/");
    mount("GET", "/sign-in", sign_in).await;
    mount("GET", "/continue", to(&format!("{CLIENT}?code=c"))).await;
    mount("GET", "/sign-out", page("of-the-end")).await;
    Mock::given(method("POST"))
        .and(path("/session"))
        .and(header("x-page", "of-the-page"))
        .and(header("x-cookie", "of-the-cookie"))
        .and(body_json(json!({ "email": "ada", "password": "secret" })))
        .respond_with(next("/continue"))
        .mount(&server)
        .await;
    Mock::given(method("POST"))
        .and(path("/session/end"))
        .and(header("x-page", "of-the-end"))
        .respond_with(next(GOODBYE))
        .mount(&server)
        .await;
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_of_pages_sign_in_and_out() {
    let server = scripted_server().await;
    let profile = Profile::from_toml(PROFILE, Path::new(".")).unwrap();
    let target = TestTarget::connect(&server.uri(), profile, TargetKind::Other, TIMEOUT).await.unwrap();
    let mut cookies = CookieJar::new();
    let params = [("client_id", "app"), ("redirect_uri", CLIENT), ("response_type", "code")];
    let ada = Credentials { username: "ada".to_owned(), password: "secret".to_owned() };
    let arrived = browser::authorize(&target, &mut cookies, Some(&ada), &params).await.unwrap();
    assert_eq!(arrived.as_str(), format!("{CLIENT}?code=c"));
    let bea = Credentials { username: "bea".to_owned(), ..ada };
    let error = browser::authorize(&target, &mut cookies, Some(&bea), &params).await.unwrap_err();
    assert!(error.to_string().contains("POST /session was answered with 404"), "{error}");
    let request = get(format!("{}/sign-out", server.uri()).parse().unwrap());
    let end = browser::sign_out(&target, &mut cookies, &request, &[GOODBYE.to_owned()]).await.unwrap();
    assert_eq!(end.header("location").as_deref(), Some(GOODBYE));
}
