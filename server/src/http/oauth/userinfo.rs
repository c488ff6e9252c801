//! GET and POST {base}/oauth2/userinfo (SPEC, userinfo; OpenID Connect Core 5.3; RFC 6750 3).

use http::{StatusCode, header};
use identity::token::BadToken;

use crate::http::extract::Call;
use crate::http::problem::{self, Dialect};
use crate::http::reply::{self, Response};

fn refuse(status: StatusCode, error: &str, description: &str) -> Response {
    let body = serde_json::json!({ "error": error, "error_description": description });
    let response = reply::no_store(reply::json(status, &body));
    reply::with(response, header::WWW_AUTHENTICATE, &problem::bearer_challenge(error, description))
}

/// Answers with the claims that the token's scopes open.
pub async fn answer(call: Call) -> Response {
    let more_than_one = call.headers.get_all(header::AUTHORIZATION).iter().count() > 1;
    let Some(token) = call.bearer().filter(|_| !more_than_one) else {
        let text = "send the access token as 'Authorization: Bearer TOKEN'";
        return refuse(StatusCode::BAD_REQUEST, "invalid_request", text);
    };
    let identity = &call.app.identity;
    let access = match identity.verify_access_token(token, call.now).await {
        Ok(access) => access,
        Err(BadToken::Store(error)) => return problem::store(Dialect::OAuth, &error),
        Err(error) => return refuse(StatusCode::UNAUTHORIZED, "invalid_token", &error.to_string()),
    };
    let scopes = access.scopes();
    if !scopes.has("openid") {
        return refuse(StatusCode::FORBIDDEN, "insufficient_scope", "the token lacks the scope openid");
    }
    match identity.user(&access.sub, call.now).await {
        Ok(Some(user)) => {
            reply::no_store(reply::json(StatusCode::OK, &identity::userinfo::claims(&user, &scopes)))
        }
        Ok(None) => refuse(StatusCode::UNAUTHORIZED, "invalid_token", &BadToken::UserGone.to_string()),
        Err(error) => problem::store(Dialect::OAuth, &error),
    }
}
