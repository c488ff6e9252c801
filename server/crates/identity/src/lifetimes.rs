//! Lifetimes of everything that expires: tokens, codes, requests, sessions and published keys. Those of
//! tokens and sessions are settings ([`Lifetimes`]); all others are constants.

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

/// Default for the access token of a user, and the lifetime of every access token of the token flow.
pub const ACCESS_TOKEN: SignedDuration = SignedDuration::from_secs(3600);
/// Default for an access token from `client_credentials` (SMART Backend Services recommends 300 s).
pub const BACKEND_ACCESS_TOKEN: SignedDuration = SignedDuration::from_secs(300);
/// Default for ID tokens.
pub const ID_TOKEN: SignedDuration = SignedDuration::from_secs(3600);
/// Authorization code.
pub const AUTHORIZATION_CODE: SignedDuration = SignedDuration::from_mins(5);
/// Authorization code of a client with `fapi2` (FAPI 2.0 Security Profile section 5.3.2.1).
pub const FAPI2_AUTHORIZATION_CODE: SignedDuration = SignedDuration::from_secs(60);
/// Default for the refresh tokens of one family, counted from the first token.
pub const REFRESH_TOKEN_FAMILY: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Device code and user code (RFC 8628 section 3.2, `expires_in`).
pub const DEVICE_CODE: SignedDuration = SignedDuration::from_mins(10);
/// Time for which the record of an expired device code is kept. While it exists, the token endpoint answers
/// `expired_token`.
pub const EXPIRED_DEVICE_CODE: SignedDuration = SignedDuration::from_mins(10);
/// Pushed authorization request (RFC 9126).
pub const PUSHED_REQUEST: SignedDuration = SignedDuration::from_secs(90);
/// Authorization request between its arrival and its answer, while the user is on the pages of this server.
pub const INTERACTION: SignedDuration = SignedDuration::from_hours(1);
/// Launch context of a portal, until the application sends its authorization request.
pub const LAUNCH: SignedDuration = SignedDuration::from_mins(10);
/// Passkey ceremony, during which the browser displays its passkey dialog.
pub const PASSKEY_CEREMONY: SignedDuration = SignedDuration::from_mins(5);
/// Parameters of a sign-out request, from the POST of an application until the browser follows the redirect.
pub const SIGN_OUT_REQUEST: SignedDuration = SignedDuration::from_mins(1);
/// Sign-in at an external provider.
pub const PROVIDER_SIGN_IN: SignedDuration = SignedDuration::from_mins(15);
/// Default for browser sessions, counted from the last request.
pub const IDLE_SESSION: SignedDuration = SignedDuration::from_hours(1);
/// Default for browser sessions, counted from the sign-in.
pub const SESSION: SignedDuration = SignedDuration::from_hours(12);
/// Time for which clients may cache the published key set. A new key is published for this long before it
/// signs tokens.
pub const PUBLISHED_KEY_SET: SignedDuration = SignedDuration::from_secs(300);

/// Minimum lifetime of a token or session in seconds.
pub const MIN_LIFETIME_S: u32 = 60;
/// Maximum lifetime of an access token or ID token in seconds: one day.
pub const MAX_TOKEN_LIFETIME_S: u32 = 24 * 3600;
/// Maximum lifetime of a family of refresh tokens in seconds: one year.
pub const MAX_REFRESH_LIFETIME_S: u32 = 366 * 24 * 3600;
/// Maximum lifetime of a session in seconds: 30 days.
pub const MAX_SESSION_LIFETIME_S: u32 = 30 * 24 * 3600;

/// The configurable lifetimes of tokens and sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifetimes {
    /// Access token of a user, except in the token flow.
    pub access_token: SignedDuration,
    /// Access token from `client_credentials`.
    pub backend_access_token: SignedDuration,
    /// ID token.
    pub id_token: SignedDuration,
    /// Refresh tokens of one family, counted from the first token.
    pub refresh_token_family: SignedDuration,
    /// Browser session, counted from the last request.
    pub idle_session: SignedDuration,
    /// Browser session, counted from the sign-in.
    pub session: SignedDuration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self {
            access_token: ACCESS_TOKEN,
            backend_access_token: BACKEND_ACCESS_TOKEN,
            id_token: ID_TOKEN,
            refresh_token_family: REFRESH_TOKEN_FAMILY,
            idle_session: IDLE_SESSION,
            session: SESSION,
        }
    }
}

impl Lifetimes {
    /// The longer of both lifetimes, for each kind.
    #[must_use]
    pub fn longest(self, other: Self) -> Self {
        Self {
            access_token: self.access_token.max(other.access_token),
            backend_access_token: self.backend_access_token.max(other.backend_access_token),
            id_token: self.id_token.max(other.id_token),
            refresh_token_family: self.refresh_token_family.max(other.refresh_token_family),
            idle_session: self.idle_session.max(other.idle_session),
            session: self.session.max(other.session),
        }
    }

    /// The time after which no signed token is valid any more.
    pub fn signed_token(self) -> SignedDuration {
        self.access_token.max(self.backend_access_token).max(self.id_token).max(ACCESS_TOKEN)
    }

    /// The time after which no token of a family is valid any more: the last refresh can happen just before
    /// the family ends.
    pub fn family(self) -> SignedDuration {
        self.refresh_token_family + self.access_token.max(ACCESS_TOKEN)
    }
}
