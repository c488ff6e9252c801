//! The 403 response to a token without the necessary scope (RFC 6750 section 3.1). It names a scope that would allow the
//! request, why the token does not have it, and the scopes that the token has.

use identity::model::client::Client;
use identity::model::scope::{ScopeContext, ScopePermissions, Scopes, SmartScope};
use identity::tokens::access_token::TokenAccess;

use crate::http::extract::RequestContext;
use crate::http::problem::Problem;

/// Maximum number of granted scopes in the text.
const MAX_LISTED: usize = 20;

/// The extent of the resources that a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeededAccess {
    /// Some resources of the type.
    Some,
    /// All resources of the type.
    All,
    /// All resources of the type, for an export.
    Export,
}

/// Returns the 403 problem for a request that needs `permissions` on a type.
pub async fn missing_scope(
    context: &RequestContext,
    access: &TokenAccess,
    kind: &str,
    permissions: ScopePermissions,
    needed: NeededAccess,
) -> Problem {
    let of_scope = match (&access.user, needed) {
        (None, _) | (_, NeededAccess::Export) => ScopeContext::System,
        (Some(_), NeededAccess::Some) if access.token.patient.is_some() => ScopeContext::Patient,
        (Some(_), _) => ScopeContext::User,
    };
    let scope = SmartScope { context: of_scope, kind, permissions, query: None }.to_string();
    let client = match context.app.identity.clients.active_client(&access.token.client_id, context.now).await
    {
        Ok(client) => client,
        Err(error) => return error.into(),
    };
    let why = explain(access, client.as_ref(), &scope, of_scope);
    let text = format!(
        "the request needs a scope such as {scope}: {why}; the token has {}",
        list_scopes(&access.scopes)
    );
    Problem::insufficient_scope(&text, Some(&scope))
}

/// Returns why the token does not have a scope, or why the scope does not suffice.
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
        Some(_) if access.scopes.covers(scope) => {
            "the user may access only the records of one patient (allowed_scopes of the user)"
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
    let listed: Vec<&str> = scopes.iter().take(MAX_LISTED).collect();
    match scopes.iter().count().saturating_sub(MAX_LISTED) {
        0 => listed.join(" "),
        more => format!("{} and {more} more", listed.join(" ")),
    }
}
