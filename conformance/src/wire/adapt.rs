//! Additions to requests that any server may require of a client. Rows leave them out, because Trefoil does
//! not require them and most rows are not about them.
//!
//! | request | added | source |
//! |---|---|---|
//! | authorization, also pushed | code challenge, unless the profile has `pkce = false` | RFC 7636, RFC 9700 2.1.1 |
//! | authorization | scope `openid` | RFC 6749 3.3: a server may refuse a request without scope |
//! | authorization of a code or an access token with `openid`, also pushed | nonce | OpenID Connect Core 15.5.2, RFC 9700 2.1.1 |
//! | device authorization | scope `openid` | RFC 6749 3.3 |
//! | code for tokens | code verifier of an added challenge | RFC 7636 4.5 |
//! | kick-off of an export | `Accept` and `Prefer` | Bulk Data 2.0.0, "Headers" |

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderValue, header};
use url::Url;

use super::random::random_text;
use super::variables::Variables;
use crate::spec::request::{Body, Request};

/// Variable that is set if requests are adapted.
pub const ADAPT: &str = "adapt";
/// Variable with the code verifier of an added challenge, if it is not that of `$pkce`.
pub const ADDED_VERIFIER: &str = "added_verifier";

/// Returns whether the server sends FHIR resources as `application/json`.
pub fn has_plain_json(variables: &Variables) -> bool {
    is_set(variables, "json")
}

fn is_set(variables: &Variables, member: &str) -> bool {
    variables.get(&format!("{ADAPT}.{member}")).is_some_and(|value| value == true)
}

/// Adds parameters to an authorization request.
pub fn add_to_query(request: &Request, variables: &Variables, url: &mut Url) {
    let is_authorization = request.to == "authorize" && !request.query.contains_key("request_uri");
    if !is_authorization || request.exact || variables.get(ADAPT).is_none() {
        return;
    }
    let asks_for_code = request.query.get("response_type").is_some_and(|kind| kind.contains("code"));
    let mut pairs = url.query_pairs_mut();
    if is_set(variables, "pkce") && asks_for_code && !request.query.contains_key("code_challenge") {
        let challenge = variables.text("pkce.challenge").unwrap_or_default();
        pairs.append_pair("code_challenge", challenge).append_pair("code_challenge_method", "S256");
    }
    if !request.query.contains_key("scope") {
        pairs.append_pair("scope", "openid");
    }
    let is_openid = request.query.get("scope").is_none_or(|scope| scope.contains("openid"));
    if lacks_nonce(&request.query) && is_openid {
        // A server may refuse a nonce that it has seen.
        pairs.append_pair("nonce", &random_text());
    }
}

/// Returns whether an authorization request has no nonce and need not have one. If an ID token is requested
/// in the front channel, the standard requires a nonce, and rows are about its lack.
fn lacks_nonce(parameters: &BTreeMap<String, String>) -> bool {
    let kind = parameters.get("response_type").map(String::as_str);
    matches!(kind, Some("code" | "token")) && !parameters.contains_key("nonce")
}

/// The parameters that are added to a pushed authorization request, a device authorization request or a token
/// request.
pub fn added_form_fields(request: &Request, variables: &Variables) -> Vec<(&'static str, String)> {
    let Body::Form(form) = &request.body else { return Vec::new() };
    if variables.get(ADAPT).is_none() || request.exact {
        return Vec::new();
    }
    if request.to == "par" {
        let mut added = Vec::new();
        let asks_for_code = form.get("response_type").is_some_and(|kind| kind.contains("code"));
        if asks_for_code && is_set(variables, "pkce") && !form.contains_key("code_challenge") {
            let challenge = variables.text("pkce.challenge").unwrap_or_default().to_owned();
            added.extend([("code_challenge", challenge), ("code_challenge_method", "S256".to_owned())]);
        }
        if !form.contains_key("scope") {
            added.push(("scope", "openid".to_owned()));
        }
        if lacks_nonce(form) {
            added.push(("nonce", random_text()));
        }
        return added;
    }
    if request.to == "device_authorization" && !form.contains_key("scope") {
        return vec![("scope", "openid".to_owned())];
    }
    let redeems = request.to == "token"
        && form.get("grant_type").is_some_and(|kind| kind == "authorization_code")
        && !form.contains_key("code_verifier");
    // The verifier of a challenge that the case has sent itself is left out on purpose.
    let sent_by_case = variables.get("verifier").is_some() && variables.get(ADDED_VERIFIER).is_none();
    if !redeems || !is_set(variables, "pkce") || sent_by_case {
        return Vec::new();
    }
    let verifier = variables.text(ADDED_VERIFIER).or_else(|_| variables.text("pkce.verifier"));
    vec![("code_verifier", verifier.unwrap_or_default().to_owned())]
}

/// Adds the headers of a kick-off.
pub fn add_headers(variables: &Variables, url: &Url, headers: &mut HeaderMap) {
    if variables.get(ADAPT).is_none() || !url.path().ends_with("$export") {
        return;
    }
    for (name, value) in [
        (header::ACCEPT, "application/fhir+json"),
        (header::HeaderName::from_static("prefer"), "respond-async"),
    ] {
        if !headers.contains_key(&name) {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
}
