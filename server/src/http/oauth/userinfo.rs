//! GET and POST {base}/oauth2/userinfo (SPEC, userinfo; OpenID Connect Core 5.3; RFC 6750 3).

use http::{StatusCode, header};
use identity::token::BadToken;

use crate::http::extract::Call;
use crate::http::problem;
use crate::http::reply::{self, Response};

fn refuse(status: StatusCode, error: &str, description: &str) -> Response {
    let body = serde_json::json!({ "error": error, "error_description": description });
    let response = reply::no_store(reply::json(status, &body));
    reply::with(response, header::WWW_AUTHENTICATE, &problem::bearer_challenge(error, description))
}

/// Answers with the claims that the token's scopes open.
pub async fn answer(call: Call) -> Response {
    let sent = match call.presented() {
        Ok(Some(sent)) => sent,
        Ok(None) => {
            let text = "send the access token as 'Authorization: Bearer TOKEN'";
            return refuse(StatusCode::BAD_REQUEST, "invalid_request", text);
        }
        Err(error) => return problem::userinfo_token(&BadToken::Proof(error)),
    };
    let identity = &call.app.identity;
    let access = match identity.judge(&sent, call.now).await {
        Ok(access) => access,
        Err(error) => return problem::userinfo_token(&error),
    };
    if !access.scopes.has("openid") {
        return refuse(StatusCode::FORBIDDEN, "insufficient_scope", "the token lacks the scope openid");
    }
    match &access.user {
        Some(user) => {
            reply::no_store(reply::json(StatusCode::OK, &identity.user_claims(user, &access.scopes)))
        }
        None => problem::userinfo_token(&BadToken::UserGone),
    }
}
