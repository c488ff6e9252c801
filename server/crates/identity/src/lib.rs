//! OAuth 2.0, OpenID Connect and SMART Backend Services: the rules, without HTTP.
//!
//! Every rule is a plain function or a method of [`Identity`], which holds what the rules need: a
//! ledger, the signing keys and the issuer's address. Time arrives as an argument, randomness
//! through [`Random`]; nothing here opens a socket or reads a clock.
//!
//! | module | what lives there |
//! |---|---|
//! | [`params`] | parameters of a query or form, doubles seen |
//! | [`redirect_uri`] | what may be registered, and the exact match |
//! | [`scope`] | scopes, SMART scopes, and who covers whom |
//! | [`pkce`] | code challenge and verifier |
//! | [`client`], [`user`], [`session`] | registered parties and signed-in browsers |
//! | [`authorize`] | the authorization request, step by step |
//! | [`pushed`] | requests that clients leave here before the browser comes |
//! | [`interaction`] | from a checked request to its answer: sign in, choose, consent, grant |
//! | [`consent`] | what a user allowed a client
//! | [`grant`] | codes and refresh tokens: issued, spent once, revoked |
//! | [`token`] | access tokens and ID tokens: claims, minting, judging |
//! | `introspect` | what a token says, for whoever may know |
//! | [`dpop`] | proof that the sender holds the key that a token is bound to |
//! | [`keys`], [`seal`] | signing keys and their stages; secrets at rest |
//! | [`key_sets`] | key sets of clients by address |
//! | [`audit`] | what happened, for the audit log |
//! | [`directory`] | users for administration: pages, changes by subject |
//! | [`throttle`] | guessing is made slow |
//! | [`password`], [`passkey`] | how users show who they are; recovery codes |
//! | [`device`] | devices without a browser (RFC 8628) |
//! | [`client_auth`], [`assertion`] | who is calling the token endpoint |
//! | [`userinfo`] | claims by scope |
//! | [`provider`] | federated sign-in: addresses, ID token, failure texts |

pub mod assertion;
pub mod audit;
pub mod authorize;
pub mod client;
pub mod client_auth;
pub mod consent;
pub mod device;
pub mod directory;
pub mod dpop;
pub mod grant;
pub mod interaction;
mod introspect;
mod jose;
pub mod key_sets;
pub mod keys;
mod ledger;
pub mod params;
pub mod passkey;
pub mod password;
pub mod pending;
pub mod pkce;
pub mod provider;
pub mod pushed;
pub mod random;
mod records;
pub mod redirect_uri;
pub mod scope;
pub mod seal;
mod secret;
pub mod session;
pub mod sign_in_methods;
pub mod throttle;
pub mod token;
pub mod user;
pub mod userinfo;

use std::sync::{Arc, RwLock};

use jiff::Timestamp;
use store::Store;

pub use jose::SigningAlg;
pub use random::{Random, SystemRandom};

/// What the rules reach outside of themselves; the default reaches nothing.
pub struct Outside {
    /// Seals secrets at rest.
    pub seal: seal::Seal,
    /// Fetches the key sets of clients.
    pub fetch: Arc<dyn key_sets::FetchKeySet>,
    /// Keeps what happened.
    pub audit: Arc<dyn audit::Sink>,
}

impl Default for Outside {
    fn default() -> Self {
        Self {
            seal: seal::Seal::default(),
            fetch: Arc::new(key_sets::NoFetch),
            audit: Arc::new(audit::NoSink),
        }
    }
}

/// What the rules need: a ledger, signing keys, addresses.
pub struct Identity {
    pub(crate) store: records::Records,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) keys: RwLock<Arc<keys::KeyRing>>,
    pub(crate) verified: token::Verified,
    pub(crate) clients: client::Clients,
    pub(crate) secret: secret::Secret,
    pub(crate) seal: seal::Seal,
    pub(crate) key_sets: key_sets::KeySets,
    pub(crate) audit: Arc<dyn audit::Sink>,
    pub(crate) relying_party: Option<webauthn_rs::Webauthn>,
    /// Issuer identifier: the base URL without a trailing slash.
    pub issuer: String,
    /// FHIR base, the audience of tokens with SMART scopes.
    pub fhir_base: String,
    /// Do demo users and clients work?
    pub demo: bool,
}

impl Identity {
    /// Opens the identity leaf without anything outside: for tests and tools.
    ///
    /// # Errors
    /// See [`Identity::open_with`].
    pub async fn open(
        store: Store,
        random: Arc<dyn Random>,
        issuer: &str,
        demo: bool,
        now: Timestamp,
    ) -> Result<Self, seal::OpenError> {
        Self::open_with(store, random, Outside::default(), issuer, demo, now).await
    }

    /// Opens the identity leaf: reads the signing keys from the ledger, and makes them where there
    /// are none yet. Secrets are brought under the current key-encryption key.
    ///
    /// # Errors
    /// The store's; secrets that no given key opens.
    pub async fn open_with(
        store: Store,
        random: Arc<dyn Random>,
        outside: Outside,
        issuer: &str,
        demo: bool,
        now: Timestamp,
    ) -> Result<Self, seal::OpenError> {
        let Outside { seal, fetch, audit } = outside;
        seal.renew(&store, now).await?;
        let keys = keys::KeyRing::open(&store, &seal, now).await?;
        let secret = secret::Secret::open(&store, &seal, &*random, now).await?;
        Ok(Self {
            store: records::Records::new(store),
            random,
            keys: RwLock::new(Arc::new(keys)),
            verified: token::Verified::new(),
            clients: client::Clients::new(),
            secret,
            seal,
            key_sets: key_sets::KeySets::new(fetch),
            audit,
            relying_party: passkey::relying_party(issuer),
            issuer: issuer.to_owned(),
            fhir_base: format!("{issuer}/fhir/R4"),
            demo,
        })
    }

    /// Address of the token endpoint.
    pub fn token_url(&self) -> String {
        format!("{}/oauth2/token", self.issuer)
    }
}
