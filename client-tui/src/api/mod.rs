//! Requests to the server, without screens and output. Every exchange is reported to a watcher.
//!
//! This module holds the tokens, in memory and in the token file of the profile: the model of the screens
//! contains no token.

mod authorization_trial;
mod backend;
mod client_auth;
mod connection_failure;
mod contents;
mod device;
mod discovery;
mod error;
mod exchange;
mod export;
mod hierarchy;
mod inspect;
mod introspection;
mod page_text;
mod raw;
mod read_only;
mod retry_after;
mod session;
mod sign_in;
mod sign_out;
mod terminology;
mod token_hosts;
mod token_kind;
mod user_tokens;
mod userinfo;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use reqwest::{Request, RequestBuilder};
use serde_json::Value;
use tokio::sync::{Mutex, MutexGuard, OnceCell};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use self::page_text::page_text;
pub use self::token_kind::TokenKind;
pub use self::user_tokens::{SignedInSession, UserTokens};
use crate::clock::ClientClock;
use crate::exact_json;
use crate::profile::Profile;
pub use backend::{BackendToken, client_assertion};
pub use contents::{ConceptPlace, ContentEntry, ContentKind, ContentList, ServerSummary};
pub use device::{DevicePrompt, PendingDeviceSignIn};
pub(crate) use discovery::check_safe;
pub use discovery::{OpenIdConfiguration, SmartConfiguration};
pub use error::ApiError;
pub use exchange::{HttpProgram, RecordedExchange, RecordedResponse};
pub use export::{
    ExportLevel, ExportManifest, ExportStatus, FileRange, KickOff, ManifestLink, ManifestPage, OutputFile,
    percent,
};
pub use hierarchy::{
    ConceptLabel, ConceptSearch, HierarchyConcept, HierarchyPath, HierarchyQuery, PathQuery,
};
pub use inspect::{SignatureStatus, TokenContent, TokenInspection, meaning, scope_meaning};
pub use introspection::Introspection;
pub use raw::{RawRequest, TOKEN_PLACEHOLDER};
pub use session::SIGN_IN_AGAIN;
pub use sign_in::{BadRedirect, PendingSignIn, TokenAnswer};
pub use sign_out::{Revocation, SignedOut};
pub use terminology::{
    ConceptProperty, Designation, EXPANSION_PAGE, ExpandQuery, ExpandedCode, Expansion, LookupAnswer,
    LookupQuery, SubsumesAnswer, SubsumesQuery, ValidateCode, ValidationAnswer, ValidationIssue,
};
pub use userinfo::Claims;

/// Called with every exchange when its request is sent, and again when its response was read, or, for a
/// downloaded file, when the headers of its response were read.
pub type ExchangeWatcher = Box<dyn Fn(RecordedExchange) + Send + Sync>;

/// The access token that a request sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bearer {
    User,
    /// Token of the backend client in the profile.
    Backend,
    /// A token that the user supplied.
    Given(String),
    /// No token, for servers that need none.
    Anonymous,
}

/// A client for one server. Clones share connections and tokens.
#[derive(Clone)]
pub struct Api(Arc<ApiInner>);

struct ApiInner {
    profile: Profile,
    http: reqwest::Client,
    clock: ClientClock,
    watcher: Arc<ExchangeWatcher>,
    /// Number of exchanges so far, with all servers.
    exchanges: Arc<AtomicU64>,
    openid: OnceCell<OpenIdConfiguration>,
    smart: OnceCell<SmartConfiguration>,
    backend: Mutex<Option<BackendToken>>,
    user: Mutex<Option<UserTokens>>,
    renewal: Mutex<()>,
    /// Hosts that the user allowed to receive the tokens of exports.
    file_hosts: std::sync::Mutex<Vec<String>>,
}

/// Maximum size of an answer in bytes. The files of an export are not read as a whole.
const MAX_ANSWER: usize = 64 << 20;

/// A response with its complete body.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub received_at: Timestamp,
    /// End of the validity of the server's certificate, if TLS was used.
    pub certificate_ends_at: Option<Timestamp>,
}

impl Api {
    /// Creates a client for the server of the profile. [`crate::install_crypto`] must have been called
    /// before.
    ///
    /// # Errors
    /// [`ApiError`] if the certificates of the profile cannot be used.
    pub fn new(profile: Profile, clock: ClientClock, watcher: ExchangeWatcher) -> Result<Self, ApiError> {
        Self::build(profile, clock, Arc::new(watcher), Arc::default())
    }

    /// Creates a client for the server of another profile, which reports to the same watcher.
    ///
    /// # Errors
    /// [`ApiError`] if the certificates of the profile cannot be used.
    pub fn with_profile(&self, profile: Profile) -> Result<Self, ApiError> {
        Self::build(profile, self.0.clock, self.0.watcher.clone(), self.0.exchanges.clone())
    }

    fn build(
        profile: Profile,
        clock: ClientClock,
        watcher: Arc<ExchangeWatcher>,
        exchanges: Arc<AtomicU64>,
    ) -> Result<Self, ApiError> {
        // Redirects are not followed, because a token would be sent to an endpoint that the server did not
        // publish.
        let mut http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("trefoil-tui/", env!("CARGO_PKG_VERSION")))
            .tls_info(true)
            .connect_timeout(Duration::from_secs(10))
            .read_timeout(Duration::from_secs(60));
        if let Some(ca) = &profile.ca {
            let certificates =
                reqwest::Certificate::from_pem_bundle(&ca.pem).map_err(ApiError::certificates)?;
            http = http.tls_certs_only(certificates);
        }
        let file_hosts = std::sync::Mutex::new(profile.file_hosts.clone());
        Ok(Self(Arc::new(ApiInner {
            profile,
            http: http.build().map_err(ApiError::certificates)?,
            clock,
            watcher,
            exchanges,
            openid: OnceCell::new(),
            smart: OnceCell::new(),
            backend: Mutex::new(None),
            user: Mutex::new(None),
            renewal: Mutex::new(()),
            file_hosts,
        })))
    }

    pub fn profile(&self) -> &Profile {
        &self.0.profile
    }

    /// Adds the token to a request to this address, which must use HTTPS or be on this machine.
    ///
    /// # Errors
    /// [`ApiError::NotSignedIn`], the error of the request for a token, or [`ApiError::Unexpected`] for an
    /// unsafe address.
    async fn authorize(
        &self,
        request: RequestBuilder,
        url: &str,
        bearer: &Bearer,
    ) -> Result<RequestBuilder, ApiError> {
        if *bearer == Bearer::Anonymous {
            return Ok(request);
        }
        check_safe(url)?;
        Ok(match self.token(bearer).await? {
            Some(token) => request.bearer_auth(token),
            None => request,
        })
    }

    /// A token to send, or `None` for [`Bearer::Anonymous`].
    async fn token(&self, bearer: &Bearer) -> Result<Option<String>, ApiError> {
        match bearer {
            Bearer::Anonymous => Ok(None),
            Bearer::Given(token) => Ok(Some(token.clone())),
            Bearer::Backend => self.backend_token().await.map(Some),
            Bearer::User => self.user_token().await.map(Some),
        }
    }

    /// The scopes that were requested for a token, if they are known.
    async fn requested_scope(&self, bearer: &Bearer) -> Option<String> {
        match bearer {
            Bearer::Backend => Some(self.profile().backend_scope.clone()),
            Bearer::User => self.session().await.map(|session| session.requested_scope),
            Bearer::Given(_) | Bearer::Anonymous => None,
        }
    }

    async fn user_tokens(&self) -> MutexGuard<'_, Option<UserTokens>> {
        self.0.user.lock().await
    }

    /// The lock of the renewal of the user's tokens.
    fn renewal(&self) -> &Mutex<()> {
        &self.0.renewal
    }

    pub fn now(&self) -> Timestamp {
        (self.0.clock.now)()
    }

    /// Completes after the duration.
    pub async fn wait(&self, duration: Duration) {
        (self.0.clock.wait)(duration).await;
    }

    fn http(&self) -> &reqwest::Client {
        &self.0.http
    }

    /// Sends a GET without a token to any address.
    ///
    /// # Errors
    /// [`ApiError::Unreachable`]; any status of the response is a success.
    pub async fn fetch(&self, url: &str, headers: HeaderMap) -> Result<Answer, ApiError> {
        self.call(self.http().get(url).headers(headers)).await
    }

    /// Sends a JSON document by POST, without a token, to any address.
    ///
    /// # Errors
    /// [`ApiError::Unreachable`]; any status of the response is a success.
    pub async fn post_json(&self, url: &str, document: &Value) -> Result<Answer, ApiError> {
        self.call(self.http().post(url).json(document)).await
    }

    /// Sends a request and reads the complete response, for any status.
    async fn call(&self, request: RequestBuilder) -> Result<Answer, ApiError> {
        let request = request.build().map_err(ApiError::request)?;
        self.check_read_only(&request)?;
        let mut pending = self.begin(&request);
        let url = pending.exchange.url.clone();
        let read = async {
            let unreachable = |error| ApiError::unreachable(&url, &error);
            let mut response = self.0.http.execute(request).await.map_err(unreachable)?;
            pending.receive_headers();
            let (status, headers) = (response.status(), response.headers().clone());
            let certificate_ends_at = certificate_end(&response);
            let mut body = BytesMut::new();
            while let Some(piece) = response.chunk().await.map_err(unreachable)? {
                body.extend_from_slice(&piece);
                if body.len() > MAX_ANSWER {
                    let reason = format!("it has more than {} MiB; ask for less", MAX_ANSWER >> 20);
                    return Err(ApiError::Unexpected { url: url.clone(), reason });
                }
            }
            Ok(Answer { status, headers, body: body.freeze(), received_at: self.now(), certificate_ends_at })
        };
        let answer = read.await;
        pending.end(match &answer {
            Ok(response) => Ok(RecordedResponse::read(response.status, &response.headers, &response.body)),
            Err(error) => Err(error.to_string()),
        });
        answer
    }

    /// Sends a request and returns the response, whose body is read in pieces.
    async fn stream(&self, request: RequestBuilder) -> Result<reqwest::Response, ApiError> {
        let request = request.build().map_err(ApiError::request)?;
        self.check_read_only(&request)?;
        let mut pending = self.begin(&request);
        let response = self.0.http.execute(request).await;
        if response.is_ok() {
            pending.receive_headers();
        }
        let response = response.map_err(|error| ApiError::unreachable(&pending.exchange.url, &error));
        pending.end(match &response {
            Ok(response) => Ok(RecordedResponse::head(response.status(), response.headers())),
            Err(error) => Err(error.to_string()),
        });
        response
    }

    /// Reports a request to the watcher before it is sent.
    fn begin(&self, request: &Request) -> PendingExchange<'_> {
        let id = self.0.exchanges.fetch_add(1, Ordering::Relaxed);
        let exchange = RecordedExchange::of(request, id, self.now());
        (self.0.watcher)(exchange.clone());
        PendingExchange { exchange, started: Instant::now(), watcher: &self.0.watcher }
    }
}

/// An exchange that waits for its response. If it is dropped before, the request was cancelled, which is
/// reported to the watcher: otherwise the Requests screen would show it as waiting for ever.
struct PendingExchange<'a> {
    exchange: RecordedExchange,
    started: Instant,
    watcher: &'a ExchangeWatcher,
}

impl PendingExchange<'_> {
    fn receive_headers(&mut self) {
        self.exchange.headers_ms = Some(self.elapsed_ms());
    }

    fn elapsed_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    fn end(mut self, outcome: Result<RecordedResponse, String>) {
        self.exchange.outcome = Some(outcome);
    }
}

impl Drop for PendingExchange<'_> {
    fn drop(&mut self) {
        self.exchange.took_ms = self.elapsed_ms();
        self.exchange.outcome.get_or_insert_with(|| Err("cancelled before the server answered".to_owned()));
        (self.watcher)(self.exchange.clone());
    }
}

/// The end of the validity of the certificate that came with a response.
fn certificate_end(response: &reqwest::Response) -> Option<Timestamp> {
    let certificate = response.extensions().get::<reqwest::tls::TlsInfo>()?.peer_certificate()?;
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

impl Answer {
    /// Seconds by which the clock of this machine is ahead of the `Date` of the response.
    pub fn clock_skew_s(&self) -> Option<i64> {
        let date = rfc2822::parse(self.header("date")?).ok()?.timestamp();
        Some(self.received_at.as_second() - date.as_second())
    }

    /// The value of a header, if the value is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Parses the body as JSON with exact numbers (see [`exact_json`]) if the status is a success.
    ///
    /// # Errors
    /// As [`Answer::json`].
    pub fn exact_json(&self, url: &str) -> Result<Value, ApiError> {
        if !self.status.is_success() {
            return Err(ApiError::refused(url, self));
        }
        exact_json::parse(&String::from_utf8_lossy(&self.body)).map_err(|error| self.unexpected(url, &error))
    }

    /// The error of a body that cannot be read as JSON. A page is often that of a proxy or of a sign-in.
    fn unexpected(&self, url: &str, error: &serde_json::Error) -> ApiError {
        let reason = match std::str::from_utf8(&self.body) {
            Ok(text) if text.trim_start().starts_with('<') => {
                format!("a page for people instead of JSON: \"{}\"", page_text(text))
            }
            _ => error.to_string(),
        };
        ApiError::Unexpected { url: url.to_owned(), reason }
    }

    /// Parses the body as JSON if the status is a success.
    ///
    /// # Errors
    /// The error of the server, or [`ApiError::Unexpected`] if the body does not match the type.
    pub fn json<T: serde::de::DeserializeOwned>(&self, url: &str) -> Result<T, ApiError> {
        if !self.status.is_success() {
            return Err(ApiError::refused(url, self));
        }
        serde_json::from_slice(&self.body).map_err(|error| self.unexpected(url, &error))
    }
}
