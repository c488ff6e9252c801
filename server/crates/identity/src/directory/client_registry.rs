//! The registered clients. A client is added by an administration command or declared in the configuration.

use std::sync::Arc;

use jiff::Timestamp;
use quick_cache::sync::Cache;
use store::{Expect, LedgerWrite, StoreError};

use crate::audit::{AuditEvent, AuditSink, RecordAction};
use crate::directory::lifetime_settings::LifetimeSettings;
use crate::encoding;
use crate::ledger_keys;
use crate::model::client::{Client, RegistrationError};
use crate::random::Random;
use crate::storage::epoch_ledger::EpochLedger;
use crate::storage::records;

/// A bounded cache of clients by client id. An entry is valid in the cache epoch in which it was read (see
/// `storage::epoch_ledger`).
pub(crate) struct ClientCache(Cache<Box<str>, Arc<CachedClient>>);

struct CachedClient {
    client: Client,
    epoch: u64,
}

impl ClientCache {
    pub fn new() -> Self {
        Self(Cache::new(1_000))
    }
}

/// The registered clients, stored in the ledger.
pub struct ClientRegistry {
    pub(crate) ledger: Arc<EpochLedger>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) audit: Arc<dyn AuditSink>,
    pub(crate) cache: ClientCache,
    pub(crate) lifetimes: Arc<LifetimeSettings>,
    /// `true` if clients of the demo project may be used.
    pub(crate) demo: bool,
}

impl ClientRegistry {
    /// Returns the client with this id if it exists and may be used now. Demo clients may be used only if the demo
    /// project is served.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the read fails.
    pub async fn active_client(&self, client_id: &str, now: Timestamp) -> Result<Option<Client>, StoreError> {
        let epoch = self.ledger.cache_epoch();
        if let Some(known) = self.cache.0.get(client_id).filter(|known| known.epoch == epoch) {
            return Ok(Some(known.client.clone()));
        }
        let found = self.ledger.read_record::<Client>(&ledger_keys::client_record(client_id), now).await?;
        let found = found.map(|stored| stored.value).filter(|client| self.demo || !client.demo);
        if let Some(client) = &found {
            self.cache.0.insert(client_id.into(), Arc::new(CachedClient { client: client.clone(), epoch }));
        }
        Ok(found)
    }

    /// Returns all clients, including those of the demo project, ordered by id.
    ///
    /// # Errors
    /// Returns [`StoreError`] if a read fails.
    pub async fn all_clients(&self, now: Timestamp) -> Result<Vec<Client>, StoreError> {
        self.ledger.read_records(ledger_keys::CLIENTS, now).await
    }

    /// Returns a number that increases with each change of a client. A cache must read this number before it reads the
    /// clients.
    pub fn client_epoch(&self) -> u64 {
        self.ledger.client_epoch()
    }

    /// Registers a client.
    ///
    /// # Errors
    /// Returns [`RegistrationError`] if the client is invalid or its id is taken.
    pub async fn add_client(&self, client: &Client, now: Timestamp) -> Result<(), RegistrationError> {
        client.check_registration()?;
        self.lifetimes.admit_client(client, now).await?;
        let key = ledger_keys::client_record(&client.client_id);
        let client = Client { generation: self.random.id(), ..client.clone() };
        match self.ledger.write(vec![records::put_record(key, &client, None, Expect::Absent)], now).await {
            Ok(_) => {
                self.audit
                    .record(AuditEvent::Client { action: RecordAction::Create, client_id: client.client_id });
                Ok(())
            }
            Err(StoreError::Conflict { .. }) => Err(RegistrationError::Exists(client.client_id)),
            Err(error) => Err(error.into()),
        }
    }

    /// Replaces the declared clients with those of the configuration in one transaction: adds new clients, updates
    /// changed clients, and deletes clients that are no longer declared. Tokens of unchanged clients stay valid.
    ///
    /// # Errors
    /// Returns [`RegistrationError`] if a client is invalid. In that case no client is changed.
    pub async fn declare_clients(
        &self,
        declared: &[Client],
        now: Timestamp,
    ) -> Result<(), RegistrationError> {
        loop {
            let mut writes = Vec::new();
            let mut events = Vec::new();
            for client in declared {
                client.check_registration()?;
                self.lifetimes.admit_client(client, now).await?;
                let key = ledger_keys::client_record(&client.client_id);
                let found = self.ledger.read_record::<Client>(&key, now).await?;
                let (action, generation, expect) = match found {
                    Some(found) if !found.value.declared => {
                        return Err(RegistrationError::AddedByCommand(client.client_id.clone()));
                    }
                    Some(found) => {
                        let same = Client {
                            generation: found.value.generation.clone(),
                            declared: true,
                            ..client.clone()
                        };
                        if same == found.value {
                            continue;
                        }
                        (RecordAction::Update, found.value.generation, Expect::Revision(found.revision))
                    }
                    None => (RecordAction::Create, self.random.id(), Expect::Absent),
                };
                let record = Client { generation, declared: true, ..client.clone() };
                writes.push(records::put_record(key, &record, None, expect));
                events.push(AuditEvent::Client { action, client_id: record.client_id });
            }
            let is_declared = |id: &str| declared.iter().any(|client| client.client_id == id);
            for removed in
                self.all_clients(now).await?.into_iter().filter(|c| c.declared && !is_declared(&c.client_id))
            {
                writes.push(LedgerWrite::delete(ledger_keys::client_record(&removed.client_id), Expect::Any));
                events
                    .push(AuditEvent::Client { action: RecordAction::Delete, client_id: removed.client_id });
            }
            match self.ledger.write(writes, now).await {
                Ok(_) => {
                    events.into_iter().for_each(|event| self.audit.record(event));
                    return Ok(());
                }
                // Another request changed one of the clients: read the clients again.
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Replaces all secrets of a client with a new one and returns the new secret. Returns `None` if there is no such
    /// client.
    ///
    /// # Errors
    /// Returns [`RegistrationError::Declared`] if the client is declared in the configuration, or a store error.
    pub async fn rotate_client_secret(
        &self,
        client_id: &str,
        now: Timestamp,
    ) -> Result<Option<String>, RegistrationError> {
        let key = ledger_keys::client_record(client_id);
        let Some(mut stored) = self.ledger.read_record::<Client>(&key, now).await? else {
            return Ok(None);
        };
        if stored.value.declared {
            return Err(RegistrationError::Declared(client_id.to_owned()));
        }
        let secret = self.random.secret();
        stored.value.secret_digests = vec![encoding::sha256_base64url(&secret)];
        let write = records::put_record(key, &stored.value, None, Expect::Revision(stored.revision));
        self.ledger.write(vec![write], now).await?;
        self.audit
            .record(AuditEvent::Client { action: RecordAction::Update, client_id: client_id.to_owned() });
        Ok(Some(secret))
    }

    /// Deletes a client and thereby invalidates its tokens. Returns `false` if there is no such client.
    ///
    /// # Errors
    /// Returns [`RegistrationError::Declared`] if the client is declared in the configuration, or a store error.
    pub async fn delete_client(&self, client_id: &str, now: Timestamp) -> Result<bool, RegistrationError> {
        let key = ledger_keys::client_record(client_id);
        let Some(found) = self.ledger.read_record::<Client>(&key, now).await? else {
            return Ok(false);
        };
        if found.value.declared {
            return Err(RegistrationError::Declared(client_id.to_owned()));
        }
        let write = LedgerWrite::Delete { key, expect: Expect::Revision(found.revision) };
        self.ledger.write(vec![write], now).await?;
        self.audit
            .record(AuditEvent::Client { action: RecordAction::Delete, client_id: client_id.to_owned() });
        Ok(true)
    }
}
