//! POST {base}/oauth2/par: pushed authorization requests (RFC 9126).

use http::StatusCode;
use identity::sign_in::pending_quota::PendingKind;
use serde_json::json;

use super::{read_client_form, verify_proof};
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// Stores an authorization request. The browser sends its reference to `authorize`.
pub async fn push_request(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let (form, client) = read_client_form(context, body).await?;
    context.add_pending(PendingKind::PushedRequest, Some(&client))?;
    let identity = &context.app.identity;
    let jkt = verify_proof(context).await?;
    let request_uri = identity.authorization.push_request(&form, &client, jkt, context.now).await?;
    let response =
        json!({ "request_uri": request_uri, "expires_in": identity::lifetimes::PUSHED_REQUEST.as_secs() });
    Ok(reply::no_store(reply::json(StatusCode::CREATED, &response)))
}
