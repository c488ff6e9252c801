//! GET and POST {base}/oauth2/userinfo (OpenID Connect Core section 5.3; RFC 6750 section 3).

use http::{StatusCode, header};
use identity::model::scope::NamedScope;
use identity::tokens::access_token::BadToken;

use crate::http::extract::RequestContext;
use crate::http::problem::{self, Problem};
use crate::http::reply::{self, Response};

fn bearer_problem(status: StatusCode, error: &str, description: &str) -> Problem {
    let body = serde_json::json!({ "error": error, "error_description": description });
    let response = reply::no_store(reply::json(status, &body));
    reply::with(response, header::WWW_AUTHENTICATE, &problem::bearer_challenge(error, description)).into()
}

/// Responds with the claims that the scopes of the token grant.
pub async fn user_info(context: &RequestContext) -> Result<Response, Problem> {
    let Some(credentials) = context.credentials()? else {
        let text = "send the access token as 'Authorization: Bearer TOKEN'";
        return Err(bearer_problem(StatusCode::BAD_REQUEST, "invalid_request", text));
    };
    let identity = &context.app.identity;
    let access = context.authenticate_token(&credentials).await?;
    if !access.scopes.has(NamedScope::Openid) {
        let text = "the token lacks the scope openid";
        return Err(bearer_problem(StatusCode::FORBIDDEN, "insufficient_scope", text));
    }
    if !access.token.is_for_audience(&identity.issuer) {
        let text = "the token is for the FHIR interface only (resource of RFC 8707)";
        return Err(bearer_problem(StatusCode::UNAUTHORIZED, "invalid_token", text));
    }
    let user = access.user.as_ref().ok_or(BadToken::UserGone)?;
    Ok(reply::no_store(reply::json(StatusCode::OK, &identity.tokens.user_claims(user, &access.scopes))))
}
