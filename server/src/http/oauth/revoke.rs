//! POST {base}/oauth2/revoke (RFC 7009).

use http::StatusCode;

use super::read_client_form;
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// Revokes a token of the client. An unknown token gets the same response as a known one.
pub async fn revoke_token(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let (form, client) = read_client_form(context, body).await?;
    let identity = &context.app.identity;
    let Some(token) = form.get("token") else {
        return Err(Problem::oauth(StatusCode::BAD_REQUEST, "invalid_request", "token is missing"));
    };
    identity.tokens.revoke_token(token, &client, context.now).await?;
    Ok(reply::no_store(reply::empty(StatusCode::OK)))
}
