//! A question to the authorization endpoint before the browser opens. A browser shows a page about a wrong
//! client or redirect URI, and the program would wait for a redirect that never comes.

use http::{StatusCode, header};
use url::Url;

use super::Api;
use super::page_text::page_text;

/// Errors that every user without a session gets (OpenID Connect Core 3.1.2.6).
const EXPECTED: [&str; 4] =
    ["login_required", "interaction_required", "consent_required", "account_selection_required"];

impl Api {
    /// Asks for an authorization without a user (`prompt=none`), with a state, nonce and challenge of its
    /// own and without cookies. Returns why a sign-in cannot succeed; `None` if it may, also if the server
    /// does not answer. A code in the answer is not used.
    pub async fn try_authorization(&self, redirect_uri: &str, scope: &str) -> Option<String> {
        let mut url = self.begin_sign_in(redirect_uri, scope).await.ok()?.url;
        url.query_pairs_mut().append_pair("prompt", "none");
        let response = self.call(self.http().get(url).header(header::ACCEPT, "text/html")).await.ok()?;
        if response.status.is_redirection() {
            let location = Url::parse(response.header("location")?).ok()?;
            return refusal(&location);
        }
        if !response.status.is_client_error() || response.status == StatusCode::TOO_MANY_REQUESTS {
            return None;
        }
        let client = self.profile().client_id.as_deref().unwrap_or_default();
        let text = page_text(&String::from_utf8_lossy(&response.body));
        Some(format!(
            "the server answers with {}{}; check that the client '{client}' is registered there, with the redirect URI \
             {redirect_uri} (any port)",
            response.status,
            if text.is_empty() { text } else { format!(" \"{text}\"") },
        ))
    }
}

/// The error in a redirect that says more than that nobody is signed in.
fn refusal(location: &Url) -> Option<String> {
    let find = |name: &str| location.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value);
    let error = find("error").filter(|error| !EXPECTED.contains(&error.as_ref()))?;
    let description = find("error_description").map(|text| format!(" ({text})")).unwrap_or_default();
    Some(format!("the server refuses the request: {error}{description}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unexpected_errors_refuse_a_sign_in() {
        let at = |query: &str| refusal(&Url::parse(&format!("http://localhost:1/callback?{query}")).unwrap());
        assert_eq!(at("error=login_required&state=s"), None);
        assert_eq!(at("code=c&state=s"), None);
        let response = at("error=invalid_scope&error_description=user%2FValueSet.rs");
        assert_eq!(
            response.as_deref(),
            Some("the server refuses the request: invalid_scope (user/ValueSet.rs)")
        );
    }
}
