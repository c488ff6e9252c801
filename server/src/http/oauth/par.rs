//! POST {base}/oauth2/par: pushed authorization requests (RFC 9126).

use http::StatusCode;
use identity::sign_in::pending_quota::PendingKind;
use serde_json::json;

use super::{read_client_form, verify_proof};
use crate::http::extract::RequestContext;
use crate::http::problem::{self, Dialect};
use crate::http::reply::{self, Response};

/// Stores an authorization request. The browser sends its reference to `authorize`.
pub async fn push_request(mut context: RequestContext) -> Response {
    let (form, client) = match read_client_form(&mut context).await {
        Ok(sent) => sent,
        Err(response) => return response,
    };
    if let Err(error) = context.add_pending(PendingKind::PushedRequest, Some(&client)) {
        return problem::pending_error(Dialect::OAuth, error);
    }
    let identity = &context.app.identity;
    let jkt = match verify_proof(&context).await {
        Ok(jkt) => jkt,
        Err(error) => return problem::proof_error(&error),
    };
    match identity.authorization.push_request(&form, &client, jkt, context.now).await {
        Ok(request_uri) => {
            let answer = json!({ "request_uri": request_uri, "expires_in": identity::lifetimes::PUSHED_REQUEST.as_secs() });
            reply::no_store(reply::json(StatusCode::CREATED, &answer))
        }
        Err(error) => problem::push_error(&error),
    }
}
