//! Device authorization grant (RFC 8628): a device without a browser shows a short code, and its user says
//! yes to it in a browser elsewhere.
//!
//! The request stands under `device/{digest of device_code}`; `device-user/{mark of user_code}` leads to it.
//! It goes by compare-and-set from pending to granted or denied, and from granted to spent, once. The user
//! code is short, so it is kept as a mark under the server's secret: a digest alone could be searched.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use store::{Expect, LedgerWrite, StoreError};

use crate::audit::Event;
use crate::authorize::ErrorCode;
use crate::client::Client;
use crate::grant::{Grant, GrantError, REFRESH_LIFE};
use crate::scope::Scopes;
use crate::session::Session;
use crate::user::User;
use crate::{Identity, authorize, ledger};

/// Life of both codes (RFC 8628 3.2, `expires_in`).
pub const LIFE: SignedDuration = SignedDuration::from_mins(10);
/// How long an expired request is remembered, so that the device learns that it expired.
const MEMORY: SignedDuration = SignedDuration::from_mins(10);
/// Pause between two polls at the beginning, and by how much `slow_down` lengthens it (RFC 8628 3.2, 3.5).
pub const INTERVAL: SignedDuration = SignedDuration::from_secs(5);
/// How much earlier than the interval a poll may come: the clocks of two machines, and the network between.
const TOLERANCE: SignedDuration = SignedDuration::from_millis(500);

/// What a device is told (RFC 8628 3.2).
#[derive(Debug, Clone)]
pub struct Begun {
    /// For the token endpoint.
    pub device_code: String,
    /// For the person: eight consonants in two groups.
    pub user_code: String,
}

/// What a person is asked.
#[derive(Debug, Clone)]
pub struct Question {
    /// Who asks.
    pub client: Client,
    /// What this user would grant: asked ∩ client ∩ user.
    pub scopes: Scopes,
    /// As it is shown: `XXXX-XXXX`.
    pub user_code: String,
}

#[derive(Serialize, Deserialize)]
struct Request {
    client_id: String,
    generation: String,
    scopes: Scopes,
    state: State,
    expires: Timestamp,
    interval_s: i64,
    last_poll: Option<Timestamp>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Pending,
    Granted(Box<Grant>),
    Denied,
    Spent(Box<Grant>),
}

#[derive(Serialize, Deserialize)]
struct ByUserCode {
    key: String,
}

/// Why the device gets no token now (RFC 8628 3.5).
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// Nobody has answered yet.
    #[error("the user has not answered yet")]
    Pending,
    /// Too early; the interval is longer now.
    #[error("wait 5 seconds longer between two requests than before")]
    SlowDown,
    /// The codes are too old.
    #[error("the codes have expired; begin again")]
    Expired,
    /// The user said no.
    #[error("the user said no")]
    Denied,
    /// As for any other grant.
    #[error(transparent)]
    Grant(#[from] GrantError),
}

impl From<StoreError> for DeviceError {
    fn from(error: StoreError) -> Self {
        Self::Grant(error.into())
    }
}

/// Letters of user codes: no vowels, so that they spell nothing (RFC 8628 6.1).
const LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";

/// A user code as it is compared: capital letters of the alphabet, whatever is typed around them.
/// `None` where there are not eight.
fn bare(user_code: &str) -> Option<String> {
    let letters = user_code.chars().map(|c| c.to_ascii_uppercase());
    let letters: String =
        letters.filter(|c| u8::try_from(*c).is_ok_and(|b| LETTERS.contains(&b))).take(9).collect();
    (letters.len() == 8).then_some(letters)
}

/// What a user can grant to a device: there is no page on which another patient than the user's own could be
/// chosen.
fn grantable(asked: &Scopes, user: &User) -> Scopes {
    let scopes = asked.filter(|scope| user.may_grant(scope));
    if scopes.is_launch() && user.own_patient().is_none() {
        return scopes.filter(|scope| !scope.starts_with("patient/") && scope != "launch/patient");
    }
    scopes
}

impl Identity {
    /// Begins a device authorization for an authenticated client.
    ///
    /// # Errors
    /// `invalid_scope` for a scope that the client lacks; the store's.
    pub async fn begin_device(
        &self,
        client: &Client,
        scope: Option<&str>,
        now: Timestamp,
    ) -> Result<Result<Begun, ErrorCode>, StoreError> {
        let scopes = match authorize::check_scope(scope, client) {
            Ok(scopes) => scopes,
            Err(error) => return Ok(Err(error)),
        };
        loop {
            let device_code = self.random.secret();
            let user_code = self.user_code();
            let request = Request {
                client_id: client.client_id.clone(),
                generation: client.generation.clone(),
                scopes: scopes.clone(),
                state: State::Pending,
                expires: now + LIFE,
                interval_s: INTERVAL.as_secs(),
                last_poll: None,
            };
            let by_user_code = ByUserCode { key: key(&device_code) };
            let writes = vec![
                ledger::put(key(&device_code), &request, Some(now + LIFE + MEMORY), Expect::Absent),
                ledger::put(self.user_code_key(&user_code), &by_user_code, Some(now + LIFE), Expect::Absent),
            ];
            match self.store.write(writes, now).await {
                Ok(_) => {
                    let user_code = format!("{}-{}", &user_code[..4], &user_code[4..]);
                    return Ok(Ok(Begun { device_code, user_code }));
                }
                // The same user code is in use: draw again.
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// What the person who typed this code is asked; `None` where the code is unknown, expired or answered.
    ///
    /// # Errors
    /// The store's.
    pub async fn device_question(
        &self,
        user_code: &str,
        user: &User,
        now: Timestamp,
    ) -> Result<Option<Question>, StoreError> {
        let Some((_, stored, letters)) = self.pending(user_code, now).await? else { return Ok(None) };
        let Some(client) = self.client(&stored.value.client_id, now).await? else { return Ok(None) };
        let scopes = grantable(&stored.value.scopes, user);
        let user_code = format!("{}-{}", &letters[..4], &letters[4..]);
        Ok(Some(Question { client, scopes, user_code }))
    }

    /// Carries the person's answer; gives `false` where the code is unknown, expired or answered, or where
    /// nothing that was asked can be granted.
    ///
    /// # Errors
    /// The store's.
    pub async fn answer_device(
        &self,
        user_code: &str,
        allow: bool,
        session: &Session,
        user: &User,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let Some((key, stored, letters)) = self.pending(user_code, now).await? else { return Ok(false) };
        let mut request = stored.value;
        let scopes = grantable(&request.scopes, user);
        let client = self.client(&request.client_id, now).await?;
        let Some(client) = client.filter(|client| client.generation == request.generation) else {
            return Ok(false);
        };
        if allow && scopes.is_empty() {
            return Ok(false);
        }
        request.state = if allow {
            State::Granted(Box::new(Grant {
                patient: if scopes.is_launch() { user.own_patient().map(str::to_owned) } else { None },
                client_id: request.client_id.clone(),
                generation: client.generation,
                sub: session.sub.clone(),
                scopes,
                granted: now,
                auth_time: session.auth_time,
                sid: session.sid.clone(),
                epoch: session.epoch,
                nonce: None,
                family: self.random.id(),
                amr: session.amr.clone(),
                jkt: None,
            }))
        } else {
            State::Denied
        };
        let writes = vec![
            ledger::put(key, &request, Some(request.expires + MEMORY), Expect::Revision(stored.revision)),
            LedgerWrite::Delete { key: self.user_code_key(&letters), expect: Expect::Any },
        ];
        match self.store.write(writes, now).await {
            Ok(_) => {
                let scope = match &request.state {
                    State::Granted(grant) => grant.scopes.to_string(),
                    _ => String::new(),
                };
                let (sub, client_id) = (session.sub.clone(), request.client_id.clone());
                self.record(Event::DeviceAnswered { sub, client_id, scope });
                Ok(true)
            }
            // A poll wrote its time, or another window answered: look again.
            Err(StoreError::Conflict { .. }) => {
                Box::pin(self.answer_device(user_code, allow, session, user, now)).await
            }
            Err(error) => Err(error),
        }
    }

    /// Redeems a device code for the client that it was given to: the grant, once, bound to the key that was
    /// proven beside it.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub async fn redeem_device(
        &self,
        device_code: &str,
        client: &Client,
        jkt: Option<&str>,
        now: Timestamp,
    ) -> Result<Grant, DeviceError> {
        let key = key(device_code);
        let stored = ledger::get::<Request>(&self.store, &key, now).await?.ok_or(GrantError::Unknown)?;
        let mut request = stored.value;
        if request.client_id != client.client_id || request.generation != client.generation {
            return Err(GrantError::Unknown.into());
        }
        if let State::Spent(grant) = &request.state {
            return Err(self.reused("device_code", grant, now).await.into());
        }
        if now >= request.expires {
            return Err(DeviceError::Expired);
        }
        let expect = Expect::Revision(stored.revision);
        match std::mem::replace(&mut request.state, State::Pending) {
            State::Granted(grant) => {
                let scopes = self.check_standing(&grant, client, now).await?;
                request.state = State::Spent(grant.clone());
                let write = ledger::put(key, &request, Some(now + REFRESH_LIFE), expect);
                self.spend("device_code", write, &grant, now).await?;
                Ok(Grant { scopes, jkt: jkt.map(str::to_owned), ..*grant })
            }
            State::Denied | State::Spent(_) => Err(DeviceError::Denied),
            State::Pending => {
                let interval = SignedDuration::from_secs(request.interval_s);
                let early = request.last_poll.is_some_and(|last| now + TOLERANCE < last + interval);
                request.last_poll = Some(now);
                if early {
                    request.interval_s += INTERVAL.as_secs();
                }
                let write = ledger::put(key, &request, Some(request.expires + MEMORY), expect);
                match self.store.write(vec![write], now).await {
                    // Whoever wrote at the same time is seen at the next poll.
                    Ok(_) | Err(StoreError::Conflict { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
                Err(if early { DeviceError::SlowDown } else { DeviceError::Pending })
            }
        }
    }

    async fn pending(
        &self,
        user_code: &str,
        now: Timestamp,
    ) -> Result<Option<(String, ledger::Stored<Request>, String)>, StoreError> {
        let Some(letters) = bare(user_code) else { return Ok(None) };
        let found = ledger::get::<ByUserCode>(&self.store, &self.user_code_key(&letters), now).await?;
        let Some(by_user_code) = found else { return Ok(None) };
        let key = by_user_code.value.key;
        let Some(stored) = ledger::get::<Request>(&self.store, &key, now).await? else { return Ok(None) };
        let open = matches!(stored.value.state, State::Pending) && now < stored.value.expires;
        Ok(open.then_some((key, stored, letters)))
    }

    /// Eight letters, each as likely as the others: 34 bits, guarded by the throttle of the page.
    fn user_code(&self) -> String {
        let mut letters = String::new();
        while letters.len() < 8 {
            let mut byte = [0];
            self.random.fill(&mut byte);
            // 240 is the largest multiple of 20 in a byte.
            if byte[0] < 240 {
                letters.push(char::from(LETTERS[usize::from(byte[0] % 20)]));
            }
        }
        letters
    }

    fn user_code_key(&self, letters: &str) -> String {
        format!("device-user/{}", self.mark("user-code", letters))
    }
}

fn key(device_code: &str) -> String {
    format!("device/{}", ledger::digest(device_code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_code_is_read_however_it_is_typed() {
        for typed in ["WDJB-MJHT", "wdjbmjht", " wdjb mjht ", "W.D.J.B-M.J.H.T"] {
            assert_eq!(bare(typed).as_deref(), Some("WDJBMJHT"), "{typed}");
        }
        for typed in ["", "WDJB-MJH", "WDJB-MJHTX", "AEIO-UAEI", "ＷＤＪＢ-ＭＪＨＴ"] {
            assert_eq!(bare(typed), None, "{typed}");
        }
    }
}
