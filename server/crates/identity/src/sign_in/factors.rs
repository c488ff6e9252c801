//! The record with the passkeys and recovery codes of a user.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{Expect, StoreError};
use webauthn_rs::prelude::Passkey;

use crate::ledger_keys;
use crate::sign_in::passkey::PasskeyError;
use crate::sign_in::sign_in_methods::SignInService;
use crate::storage::records;

/// A passkey of a user.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct StoredPasskey {
    pub name: String,
    pub since: Timestamp,
    pub last_used: Option<Timestamp>,
    pub key: Passkey,
}

/// Passkeys and recovery codes of a user.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct UserFactors {
    pub passkeys: Vec<StoredPasskey>,
    /// SHA-256 of each unused recovery code.
    pub recovery: Vec<String>,
    /// `true` if a sign-in with the password also requires a passkey.
    pub after_password: bool,
}

impl SignInService {
    pub(super) async fn user_factors(
        &self,
        sub: &str,
        now: Timestamp,
    ) -> Result<(UserFactors, Expect), StoreError> {
        let found = self.ledger.read_record::<UserFactors>(&ledger_keys::user_factors(sub), now).await?;
        Ok(found.map_or((UserFactors::default(), Expect::Absent), |stored| {
            (stored.value, Expect::Revision(stored.revision))
        }))
    }

    pub(super) async fn change_factors(
        &self,
        sub: &str,
        now: Timestamp,
        mut change: impl FnMut(&mut UserFactors) -> Result<(), PasskeyError> + Send,
    ) -> Result<(), PasskeyError> {
        loop {
            let (mut factors, expect) = self.user_factors(sub, now).await?;
            change(&mut factors)?;
            match self
                .ledger
                .write(vec![records::put_record(ledger_keys::user_factors(sub), &factors, None, expect)], now)
                .await
            {
                Ok(_) => return Ok(()),
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Extracts the store error of a change that can only fail because of the store.
pub(super) fn only_store_error(changed: Result<(), PasskeyError>) -> Result<(), StoreError> {
    match changed {
        Err(PasskeyError::Store(error)) => Err(error),
        _ => Ok(()),
    }
}
