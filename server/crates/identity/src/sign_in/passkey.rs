//! Passkeys (Web Authentication Level 3; `amr` values of RFC 8176).
//!
//! Every passkey is discoverable and verifies its user. It is therefore sufficient for a sign-in, and the
//! sign-in page needs no user name. The state of a ceremony is one record, bound to the browser's cookie. The
//! record expires after five minutes and can be used once.
//!
//! The library webauthn-rs creates the challenges and checks signatures, flags and origins.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{Expect, LedgerWrite, StoreError};
use subtle::ConstantTimeEq;
use webauthn_rs::prelude::{
    AuthenticationResult, DiscoverableAuthentication, PasskeyRegistration, PublicKeyCredential,
    RegisterPublicKeyCredential, Url, Uuid, Webauthn, WebauthnBuilder,
};

use crate::audit::{RecordAction, SignInMethod};
use crate::encoding;
use crate::ledger_keys;
use crate::lifetimes;
use crate::model::user::User;
use crate::sign_in::factors::{StoredPasskey, only_store_error};
use crate::sign_in::passkey_error::{MAX_PASSKEYS, PasskeyError};
use crate::sign_in::session::SignInProof;
use crate::sign_in::sign_in_service::SignInService;
use crate::storage::records;

/// Maximum length of the name of a passkey in characters.
pub const MAX_NAME_LENGTH: usize = 60;

/// Public data of a registered passkey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PasskeyInfo {
    /// Credential id in base64url, which also identifies the passkey in HTML forms.
    pub id: String,
    /// Name chosen by the user.
    pub name: String,
    /// Time at which the passkey was added.
    pub since: Timestamp,
    /// Time of the last sign-in with the passkey.
    pub last_used: Option<Timestamp>,
}

/// The data that a browser needs to continue a ceremony.
#[derive(Debug, Clone, Serialize)]
pub struct PasskeyCeremonyStart {
    /// Id of the ceremony. The browser returns it with the credential.
    pub ceremony: String,
    /// Options for `publicKey` of `navigator.credentials`, with binary values as base64url text.
    pub options: Value,
}

#[derive(Serialize, Deserialize)]
struct PasskeyCeremony {
    browser: String,
    kind: CeremonyKind,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CeremonyKind {
    Register {
        sub: String,
        state: PasskeyRegistration,
    },
    SignIn {
        /// Subject of the user who has just entered the correct password, if the passkey is a second factor.
        after_password: Option<String>,
        state: DiscoverableAuthentication,
    },
}

/// The relying party of an issuer, or `None` if its host is an IP address.
pub(crate) fn relying_party(issuer: &str) -> Option<Webauthn> {
    let origin = Url::parse(issuer).ok()?;
    let name = origin.domain()?.to_owned();
    WebauthnBuilder::new(&name, &origin)
        .ok()?
        .rp_name("Trefoil")
        .timeout(lifetimes::PASSKEY_CEREMONY.unsigned_abs())
        .build()
        .ok()
}

impl SignInService {
    /// Returns `true` if this server supports passkeys: its host must not be an IP address.
    pub fn supports_passkeys(&self) -> bool {
        self.relying_party.is_some()
    }

    /// Returns the passkeys of a user.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the read fails.
    pub async fn user_passkeys(&self, sub: &str, now: Timestamp) -> Result<Vec<PasskeyInfo>, StoreError> {
        let (factors, _) = self.user_factors(sub, now).await?;
        let info = |passkey: StoredPasskey| PasskeyInfo {
            id: encoding::encode_base64url(passkey.key.cred_id()),
            name: passkey.name,
            since: passkey.since,
            last_used: passkey.last_used,
        };
        Ok(factors.passkeys.into_iter().map(info).collect())
    }

    /// Returns `true` if a sign-in with the user's password also requires a passkey.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the read fails.
    pub async fn requires_passkey(&self, sub: &str, now: Timestamp) -> Result<bool, StoreError> {
        let (factors, _) = self.user_factors(sub, now).await?;
        Ok(factors.after_password && !factors.passkeys.is_empty())
    }

    /// Sets whether a sign-in with the user's password also requires a passkey.
    ///
    /// # Errors
    /// Returns [`PasskeyError::NoPasskey`] if the user has no passkey, or a store error.
    pub async fn require_passkey(&self, sub: &str, ask: bool, now: Timestamp) -> Result<(), PasskeyError> {
        self.change_factors(sub, now, |factors| {
            if ask && factors.passkeys.is_empty() {
                return Err(PasskeyError::NoPasskey);
            }
            factors.after_password = ask;
            Ok(())
        })
        .await
    }

    /// Starts the registration of a passkey.
    ///
    /// # Errors
    /// Returns [`PasskeyError`] if the user has the maximum number of passkeys, or the server does not
    /// support passkeys.
    pub async fn begin_passkey_registration(
        &self,
        user: &User,
        browser: &str,
        now: Timestamp,
    ) -> Result<PasskeyCeremonyStart, PasskeyError> {
        let relying_party = self.relying_party.as_ref().ok_or(PasskeyError::NoHostName)?;
        let (factors, _) = self.user_factors(&user.sub, now).await?;
        if factors.passkeys.len() >= MAX_PASSKEYS {
            return Err(PasskeyError::TooMany);
        }
        let registered_ids = factors.passkeys.iter().map(|passkey| passkey.key.cred_id().clone()).collect();
        let display = user.claims.name.as_deref().unwrap_or(&user.username);
        let (challenge, state) = relying_party
            .start_passkey_registration(
                user_handle(&user.sub)?,
                &user.username,
                display,
                Some(registered_ids),
            )
            .map_err(rejected)?;
        let mut options = options(&challenge);
        // A sign-in without a user name requires a discoverable passkey.
        options["authenticatorSelection"]["residentKey"] = "required".into();
        options["authenticatorSelection"]["requireResidentKey"] = true.into();
        self.begin_ceremony(CeremonyKind::Register { sub: user.sub.clone(), state }, options, browser, now)
            .await
    }

    /// Verifies the credential that the browser created, and stores the passkey.
    ///
    /// # Errors
    /// Returns [`PasskeyError`] if the ceremony or the credential is invalid.
    pub async fn finish_passkey_registration(
        &self,
        user: &User,
        ceremony: &str,
        credential: &str,
        name: &str,
        browser: &str,
        now: Timestamp,
    ) -> Result<(), PasskeyError> {
        let relying_party = self.relying_party.as_ref().ok_or(PasskeyError::NoHostName)?;
        let CeremonyKind::Register { sub, state } = self.take_ceremony(ceremony, browser, now).await? else {
            return Err(PasskeyError::CeremonyExpired);
        };
        if sub != user.sub {
            return Err(PasskeyError::CeremonyExpired);
        }
        let credential_data: RegisterPublicKeyCredential =
            serde_json::from_str(credential).map_err(rejected)?;
        let key = relying_party.finish_passkey_registration(&credential_data, &state).map_err(rejected)?;
        let name: String = name.trim().chars().filter(|c| !c.is_control()).take(MAX_NAME_LENGTH).collect();
        self.change_factors(&sub, now, |factors| {
            if factors.passkeys.len() >= MAX_PASSKEYS {
                return Err(PasskeyError::TooMany);
            }
            if factors.passkeys.iter().any(|candidate| candidate.key.cred_id() == key.cred_id()) {
                return Err(PasskeyError::Rejected("the passkey is already registered".to_owned()));
            }
            let name = match name.as_str() {
                "" => format!("Passkey {}", factors.passkeys.len() + 1),
                name => name.to_owned(),
            };
            factors.passkeys.push(StoredPasskey { name, since: now, last_used: None, key: key.clone() });
            Ok(())
        })
        .await?;
        self.record_method(RecordAction::Create, &sub, SignInMethod::Passkey);
        Ok(())
    }

    /// Removes a passkey unless it is the user's only sign-in method. Has no effect if there is no such
    /// passkey.
    ///
    /// # Errors
    /// Returns [`PasskeyError::OnlyWay`] if the passkey is the only sign-in method, or a store error.
    pub async fn remove_passkey(&self, user: &User, id: &str, now: Timestamp) -> Result<(), PasskeyError> {
        loop {
            let (mut factors, expect) = self.user_factors(&user.sub, now).await?;
            let has_another =
                user.password.is_some() || !self.linked_accounts(&user.sub, now).await?.is_empty();
            let before = factors.passkeys.len();
            factors.passkeys.retain(|passkey| encoding::encode_base64url(passkey.key.cred_id()) != id);
            let removed = factors.passkeys.len() < before;
            if factors.passkeys.is_empty() {
                if removed && !has_another {
                    return Err(PasskeyError::OnlyWay);
                }
                factors.after_password = false;
            }
            if self.write_factors(&user.sub, &factors, expect, Vec::new(), now).await? {
                break;
            }
        }
        self.record_method(RecordAction::Delete, &user.sub, SignInMethod::Passkey);
        Ok(())
    }

    /// Removes a passkey, even if it is the user's only sign-in method. Returns `false` if the user has no
    /// such passkey.
    pub(crate) async fn force_remove_passkey(
        &self,
        sub: &str,
        id: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut removed = false;
        let dropped = self.change_factors(sub, now, |factors| {
            let before = factors.passkeys.len();
            factors.passkeys.retain(|passkey| encoding::encode_base64url(passkey.key.cred_id()) != id);
            removed = factors.passkeys.len() < before;
            factors.after_password &= !factors.passkeys.is_empty();
            Ok(())
        });
        only_store_error(dropped.await)?;
        if removed {
            self.record_method(RecordAction::Delete, sub, SignInMethod::Passkey);
        }
        Ok(removed)
    }

    /// Starts a sign-in with a passkey. `after_password` is the user who has just entered the correct
    /// password.
    ///
    /// # Errors
    /// Returns [`PasskeyError`] if the server does not support passkeys, or the store fails.
    pub async fn begin_passkey_sign_in(
        &self,
        after_password: Option<&User>,
        browser: &str,
        now: Timestamp,
    ) -> Result<PasskeyCeremonyStart, PasskeyError> {
        let relying_party = self.relying_party.as_ref().ok_or(PasskeyError::NoHostName)?;
        let (challenge, state) = relying_party.start_discoverable_authentication().map_err(rejected)?;
        let after_password = after_password.map(|user| user.sub.clone());
        self.begin_ceremony(CeremonyKind::SignIn { after_password, state }, options(&challenge), browser, now)
            .await
    }

    /// Verifies a sign-in with a passkey. Returns the user and the authentication methods.
    ///
    /// # Errors
    /// Returns [`PasskeyError::Rejected`] for every invalid response, so that the error does not reveal which
    /// users exist.
    pub async fn finish_passkey_sign_in(
        &self,
        ceremony: &str,
        credential: &str,
        browser: &str,
        now: Timestamp,
    ) -> Result<(User, SignInProof), PasskeyError> {
        let relying_party = self.relying_party.as_ref().ok_or(PasskeyError::NoHostName)?;
        let CeremonyKind::SignIn { after_password, state } =
            self.take_ceremony(ceremony, browser, now).await?
        else {
            return Err(PasskeyError::CeremonyExpired);
        };
        let assertion: PublicKeyCredential = serde_json::from_str(credential).map_err(rejected)?;
        let (user_handle, id) =
            relying_party.identify_discoverable_authentication(&assertion).map_err(rejected)?;
        let sub = encoding::encode_base64url(user_handle.as_bytes());
        if after_password.as_ref().is_some_and(|expected| *expected != sub) {
            return Err(rejected("the passkey belongs to another user"));
        }
        let user = self
            .users
            .active_user(&sub, now)
            .await?
            .ok_or_else(|| rejected("the user is deleted or disabled"))?;
        // The credential is verified inside the compare-and-set against the stored counter, because a
        // concurrent sign-in may have incremented the counter.
        let mut verified: Option<AuthenticationResult> = None;
        self.change_factors(&sub, now, |factors| {
            let passkey = factors
                .passkeys
                .iter_mut()
                .find(|candidate| candidate.key.cred_id().as_slice() == id)
                .ok_or_else(|| rejected("the passkey is not registered"))?;
            let result = relying_party
                .finish_discoverable_authentication_v2(&assertion, state.clone(), &passkey.key)
                .map_err(rejected)?;
            if !result.user_verified() {
                return Err(rejected("the user was not verified"));
            }
            passkey.key.update_credential(&result);
            passkey.last_used = Some(now);
            verified = Some(result);
            Ok(())
        })
        .await?;
        // A passkey that can be copied to other devices is not bound to hardware, so `hwk` does not apply
        // (RFC 8176 section 2).
        let synced = verified.is_some_and(|result| result.backup_eligible());
        let mut amr = if after_password.is_some() { vec!["pwd"] } else { Vec::new() };
        amr.extend([if synced { "swk" } else { "hwk" }, "user", "mfa"]);
        Ok((user, SignInProof::from_methods(&amr)))
    }

    async fn begin_ceremony(
        &self,
        kind: CeremonyKind,
        options: Value,
        browser: &str,
        now: Timestamp,
    ) -> Result<PasskeyCeremonyStart, PasskeyError> {
        let id = self.random.secret();
        let ceremony = PasskeyCeremony { browser: encoding::sha256_base64url(browser), kind };
        let write = records::put_record(
            ledger_keys::passkey_ceremony(&id),
            &ceremony,
            Some(now + lifetimes::PASSKEY_CEREMONY),
            Expect::Absent,
        );
        self.ledger.write(vec![write], now).await?;
        Ok(PasskeyCeremonyStart { ceremony: id, options })
    }

    async fn take_ceremony(
        &self,
        id: &str,
        browser: &str,
        now: Timestamp,
    ) -> Result<CeremonyKind, PasskeyError> {
        let key = ledger_keys::passkey_ceremony(id);
        let ceremony_record = self
            .ledger
            .read_record::<PasskeyCeremony>(&key, now)
            .await?
            .ok_or(PasskeyError::CeremonyExpired)?;
        if !bool::from(
            ceremony_record.value.browser.as_bytes().ct_eq(encoding::sha256_base64url(browser).as_bytes()),
        ) {
            return Err(PasskeyError::CeremonyExpired);
        }
        let delete = LedgerWrite::Delete { key, expect: Expect::Revision(ceremony_record.revision) };
        match self.ledger.write(vec![delete], now).await {
            Ok(_) => Ok(ceremony_record.value.kind),
            Err(StoreError::Conflict { .. }) => Err(PasskeyError::CeremonyExpired),
            Err(error) => Err(error.into()),
        }
    }
}

/// The user handle: the 16 random bytes of the subject (Web Authentication section 14.6.1).
fn user_handle(sub: &str) -> Result<Uuid, PasskeyError> {
    let bytes = encoding::decode_base64url(sub).ok_or_else(|| rejected("the subject is not base64url"))?;
    Uuid::from_slice(&bytes).map_err(rejected)
}

/// A challenge as options for the browser.
fn options(challenge: &impl Serialize) -> Value {
    let mut challenge = serde_json::to_value(challenge).expect("challenges of webauthn-rs serialize to JSON");
    challenge["publicKey"].take()
}

fn rejected(error: impl ToString) -> PasskeyError {
    PasskeyError::Rejected(error.to_string())
}
