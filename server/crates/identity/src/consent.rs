//! Consent: what a user allowed a client to have, remembered until it is withdrawn (OpenID Connect Core
//! 3.1.2.4).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{Expect, LedgerWrite, StoreError};

use crate::audit::Event;
use crate::client::Client;
use crate::grant::REFRESH_LIFE;
use crate::scope::Scopes;
use crate::{Identity, ledger};

/// What a user allowed a client, under `consent/{sub}/{client_id}`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Consent {
    /// The client.
    pub client_id: String,
    /// The client's registration: another one is asked about anew.
    generation: String,
    /// What was allowed, over time.
    pub scopes: Scopes,
    /// When it was allowed last.
    pub at: Timestamp,
}

impl Consent {
    /// Does it cover all of these scopes, for this registration?
    pub fn covers(&self, client: &Client, scopes: &Scopes) -> bool {
        self.generation == client.generation && scopes.iter().all(|scope| self.scopes.covers(scope))
    }
}

impl Identity {
    /// What the user allowed the client.
    ///
    /// # Errors
    /// The store's.
    pub async fn consent(
        &self,
        sub: &str,
        client_id: &str,
        now: Timestamp,
    ) -> Result<Option<Consent>, StoreError> {
        Ok(ledger::get::<Consent>(&self.store, &key(sub, client_id), now).await?.map(|stored| stored.value))
    }

    /// All that the user allowed, by client.
    ///
    /// # Errors
    /// The store's.
    pub async fn consents(&self, sub: &str, now: Timestamp) -> Result<Vec<Consent>, StoreError> {
        ledger::all(&self.store, &format!("consent/{sub}/"), now).await
    }

    /// The user allows the client these scopes, beside those of before.
    ///
    /// # Errors
    /// The store's.
    pub async fn allow(
        &self,
        sub: &str,
        client: &Client,
        scopes: &Scopes,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let key = key(sub, &client.client_id);
        loop {
            let found = ledger::get::<Consent>(&self.store, &key, now).await?;
            let expect = found.as_ref().map_or(Expect::Absent, |stored| Expect::Revision(stored.revision));
            let before = found.map(|stored| stored.value).filter(|one| one.generation == client.generation);
            let before = before.map(|consent| consent.scopes).unwrap_or_default();
            let consent = Consent {
                client_id: client.client_id.clone(),
                generation: client.generation.clone(),
                scopes: before.iter().chain(scopes.iter()).collect(),
                at: now,
            };
            match self.store.write(vec![ledger::put(key.clone(), &consent, None, expect)], now).await {
                Ok(_) => {
                    self.record(Event::Consent {
                        sub: sub.to_owned(),
                        client_id: consent.client_id,
                        scope: scopes.to_string(),
                    });
                    return Ok(());
                }
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The user takes back what the client was allowed: it is asked for again, and every token that the
    /// client has for this user ends now.
    ///
    /// # Errors
    /// The store's.
    pub async fn withdraw(&self, sub: &str, client_id: &str, now: Timestamp) -> Result<(), StoreError> {
        let writes = vec![
            LedgerWrite::Delete { key: key(sub, client_id), expect: Expect::Any },
            ledger::put(withdrawn_key(sub, client_id), &now, Some(now + REFRESH_LIFE), Expect::Any),
        ];
        self.store.write(writes, now).await?;
        let (sub, client_id) = (sub.to_owned(), client_id.to_owned());
        self.record(Event::Consent { sub, client_id, scope: String::new() });
        Ok(())
    }

    /// Was something that was granted at this time taken back since?
    pub(crate) async fn is_withdrawn(
        &self,
        sub: &str,
        client_id: &str,
        granted: Timestamp,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let taken = ledger::get::<Timestamp>(&self.store, &withdrawn_key(sub, client_id), now).await?;
        Ok(taken.is_some_and(|taken| granted <= taken.value))
    }
}

fn key(sub: &str, client_id: &str) -> String {
    format!("consent/{sub}/{client_id}")
}

fn withdrawn_key(sub: &str, client_id: &str) -> String {
    format!("revoked/consent/{sub}/{client_id}")
}
