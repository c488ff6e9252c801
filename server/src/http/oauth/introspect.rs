//! POST {base}/oauth2/introspect (RFC 7662): for clients with a secret or a key, and for tokens with the
//! scope `trefoil/introspect` (SMART App Launch 2.2, token introspection).

use http::{StatusCode, header};
use identity::model::client::Client;

use super::{authenticate_client, read_form};
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::problem::{self, Problem};
use crate::http::reply::{self, Response};

/// Scope of tokens that may introspect all tokens.
pub const SCOPE: &str = "trefoil/introspect";

/// Responds with the state and the claims of a token.
pub async fn introspect_token(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let form = read_form(context, body).await?;
    let client = authenticate_caller(context, &form).await?;
    let Some(token) = form.get("token") else {
        return Err(Problem::oauth(StatusCode::BAD_REQUEST, "invalid_request", "token is missing"));
    };
    let state = context.app.identity.tokens.introspect_token(token, &client, context.now).await?;
    Ok(reply::no_store(reply::json(StatusCode::OK, &state)))
}

async fn authenticate_caller(
    context: &RequestContext,
    form: &identity::params::Params,
) -> Result<Client, Problem> {
    if let Ok(Some(credentials)) = context.credentials() {
        let access = context.authenticate_token(&credentials).await?;
        if !access.scopes.contains(SCOPE) {
            let text = format!("the token lacks the scope {SCOPE}");
            let response = problem::oauth_error(StatusCode::FORBIDDEN, "insufficient_scope", Some(&text));
            let challenge = problem::bearer_challenge("insufficient_scope", &text);
            return Err(reply::with(response, header::WWW_AUTHENTICATE, &challenge).into());
        }
        return Ok(Client { introspects: true, ..Client::new(&access.token.client_id) });
    }
    let client = authenticate_client(context, form).await?;
    if client.is_public() {
        let text = "introspection requires a client with a secret or a key";
        return Err(Problem::oauth(StatusCode::UNAUTHORIZED, "invalid_client", text));
    }
    Ok(client)
}
