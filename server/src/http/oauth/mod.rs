//! `/oauth2/*` and discovery: the handlers of the authorization server.

pub mod authorize;
pub mod device_authorization;
pub mod discovery;
pub mod federation;
pub mod introspect;
pub mod par;
pub mod revoke;
pub mod token;
pub mod userinfo;

use http::header;
use identity::client::Client;
use identity::dpop::{ProofError, Proven};
use identity::params::Params;

use super::extract::Call;
use super::problem::{self, Dialect};
use super::reply::Response;

/// Largest form that is read, in bytes.
const FORM_LIMIT: usize = 64 * 1024;

/// Reads the form of a request: right media type, nothing twice.
async fn form(call: &mut Call) -> Result<Params, Response> {
    let wrong = |text: &str| problem::oauth(http::StatusCode::BAD_REQUEST, "invalid_request", Some(text));
    if call.content_type().as_deref() != Some("application/x-www-form-urlencoded") {
        return Err(wrong("the body must be application/x-www-form-urlencoded"));
    }
    let body = call.bytes(FORM_LIMIT).await.map_err(|error| problem::unreadable(Dialect::OAuth, &error))?;
    let form = Params::parse(&body);
    match form.defect() {
        Some(defect) => Err(wrong(&defect.to_string())),
        None => Ok(form),
    }
}

/// The client that sent a form, by the header or by the form.
async fn client(call: &Call, form: &Params) -> Result<Client, Response> {
    let authorization = call.header(header::AUTHORIZATION);
    let client = call.app.identity.authenticate_client(authorization, form, call.now).await;
    client.map_err(|error| problem::client_auth(&error))
}

/// A form, and the client that sent it.
async fn form_of_client(call: &mut Call) -> Result<(Params, Client), Response> {
    let form = form(call).await?;
    let client = client(call, &form).await?;
    Ok((form, client))
}

/// The thumbprint of the key that the request proves by DPoP, where it has a proof.
async fn proven(call: &Call) -> Result<Option<String>, ProofError> {
    let Some(proof) = call.proof()? else { return Ok(None) };
    let url = format!("{}{}", call.app.base_url, call.path);
    let request = Proven { method: call.method.as_str(), url: &url, access_token: None };
    call.app.identity.check_proof(proof, &request, call.now).await.map(Some)
}
