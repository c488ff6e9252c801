//! The destination of the response to an authorization request: its redirect URI or a page.

use store::StoreError;

use crate::authorize::refusal::Refusal;
use crate::model::error_code::ErrorCode;
use crate::model::redirect_uri::RegisteredRedirectUri;

/// Target and encoding of the answer to the client.
#[derive(Debug, Clone)]
pub struct AuthorizationReply {
    /// The redirect URI, matched with a registered one.
    pub to: RegisteredRedirectUri,
    /// `state`, returned unchanged.
    pub state: Option<String>,
    /// `true` if the answer is a form that the browser sends to the redirect URI (OAuth 2.0 Form Post
    /// Response Mode).
    pub(super) form_post: bool,
    /// Without a form, errors are sent in the fragment for response types with `id_token`, and in the query
    /// for all others, including `token`.
    pub(super) errors_in_fragment: bool,
    pub(super) issuer: String,
}

/// An answer to the client, which the browser delivers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthorizationAnswer {
    /// A redirect to this URL.
    Redirect(String),
    /// A form with these fields, to be sent to the redirect URI by POST.
    Form {
        /// The redirect URI.
        to: String,
        /// Names and values of the fields.
        fields: Vec<(String, String)>,
    },
}

impl AuthorizationReply {
    /// Returns the answer with an error.
    pub fn error_answer(&self, error: ErrorCode, description: Option<&str>) -> AuthorizationAnswer {
        let mut pairs = vec![("error", error.as_str())];
        pairs.extend(description.map(|text| ("error_description", text)));
        self.answer(pairs, self.errors_in_fragment)
    }

    /// An answer. `fragment` selects the part of the URL if the answer is a redirect.
    pub(crate) fn answer<'a>(
        &'a self,
        mut pairs: Vec<(&'a str, &'a str)>,
        fragment: bool,
    ) -> AuthorizationAnswer {
        pairs.extend(self.state.as_deref().map(|state| ("state", state)));
        pairs.push(("iss", &self.issuer));
        if self.form_post {
            let field = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
            let to = self.to.as_str().to_owned();
            return AuthorizationAnswer::Form { to, fields: pairs.into_iter().map(field).collect() };
        }
        AuthorizationAnswer::Redirect(match fragment {
            true => self.to.with_fragment(&pairs),
            false => self.to.with_query(&pairs),
        })
    }
}

/// Reasons why a request is answered with an error page instead of a redirect: the redirect URI was not
/// verified.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// `client_id` is missing, unknown or repeated.
    #[error("The application that sent you here is not registered with this server.")]
    Client {
        /// The first `client_id` of the request.
        client_id: Option<String>,
    },
    /// `redirect_uri` is missing, not registered or repeated.
    #[error("The application requested a redirect to an address that is not registered for it.")]
    RedirectUri {
        /// The client.
        client_id: String,
        /// The first `redirect_uri` of the request.
        sent: Option<String>,
    },
    /// The pushed request is unknown, expired, already granted, or was pushed by another client.
    #[error(
        "The request from the application has expired or was already used. Go back to the application and try again."
    )]
    PushedRequest,
    /// The interaction has ended: it was answered, it has expired, or the browser has begun many others.
    #[error("This sign-in has ended. Return to the application and start again.")]
    Ended,
    /// The store failed before the redirect URI was verified.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A rejected authorization request.
#[derive(Debug)]
pub enum AuthorizationError {
    /// Show an error page of this server.
    Show(PageError),
    /// Redirect to the client.
    Redirect {
        /// The client.
        client_id: String,
        /// Target of the redirect.
        reply: AuthorizationReply,
        /// Error code for the client, and the reason.
        refusal: Refusal,
    },
}
