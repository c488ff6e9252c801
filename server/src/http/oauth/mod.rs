//! `/oauth2/*` and discovery: the handlers of the authorization server.

pub mod authorization_answer;
pub mod authorize;
pub mod continuation;
pub mod device_authorization;
pub mod discovery;
pub mod federation;
pub mod introspect;
pub mod launch;
pub mod par;
pub mod revoke;
pub mod token;
pub mod userinfo;

use http::header;
use identity::model::client::Client;
use identity::params::Params;
use identity::tokens::dpop::{DpopRequest, ProofError};

use super::extract::{RequestBody, RequestContext};
use super::problem::Problem;
use crate::records::audit;

/// Maximum size of a form, in bytes.
const FORM_LIMIT: usize = 64 * 1024;

/// Reads a form: checks the media type, and that no parameter is repeated.
async fn read_form(context: &RequestContext, body: &mut RequestBody) -> Result<Params, Problem> {
    let invalid = |text: &str| Problem::oauth(http::StatusCode::BAD_REQUEST, "invalid_request", text);
    if context.content_type().as_deref() != Some("application/x-www-form-urlencoded") {
        return Err(invalid("the body must be application/x-www-form-urlencoded"));
    }
    let body = body.bytes(FORM_LIMIT).await?;
    let form = Params::parse(&body);
    match form.defect() {
        Some(defect) => Err(invalid(&defect.to_string())),
        None => Ok(form),
    }
}

/// Authenticates the client that sent a form, by the header or by the form.
async fn authenticate_client(context: &RequestContext, form: &Params) -> Result<Client, Problem> {
    let authorization = context.header(header::AUTHORIZATION);
    let client =
        context.app.identity.client_auth.authenticate_client(authorization, form, context.now).await?;
    audit::set_client(&client.client_id);
    // The id of a public client is no secret.
    if !client.is_public() {
        audit::mark_authenticated();
    }
    Ok(client)
}

/// Reads a form, and authenticates the client that sent it.
async fn read_client_form(
    context: &RequestContext,
    body: &mut RequestBody,
) -> Result<(Params, Client), Problem> {
    let form = read_form(context, body).await?;
    let client = authenticate_client(context, &form).await?;
    Ok((form, client))
}

/// Verifies the DPoP proof, if there is one. Returns the thumbprint of its key.
async fn verify_proof(context: &RequestContext) -> Result<Option<String>, ProofError> {
    let Some(proof) = context.proof()? else { return Ok(None) };
    let url = format!("{}{}", context.app.address.base_url, context.path);
    let request = DpopRequest { method: context.method.as_str(), url: &url, access_token: None };
    context.app.identity.dpop.verify_proof(proof, &request, context.now).await.map(Some)
}
