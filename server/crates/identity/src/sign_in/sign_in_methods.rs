//! The sign-in methods other than the password: passkeys, recovery codes and linked accounts. Administrators
//! list and remove them. A password reset removes them, because an attacker who took over the account may
//! have added one.

use jiff::Timestamp;
use store::StoreError;

use crate::directory::account_links::LinkedAccount;
use crate::directory::user_directory::{ChangeUserError, OtherMethods};
use crate::sign_in::passkey::PasskeyInfo;
use crate::sign_in::sign_in_service::SignInService;

/// The sign-in methods of one user, other than the password.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the types of the fields are documented")]
pub struct SignInMethods {
    pub passkeys: Vec<PasskeyInfo>,
    pub recovery_codes: usize,
    pub linked_accounts: Vec<LinkedAccount>,
    pub removed_accounts: Vec<LinkedAccount>,
}

/// Selects the sign-in methods to remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MethodsToRemove {
    /// The passkey with this id.
    Passkey(String),
    /// All recovery codes.
    RecoveryCodes,
    /// The linked account with this id.
    LinkedAccount(String),
    /// The account with this id that is or was linked, which can be linked to another user from then on.
    KnownAccount(String),
    /// All passkeys, recovery codes and linked accounts.
    All,
}

impl SignInService {
    /// Returns the sign-in methods of a user, other than the password.
    ///
    /// # Errors
    /// Returns [`StoreError`] if a read fails.
    pub async fn sign_in_methods(&self, sub: &str, now: Timestamp) -> Result<SignInMethods, StoreError> {
        let user_account = self.users.known_accounts(sub, now).await?;
        let (linked_accounts, removed_accounts) =
            user_account.into_iter().partition(|account| account.removed.is_none());
        Ok(SignInMethods {
            passkeys: self.user_passkeys(sub, now).await?,
            recovery_codes: self.count_recovery_codes(sub, now).await?,
            linked_accounts,
            removed_accounts,
        })
    }

    /// Removes sign-in methods, and ends all sessions and tokens of the user. A user without any sign-in
    /// method left needs an administrator to set a password. Returns `false` if the user does not have the
    /// given method.
    ///
    /// # Errors
    /// Returns [`ChangeUserError`] if the user is missing or the change cannot be written.
    pub async fn remove_sign_in_methods(
        &self,
        sub: &str,
        methods: &MethodsToRemove,
        now: Timestamp,
    ) -> Result<bool, ChangeUserError> {
        let (others, removed) = match methods {
            MethodsToRemove::All => (OtherMethods::RemoveAll, true),
            MethodsToRemove::LinkedAccount(id) => {
                (OtherMethods::Keep, self.force_unlink_account(sub, id, now).await?)
            }
            MethodsToRemove::KnownAccount(id) => {
                (OtherMethods::Keep, self.forget_account(sub, id, now).await?)
            }
            MethodsToRemove::Passkey(id) => {
                (OtherMethods::Keep, self.force_remove_passkey(sub, id, now).await?)
            }
            MethodsToRemove::RecoveryCodes => {
                (OtherMethods::Keep, self.delete_recovery_codes(sub, now).await?)
            }
        };
        if removed {
            self.users.change_user_and_methods(sub, None, others, now, |user| user.epoch += 1).await?;
        }
        Ok(removed)
    }
}
