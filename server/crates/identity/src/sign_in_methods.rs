//! The ways besides the password in which a user can sign in: passkeys, recovery codes and accounts at providers. They
//! are listed and removed by administrators, and removed with a password reset: whoever took an account over may have
//! added one.

use jiff::Timestamp;
use store::{Expect, LedgerWrite, StoreError};

use crate::Identity;
use crate::audit::{Action, Event, SignInMethod};
use crate::directory::{ChangeError, Entry, OtherMethods};
use crate::passkey::{PasskeyInfo, factors_key};
use crate::provider::LinkedAccount;
use crate::user::User;

/// What a user can sign in with besides the password.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SignInMethods {
    /// Passkeys.
    pub passkeys: Vec<PasskeyInfo>,
    /// Number of recovery codes that are left.
    pub recovery_codes: usize,
    /// Accounts at external providers.
    pub linked_accounts: Vec<LinkedAccount>,
}

/// Ways to sign in that are to be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MethodsToRemove {
    /// The passkey with this id.
    Passkey(String),
    /// All recovery codes.
    RecoveryCodes,
    /// The linked account with this id.
    LinkedAccount(String),
    /// All passkeys, recovery codes and linked accounts.
    All,
}

impl Identity {
    /// Returns the ways besides the password in which a user can sign in.
    ///
    /// # Errors
    /// Returns [`StoreError`] if they cannot be read.
    pub async fn sign_in_methods(&self, sub: &str, now: Timestamp) -> Result<SignInMethods, StoreError> {
        Ok(SignInMethods {
            passkeys: self.passkeys_of(sub, now).await?,
            recovery_codes: self.recovery_codes_left(sub, now).await?,
            linked_accounts: self.links_of(sub, now).await?,
        })
    }

    /// Sets a password hash and ends all sessions and tokens of the user. `revision`, if given, is the expected one of the
    /// user's record.
    ///
    /// # Errors
    /// Returns [`ChangeError`] if the user is missing or was changed, or the change cannot be written.
    pub async fn reset_password(
        &self,
        sub: &str,
        revision: Option<u64>,
        phc: &str,
        others: OtherMethods,
        now: Timestamp,
    ) -> Result<Entry, ChangeError> {
        let set = |user: &mut User| (user.password, user.epoch) = (Some(phc.to_owned()), user.epoch + 1);
        self.replace_entry(sub, revision, others, now, set).await
    }

    /// Removes ways to sign in and ends all sessions and tokens of the user. The user may have no way left: an
    /// administrator sets a password then. Returns `false` if the user has no such way.
    ///
    /// # Errors
    /// Returns [`ChangeError`] if the user is missing or the change cannot be written.
    pub async fn remove_sign_in_methods(
        &self,
        sub: &str,
        methods: &MethodsToRemove,
        now: Timestamp,
    ) -> Result<bool, ChangeError> {
        let (others, removed) = match methods {
            MethodsToRemove::All => (OtherMethods::Remove, true),
            MethodsToRemove::LinkedAccount(id) => (OtherMethods::Keep, self.remove_link(sub, id, now).await?),
            MethodsToRemove::Passkey(id) => (OtherMethods::Keep, self.drop_passkey(sub, id, now).await?),
            MethodsToRemove::RecoveryCodes => (OtherMethods::Keep, self.drop_recovery_codes(sub, now).await?),
        };
        if removed {
            self.replace_entry(sub, None, others, now, |user| user.epoch += 1).await?;
        }
        Ok(removed)
    }

    /// The writes that remove all ways to sign in besides the password.
    pub(crate) async fn remove_methods(
        &self,
        sub: &str,
        now: Timestamp,
    ) -> Result<Vec<LedgerWrite>, StoreError> {
        let mut writes = self.unlink_all(sub, now).await?;
        writes.push(LedgerWrite::Delete { key: factors_key(sub), expect: Expect::Any });
        Ok(writes)
    }

    /// Reports a change of a way to sign in.
    pub(crate) fn record_method(&self, action: Action, sub: &str, method: SignInMethod) {
        self.record(Event::SignInMethod { action, sub: sub.to_owned(), method });
    }
}
