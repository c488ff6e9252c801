//! POST {base}/oauth2/introspect (RFC 7662): for clients with a secret or a key, and for whoever has a token with
//! the scope `trefoil/introspect` (SMART App Launch 2.2, token introspection).

use http::{StatusCode, header};
use identity::client::Client;

use super::{client, form};
use crate::http::extract::Call;
use crate::http::problem::{self, Dialect};
use crate::http::reply::{self, Response};

/// Scope of tokens that may introspect every token.
pub const SCOPE: &str = "trefoil/introspect";

/// Says what a token says.
pub async fn post(mut call: Call) -> Response {
    let form = match form(&mut call).await {
        Ok(form) => form,
        Err(response) => return response,
    };
    let client = match caller(&call, &form).await {
        Ok(client) => client,
        Err(response) => return response,
    };
    let Some(token) = form.get("token") else {
        return problem::oauth(StatusCode::BAD_REQUEST, "invalid_request", Some("token is missing"));
    };
    match call.app.identity.introspect(token, &client, call.now).await {
        Ok(told) => reply::no_store(reply::json(StatusCode::OK, &told)),
        Err(error) => problem::store(Dialect::OAuth, &error),
    }
}

async fn caller(call: &Call, form: &identity::params::Params) -> Result<Client, Response> {
    let identity = &call.app.identity;
    if let Ok(Some(sent)) = call.presented() {
        let access =
            identity.judge(&sent, call.now).await.map_err(|error| problem::userinfo_token(&error))?;
        if !access.scopes.has(SCOPE) {
            let text = format!("the token lacks the scope {SCOPE}");
            let response = problem::oauth(StatusCode::FORBIDDEN, "insufficient_scope", Some(&text));
            let challenge = problem::bearer_challenge("insufficient_scope", &text);
            return Err(reply::with(response, header::WWW_AUTHENTICATE, &challenge));
        }
        return Ok(Client { introspects: true, ..Client::new(&access.token.client_id) });
    }
    let client = client(call, form).await?;
    if client.is_public() {
        let text = "introspection needs a client with a secret or a key";
        return Err(problem::oauth(StatusCode::UNAUTHORIZED, "invalid_client", Some(text)));
    }
    Ok(client)
}
