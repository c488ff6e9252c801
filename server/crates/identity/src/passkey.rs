//! Passkeys and recovery codes (Web Authentication Level 3; RFC 8176 for what is told of them).
//!
//! Every passkey is discoverable and verifies its user, so that it is a whole sign-in by itself and names
//! nobody before it has succeeded. What a ceremony needs to be judged stays here: one record under
//! `ceremony/{digest of its id}`, tied to the browser's cookie, gone after five minutes and taken once.
//! What a user has stands in one record, `factors/{sub}`, changed by compare-and-set.
//!
//! Signatures, flags and origins are judged by webauthn-rs, which also makes the challenges.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{Expect, LedgerWrite, StoreError};
use subtle::ConstantTimeEq;
use webauthn_rs::prelude::{
    AuthenticationResult, DiscoverableAuthentication, Passkey, PasskeyRegistration, PublicKeyCredential,
    RegisterPublicKeyCredential, Url, Uuid, Webauthn, WebauthnBuilder,
};

use crate::audit::{Action, SignInMethod};
use crate::session::Proof;
use crate::user::User;
use crate::{Identity, jose, ledger};

/// How long a person may take with the browser's dialogue.
pub(crate) const CEREMONY_LIFE: SignedDuration = SignedDuration::from_mins(5);
/// Most passkeys of one user.
pub const MOST: usize = 20;
/// Longest name of a passkey, in characters.
pub const LONGEST_NAME: usize = 60;
/// How many recovery codes are made at once.
pub const RECOVERY_CODES: usize = 10;

/// Why a passkey was not taken.
#[derive(Debug, thiserror::Error)]
pub enum PasskeyError {
    /// The server's address is no host name.
    #[error("this server's address is not a host name, so no browser keeps passkeys for it")]
    NoHostName,
    /// The ceremony is unknown, over, spent, or another browser's.
    #[error("this took too long or was begun in another window; please try again")]
    Over,
    /// What the browser sent does not hold: for the log. To people it is one answer.
    #[error("the passkey was not accepted: {0}")]
    Refused(String),
    /// Too many.
    #[error("you have {MOST} passkeys already; remove one first")]
    TooMany,
    /// Nobody could sign in afterwards.
    #[error("this is your only way to sign in; set a password or add another passkey first")]
    OnlyWay,
    /// There is no passkey that could be asked for.
    #[error("add a passkey first")]
    NoPasskey,
    /// The store's.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A passkey of a user.
#[derive(Clone, Serialize, Deserialize)]
struct Stored {
    name: String,
    since: Timestamp,
    last_used: Option<Timestamp>,
    key: Passkey,
}

/// What a user has beside the password.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Factors {
    passkeys: Vec<Stored>,
    /// SHA-256 of each recovery code that is left.
    recovery: Vec<String>,
    /// Is a passkey asked for after the password?
    after_password: bool,
}

/// What is shown of a passkey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PasskeyInfo {
    /// Credential id in base64url: names the passkey in forms.
    pub id: String,
    /// The user's name for it.
    pub name: String,
    /// When it was added.
    pub since: Timestamp,
    /// When it last signed the user in.
    pub last_used: Option<Timestamp>,
}

/// A ceremony that has begun.
#[derive(Debug, Clone, Serialize)]
pub struct Begun {
    /// Its id, which comes back with the credential.
    pub ceremony: String,
    /// `publicKey` of `navigator.credentials`, binary values in base64url.
    pub options: Value,
}

#[derive(Serialize, Deserialize)]
struct Ceremony {
    browser: String,
    kind: Kind,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Register {
        sub: String,
        state: PasskeyRegistration,
    },
    SignIn {
        /// The user whose password was right just before.
        after_password: Option<String>,
        state: DiscoverableAuthentication,
    },
}

/// The relying party of an issuer; `None` where its host is no name.
pub(crate) fn relying_party(issuer: &str) -> Option<Webauthn> {
    let origin = Url::parse(issuer).ok()?;
    let name = origin.domain()?.to_owned();
    WebauthnBuilder::new(&name, &origin)
        .ok()?
        .rp_name("Trefoil")
        .timeout(CEREMONY_LIFE.unsigned_abs())
        .build()
        .ok()
}

impl Identity {
    /// Can browsers keep passkeys for this server?
    pub fn has_passkeys(&self) -> bool {
        self.relying_party.is_some()
    }

    /// The passkeys of a user.
    ///
    /// # Errors
    /// The store's.
    pub async fn passkeys_of(&self, sub: &str, now: Timestamp) -> Result<Vec<PasskeyInfo>, StoreError> {
        let (factors, _) = self.factors(sub, now).await?;
        let info = |stored: Stored| PasskeyInfo {
            id: jose::b64(stored.key.cred_id()),
            name: stored.name,
            since: stored.since,
            last_used: stored.last_used,
        };
        Ok(factors.passkeys.into_iter().map(info).collect())
    }

    /// Does this user's password need a passkey after it?
    ///
    /// # Errors
    /// The store's.
    pub async fn needs_passkey(&self, sub: &str, now: Timestamp) -> Result<bool, StoreError> {
        let (factors, _) = self.factors(sub, now).await?;
        Ok(factors.after_password && !factors.passkeys.is_empty())
    }

    /// Says whether this user's password needs a passkey after it.
    ///
    /// # Errors
    /// [`PasskeyError::NoPasskey`] and the store's.
    pub async fn ask_for_passkey(&self, sub: &str, ask: bool, now: Timestamp) -> Result<(), PasskeyError> {
        self.change_factors(sub, now, |factors| {
            if ask && factors.passkeys.is_empty() {
                return Err(PasskeyError::NoPasskey);
            }
            factors.after_password = ask;
            Ok(())
        })
        .await
    }

    /// Begins to add a passkey.
    ///
    /// # Errors
    /// [`PasskeyError`].
    pub async fn begin_passkey_registration(
        &self,
        user: &User,
        browser: &str,
        now: Timestamp,
    ) -> Result<Begun, PasskeyError> {
        let relying_party = self.relying_party.as_ref().ok_or(PasskeyError::NoHostName)?;
        let (factors, _) = self.factors(&user.sub, now).await?;
        if factors.passkeys.len() >= MOST {
            return Err(PasskeyError::TooMany);
        }
        let known = factors.passkeys.iter().map(|stored| stored.key.cred_id().clone()).collect();
        let display = user.claims.name.as_deref().unwrap_or(&user.username);
        let (challenge, state) = relying_party
            .start_passkey_registration(handle(&user.sub)?, &user.username, display, Some(known))
            .map_err(refused)?;
        let mut options = options(&challenge);
        // Only a discoverable passkey signs in without a name being typed.
        options["authenticatorSelection"]["residentKey"] = "required".into();
        options["authenticatorSelection"]["requireResidentKey"] = true.into();
        self.begin_ceremony(Kind::Register { sub: user.sub.clone(), state }, options, browser, now).await
    }

    /// Ends adding a passkey: judges what the browser made and keeps it.
    ///
    /// # Errors
    /// [`PasskeyError`].
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
        let Kind::Register { sub, state } = self.take_ceremony(ceremony, browser, now).await? else {
            return Err(PasskeyError::Over);
        };
        if sub != user.sub {
            return Err(PasskeyError::Over);
        }
        let sent: RegisterPublicKeyCredential = serde_json::from_str(credential).map_err(refused)?;
        let key = relying_party.finish_passkey_registration(&sent, &state).map_err(refused)?;
        let name: String = name.trim().chars().filter(|c| !c.is_control()).take(LONGEST_NAME).collect();
        self.change_factors(&sub, now, |factors| {
            if factors.passkeys.len() >= MOST {
                return Err(PasskeyError::TooMany);
            }
            if factors.passkeys.iter().any(|known| known.key.cred_id() == key.cred_id()) {
                return Err(PasskeyError::Refused("it is registered already".to_owned()));
            }
            let name = match name.as_str() {
                "" => format!("Passkey {}", factors.passkeys.len() + 1),
                name => name.to_owned(),
            };
            factors.passkeys.push(Stored { name, since: now, last_used: None, key: key.clone() });
            Ok(())
        })
        .await?;
        self.record_method(Action::Create, &sub, SignInMethod::Passkey);
        Ok(())
    }

    /// Removes a passkey, but never a user's only way to sign in. One that is gone already is no error.
    ///
    /// # Errors
    /// [`PasskeyError::OnlyWay`] and the store's.
    pub async fn remove_passkey(&self, user: &User, id: &str, now: Timestamp) -> Result<(), PasskeyError> {
        let has_another = user.password.is_some() || !self.links_of(&user.sub, now).await?.is_empty();
        self.change_factors(&user.sub, now, |factors| {
            let before = factors.passkeys.len();
            factors.passkeys.retain(|stored| jose::b64(stored.key.cred_id()) != id);
            let removed = factors.passkeys.len() < before;
            if factors.passkeys.is_empty() {
                if removed && !has_another {
                    return Err(PasskeyError::OnlyWay);
                }
                factors.after_password = false;
            }
            Ok(())
        })
        .await?;
        self.record_method(Action::Delete, &user.sub, SignInMethod::Passkey);
        Ok(())
    }

    /// Removes a passkey, even the last way to sign in. Returns `false` if the user has no such passkey.
    pub(crate) async fn drop_passkey(&self, sub: &str, id: &str, now: Timestamp) -> Result<bool, StoreError> {
        let mut removed = false;
        let dropped = self.change_factors(sub, now, |factors| {
            let before = factors.passkeys.len();
            factors.passkeys.retain(|stored| jose::b64(stored.key.cred_id()) != id);
            removed = factors.passkeys.len() < before;
            factors.after_password &= !factors.passkeys.is_empty();
            Ok(())
        });
        store_error(dropped.await)?;
        if removed {
            self.record_method(Action::Delete, sub, SignInMethod::Passkey);
        }
        Ok(removed)
    }

    /// Removes all recovery codes. Returns `false` if the user has none.
    pub(crate) async fn drop_recovery_codes(&self, sub: &str, now: Timestamp) -> Result<bool, StoreError> {
        let mut removed = false;
        let dropped = self.change_factors(sub, now, |factors| {
            removed = !factors.recovery.is_empty();
            factors.recovery.clear();
            Ok(())
        });
        store_error(dropped.await)?;
        if removed {
            self.record_method(Action::Delete, sub, SignInMethod::RecoveryCodes);
        }
        Ok(removed)
    }

    /// Begins a sign-in by passkey. `after_password` is the user whose password was right just before.
    ///
    /// # Errors
    /// [`PasskeyError`].
    pub async fn begin_passkey_sign_in(
        &self,
        after_password: Option<&User>,
        browser: &str,
        now: Timestamp,
    ) -> Result<Begun, PasskeyError> {
        let relying_party = self.relying_party.as_ref().ok_or(PasskeyError::NoHostName)?;
        let (challenge, state) = relying_party.start_discoverable_authentication().map_err(refused)?;
        let after_password = after_password.map(|user| user.sub.clone());
        self.begin_ceremony(Kind::SignIn { after_password, state }, options(&challenge), browser, now).await
    }

    /// Ends a sign-in by passkey: who it is, and what was shown.
    ///
    /// # Errors
    /// [`PasskeyError`]; whatever does not hold is [`PasskeyError::Refused`], so that nothing tells who
    /// exists.
    pub async fn finish_passkey_sign_in(
        &self,
        ceremony: &str,
        credential: &str,
        browser: &str,
        now: Timestamp,
    ) -> Result<(User, Proof), PasskeyError> {
        let relying_party = self.relying_party.as_ref().ok_or(PasskeyError::NoHostName)?;
        let Kind::SignIn { after_password, state } = self.take_ceremony(ceremony, browser, now).await? else {
            return Err(PasskeyError::Over);
        };
        let sent: PublicKeyCredential = serde_json::from_str(credential).map_err(refused)?;
        let (handle, id) = relying_party.identify_discoverable_authentication(&sent).map_err(refused)?;
        let sub = jose::b64(handle.as_bytes());
        if after_password.as_ref().is_some_and(|expected| *expected != sub) {
            return Err(refused("it is another user's"));
        }
        let user = self.user(&sub, now).await?.ok_or_else(|| refused("its user is gone"))?;
        // Judged against what is stored at the moment of writing: a counter that went on meanwhile counts.
        let mut judged: Option<AuthenticationResult> = None;
        self.change_factors(&sub, now, |factors| {
            let stored = factors
                .passkeys
                .iter_mut()
                .find(|stored| stored.key.cred_id().as_slice() == id)
                .ok_or_else(|| refused("it is not registered"))?;
            let result = relying_party
                .finish_discoverable_authentication_v2(&sent, state.clone(), &stored.key)
                .map_err(refused)?;
            if !result.user_verified() {
                return Err(refused("the user was not verified"));
            }
            stored.key.update_credential(&result);
            stored.last_used = Some(now);
            judged = Some(result);
            Ok(())
        })
        .await?;
        // A key that may be copied to other devices is not bound to hardware (RFC 8176 2).
        let synced = judged.is_some_and(|result| result.backup_eligible());
        let mut amr = if after_password.is_some() { vec!["pwd"] } else { Vec::new() };
        amr.extend([if synced { "swk" } else { "hwk" }, "user", "mfa"]);
        Ok((user, Proof::by(&amr)))
    }

    /// Makes new recovery codes in the place of all old ones: the only time that they are seen.
    ///
    /// # Errors
    /// The store's.
    pub async fn new_recovery_codes(&self, sub: &str, now: Timestamp) -> Result<Vec<String>, PasskeyError> {
        let codes: Vec<String> = (0..RECOVERY_CODES).map(|_| self.recovery_code()).collect();
        let digests: Vec<String> = codes.iter().map(|code| ledger::digest(&bare(code))).collect();
        self.change_factors(sub, now, |factors| {
            factors.recovery.clone_from(&digests);
            Ok(())
        })
        .await?;
        self.record_method(Action::Create, sub, SignInMethod::RecoveryCodes);
        Ok(codes)
    }

    /// How many recovery codes a user has left.
    ///
    /// # Errors
    /// The store's.
    pub async fn recovery_codes_left(&self, sub: &str, now: Timestamp) -> Result<usize, StoreError> {
        Ok(self.factors(sub, now).await?.0.recovery.len())
    }

    /// Spends a recovery code of a user; `false` where it is none. For nobody the answer is no, after
    /// the same reading.
    ///
    /// # Errors
    /// The store's.
    pub async fn spend_recovery_code(
        &self,
        user: Option<&User>,
        code: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let sub = user.map_or("nobody", |user| &user.sub);
        let digest = ledger::digest(&bare(code));
        loop {
            let (mut factors, expect) = self.factors(sub, now).await?;
            let is_it = |known: &String| bool::from(known.as_bytes().ct_eq(digest.as_bytes()));
            let Some(at) = factors.recovery.iter().position(is_it) else { return Ok(false) };
            factors.recovery.swap_remove(at);
            match self.store.write(vec![ledger::put(factors_key(sub), &factors, None, expect)], now).await {
                Ok(_) => {
                    self.record_method(Action::Update, sub, SignInMethod::RecoveryCodes);
                    return Ok(true);
                }
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// 80 random bits in letters and digits that are not taken for each other, in groups of four.
    fn recovery_code(&self) -> String {
        const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
        let mut bytes = [0; 16];
        self.random.fill(&mut bytes);
        let mut code = String::new();
        for (at, byte) in bytes.iter().enumerate() {
            if at > 0 && at % 4 == 0 {
                code.push('-');
            }
            code.push(char::from(LETTERS[usize::from(byte % 32)]));
        }
        code
    }

    async fn begin_ceremony(
        &self,
        kind: Kind,
        options: Value,
        browser: &str,
        now: Timestamp,
    ) -> Result<Begun, PasskeyError> {
        let id = self.random.secret();
        let ceremony = Ceremony { browser: ledger::digest(browser), kind };
        let write = ledger::put(ceremony_key(&id), &ceremony, Some(now + CEREMONY_LIFE), Expect::Absent);
        self.store.write(vec![write], now).await?;
        Ok(Begun { ceremony: id, options })
    }

    async fn take_ceremony(&self, id: &str, browser: &str, now: Timestamp) -> Result<Kind, PasskeyError> {
        let key = ceremony_key(id);
        let stored = ledger::get::<Ceremony>(&self.store, &key, now).await?.ok_or(PasskeyError::Over)?;
        if !bool::from(stored.value.browser.as_bytes().ct_eq(ledger::digest(browser).as_bytes())) {
            return Err(PasskeyError::Over);
        }
        let delete = LedgerWrite::Delete { key, expect: Expect::Revision(stored.revision) };
        match self.store.write(vec![delete], now).await {
            Ok(_) => Ok(stored.value.kind),
            Err(StoreError::Conflict { .. }) => Err(PasskeyError::Over),
            Err(error) => Err(error.into()),
        }
    }

    async fn factors(&self, sub: &str, now: Timestamp) -> Result<(Factors, Expect), StoreError> {
        let found = ledger::get::<Factors>(&self.store, &factors_key(sub), now).await?;
        Ok(found.map_or((Factors::default(), Expect::Absent), |stored| {
            (stored.value, Expect::Revision(stored.revision))
        }))
    }

    async fn change_factors(
        &self,
        sub: &str,
        now: Timestamp,
        mut change: impl FnMut(&mut Factors) -> Result<(), PasskeyError> + Send,
    ) -> Result<(), PasskeyError> {
        loop {
            let (mut factors, expect) = self.factors(sub, now).await?;
            change(&mut factors)?;
            match self.store.write(vec![ledger::put(factors_key(sub), &factors, None, expect)], now).await {
                Ok(_) => return Ok(()),
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// A user handle is the 16 bytes of the subject: random, and no name (WebAuthn 14.6.1).
fn handle(sub: &str) -> Result<Uuid, PasskeyError> {
    let bytes = jose::unb64(sub).ok_or_else(|| refused("the subject is no base64url"))?;
    Uuid::from_slice(&bytes).map_err(refused)
}

/// The options that go to the browser.
fn options(challenge: &impl Serialize) -> Value {
    let mut challenge = serde_json::to_value(challenge).expect("webauthn's own types serialise");
    challenge["publicKey"].take()
}

/// The store's error of a change that cannot fail otherwise.
fn store_error(changed: Result<(), PasskeyError>) -> Result<(), StoreError> {
    match changed {
        Err(PasskeyError::Store(error)) => Err(error),
        _ => Ok(()),
    }
}

fn refused(error: impl ToString) -> PasskeyError {
    PasskeyError::Refused(error.to_string())
}

/// A recovery code as it is compared: what people add or mistake when they type it makes no difference.
fn bare(code: &str) -> String {
    let plain = code.chars().filter(|c| !c.is_whitespace() && *c != '-').take(64);
    plain
        .map(|c| match c.to_ascii_lowercase() {
            'o' => '0',
            'i' | 'l' => '1',
            other => other,
        })
        .collect()
}

fn ceremony_key(id: &str) -> String {
    format!("ceremony/{}", ledger::digest(id))
}

pub(crate) fn factors_key(sub: &str) -> String {
    format!("factors/{sub}")
}
