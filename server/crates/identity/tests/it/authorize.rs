//! Tests that each invalid authorization request is answered with the correct error, on a page or by
//! redirect.

use trefoil_identity::authorize::reply::{AuthorizationAnswer, AuthorizationError};

use crate::support::{Setup, at};

const GOOD: &str = "client_id=app&redirect_uri=https%3A%2F%2Fapp.example%2Fcb&response_type=code&state=s";

/// Returns `ok` and the scopes, `show`, or the error code, and whether `state` was returned.
async fn answer_to(setup: &Setup, query: &str) -> String {
    match setup.identity.authorization.check_authorization_request(query, at(0)).await {
        Ok(request) => format!("ok {}", request.scopes),
        Err(AuthorizationError::Show(_)) => "show".to_owned(),
        Err(AuthorizationError::Redirect { reply, refusal, .. }) => {
            let error = refusal.error;
            assert!(refusal.reason.is_some(), "{error:?}");
            let AuthorizationAnswer::Redirect(address) = reply.error_answer(error, None) else { panic!() };
            assert!(address.starts_with("https://app.example/cb?error="), "{address}");
            assert!(address.contains("iss=https%3A%2F%2Fas.example"), "{address}");
            let state = if address.contains("state=") { " with state" } else { "" };
            format!("{}{state}", error.as_str())
        }
    }
}

#[tokio::test]
async fn each_invalid_parameter_has_its_error() {
    let setup = Setup::new().await;
    let challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
    for (change, expected) in [
        ("", "ok openid"),
        ("&scope=", "ok openid"),
        ("&scope=openid+profile", "ok openid profile"),
        ("&unknown=x", "ok openid"),
        ("&client_id=app", "show"),
        ("&redirect_uri=https%3A%2F%2Fapp.example%2Fcb", "show"),
        ("&response_type=code", "invalid_request with state"),
        ("&state=t", "invalid_request"),
        ("&scope=openid+unknown", "invalid_scope with state"),
        ("&scope=+openid++profile+", "ok openid profile"),
        ("&scope=++", "ok openid"),
        ("&scope=openid%09profile", "invalid_scope with state"),
        ("&scope=openid%C2%A0profile", "invalid_scope with state"),
        ("&resource=https%3A%2F%2Felsewhere.example", "invalid_target with state"),
        ("&scope=system%2F*.rs", "invalid_scope with state"),
        ("&code_challenge=x", "invalid_request with state"),
        (&format!("&code_challenge={challenge}"), "invalid_request with state"),
        (&format!("&code_challenge={challenge}&code_challenge_method=plain"), "invalid_request with state"),
        ("&code_challenge_method=S256", "invalid_request with state"),
        (&format!("&code_challenge={challenge}&code_challenge_method=S256"), "ok openid"),
        ("&response_mode=fragment", "invalid_request with state"),
        ("&response_mode=query", "ok openid"),
        ("&request=x", "request_not_supported with state"),
        ("&request_uri=https%3A%2F%2Fx", "request_uri_not_supported with state"),
        ("&prompt=none+login", "invalid_request with state"),
        ("&max_age=-1", "invalid_request with state"),
        ("&nonce=%ff", "invalid_request with state"),
    ] {
        assert_eq!(answer_to(&setup, &format!("{GOOD}{change}")).await, expected, "{change}");
    }
    for (query, expected) in [
        ("", "show"),
        ("client_id=app", "show"),
        ("client_id=nobody&redirect_uri=https%3A%2F%2Fapp.example%2Fcb&response_type=code", "show"),
        ("client_id=app&redirect_uri=https%3A%2F%2Fapp.example%2Fcb%2F&response_type=code", "show"),
        ("client_id=app&redirect_uri=https%3A%2F%2Fapp.example%2Fcb", "invalid_request"),
        (
            "client_id=app&redirect_uri=https%3A%2F%2Fapp.example%2Fcb&response_type=token",
            "unauthorized_client",
        ),
        (
            "client_id=app&redirect_uri=https%3A%2F%2Fapp.example%2Fcb&response_type=x",
            "unsupported_response_type",
        ),
        (
            "client_id=app&redirect_uri=https%3A%2F%2Fapp.example%2Fcb&response_type=code&state=%7B%22a%22%3A1%7D",
            "invalid_request with state",
        ),
    ] {
        assert_eq!(answer_to(&setup, query).await, expected, "{query}");
    }
}
