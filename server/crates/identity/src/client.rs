//! Clients: who may ask for what, and how they prove who they are (RFC 6749 2, RFC 7591 names).

use std::sync::Arc;

use jiff::Timestamp;
use quick_cache::sync::Cache;
use serde::{Deserialize, Serialize};
use store::{Expect, LedgerWrite, StoreError};
use subtle::ConstantTimeEq;

use crate::audit::{Action, Event};
use crate::redirect_uri::RegisteredRedirectUri;
use crate::scope::Scopes;
use crate::{Identity, SigningAlg, assertion, jose, ledger};

/// How a client authenticates at the token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthMethod {
    /// A public client: it only names itself.
    None,
    /// `Authorization: Basic`.
    ClientSecretBasic,
    /// `client_id` and `client_secret` in the form.
    ClientSecretPost,
    /// A signed assertion (RFC 7523).
    PrivateKeyJwt,
}

/// Grant types of the token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantType {
    /// RFC 6749 4.1.
    AuthorizationCode,
    /// RFC 6749 6.
    RefreshToken,
    /// RFC 6749 4.4.
    ClientCredentials,
    /// RFC 8628.
    #[serde(rename = "urn:ietf:params:oauth:grant-type:device_code")]
    DeviceCode,
}

/// What `authorize` may answer with: `code`, or tokens on the front channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ResponseType {
    /// An authorization code.
    #[serde(rename = "code")]
    Code,
    /// An access token, and with `openid` an ID token.
    #[serde(rename = "token")]
    Token,
    /// An ID token.
    #[serde(rename = "id_token")]
    IdToken,
    /// Both, in OpenID Connect's spelling.
    #[serde(rename = "id_token token")]
    IdTokenToken,
}

/// A registered client, under `client/{client_id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// Identifier, public.
    pub client_id: String,
    /// Name for people.
    pub name: String,
    /// Where the browser may be sent.
    #[serde(default)]
    pub redirect_uris: Vec<RegisteredRedirectUri>,
    /// Where the browser may be sent after sign-out.
    #[serde(default)]
    pub post_logout_redirect_uris: Vec<RegisteredRedirectUri>,
    /// What it may ask for at `authorize`.
    #[serde(default)]
    pub response_types: Vec<ResponseType>,
    /// What it may ask for at `token`.
    #[serde(default)]
    pub grant_types: Vec<GrantType>,
    /// How it may authenticate.
    pub auth_methods: Vec<AuthMethod>,
    /// SHA-256 of each valid secret, base64url.
    #[serde(default)]
    pub secret_digests: Vec<String>,
    /// Public keys for `private_key_jwt`, by value.
    #[serde(default)]
    pub jwks: Vec<serde_json::Value>,
    /// Address of the public keys for `private_key_jwt`.
    #[serde(default)]
    pub jwks_uri: Option<String>,
    /// Algorithms of its assertions; empty is SMART's RS384 and ES384.
    #[serde(default)]
    pub assertion_algs: Vec<String>,
    /// Algorithm of its ID tokens; `None` is RS256.
    #[serde(default)]
    pub id_token_alg: Option<String>,
    /// Scopes that it may have.
    pub scopes: Scopes,
    /// Must it use PKCE?
    pub pkce_required: bool,
    /// May its loopback redirect use any port (RFC 8252)?
    #[serde(default)]
    pub native: bool,
    /// Does it get a refresh token without asking for `offline_access`?
    #[serde(default)]
    pub always_refresh: bool,
    /// For how many seconds (0 to 60) a refresh token that was spent gives its successor again.
    #[serde(default)]
    pub refresh_grace_s: u32,
    /// Are its authorization requests taken only through `par` (RFC 9126 6)?
    #[serde(default)]
    pub require_par: bool,
    /// Are its tokens given only to a proven key (RFC 9449 5.2, `dpop_bound_access_tokens`)?
    #[serde(default)]
    pub dpop_bound: bool,
    /// Is the user asked before it gets anything? First parties do without.
    #[serde(default)]
    pub consent: bool,
    /// May it introspect tokens that were given to other clients?
    #[serde(default)]
    pub introspects: bool,
    /// Groups that it may export; `None` is all.
    #[serde(default)]
    pub groups: Option<Vec<String>>,
    /// Does it belong to the demo project?
    #[serde(default)]
    pub demo: bool,
    /// Is it declared in `trefoil.toml`?
    #[serde(default)]
    pub declared: bool,
    /// Random for each registration and a claim of its tokens, so that a client that is deleted and added
    /// again under the same id does not revive them.
    #[serde(default)]
    pub generation: String,
}

/// Why a registration was refused.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// The id is taken.
    #[error("a client '{0}' exists already; delete it first or choose another id")]
    Exists(String),
    /// The id is taken by a client of another origin.
    #[error(
        "a client '{0}' was added by command; delete it with `trefoil client delete {0}` or declare another id"
    )]
    AddedByCommand(String),
    /// It stands in the configuration, and commands do not change it.
    #[error(
        "the client '{0}' is declared in trefoil.toml; change its [[client]] there, then `trefoil reload`"
    )]
    Declared(String),
    /// An address of keys that cannot be one.
    #[error("jwks_uri '{0}' is no https:// address; plain http:// is possible for a loopback host only")]
    BadKeySetAddress(String),
    /// An algorithm that is not known.
    #[error("'{name}' is no algorithm for {what}; use {known}")]
    BadAlgorithm {
        /// What was given.
        name: String,
        /// For assertions or ID tokens.
        what: &'static str,
        /// What there is.
        known: String,
    },
    /// The id cannot be one.
    #[error("client id '{0}' may hold only letters, digits, '-', '_' and '.', and at most 100 of them")]
    BadId(String),
    /// A secret that could be guessed.
    #[error("a client secret needs 32 characters or more; leave it out and one is made")]
    WeakSecret,
    /// A key that cannot be used.
    #[error(
        "key {0} of the JWK Set cannot be used: it needs kid, and kty RSA (2048 bits or more), EC P-256 or P-384, or OKP Ed25519, public half only"
    )]
    BadKey(usize),
    /// Contradictions.
    #[error("{0}")]
    Contradiction(&'static str),
    /// The store's.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Client {
    /// A client that may do nothing yet: the start of every registration.
    pub fn new(client_id: impl Into<String>) -> Self {
        let client_id = client_id.into();
        Self {
            name: client_id.clone(),
            client_id,
            redirect_uris: Vec::new(),
            post_logout_redirect_uris: Vec::new(),
            response_types: Vec::new(),
            grant_types: Vec::new(),
            auth_methods: Vec::new(),
            secret_digests: Vec::new(),
            jwks: Vec::new(),
            jwks_uri: None,
            assertion_algs: Vec::new(),
            id_token_alg: None,
            scopes: Scopes::default(),
            pkce_required: true,
            native: false,
            always_refresh: false,
            refresh_grace_s: 0,
            require_par: false,
            dpop_bound: false,
            consent: false,
            introspects: false,
            groups: None,
            demo: false,
            declared: false,
            generation: String::new(),
        }
    }

    /// Is this client public: does it hold no secret and no key?
    pub fn is_public(&self) -> bool {
        self.auth_methods == [AuthMethod::None]
    }

    /// Is this one of its secrets? Compared in constant time.
    pub fn has_secret(&self, secret: &str) -> bool {
        let digest = ledger::digest(secret);
        self.secret_digests
            .iter()
            .fold(false, |found, known| found | bool::from(known.as_bytes().ct_eq(digest.as_bytes())))
    }

    /// The digest under which a secret is kept.
    pub fn secret_digest(secret: &str) -> String {
        ledger::digest(secret)
    }

    /// Judges a registration.
    ///
    /// # Errors
    /// [`RegistrationError`]: what to change.
    pub fn check(&self) -> Result<(), RegistrationError> {
        let id = &self.client_id;
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        if id.is_empty() || id.len() > 100 || !id.bytes().all(legal) {
            return Err(RegistrationError::BadId(id.clone()));
        }
        if self.auth_methods.is_empty() {
            return Err(RegistrationError::Contradiction("a client needs a way to authenticate, or 'none'"));
        }
        if self.is_public() && self.grant_types.contains(&GrantType::ClientCredentials) {
            return Err(RegistrationError::Contradiction(
                "client_credentials is for clients with a secret or a key",
            ));
        }
        if !self.response_types.is_empty() && self.redirect_uris.is_empty() {
            return Err(RegistrationError::Contradiction(
                "a client that signs people in needs a redirect URI",
            ));
        }
        for (at, key) in self.jwks.iter().enumerate() {
            let private = key.get("d").is_some();
            if private
                || key["kid"].as_str().is_none_or(str::is_empty)
                || !jose::is_strong(key)
                || jose::jwk(key).is_none()
            {
                return Err(RegistrationError::BadKey(at));
            }
        }
        let has_keys = !self.jwks.is_empty() || self.jwks_uri.is_some();
        if self.auth_methods.contains(&AuthMethod::PrivateKeyJwt) && !has_keys {
            return Err(RegistrationError::Contradiction("private_key_jwt needs a JWK Set or a jwks_uri"));
        }
        if !self.jwks.is_empty() && self.jwks_uri.is_some() {
            return Err(RegistrationError::Contradiction("give the keys by value or by jwks_uri, not both"));
        }
        if self.auth_methods.len() > 1 && self.auth_methods.contains(&AuthMethod::None) {
            return Err(RegistrationError::Contradiction(
                "'none' does not go with another way to authenticate",
            ));
        }
        if self.refresh_grace_s > 60 {
            return Err(RegistrationError::Contradiction(
                "the grace of refresh tokens is at most 60 seconds",
            ));
        }
        if let Some(address) = &self.jwks_uri
            && !is_key_set_address(address)
        {
            return Err(RegistrationError::BadKeySetAddress(address.clone()));
        }
        for name in &self.assertion_algs {
            if !assertion::algorithms().any(|known| known == name) {
                let known = assertion::algorithms().collect::<Vec<_>>().join(", ");
                return Err(RegistrationError::BadAlgorithm {
                    name: name.clone(),
                    what: "assertions",
                    known,
                });
            }
        }
        if let Some(name) = &self.id_token_alg
            && SigningAlg::parse(name).is_none()
        {
            let known = SigningAlg::ALL.map(SigningAlg::name).join(", ");
            return Err(RegistrationError::BadAlgorithm { name: name.clone(), what: "ID tokens", known });
        }
        Ok(())
    }
}

/// HTTPS; plain HTTP for a loopback host, where it is also up to the operator whether such an address is
/// called at all.
fn is_key_set_address(address: &str) -> bool {
    url::Url::parse(address).is_ok_and(|url| {
        let is_loopback = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
        let scheme = url.scheme() == "https" || (url.scheme() == "http" && is_loopback);
        scheme && url.host_str().is_some() && url.username().is_empty() && url.password().is_none()
    })
}

/// Clients that were read before, and in which age of the records (see `records`). Bounded.
pub(crate) struct Clients(Cache<Box<str>, Arc<Known>>);

struct Known {
    client: Client,
    age: u64,
}

impl Clients {
    pub fn new() -> Self {
        Self(Cache::new(1_000))
    }
}

impl Identity {
    /// The client of this id, where it exists and may be used now.
    ///
    /// # Errors
    /// The store's.
    pub async fn client(&self, client_id: &str, now: Timestamp) -> Result<Option<Client>, StoreError> {
        let age = self.store.age();
        if let Some(known) = self.clients.0.get(client_id).filter(|known| known.age == age) {
            return Ok(Some(known.client.clone()));
        }
        let found = ledger::get::<Client>(&self.store, &format!("client/{client_id}"), now).await?;
        let found = found.map(|stored| stored.value).filter(|client| self.demo || !client.demo);
        if let Some(client) = &found {
            self.clients.0.insert(client_id.into(), Arc::new(Known { client: client.clone(), age }));
        }
        Ok(found)
    }

    /// All clients, demo ones included, by id.
    ///
    /// # Errors
    /// The store's.
    pub async fn clients(&self, now: Timestamp) -> Result<Vec<Client>, StoreError> {
        ledger::all(&self.store, "client/", now).await
    }

    /// A number that grows with each change of a client. Read it before the clients that a cache is built from.
    pub fn client_epoch(&self) -> u64 {
        self.store.client_epoch()
    }

    /// Registers a client.
    ///
    /// # Errors
    /// [`RegistrationError`]: what to change.
    pub async fn add_client(&self, client: &Client, now: Timestamp) -> Result<(), RegistrationError> {
        client.check()?;
        let key = format!("client/{}", client.client_id);
        let client = Client { generation: self.random.id(), ..client.clone() };
        match self.store.write(vec![ledger::put(key, &client, None, Expect::Absent)], now).await {
            Ok(_) => {
                self.record(Event::Client { action: Action::Create, client_id: client.client_id });
                Ok(())
            }
            Err(StoreError::Conflict { .. }) => Err(RegistrationError::Exists(client.client_id)),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the declared clients those of the configuration, all at once: new ones are registered, changed
    /// ones changed, and those that stand there no more are deleted. What did not change keeps its tokens.
    ///
    /// # Errors
    /// [`RegistrationError`]: what to change; then nothing is changed here.
    pub async fn declare_clients(
        &self,
        declared: &[Client],
        now: Timestamp,
    ) -> Result<(), RegistrationError> {
        loop {
            let mut writes = Vec::new();
            let mut events = Vec::new();
            for client in declared {
                client.check()?;
                let key = format!("client/{}", client.client_id);
                let found = ledger::get::<Client>(&self.store, &key, now).await?;
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
                        (Action::Update, found.value.generation, Expect::Revision(found.revision))
                    }
                    None => (Action::Create, self.random.id(), Expect::Absent),
                };
                let record = Client { generation, declared: true, ..client.clone() };
                writes.push(ledger::put(key, &record, None, expect));
                events.push(Event::Client { action, client_id: record.client_id });
            }
            let stays = |id: &str| declared.iter().any(|client| client.client_id == id);
            for gone in self.clients(now).await?.into_iter().filter(|c| c.declared && !stays(&c.client_id)) {
                writes.push(LedgerWrite::delete(format!("client/{}", gone.client_id), Expect::Any));
                events.push(Event::Client { action: Action::Delete, client_id: gone.client_id });
            }
            match self.store.write(writes, now).await {
                Ok(_) => {
                    events.into_iter().for_each(|event| self.record(event));
                    return Ok(());
                }
                // Somebody changed one of them meanwhile.
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Gives a client a new secret in the place of all old ones. `None`: no such client.
    ///
    /// # Errors
    /// [`RegistrationError::Declared`], and the store's.
    pub async fn rotate_secret(
        &self,
        client_id: &str,
        now: Timestamp,
    ) -> Result<Option<String>, RegistrationError> {
        let key = format!("client/{client_id}");
        let Some(mut stored) = ledger::get::<Client>(&self.store, &key, now).await? else { return Ok(None) };
        if stored.value.declared {
            return Err(RegistrationError::Declared(client_id.to_owned()));
        }
        let secret = self.random.secret();
        stored.value.secret_digests = vec![ledger::digest(&secret)];
        let write = ledger::put(key, &stored.value, None, Expect::Revision(stored.revision));
        self.store.write(vec![write], now).await?;
        self.record(Event::Client { action: Action::Update, client_id: client_id.to_owned() });
        Ok(Some(secret))
    }

    /// Deletes a client; its tokens are worth nothing from now. Gives `false` when there was none.
    ///
    /// # Errors
    /// [`RegistrationError::Declared`], and the store's.
    pub async fn delete_client(&self, client_id: &str, now: Timestamp) -> Result<bool, RegistrationError> {
        let key = format!("client/{client_id}");
        let Some(found) = ledger::get::<Client>(&self.store, &key, now).await? else { return Ok(false) };
        if found.value.declared {
            return Err(RegistrationError::Declared(client_id.to_owned()));
        }
        let write = LedgerWrite::Delete { key, expect: Expect::Revision(found.revision) };
        self.store.write(vec![write], now).await?;
        self.record(Event::Client { action: Action::Delete, client_id: client_id.to_owned() });
        Ok(true)
    }
}
