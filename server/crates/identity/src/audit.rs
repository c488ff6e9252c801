//! Typed events for the audit log. This crate emits the events; the server adds the address of the request,
//! renders the events and stores them.
//!
//! Events contain ids only, and no token, code or password. The one exception is the rejected value of an
//! authorization request, such as a scope that is not registered.

/// An event of the audit log. `sub`, `sid`, `client_id`, `jti` and `kid` are ids of the user, session,
/// client, token and key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the documentation of the type names the ids")]
#[non_exhaustive]
pub enum AuditEvent {
    SignIn {
        sub: String,
        sid: String,
        /// Authentication methods (`amr` values of RFC 8176).
        amr: Vec<String>,
        /// External provider that authenticated the user, if any.
        provider: Option<String>,
    },
    SignInFailed {
        /// Subject of the user, if the user name exists. The typed name is not recorded, because it may be a
        /// password.
        sub: Option<String>,
        /// Reason for the rejection, one of a fixed set of texts.
        reason: &'static str,
    },
    /// A session ended; the tokens issued from it were revoked.
    SignOut {
        sid: String,
    },
    /// All sessions and tokens of a user ended.
    SignOutEverywhere {
        sub: String,
    },
    /// A one-time link was made (created) or used (updated).
    OneTimeLink {
        action: RecordAction,
        sub: String,
        /// Id of the link, which is not its secret.
        id: String,
    },
    /// A user consented to scopes of a client, or withdrew the consent.
    Consent {
        sub: String,
        client_id: String,
        /// Consented scopes; empty if the consent was withdrawn.
        scope: String,
    },
    /// A user granted an authorization request: the server issued a code, or tokens in the redirect URL.
    Granted {
        sub: String,
        client_id: String,
        scope: String,
        family: String,
    },
    TokenIssued {
        jti: String,
        /// Subject of the user, or the client id for a token of the client itself.
        sub: String,
        client_id: String,
        scope: String,
    },
    ClientRejected {
        /// The `client_id` of the request, if such a client exists.
        client_id: Option<String>,
        /// The reason, as sent to the client.
        reason: String,
    },
    /// An authorization request was refused, or granted without some of its scopes.
    RequestRefused {
        client_id: String,
        /// The error code that the client received, or that some scopes were not granted.
        error: &'static str,
        /// The reason, one of a fixed set of texts.
        reason: &'static str,
        /// The rejected value, escaped, of at most 200 bytes.
        value: Option<String>,
    },
    /// A code or refresh token was used again, and its token family was revoked.
    Reused {
        /// `code`, `refresh_token` or `device_code`.
        kind: &'static str,
        client_id: String,
        sub: String,
        /// Id of the revoked token family.
        family: String,
    },
    Revoked {
        client_id: String,
        /// `family` or `jti`.
        kind: &'static str,
        /// Id of the token family or the token.
        id: String,
    },
    /// The signing keys or the server secret were rotated.
    KeysRotated,
    KeyRevoked {
        kid: String,
    },
    /// A user was added, changed or deleted.
    User {
        action: RecordAction,
        sub: String,
    },
    /// A sign-in method other than the password was added, used up or removed.
    SignInMethod {
        action: RecordAction,
        sub: String,
        method: SignInMethod,
    },
    /// A user approved or denied the request of a device (RFC 8628).
    DeviceAnswered {
        sub: String,
        client_id: String,
        /// The granted scopes; empty if the user denied access.
        scope: String,
    },
    /// A client was registered, changed or deleted.
    Client {
        action: RecordAction,
        client_id: String,
    },
}

impl AuditEvent {
    /// Returns `true` for an event that anyone can cause, as often as they like, without being authenticated.
    pub fn is_of_stranger(&self) -> bool {
        // A public client can present a spent code again and again.
        matches!(
            self,
            Self::SignInFailed { .. }
                | Self::ClientRejected { .. }
                | Self::RequestRefused { .. }
                | Self::Reused { .. }
        )
    }

    /// Returns the event of a stranger without the ids and reasons in it, which a stranger can vary.
    pub fn generalized(&self) -> Self {
        match self {
            Self::ClientRejected { .. } => {
                Self::ClientRejected { client_id: None, reason: "several reasons".to_owned() }
            }
            Self::RequestRefused { .. } => Self::RequestRefused {
                client_id: String::new(),
                error: "several errors",
                reason: "several reasons",
                value: None,
            },
            _ => Self::SignInFailed { sub: None, reason: "several reasons" },
        }
    }
}

/// A sign-in method other than the password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SignInMethod {
    /// A passkey.
    Passkey,
    /// Recovery codes.
    RecoveryCodes,
    /// An account at an external provider.
    LinkedAccount,
    /// All passkeys, recovery codes and linked accounts of a user.
    All,
}

impl SignInMethod {
    /// Returns the name that audit events use for the method.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
