//! Browser sessions: 1 h idle, 12 h absolute; the cookie's value is kept as its SHA-256.
//!
//! A session stands under `session/{digest of its cookie}`; `session-of/{sub}/{sid}` leads from a user to
//! it, and is written only where a session begins or ends.

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
    /// The browser that the session is in.
    #[serde(default)]
    pub place: Place,
    /// When it was last used, to the minute.
    pub last_seen: Timestamp,
}

/// Where a session is: what the user needs to know it again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Address of the other end at sign-in.
    pub address: String,
    /// What the browser calls itself (`User-Agent`), cut off at 256 characters.
    pub agent: String,
}

/// How a user has shown who they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proof {
    /// Methods (RFC 8176): `pwd`, `hwk`, `user`, `mfa`; empty for an external provider.
    pub amr: Vec<String>,
    /// The external provider.
    pub provider: Option<String>,
}

impl Proof {
    /// By these methods.
    pub fn by(amr: &[&str]) -> Self {
        Self { amr: amr.iter().map(|method| (*method).to_owned()).collect(), provider: None }
    }

    /// What was shown when a session began.
    pub fn of(session: &Session) -> Self {
        Self { amr: session.amr.clone(), provider: session.provider.clone() }
    }

    /// By a password.
    pub fn password() -> Self {
        Self::by(&["pwd"])
    }

    /// By an external provider.
    pub fn provider(name: &str) -> Self {
        Self { amr: Vec::new(), provider: Some(name.to_owned()) }
    }
}

#[derive(Serialize, Deserialize)]
struct Index {
    digest: String,
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
        proof: &Proof,
        place: Place,
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
            amr: proof.amr.clone(),
            provider: proof.provider.clone(),
            place: Place { agent: place.agent.chars().take(256).collect(), ..place },
            last_seen: now,
        };
        let index = Index { digest: ledger::digest(&cookie) };
        let mut writes = vec![
            ledger::put(key(&cookie), &session, Some(now + IDLE), Expect::Absent),
            ledger::put(index_key(&user.sub, &session.sid), &index, Some(now + ABSOLUTE), Expect::Any),
        ];
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
        if !self.is_standing(&session, &user, now).await? {
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

    /// Does a session of this user still stand? It may have ended by its id alone: a client's request to sign
    /// out comes without the cookie when it is sent from the client's own page.
    async fn is_standing(&self, session: &Session, user: &User, now: Timestamp) -> Result<bool, StoreError> {
        let lasts = user.epoch == session.epoch && now <= session.auth_time + ABSOLUTE;
        Ok(lasts && !self.is_revoked("sid", &session.sid, now).await?)
    }

    /// Ends a session and, at once, every token issued from it (those under `offline_access` live on).
    ///
    /// # Errors
    /// The store's.
    pub async fn end_session(&self, cookie: &str, now: Timestamp) -> Result<(), StoreError> {
        let key = key(cookie);
        let Some(stored) = ledger::get::<Session>(&self.store, &key, now).await? else { return Ok(()) };
        self.end_sid(&stored.value.sid, now).await?;
        let index = index_key(&stored.value.sub, &stored.value.sid);
        let writes = [key, index].map(|key| LedgerWrite::Delete { key, expect: Expect::Any });
        self.store.write(writes.into(), now).await.map(drop)
    }

    /// The sessions of a user that still stand, the newest first.
    ///
    /// # Errors
    /// The store's.
    pub async fn sessions_of(&self, user: &User, now: Timestamp) -> Result<Vec<Session>, StoreError> {
        let mut sessions = Vec::new();
        for index in ledger::all::<Index>(&self.store, &index_key(&user.sub, ""), now).await? {
            let key = format!("session/{}", index.digest);
            let found = ledger::get::<Session>(&self.store, &key, now).await?.map(|stored| stored.value);
            if let Some(session) = found
                && self.is_standing(&session, user, now).await?
            {
                sessions.push(session);
            }
        }
        sessions.sort_by_key(|session| std::cmp::Reverse(session.auth_time));
        Ok(sessions)
    }

    /// Ends the session of this id for its user, with every token issued from it; gives `false` where the
    /// user has no such session.
    ///
    /// # Errors
    /// The store's.
    pub async fn end_session_of(&self, sub: &str, sid: &str, now: Timestamp) -> Result<bool, StoreError> {
        let index = index_key(sub, sid);
        let Some(stored) = ledger::get::<Index>(&self.store, &index, now).await? else { return Ok(false) };
        self.end_sid(sid, now).await?;
        let writes = [index, format!("session/{}", stored.value.digest)]
            .map(|key| LedgerWrite::Delete { key, expect: Expect::Any });
        self.store.write(writes.into(), now).await?;
        Ok(true)
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

fn index_key(sub: &str, sid: &str) -> String {
    format!("session-of/{sub}/{sid}")
}

fn key(cookie: &str) -> String {
    format!("session/{}", ledger::digest(cookie))
}
