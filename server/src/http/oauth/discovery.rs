//! Discovery documents: OpenID Connect Discovery 1.0, RFC 8414, RFC 7517, and SMART's smart-configuration.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{StatusCode, header};
use identity::SigningAlg;
use identity::lifetimes;
use identity::model::client_values::{AuthMethod, GrantType, ResponseType};
use identity::model::members::CLAIMS;
use identity::model::scope::NamedScope;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::http::extract::RequestContext;
use crate::http::pages::language::Language;
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// Response types of the front channel, which are advertised if a client is registered for them.
const FRONT_CHANNEL: [ResponseType; 3] =
    [ResponseType::Token, ResponseType::IdToken, ResponseType::IdTokenToken];
/// Scopes of resources that are advertised. Those of single types, and other permissions, are accepted too.
const RESOURCE_SCOPES: [&str; 8] = [
    "patient/*.rs",
    "patient/*.cruds",
    "patient/*.read",
    "user/*.rs",
    "user/*.cruds",
    "system/*.rs",
    "system/*.read",
    "system/*.cruds",
];

/// Claims of tokens, and of users beside [`CLAIMS`].
const TOKEN_CLAIMS: [&str; 11] =
    ["sub", "iss", "aud", "exp", "iat", "auth_time", "nonce", "acr", "amr", "sid", "fhirUser"];

fn claims(context: &RequestContext) -> Vec<String> {
    let declared = context.app.settings().claims.iter().map(|claim| claim.name.clone()).collect::<Vec<_>>();
    let usual = TOKEN_CLAIMS.into_iter().chain(CLAIMS.iter().map(|row| row.name)).map(str::to_owned);
    usual.chain(declared).collect()
}

fn confidential_methods() -> Vec<&'static str> {
    AuthMethod::ALL.iter().filter(|method| **method != AuthMethod::None).map(|method| method.name()).collect()
}

fn assertion_algs() -> Vec<&'static str> {
    identity::assertion_algorithms().collect()
}

fn cacheable(response: Response) -> Response {
    let life = format!("public, max-age={}", lifetimes::PUBLISHED_KEY_SET.as_secs());
    reply::with(response, header::CACHE_CONTROL, &life)
}

/// The public scopes and the custom ones.
fn scopes(context: &RequestContext) -> Vec<String> {
    let own = context.app.settings().scopes.iter().map(|scope| scope.name.clone()).collect::<Vec<_>>();
    let public = NamedScope::standard().map(NamedScope::name).chain(RESOURCE_SCOPES).map(str::to_owned);
    public.chain(own).collect()
}

/// GET {base}/.well-known/openid-configuration and …/oauth-authorization-server
pub async fn openid_configuration(context: &RequestContext) -> Result<Response, Problem> {
    let base = &context.app.address.base_url;
    let address = |path: &str| format!("{base}{path}");
    let (mut response_types, mut grant_types) = (vec![ResponseType::Code], GrantType::NAMES.to_vec());
    for response_type in FRONT_CHANNEL {
        let (overview, identity) = (&context.app.client_overview, &context.app.identity);
        if overview.has_response_type(response_type, identity, context.now).await? {
            response_types.push(response_type);
        }
    }
    // `query` is the only mode of response_type=code, beside `form_post`, and never that of the others.
    let mut response_modes = vec!["query"];
    if response_types.len() > 1 {
        grant_types.push("implicit");
        response_modes.push("fragment");
    }
    response_modes.push("form_post");
    Ok(cacheable(reply::json(
        StatusCode::OK,
        &json!({
            "issuer": base,
            "authorization_endpoint": address("/oauth2/authorize"),
            "token_endpoint": address("/oauth2/token"),
            "userinfo_endpoint": address("/oauth2/userinfo"),
            "revocation_endpoint": address("/oauth2/revoke"),
            "introspection_endpoint": address("/oauth2/introspect"),
            // A public client must not learn the content of tokens (RFC 7662 section 4).
            "introspection_endpoint_auth_methods_supported": confidential_methods(),
            "introspection_endpoint_auth_signing_alg_values_supported": assertion_algs(),
            "pushed_authorization_request_endpoint": address("/oauth2/par"),
            "require_pushed_authorization_requests": false,
            "dpop_signing_alg_values_supported": identity::tokens::dpop::PROOF_ALGORITHMS,
            "display_values_supported": ["page"],
            "device_authorization_endpoint": address("/oauth2/device_authorization"),
            "end_session_endpoint": address("/logout"),
            "jwks_uri": address("/.well-known/jwks.json"),
            "response_types_supported": response_types,
            "response_modes_supported": response_modes,
            "grant_types_supported": grant_types,
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": SigningAlg::ALL.map(SigningAlg::name),
            "scopes_supported": scopes(context),
            "claims_supported": claims(context),
            "token_endpoint_auth_methods_supported": AuthMethod::NAMES,
            "token_endpoint_auth_signing_alg_values_supported": assertion_algs(),
            "revocation_endpoint_auth_methods_supported": AuthMethod::NAMES,
            "revocation_endpoint_auth_signing_alg_values_supported": assertion_algs(),
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": true,
            "claims_parameter_supported": false,
            "request_parameter_supported": false,
            "request_uri_parameter_supported": false,
            "prompt_values_supported": ["none", "login", "consent", "select_account"],
            "ui_locales_supported": Language::ALL.map(Language::tag),
        }),
    )))
}

/// GET {base}/.well-known/jwks.json
pub async fn key_set(context: &RequestContext) -> Result<Response, Problem> {
    let keys = context.app.identity.signing_keys.published_key_set(context.now).await?.to_string();
    let tag = format!("\"{}\"", URL_SAFE_NO_PAD.encode(&Sha256::digest(keys.as_bytes())[..12]));
    let response = match context.has_version(&tag) {
        true => reply::empty(StatusCode::NOT_MODIFIED),
        false => reply::body(StatusCode::OK, "application/json;charset=UTF-8", keys),
    };
    Ok(cacheable(reply::with(response, header::ETAG, &tag)))
}

/// GET {fhir_base}/.well-known/smart-configuration: always JSON, whatever `Accept` contains.
pub async fn smart_configuration(context: &RequestContext) -> Result<Response, Problem> {
    let base = &context.app.address.base_url;
    let address = |path: &str| format!("{base}{path}");
    Ok(cacheable(reply::json(
        StatusCode::OK,
        &json!({
            "issuer": base,
            "jwks_uri": address("/.well-known/jwks.json"),
            "authorization_endpoint": address("/oauth2/authorize"),
            "token_endpoint": address("/oauth2/token"),
            "revocation_endpoint": address("/oauth2/revoke"),
            "introspection_endpoint": address("/oauth2/introspect"),
            "management_endpoint": address("/account"),
            "grant_types_supported": [GrantType::AuthorizationCode, GrantType::ClientCredentials],
            "scopes_supported": scopes(context),
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": AuthMethod::NAMES,
            "token_endpoint_auth_signing_alg_values_supported": assertion_algs(),
            "capabilities": ["launch-ehr", "launch-standalone", "context-banner", "context-ehr-patient", "context-ehr-encounter",
                "context-standalone-patient", "sso-openid-connect", "client-public",
                "client-confidential-symmetric", "client-confidential-asymmetric", "permission-offline", "permission-online",
                "permission-patient", "permission-user", "permission-v1", "permission-v2"],
        }),
    )))
}

/// GET {base}/.well-known/oauth-protected-resource/fhir/R4 (RFC 9728): the authorization server of the FHIR
/// endpoints.
pub async fn protected_resource(context: &RequestContext) -> Result<Response, Problem> {
    let (base, fhir) = (&context.app.address.base_url, &context.app.address.fhir_base);
    Ok(cacheable(reply::json(
        StatusCode::OK,
        &json!({
            "resource": fhir,
            "authorization_servers": [base],
            "scopes_supported": scopes(context),
            "bearer_methods_supported": ["header"],
            "dpop_signing_alg_values_supported": identity::tokens::dpop::PROOF_ALGORITHMS,
            "resource_name": "Trefoil FHIR R4",
        }),
    )))
}
