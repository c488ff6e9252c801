//! Authorization codes and refresh tokens in the ledger: issue, single use and revocation (RFC 6749 sections
//! 4.1 and 6; RFC 9700 section 4.14).

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use store::{Expect, LedgerWrite, StoreError};

use crate::audit::{AuditEvent, AuditSink};
use crate::directory::client_registry::ClientRegistry;
use crate::directory::lifetime_settings::LifetimeSettings;
use crate::directory::provider_rules::SignedInBy;
use crate::directory::user_directory::UserDirectory;
use crate::ledger_keys;
use crate::model::client::Client;
use crate::model::pkce::CodeChallenge;
use crate::model::redirect_uri::RegisteredRedirectUri;
use crate::model::scope::{NamedScope, Scopes};
use crate::random::Random;
use crate::storage::epoch_ledger::EpochLedger;
use crate::storage::records;
use crate::storage::server_secret::ServerSecret;
use crate::tokens::grant::{CodeExchange, Grant, GrantError, allows_refresh, still_granted};
use crate::tokens::revocation::RevocationList;

#[derive(Serialize, Deserialize)]
struct CodeRecord {
    grant: Grant,
    redirect_uri: RegisteredRedirectUri,
    challenge: Option<CodeChallenge>,
    spent: bool,
}

#[derive(Serialize, Deserialize)]
struct RefreshRecord {
    grant: Grant,
    /// Time at which the family ends, whether or not its tokens are used.
    ends: Timestamp,
    /// Time at which the successor was issued. `None` for a live token.
    spent: Option<Timestamp>,
}

/// The authorization codes and refresh tokens in the ledger.
pub struct GrantStore {
    pub(crate) ledger: Arc<EpochLedger>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) audit: Arc<dyn AuditSink>,
    pub(crate) clients: Arc<ClientRegistry>,
    pub(crate) users: Arc<UserDirectory>,
    pub(crate) revocations: RevocationList,
    pub(crate) server_secret: Arc<ServerSecret>,
    pub(crate) lifetimes: Arc<LifetimeSettings>,
}

impl GrantStore {
    /// Issues an authorization code. `once` is written in the same transaction and must create a new record,
    /// so that a pushed request is granted only once.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the write fails, and [`StoreError::Conflict`] if the record of `once`
    /// already exists.
    pub async fn issue_authorization_code(
        &self,
        grant: Grant,
        redirect_uri: RegisteredRedirectUri,
        challenge: Option<CodeChallenge>,
        once: Option<LedgerWrite>,
        lifetime: SignedDuration,
        now: Timestamp,
    ) -> Result<String, StoreError> {
        let code = self.random.secret();
        let record = CodeRecord { grant, redirect_uri, challenge, spent: false };
        let mut writes = vec![records::put_record(
            ledger_keys::authorization_code(&code),
            &record,
            Some(now + lifetime),
            Expect::Absent,
        )];
        writes.extend(once);
        self.ledger.write(writes, now).await?;
        Ok(code)
    }

    /// Spends an authorization code. Client, redirect URI, code verifier and key are checked first, so that
    /// the attempt of another client does not spend the code.
    ///
    /// # Errors
    /// Returns [`GrantError`] if the code is rejected.
    pub async fn redeem_authorization_code(
        &self,
        exchange: &CodeExchange<'_>,
        client: &Client,
        now: Timestamp,
    ) -> Result<Grant, GrantError> {
        let key = ledger_keys::authorization_code(exchange.code);
        let code_record =
            self.ledger.read_record::<CodeRecord>(&key, now).await?.ok_or(GrantError::Unknown)?;
        let mut code = code_record.value;
        if !code.grant.belongs_to(client) {
            return Err(GrantError::Unknown);
        }
        if code.redirect_uri.as_str() != exchange.redirect_uri {
            return Err(GrantError::RedirectUri);
        }
        let verifier_matches = match (&code.challenge, exchange.verifier) {
            (Some(challenge), Some(verifier)) => challenge.matches_verifier(verifier),
            (None, None) => true,
            // A code verifier without a code challenge indicates a downgrade attack (RFC 9700 section 2.1.1).
            _ => false,
        };
        if !verifier_matches {
            return Err(GrantError::Verifier);
        }
        if code.grant.jkt.is_some() && code.grant.jkt.as_deref() != exchange.jkt {
            return Err(GrantError::Key);
        }
        if !code.grant.narrow_to(exchange.resource) {
            return Err(GrantError::Resource);
        }
        if code.spent {
            return Err(self.revoke_reused("code", &code.grant, now).await);
        }
        // The grant is checked before the code is spent: a concurrent second use of the code revokes the
        // family, which must not cause the first use to fail.
        let remaining = self.ensure_active(&code.grant, client, now).await?;
        code.spent = true;
        let write = records::put_record(
            key,
            &code,
            Some(now + self.lifetimes.for_client(client).family()),
            Expect::Revision(code_record.revision),
        );
        self.write_spent("code", write, &code.grant, now).await?;
        assert_narrower(&remaining, &code.grant.scopes);
        Ok(Grant { scopes: remaining, jkt: exchange.jkt.map(str::to_owned), ..code.grant })
    }

    /// Issues the first refresh token of a family. The token of a public client is bound to the key of the
    /// grant (RFC 9449 section 5). The token of a confidential client is not, because the client
    /// authenticates itself.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the write fails.
    pub async fn issue_refresh_token(
        &self,
        grant: &Grant,
        client: &Client,
        now: Timestamp,
    ) -> Result<String, StoreError> {
        let token = self.random.secret();
        let jkt = grant.jkt.clone().filter(|_| client.is_public());
        let ends = grant.end_of_refresh(self.lifetimes.for_client(client).refresh_token_family, now);
        let record = RefreshRecord { grant: Grant { jkt, ..grant.clone() }, ends, spent: None };
        let write =
            records::put_record(ledger_keys::refresh_token(&token), &record, Some(ends), Expect::Absent);
        self.ledger.write(vec![write], now).await?;
        Ok(token)
    }

    /// Returns the id of the client that a refresh token was issued to. Does not spend the token.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the read fails.
    pub async fn refresh_token_client(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<Option<String>, StoreError> {
        let key = ledger_keys::refresh_token(token);
        let record = self.ledger.read_record::<RefreshRecord>(&key, now).await?;
        Ok(record.map(|record| record.value.grant.client_id))
    }

    /// Spends a refresh token. Returns the grant, restricted to `scopes` if given, and the successor of the
    /// token. During the client's grace period a spent token returns the same successor again, until the
    /// successor is used. A client that has lost the response can therefore retry.
    ///
    /// # Errors
    /// Returns [`GrantError`] if the token is rejected.
    pub async fn redeem_refresh_token(
        &self,
        token: &str,
        client: &Client,
        scopes: Option<&Scopes>,
        jkt: Option<&str>,
        resource: Option<&str>,
        now: Timestamp,
    ) -> Result<(Grant, String), GrantError> {
        let key = ledger_keys::refresh_token(token);
        // The successor is derived from the token, so that a retry returns the same successor although it is
        // not stored in plain.
        let successor = self.server_secret.mac("refresh", token);
        loop {
            let token_record =
                self.ledger.read_record::<RefreshRecord>(&key, now).await?.ok_or(GrantError::Unknown)?;
            let mut refresh = token_record.value;
            if !refresh.grant.belongs_to(client) {
                return Err(GrantError::Unknown);
            }
            if refresh.grant.jkt.is_some() && refresh.grant.jkt.as_deref() != jkt {
                return Err(GrantError::Key);
            }
            if scopes.is_some_and(|requested| requested.covered_by(&refresh.grant.scopes) != *requested) {
                return Err(GrantError::Scope);
            }
            let mut narrowed = refresh.grant.clone();
            if !narrowed.narrow_to(resource) {
                return Err(GrantError::Resource);
            }
            // FAPI 2.0 Security Profile section 5.3.2.1: no rotation. The token is bound to a client that has
            // a key.
            if client.fapi2 && refresh.spent.is_none() {
                let remaining = self.ensure_refreshable(&refresh.grant, client, now).await?;
                return Ok((refreshed(narrowed, &remaining, scopes, jkt), token.to_owned()));
            }
            let remaining = if let Some(spent) = refresh.spent {
                let grace = client.refresh_grace();
                let unused = match self
                    .ledger
                    .read_record::<RefreshRecord>(&ledger_keys::refresh_token(&successor), now)
                    .await?
                {
                    Some(refresh_record) => refresh_record.value.spent.is_none(),
                    None => false,
                };
                // The clock of the node that spent the token can be ahead, and so can a request that arrived
                // later.
                if grace.is_zero() || !unused || now >= spent + grace {
                    return Err(self.revoke_reused("refresh_token", &refresh.grant, now).await);
                }
                self.ensure_refreshable(&refresh.grant, client, now).await?
            } else {
                let remaining = self.ensure_refreshable(&refresh.grant, client, now).await?;
                refresh.spent = Some(now);
                let next = RefreshRecord { grant: refresh.grant.clone(), ends: refresh.ends, spent: None };
                let ends = Some(refresh.ends);
                let writes = vec![
                    records::put_record(key.clone(), &refresh, ends, Expect::Revision(token_record.revision)),
                    records::put_record(ledger_keys::refresh_token(&successor), &next, ends, Expect::Absent),
                ];
                match self.ledger.write(writes, now).await {
                    Ok(_) => {}
                    // Another request has spent the token: read the record again.
                    Err(StoreError::Conflict { .. }) => continue,
                    Err(error) => return Err(error.into()),
                }
                remaining
            };
            return Ok((refreshed(narrowed, &remaining, scopes, jkt), successor));
        }
    }

    /// Writes the spent record. Revokes the family if another request has written the record first.
    pub(crate) async fn write_spent(
        &self,
        kind: &'static str,
        write: LedgerWrite,
        grant: &Grant,
        now: Timestamp,
    ) -> Result<(), GrantError> {
        match self.ledger.write(vec![write], now).await {
            Ok(_) => Ok(()),
            Err(StoreError::Conflict { .. }) => Err(self.revoke_reused(kind, grant, now).await),
            Err(error) => Err(error.into()),
        }
    }

    /// Revokes the family of a code or token that was used again.
    pub(crate) async fn revoke_reused(
        &self,
        kind: &'static str,
        grant: &Grant,
        now: Timestamp,
    ) -> GrantError {
        let (client_id, sub, family) = (grant.client_id.clone(), grant.sub.clone(), grant.family.clone());
        self.audit.record(AuditEvent::Reused { kind, client_id, sub, family });
        match self.revoke_family(&grant.family, now).await {
            Ok(()) => GrantError::Reused,
            Err(error) => error.into(),
        }
    }

    /// The grant of a refresh token that can be used now, and the time at which its family ends.
    pub(crate) async fn active_refresh_token(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<Option<(Grant, Timestamp)>, StoreError> {
        let record =
            self.ledger.read_record::<RefreshRecord>(&ledger_keys::refresh_token(token), now).await?;
        let Some(refresh) = record.map(|record| record.value).filter(|refresh| refresh.spent.is_none())
        else {
            return Ok(None);
        };
        let client = self.clients.active_client(&refresh.grant.client_id, now).await?;
        let Some(client) = client.filter(|client| refresh.grant.belongs_to(client)) else { return Ok(None) };
        match self.ensure_refreshable(&refresh.grant, &client, now).await {
            Ok(scopes) => Ok(Some((Grant { scopes, ..refresh.grant }, refresh.ends))),
            Err(GrantError::Store(error)) => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Checks that a grant is active: its family and session are not revoked, the consent was not withdrawn,
    /// and the user is active and has not signed out globally. Returns the granted scopes that the client and
    /// user still have.
    pub(crate) async fn ensure_active(
        &self,
        grant: &Grant,
        client: &Client,
        now: Timestamp,
    ) -> Result<Scopes, GrantError> {
        let user = self.users.signed_in_user(&grant.sub, grant.signed_in_by(), now).await?;
        let user = user.filter(|user| user.epoch == grant.epoch).ok_or(GrantError::Revoked)?;
        if self.revocations.is_revoked("family", &grant.family, now).await? {
            return Err(GrantError::Revoked);
        }
        if self.revocations.is_consent_withdrawn(&grant.sub, &grant.client_id, grant.granted, now).await? {
            return Err(GrantError::Revoked);
        }
        // A code that was spent may not be so in a restored database.
        if self.revocations.restored_at(now).await?.is_some_and(|time| grant.granted < time) {
            return Err(GrantError::Revoked);
        }
        let offline = grant.scopes.has(NamedScope::OfflineAccess);
        if !offline && self.revocations.is_revoked("sid", &grant.sid, now).await? {
            return Err(GrantError::Revoked);
        }
        if grant.patient.as_deref().is_some_and(|patient| !user.may_see_patient(patient)) {
            return Err(GrantError::Patient);
        }
        // A user who signed in with an own method never had these rights in this grant.
        if user.rights_ended && grant.signed_in_by() != SignedInBy::OwnMethod {
            return Err(GrantError::RightsEnded);
        }
        let remaining = still_granted(&grant.scopes, client, Some(&user));
        if remaining.is_empty() { Err(GrantError::Revoked) } else { Ok(remaining) }
    }

    /// Checks that a grant is active as [`GrantStore::ensure_active`] does, and that its refresh tokens are
    /// still allowed: they end if client or user lose the scope that allowed them.
    async fn ensure_refreshable(
        &self,
        grant: &Grant,
        client: &Client,
        now: Timestamp,
    ) -> Result<Scopes, GrantError> {
        let remaining = self.ensure_active(grant, client, now).await?;
        let is_dropped = |scope| grant.scopes.has(scope) && !remaining.has(scope);
        // Without `offline_access` the grant would outlive the session that a user believes to have ended.
        let is_allowed = allows_refresh(&remaining, client)
            && ![NamedScope::OfflineAccess, NamedScope::OnlineAccess].into_iter().any(is_dropped);
        if is_allowed { Ok(remaining) } else { Err(GrantError::Withdrawn) }
    }

    /// Revokes all tokens of a family.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the write fails.
    pub async fn revoke_family(&self, family: &str, now: Timestamp) -> Result<(), StoreError> {
        let until = now + self.lifetimes.longest(now).await?.family();
        self.revocations.mark_revoked("family", family, until, now).await
    }

    /// The client id and the family of a refresh token, spent or not.
    pub(crate) async fn refresh_token_family(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<Option<(String, String)>, StoreError> {
        let record =
            self.ledger.read_record::<RefreshRecord>(&ledger_keys::refresh_token(token), now).await?;
        Ok(record.map(|record| (record.value.grant.client_id, record.value.grant.family)))
    }
}

/// The grant of the tokens that a refresh issues. The refresh token keeps all scopes; only the new access
/// token has fewer. The nonce applies to the first ID token only.
fn refreshed(grant: Grant, remaining: &Scopes, requested: Option<&Scopes>, jkt: Option<&str>) -> Grant {
    let scopes = requested.map_or_else(|| remaining.clone(), |requested| requested.covered_by(remaining));
    assert_narrower(&scopes, &grant.scopes);
    Grant { scopes, nonce: None, jkt: jkt.map(str::to_owned), ..grant }
}

/// A token never has a scope that the user did not grant, whatever narrowed the scopes.
fn assert_narrower(scopes: &Scopes, own: &Scopes) {
    assert!(scopes.covered_by(own) == *scopes, "'{scopes}' is more than '{own}' was granted");
}
