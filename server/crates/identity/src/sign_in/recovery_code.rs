//! Recovery codes, which allow a sign-in without the passkey or password. Each code can be used once.

use jiff::Timestamp;
use store::StoreError;
use subtle::ConstantTimeEq;

use crate::audit::{RecordAction, SignInMethod};
use crate::encoding;
use crate::ledger_keys;
use crate::model::user::User;
use crate::sign_in::factors::only_store_error;
use crate::sign_in::passkey_error::PasskeyError;
use crate::sign_in::sign_in_service::SignInService;
use crate::storage::records;

/// Number of recovery codes in one set.
pub const RECOVERY_CODES: usize = 10;

impl SignInService {
    /// Replaces all recovery codes of a user and returns the new ones. Only their digests are stored.
    ///
    /// # Errors
    /// Returns [`PasskeyError`] if the write fails.
    pub async fn replace_recovery_codes(
        &self,
        sub: &str,
        now: Timestamp,
    ) -> Result<Vec<String>, PasskeyError> {
        let codes: Vec<String> = (0..RECOVERY_CODES).map(|_| self.random_recovery_code()).collect();
        let digests: Vec<String> =
            codes.iter().map(|code| encoding::sha256_base64url(&normalize_recovery_code(code))).collect();
        self.change_factors(sub, now, |factors| {
            factors.recovery.clone_from(&digests);
            Ok(())
        })
        .await?;
        self.record_method(RecordAction::Create, sub, SignInMethod::RecoveryCodes);
        Ok(codes)
    }

    /// Returns the number of unused recovery codes of a user.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the read fails.
    pub async fn count_recovery_codes(&self, sub: &str, now: Timestamp) -> Result<usize, StoreError> {
        Ok(self.user_factors(sub, now).await?.0.recovery.len())
    }

    /// Uses up a recovery code of a user. Returns `false` if the code is wrong or the user does not exist.
    /// Both cases read the store once, so that they take the same time.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the record cannot be read or written.
    pub async fn redeem_recovery_code(
        &self,
        user: Option<&User>,
        code: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let sub = user.map_or("nobody", |user| &user.sub);
        let digest = encoding::sha256_base64url(&normalize_recovery_code(code));
        loop {
            let (mut factors, expect) = self.user_factors(sub, now).await?;
            let is_it =
                |stored_digest: &String| bool::from(stored_digest.as_bytes().ct_eq(digest.as_bytes()));
            let Some(index) = factors.recovery.iter().position(is_it) else { return Ok(false) };
            factors.recovery.swap_remove(index);
            match self
                .ledger
                .write(vec![records::put_record(ledger_keys::user_factors(sub), &factors, None, expect)], now)
                .await
            {
                Ok(_) => {
                    self.record_method(RecordAction::Update, sub, SignInMethod::RecoveryCodes);
                    return Ok(true);
                }
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Removes all recovery codes. Returns `false` if the user has none.
    pub(crate) async fn delete_recovery_codes(&self, sub: &str, now: Timestamp) -> Result<bool, StoreError> {
        let mut removed = false;
        let dropped = self.change_factors(sub, now, |factors| {
            removed = !factors.recovery.is_empty();
            factors.recovery.clear();
            Ok(())
        });
        only_store_error(dropped.await)?;
        if removed {
            self.record_method(RecordAction::Delete, sub, SignInMethod::RecoveryCodes);
        }
        Ok(removed)
    }

    /// A code with 80 random bits: letters and digits that are easy to distinguish, in groups of four.
    fn random_recovery_code(&self) -> String {
        const CODE_LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
        let mut bytes = [0; 16];
        self.random.fill(&mut bytes);
        let mut code = String::new();
        for (index, byte) in bytes.iter().enumerate() {
            if index > 0 && index % 4 == 0 {
                code.push('-');
            }
            code.push(char::from(CODE_LETTERS[usize::from(byte % 32)]));
        }
        code
    }
}

/// A recovery code without spaces and hyphens, with confusable letters replaced.
fn normalize_recovery_code(code: &str) -> String {
    let plain = code.chars().filter(|c| !c.is_whitespace() && *c != '-').take(64);
    plain
        .map(|c| match c.to_ascii_lowercase() {
            'o' => '0',
            'i' | 'l' => '1',
            other => other,
        })
        .collect()
}
