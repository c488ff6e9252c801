//! What happened, for the audit log: typed events without secrets. The rules emit them; whoever runs the
//! rules renders and keeps them, and knows from where the request came.
//!
//! No event holds a token, a code, a password or what somebody typed; only ids.

use crate::Identity;

/// Something that an auditor wants to know.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A user signed in.
    SignIn {
        /// The user.
        sub: String,
        /// The session.
        sid: String,
        /// How (RFC 8176).
        amr: Vec<String>,
        /// The external provider, where one vouched.
        provider: Option<String>,
    },
    /// A sign-in was refused.
    SignInFailed {
        /// The user, where there is one of that name. What was typed is not kept: it may be a password.
        sub: Option<String>,
        /// Why, in words of ours.
        reason: &'static str,
    },
    /// A session ended, and what was issued from it.
    SignOut {
        /// The session.
        sid: String,
    },
    /// All sessions and tokens of a user ended.
    SignOutEverywhere {
        /// The user.
        sub: String,
    },
    /// A user let a client have scopes.
    Consent {
        /// The user.
        sub: String,
        /// The client.
        client_id: String,
        /// What was allowed; empty where it was taken back.
        scope: String,
    },
    /// A user granted a request: a code was issued, or tokens on the front channel.
    Granted {
        /// The user.
        sub: String,
        /// The client.
        client_id: String,
        /// What was granted.
        scope: String,
        /// What ties the tokens together.
        family: String,
    },
    /// An access token was issued.
    TokenIssued {
        /// Token id.
        jti: String,
        /// The user, or the client itself.
        sub: String,
        /// The client.
        client_id: String,
        /// Granted scopes.
        scope: String,
    },
    /// A client was not recognised.
    ClientRefused {
        /// The id that it named, where there is such a client.
        client_id: Option<String>,
        /// Why, in the words that the caller was told.
        reason: String,
    },
    /// A code or refresh token came a second time; the family is dead.
    Reused {
        /// `code` or `refresh_token`.
        what: &'static str,
        /// The client.
        client_id: String,
        /// The user.
        sub: String,
        /// What died.
        family: String,
    },
    /// A client took a token back.
    Revoked {
        /// The client.
        client_id: String,
        /// `family` or `jti`.
        what: &'static str,
        /// Its id.
        id: String,
    },
    /// The signing keys moved on.
    KeysRotated,
    /// A signing key was taken away.
    KeyRevoked {
        /// The key.
        kid: String,
    },
    /// A user was added, changed or deleted.
    User {
        /// What was done.
        action: Action,
        /// The user.
        sub: String,
    },
    /// A way to sign in besides the password was added, used up or removed.
    SignInMethod {
        /// What was done.
        action: Action,
        /// The user.
        sub: String,
        /// The kind of it.
        method: SignInMethod,
    },
    /// A user answered the request of a device (RFC 8628).
    DeviceAnswered {
        /// The user.
        sub: String,
        /// The client.
        client_id: String,
        /// What was granted; empty if the user denied access.
        scope: String,
    },
    /// A client was registered, changed or deleted.
    Client {
        /// What was done.
        action: Action,
        /// The client.
        client_id: String,
    },
}

/// Ways to sign in besides the password.
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
    /// The name in audit events.
    pub fn name(self) -> &'static str {
        match self {
            Self::Passkey => "passkey",
            Self::RecoveryCodes => "recovery-codes",
            Self::LinkedAccount => "linked-account",
            Self::All => "all",
        }
    }
}

/// What was done to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Made.
    Create,
    /// Changed.
    Update,
    /// Taken away.
    Delete,
}

/// Takes events as they happen. It must not block.
pub trait Sink: Send + Sync {
    /// Takes one.
    fn record(&self, event: Event);
}

/// Forgets everything: for tests and tools.
pub struct NoSink;

impl Sink for NoSink {
    fn record(&self, _: Event) {}
}

impl Identity {
    /// Hands an event on.
    pub fn record(&self, event: Event) {
        self.audit.record(event);
    }
}
