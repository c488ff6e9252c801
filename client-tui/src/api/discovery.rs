//! Endpoints, from OpenID Connect Discovery 1.0 and SMART's smart-configuration.

use serde::Deserialize;

use super::{Api, ApiError};

/// Members of `{base}/.well-known/openid-configuration` that the client uses.
#[derive(Clone, Debug, Deserialize)]
pub struct OpenIdConfiguration {
    /// Issuer, which equals the base URL (Discovery 4.3).
    pub issuer: String,
    pub authorization_endpoint: String,
    pub token_endpoint: String,
    pub userinfo_endpoint: String,
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
    /// Whether each authorization response contains `iss` (RFC 9207).
    #[serde(default)]
    pub authorization_response_iss_parameter_supported: bool,
}

/// Members of `{fhir_base}/.well-known/smart-configuration` that the client uses.
#[derive(Clone, Debug, Deserialize)]
pub struct SmartConfiguration {
    pub token_endpoint: String,
}

impl Api {
    /// The endpoints for users. They are read on first use.
    ///
    /// # Errors
    /// The error of the request, or [`ApiError::Unexpected`] if the document has another issuer.
    pub async fn openid(&self) -> Result<&OpenIdConfiguration, ApiError> {
        let ask = || async {
            let base_url = &self.profile().base_url;
            let url = format!("{base_url}/.well-known/openid-configuration");
            let configuration: OpenIdConfiguration = self.call(self.http().get(&url)).await?.json(&url)?;
            if configuration.issuer.trim_end_matches('/') != base_url {
                let reason = format!("the issuer is '{}' and not {base_url}", configuration.issuer);
                return Err(ApiError::Unexpected { url, reason });
            }
            for endpoint in [
                &configuration.authorization_endpoint,
                &configuration.token_endpoint,
                &configuration.userinfo_endpoint,
            ] {
                check_safe(endpoint)?;
            }
            Ok(configuration)
        };
        self.0.openid.get_or_try_init(ask).await
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
