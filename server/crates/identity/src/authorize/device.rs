//! Device authorization grant (RFC 8628): a device without a browser displays a short code, and its user
//! approves the request in a browser on another device.
//!
//! Each request is one record, which changes by compare-and-set from pending to granted or denied, and from
//! granted to spent. A user code is so short that its plain digest could be reversed by trying all codes, so
//! the ledger stores a message authentication code of it.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use store::{Expect, LedgerWrite, StoreError};

use crate::audit::{AuditEvent, AuditSink};
use crate::authorize::authorization_service::SupportsQuery;
use crate::authorize::refusal::Refusal;
use crate::authorize::request;
use crate::directory::client_registry::ClientRegistry;
use crate::ledger_keys;
use crate::lifetimes;
use crate::model::client::Client;
use crate::model::scope::{NamedScope, ScopeContext, Scopes};
use crate::model::user::User;
use crate::random::Random;
use crate::sign_in::session::Session;
use crate::storage::epoch_ledger::EpochLedger;
use crate::storage::records;
use crate::storage::server_secret::ServerSecret;
use crate::tokens::grant::{Grant, GrantError};
use crate::tokens::grant_store::GrantStore;

/// Minimum time between two polls, and the increment of each `slow_down` (RFC 8628 sections 3.2 and 3.5).
pub const POLLING_INTERVAL: SignedDuration = SignedDuration::from_secs(5);
/// A poll is accepted if it is early by at most this much, because clocks and network delays differ.
const POLLING_TOLERANCE: SignedDuration = SignedDuration::from_millis(500);

/// Response to a device (RFC 8628 section 3.2).
#[derive(Debug, Clone)]
pub struct DeviceCodes {
    /// Code that the device sends to the token endpoint.
    pub device_code: String,
    /// Code that the user enters: eight consonants in two groups.
    pub user_code: String,
}

/// The request that a user approves or denies after entering its user code.
#[derive(Debug, Clone)]
pub struct DeviceQuestion {
    /// Client that requests access.
    pub client: Client,
    /// Scopes that this user can grant: requested by the device, registered for the client and allowed for
    /// the user.
    pub scopes: Scopes,
    /// User code as it is displayed: `XXXX-XXXX`.
    pub user_code: String,
}

#[derive(Serialize, Deserialize)]
struct DeviceRequest {
    client_id: String,
    generation: String,
    scopes: Scopes,
    state: DeviceRequestState,
    expires: Timestamp,
    interval_s: i64,
    last_poll: Option<Timestamp>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum DeviceRequestState {
    Pending,
    Granted(Box<Grant>),
    Denied,
    Spent(Box<Grant>),
}

#[derive(Serialize, Deserialize)]
struct UserCodeIndex {
    key: String,
}

/// Reasons why a device receives no token (RFC 8628 section 3.5).
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The user has not answered yet.
    #[error("the user has not answered yet")]
    Pending,
    /// The poll was too early, and the interval was extended.
    #[error("the device polls too fast; wait 5 seconds longer between two requests")]
    SlowDown,
    /// The codes have expired.
    #[error("the codes have expired; request new ones")]
    Expired,
    /// The user denied access.
    #[error("the user denied access")]
    Denied,
    /// The grant was rejected for a reason that applies to every grant type.
    #[error(transparent)]
    Grant(#[from] GrantError),
}

impl From<StoreError> for DeviceError {
    fn from(error: StoreError) -> Self {
        Self::Grant(error.into())
    }
}

/// Letters of user codes: consonants only, so that user codes do not spell words (RFC 8628 section 6.1).
const USER_CODE_LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";

/// The eight letters of a user code in upper case. Ignores spaces and punctuation. Returns `None` if there
/// are not exactly eight letters.
fn normalize_user_code(user_code: &str) -> Option<String> {
    let letters = user_code.chars().map(|c| c.to_ascii_uppercase());
    let letters: String =
        letters.filter(|c| u8::try_from(*c).is_ok_and(|b| USER_CODE_LETTERS.contains(&b))).take(9).collect();
    (letters.len() == 8).then_some(letters)
}

/// The patient of a user with one patient.
fn only_patient(user: &User) -> Option<String> {
    match user.patients()[..] {
        [only] => Some(only.to_owned()),
        _ => None,
    }
}

/// The scopes that a user can grant to a device. The device page cannot select a patient, so `patient/`
/// scopes require a user with one patient.
fn grantable_scopes(requested: &Scopes, user: &User) -> Scopes {
    let scopes = requested.filter(|scope| user.may_grant(scope));
    if scopes.is_launch() && only_patient(user).is_none() {
        return scopes.filter(|scope| {
            ScopeContext::of(scope) != Some(ScopeContext::Patient)
                && scope != NamedScope::LaunchPatient.name()
        });
    }
    scopes
}

/// The device authorization requests in the ledger.
pub struct DeviceAuthorizations {
    pub(crate) ledger: Arc<EpochLedger>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) audit: Arc<dyn AuditSink>,
    pub(crate) clients: Arc<ClientRegistry>,
    pub(crate) grants: Arc<GrantStore>,
    pub(crate) server_secret: Arc<ServerSecret>,
    pub(crate) supports_query: SupportsQuery,
}

impl DeviceAuthorizations {
    /// Begins a device authorization for an authenticated client. The inner error is `invalid_scope` if a
    /// scope is not registered for the client.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the write fails.
    pub async fn begin_device_authorization(
        &self,
        client: &Client,
        scope: Option<&str>,
        now: Timestamp,
    ) -> Result<Result<DeviceCodes, Refusal>, StoreError> {
        let scopes = match request::check_scope(scope, client, self.supports_query) {
            Ok(scopes) => scopes,
            Err(error) => return Ok(Err(error)),
        };
        loop {
            let device_code = self.random.secret();
            let user_code = self.new_user_code();
            let request = DeviceRequest {
                client_id: client.client_id.clone(),
                generation: client.generation.clone(),
                scopes: scopes.clone(),
                state: DeviceRequestState::Pending,
                expires: now + lifetimes::DEVICE_CODE,
                interval_s: POLLING_INTERVAL.as_secs(),
                last_poll: None,
            };
            let by_user_code = UserCodeIndex { key: ledger_keys::device_request(&device_code) };
            let writes = vec![
                records::put_record(
                    ledger_keys::device_request(&device_code),
                    &request,
                    Some(now + lifetimes::DEVICE_CODE + lifetimes::EXPIRED_DEVICE_CODE),
                    Expect::Absent,
                ),
                records::put_record(
                    self.user_code_key(&user_code),
                    &by_user_code,
                    Some(now + lifetimes::DEVICE_CODE),
                    Expect::Absent,
                ),
            ];
            match self.ledger.write(writes, now).await {
                Ok(_) => {
                    let user_code = format!("{}-{}", &user_code[..4], &user_code[4..]);
                    return Ok(Ok(DeviceCodes { device_code, user_code }));
                }
                // The user code is in use: generate another one.
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the request that belongs to a user code, or `None` if the code is unknown, expired or already
    /// answered.
    ///
    /// # Errors
    /// Returns [`StoreError`] if a read fails.
    pub async fn device_question(
        &self,
        user_code: &str,
        user: &User,
        now: Timestamp,
    ) -> Result<Option<DeviceQuestion>, StoreError> {
        let Some((_, stored, letters)) = self.pending_request(user_code, now).await? else { return Ok(None) };
        let Some(client) = self.clients.active_client(&stored.value.client_id, now).await? else {
            return Ok(None);
        };
        let scopes = grantable_scopes(&stored.value.scopes, user);
        let user_code = format!("{}-{}", &letters[..4], &letters[4..]);
        Ok(Some(DeviceQuestion { client, scopes, user_code }))
    }

    /// Records the user's answer. Returns `false` if the code is unknown, expired or already answered, or if
    /// the user can grant none of the requested scopes.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the request cannot be read or written.
    pub async fn answer_device_question(
        &self,
        user_code: &str,
        allow: bool,
        session: &Session,
        user: &User,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let Some((key, stored, letters)) = self.pending_request(user_code, now).await? else {
            return Ok(false);
        };
        let mut request = stored.value;
        let scopes = grantable_scopes(&request.scopes, user);
        let client = self.clients.active_client(&request.client_id, now).await?;
        let Some(client) = client.filter(|client| client.generation == request.generation) else {
            return Ok(false);
        };
        if allow && scopes.is_empty() {
            return Ok(false);
        }
        request.state = if allow {
            DeviceRequestState::Granted(Box::new(Grant {
                patient: if scopes.is_launch() { only_patient(user) } else { None },
                client_id: request.client_id.clone(),
                generation: client.generation,
                sub: session.sub.clone(),
                scopes,
                granted: now,
                auth_time: session.auth_time,
                sid: session.sid.clone(),
                session_ends: session.ends,
                epoch: session.epoch,
                nonce: None,
                encounter: None,
                need_patient_banner: true,
                family: self.random.id(),
                amr: session.amr.clone(),
                provider: session.provider.clone(),
                jkt: None,
                resource: None,
                fhir_context: Vec::new(),
                intent: None,
            }))
        } else {
            DeviceRequestState::Denied
        };
        let writes = vec![
            records::put_record(
                key,
                &request,
                Some(request.expires + lifetimes::EXPIRED_DEVICE_CODE),
                Expect::Revision(stored.revision),
            ),
            LedgerWrite::Delete { key: self.user_code_key(&letters), expect: Expect::Any },
        ];
        match self.ledger.write(writes, now).await {
            Ok(_) => {
                let scope = match &request.state {
                    DeviceRequestState::Granted(grant) => grant.scopes.to_string(),
                    _ => String::new(),
                };
                let (sub, client_id) = (session.sub.clone(), request.client_id.clone());
                self.audit.record(AuditEvent::DeviceAnswered { sub, client_id, scope });
                Ok(true)
            }
            // The device polled or the user answered in another window at the same time: read the record
            // again.
            Err(StoreError::Conflict { .. }) => {
                Box::pin(self.answer_device_question(user_code, allow, session, user, now)).await
            }
            Err(error) => Err(error),
        }
    }

    /// Redeems a device code, once. The returned grant is bound to the key with the thumbprint `jkt`, if the
    /// request has a key.
    ///
    /// # Errors
    /// Returns [`DeviceError`] if the user has not granted the request, or if the code was issued to another
    /// client.
    pub async fn redeem_device_code(
        &self,
        device_code: &str,
        client: &Client,
        jkt: Option<&str>,
        now: Timestamp,
    ) -> Result<Grant, DeviceError> {
        let key = ledger_keys::device_request(device_code);
        let request_record =
            self.ledger.read_record::<DeviceRequest>(&key, now).await?.ok_or(GrantError::Unknown)?;
        let mut request = request_record.value;
        if request.client_id != client.client_id || request.generation != client.generation {
            return Err(GrantError::Unknown.into());
        }
        if let DeviceRequestState::Spent(grant) = &request.state {
            return Err(self.grants.revoke_reused("device_code", grant, now).await.into());
        }
        if now >= request.expires {
            return Err(DeviceError::Expired);
        }
        let expect = Expect::Revision(request_record.revision);
        match std::mem::replace(&mut request.state, DeviceRequestState::Pending) {
            DeviceRequestState::Granted(grant) => {
                let scopes = self.grants.ensure_active(&grant, client, now).await?;
                request.state = DeviceRequestState::Spent(grant.clone());
                let until = now + self.grants.lifetimes.for_client(client).family();
                let write = records::put_record(key, &request, Some(until), expect);
                self.grants.write_spent("device_code", write, &grant, now).await?;
                Ok(Grant { scopes, jkt: jkt.map(str::to_owned), ..*grant })
            }
            DeviceRequestState::Denied | DeviceRequestState::Spent(_) => Err(DeviceError::Denied),
            DeviceRequestState::Pending => {
                let interval = SignedDuration::from_secs(request.interval_s);
                let early = request.last_poll.is_some_and(|last| now + POLLING_TOLERANCE < last + interval);
                request.last_poll = Some(now);
                if early {
                    request.interval_s += POLLING_INTERVAL.as_secs();
                }
                let write = records::put_record(
                    key,
                    &request,
                    Some(request.expires + lifetimes::EXPIRED_DEVICE_CODE),
                    expect,
                );
                match self.ledger.write(vec![write], now).await {
                    // A poll at the same time as the user's answer returns `Pending`; the next poll returns
                    // the answer.
                    Ok(_) | Err(StoreError::Conflict { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
                Err(if early { DeviceError::SlowDown } else { DeviceError::Pending })
            }
        }
    }

    async fn pending_request(
        &self,
        user_code: &str,
        now: Timestamp,
    ) -> Result<Option<(String, records::LedgerEntry<DeviceRequest>, String)>, StoreError> {
        let Some(letters) = normalize_user_code(user_code) else { return Ok(None) };
        let index = self.ledger.read_record::<UserCodeIndex>(&self.user_code_key(&letters), now).await?;
        let Some(by_user_code) = index else { return Ok(None) };
        let key = by_user_code.value.key;
        let Some(request) = self.ledger.read_record::<DeviceRequest>(&key, now).await? else {
            return Ok(None);
        };
        let open = matches!(request.value.state, DeviceRequestState::Pending) && now < request.value.expires;
        Ok(open.then_some((key, request, letters)))
    }

    /// Returns eight uniformly distributed letters, which contain 34 random bits. The device page limits the
    /// number of wrong codes.
    fn new_user_code(&self) -> String {
        let mut letters = String::new();
        while letters.len() < 8 {
            let mut byte = [0];
            self.random.fill(&mut byte);
            // 240 is the largest multiple of 20 that fits into a byte; larger bytes would make the first
            // letters more likely.
            if byte[0] < 240 {
                letters.push(char::from(USER_CODE_LETTERS[usize::from(byte[0] % 20)]));
            }
        }
        letters
    }

    fn user_code_key(&self, letters: &str) -> String {
        ledger_keys::device_user_code(&self.server_secret.mac("user-code", letters))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_codes_are_normalized() {
        for typed in ["WDJB-MJHT", "wdjbmjht", " wdjb mjht ", "W.D.J.B-M.J.H.T"] {
            assert_eq!(normalize_user_code(typed).as_deref(), Some("WDJBMJHT"), "{typed}");
        }
        for typed in ["", "WDJB-MJH", "WDJB-MJHTX", "AEIO-UAEI", "ＷＤＪＢ-ＭＪＨＴ"] {
            assert_eq!(normalize_user_code(typed), None, "{typed}");
        }
    }
}
