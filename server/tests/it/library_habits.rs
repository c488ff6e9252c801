//! Habits of client libraries that the specifications allow or leave open: how they send a secret, an empty
//! password, and lists; and discovery, which announces only what a client may use.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use reqwest::StatusCode;
use serde_json::Value;

use crate::support::Server;

/// Registers a client and returns its secret, if it has one.
fn add_client(server: &Server, args: &[&str]) -> Option<String> {
    let output = server.trefoil(&[&["client", "add", "--json"], args].concat());
    let record: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    record["client_secret"].as_str().map(str::to_owned)
}

/// A token request of a client with these credentials in the header or in the form.
struct TokenRequest<'a> {
    basic: Option<(&'a str, &'a str)>,
    form: &'a [(&'a str, &'a str)],
}

impl TokenRequest<'_> {
    async fn send(&self, server: &Server) -> (StatusCode, Value) {
        let mut request = server.client().post(format!("{}/oauth2/token", server.base())).form(self.form);
        if let Some((id, password)) = self.basic {
            let header = format!("Basic {}", STANDARD.encode(format!("{id}:{password}")));
            request = request.header("authorization", header);
        }
        let response = request.send().await.unwrap();
        (response.status(), response.json().await.unwrap())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generated_secret_is_accepted_in_the_header_and_in_the_form() {
    let mut server = Server::in_fresh_folder();
    server.start();
    let grant = ["--grant-type", "client_credentials", "--scope", "system/Group.rs"];
    let both = add_client(&server, &[&["both", "--with-secret"], &grant[..]].concat()).unwrap();
    let post = ["form", "--with-secret", "--auth-method", "client_secret_post"];
    let form_only = add_client(&server, &[&post, &grant[..]].concat()).unwrap();
    for (id, secret, in_header) in
        [("both", &both, StatusCode::OK), ("form", &form_only, StatusCode::UNAUTHORIZED)]
    {
        let credentials =
            [("grant_type", "client_credentials"), ("client_id", id), ("client_secret", secret)];
        let header = TokenRequest { basic: Some((id, secret)), form: &credentials[..1] };
        assert_eq!(header.send(&server).await.0, in_header, "{id}");
        let form = TokenRequest { basic: None, form: &credentials };
        assert_eq!(form.send(&server).await.0, StatusCode::OK, "{id}");
        let twice = TokenRequest { basic: Some((id, secret)), form: &credentials };
        let (status, body) = twice.send(&server).await;
        assert_eq!((status, &body["error"]), (StatusCode::BAD_REQUEST, &"invalid_request".into()), "{id}");
    }
    let output = server.trefoil(&["client", "add", "other", "--with-secret", "--auth-method", "none"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("leave out with_secret"), "{text}");
    let app = ["client", "add", "app", "--redirect-uri", "https://app.example/cb"];
    let text = String::from_utf8(server.trefoil(&app).stdout).unwrap();
    assert!(text.contains("the reason and the remedy are on the first page of the server"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_password_of_a_public_client_is_no_credential() {
    let mut server = Server::in_fresh_folder();
    server.start();
    let public = ["public", "--native", "--redirect-uri", "http://127.0.0.1/cb"];
    assert_eq!(add_client(&server, &public), None);
    add_client(&server, &["secret", "--with-secret", "--redirect-uri", "https://app.example/cb"]).unwrap();
    // The code is unknown, which the server says only to a client that it has accepted.
    let form = [
        ("grant_type", "authorization_code"),
        ("code", "unknown"),
        ("redirect_uri", "http://127.0.0.1/cb"),
        ("code_verifier", "a"),
    ];
    let with_id = [&form[..], &[("client_id", "public")]].concat();
    let with_other_id = [&form[..], &[("client_id", "secret")]].concat();
    for (basic, form, error) in [
        (Some(("public", "")), &form[..], "invalid_grant"),
        (Some(("public", "")), &with_id, "invalid_grant"),
        (Some(("public", "")), &with_other_id, "invalid_request"),
        (Some(("public", "guessed")), &form, "invalid_client"),
        (Some(("secret", "")), &form, "invalid_client"),
        (Some(("unknown", "")), &form, "invalid_client"),
        (None, &with_id, "invalid_grant"),
    ] {
        let (_, body) = TokenRequest { basic, form }.send(&server).await;
        assert_eq!(body["error"], error, "{basic:?} {form:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fragment_is_announced_only_if_a_client_may_use_it() {
    let mut server = Server::in_fresh_folder();
    server.start();
    let modes = async || {
        let url = format!("{}/.well-known/openid-configuration", server.base());
        let discovery: Value = server.client().get(url).send().await.unwrap().json().await.unwrap();
        discovery["response_modes_supported"].clone()
    };
    assert_eq!(modes().await, serde_json::json!(["query", "fragment", "form_post"]));
    let clients = server.trefoil(&["client", "list", "--json"]).stdout;
    for client in serde_json::Deserializer::from_slice(&clients).into_iter::<Value>().map(Result::unwrap) {
        let response_types = client["response_types"].as_array().unwrap();
        if response_types.iter().any(|response_type| response_type != "code") {
            let id = client["client_id"].as_str().unwrap();
            assert!(server.trefoil(&["client", "delete", id, "--yes"]).status.success());
        }
    }
    assert_eq!(modes().await, serde_json::json!(["query", "form_post"]));
    let implicit = ["old", "--redirect-uri", "https://app.example/cb", "--response-type", "id_token"];
    add_client(&server, &implicit);
    assert_eq!(modes().await, serde_json::json!(["query", "fragment", "form_post"]));
}
