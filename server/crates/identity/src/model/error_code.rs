//! Error codes of the authorization endpoint.

use store::StoreError;

/// An error code of the authorization endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the names are those of RFC 6749 4.1.2.1, OpenID Connect Core 3.1.2.6 and RFC 8707 2"
)]
pub enum ErrorCode {
    InvalidRequest,
    UnauthorizedClient,
    AccessDenied,
    UnsupportedResponseType,
    InvalidScope,
    ServerError,
    TemporarilyUnavailable,
    LoginRequired,
    ConsentRequired,
    InteractionRequired,
    RequestNotSupported,
    RequestUriNotSupported,
    InvalidTarget,
}

impl ErrorCode {
    /// The code as it is sent to the client.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::UnauthorizedClient => "unauthorized_client",
            Self::AccessDenied => "access_denied",
            Self::UnsupportedResponseType => "unsupported_response_type",
            Self::InvalidScope => "invalid_scope",
            Self::ServerError => "server_error",
            Self::TemporarilyUnavailable => "temporarily_unavailable",
            Self::LoginRequired => "login_required",
            Self::ConsentRequired => "consent_required",
            Self::InteractionRequired => "interaction_required",
            Self::RequestNotSupported => "request_not_supported",
            Self::RequestUriNotSupported => "request_uri_not_supported",
            Self::InvalidTarget => "invalid_target",
        }
    }
}

impl From<&StoreError> for ErrorCode {
    /// The code for an error of the store. A redirect to the client cannot have the status 503.
    fn from(error: &StoreError) -> Self {
        match error {
            StoreError::Unavailable { .. } => Self::TemporarilyUnavailable,
            _ => Self::ServerError,
        }
    }
}
