//! Typed events for the audit log. The rules emit them; the server adds the origin of the request, renders and stores
//! them.
//!
//! Events contain ids only. They never contain a token, a code, a password or other user input.

/// An event of the audit log. `sub`, `sid`, `client_id`, `jti` and `kid` are ids of the user, session, client, token
/// and key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the documentation of the type names the ids")]
#[non_exhaustive]
pub enum AuditEvent {
    /// A user signed in.
    SignIn {
        sub: String,
        sid: String,
        /// Methods (RFC 8176).
        amr: Vec<String>,
        /// The external provider, if one authenticated the user.
        provider: Option<String>,
    },
    /// A sign-in was rejected.
    SignInFailed {
        /// The user, if the name belongs to one. The typed name is not recorded, because it may be a password.
        sub: Option<String>,
        /// A fixed text.
        reason: &'static str,
    },
    /// A session ended, with the tokens issued from it.
    SignOut { sid: String },
    /// All sessions and tokens of a user ended.
    SignOutEverywhere { sub: String },
    /// A user allowed a client some scopes, or withdrew the consent.
    Consent {
        sub: String,
        client_id: String,
        /// The allowed scopes; empty if the consent was withdrawn.
        scope: String,
    },
    /// A user granted a request: a code was issued, or tokens on the front channel.
    Granted {
        sub: String,
        client_id: String,
        scope: String,
        /// Id of the family of tokens.
        family: String,
    },
    /// An access token was issued.
    TokenIssued {
        jti: String,
        /// The user, or the client for its own tokens.
        sub: String,
        client_id: String,
        scope: String,
    },
    /// Client authentication failed.
    ClientRejected {
        /// The client id that was sent, if such a client exists.
        client_id: Option<String>,
        /// The reason, as it was sent to the caller.
        reason: String,
    },
    /// A code or refresh token was used again, and its family was revoked.
    Reused {
        /// `code`, `refresh_token` or `device_code`.
        kind: &'static str,
        client_id: String,
        sub: String,
        /// Id of the revoked family.
        family: String,
    },
    /// A client revoked a token.
    Revoked {
        client_id: String,
        /// `family` or `jti`.
        kind: &'static str,
        /// Id of the family or the token.
        id: String,
    },
    /// The signing keys or the server secret were rotated.
    KeysRotated,
    /// A signing key was revoked.
    KeyRevoked { kid: String },
    /// A user was added, changed or deleted.
    User { action: RecordAction, sub: String },
    /// A way to sign in besides the password was added, used up or removed.
    SignInMethod { action: RecordAction, sub: String, method: SignInMethod },
    /// A user answered the request of a device (RFC 8628).
    DeviceAnswered {
        sub: String,
        client_id: String,
        /// The granted scopes; empty if the user denied access.
        scope: String,
    },
    /// A client was registered, changed or deleted.
    Client { action: RecordAction, client_id: String },
}

/// A way to sign in besides the password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignInMethod {
    /// A passkey.
    Passkey,
    /// Recovery codes.
    RecoveryCodes,
    /// An account at an external provider.
    LinkedAccount,
    /// All of them.
    All,
}

impl SignInMethod {
    /// Returns the name in audit events.
    pub fn name(self) -> &'static str {
        match self {
            Self::Passkey => "passkey",
            Self::RecoveryCodes => "recovery-codes",
            Self::LinkedAccount => "linked-account",
            Self::All => "all",
        }
    }
}

/// An operation on a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordAction {
    /// The record was created.
    Create,
    /// The record was changed.
    Update,
    /// The record was deleted.
    Delete,
}

/// Receives audit events. Implementations must not block.
pub trait AuditSink: Send + Sync {
    /// Records one event.
    fn record(&self, event: AuditEvent);
}

/// Discards all events, for tests and tools.
pub struct NullAuditSink;

impl AuditSink for NullAuditSink {
    fn record(&self, _: AuditEvent) {}
}
