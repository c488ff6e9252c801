//! Lifetimes of everything that expires: tokens, codes, requests, sessions and published keys.

use jiff::SignedDuration;

/// Access token of a user.
pub const ACCESS_TOKEN: SignedDuration = SignedDuration::from_secs(3600);
/// Access token from `client_credentials` (SMART Backend Services: at most 300 s).
pub const BACKEND_ACCESS_TOKEN: SignedDuration = SignedDuration::from_secs(300);
/// ID token.
pub const ID_TOKEN: SignedDuration = SignedDuration::from_secs(3600);
/// Authorization code.
pub const AUTHORIZATION_CODE: SignedDuration = SignedDuration::from_mins(5);
/// Refresh tokens of one family, counted from the first token.
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
/// Passkey ceremony, during which the browser displays its passkey dialog.
pub const PASSKEY_CEREMONY: SignedDuration = SignedDuration::from_mins(5);
/// Sign-in at an external provider.
pub const PROVIDER_SIGN_IN: SignedDuration = SignedDuration::from_mins(15);
/// Browser session, counted from its last request.
pub const IDLE_SESSION: SignedDuration = SignedDuration::from_hours(1);
/// Browser session, counted from the sign-in.
pub const SESSION: SignedDuration = SignedDuration::from_hours(12);
/// Time for which clients may cache the published key set. A new key is published for this long before it signs tokens.
pub const PUBLISHED_KEY_SET: SignedDuration = SignedDuration::from_secs(300);
