//! `{base}/admin/clients`: clients as they are registered, without digests of secrets.

use http::StatusCode;
use identity::client::Client;
use serde_json::{Value, json};

use super::{check, json, page, store, unknown};
use crate::http::extract::Call;
use crate::http::reply::Response;

fn shown(client: &Client) -> Value {
    json!({
        "client_id": client.client_id,
        "client_name": client.name,
        "redirect_uris": client.redirect_uris,
        "post_logout_redirect_uris": client.post_logout_redirect_uris,
        "response_types": client.response_types,
        "grant_types": client.grant_types,
        "token_endpoint_auth_methods": client.auth_methods,
        "token_endpoint_auth_signing_algs": client.assertion_algs,
        "jwks": { "keys": client.jwks },
        "jwks_uri": client.jwks_uri,
        "scope": client.scopes.to_string(),
        "id_token_signed_response_alg": client.id_token_alg.as_deref().unwrap_or("RS256"),
        "application_type": if client.native { "native" } else { "web" },
        "require_pushed_authorization_requests": client.require_par,
        "dpop_bound_access_tokens": client.dpop_bound,
        "pkce_required": client.pkce_required,
        "first_party": !client.consent,
        "always_refresh": client.always_refresh,
        "refresh_grace_s": client.refresh_grace_s,
        "introspects": client.introspects,
        "groups": client.groups,
        "declared": client.declared,
        "secrets": client.secret_digests.len(),
    })
}

async fn all(call: &Call) -> Result<Vec<Client>, Response> {
    let clients = call.app.identity.clients(call.now).await.map_err(|error| store(&error))?;
    Ok(clients.into_iter().filter(|client| call.app.identity.demo || !client.demo).collect())
}

/// GET {base}/admin/clients
pub async fn list(call: Call) -> Response {
    answer_list(&call).await.unwrap_or_else(|response| response)
}

async fn answer_list(call: &Call) -> Result<Response, Response> {
    check(call).await?;
    let (after, count) = page(call)?;
    let mut found = all(call).await?;
    found.retain(|client| after.as_ref().is_none_or(|after| client.client_id > *after));
    let more = found.len() > count;
    found.truncate(count);
    let next = found.last().filter(|_| more).map(|client| client.client_id.clone());
    let clients: Vec<_> = found.iter().map(shown).collect();
    Ok(json(StatusCode::OK, &json!({ "clients": clients, "next": next })))
}

/// GET {base}/admin/clients/{client_id}
pub async fn read(call: Call) -> Response {
    answer_read(&call).await.unwrap_or_else(|response| response)
}

async fn answer_read(call: &Call) -> Result<Response, Response> {
    check(call).await?;
    let found = all(call).await?;
    let client = found.iter().find(|client| client.client_id == call.args[0]);
    Ok(json(StatusCode::OK, &shown(client.ok_or_else(|| unknown("client"))?)))
}
