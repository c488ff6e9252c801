//! What this server can do, for programs: OpenID Connect Discovery 1.0, RFC 8414, RFC 7517, and
//! SMART's smart-configuration.

use http::{StatusCode, header};
use serde_json::json;

use crate::http::extract::Call;
use crate::http::reply::{self, Response};

const AUTH_METHODS: [&str; 4] = ["none", "client_secret_basic", "client_secret_post", "private_key_jwt"];
const CONFIDENTIAL_METHODS: [&str; 3] = ["client_secret_basic", "client_secret_post", "private_key_jwt"];
const ASSERTION_ALGS: [&str; 2] = ["RS384", "ES384"];
const GRANT_TYPES: [&str; 3] = ["authorization_code", "refresh_token", "client_credentials"];
const RESPONSE_TYPES: [&str; 4] = ["code", "token", "id_token", "id_token token"];
const SCOPES: [&str; 15] = [
    "openid",
    "profile",
    "email",
    "phone",
    "offline_access",
    "fhirUser",
    "launch/patient",
    "patient/*.rs",
    "patient/*.cruds",
    "patient/*.read",
    "user/*.rs",
    "user/*.cruds",
    "system/*.rs",
    "system/*.read",
    "system/*.cruds",
];

fn cached(response: Response) -> Response {
    reply::with(response, header::CACHE_CONTROL, "public, max-age=300")
}

/// GET {base}/.well-known/openid-configuration and …/oauth-authorization-server
pub async fn openid_configuration(call: Call) -> Response {
    let base = &call.app.base_url;
    let at = |path: &str| format!("{base}{path}");
    cached(reply::json(
        StatusCode::OK,
        &json!({
            "issuer": base,
            "authorization_endpoint": at("/oauth2/authorize"),
            "token_endpoint": at("/oauth2/token"),
            "userinfo_endpoint": at("/oauth2/userinfo"),
            "revocation_endpoint": at("/oauth2/revoke"),
            "introspection_endpoint": at("/oauth2/introspect"),
            "introspection_endpoint_auth_methods_supported": CONFIDENTIAL_METHODS,
            "introspection_endpoint_auth_signing_alg_values_supported": ASSERTION_ALGS,
            "pushed_authorization_request_endpoint": at("/oauth2/par"),
            "require_pushed_authorization_requests": false,
            "dpop_signing_alg_values_supported": identity::dpop::ALGORITHMS,
            "display_values_supported": ["page"],
            "end_session_endpoint": at("/logout"),
            "jwks_uri": at("/.well-known/jwks.json"),
            "response_types_supported": RESPONSE_TYPES,
            "response_modes_supported": ["query", "fragment"],
            "grant_types_supported": GRANT_TYPES.into_iter().chain(["implicit"]).collect::<Vec<_>>(),
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "scopes_supported": SCOPES,
            "claims_supported": ["sub", "iss", "aud", "exp", "iat", "auth_time", "nonce", "amr", "sid", "fhirUser", "name", "given_name",
                "family_name", "preferred_username", "email", "email_verified", "phone_number", "phone_number_verified"],
            "token_endpoint_auth_methods_supported": AUTH_METHODS,
            "token_endpoint_auth_signing_alg_values_supported": ASSERTION_ALGS,
            "revocation_endpoint_auth_methods_supported": AUTH_METHODS,
            "revocation_endpoint_auth_signing_alg_values_supported": ASSERTION_ALGS,
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": true,
            "claims_parameter_supported": false,
            "request_parameter_supported": false,
            "request_uri_parameter_supported": false,
            "prompt_values_supported": ["none", "login", "consent", "select_account"],
        }),
    ))
}

/// GET {base}/.well-known/jwks.json
pub async fn jwks(call: Call) -> Response {
    cached(reply::json(StatusCode::OK, &call.app.identity.jwks(call.now)))
}

/// GET {fhir_base}/.well-known/smart-configuration: JSON whatever Accept says.
pub async fn smart_configuration(call: Call) -> Response {
    let base = &call.app.base_url;
    let at = |path: &str| format!("{base}{path}");
    cached(reply::json(
        StatusCode::OK,
        &json!({
            "issuer": base,
            "jwks_uri": at("/.well-known/jwks.json"),
            "authorization_endpoint": at("/oauth2/authorize"),
            "token_endpoint": at("/oauth2/token"),
            "revocation_endpoint": at("/oauth2/revoke"),
            "introspection_endpoint": at("/oauth2/introspect"),
            "management_endpoint": at("/account"),
            "grant_types_supported": ["authorization_code", "client_credentials"],
            "scopes_supported": SCOPES,
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": AUTH_METHODS,
            "token_endpoint_auth_signing_alg_values_supported": ASSERTION_ALGS,
            "capabilities": ["launch-standalone", "context-standalone-patient", "sso-openid-connect", "client-public",
                "client-confidential-symmetric", "client-confidential-asymmetric", "permission-offline",
                "permission-patient", "permission-user", "permission-v1", "permission-v2"],
        }),
    ))
}
