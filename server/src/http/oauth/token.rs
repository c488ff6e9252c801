//! POST {base}/oauth2/token: authorization_code, refresh_token, client_credentials, device_code (RFC 6749
//! 4.1.3, 4.4, 6; SMART Backend Services; RFC 8628 3.4).

use http::StatusCode;
use identity::client::{Client, GrantType};
use identity::grant::{CodeExchange, Grant, GrantError};
use identity::params::Params;
use identity::scope::{Context, Scopes, SmartScope};
use identity::token::{ACCESS_LIFE, BACKEND_LIFE, Beside};
use serde::Serialize;

use super::{client, form, proven};
use crate::http::extract::Call;
use crate::http::problem;
use crate::http::reply::{self, Response};

/// A successful answer (RFC 6749 5.1).
#[derive(Serialize)]
struct Tokens {
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
    #[serde(skip_serializing_if = "Option::is_none")]
    need_patient_banner: Option<bool>,
}

fn wrong(error: &str, text: &str) -> Response {
    problem::oauth(StatusCode::BAD_REQUEST, error, Some(text))
}

/// Answers a token request.
pub async fn post(mut call: Call) -> Response {
    let form = match form(&mut call).await {
        Ok(form) => form,
        Err(response) => return response,
    };
    let grant_type = match form.get("grant_type") {
        None => return wrong("invalid_request", "grant_type is missing"),
        Some("authorization_code") => GrantType::AuthorizationCode,
        Some("refresh_token") => GrantType::RefreshToken,
        Some("client_credentials") => GrantType::ClientCredentials,
        Some("urn:ietf:params:oauth:grant-type:device_code") => GrantType::DeviceCode,
        Some(_) => {
            return wrong(
                "unsupported_grant_type",
                "grant_type must be authorization_code, refresh_token, client_credentials or urn:ietf:params:oauth:grant-type:device_code",
            );
        }
    };
    let client = match client(&call, &form).await {
        Ok(client) => client,
        Err(response) => return response,
    };
    if !client.grant_types.contains(&grant_type) {
        return wrong("unauthorized_client", "the client is not registered for this grant_type");
    }
    // After the client is known, so that strangers cannot fill the memory of used proofs.
    let jkt = match proven(&call).await {
        Ok(None) if client.dpop_bound => {
            return wrong("invalid_dpop_proof", "this client's tokens are bound to a key: send a DPoP proof");
        }
        Ok(jkt) => jkt,
        Err(error) => return problem::proof(&error),
    };
    let answered = match grant_type {
        GrantType::AuthorizationCode => code(&call, &form, &client, jkt).await,
        GrantType::RefreshToken => refresh(&call, &form, &client, jkt).await,
        GrantType::ClientCredentials => backend(&call, &form, &client, jkt),
        GrantType::DeviceCode => device(&call, &form, &client, jkt).await,
    };
    match answered {
        Ok(tokens) => reply::no_store(reply::json(StatusCode::OK, &tokens)),
        Err(response) => response,
    }
}

async fn code(call: &Call, form: &Params, client: &Client, jkt: Option<String>) -> Result<Tokens, Response> {
    let need = |name: &'static str| {
        form.get(name).ok_or_else(|| wrong("invalid_request", &format!("{name} is missing")))
    };
    let sent = CodeExchange {
        code: need("code")?,
        redirect_uri: need("redirect_uri")?,
        verifier: form.get("code_verifier"),
        jkt: jkt.as_deref(),
    };
    let grant = call
        .app
        .identity
        .redeem_code(&sent, client, call.now)
        .await
        .map_err(|error| problem::grant(&error))?;
    first_tokens(call, client, &grant).await
}

async fn device(
    call: &Call,
    form: &Params,
    client: &Client,
    jkt: Option<String>,
) -> Result<Tokens, Response> {
    let code = form.get("device_code").ok_or_else(|| wrong("invalid_request", "device_code is missing"))?;
    let grant = call
        .app
        .identity
        .redeem_device(code, client, jkt.as_deref(), call.now)
        .await
        .map_err(|error| problem::device(&error))?;
    first_tokens(call, client, &grant).await
}

/// The first tokens of a grant, with a refresh token where the client may have one.
async fn first_tokens(call: &Call, client: &Client, grant: &Grant) -> Result<Tokens, Response> {
    let identity = &call.app.identity;
    let refresh_token = if identity.may_refresh(client, grant) {
        let issued = identity.issue_refresh(grant, client, call.now).await;
        Some(issued.map_err(|error| problem::grant(&GrantError::Store(error)))?)
    } else {
        None
    };
    user_tokens(call, client, grant, refresh_token).await
}

async fn refresh(
    call: &Call,
    form: &Params,
    client: &Client,
    jkt: Option<String>,
) -> Result<Tokens, Response> {
    let token =
        form.get("refresh_token").ok_or_else(|| wrong("invalid_request", "refresh_token is missing"))?;
    let scopes = form
        .get("scope")
        .map(Scopes::parse)
        .transpose()
        .map_err(|error| wrong("invalid_scope", &error.to_string()))?;
    let (grant, successor) = call
        .app
        .identity
        .redeem_refresh(token, client, scopes.as_ref(), jkt.as_deref(), call.now)
        .await
        .map_err(|error| problem::grant(&error))?;
    user_tokens(call, client, &grant, Some(successor)).await
}

async fn user_tokens(
    call: &Call,
    client: &Client,
    grant: &Grant,
    refresh_token: Option<String>,
) -> Result<Tokens, Response> {
    let identity = &call.app.identity;
    let user = identity
        .user(&grant.sub, call.now)
        .await
        .map_err(|error| problem::grant(&GrantError::Store(error)))?;
    let access_token = identity.mint_access_token(grant, call.now);
    let beside = Beside { access_token: Some(&access_token), user: user.as_ref() };
    let id_token =
        grant.scopes.has("openid").then(|| identity.mint_id_token(client, grant, beside, call.now));
    Ok(Tokens {
        access_token,
        token_type: token_type(grant.jkt.as_deref()),
        expires_in: ACCESS_LIFE.as_secs(),
        scope: grant.scopes.to_string(),
        id_token,
        refresh_token,
        patient: grant.patient.clone(),
        need_patient_banner: grant.patient.as_ref().map(|_| true),
    })
}

fn token_type(jkt: Option<&str>) -> &'static str {
    if jkt.is_some() { "DPoP" } else { "Bearer" }
}

/// client_credentials: `system/` scopes and plain custom ones; those that the client does not have
/// are dropped, and none left is `invalid_scope`.
fn backend(call: &Call, form: &Params, client: &Client, jkt: Option<String>) -> Result<Tokens, Response> {
    let asked = match form.get("scope") {
        Some(text) => Scopes::parse(text).map_err(|error| wrong("invalid_scope", &error.to_string()))?,
        None => client.scopes.clone(),
    };
    let granted = asked.covered_by(&client.scopes).filter(|scope| match SmartScope::parse(scope) {
        Some(smart) => smart.context == Context::System,
        None => !identity::scope::RESERVED.contains(&scope) && scope != "offline_access",
    });
    if granted.is_empty() {
        return Err(wrong("invalid_scope", "none of the scopes asked for is registered for this client"));
    }
    Ok(Tokens {
        token_type: token_type(jkt.as_deref()),
        access_token: call.app.identity.mint_backend_token(client, &granted, jkt, call.now),
        expires_in: BACKEND_LIFE.as_secs(),
        scope: granted.to_string(),
        id_token: None,
        refresh_token: None,
        patient: None,
        need_patient_banner: None,
    })
}
