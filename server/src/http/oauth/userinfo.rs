//! GET and POST {base}/oauth2/userinfo (OpenID Connect Core section 5.3; RFC 6750 section 3).

use http::{StatusCode, header};
use identity::tokens::access_token::BadToken;

use crate::http::extract::RequestContext;
use crate::http::problem;
use crate::http::reply::{self, Response};

fn userinfo_error(status: StatusCode, error: &str, description: &str) -> Response {
    let body = serde_json::json!({ "error": error, "error_description": description });
    let response = reply::no_store(reply::json(status, &body));
    reply::with(response, header::WWW_AUTHENTICATE, &problem::bearer_challenge(error, description))
}

/// Responds with the claims that the scopes of the token grant.
pub async fn user_info(context: RequestContext) -> Response {
    let sent = match context.credentials() {
        Ok(Some(sent)) => sent,
        Ok(None) => {
            let text = "send the access token as 'Authorization: Bearer TOKEN'";
            return userinfo_error(StatusCode::BAD_REQUEST, "invalid_request", text);
        }
        Err(error) => return problem::userinfo_token(&BadToken::Proof(error)),
    };
    let identity = &context.app.identity;
    let access = match identity.tokens.authenticate_token(&sent, context.now).await {
        Ok(access) => access,
        Err(error) => return problem::userinfo_token(&error),
    };
    if !access.scopes.contains("openid") {
        return userinfo_error(
            StatusCode::FORBIDDEN,
            "insufficient_scope",
            "the token lacks the scope openid",
        );
    }
    match &access.user {
        Some(user) => {
            reply::no_store(reply::json(StatusCode::OK, &identity.tokens.user_claims(user, &access.scopes)))
        }
        None => problem::userinfo_token(&BadToken::UserGone),
    }
}
