//! Requests to the server. No screens and no printing; every exchange is reported to a watcher.
//!
//! Tokens are held here, in memory only: neither the model of the screens nor any file contains one.

mod backend;
mod discovery;
mod download;
mod error;
mod exchange;
mod export;
mod sign_in;
mod terminology;
mod userinfo;

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use oauth2::TokenResponse as _;
use reqwest::{Request, RequestBuilder};
use tokio::sync::{Mutex, OnceCell};

use crate::profile::Profile;
pub use backend::{BackendToken, client_assertion};
pub use discovery::{OpenIdConfiguration, SmartConfiguration};
pub use download::{Download, FileProgress, SavedFile};
pub use error::ApiError;
pub use exchange::{Answered, RecordedExchange};
pub use export::{ExportManifest, ExportStatus, KickOff, OutputFile, percent};
pub use sign_in::{BadRedirect, PendingSignIn, SignedInSession, TokenAnswer, UserTokens};
pub use terminology::{SubsumesAnswer, SubsumesQuery, ValidateCode, ValidationAnswer};
pub use userinfo::Claims;

/// Asked wherever the time matters, so that tests can set it.
pub type ClientClock = fn() -> Timestamp;

/// Called with every exchange after its response was read (for files: after its head).
pub type ExchangeWatcher = Box<dyn Fn(RecordedExchange) + Send + Sync>;

/// The token that a request carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bearer {
    /// The person who signed in.
    User,
    /// The profile's backend client.
    Backend,
    /// This one.
    Given(String),
}

/// A connection to one server. Clones share connections and tokens.
#[derive(Clone)]
pub struct Api(Arc<ApiInner>);

struct ApiInner {
    profile: Profile,
    http: reqwest::Client,
    clock: ClientClock,
    watcher: ExchangeWatcher,
    openid: OnceCell<OpenIdConfiguration>,
    smart: OnceCell<SmartConfiguration>,
    backend: Mutex<Option<BackendToken>>,
    user: std::sync::Mutex<Option<UserTokens>>,
}

/// An answer that was read whole.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Api {
    /// Makes a client of the profile's server. [`crate::install_crypto`] has been called before.
    ///
    /// # Errors
    /// When the certificates of the profile cannot be used.
    pub fn new(profile: Profile, clock: ClientClock, watcher: ExchangeWatcher) -> Result<Self, ApiError> {
        // No redirects: the endpoint is not the documented one then, and a token would be sent to it.
        let mut http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("trefoil-tui/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_secs(10))
            .read_timeout(Duration::from_secs(60));
        if let Some(pem) = &profile.ca {
            let certificates = reqwest::Certificate::from_pem_bundle(pem).map_err(ApiError::certificates)?;
            http = http.tls_certs_only(certificates);
        }
        Ok(Self(Arc::new(ApiInner {
            profile,
            http: http.build().map_err(ApiError::certificates)?,
            clock,
            watcher,
            openid: OnceCell::new(),
            smart: OnceCell::new(),
            backend: Mutex::new(None),
            user: std::sync::Mutex::new(None),
        })))
    }

    /// The profile it was made of.
    pub fn profile(&self) -> &Profile {
        &self.0.profile
    }

    /// Returns a token to send.
    ///
    /// # Errors
    /// Returns [`ApiError::NotSignedIn`], or the error of the request for a backend token.
    async fn token(&self, bearer: &Bearer) -> Result<String, ApiError> {
        match bearer {
            Bearer::Given(token) => Ok(token.clone()),
            Bearer::Backend => self.backend_token().await,
            Bearer::User => {
                let tokens = self.user_slot();
                let tokens = tokens.as_ref().ok_or(ApiError::NotSignedIn)?;
                Ok(tokens.answer.access_token().secret().clone())
            }
        }
    }

    fn user_slot(&self) -> MutexGuard<'_, Option<UserTokens>> {
        // A slot is replaced whole, so a panic elsewhere cannot leave it half done.
        self.0.user.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Timestamp {
        (self.0.clock)()
    }

    fn http(&self) -> &reqwest::Client {
        &self.0.http
    }

    /// Sends a request and reads the answer whole, whatever its status.
    async fn call(&self, request: RequestBuilder) -> Result<Answer, ApiError> {
        let request = request.build().map_err(ApiError::request)?;
        let (mut exchange, started) = self.begin(&request);
        let read = async {
            let response = self.0.http.execute(request).await?;
            let (status, headers) = (response.status(), response.headers().clone());
            Ok::<_, reqwest::Error>(Answer { status, headers, body: response.bytes().await? })
        };
        let answer = read.await.map_err(|error| ApiError::unreachable(&exchange.url, &error));
        exchange.took_ms = started.elapsed().as_millis() as u64;
        exchange.outcome = match &answer {
            Ok(answer) => Ok(Answered::read(answer.status, &answer.headers, &answer.body)),
            Err(error) => Err(error.to_string()),
        };
        (self.0.watcher)(exchange);
        answer
    }

    /// Sends a request and hands over the answer to be read piece by piece.
    async fn stream(&self, request: RequestBuilder) -> Result<reqwest::Response, ApiError> {
        let request = request.build().map_err(ApiError::request)?;
        let (mut exchange, started) = self.begin(&request);
        let response = self.0.http.execute(request).await;
        let response = response.map_err(|error| ApiError::unreachable(&exchange.url, &error));
        exchange.took_ms = started.elapsed().as_millis() as u64;
        exchange.outcome = match &response {
            Ok(response) => Ok(Answered::head(response.status(), response.headers())),
            Err(error) => Err(error.to_string()),
        };
        (self.0.watcher)(exchange);
        response
    }

    fn begin(&self, request: &Request) -> (RecordedExchange, Instant) {
        (RecordedExchange::of(request, self.now()), Instant::now())
    }
}

impl Answer {
    /// The value of a header, when it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Parses the body as JSON of the expected shape if the status is a success.
    ///
    /// # Errors
    /// Returns the error of the server, or how the body differs.
    pub fn json<T: serde::de::DeserializeOwned>(&self, url: &str) -> Result<T, ApiError> {
        if !self.status.is_success() {
            return Err(ApiError::refused(url, self));
        }
        serde_json::from_slice(&self.body)
            .map_err(|error| ApiError::Unexpected { url: url.to_owned(), reason: error.to_string() })
    }
}
