//! Choices that standards leave to a server. A row permits them in its column `permits`; a server that is
//! held to the rules of Trefoil has none of them.

use std::str::FromStr;

use super::expectation::{Expectation, PageKind};
use super::request::{Body, Request};

/// A choice of a server, by its name in the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "PERMITS describes them")]
pub enum Permit {
    AudienceForm,
    ErrorInFragment,
    ErrorPage,
    KeepToken,
    Lifetime,
    NarrowerScope,
    NoIssuer,
    OpaqueToken,
    Redirect,
    RefusedClient,
    SignInElsewhere,
    SignOutPage,
}

/// All choices: each with its name, the clause that leaves it open, and what the server may do.
pub const PERMITS: [(Permit, &str, &str, &str); 12] = [
    (
        Permit::AudienceForm,
        "audience-form",
        "RFC 7519 4.1.3",
        "a single audience of a token is a text or a list",
    ),
    (
        Permit::ErrorInFragment,
        "error-in-fragment",
        "OAuth 2.0 Multiple Response Types 2.1",
        "the error of an unknown response type is in the query or in the fragment",
    ),
    (
        Permit::ErrorPage,
        "error-page",
        "RFC 6749 4.1.2.1",
        "an error is shown by a page of the server, to which the response may redirect",
    ),
    (
        Permit::KeepToken,
        "keep-token",
        "RFC 7009 2.2.1",
        "a token of this type is not revoked (`unsupported_token_type`); the case is then skipped",
    ),
    (
        Permit::Lifetime,
        "lifetime",
        "RFC 6749 4.2.2, 5.1",
        "an access token has another lifetime; `expires_in` must agree with the token",
    ),
    (
        Permit::NarrowerScope,
        "narrower-scope",
        "RFC 6749 3.3",
        "a token with a part of the requested scope is issued, instead of an error",
    ),
    (Permit::NoIssuer, "no-issuer", "RFC 9207 3", "an authorization response has no `iss`"),
    (Permit::OpaqueToken, "opaque-token", "RFC 6749 1.4", "an access token is not a JWT"),
    (
        Permit::Redirect,
        "redirect",
        "RFC 6749 1.7, 3.1",
        "pages of the server precede the redirect to the client, and the redirect has the status 303",
    ),
    (
        Permit::RefusedClient,
        "refused-client",
        "RFC 6749 5.2",
        "a client that cannot be authenticated is refused with 400 or 401",
    ),
    (
        Permit::SignInElsewhere,
        "sign-in-elsewhere",
        "OpenID Connect Core 3.1.2.1",
        "an error is returned instead of a sign-in, or a consent page precedes it",
    ),
    (
        Permit::SignOutPage,
        "sign-out-page",
        "OpenID Connect RP-Initiated Logout 2",
        "a page asks the user whether to sign out",
    ),
];

impl FromStr for Permit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let row = PERMITS.iter().find(|(_, name, ..)| *name == text);
        row.map(|(permit, ..)| *permit).ok_or_else(|| {
            let names = PERMITS.map(|(_, name, ..)| name).join(", ");
            format!("'{text}' is not a choice that rows can permit: use one of {names}")
        })
    }
}

impl Permit {
    /// The name in the tables.
    pub fn name(self) -> &'static str {
        PERMITS.iter().find(|(permit, ..)| *permit == self).map_or("", |(_, name, ..)| name)
    }

    /// Returns whether an expectation has the part that the choice is about.
    pub(super) fn concerns(self, request: &Request, expect: &Expectation) -> bool {
        let has_status =
            |status: u16| expect.status.as_ref().is_some_and(|expected| expected.matches(status));
        let error = expect.json.as_ref().and_then(|json| json["error"].as_str()).unwrap_or_default();
        let location = expect.location.as_ref();
        let expects_param = |name: &str| location.is_some_and(|location| location.params.contains_key(name));
        match self {
            Self::AudienceForm => {
                let has_audience = |claims: &serde_json::Value| !claims["aud"].is_null();
                expect.jwt.values().any(|token| token.claims.as_ref().is_some_and(has_audience))
            }
            Self::ErrorInFragment => expects_param("error"),
            Self::ErrorPage => expect.expects_error_page() || expect.headers.contains_key("location"),
            Self::KeepToken => request.to == "revoke",
            Self::Lifetime => {
                expect.json.as_ref().is_some_and(|json| json["expires_in"].is_number())
                    || expects_param("expires_in")
            }
            Self::NarrowerScope => {
                error == "invalid_scope"
                    && matches!(&request.body, Body::Form(form) if form.contains_key("scope"))
            }
            Self::NoIssuer => expects_param("iss"),
            Self::OpaqueToken => expect.jwt.keys().any(|source| source.ends_with("access_token")),
            Self::Redirect => {
                let is_post = request.query.get("response_mode").is_some_and(|mode| mode == "form_post");
                has_status(302) || location.is_some() || is_post
            }
            Self::RefusedClient => error.contains("invalid_client") && (has_status(400) || has_status(401)),
            Self::SignInElsewhere => expect.page == Some(PageKind::SignIn),
            Self::SignOutPage => request.to == "logout",
        }
    }
}
