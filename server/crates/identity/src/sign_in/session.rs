//! Browser sessions. By default, a session ends after one hour without requests, and at the latest after 12
//! hours.
//!
//! A session is stored under the digest of its cookie. A second record maps the user to the session; this
//! record is written only when a session begins or ends.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use store::{Expect, LedgerWrite, StoreError};

use crate::audit::{AuditEvent, AuditSink};
use crate::directory::lifetime_settings::LifetimeSettings;
use crate::directory::provider_rules::SignedInBy;
use crate::directory::user_directory::UserDirectory;
use crate::encoding;
use crate::ledger_keys;
use crate::lifetimes;
use crate::model::user::User;
use crate::random::Random;
use crate::storage::epoch_ledger::EpochLedger;
use crate::storage::records;
use crate::tokens::auth_time;
use crate::tokens::revocation::RevocationList;

/// The session of a browser in which a user has signed in.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Session {
    /// Session id: not secret, and a claim of the tokens issued from the session.
    pub sid: String,
    /// Subject of the user.
    pub sub: String,
    /// Time at which the user was authenticated. It may precede the sign-in if an external provider
    /// authenticated the user, and is `None` if the provider did not say when.
    #[serde(with = "auth_time")]
    pub auth_time: Option<Timestamp>,
    /// Time of the sign-in at this server.
    pub started: Timestamp,
    /// Time at which the session ends at the latest.
    pub ends: Timestamp,
    /// Epoch of the user at sign-in (see [`crate::model::user::User::epoch`]).
    pub epoch: u64,
    /// Authentication methods (RFC 8176): `pwd`, `hwk`, `user`, `mfa`. Empty for an external provider.
    #[serde(default)]
    pub amr: Vec<String>,
    /// Name of the external provider that authenticated the user, if any.
    #[serde(default)]
    pub provider: Option<String>,
    /// Browser and address at sign-in.
    #[serde(rename = "place", default)]
    pub origin: SessionOrigin,
    /// Time of the last request, updated once a minute.
    pub last_seen: Timestamp,
}

/// Browser and address at sign-in. The account page shows them so that users recognize their sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionOrigin {
    /// Network address at sign-in.
    pub address: String,
    /// `User-Agent` of the browser, truncated to 256 characters.
    pub agent: String,
}

/// The methods by which a user was authenticated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SignInProof {
    /// Authentication methods (RFC 8176): `pwd`, `hwk`, `user`, `mfa`. Empty for an external provider.
    pub amr: Vec<String>,
    /// Name of the external provider, if it authenticated the user.
    pub provider: Option<String>,
    /// Time of the authentication.
    pub auth_time: AuthTime,
}

/// Time of an authentication.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AuthTime {
    /// The time of the sign-in.
    #[default]
    Now,
    /// An earlier time. `None` if an external provider did not say when.
    Earlier(Option<Timestamp>),
}

impl SignInProof {
    /// Returns a proof with these authentication methods.
    pub fn from_methods(amr: &[&str]) -> Self {
        Self { amr: amr.iter().map(|method| (*method).to_owned()).collect(), ..Self::default() }
    }

    /// Returns the proof of the sign-in that started a session.
    pub fn from_session(session: &Session) -> Self {
        Self {
            amr: session.amr.clone(),
            provider: session.provider.clone(),
            auth_time: AuthTime::Earlier(session.auth_time),
        }
    }

    /// Returns the proof of a sign-in with a password.
    pub fn password() -> Self {
        Self::from_methods(&["pwd"])
    }

    /// Returns the proof of a sign-in at an external provider. `auth_time` is the time of the authentication,
    /// if it is known.
    pub fn provider(name: &str, auth_time: Option<Timestamp>) -> Self {
        Self { amr: Vec::new(), provider: Some(name.to_owned()), auth_time: AuthTime::Earlier(auth_time) }
    }
}

impl Session {
    /// How the user signed in.
    pub fn signed_in_by(&self) -> SignedInBy<'_> {
        self.provider.as_deref().map_or(SignedInBy::OwnMethod, SignedInBy::Provider)
    }

    /// `true` if the user is known to have been authenticated within this time. A session that began with the
    /// authentication of days ago at a provider is not recent.
    pub fn is_authenticated_within(&self, age: SignedDuration, now: Timestamp) -> bool {
        self.auth_time.is_some_and(|time| now.duration_since(time) <= age)
    }
}

/// The ids of the session of a cookie, which may have expired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionIdentity {
    /// Session id.
    pub sid: String,
    /// Subject of the user.
    pub sub: String,
}

#[derive(Serialize, Deserialize)]
struct SessionIndex {
    digest: String,
}

/// The browser sessions in the ledger.
pub struct SessionStore {
    pub(crate) ledger: Arc<EpochLedger>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) audit: Arc<dyn AuditSink>,
    pub(crate) users: Arc<UserDirectory>,
    pub(crate) revocations: RevocationList,
    pub(crate) lifetimes: Arc<LifetimeSettings>,
}

impl SessionStore {
    /// Starts a session and returns the value of its cookie. The value is new at each sign-in, which prevents
    /// session fixation. `replaced` is the earlier cookie of the browser. If the same user signs in again,
    /// the new session has the id of the earlier one, so that a sign-out also revokes tokens that were issued
    /// before.
    ///
    /// # Errors
    /// Returns [`StoreError`] if a read or the write fails.
    pub async fn begin_session(
        &self,
        user: &User,
        proof: &SignInProof,
        origin: SessionOrigin,
        replaced: Option<&str>,
        now: Timestamp,
    ) -> Result<String, StoreError> {
        let cookie = self.random.secret();
        let lifetimes = self.lifetimes.configured();
        let earlier = match replaced {
            Some(cookie) => self.active_session(cookie, now).await?,
            None => None,
        };
        let sid = earlier.filter(|(session, _)| session.sub == user.sub).map(|(session, _)| session.sid);
        let session = Session {
            sid: sid.unwrap_or_else(|| self.random.id()),
            sub: user.sub.clone(),
            auth_time: match proof.auth_time {
                AuthTime::Now => Some(now),
                AuthTime::Earlier(time) => time,
            },
            started: now,
            ends: now + lifetimes.session,
            epoch: user.epoch,
            amr: proof.amr.clone(),
            provider: proof.provider.clone(),
            origin: SessionOrigin { agent: origin.agent.chars().take(256).collect(), ..origin },
            last_seen: now,
        };
        let index = SessionIndex { digest: encoding::sha256_base64url(&cookie) };
        let identity = SessionIdentity { sid: session.sid.clone(), sub: session.sub.clone() };
        // Tokens of the session live on after it has expired, and a sign-out must still end them.
        let tokens_end = session.ends + self.lifetimes.longest(now).await?.family();
        let mut writes = vec![
            records::put_record(
                ledger_keys::session_identity(&index.digest),
                &identity,
                Some(tokens_end),
                Expect::Absent,
            ),
            records::put_record(
                ledger_keys::session_record(&cookie),
                &session,
                Some((now + lifetimes.idle_session).min(session.ends)),
                Expect::Absent,
            ),
            records::put_record(
                ledger_keys::user_session(&user.sub, &session.sid),
                &index,
                Some(session.ends),
                Expect::Any,
            ),
        ];
        if let Some(replaced) = replaced {
            let digest = encoding::sha256_base64url(replaced);
            let keys = [ledger_keys::session_by_digest(&digest), ledger_keys::session_identity(&digest)];
            writes.extend(keys.map(|key| LedgerWrite::delete(key, Expect::Any)));
        }
        self.ledger.write(writes, now).await?;
        let Session { sub, sid, amr, provider, .. } = session;
        self.audit.record(AuditEvent::SignIn { sub, sid, amr, provider });
        Ok(cookie)
    }

    /// Returns the session of a cookie and its user if both are active.
    ///
    /// # Errors
    /// Returns [`StoreError`] if a read or the write fails.
    pub async fn active_session(
        &self,
        cookie: &str,
        now: Timestamp,
    ) -> Result<Option<(Session, User)>, StoreError> {
        let key = ledger_keys::session_record(cookie);
        let Some(record) = self.ledger.read_record::<Session>(&key, now).await? else {
            return Ok(None);
        };
        let mut session = record.value;
        let user = self.users.signed_in_user(&session.sub, session.signed_in_by(), now).await?;
        let Some(user) = user else { return Ok(None) };
        if !self.is_active(&session, &user, now).await? {
            return Ok(None);
        }
        // The record is written at most once a minute, because a durable write for each request would be
        // slow.
        if now > session.last_seen + SignedDuration::from_secs(60) {
            session.last_seen = now;
            let lifetimes = self.lifetimes.configured();
            let expires = (now + lifetimes.idle_session).min(self.end_of(&session));
            let write = records::put_record(key, &session, Some(expires), Expect::Revision(record.revision));
            match self.ledger.write(vec![write], now).await {
                Ok(_) | Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some((session, user)))
    }

    /// The time at which a session ends at the latest. If the setting was reduced, the new lifetime applies.
    fn end_of(&self, session: &Session) -> Timestamp {
        session.ends.min(session.started + self.lifetimes.configured().session)
    }

    /// `true` if a session of this user is active. The session id may have been revoked without the cookie,
    /// because a sign-out request from a client's page can lack the cookie.
    async fn is_active(&self, session: &Session, user: &User, now: Timestamp) -> Result<bool, StoreError> {
        let is_current = user.epoch == session.epoch && now <= self.end_of(session);
        let started_before_restore =
            self.revocations.restored_at(now).await?.is_some_and(|time| session.started < time);
        Ok(is_current
            && !started_before_restore
            && !self.revocations.is_revoked("sid", &session.sid, now).await?)
    }

    /// Returns the ids of the session of a cookie, active or expired.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the read fails.
    pub async fn session_identity(
        &self,
        cookie: &str,
        now: Timestamp,
    ) -> Result<Option<SessionIdentity>, StoreError> {
        let key = ledger_keys::session_identity(&encoding::sha256_base64url(cookie));
        Ok(self.ledger.read_record::<SessionIdentity>(&key, now).await?.map(|record| record.value))
    }

    /// Ends the session of a cookie, active or expired, and revokes all tokens issued from it, except those
    /// with `offline_access`.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the session cannot be read or deleted.
    pub async fn end_session(&self, cookie: &str, now: Timestamp) -> Result<(), StoreError> {
        let Some(SessionIdentity { sid, sub }) = self.session_identity(cookie, now).await? else {
            return Ok(());
        };
        self.end_session_by_id(&sid, now).await?;
        let digest = encoding::sha256_base64url(cookie);
        let keys = [
            ledger_keys::session_by_digest(&digest),
            ledger_keys::session_identity(&digest),
            ledger_keys::user_session(&sub, &sid),
        ];
        let writes = keys.map(|key| LedgerWrite::delete(key, Expect::Any));
        self.ledger.write(writes.into(), now).await.map(drop)
    }

    /// Stores the parameters of a sign-out request, in the encoding of a form, and returns their id.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the write fails.
    pub async fn store_sign_out_request(
        &self,
        parameters: &str,
        now: Timestamp,
    ) -> Result<String, StoreError> {
        let id = self.random.secret();
        let key = ledger_keys::sign_out_request(&id);
        let expires = Some(now + lifetimes::SIGN_OUT_REQUEST);
        let write = records::put_record(key, &parameters, expires, Expect::Absent);
        self.ledger.write(vec![write], now).await?;
        Ok(id)
    }

    /// Removes and returns the parameters of a sign-out request.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the record cannot be read or deleted.
    pub async fn take_sign_out_request(
        &self,
        id: &str,
        now: Timestamp,
    ) -> Result<Option<String>, StoreError> {
        let key = ledger_keys::sign_out_request(id);
        let sid_record = self.ledger.read_record::<String>(&key, now).await?;
        if sid_record.is_some() {
            self.ledger.write(vec![LedgerWrite::delete(key, Expect::Any)], now).await?;
        }
        Ok(sid_record.map(|record| record.value))
    }

    /// Returns the active sessions of a user, newest first.
    ///
    /// # Errors
    /// Returns [`StoreError`] if a read fails.
    pub async fn user_sessions(&self, user: &User, now: Timestamp) -> Result<Vec<Session>, StoreError> {
        let mut sessions = Vec::new();
        for index in
            self.ledger.read_records::<SessionIndex>(&ledger_keys::user_session(&user.sub, ""), now).await?
        {
            let key = ledger_keys::session_by_digest(&index.digest);
            let active = self.ledger.read_record::<Session>(&key, now).await?.map(|record| record.value);
            if let Some(session) = active
                && self.is_active(&session, user, now).await?
            {
                sessions.push(session);
            }
        }
        sessions.sort_by_key(|session| std::cmp::Reverse(session.started));
        Ok(sessions)
    }

    /// Ends the session of a user with this id and revokes all tokens issued from it. Returns `false` if the
    /// user has no such session.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the session cannot be read or deleted.
    pub async fn end_user_session(&self, sub: &str, sid: &str, now: Timestamp) -> Result<bool, StoreError> {
        let index = ledger_keys::user_session(sub, sid);
        let Some(index_record) = self.ledger.read_record::<SessionIndex>(&index, now).await? else {
            return Ok(false);
        };
        self.end_session_by_id(sid, now).await?;
        let digest = &index_record.value.digest;
        let keys = [index, ledger_keys::session_by_digest(digest), ledger_keys::session_identity(digest)];
        let writes = keys.map(|key| LedgerWrite::Delete { key, expect: Expect::Any });
        self.ledger.write(writes.into(), now).await?;
        Ok(true)
    }

    async fn end_session_by_id(&self, sid: &str, now: Timestamp) -> Result<(), StoreError> {
        let longest = self.lifetimes.longest(now).await?;
        let until = now + longest.session + longest.family();
        self.revocations.mark_revoked("sid", sid, until, now).await?;
        self.audit.record(AuditEvent::SignOut { sid: sid.to_owned() });
        Ok(())
    }
}
