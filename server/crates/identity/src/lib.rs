//! The rules of OAuth 2.0, OpenID Connect and SMART Backend Services, without HTTP.
//!
//! [`Identity`] contains one service for each part of the rules. The caller passes the time as an argument,
//! and randomness comes from [`Random`]: this crate opens no socket and reads no clock.
//!
//! | module | contents |
//! |---|---|
//! | [`model`] | clients, client metadata, users, scopes, redirect URIs, providers |
//! | [`directory`] | the registered clients and the users, as they are stored; lifetimes |
//! | [`tokens`] | grants, access tokens, ID tokens, signing keys, DPoP, introspection, revocation |
//! | [`client_auth`] | client secrets, client assertions, key sets of clients |
//! | [`sign_in`] | passwords, passkeys, linked accounts, sessions, throttling |
//! | [`authorize`] | the authorization request, PAR, interaction, consent, devices |
//! | [`storage`] | typed records, encryption at rest, the server secret |
//! | [`lifetimes`], `ledger_keys` | the lifetimes and the ledger keys of all records |
//! | [`params`], `encoding`, `jose`, [`private_key`], [`random`], [`audit`] | parameters, base64url, JWS, private keys, random bytes, audit events |
//!
//! Dependencies between the modules have one direction: `authorize` depends on `sign_in` and `tokens`, these
//! two depend on `directory`, and `directory` depends on `model` and `storage`.

pub mod audit;
pub mod authorize;
pub mod client_auth;
pub mod directory;
mod encoding;
mod jose;
mod ledger_keys;
pub use ledger_keys::{ENDED_BY_RESTORE, NEVER_COPIED};
pub use tokens::revocation::end_all_before;
pub mod lifetimes;
pub mod model;
pub mod params;
pub mod private_key;
pub mod random;
pub mod sign_in;
pub mod storage;
pub mod tokens;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use jiff::Timestamp;
use store::Store;

use audit::AuditSink;
use authorize::authorization_service::AuthorizationService;
use authorize::consent::ConsentStore;
use authorize::device::DeviceAuthorizations;
use client_auth::authenticator::ClientAuthenticator;
use client_auth::key_set_cache::KeySetCache;
use directory::client_registry::{ClientCache, ClientRegistry};
use directory::lifetime_settings::LifetimeSettings;
use directory::patient_relations::{NoPatientRelations, PatientRelations};
use directory::provider_rules::ProviderRules;
use directory::user_directory::UserDirectory;
use sign_in::large_request_quota::LargeRequestQuota;
use sign_in::passkey;
use sign_in::provider_sign_in::ProviderSignIns;
use sign_in::session::SessionStore;
use sign_in::throttle::{SignInThrottle, ThrottleCounts};
use storage::encryption::SecretStorageError;
use storage::epoch_ledger::EpochLedger;
use storage::server_secret::ServerSecret;
use tokens::dpop::DpopVerifier;
use tokens::grant_store::GrantStore;
use tokens::key_ring::KeyRing;
use tokens::revocation::RevocationList;
use tokens::signing_keys::SigningKeys;
use tokens::token_service::{TokenCache, TokenService};

pub use jose::{SigningAlg, assertion_algorithms};
pub use private_key::{KeyProvider, SystemKeys};
pub use random::{Random, SystemRandom};

use self::sign_in::sign_in_service::SignInService;

/// Services that the caller provides. The default encrypts nothing, fetches nothing and discards audit
/// events.
pub struct Dependencies {
    /// Encrypts secrets at rest.
    pub encryption: storage::encryption::SecretEncryption,
    /// Fetches the key sets of clients.
    pub fetch: Arc<dyn client_auth::key_set_cache::FetchKeySet>,
    /// Generates and opens the private keys of this server.
    pub keys: Arc<dyn KeyProvider>,
    /// Receives audit events.
    pub audit: Arc<dyn audit::AuditSink>,
    /// Finds the patients to whom users are related.
    pub relations: Arc<dyn PatientRelations>,
    /// Tests whether a query of a granular scope can be evaluated. The default supports none.
    pub supports_query: self::authorize::authorization_service::SupportsQuery,
}

impl Default for Dependencies {
    fn default() -> Self {
        Self {
            encryption: storage::encryption::SecretEncryption::default(),
            fetch: Arc::new(client_auth::key_set_cache::NoKeySetFetch),
            keys: Arc::new(SystemKeys),
            audit: Arc::new(audit::NullAuditSink),
            relations: Arc::new(NoPatientRelations),
            supports_query: |_, _| false,
        }
    }
}

/// All services of the identity rules.
pub struct Identity {
    /// Registered clients.
    pub clients: Arc<ClientRegistry>,
    /// The users.
    pub users: Arc<UserDirectory>,
    /// Authenticates the clients of requests.
    pub client_auth: ClientAuthenticator,
    /// Passkeys, recovery codes and linked accounts.
    pub sign_in: SignInService,
    /// The providers by which rights count.
    pub provider_rules: Arc<ProviderRules>,
    /// Sign-ins at external providers.
    pub provider_sign_ins: ProviderSignIns,
    /// Limits the number of failed sign-ins.
    pub throttle: SignInThrottle,
    /// Browser sessions.
    pub sessions: SessionStore,
    /// Authorization requests.
    pub authorization: AuthorizationService,
    /// Device authorizations.
    pub devices: DeviceAuthorizations,
    /// Consents of users.
    pub consents: Arc<ConsentStore>,
    /// Authorization codes and refresh tokens.
    pub grants: Arc<GrantStore>,
    /// Access tokens and ID tokens.
    pub tokens: Arc<TokenService>,
    /// DPoP proofs.
    pub dpop: Arc<DpopVerifier>,
    /// Lifetimes of tokens and sessions.
    pub lifetimes: Arc<LifetimeSettings>,
    /// Signing keys.
    pub signing_keys: Arc<SigningKeys>,
    /// The secret that message authentication codes are computed with.
    pub server_secret: Arc<ServerSecret>,
    /// Receives audit events.
    pub audit: Arc<dyn AuditSink>,
    /// Issuer identifier: the base URL without a trailing slash.
    pub issuer: String,
    /// FHIR base URL, the audience of tokens with SMART scopes.
    pub fhir_base: String,
    /// `true` if demo users and demo clients are enabled.
    pub demo: bool,
    /// Epoch of the secrets (see `storage::epoch_ledger`) that were loaded last.
    loaded_secrets: AtomicU64,
}

impl Identity {
    /// Takes notice of what other nodes have written to a shared store: changed clients, users, revocations
    /// and keys. Call it a few times a second; without success for a second, every request reads the store.
    ///
    /// # Errors
    /// Returns [`SecretStorageError`] if the store or the keys cannot be read.
    pub async fn follow_other_nodes(&self, now: Timestamp) -> Result<(), SecretStorageError> {
        let ledger = &self.signing_keys.ledger;
        let read = ledger.follow(now).await?;
        let epoch = ledger.secrets_epoch();
        if self.loaded_secrets.load(Ordering::Acquire) != epoch {
            self.signing_keys.load_changes(now).await?;
            self.server_secret.reload(now).await?;
            self.loaded_secrets.store(epoch, Ordering::Release);
        }
        // Without the new keys, no cache may be used either.
        ledger.confirm(read);
        Ok(())
    }

    /// Opens the services without encryption at rest, key set fetching and audit log, for tests and tools.
    ///
    /// # Errors
    /// See [`Identity::open_with`].
    pub async fn open(
        store: Store,
        random: Arc<dyn Random>,
        issuer: &str,
        demo: bool,
        now: Timestamp,
    ) -> Result<Self, SecretStorageError> {
        Self::open_with(store, random, Dependencies::default(), issuer, demo, now).await
    }

    /// Opens the services. Reads the signing keys and the server secret from the ledger, creates them if they
    /// are missing, and encrypts them with the current key-encryption key.
    ///
    /// # Errors
    /// Returns [`SecretStorageError`] if the store fails, or if no configured key decrypts a record.
    pub async fn open_with(
        store: Store,
        random: Arc<dyn Random>,
        dependencies: Dependencies,
        issuer: &str,
        demo: bool,
        now: Timestamp,
    ) -> Result<Self, SecretStorageError> {
        let Dependencies { encryption, fetch, keys, audit, relations, supports_query } = dependencies;
        let encryption = Arc::new(encryption);
        // After a change of the key, no record is left under the old one once the server runs.
        encryption.reencrypt_records(&store, now).await?;
        let ledger = Arc::new(EpochLedger::new(store));
        let ring = KeyRing::open(&ledger, &encryption, &*keys, now).await?;
        let server_secret =
            ServerSecret::open(ledger.clone(), encryption.clone(), random.clone(), audit.clone(), now)
                .await?;
        let server_secret = Arc::new(server_secret);
        let relying_party = passkey::relying_party(issuer);
        let fhir_base = format!("{issuer}/fhir/R4");
        let issuer = issuer.to_owned();
        let signing_keys = Arc::new(SigningKeys {
            ledger: ledger.clone(),
            encryption,
            audit: audit.clone(),
            provider: keys,
            ring: RwLock::new(Arc::new(ring)),
            loading: tokio::sync::Mutex::default(),
            completing: tokio::sync::Mutex::default(),
        });
        let lifetimes = Arc::new(LifetimeSettings::new(ledger.clone()));
        let clients = Arc::new(ClientRegistry {
            ledger: ledger.clone(),
            random: random.clone(),
            audit: audit.clone(),
            cache: ClientCache::new(),
            lifetimes: lifetimes.clone(),
            demo,
        });
        let provider_rules = Arc::new(ProviderRules::default());
        let users = Arc::new(UserDirectory {
            ledger: ledger.clone(),
            random: random.clone(),
            audit: audit.clone(),
            relations,
            providers: provider_rules.clone(),
            demo,
        });
        // Stores that were written before the index existed have no entries in it.
        users.index_emails(now).await?;
        users.extend_default_scopes(now).await?;
        users.date_mapped_rights(now).await?;
        let revocations = RevocationList::new(ledger.clone());
        let dpop = Arc::new(DpopVerifier { ledger: ledger.clone() });
        let grants = Arc::new(GrantStore {
            ledger: ledger.clone(),
            random: random.clone(),
            audit: audit.clone(),
            clients: clients.clone(),
            users: users.clone(),
            revocations: revocations.clone(),
            server_secret: server_secret.clone(),
            lifetimes: lifetimes.clone(),
        });
        let tokens = Arc::new(TokenService {
            ledger: ledger.clone(),
            random: random.clone(),
            audit: audit.clone(),
            clients: clients.clone(),
            users: users.clone(),
            signing_keys: signing_keys.clone(),
            grants: grants.clone(),
            revocations: revocations.clone(),
            dpop: dpop.clone(),
            verified: TokenCache::new(),
            lifetimes: lifetimes.clone(),
            issuer: issuer.clone(),
            fhir_base: fhir_base.clone(),
        });
        let consents = Arc::new(ConsentStore {
            ledger: ledger.clone(),
            audit: audit.clone(),
            lifetimes: lifetimes.clone(),
        });
        Ok(Self {
            provider_rules,
            client_auth: ClientAuthenticator {
                ledger: ledger.clone(),
                audit: audit.clone(),
                clients: clients.clone(),
                key_sets: KeySetCache::new(fetch),
                revocations: revocations.clone(),
                issuer: issuer.clone(),
            },
            sign_in: SignInService {
                ledger: ledger.clone(),
                random: random.clone(),
                audit: audit.clone(),
                users: users.clone(),
                relying_party,
            },
            provider_sign_ins: ProviderSignIns {
                ledger: ledger.clone(),
                random: random.clone(),
                signing_keys: signing_keys.clone(),
                issuer: issuer.clone(),
            },
            throttle: SignInThrottle {
                counts: ThrottleCounts::default(),
                ledger: ledger.clone(),
                random: random.clone(),
                server_secret: server_secret.clone(),
            },
            sessions: SessionStore {
                ledger: ledger.clone(),
                random: random.clone(),
                audit: audit.clone(),
                users: users.clone(),
                revocations,
                lifetimes: lifetimes.clone(),
            },
            authorization: AuthorizationService {
                ledger: ledger.clone(),
                random: random.clone(),
                audit: audit.clone(),
                clients: clients.clone(),
                consents: consents.clone(),
                grants: grants.clone(),
                tokens: tokens.clone(),
                server_secret: server_secret.clone(),
                large_requests: LargeRequestQuota::default(),
                supports_query,
                issuer: issuer.clone(),
                fhir_base: fhir_base.clone(),
            },
            devices: DeviceAuthorizations {
                ledger,
                random,
                audit: audit.clone(),
                clients: clients.clone(),
                grants: grants.clone(),
                server_secret: server_secret.clone(),
                supports_query,
            },
            clients,
            users,
            consents,
            grants,
            tokens,
            dpop,
            lifetimes,
            signing_keys,
            server_secret,
            audit,
            issuer,
            fhir_base,
            demo,
            loaded_secrets: AtomicU64::new(0),
        })
    }
}
