//! Consent of users to the scopes of clients, stored until it is withdrawn (OpenID Connect Core section
//! 3.1.2.4).

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{Expect, LedgerWrite, StoreError};

use crate::audit::{AuditEvent, AuditSink};
use crate::directory::lifetime_settings::LifetimeSettings;
use crate::ledger_keys;
use crate::model::client::Client;
use crate::model::scope::Scopes;
use crate::storage::epoch_ledger::EpochLedger;
use crate::storage::records;

/// The scopes that a user has allowed a client to use.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UserConsent {
    /// Client id.
    pub client_id: String,
    /// Generation of the client's registration. A consent does not cover a later registration under the same
    /// id.
    generation: String,
    /// All scopes that the user has allowed.
    pub scopes: Scopes,
    /// Time of the last change of this record.
    pub at: Timestamp,
}

impl UserConsent {
    /// Returns `true` if the consent covers all of these scopes for this registration of the client.
    pub fn covers(&self, client: &Client, scopes: &Scopes) -> bool {
        self.generation == client.generation && scopes.iter().all(|scope| self.scopes.covers(scope))
    }
}

/// The consents of all users.
pub struct ConsentStore {
    pub(crate) ledger: Arc<EpochLedger>,
    pub(crate) audit: Arc<dyn AuditSink>,
    pub(crate) lifetimes: Arc<LifetimeSettings>,
}

impl ConsentStore {
    /// Returns the consent of a user for a client.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the read fails.
    pub async fn user_consent(
        &self,
        sub: &str,
        client_id: &str,
        now: Timestamp,
    ) -> Result<Option<UserConsent>, StoreError> {
        Ok(self
            .ledger
            .read_record::<UserConsent>(&ledger_keys::consent_record(sub, client_id), now)
            .await?
            .map(|record| record.value))
    }

    /// Returns all consents of a user, ordered by client id.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the read fails.
    pub async fn user_consents(&self, sub: &str, now: Timestamp) -> Result<Vec<UserConsent>, StoreError> {
        self.ledger.read_records(&ledger_keys::consent_record(sub, ""), now).await
    }

    /// Adds scopes to the consent of a user for a client.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the consent cannot be read or written.
    pub async fn allow_scopes(
        &self,
        sub: &str,
        client: &Client,
        scopes: &Scopes,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let key = ledger_keys::consent_record(sub, &client.client_id);
        loop {
            let previous = self.ledger.read_record::<UserConsent>(&key, now).await?;
            let expect = previous.as_ref().map_or(Expect::Absent, |record| Expect::Revision(record.revision));
            let before =
                previous.map(|record| record.value).filter(|one| one.generation == client.generation);
            let before = before.map(|consent| consent.scopes).unwrap_or_default();
            let consent = UserConsent {
                client_id: client.client_id.clone(),
                generation: client.generation.clone(),
                scopes: before.iter().chain(scopes.iter()).collect(),
                at: now,
            };
            match self.ledger.write(vec![records::put_record(key.clone(), &consent, None, expect)], now).await
            {
                Ok(_) => {
                    self.audit.record(AuditEvent::Consent {
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

    /// Withdraws the consent of a user for a client, and revokes all tokens that the client has for this
    /// user.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the write fails.
    pub async fn withdraw_consent(
        &self,
        sub: &str,
        client_id: &str,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let writes = vec![
            LedgerWrite::Delete { key: ledger_keys::consent_record(sub, client_id), expect: Expect::Any },
            records::put_record(
                ledger_keys::withdrawn_consent(sub, client_id),
                &now,
                Some(now + self.lifetimes.longest(now).await?.family()),
                Expect::Any,
            ),
        ];
        self.ledger.write(writes, now).await?;
        let (sub, client_id) = (sub.to_owned(), client_id.to_owned());
        self.audit.record(AuditEvent::Consent { sub, client_id, scope: String::new() });
        Ok(())
    }
}
