//! Redirect URIs: the rules for registration, and the comparison with registered ones (RFC 6749 section
//! 3.1.2; RFC 8252 section 7.3 for native apps).
//!
//! The server redirects a browser only to a [`RegisteredRedirectUri`]. Such a value is created by
//! [`RegisteredRedirectUri::parse`] at registration and by [`match_redirect_uri`] for a request.

use serde::{Deserialize, Serialize};
use url::Url;

/// A redirect URI that satisfies the registration rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RegisteredRedirectUri(String);

/// Reasons why a redirect URI is rejected.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RedirectUriError {
    /// The URI is not absolute or has no host.
    #[error("redirect URI '{0}' is not an absolute URI such as https://app.example/callback")]
    NotAbsolute(String),
    /// The URI has a fragment.
    #[error("redirect URI '{0}' must not have a fragment; remove the part from '#'")]
    Fragment(String),
    /// The scheme is neither HTTPS nor HTTP on an allowed loopback host.
    #[error("redirect URI '{0}' is not HTTPS; plain HTTP is allowed for http://localhost only")]
    Scheme(String),
    /// The host contains `*`. Redirect URIs are compared exactly, so that it would match no request.
    #[error("redirect URI '{0}' has '*' in its host; register each host by itself")]
    Wildcard(String),
    /// The scheme is one that an installed application claims (RFC 8252 section 7.1).
    #[error(
        "redirect URI '{0}' has a private-use scheme, which is not offered, because every application on a device can claim it; use https (claimed by the application) or http://127.0.0.1 with application_type native"
    )]
    PrivateScheme(String),
    /// The URI has user information, spaces or control characters.
    #[error(
        "redirect URI '{0}' must not have spaces, control characters, backslashes, non-ASCII characters or a user name"
    )]
    Characters(String),
}

impl RegisteredRedirectUri {
    /// Checks a URI for registration: it must be absolute, have no fragment, and use HTTPS or begin with
    /// `http://localhost`. Native apps may also use the loopback addresses `127.0.0.1` and `[::1]`.
    ///
    /// # Errors
    /// Returns [`RedirectUriError`] for the first violated rule.
    pub fn parse(uri: &str, native: bool) -> Result<Self, RedirectUriError> {
        let text = || uri.to_owned();
        if uri.bytes().any(|b| b <= b' ' || b >= 0x7f || b == b'\\') {
            return Err(RedirectUriError::Characters(text()));
        }
        let url = Url::parse(uri).map_err(|_| RedirectUriError::NotAbsolute(text()))?;
        // RFC 8252 section 7.1: such a scheme is a domain name in reverse order.
        if url.scheme().contains('.') {
            return Err(RedirectUriError::PrivateScheme(text()));
        }
        // The URL parser reads `https:///x` as `https://x/`, as browsers do. A redirect URI must name its
        // host explicitly.
        let names_host = uri.split_once("://").is_some_and(|(_, rest)| !rest.starts_with(['/', '?', '#']));
        let Some(host) = url.host_str().filter(|host| names_host && !host.is_empty()) else {
            return Err(RedirectUriError::NotAbsolute(text()));
        };
        if uri.contains('#') {
            return Err(RedirectUriError::Fragment(text()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(RedirectUriError::Characters(text()));
        }
        match url.scheme() {
            "https" => {}
            "http" if host == "localhost" => {}
            "http" if native && is_loopback(host) => {}
            _ => return Err(RedirectUriError::Scheme(text())),
        }
        Ok(Self(text()))
    }

    /// Rejects a host with a wildcard. Only new registrations are checked.
    ///
    /// # Errors
    /// Returns [`RedirectUriError::Wildcard`] for a `*` in the host.
    pub fn without_wildcard(self) -> Result<Self, RedirectUriError> {
        let host =
            self.0.split_once("://").map_or("", |(_, rest)| rest.split(['/', '?']).next().unwrap_or(""));
        if host.contains('*') { Err(RedirectUriError::Wildcard(self.0)) } else { Ok(self) }
    }

    /// Returns the host, or `None` if the address is on the device of the user: a loopback address, or the
    /// private scheme of an installed application.
    pub fn host(&self) -> Option<String> {
        let url =
            url::Url::parse(self.as_str()).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
        let host = url.host_str().filter(|host| !matches!(*host, "localhost" | "127.0.0.1" | "[::1]"))?;
        Some(host.to_owned())
    }

    /// Returns the URI as it was registered.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the URI with parameters added to its query.
    pub fn with_query(&self, pairs: &[(&str, &str)]) -> String {
        let join = match self.0.find('?') {
            None => "?",
            Some(query_start) if query_start + 1 == self.0.len() => "",
            Some(_) => "&",
        };
        format!("{}{join}{}", self.0, encode_pairs(pairs))
    }

    /// Returns the URI with parameters as its fragment.
    pub fn with_fragment(&self, pairs: &[(&str, &str)]) -> String {
        format!("{}#{}", self.0, encode_pairs(pairs))
    }
}

impl TryFrom<String> for RegisteredRedirectUri {
    type Error = RedirectUriError;
    fn try_from(uri: String) -> Result<Self, RedirectUriError> {
        // Stored URIs are checked again on each read, because the rules may have become stricter. This check
        // accepts loopback addresses; `match_redirect_uri`, which knows whether the client is native, checks
        // them.
        Self::parse(&uri, true)
    }
}

impl From<RegisteredRedirectUri> for String {
    fn from(uri: RegisteredRedirectUri) -> Self {
        uri.0
    }
}

/// Returns the registered redirect URI that equals the URI of a request character by character. For a native
/// app, the port of a loopback address may differ (RFC 8252 section 7.3); in that case the URI of the request
/// is returned.
pub fn match_redirect_uri(
    registered: &[RegisteredRedirectUri],
    requested: &str,
    native: bool,
) -> Option<RegisteredRedirectUri> {
    registered
        .iter()
        .filter(|candidate| RegisteredRedirectUri::parse(candidate.as_str(), native).is_ok())
        .find(|candidate| candidate.0 == requested)
        .cloned()
        .or_else(|| {
            let any_port = native.then(|| without_port(requested))??;
            registered
                .iter()
                .any(|candidate| without_port(candidate.as_str()).as_ref() == Some(&any_port))
                .then(|| RegisteredRedirectUri::parse(requested, true).ok())?
        })
}

/// Splits a loopback URI into the parts before and after its port. Returns `None` for any other URI.
fn without_port(uri: &str) -> Option<(&str, &str)> {
    let (head, rest) = ["http://127.0.0.1", "http://[::1]", "http://localhost"]
        .iter()
        .find_map(|head| uri.strip_prefix(head).map(|rest| (*head, rest)))?;
    let tail = match rest.strip_prefix(':') {
        Some(port) => {
            let digits = port.len() - port.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            if digits == 0 || port[..digits].parse::<u16>().is_err() {
                return None;
            }
            &port[digits..]
        }
        None => rest,
    };
    (tail.is_empty() || tail.starts_with('/') || tail.starts_with('?')).then_some((head, tail))
}

fn is_loopback(host: &str) -> bool {
    matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}

fn encode_pairs(pairs: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn registered(uris: &[&str]) -> Vec<RegisteredRedirectUri> {
        uris.iter().map(|uri| RegisteredRedirectUri::parse(uri, true).unwrap()).collect()
    }

    #[test]
    fn only_addresses_outside_of_the_device_have_a_host() {
        for (uri, host) in [
            ("https://app.example:8443/cb", Some("app.example")),
            ("http://localhost:8765/callback", None),
            ("https://localhost/callback", None),
            ("http://127.0.0.1/callback", None),
        ] {
            let uri = RegisteredRedirectUri::parse(uri, true).unwrap();
            assert_eq!(uri.host().as_deref(), host, "{uri:?}");
        }
    }

    #[test]
    fn registration_requires_https_or_loopback() {
        for good in [
            "https://app.example/cb",
            "https://app.example",
            "http://localhost",
            "http://localhost:3000/cb?a=b",
        ] {
            assert!(RegisteredRedirectUri::parse(good, false).is_ok(), "{good}");
        }
        for bad in [
            "",
            "/cb",
            "cb",
            "http://app.example/cb",
            "https://app.example/cb#",
            "https://app.example/cb#x",
            "http://localhost.evil.example/cb",
            "http://127.0.0.1/cb",
            "https://user@app.example/",
            "javascript:alert(1)",
            "https://app.example/ cb",
            "data:text/html,x",
            "myapp://cb",
            "https:///cb",
            "http://localhost@evil.example/",
        ] {
            assert!(RegisteredRedirectUri::parse(bad, false).is_err(), "{bad}");
        }
        assert!(RegisteredRedirectUri::parse("http://127.0.0.1/cb", true).is_ok());
        assert!(RegisteredRedirectUri::parse("http://[::1]/cb", true).is_ok());
    }

    #[test]
    fn wildcards_and_private_use_schemes_are_named() {
        let parse = |uri: &str| {
            RegisteredRedirectUri::parse(uri, true).and_then(RegisteredRedirectUri::without_wildcard)
        };
        for uri in ["https://*/cb", "https://*.app.example/cb", "https://app.*:8443"] {
            assert_eq!(parse(uri), Err(RedirectUriError::Wildcard(uri.to_owned())));
        }
        assert!(parse("https://app.example/cb?query=*").is_ok());
        for uri in ["com.example.app:/cb", "com.example.app://cb"] {
            assert_eq!(parse(uri), Err(RedirectUriError::PrivateScheme(uri.to_owned())));
        }
    }

    #[test]
    fn only_the_port_of_a_native_loopback_address_is_free() {
        let registered_uris =
            registered(&["http://127.0.0.1/cb", "http://localhost:80/x", "https://app.example/cb"]);
        for (sent, native) in [
            ("http://127.0.0.1:5000/cb", true),
            ("http://127.0.0.1/cb", true),
            ("http://localhost:1/x", true),
            ("https://app.example/cb", false),
        ] {
            assert_eq!(
                match_redirect_uri(&registered_uris, sent, native)
                    .as_ref()
                    .map(RegisteredRedirectUri::as_str),
                Some(sent)
            );
        }
        for (sent, native) in [
            ("http://127.0.0.1:5000/cb", false),
            ("http://127.0.0.1:5000/cb/", true),
            ("http://127.0.0.1:5000/cb#f", true),
            ("http://127.0.0.1:99999/cb", true),
            ("http://127.0.0.1:/cb", true),
            ("http://127.0.0.1.evil.example/cb", true),
            ("https://app.example:444/cb", true),
            ("http://127.0.0.1:80@evil.example/cb", true),
        ] {
            assert_eq!(match_redirect_uri(&registered_uris, sent, native), None, "{sent}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        /// A redirect URI matches if and only if it equals a registered one.
        #[test]
        fn the_match_is_equality(path in "[a-zA-Z0-9/._~%-]{0,12}", cut in 0usize..40, with in "[/.?#A-Za-z ]?") {
            let uri = format!("https://app.example/{path}");
            prop_assume!(RegisteredRedirectUri::parse(&uri, false).is_ok());
            let registered_uris = registered(&[&uri]);
            prop_assert_eq!(match_redirect_uri(&registered_uris, &uri, false), Some(registered_uris[0].clone()));
            let cut_end = cut.min(uri.len());
            let altered = format!("{}{with}{}", &uri[..cut_end], uri.get(cut_end + 1..).unwrap_or(""));
            prop_assert_eq!(match_redirect_uri(&registered_uris, &altered, false).is_some(), altered == uri);
            prop_assert_eq!(match_redirect_uri(&registered_uris, &format!("{uri}/"), false), None);
        }

        #[test]
        fn added_parameters_are_decoded_unchanged(value in "\\PC{0,20}") {
            let state = ("state".to_owned(), value.clone());
            let registered_query = ("x".to_owned(), "1".to_owned());
            for (uri, expected) in [
                ("https://a.example/cb", vec![state.clone()]),
                ("https://a.example/cb?", vec![state.clone()]),
                ("https://a.example/cb?x=1", vec![registered_query, state]),
            ] {
                let url = RegisteredRedirectUri::parse(uri, false).unwrap().with_query(&[("state", &value)]);
                let back = Url::parse(&url).unwrap();
                prop_assert_eq!(back.query_pairs().into_owned().collect::<Vec<_>>(), expected);
                prop_assert!(url.starts_with("https://a.example/cb?") && back.fragment().is_none());
            }
        }
    }
}
