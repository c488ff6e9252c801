//! Why a passkey is refused.

use store::StoreError;

/// Reasons why a passkey is rejected or cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum PasskeyError {
    /// The host of the server is an IP address.
    #[error("passkeys require a host name, and the address of this server is an IP address")]
    NoHostName,
    /// The ceremony is unknown, expired, already used, or was started in another browser.
    #[error("the request expired or was started in another window; please try again")]
    CeremonyExpired,
    /// The ceremony response is invalid. The reason is written to the log; users see a generic message.
    #[error("the passkey was not accepted: {0}")]
    Rejected(String),
    /// The user has the maximum number of passkeys.
    #[error("you have {MAX_PASSKEYS} passkeys already; remove one first")]
    TooMany,
    /// The passkey is the user's only sign-in method.
    #[error("this is your only way to sign in; set a password or add another passkey first")]
    OnlyWay,
    /// The user has no passkey.
    #[error("add a passkey first")]
    NoPasskey,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Maximum number of passkeys of one user.
pub const MAX_PASSKEYS: usize = 20;
