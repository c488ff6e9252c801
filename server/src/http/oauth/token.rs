//! POST {base}/oauth2/token: authorization_code, refresh_token, client_credentials, device_code (RFC 6749
//! 4.1.3, 4.4, 6; SMART Backend Services; RFC 8628 3.4).

use http::{StatusCode, header};
use identity::model::client::{AuthMethod, Client, GrantType};
use identity::model::client_values::one_of;
use identity::model::scope::{NamedScope, ScopeContext, Scopes, SmartScope};
use identity::params::Params;
use identity::tokens::grant::{CodeExchange, Grant, GrantError};
use identity::tokens::id_token::IdTokenContext;
use resources::filter::TypeFilter;
use serde::Serialize;
use serde_json::Value;

use super::{authenticate_client, read_form, verify_proof};
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// A successful response (RFC 6749 section 5.1).
#[derive(Serialize)]
struct TokenResponse {
    access_token: String,
    token_type: &'static str,
    expires_in: i64,
    scope: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    id_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refresh_token: Option<String>,
    /// The launch patient (SMART App Launch 2.2).
    #[serde(skip_serializing_if = "Option::is_none")]
    patient: Option<String>,
    /// The encounter of an EHR launch.
    #[serde(skip_serializing_if = "Option::is_none")]
    encounter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    need_patient_banner: Option<bool>,
    /// Further resources of an EHR launch.
    #[serde(rename = "fhirContext", skip_serializing_if = "Vec::is_empty")]
    fhir_context: Vec<Value>,
    /// The reason of an EHR launch.
    #[serde(skip_serializing_if = "Option::is_none")]
    intent: Option<String>,
}

fn token_problem(error: &str, text: &str) -> Problem {
    Problem::oauth(StatusCode::BAD_REQUEST, error, text)
}

/// Answers a token request.
pub async fn issue_tokens(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let form = read_form(context, body).await?;
    let grant_type = match form.get("grant_type") {
        None => return Err(token_problem("invalid_request", "grant_type is missing")),
        Some(name) => GrantType::named(name).ok_or_else(|| {
            let text = format!("grant_type must be {}", one_of(GrantType::NAMES));
            token_problem("unsupported_grant_type", &text)
        })?,
    };
    let client = match client_of_refresh_token(context, &form).await? {
        Some(client) => client,
        None => authenticate_client(context, &form).await?,
    };
    if !client.grant_types.contains(&grant_type) {
        return Err(token_problem("unauthorized_client", "the client is not registered for this grant_type"));
    }
    // After the client is authenticated, so that strangers cannot fill the memory of used proofs.
    let jkt = verify_proof(context).await?;
    if jkt.is_none() && client.dpop_bound_access_tokens {
        let text = "this client's tokens are bound to a key: send a DPoP proof";
        return Err(token_problem("invalid_dpop_proof", text));
    }
    let tokens = match grant_type {
        GrantType::AuthorizationCode => code_tokens(context, &form, &client, jkt).await,
        GrantType::RefreshToken => refresh_tokens(context, &form, &client, jkt).await,
        GrantType::ClientCredentials => backend_tokens(context, &form, &client, jkt),
        GrantType::DeviceCode => device_tokens(context, &form, &client, jkt).await,
    }?;
    Ok(reply::no_store(reply::json(StatusCode::OK, &tokens)))
}

/// The public client of a refresh token, if the request contains nothing else that identifies the client (RFC
/// 6749 section 6).
async fn client_of_refresh_token(context: &RequestContext, form: &Params) -> Result<Option<Client>, Problem> {
    let identifies_client = |name: &&str| form.get(name).is_some();
    let names = ["client_id", "client_secret", "client_assertion", "client_assertion_type"];
    if context.header(header::AUTHORIZATION).is_some() || names.iter().any(identifies_client) {
        return Ok(None);
    }
    let (Some("refresh_token"), Some(token)) = (form.get("grant_type"), form.get("refresh_token")) else {
        return Ok(None);
    };
    let identity = &context.app.identity;
    let Some(client_id) = identity.grants.refresh_token_client(token, context.now).await? else {
        return Err(GrantError::Unknown.into());
    };
    let client = identity.clients.active_client(&client_id, context.now).await?;
    Ok(client.filter(|client| client.auth_methods.contains(&AuthMethod::None)))
}

async fn code_tokens(
    context: &RequestContext,
    form: &Params,
    client: &Client,
    jkt: Option<String>,
) -> Result<TokenResponse, Problem> {
    let need = |name: &'static str| {
        form.get(name).ok_or_else(|| token_problem("invalid_request", &format!("{name} is missing")))
    };
    let exchange = CodeExchange {
        code: need("code")?,
        redirect_uri: need("redirect_uri")?,
        verifier: form.get("code_verifier"),
        jkt: jkt.as_deref(),
        resource: requested_resource(context, form)?,
    };
    let grant = context.app.identity.grants.redeem_authorization_code(&exchange, client, context.now).await?;
    first_tokens(context, client, &grant).await
}

/// The only audience that the client wants for the access token (RFC 8707 section 2.2), if it names one.
fn requested_resource<'a>(context: &'a RequestContext, form: &Params) -> Result<Option<&'a str>, Problem> {
    if form.all("resource").nth(1).is_some() {
        return Err(token_problem("invalid_request", "resource was sent more than once; name one resource"));
    }
    context.app.identity.tokens.named_audience(form.all("resource")).map_err(|_| {
        let text = "resource must be the issuer or the FHIR base URL of this server (RFC 8707)";
        token_problem("invalid_target", text)
    })
}

async fn device_tokens(
    context: &RequestContext,
    form: &Params,
    client: &Client,
    jkt: Option<String>,
) -> Result<TokenResponse, Problem> {
    let code =
        form.get("device_code").ok_or_else(|| token_problem("invalid_request", "device_code is missing"))?;
    let grant =
        context.app.identity.devices.redeem_device_code(code, client, jkt.as_deref(), context.now).await?;
    first_tokens(context, client, &grant).await
}

/// Issues the first tokens of a grant, with a refresh token if the client may have one.
async fn first_tokens(
    context: &RequestContext,
    client: &Client,
    grant: &Grant,
) -> Result<TokenResponse, Problem> {
    let identity = &context.app.identity;
    let refresh_token = if grant.allows_refresh(client) {
        Some(identity.grants.issue_refresh_token(grant, client, context.now).await?)
    } else {
        None
    };
    user_tokens(context, client, grant, refresh_token).await
}

/// The scopes of a request. Spaces alone name none, as no parameter does.
fn requested_scopes(form: &Params) -> Result<Option<Scopes>, Problem> {
    let scopes = Scopes::parse(form.get("scope").unwrap_or_default())
        .map_err(|error| token_problem("invalid_scope", &error.to_string()))?;
    Ok(Some(scopes).filter(|scopes| !scopes.is_empty()))
}

async fn refresh_tokens(
    context: &RequestContext,
    form: &Params,
    client: &Client,
    jkt: Option<String>,
) -> Result<TokenResponse, Problem> {
    let token = form
        .get("refresh_token")
        .ok_or_else(|| token_problem("invalid_request", "refresh_token is missing"))?;
    let scopes = requested_scopes(form)?;
    let (grant, successor) = context
        .app
        .identity
        .grants
        .redeem_refresh_token(
            token,
            client,
            scopes.as_ref(),
            jkt.as_deref(),
            requested_resource(context, form)?,
            context.now,
        )
        .await?;
    user_tokens(context, client, &grant, Some(successor)).await
}

async fn user_tokens(
    context: &RequestContext,
    client: &Client,
    grant: &Grant,
    refresh_token: Option<String>,
) -> Result<TokenResponse, Problem> {
    let identity = &context.app.identity;
    let user = identity.users.signed_in_user(&grant.sub, grant.signed_in_by(), context.now).await?;
    let lifetime = identity.lifetimes.for_client(client).access_token;
    let access_token = identity.tokens.mint_access_token(grant, user.as_ref(), lifetime, context.now);
    let token_context = IdTokenContext { access_token: Some(&access_token), user: user.as_ref() };
    let id_token = match grant.scopes.has(NamedScope::Openid) {
        true => Some(identity.tokens.mint_id_token(client, grant, token_context, context.now).await?),
        false => None,
    };
    Ok(TokenResponse {
        access_token,
        token_type: token_type(grant.jkt.as_deref()),
        expires_in: lifetime.as_secs(),
        scope: grant.scopes.to_string(),
        id_token,
        refresh_token,
        patient: grant.patient.clone(),
        encounter: grant.encounter.clone(),
        need_patient_banner: grant.patient.as_ref().map(|_| grant.need_patient_banner),
        fhir_context: grant.fhir_context.clone(),
        intent: grant.intent.clone(),
    })
}

fn token_type(jkt: Option<&str>) -> &'static str {
    if jkt.is_some() { "DPoP" } else { "Bearer" }
}

/// Grants `system/` scopes and plain custom ones by client_credentials. Scopes that are not registered for
/// the client are dropped; if none is left, the error is `invalid_scope`.
fn backend_tokens(
    context: &RequestContext,
    form: &Params,
    client: &Client,
    jkt: Option<String>,
) -> Result<TokenResponse, Problem> {
    let resource = requested_resource(context, form)?;
    let requested = requested_scopes(form)?.unwrap_or_else(|| client.scopes.clone());
    // There is no user, so that scopes for users and for refresh tokens have no meaning.
    let scopes = requested.covered_by(&client.scopes).filter(|scope| match SmartScope::parse(scope) {
        Some(smart) => {
            smart.context == ScopeContext::System
                && smart.query.is_none_or(|query| TypeFilter::is_supported(smart.kind, query))
        }
        None => !NamedScope::named(scope).is_some_and(NamedScope::needs_user),
    });
    if scopes.is_empty() {
        return Err(token_problem(
            "invalid_scope",
            "none of the requested scopes is registered for this client",
        ));
    }
    Ok(TokenResponse {
        token_type: token_type(jkt.as_deref()),
        access_token: context.app.identity.tokens.mint_backend_token(
            client,
            &scopes,
            jkt,
            resource,
            context.now,
        ),
        expires_in: context.app.identity.lifetimes.for_client(client).backend_access_token.as_secs(),
        scope: scopes.to_string(),
        id_token: None,
        refresh_token: None,
        patient: None,
        encounter: None,
        need_patient_banner: None,
        fhir_context: Vec::new(),
        intent: None,
    })
}
