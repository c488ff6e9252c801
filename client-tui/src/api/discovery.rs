//! Endpoints, from OpenID Connect Discovery 1.0, RFC 8414 and SMART's smart-configuration.

use serde::Deserialize;

use super::{Api, ApiError};

/// Members of a document of OpenID Connect Discovery or RFC 8414 that the client uses.
#[derive(Clone, Debug, Deserialize)]
pub struct OpenIdConfiguration {
    /// Issuer, which equals the base URL (Discovery 4.3).
    pub issuer: String,
    pub authorization_endpoint: String,
    pub token_endpoint: String,
    pub userinfo_endpoint: Option<String>,
    /// Revocation endpoint (RFC 7009).
    pub revocation_endpoint: Option<String>,
    /// Device authorization endpoint (RFC 8628).
    pub device_authorization_endpoint: Option<String>,
    /// Introspection endpoint (RFC 7662).
    pub introspection_endpoint: Option<String>,
    /// Registration endpoint (RFC 7591).
    pub registration_endpoint: Option<String>,
    /// Address that ends the session of the browser (OpenID Connect RP-Initiated Logout).
    pub end_session_endpoint: Option<String>,
    #[serde(default)]
    pub jwks_uri: String,
    /// Scopes that the server knows; empty if it does not say.
    #[serde(default)]
    pub scopes_supported: Vec<String>,
    /// Whether each authorization response contains `iss` (RFC 9207).
    #[serde(default)]
    pub authorization_response_iss_parameter_supported: bool,
}

/// Members of `{fhir_base}/.well-known/smart-configuration` that the client uses.
#[derive(Clone, Debug, Deserialize)]
pub struct SmartConfiguration {
    pub token_endpoint: String,
    /// Missing if the server has no sign-in for users.
    pub authorization_endpoint: Option<String>,
    pub issuer: Option<String>,
    pub revocation_endpoint: Option<String>,
    pub introspection_endpoint: Option<String>,
    pub registration_endpoint: Option<String>,
    #[serde(default)]
    pub jwks_uri: String,
    #[serde(default)]
    pub scopes_supported: Vec<String>,
}

impl Api {
    /// The endpoints for users, from the first document that the server has. They are read on first use.
    ///
    /// # Errors
    /// The error of the first request, or [`ApiError::Unexpected`] if a document has another issuer.
    pub async fn openid(&self) -> Result<&OpenIdConfiguration, ApiError> {
        let ask = || async {
            let configuration = match self.issuer_document("openid-configuration").await {
                Err(missing) if missing.is_not_found() => match self.oauth_document().await {
                    Some(document) => document,
                    None => return Err(missing),
                },
                found => found?,
            };
            let userinfo = configuration.userinfo_endpoint.as_ref();
            let endpoints = [&configuration.authorization_endpoint, &configuration.token_endpoint];
            endpoints.into_iter().chain(userinfo).try_for_each(|endpoint| check_safe(endpoint))?;
            Ok(configuration)
        };
        self.0.openid.get_or_try_init(ask).await
    }

    /// The document of a server without OpenID Connect: that of RFC 8414, or of SMART.
    async fn oauth_document(&self) -> Option<OpenIdConfiguration> {
        if let Ok(document) = self.issuer_document("oauth-authorization-server").await {
            return Some(document);
        }
        let smart = self.smart().await.ok()?.clone();
        Some(OpenIdConfiguration {
            issuer: smart.issuer.unwrap_or_else(|| self.profile().base_url.clone()),
            authorization_endpoint: smart.authorization_endpoint?,
            token_endpoint: smart.token_endpoint,
            revocation_endpoint: smart.revocation_endpoint,
            introspection_endpoint: smart.introspection_endpoint,
            registration_endpoint: smart.registration_endpoint,
            jwks_uri: smart.jwks_uri,
            scopes_supported: smart.scopes_supported,
            userinfo_endpoint: None,
            device_authorization_endpoint: None,
            end_session_endpoint: None,
            authorization_response_iss_parameter_supported: false,
        })
    }

    /// A document about the issuer. Discovery puts its name after the path of the issuer, RFC 8414 before it.
    async fn issuer_document(&self, name: &str) -> Result<OpenIdConfiguration, ApiError> {
        let base_url = &self.profile().base_url;
        let mut url = format!("{base_url}/.well-known/{name}");
        if name != "openid-configuration"
            && let Ok(mut parsed) = url::Url::parse(base_url)
        {
            let path = parsed.path().trim_end_matches('/').to_owned();
            parsed.set_path(&format!("/.well-known/{name}{path}"));
            url = parsed.to_string();
        }
        let configuration: OpenIdConfiguration = self.call(self.http().get(&url)).await?.json(&url)?;
        if configuration.issuer.trim_end_matches('/') != base_url {
            let reason = format!("the issuer is '{}' and not {base_url}", configuration.issuer);
            return Err(ApiError::Unexpected { url, reason });
        }
        Ok(configuration)
    }

    /// The endpoints for backend clients. They are read on first use.
    ///
    /// # Errors
    /// The error of the request.
    pub async fn smart(&self) -> Result<&SmartConfiguration, ApiError> {
        let ask = || async {
            let url = format!("{}/.well-known/smart-configuration", self.profile().fhir_base);
            let configuration: SmartConfiguration = self.call(self.http().get(&url)).await?.json(&url)?;
            check_safe(&configuration.token_endpoint)?;
            Ok(configuration)
        };
        self.0.smart.get_or_try_init(ask).await
    }
}

/// Checks that a secret may be sent to this address, which must use HTTPS or be on this machine.
pub(crate) fn check_safe(address: &str) -> Result<(), ApiError> {
    let unexpected =
        |reason: &str| ApiError::Unexpected { url: address.to_owned(), reason: reason.to_owned() };
    let url = url::Url::parse(address).map_err(|error| unexpected(&error.to_string()))?;
    let here = match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    };
    if url.scheme() == "https" || (url.scheme() == "http" && here) {
        Ok(())
    } else {
        Err(unexpected("tokens are only sent over https"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(address: &str, safe: bool) {
        assert_eq!(check_safe(address).is_ok(), safe, "{address}");
    }

    #[test]
    fn tokens_are_sent_over_https_or_to_this_machine() {
        check("https://as.example/token", true);
        check("http://localhost:8080/token", true);
        check("http://127.0.0.1/token", true);
        check("http://[::1]:1/token", true);
        check("http://as.example/token", false);
        check("http://localhost.as.example/token", false);
        check("ftp://localhost/token", false);
        check("token", false);
    }
}
