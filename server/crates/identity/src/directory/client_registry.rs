//! The registered clients. A client is added by an administration command or declared in the configuration.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use quick_cache::sync::Cache;
use serde_json::{Map, Value};
use store::{Expect, LedgerWrite, StoreError};

use crate::audit::{AuditEvent, AuditSink, RecordAction};
use crate::directory::lifetime_settings::LifetimeSettings;
use crate::ledger_keys;
use crate::model::client::{Client, RegistrationError, ReplacedSecret};
use crate::model::client_metadata::{ClientMetadata, InvalidMetadata};
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

/// Maximum number of replaced secrets of a client that are still valid.
const MAX_REPLACED_SECRETS: usize = 10;

/// A client with the revision of the stored record.
pub struct VersionedClient {
    /// The client.
    pub client: Client,
    /// Revision of the record, which changes with each write.
    pub revision: u64,
}

/// Reasons why a change of a client is rejected.
#[derive(Debug, thiserror::Error)]
pub enum ChangeClientError {
    /// There is no such client.
    #[error("client '{0}' does not exist; `trefoil client list` shows all clients")]
    Unknown(String),
    /// The record was changed since it was read.
    #[error("the client was changed since it was read; read it again")]
    Stale,
    /// The client has no authentication method with a secret.
    #[error("client '{0}' uses no secret; register client_secret_basic or client_secret_post first")]
    NoSecret(String),
    /// Too many replaced secrets are still valid.
    #[error("10 replaced secrets of the client are still valid; rotate without an overlap to end them")]
    TooManySecrets,
    /// A member of the change is unknown or has another type.
    #[error("the change is not valid: {0}")]
    Malformed(#[from] serde_json::Error),
    /// A member of the changed metadata is rejected.
    #[error(transparent)]
    Metadata(#[from] InvalidMetadata),
    /// The changed client is rejected.
    #[error(transparent)]
    Registration(#[from] RegistrationError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
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
    /// Returns the client with this id if it exists and may be used now. Demo clients may be used only if the
    /// demo project is served.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the read fails.
    pub async fn active_client(&self, client_id: &str, now: Timestamp) -> Result<Option<Client>, StoreError> {
        let epoch = self.ledger.cache_epoch();
        if let Some(candidate) =
            self.cache.0.get(client_id).filter(|candidate| Some(candidate.epoch) == epoch)
        {
            return Ok(Some(candidate.client.clone()));
        }
        let client = self.ledger.read_record::<Client>(&ledger_keys::client_record(client_id), now).await?;
        let client = client.map(|record| record.value).filter(|client| self.demo || !client.demo);
        if let (Some(client), Some(epoch)) = (&client, epoch) {
            self.cache.0.insert(client_id.into(), Arc::new(CachedClient { client: client.clone(), epoch }));
        }
        Ok(client)
    }

    /// Returns all clients, including those of the demo project, ordered by id.
    ///
    /// # Errors
    /// Returns [`StoreError`] if a read fails.
    pub async fn all_clients(&self, now: Timestamp) -> Result<Vec<Client>, StoreError> {
        self.ledger.read_records(ledger_keys::CLIENTS, now).await
    }

    /// Returns a number that increases with each change of a client. A cache must read this number before it
    /// reads the clients.
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

    /// Replaces the declared clients with those of the configuration in one transaction: adds new clients,
    /// updates changed clients, and deletes clients that are no longer declared. Tokens of unchanged clients
    /// stay valid.
    ///
    /// `edition` is the number of the configuration. Does nothing and returns `false` if a later edition was
    /// applied before, by a node that has been updated already.
    ///
    /// # Errors
    /// Returns [`RegistrationError`] if a client is invalid. In that case no client is changed.
    pub async fn declare_clients(
        &self,
        declared: &[Client],
        edition: u64,
        now: Timestamp,
    ) -> Result<bool, RegistrationError> {
        loop {
            let mut writes = Vec::new();
            let applied = self.ledger.read_record::<u64>(ledger_keys::CONFIGURATION_EDITION, now).await?;
            if applied.as_ref().is_some_and(|applied| applied.value > edition) {
                return Ok(false);
            }
            let is_new = applied.as_ref().map_or(edition != 0, |applied| applied.value != edition);
            let mut events = Vec::new();
            for client in declared {
                client.check_registration()?;
                self.lifetimes.admit_client(client, now).await?;
                let key = ledger_keys::client_record(&client.client_id);
                let record = self.ledger.read_record::<Client>(&key, now).await?;
                let (action, generation, expect) = match record {
                    Some(client_record) if !client_record.value.declared => {
                        return Err(RegistrationError::AddedByCommand(client.client_id.clone()));
                    }
                    Some(client_record) => {
                        let same = Client {
                            generation: client_record.value.generation.clone(),
                            declared: true,
                            ..client.clone()
                        };
                        if same == client_record.value {
                            continue;
                        }
                        (
                            RecordAction::Update,
                            client_record.value.generation,
                            Expect::Revision(client_record.revision),
                        )
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
            // A server whose clients are unchanged also starts on a full disk.
            if writes.is_empty() && !is_new {
                return Ok(true);
            }
            // No node may apply another edition meanwhile.
            let expect = applied.map_or(Expect::Absent, |applied| Expect::Revision(applied.revision));
            let key = ledger_keys::CONFIGURATION_EDITION.to_owned();
            writes.push(records::put_record(key, &edition, None, expect));
            match self.ledger.write(writes, now).await {
                Ok(_) => {
                    events.into_iter().for_each(|event| self.audit.record(event));
                    return Ok(true);
                }
                // Another request changed one of the clients: read the clients again.
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns a client with the revision of its record.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the read fails.
    pub async fn versioned_client(
        &self,
        client_id: &str,
        now: Timestamp,
    ) -> Result<Option<VersionedClient>, StoreError> {
        let record = self.ledger.read_record::<Client>(&ledger_keys::client_record(client_id), now).await?;
        Ok(record.map(|record| VersionedClient { client: record.value, revision: record.revision }))
    }

    /// Changes the metadata of a client by a JSON merge patch (see [`ClientMetadata::with_changes`]). Its
    /// secrets and tokens stay valid; a client that needs a secret and has none receives one, which is
    /// returned. If `revision` is given, fails if the record was changed since that revision.
    ///
    /// # Errors
    /// Returns [`ChangeClientError`] if the client is missing, declared or was changed, or if the change is
    /// invalid.
    pub async fn change_client(
        &self,
        client_id: &str,
        revision: Option<u64>,
        changes: &Map<String, Value>,
        now: Timestamp,
    ) -> Result<(VersionedClient, Option<String>), ChangeClientError> {
        let mut new_secret = None;
        let client = self
            .write_changed(client_id, revision, now, |client| {
                // A conflict repeats this function, perhaps with a client that has a secret by now.
                new_secret = None;
                let metadata = ClientMetadata::with_changes(client, changes)?;
                let mut next = metadata.into_client(client_id, None)?;
                if next.needs_secret() {
                    next.secret_digests.clone_from(&client.secret_digests);
                    next.replaced_secrets.clone_from(&client.replaced_secrets);
                    if next.secret_digests.is_empty() {
                        let secret = self.random.secret();
                        next.secret_digests.push(Client::secret_digest(&secret));
                        new_secret = Some(secret);
                    }
                }
                let (demo, generation) = (client.demo, client.generation.clone());
                Ok(Client { demo, generation, ..next })
            })
            .await?;
        Ok((client, new_secret))
    }

    /// Gives a client a new secret and returns it. The earlier secrets stay valid for the time `overlap`.
    ///
    /// # Errors
    /// Returns [`ChangeClientError`] if the client is missing or declared, or uses no secret.
    pub async fn rotate_client_secret(
        &self,
        client_id: &str,
        overlap: SignedDuration,
        now: Timestamp,
    ) -> Result<String, ChangeClientError> {
        let secret = self.random.secret();
        self.write_changed(client_id, None, now, |client| {
            if !client.needs_secret() {
                return Err(ChangeClientError::NoSecret(client_id.to_owned()));
            }
            let mut next = client.clone();
            let until = now + overlap;
            // An earlier rotation may have set an earlier end.
            next.replaced_secrets.iter_mut().for_each(|replaced| replaced.until = replaced.until.min(until));
            let replaced = std::mem::replace(&mut next.secret_digests, vec![Client::secret_digest(&secret)]);
            let replaced = replaced.into_iter().map(|digest| ReplacedSecret { digest, until });
            next.replaced_secrets.extend(replaced);
            next.replaced_secrets.retain(|replaced| now < replaced.until);
            if next.replaced_secrets.len() > MAX_REPLACED_SECRETS {
                return Err(ChangeClientError::TooManySecrets);
            }
            Ok(next)
        })
        .await?;
        Ok(secret)
    }

    /// Writes a change of a client by compare-and-set, and retries after a concurrent change.
    async fn write_changed(
        &self,
        client_id: &str,
        revision: Option<u64>,
        now: Timestamp,
        mut change: impl FnMut(&Client) -> Result<Client, ChangeClientError> + Send,
    ) -> Result<VersionedClient, ChangeClientError> {
        loop {
            let versioned = self.versioned_client(client_id, now).await?;
            let versioned = versioned.filter(|candidate| self.demo || !candidate.client.demo);
            let versioned = versioned.ok_or_else(|| ChangeClientError::Unknown(client_id.to_owned()))?;
            if versioned.client.declared {
                return Err(RegistrationError::Declared(client_id.to_owned()).into());
            }
            if revision.is_some_and(|revision| revision != versioned.revision) {
                return Err(ChangeClientError::Stale);
            }
            let client = change(&versioned.client)?;
            self.lifetimes.admit_client(&client, now).await?;
            let key = ledger_keys::client_record(client_id);
            let write = records::put_record(key, &client, None, Expect::Revision(versioned.revision));
            match self.ledger.write(vec![write], now).await {
                Ok(revisions) => {
                    let client_id = client_id.to_owned();
                    self.audit.record(AuditEvent::Client { action: RecordAction::Update, client_id });
                    let revision = revisions.first().copied().unwrap_or_default();
                    return Ok(VersionedClient { client, revision });
                }
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Deletes a client and thereby invalidates its tokens. Returns `false` if there is no such client.
    ///
    /// # Errors
    /// Returns [`RegistrationError::Declared`] if the client is declared in the configuration, or a store
    /// error.
    pub async fn delete_client(&self, client_id: &str, now: Timestamp) -> Result<bool, RegistrationError> {
        let key = ledger_keys::client_record(client_id);
        let Some(record) = self.ledger.read_record::<Client>(&key, now).await? else {
            return Ok(false);
        };
        if record.value.declared {
            return Err(RegistrationError::Declared(client_id.to_owned()));
        }
        let write = LedgerWrite::Delete { key, expect: Expect::Revision(record.revision) };
        self.ledger.write(vec![write], now).await?;
        self.audit
            .record(AuditEvent::Client { action: RecordAction::Delete, client_id: client_id.to_owned() });
        Ok(true)
    }
}
