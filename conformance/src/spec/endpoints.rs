//! The endpoints, which rows use instead of paths.

/// Name of each endpoint and its path below the base URL.
pub const ENDPOINTS: &[(&str, &str)] = &[
    ("authorize", "/oauth2/authorize"),
    ("token", "/oauth2/token"),
    ("par", "/oauth2/par"),
    ("revoke", "/oauth2/revoke"),
    ("introspect", "/oauth2/introspect"),
    ("device_authorization", "/oauth2/device_authorization"),
    ("userinfo", "/oauth2/userinfo"),
    ("resume", "/oauth2/resume"),
    ("idpresponse", "/oauth2/idpresponse"),
    ("jwks", "/.well-known/jwks.json"),
    ("discovery", "/.well-known/openid-configuration"),
    ("fhir", "/fhir/R4"),
];

/// Returns the URL of a destination. A destination is the name of an endpoint, optionally followed by a path, or a path
/// that begins with a slash, or a URL.
///
/// # Errors
/// Returns a message if the destination does not begin with the name of an endpoint.
pub fn resolve(to: &str, base_url: &str) -> Result<String, String> {
    if to.starts_with('/') {
        return Ok(format!("{base_url}{to}"));
    }
    if to.starts_with("https://") || to.starts_with("http://") {
        return Ok(to.to_owned());
    }
    let end = to.find(['/', '?']).unwrap_or(to.len());
    let (name, rest) = to.split_at(end);
    match ENDPOINTS.iter().find(|(known, _)| *known == name) {
        Some((_, path)) => Ok(format!("{base_url}{path}{rest}")),
        None => {
            let known: Vec<_> = ENDPOINTS.iter().map(|(name, _)| *name).collect();
            Err(format!(
                "'{name}' is not an endpoint: use one of {}, or a path that begins with '/'",
                known.join(", ")
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_resolved() {
        let at = |to: &str| resolve(to, "https://a.example");
        assert_eq!(at("token").unwrap(), "https://a.example/oauth2/token");
        assert_eq!(
            at("fhir/Patient/1?_summary=true").unwrap(),
            "https://a.example/fhir/R4/Patient/1?_summary=true"
        );
        assert_eq!(at("fhir?_format=json").unwrap(), "https://a.example/fhir/R4?_format=json");
        assert_eq!(at("/sign-in").unwrap(), "https://a.example/sign-in");
        assert_eq!(at("https://b.example/x").unwrap(), "https://b.example/x");
        assert!(
            at("tokn").unwrap_err().starts_with("'tokn' is not an endpoint: use one of authorize, token,")
        );
    }
}
