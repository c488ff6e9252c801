//! The clients of a run as they are registered at the nodes: ids and configuration.

/// Id of the back-end client.
pub const BACKEND: &str = "backend";
/// Id of the browser application.
pub const APP: &str = "app";
/// Redirect URI of the browser application.
pub const REDIRECT: &str = "https://app.example/callback";

/// The clients of a run in the format of the configuration file. `keys` is the member with the public key of
/// the back-end client. A refresh token is accepted once: the application has no grace for requests that
/// cross.
pub fn configuration(keys: &str) -> String {
    format!(
        r#"
[[client]]
client_id = "{BACKEND}"
{keys}
token_endpoint_auth_signing_algs = ["EdDSA"]
scope = "system/*.read system/*.cud"
access_token_lifetime_s = 86400

[[client]]
client_id = "{APP}"
redirect_uris = ["{REDIRECT}"]
token_endpoint_auth_method = "none"
scope = "openid profile offline_access"
refresh_grace_s = 0
first_party = true
"#
    )
}
