//! Who may what at the FHIR endpoints (DESIGN, who may what): the token's SMART scopes, by type and by whose
//! data it is.

use std::sync::Arc;

use fhir::IssueCode;
use http::{StatusCode, header};
use identity::scope::{Context, Permissions};
use identity::token::{Access, BadToken, Reach};

use crate::http::extract::Call;
use crate::http::problem;
use crate::http::reply::{self, Response};

/// Judges the access token of a FHIR request.
///
/// # Errors
/// 401 without a token, with one that does not hold, or with one for somebody else.
pub async fn token(call: &Call) -> Result<Arc<Access>, Response> {
    let sent = match call.presented() {
        Ok(Some(sent)) => sent,
        Ok(None) => {
            let text = "send an access token as 'Authorization: Bearer TOKEN'";
            return Err(problem::fhir(StatusCode::UNAUTHORIZED, IssueCode::Login, text));
        }
        Err(error) => return Err(problem::fhir_token(&BadToken::Proof(error))),
    };
    call.app.identity.judge(&sent, call.now).await.map_err(|error| problem::fhir_token(&error))
}

/// Whose resources of a type the token opens.
pub fn reach<'a>(call: &Call, access: &'a Access, kind: &str, permissions: Permissions) -> Reach<'a> {
    if access.token.is_for(&call.app.fhir_base) { access.reach(kind, permissions) } else { Reach::Nothing }
}

/// May the token read all of a type for a back end: what exports give?
pub fn exports(call: &Call, access: &Access, kind: &str) -> bool {
    access.token.is_for(&call.app.fhir_base) && access.scopes.allow(Context::System, kind, Permissions::READ)
}

/// Demands a scope for a type, for all of its resources or those of some Patients.
///
/// # Errors
/// 401 without a good token, 403 without the scope.
pub async fn demand(call: &Call, kind: &str, permissions: Permissions) -> Result<Arc<Access>, Response> {
    let access = token(call).await?;
    match reach(call, &access, kind, permissions) {
        Reach::Nothing => Err(lacking(&format!("the token has no scope that allows this on {kind}"))),
        _ => Ok(access),
    }
}

/// Demands a scope for all of a type.
///
/// # Errors
/// 401 without a good token, 403 without the scope.
pub async fn demand_all(call: &Call, kind: &str, permissions: Permissions) -> Result<Arc<Access>, Response> {
    let access = token(call).await?;
    match reach(call, &access, kind, permissions) {
        Reach::All => Ok(access),
        _ => Err(lacking(&format!("the token has no scope that allows this on {kind}"))),
    }
}

/// 403 for a token that lacks a scope.
pub fn lacking(text: &str) -> Response {
    let response = problem::fhir(StatusCode::FORBIDDEN, IssueCode::Forbidden, text);
    reply::with(response, header::WWW_AUTHENTICATE, &problem::bearer_challenge("insufficient_scope", text))
}
