//! The tokens of a signed-in user, and the session that they are of.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::sign_in::TokenAnswer;

/// A sign-in without its secrets.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct SignedInSession {
    /// `sub` of the ID token.
    pub subject: Option<String>,
    pub requested_scope: String,
    pub scope: String,
    /// Time at which the access token expires.
    pub expires_at: Timestamp,
    /// Whether the access token is renewed without the user.
    pub renewable: bool,
    /// Reason why the tokens could not be stored: they end with this run of the program.
    #[serde(skip)]
    pub not_stored: Option<String>,
}

impl SignedInSession {
    /// The requested scopes that were not granted.
    pub fn refused_scopes(&self) -> Vec<&str> {
        let scopes: Vec<_> = self.scope.split_whitespace().collect();
        self.requested_scope.split_whitespace().filter(|scope| !scopes.contains(scope)).collect()
    }

    /// Returns whether the session can be used at this time.
    pub fn is_usable(&self, now: Timestamp) -> bool {
        self.renewable || self.expires_at > now
    }
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct UserTokens {
    pub answer: TokenAnswer,
    /// Description of the session, without secrets.
    pub session: SignedInSession,
}
