//! Browser sessions: 1 h idle, 12 h absolute; the cookie's value is kept as its SHA-256.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use store::{Expect, LedgerWrite, StoreError};

use crate::audit::Event;
use crate::token::ACCESS_LIFE;
use crate::user::User;
use crate::{Identity, ledger};

/// Longest pause between two requests.
pub const IDLE: SignedDuration = SignedDuration::from_hours(1);
/// Longest life.
pub const ABSOLUTE: SignedDuration = SignedDuration::from_hours(12);

/// A signed-in browser.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Session {
    /// Session id, a claim of the tokens issued from it; no secret.
    pub sid: String,
    /// The user.
    pub sub: String,
    /// When the user signed in.
    pub auth_time: Timestamp,
    /// The user's epoch at sign-in.
    pub epoch: u64,
    /// How the user signed in (RFC 8176): `pwd`, `hwk`, `user`, `mfa`; empty for an external provider.
    #[serde(default)]
    pub amr: Vec<String>,
    /// The external provider that signed the user in.
    #[serde(default)]
    pub provider: Option<String>,
    last_seen: Timestamp,
}

impl Identity {
    /// Begins a session; gives the cookie's value. A new value at each sign-in, so that one that was
    /// planted before is worth nothing. `replaced` is the cookie that the browser had: where the same user
    /// only signed in again, the session id goes on, so that signing out ends what was issued before too.
    ///
    /// # Errors
    /// The store's.
    pub async fn begin_session(
        &self,
        user: &User,
        amr: &[&str],
        provider: Option<String>,
        replaced: Option<&str>,
        now: Timestamp,
    ) -> Result<String, StoreError> {
        let cookie = self.random.secret();
        let before = match replaced {
            Some(cookie) => self.session(cookie, now).await?,
            None => None,
        };
        let sid = before.filter(|(session, _)| session.sub == user.sub).map(|(session, _)| session.sid);
        let session = Session {
            sid: sid.unwrap_or_else(|| self.random.id()),
            sub: user.sub.clone(),
            auth_time: now,
            epoch: user.epoch,
            amr: amr.iter().map(|method| (*method).to_owned()).collect(),
            provider,
            last_seen: now,
        };
        let mut writes = vec![ledger::put(key(&cookie), &session, Some(now + IDLE), Expect::Absent)];
        writes.extend(replaced.map(|cookie| LedgerWrite::Delete { key: key(cookie), expect: Expect::Any }));
        self.store.write(writes, now).await?;
        let Session { sub, sid, amr, provider, .. } = session;
        self.record(Event::SignIn { sub, sid, amr, provider });
        Ok(cookie)
    }

    /// The session of a cookie, with its user, where both still stand.
    ///
    /// # Errors
    /// The store's.
    pub async fn session(&self, cookie: &str, now: Timestamp) -> Result<Option<(Session, User)>, StoreError> {
        let key = key(cookie);
        let Some(stored) = ledger::get::<Session>(&self.store, &key, now).await? else { return Ok(None) };
        let mut session = stored.value;
        let Some(user) = self.user(&session.sub, now).await? else { return Ok(None) };
        if user.epoch != session.epoch || now > session.auth_time + ABSOLUTE {
            return Ok(None);
        }
        // A minute's grain saves a durable write on every request.
        if now > session.last_seen + SignedDuration::from_secs(60) {
            session.last_seen = now;
            let expires = (now + IDLE).min(session.auth_time + ABSOLUTE);
            let write = ledger::put(key, &session, Some(expires), Expect::Revision(stored.revision));
            match self.store.write(vec![write], now).await {
                Ok(_) | Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some((session, user)))
    }

    /// Ends a session and, at once, every token issued from it (those under `offline_access` live on).
    ///
    /// # Errors
    /// The store's.
    pub async fn end_session(&self, cookie: &str, now: Timestamp) -> Result<(), StoreError> {
        let key = key(cookie);
        let Some(stored) = ledger::get::<Session>(&self.store, &key, now).await? else { return Ok(()) };
        self.end_sid(&stored.value.sid, now).await?;
        self.store.write(vec![LedgerWrite::Delete { key, expect: Expect::Any }], now).await.map(drop)
    }

    /// Ends every token of a session by its id: for a session whose cookie or record is gone already.
    ///
    /// # Errors
    /// The store's.
    pub async fn end_sid(&self, sid: &str, now: Timestamp) -> Result<(), StoreError> {
        let until = now + ABSOLUTE + crate::grant::REFRESH_LIFE + ACCESS_LIFE;
        self.mark_revoked("sid", sid, until, now).await?;
        self.record(Event::SignOut { sid: sid.to_owned() });
        Ok(())
    }
}

fn key(cookie: &str) -> String {
    format!("session/{}", ledger::digest(cookie))
}
