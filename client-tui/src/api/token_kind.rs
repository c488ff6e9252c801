//! The kinds of tokens of a session.

use serde::Serialize;

/// Tokens that the user can inspect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TokenKind {
    /// Access token of the signed-in user.
    UserAccess,
    /// ID token of the signed-in user.
    Id,
    /// Access token of the backend client.
    BackendAccess,
    /// A token that the user supplied.
    Given,
}

impl TokenKind {
    /// The name of the token for the user.
    pub fn title(self) -> &'static str {
        match self {
            Self::UserAccess => "access token of the user",
            Self::Id => "ID token of the user",
            Self::BackendAccess => "access token of the backend client",
            Self::Given => "token",
        }
    }
}
