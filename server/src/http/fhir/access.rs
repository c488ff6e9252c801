//! Who may what at the FHIR endpoints (DESIGN, who may what): the token's SMART scopes, by type.

use std::sync::Arc;

use fhir::IssueCode;
use http::{StatusCode, header};
use identity::scope::{Context, Permissions};
use identity::token::AccessToken;

use crate::http::extract::Call;
use crate::http::problem;
use crate::http::reply::{self, Response};

/// Judges the bearer token of a FHIR request.
///
/// # Errors
/// 401 without a token or with one that does not hold.
pub async fn token(call: &Call) -> Result<Arc<AccessToken>, Response> {
    let Some(token) = call.bearer() else {
        let text = "send an access token as 'Authorization: Bearer TOKEN'";
        return Err(problem::fhir(StatusCode::UNAUTHORIZED, IssueCode::Login, text));
    };
    call.app.identity.verify_access_token(token, call.now).await.map_err(|error| problem::fhir_token(&error))
}

/// Does the token allow this on a type, in one of these contexts?
pub fn allows(
    token: &AccessToken,
    fhir_base: &str,
    contexts: &[Context],
    kind: &str,
    permissions: Permissions,
) -> bool {
    token.is_for(fhir_base)
        && token
            .scopes()
            .smart()
            .any(|scope| contexts.contains(&scope.context) && scope.allows(kind, permissions))
}

/// Demands a scope for a type.
///
/// # Errors
/// 401 without a good token, 403 without the scope.
pub async fn demand(call: &Call, kind: &str, permissions: Permissions) -> Result<Arc<AccessToken>, Response> {
    let token = token(call).await?;
    let contexts = [Context::System, Context::User];
    if allows(&token, &call.app.fhir_base, &contexts, kind, permissions) {
        return Ok(token);
    }
    Err(lacking(&format!("the token has no scope that allows this on {kind}")))
}

/// 403 for a token that lacks a scope.
pub fn lacking(text: &str) -> Response {
    let response = problem::fhir(StatusCode::FORBIDDEN, IssueCode::Forbidden, text);
    reply::with(response, header::WWW_AUTHENTICATE, &problem::bearer_challenge("insufficient_scope", text))
}
