//! Who may what at the FHIR endpoints (DESIGN, who may what): the token's SMART scopes, by type and by whose
//! data it is.

use std::sync::Arc;

use fhir::IssueCode;
use http::{StatusCode, header};
use identity::scope::{Context, Permissions};
use identity::token::{Access, BadToken, Reach};
use resources::Restriction;

use crate::http::extract::Call;
use crate::http::problem::{self, Dialect};
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

/// What the token may see of a type, and may do there if `permissions` are writes: the reach of its scopes, and for a
/// client with `groups` only what belongs to a current member of those Groups. It reads its Groups and does not write
/// them: they decide what it may see.
///
/// # Errors
/// Returns a 500 if a Group cannot be read.
pub async fn restriction(
    call: &Call,
    access: &Access,
    kind: &str,
    permissions: Permissions,
) -> Result<Restriction, Response> {
    let reach = reach(call, access, kind, permissions);
    let client = call.app.identity.client(&access.token.client_id, call.now).await;
    let client = client.map_err(|error| problem::store(Dialect::Fhir, &error))?;
    let Some(groups) = client.and_then(|client| client.groups) else {
        return Ok(match reach {
            Reach::All => Restriction::None,
            Reach::Patients(ids) => Restriction::patients(ids),
            Reach::Nothing => Restriction::patients([]),
        });
    };
    if kind == "Group" && reach == Reach::All {
        return Ok(Restriction::ReadOnly(groups.into()));
    }
    let is_of_compartments = kind == "Patient" || !resources::compartment::paths(kind).is_empty();
    if reach == Reach::All && !is_of_compartments {
        return Ok(Restriction::None);
    }
    let app = &call.app;
    let members = app.group_members.compartments(&groups, &app.store, &app.bulk, call.now).await;
    let members = members.map_err(|error| problem::members(&error))?;
    Ok(match reach {
        Reach::All => Restriction::Compartments(members),
        Reach::Nothing => Restriction::patients([]),
        Reach::Patients(ids) => {
            let is_member = |id: &&str| members.binary_search(&format!("Patient/{id}")).is_ok();
            Restriction::patients(ids.into_iter().filter(is_member))
        }
    })
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
