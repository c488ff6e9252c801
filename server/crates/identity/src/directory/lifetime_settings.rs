//! The lifetimes of tokens and sessions, per server and per client, and the longest ones that were ever in
//! effect.
//!
//! Revocations and retired keys are kept as long as the longest token that may have been issued. A setting
//! can be reduced later, so the longest lifetimes are stored in the ledger, and are never reduced.

use std::sync::{Arc, RwLock};

use jiff::{SignedDuration, Timestamp};
use store::{Expect, Ledger as _, Store, StoreError};

use crate::ledger_keys;
use crate::lifetimes::Lifetimes;
use crate::model::client::Client;
use crate::storage::epoch_ledger::EpochLedger;
use crate::storage::records;

/// The lifetimes that are in effect, and the record of the longest ones.
pub struct LifetimeSettings {
    ledger: Arc<EpochLedger>,
    configured: RwLock<Lifetimes>,
}

/// The longest lifetimes that were ever in effect.
pub(crate) async fn longest_lifetimes(store: &Store, now: Timestamp) -> Result<Lifetimes, StoreError> {
    match store.get(ledger_keys::LONGEST_LIFETIMES, now).await? {
        Some(record) => {
            let lifetimes: Lifetimes = records::decode_record(ledger_keys::LONGEST_LIFETIMES, &record.value)?;
            Ok(lifetimes.longest(Lifetimes::default()))
        }
        None => Ok(Lifetimes::default()),
    }
}

impl LifetimeSettings {
    pub(crate) fn new(ledger: Arc<EpochLedger>) -> Self {
        Self { ledger, configured: RwLock::default() }
    }

    /// Returns the lifetimes of the server.
    pub fn configured(&self) -> Lifetimes {
        *self.configured.read().expect("no thread panics while it holds the lock")
    }

    /// Returns the lifetimes for a client: those of the server, replaced by those that are registered for the
    /// client.
    pub fn for_client(&self, client: &Client) -> Lifetimes {
        override_lifetimes(self.configured(), client)
    }

    /// Sets the lifetimes of the server.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the longest lifetimes cannot be stored; then nothing is changed.
    pub async fn configure(&self, lifetimes: Lifetimes, now: Timestamp) -> Result<(), StoreError> {
        self.raise_longest(lifetimes, now).await?;
        *self.configured.write().expect("no thread panics while it holds the lock") = lifetimes;
        Ok(())
    }

    /// Stores the lifetimes of a client among the longest ones. Must be called before the client is stored.
    pub(crate) async fn admit_client(&self, client: &Client, now: Timestamp) -> Result<(), StoreError> {
        self.raise_longest(override_lifetimes(Lifetimes::default(), client), now).await
    }

    /// The longest lifetimes that were ever in effect.
    pub(crate) async fn longest(&self, now: Timestamp) -> Result<Lifetimes, StoreError> {
        longest_lifetimes(&self.ledger, now).await
    }

    async fn raise_longest(&self, lifetimes: Lifetimes, now: Timestamp) -> Result<(), StoreError> {
        loop {
            let earlier = self.ledger.get(ledger_keys::LONGEST_LIFETIMES, now).await?;
            let expect = earlier.as_ref().map_or(Expect::Absent, |record| Expect::Revision(record.revision));
            let longest = self.longest(now).await?;
            let raised = longest.longest(lifetimes);
            if raised == longest {
                return Ok(());
            }
            let key = ledger_keys::LONGEST_LIFETIMES.to_owned();
            match self.ledger.write(vec![records::put_record(key, &raised, None, expect)], now).await {
                Ok(_) => return Ok(()),
                // Another request has changed the record: read it again.
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn override_lifetimes(server: Lifetimes, client: &Client) -> Lifetimes {
    let seconds = |own: Option<u32>, default: SignedDuration| {
        own.map_or(default, |seconds| SignedDuration::from_secs(seconds.into()))
    };
    Lifetimes {
        access_token: seconds(client.access_token_lifetime_s, server.access_token),
        backend_access_token: seconds(client.access_token_lifetime_s, server.backend_access_token),
        id_token: seconds(client.id_token_lifetime_s, server.id_token),
        refresh_token_family: seconds(client.refresh_token_lifetime_s, server.refresh_token_family),
        ..server
    }
}
