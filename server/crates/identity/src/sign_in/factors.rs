//! The record with the passkeys and recovery codes of a user.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{Expect, LedgerWrite, StoreError};
use webauthn_rs::prelude::Passkey;

use crate::ledger_keys;
use crate::sign_in::passkey_error::PasskeyError;
use crate::sign_in::sign_in_service::SignInService;
use crate::storage::records;

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
        let factors = self.ledger.read_record::<UserFactors>(&ledger_keys::user_factors(sub), now).await?;
        Ok(factors.map_or((UserFactors::default(), Expect::Absent), |record| {
            (record.value, Expect::Revision(record.revision))
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
            if self.write_factors(sub, &factors, expect, Vec::new(), now).await? {
                return Ok(());
            }
        }
    }

    /// Writes the record, and `others` in the same transaction. Returns `false` if the record was changed
    /// since it was read.
    ///
    /// Each removal of a passkey or linked account writes the record, and reads the user's other sign-in
    /// methods after the record. Concurrent removals therefore never remove the last sign-in method.
    pub(super) async fn write_factors(
        &self,
        sub: &str,
        factors: &UserFactors,
        expect: Expect,
        others: Vec<LedgerWrite>,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut writes = vec![records::put_record(ledger_keys::user_factors(sub), factors, None, expect)];
        writes.extend(others);
        match self.ledger.write(writes, now).await {
            Ok(_) => Ok(true),
            Err(StoreError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Extracts the store error of a change that can only fail because of the store.
pub(super) fn only_store_error(result: Result<(), PasskeyError>) -> Result<(), StoreError> {
    match result {
        Err(PasskeyError::Store(error)) => Err(error),
        _ => Ok(()),
    }
}
