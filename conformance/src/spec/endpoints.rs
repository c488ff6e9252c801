//! The endpoints, which rows use instead of paths. The metadata of a server states where they are.

use serde_json::{Map, Value};

/// An endpoint that rows can name.
#[derive(Debug)]
pub struct Endpoint {
    /// Name in the rows.
    pub name: &'static str,
    /// Member of the authorization server metadata (RFC 8414, OpenID Connect Discovery) with its URL; empty
    /// for an endpoint of Trefoil that no metadata states.
    pub member: &'static str,
    /// Path below the base URL of a Trefoil server.
    pub path: &'static str,
}

/// All endpoints.
pub const ENDPOINTS: [Endpoint; 13] = {
    const fn endpoint(name: &'static str, member: &'static str, path: &'static str) -> Endpoint {
        Endpoint { name, member, path }
    }
    [
        endpoint("authorize", "authorization_endpoint", "/oauth2/authorize"),
        endpoint("token", "token_endpoint", "/oauth2/token"),
        endpoint("par", "pushed_authorization_request_endpoint", "/oauth2/par"),
        endpoint("revoke", "revocation_endpoint", "/oauth2/revoke"),
        endpoint("introspect", "introspection_endpoint", "/oauth2/introspect"),
        endpoint("device_authorization", "device_authorization_endpoint", "/oauth2/device_authorization"),
        endpoint("userinfo", "userinfo_endpoint", "/oauth2/userinfo"),
        endpoint("logout", "end_session_endpoint", "/logout"),
        endpoint("jwks", "jwks_uri", "/.well-known/jwks.json"),
        endpoint("resume", "", "/oauth2/resume"),
        endpoint("idpresponse", "", "/oauth2/idpresponse"),
        endpoint("discovery", "", "/.well-known/openid-configuration"),
        endpoint("fhir", "", "/fhir/R4"),
    ]
};

/// Returns whether only a Trefoil server has an endpoint of this name.
pub fn is_of_trefoil(name: &str) -> bool {
    matches!(name, "resume" | "idpresponse")
}

/// The URLs of all endpoints of a Trefoil server, by name.
pub fn of_trefoil(base_url: &str) -> Map<String, Value> {
    let urls = ENDPOINTS.iter().map(|endpoint| {
        let url = format!("{base_url}{}", endpoint.path);
        (endpoint.name.to_owned(), url.into())
    });
    urls.collect()
}

/// Reasons why a destination has no URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// The row names an endpoint that does not exist.
    #[error("'{name}' is not an endpoint: use one of {known}, or a path that begins with '/'", known = known_names())]
    Unknown {
        /// Beginning of the destination.
        name: String,
    },
    /// The target does not state the URL of the endpoint.
    #[error("the target has no {0}")]
    Lacking(String),
}

fn known_names() -> String {
    ENDPOINTS.map(|endpoint| endpoint.name).join(", ")
}

/// The URL of a destination. A destination is the name of an endpoint, optionally followed by a path, or a
/// path that begins with a slash, or a URL. `urls` has the URLs of the target's endpoints by name.
///
/// # Errors
/// [`DestinationError`] if the destination does not begin with the name of an endpoint of the target.
pub fn resolve(to: &str, base_url: &str, urls: &Value) -> Result<String, DestinationError> {
    if to.starts_with('/') {
        return Ok(format!("{base_url}{to}"));
    }
    if to.starts_with("https://") || to.starts_with("http://") {
        return Ok(to.to_owned());
    }
    let (name, rest) = to.split_at(to.find(['/', '?']).unwrap_or(to.len()));
    let Some(endpoint) = ENDPOINTS.iter().find(|endpoint| endpoint.name == name) else {
        return Err(DestinationError::Unknown { name: name.to_owned() });
    };
    match urls[name].as_str() {
        Some(url) => Ok(format!("{url}{rest}")),
        None if endpoint.member.is_empty() => Err(DestinationError::Lacking(format!("endpoint '{name}'"))),
        None => Err(DestinationError::Lacking(format!("'{}' in its metadata", endpoint.member))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_resolved() {
        let mut urls = of_trefoil("https://a.example");
        urls.remove("par");
        let urls = Value::Object(urls);
        let destination = |to: &str| resolve(to, "https://a.example", &urls);
        assert_eq!(destination("token").unwrap(), "https://a.example/oauth2/token");
        assert_eq!(
            destination("fhir/Patient/1?_summary=true").unwrap(),
            "https://a.example/fhir/R4/Patient/1?_summary=true"
        );
        assert_eq!(destination("fhir?_format=json").unwrap(), "https://a.example/fhir/R4?_format=json");
        assert_eq!(destination("/sign-in").unwrap(), "https://a.example/sign-in");
        assert_eq!(destination("https://b.example/x").unwrap(), "https://b.example/x");
        let unknown = destination("tokn").unwrap_err().to_string();
        assert!(unknown.starts_with("'tokn' is not an endpoint: use one of authorize, token,"), "{unknown}");
        assert_eq!(
            destination("par").unwrap_err().to_string(),
            "the target has no 'pushed_authorization_request_endpoint' in its metadata"
        );
    }
}
