//! POST {base}/oauth2/par: pushed authorization requests (RFC 9126).

use http::StatusCode;
use identity::pending::PendingKind;
use serde_json::json;

use super::{form_of_client, proven};
use crate::http::extract::Call;
use crate::http::problem::{self, Dialect};
use crate::http::reply::{self, Response};

/// Takes a request in; the browser then brings its reference to `authorize`.
pub async fn post(mut call: Call) -> Response {
    let (form, client) = match form_of_client(&mut call).await {
        Ok(sent) => sent,
        Err(response) => return response,
    };
    if let Err(error) = call.add_pending(PendingKind::PushedRequest, Some(&client)) {
        return problem::pending(Dialect::OAuth, error);
    }
    let identity = &call.app.identity;
    let jkt = match proven(&call).await {
        Ok(jkt) => jkt,
        Err(error) => return problem::proof(&error),
    };
    match identity.push_request(&form, &client, jkt, call.now).await {
        Ok(request_uri) => {
            let answer =
                json!({ "request_uri": request_uri, "expires_in": identity::pushed::LIFE.as_secs() });
            reply::no_store(reply::json(StatusCode::CREATED, &answer))
        }
        Err(error) => problem::pushed(&error),
    }
}
