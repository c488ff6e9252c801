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
//! | [`throttle`] | guessing passwords is made slow |
//! | [`keys`] | signing keys and their stages |
//! | [`client_auth`], [`assertion`] | who is calling the token endpoint |
//! | [`userinfo`] | claims by scope |
//! | [`provider`] | federated sign-in: addresses, ID token, failure texts |

pub mod assertion;
pub mod authorize;
pub mod client;
pub mod client_auth;
pub mod consent;
pub mod dpop;
pub mod grant;
pub mod interaction;
mod introspect;
mod jose;
pub mod keys;
mod ledger;
pub mod params;
pub mod password;
pub mod pkce;
pub mod provider;
pub mod pushed;
pub mod random;
mod records;
pub mod redirect_uri;
pub mod scope;
mod secret;
pub mod session;
pub mod throttle;
pub mod token;
pub mod user;
pub mod userinfo;

use std::sync::{Arc, RwLock};

use jiff::Timestamp;
use store::{Store, StoreError};

pub use random::{Random, SystemRandom};

/// What the rules need: a ledger, signing keys, addresses.
pub struct Identity {
    pub(crate) store: records::Records,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) keys: RwLock<Arc<keys::KeyRing>>,
    pub(crate) verified: token::Verified,
    pub(crate) secret: secret::Secret,
    /// Issuer identifier: the base URL without a trailing slash.
    pub issuer: String,
    /// FHIR base, the audience of tokens with SMART scopes.
    pub fhir_base: String,
    /// Do demo users and clients work?
    pub demo: bool,
}

impl Identity {
    /// Opens the identity leaf: reads the signing keys from the ledger, and makes them where there
    /// are none yet.
    ///
    /// # Errors
    /// The store's.
    pub async fn open(
        store: Store,
        random: Arc<dyn Random>,
        issuer: &str,
        demo: bool,
        now: Timestamp,
    ) -> Result<Self, StoreError> {
        let keys = keys::KeyRing::open(&store, now).await?;
        let secret = secret::Secret::open(&store, &*random, now).await?;
        Ok(Self {
            store: records::Records::new(store),
            random,
            keys: RwLock::new(Arc::new(keys)),
            verified: token::Verified::new(),
            secret,
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
