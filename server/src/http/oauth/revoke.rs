//! POST {base}/oauth2/revoke (RFC 7009).

use http::StatusCode;

use super::read_client_form;
use crate::http::extract::RequestContext;
use crate::http::problem::{self, Dialect};
use crate::http::reply::{self, Response};

/// Revokes a token of the client. An unknown token gets the same response as a known one.
pub async fn revoke_token(mut context: RequestContext) -> Response {
    let (form, client) = match read_client_form(&mut context).await {
        Ok(sent) => sent,
        Err(response) => return response,
    };
    let identity = &context.app.identity;
    let Some(token) = form.get("token") else {
        return problem::oauth_error(StatusCode::BAD_REQUEST, "invalid_request", Some("token is missing"));
    };
    match identity.tokens.revoke_token(token, &client, context.now).await {
        Ok(()) => reply::no_store(reply::empty(StatusCode::OK)),
        Err(error) => problem::store_error(Dialect::OAuth, &error),
    }
}
