//! The 403 response to a token without the necessary scope (RFC 6750 section 3.1). It states the scopes
//! that the token has and, if a scope would allow the request, this scope and why the token does not have it.

use identity::model::client::Client;
use identity::model::scope::{ScopeContext, ScopePermissions, Scopes, SmartScope};
use identity::tokens::access_token::TokenAccess;
use resources::referenced::is_read_by_reference;

use crate::http::extract::RequestContext;
use crate::http::problem::Problem;

/// Maximum number of granted scopes in the text.
const MAX_LISTED: usize = 20;

/// The extent of the resources that a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeededAccess {
    Some,
    All,
    /// All resources of the type, for an export.
    Export,
}

/// The 403 problem for a request that needs `permissions` on a type.
pub async fn missing_scope(
    context: &RequestContext,
    access: &TokenAccess,
    kind: &str,
    permissions: ScopePermissions,
    need: NeededAccess,
) -> Problem {
    let of_scope = scope_context(access, kind, permissions, need);
    let scope = SmartScope { context: of_scope, kind, permissions, query: None };
    let name = scope.to_string();
    let client = match context.app.identity.clients.active_client(&access.token.client_id, context.now).await
    {
        Ok(client) => client,
        Err(error) => return error.into(),
    };
    let has = list_scopes(&access.scopes);
    if access.scopes.covers(&name) && !access.token.is_for_audience(&context.app.address.fhir_base) {
        let text =
            format!("the token is not for the audience {}; it has {has}", context.app.address.fhir_base);
        return Problem::insufficient_scope(&text, None);
    }
    if access.scopes.covers(&name) || !user_permits(access, &scope, need) {
        let text = format!(
            "the user may not access all these resources (allowed_scopes of the user); the token has {has}"
        );
        return Problem::insufficient_scope(&text, None);
    }
    let reason = explain(access, client.as_ref(), &name, of_scope);
    let text = format!("the request needs a scope such as {name}: {reason}; the token has {has}");
    // A user cannot get a system/ scope by a new authorization request.
    let is_available = access.user.is_none() || of_scope != ScopeContext::System;
    Problem::insufficient_scope(&text, is_available.then_some(&*name))
}

/// The context of the scope that the request needs.
fn scope_context(
    access: &TokenAccess,
    kind: &str,
    permissions: ScopePermissions,
    need: NeededAccess,
) -> ScopeContext {
    let is_of_patients = fhir::patient_compartment::contains_type(kind)
        || (ScopePermissions::READ.contains_all(permissions) && is_read_by_reference(kind));
    match (&access.user, need) {
        (None, _) | (_, NeededAccess::Export) => ScopeContext::System,
        (Some(_), NeededAccess::Some) if access.token.patient.is_some() && is_of_patients => {
            ScopeContext::Patient
        }
        (Some(_), _) => ScopeContext::User,
    }
}

/// Returns whether the scope would suffice with the `allowed_scopes` of the user.
fn user_permits(access: &TokenAccess, scope: &SmartScope, need: NeededAccess) -> bool {
    match (&access.user, need) {
        (Some(user), NeededAccess::All) => {
            user.allowed_scopes.allow_access(ScopeContext::User, scope.kind, scope.permissions)
        }
        _ => true,
    }
}

/// Returns why the token does not have a scope.
fn explain(
    access: &TokenAccess,
    client: Option<&Client>,
    scope: &str,
    of_scope: ScopeContext,
) -> &'static str {
    let is_registered = client.is_some_and(|client| client.scopes.covers(scope));
    match &access.user {
        Some(_) if of_scope == ScopeContext::System => {
            "only tokens that a client gets by client_credentials have system/ scopes"
        }
        _ if !is_registered => "the client is not registered for it",
        Some(user) if !user.may_grant(scope) => "the user may not grant it (allowed_scopes of the user)",
        _ => "the token was requested without it",
    }
}

fn list_scopes(scopes: &Scopes) -> String {
    if scopes.is_empty() {
        return "no scopes".to_owned();
    }
    let first: Vec<&str> = scopes.iter().take(MAX_LISTED).collect();
    match scopes.iter().count().saturating_sub(MAX_LISTED) {
        0 => first.join(" "),
        more => format!("{} and {more} more", first.join(" ")),
    }
}
