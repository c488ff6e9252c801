//! `{base}/admin/clients`: clients as they are registered, without digests of secrets. A change can require
//! the revision that was read (`ETag`, `If-Match`). A client that is declared in `trefoil.toml` is changed
//! there.

use http::{StatusCode, header};
use identity::directory::client_registry::{ChangeClientError, VersionedClient};
use identity::model::client::Client;
use identity::model::client_metadata::ClientMetadata;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    check_administrator, expected_revision, invalid_request, json, page_parameters, parse_body,
    precondition_failed,
};
use crate::administration::registration_warnings::client_warnings;
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// Maximum time during which replaced secrets stay valid, in seconds: 30 days.
const MAX_OVERLAP_S: u32 = 30 * 24 * 3600;

/// A client as the admin API shows it.
#[derive(Serialize)]
struct ShownClient<'a> {
    client_id: &'a str,
    #[serde(flatten)]
    metadata: ClientMetadata,
    /// The client is declared in `trefoil.toml`.
    declared: bool,
    secrets: usize,
    /// A new secret, which is shown once.
    #[serde(skip_serializing_if = "Option::is_none")]
    client_secret: Option<String>,
    /// Why the registration can hardly work, after a change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

impl<'a> ShownClient<'a> {
    fn new(client: &'a Client, now: Timestamp) -> Self {
        let replaced = client.replaced_secrets.iter().filter(|replaced| now < replaced.until);
        Self {
            client_id: &client.client_id,
            metadata: client.into(),
            declared: client.declared,
            secrets: client.secret_digests.len() + replaced.count(),
            client_secret: None,
            warnings: Vec::new(),
        }
    }
}

/// The response to a change, with warnings.
async fn changed_client_response(
    context: &RequestContext,
    status: StatusCode,
    entry: &VersionedClient,
    client_secret: Option<String>,
) -> Response {
    let warnings = client_warnings(&context.app.resources, &entry.client).await;
    let shown = ShownClient { client_secret, warnings, ..ShownClient::new(&entry.client, context.now) };
    client_response(status, entry, &shown)
}

fn client_response(status: StatusCode, entry: &VersionedClient, shown: &ShownClient<'_>) -> Response {
    reply::with(json(status, &json!(shown)), header::ETAG, &format!("W/\"{}\"", entry.revision))
}

/// The client with this id, unless it belongs to a demo project that is not served.
async fn addressed_client(context: &RequestContext, client_id: &str) -> Result<VersionedClient, Problem> {
    let identity = &context.app.identity;
    let record = identity.clients.versioned_client(client_id, context.now).await?;
    let record = record.filter(|record| identity.demo || !record.client.demo);
    record.ok_or_else(|| Problem::no_such("client"))
}

async fn visible_clients(context: &RequestContext) -> Result<Vec<Client>, Problem> {
    let clients = context.app.identity.clients.all_clients(context.now).await?;
    Ok(clients.into_iter().filter(|client| context.app.identity.demo || !client.demo).collect())
}

/// GET {base}/admin/clients
pub async fn list_clients(context: &RequestContext) -> Result<Response, Problem> {
    check_administrator(context).await?;
    let (after, count) = page_parameters(context)?;
    let mut visible = visible_clients(context).await?;
    visible.retain(|client| after.as_ref().is_none_or(|after| client.client_id > *after));
    let more = visible.len() > count;
    visible.truncate(count);
    let next = visible.last().filter(|_| more).map(|client| client.client_id.clone());
    let clients: Vec<_> = visible.iter().map(|client| ShownClient::new(client, context.now)).collect();
    Ok(json(StatusCode::OK, &json!({ "clients": clients, "next": next })))
}

/// GET {base}/admin/clients/{client_id}
pub async fn read_client(context: &RequestContext, client_id: String) -> Result<Response, Problem> {
    check_administrator(context).await?;
    let client = addressed_client(context, &client_id).await?;
    Ok(client_response(StatusCode::OK, &client, &ShownClient::new(&client.client, context.now)))
}

/// POST {base}/admin/clients: adds a client. If it needs a secret, the response contains a generated one.
pub async fn create_client(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    check_administrator(context).await?;
    let mut members: Map<String, Value> = parse_body(context, body).await?;
    let Some(Value::String(client_id)) = members.remove("client_id") else {
        return Err(invalid_request("client_id is missing or is not a string"));
    };
    let metadata: ClientMetadata = serde_json::from_value(members.into())
        .map_err(|error| invalid_request(&format!("the body is not valid: {error}")))?;
    let client = metadata.into_client(&client_id, None).map_err(ChangeClientError::from)?;
    let secret = client.needs_secret().then(|| context.app.clock.random.secret());
    let secret_digests = secret.iter().map(|secret| Client::secret_digest(secret)).collect();
    let client = Client { secret_digests, ..client };
    let clients = &context.app.identity.clients;
    clients.add_client(&client, context.now).await.map_err(ChangeClientError::from)?;
    let added = addressed_client(context, &client_id).await?;
    let response = changed_client_response(context, StatusCode::CREATED, &added, secret).await;
    let location = format!("{}/admin/clients/{client_id}", context.app.address.base_url);
    Ok(reply::with(response, header::LOCATION, &location))
}

/// PATCH {base}/admin/clients/{client_id}: changes the members that are present; null restores a default (RFC
/// 7396).
pub async fn change_client(
    context: &RequestContext,
    client_id: String,
    body: &mut RequestBody,
) -> Result<Response, Problem> {
    check_administrator(context).await?;
    let changes: Map<String, Value> = parse_body(context, body).await?;
    let revision = expected_revision(context)?;
    let clients = &context.app.identity.clients;
    let (changed, secret) = clients.change_client(&client_id, revision, &changes, context.now).await?;
    Ok(changed_client_response(context, StatusCode::OK, &changed, secret).await)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretRotation {
    /// Seconds during which the earlier secrets stay valid.
    #[serde(default)]
    overlap_s: u32,
}

/// POST {base}/admin/clients/{client_id}/secret: gives the client a new secret.
pub async fn rotate_secret(
    context: &RequestContext,
    client_id: String,
    body: &mut RequestBody,
) -> Result<Response, Problem> {
    check_administrator(context).await?;
    let SecretRotation { overlap_s } = parse_body(context, body).await?;
    if overlap_s > MAX_OVERLAP_S {
        return Err(invalid_request(&format!("overlap_s must be at most {MAX_OVERLAP_S}")));
    }
    let overlap = SignedDuration::from_secs(overlap_s.into());
    let clients = &context.app.identity.clients;
    let secret = clients.rotate_client_secret(&client_id, overlap, context.now).await?;
    Ok(json(StatusCode::OK, &json!({ "client_id": client_id, "client_secret": secret })))
}

/// DELETE {base}/admin/clients/{client_id}: deletes the client and ends its tokens.
pub async fn delete_client(context: &RequestContext, client_id: String) -> Result<Response, Problem> {
    check_administrator(context).await?;
    let client = addressed_client(context, &client_id).await?;
    if expected_revision(context)?.is_some_and(|revision| revision != client.revision) {
        return Err(precondition_failed("the client was changed since it was read; read it again"));
    }
    let clients = &context.app.identity.clients;
    clients.delete_client(&client_id, context.now).await.map_err(ChangeClientError::from)?;
    Ok(reply::no_store(reply::empty(StatusCode::NO_CONTENT)))
}
