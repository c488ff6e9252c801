//! POST {base}/oauth2/revoke (RFC 7009).

use http::StatusCode;

use super::form_of_client;
use crate::http::extract::Call;
use crate::http::problem::{self, Dialect};
use crate::http::reply::{self, Response};

/// Revokes a token of the calling client. An unknown token is answered like a known one.
pub async fn post(mut call: Call) -> Response {
    let (form, client) = match form_of_client(&mut call).await {
        Ok(sent) => sent,
        Err(response) => return response,
    };
    let identity = &call.app.identity;
    let Some(token) = form.get("token") else {
        return problem::oauth(StatusCode::BAD_REQUEST, "invalid_request", Some("token is missing"));
    };
    match identity.revoke(token, &client, call.now).await {
        Ok(()) => reply::no_store(reply::empty(StatusCode::OK)),
        Err(error) => problem::store(Dialect::OAuth, &error),
    }
}
