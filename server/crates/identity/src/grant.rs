//! Grants: authorization codes and refresh tokens, issued, spent once, revoked (RFC 6749 4.1, 6;
//! RFC 7009; RFC 9700 4.14).
//!
//! A secret is kept as its SHA-256 and goes by compare-and-set from live to spent. All tokens that
//! come from one sign-in of one client are a *family*; a second use of anything that was spent
//! kills the family. The spent record stays for as long as a token of the family can live.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use store::{Expect, Ledger, LedgerWrite, StoreError};

use crate::audit::Event;
use crate::client::Client;
use crate::pkce::CodeChallenge;
use crate::redirect_uri::RegisteredRedirectUri;
use crate::scope::Scopes;
use crate::token::ACCESS_LIFE;
use crate::user::User;
use crate::{Identity, ledger};

/// Life of an authorization code (SPEC, Limits).
pub const CODE_LIFE: SignedDuration = SignedDuration::from_mins(5);
/// Absolute life of a family of refresh tokens.
pub const REFRESH_LIFE: SignedDuration = SignedDuration::from_hours(30 * 24);

/// What a user granted to a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The client.
    pub client_id: String,
    /// The client's registration (see [`Client::generation`]).
    pub generation: String,
    /// The user.
    pub sub: String,
    /// What was granted.
    pub scopes: Scopes,
    /// When it was granted.
    pub granted: Timestamp,
    /// When the user signed in.
    pub auth_time: Timestamp,
    /// How the user signed in (RFC 8176).
    pub amr: Vec<String>,
    /// The browser session.
    pub sid: String,
    /// The user's epoch at sign-in.
    pub epoch: u64,
    /// Value for the ID token.
    pub nonce: Option<String>,
    /// Ties together all that came from this grant.
    pub family: String,
    /// The launch patient: what `patient/` scopes open (SMART App Launch).
    pub patient: Option<String>,
    /// Thumbprint of the key that the tokens are bound to (RFC 9449).
    pub jkt: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Code {
    grant: Grant,
    redirect_uri: RegisteredRedirectUri,
    challenge: Option<CodeChallenge>,
    spent: bool,
}

/// A code as it comes to the token endpoint.
#[derive(Debug, Clone, Copy)]
pub struct CodeExchange<'a> {
    /// The code.
    pub code: &'a str,
    /// The redirect URI of the authorization request, once more.
    pub redirect_uri: &'a str,
    /// PKCE.
    pub verifier: Option<&'a str>,
    /// Thumbprint of the key that was proven beside it.
    pub jkt: Option<&'a str>,
}

#[derive(Serialize, Deserialize)]
struct Refresh {
    grant: Grant,
    /// When the family ends, whatever is done.
    ends: Timestamp,
    /// When its successor was given.
    spent: Option<Timestamp>,
}

/// Why a code or refresh token was not taken. To the client all but the store's are `invalid_grant`.
#[derive(Debug, thiserror::Error)]
pub enum GrantError {
    /// Unknown, expired or another client's.
    #[error("the code or refresh token is unknown, expired or was given to another client")]
    Unknown,
    /// It was used before; the family is dead.
    #[error("the code or refresh token was used before, so all tokens from it are revoked")]
    Reused,
    /// The redirect URI is not the one of the authorization request.
    #[error("redirect_uri is not the one of the authorization request")]
    RedirectUri,
    /// The verifier does not answer the challenge, is missing, or was not asked for.
    #[error("code_verifier does not answer the code_challenge of the authorization request")]
    Verifier,
    /// It is bound to a key that was not proven.
    #[error("the code or refresh token is bound to a key; send a DPoP proof by that key")]
    Key,
    /// The grant was revoked, or the user signed out, was disabled or deleted.
    #[error("the grant was revoked, or the user signed out")]
    Revoked,
    /// More was asked than was granted.
    #[error("scope asks for more than was granted")]
    Scope,
    /// The store's.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Grant {
    /// Was it given to this client, in this registration?
    fn is_of(&self, client: &Client) -> bool {
        self.client_id == client.client_id && self.generation == client.generation
    }
}

/// What is left of granted scopes: those that the client and, where there is one, the user still have.
pub(crate) fn still_granted(scopes: &Scopes, client: &Client, user: Option<&User>) -> Scopes {
    scopes.covered_by(&client.scopes).filter(|scope| user.is_none_or(|user| user.may_grant(scope)))
}

impl Identity {
    /// Issues an authorization code, together with records that must be new (a pushed request is used once).
    ///
    /// # Errors
    /// The store's; [`StoreError::Conflict`] where one of those records is there.
    pub async fn issue_code(
        &self,
        grant: Grant,
        redirect_uri: RegisteredRedirectUri,
        challenge: Option<CodeChallenge>,
        once: Option<LedgerWrite>,
        now: Timestamp,
    ) -> Result<String, StoreError> {
        let code = self.random.secret();
        let record = Code { grant, redirect_uri, challenge, spent: false };
        let mut writes = vec![ledger::put(code_key(&code), &record, Some(now + CODE_LIFE), Expect::Absent)];
        writes.extend(once);
        self.store.write(writes, now).await?;
        Ok(code)
    }

    /// Spends an authorization code. Client, redirect URI, verifier and key are checked before anything is
    /// spent, so that a stranger's attempt costs the owner nothing.
    ///
    /// # Errors
    /// [`GrantError`].
    pub async fn redeem_code(
        &self,
        sent: &CodeExchange<'_>,
        client: &Client,
        now: Timestamp,
    ) -> Result<Grant, GrantError> {
        let key = code_key(sent.code);
        let stored = ledger::get::<Code>(&self.store, &key, now).await?.ok_or(GrantError::Unknown)?;
        let mut code = stored.value;
        if !code.grant.is_of(client) {
            return Err(GrantError::Unknown);
        }
        if code.redirect_uri.as_str() != sent.redirect_uri {
            return Err(GrantError::RedirectUri);
        }
        let answered = match (&code.challenge, sent.verifier) {
            (Some(challenge), Some(verifier)) => challenge.is_answered_by(verifier),
            (None, None) => true,
            // A verifier without a challenge is the mark of a downgrade (RFC 9700 2.1.1).
            _ => false,
        };
        if !answered {
            return Err(GrantError::Verifier);
        }
        if code.grant.jkt.is_some() && code.grant.jkt.as_deref() != sent.jkt {
            return Err(GrantError::Key);
        }
        if code.spent {
            return Err(self.reused("code", &code.grant, now).await);
        }
        // Before it is spent: whoever comes second revokes the family, and must not take the first
        // one's answer along.
        let left = self.check_standing(&code.grant, client, now).await?;
        code.spent = true;
        let write = ledger::put(key, &code, Some(now + REFRESH_LIFE), Expect::Revision(stored.revision));
        self.spend("code", write, &code.grant, now).await?;
        Ok(Grant { scopes: left, jkt: sent.jkt.map(str::to_owned), ..code.grant })
    }

    /// Issues the first refresh token of a family. A public client's is bound to the key that the grant is
    /// bound to (RFC 9449 5); a confidential client proves itself anyway.
    ///
    /// # Errors
    /// The store's.
    pub async fn issue_refresh(
        &self,
        grant: &Grant,
        client: &Client,
        now: Timestamp,
    ) -> Result<String, StoreError> {
        let token = self.random.secret();
        let jkt = grant.jkt.clone().filter(|_| client.is_public());
        let ends = now + REFRESH_LIFE;
        let record = Refresh { grant: Grant { jkt, ..grant.clone() }, ends, spent: None };
        let write = ledger::put(refresh_key(&token), &record, Some(ends), Expect::Absent);
        self.store.write(vec![write], now).await?;
        Ok(token)
    }

    /// Spends a refresh token; gives the grant, narrowed to `scopes` where they are given, and the
    /// successor. Inside the client's grace the same successor is given once more, as long as it was not
    /// used itself: an answer that was lost on the way does not end the family.
    ///
    /// # Errors
    /// [`GrantError`].
    pub async fn redeem_refresh(
        &self,
        token: &str,
        client: &Client,
        scopes: Option<&Scopes>,
        jkt: Option<&str>,
        now: Timestamp,
    ) -> Result<(Grant, String), GrantError> {
        let key = refresh_key(token);
        // Derived, not drawn: a retry finds the same one without its being stored anywhere.
        let successor = self.mark("refresh", token);
        loop {
            let stored = ledger::get::<Refresh>(&self.store, &key, now).await?.ok_or(GrantError::Unknown)?;
            let mut refresh = stored.value;
            if !refresh.grant.is_of(client) {
                return Err(GrantError::Unknown);
            }
            if refresh.grant.jkt.is_some() && refresh.grant.jkt.as_deref() != jkt {
                return Err(GrantError::Key);
            }
            if scopes.is_some_and(|asked| asked.covered_by(&refresh.grant.scopes) != *asked) {
                return Err(GrantError::Scope);
            }
            let left = if let Some(spent) = refresh.spent {
                let grace = SignedDuration::from_secs(i64::from(client.refresh_grace_s));
                let unused = match ledger::get::<Refresh>(&self.store, &refresh_key(&successor), now).await? {
                    Some(stored) => stored.value.spent.is_none(),
                    None => false,
                };
                if !unused || now >= spent + grace {
                    return Err(self.reused("refresh_token", &refresh.grant, now).await);
                }
                self.check_standing(&refresh.grant, client, now).await?
            } else {
                let left = self.check_standing(&refresh.grant, client, now).await?;
                refresh.spent = Some(now);
                let next = Refresh { grant: refresh.grant.clone(), ends: refresh.ends, spent: None };
                let ends = Some(refresh.ends);
                let writes = vec![
                    ledger::put(key.clone(), &refresh, ends, Expect::Revision(stored.revision)),
                    ledger::put(refresh_key(&successor), &next, ends, Expect::Absent),
                ];
                match self.store.write(writes, now).await {
                    Ok(_) => {}
                    // Somebody else was first: seen with the next look.
                    Err(StoreError::Conflict { .. }) => continue,
                    Err(error) => return Err(error.into()),
                }
                left
            };
            let mut grant = refresh.grant;
            // The successor keeps the whole grant; only this access token is narrower. The nonce
            // belongs to the first ID token alone.
            grant.scopes = scopes.map_or_else(|| left.clone(), |asked| asked.covered_by(&left));
            grant.nonce = None;
            grant.jkt = jkt.map(str::to_owned);
            return Ok((grant, successor));
        }
    }

    /// Writes the spent record. Whoever comes second learns that here, and the family dies.
    pub(crate) async fn spend(
        &self,
        what: &'static str,
        write: LedgerWrite,
        grant: &Grant,
        now: Timestamp,
    ) -> Result<(), GrantError> {
        match self.store.write(vec![write], now).await {
            Ok(_) => Ok(()),
            Err(StoreError::Conflict { .. }) => Err(self.reused(what, grant, now).await),
            Err(error) => Err(error.into()),
        }
    }

    /// Kills the family of what came a second time.
    pub(crate) async fn reused(&self, what: &'static str, grant: &Grant, now: Timestamp) -> GrantError {
        let (client_id, sub, family) = (grant.client_id.clone(), grant.sub.clone(), grant.family.clone());
        self.record(Event::Reused { what, client_id, sub, family });
        match self.revoke_family(&grant.family, now).await {
            Ok(()) => GrantError::Reused,
            Err(error) => error.into(),
        }
    }

    /// The grant of a refresh token that could be used now, and when its family ends.
    pub(crate) async fn standing_refresh(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<Option<(Grant, Timestamp)>, StoreError> {
        let found = ledger::get::<Refresh>(&self.store, &refresh_key(token), now).await?;
        let Some(refresh) = found.map(|stored| stored.value).filter(|refresh| refresh.spent.is_none()) else {
            return Ok(None);
        };
        let client = self.client(&refresh.grant.client_id, now).await?;
        let Some(client) = client.filter(|client| refresh.grant.is_of(client)) else { return Ok(None) };
        match self.check_standing(&refresh.grant, &client, now).await {
            Ok(scopes) => Ok(Some((Grant { scopes, ..refresh.grant }, refresh.ends))),
            Err(GrantError::Store(error)) => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Does the grant still stand: family not revoked, user there, no global sign-out since? Gives the
    /// scopes that are left of it.
    pub(crate) async fn check_standing(
        &self,
        grant: &Grant,
        client: &Client,
        now: Timestamp,
    ) -> Result<Scopes, GrantError> {
        let user = self.user(&grant.sub, now).await?.filter(|user| user.epoch == grant.epoch);
        let user = user.ok_or(GrantError::Revoked)?;
        if self.is_revoked("family", &grant.family, now).await? {
            return Err(GrantError::Revoked);
        }
        if self.is_withdrawn(&grant.sub, &grant.client_id, grant.granted, now).await? {
            return Err(GrantError::Revoked);
        }
        let offline = grant.scopes.has("offline_access");
        if !offline && self.is_revoked("sid", &grant.sid, now).await? {
            return Err(GrantError::Revoked);
        }
        let left = still_granted(&grant.scopes, client, Some(&user));
        if left.is_empty() { Err(GrantError::Revoked) } else { Ok(left) }
    }

    /// Revokes all tokens of a family.
    ///
    /// # Errors
    /// The store's.
    pub async fn revoke_family(&self, family: &str, now: Timestamp) -> Result<(), StoreError> {
        self.mark_revoked("family", family, now + REFRESH_LIFE, now).await
    }

    pub(crate) async fn mark_revoked(
        &self,
        what: &str,
        id: &str,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let write = ledger::put(format!("revoked/{what}/{id}"), &true, Some(until), Expect::Any);
        self.store.write(vec![write], now).await.map(drop)
    }

    pub(crate) async fn is_revoked(&self, what: &str, id: &str, now: Timestamp) -> Result<bool, StoreError> {
        Ok(self.store.get(&format!("revoked/{what}/{id}"), now).await?.is_some())
    }

    /// Revokes an access or refresh token for the client that it was given to (RFC 7009). A refresh
    /// token takes its family along. Unknown tokens and those of others change nothing.
    ///
    /// # Errors
    /// The store's.
    pub async fn revoke(&self, token: &str, client: &Client, now: Timestamp) -> Result<(), StoreError> {
        if let Some(stored) = ledger::get::<Refresh>(&self.store, &refresh_key(token), now).await? {
            if stored.value.grant.client_id == client.client_id {
                let family = stored.value.grant.family;
                self.revoke_family(&family, now).await?;
                let client_id = client.client_id.clone();
                self.record(Event::Revoked { client_id, what: "family", id: family });
            }
            return Ok(());
        }
        if let Ok(access) = self.verify_access_token(token, now).await
            && access.token.client_id == client.client_id
        {
            self.mark_revoked("jti", &access.token.jti, now + ACCESS_LIFE, now).await?;
            let (client_id, id) = (client.client_id.clone(), access.token.jti.clone());
            self.record(Event::Revoked { client_id, what: "jti", id });
        }
        Ok(())
    }
}

fn code_key(code: &str) -> String {
    format!("code/{}", ledger::digest(code))
}

fn refresh_key(token: &str) -> String {
    format!("refresh/{}", ledger::digest(token))
}
