//! `{base}/admin/clients`: clients as they are registered, without digests of secrets.

use http::StatusCode;
use identity::model::client::Client;
use identity::model::client_metadata::ClientMetadata;
use serde::Serialize;
use serde_json::json;

use super::{check_administrator, json, page_parameters};
use crate::http::extract::RequestContext;
use crate::http::problem::Problem;
use crate::http::reply::Response;

/// A client as the admin API shows it.
#[derive(Serialize)]
struct ShownClient<'a> {
    client_id: &'a str,
    #[serde(flatten)]
    metadata: ClientMetadata,
    /// The client is declared in `trefoil.toml`.
    declared: bool,
    /// Number of valid secrets.
    secrets: usize,
}

impl<'a> From<&'a Client> for ShownClient<'a> {
    fn from(client: &'a Client) -> Self {
        Self {
            client_id: &client.client_id,
            metadata: client.into(),
            declared: client.declared,
            secrets: client.secret_digests.len(),
        }
    }
}

async fn visible_clients(context: &RequestContext) -> Result<Vec<Client>, Problem> {
    let clients = context.app.identity.clients.all_clients(context.now).await?;
    Ok(clients.into_iter().filter(|client| context.app.identity.demo || !client.demo).collect())
}

/// GET {base}/admin/clients
pub async fn list_clients(context: &RequestContext) -> Result<Response, Problem> {
    check_administrator(context).await?;
    let (after, count) = page_parameters(context)?;
    let mut found = visible_clients(context).await?;
    found.retain(|client| after.as_ref().is_none_or(|after| client.client_id > *after));
    let more = found.len() > count;
    found.truncate(count);
    let next = found.last().filter(|_| more).map(|client| client.client_id.clone());
    let clients: Vec<_> = found.iter().map(ShownClient::from).collect();
    Ok(json(StatusCode::OK, &json!({ "clients": clients, "next": next })))
}

/// GET {base}/admin/clients/{client_id}
pub async fn read_client(context: &RequestContext, client_id: String) -> Result<Response, Problem> {
    check_administrator(context).await?;
    let found = visible_clients(context).await?;
    let client = found.iter().find(|client| client.client_id == client_id);
    Ok(json(StatusCode::OK, &json!(ShownClient::from(client.ok_or_else(|| Problem::no_such("client"))?))))
}
