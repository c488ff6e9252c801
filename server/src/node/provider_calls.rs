//! The requests to external providers: discovery, token endpoint, key set and userinfo endpoint.
//!
//! Each request has a limit for the response head, one for each pause in the body, and a maximum size;
//! redirects are not followed. The proxy of the environment is used (`HTTPS_PROXY`, `NO_PROXY`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt as _;
use identity::model::provider::{ProviderEndpoints, ProviderFailure};
use identity::sign_in::provider_id_token::ProviderTokens;
use identity::sign_in::provider_sign_in::ProviderTokenRequest;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};
use tokio::time::timeout;

use crate::config::ConfiguredProvider;
use crate::node::outbound::{AnswerFuture, CallError, HttpCaller, NetworkCaller};

/// Maximum size of a provider's response, in bytes.
const ANSWER_LIMIT: usize = 1 << 20;
/// Time after which a discovery document is read again.
const DISCOVERY_LIFETIME: SignedDuration = SignedDuration::from_hours(1);

/// The HTTP client for external providers, and the endpoints that were read from discovery documents.
pub struct ProviderCalls {
    http: Arc<dyn HttpCaller>,
    discovered: Mutex<HashMap<String, DiscoveredEndpoints>>,
}

#[derive(Clone)]
struct DiscoveredEndpoints {
    endpoints: ProviderEndpoints,
    read: Timestamp,
}

/// A caller for external providers.
pub fn provider_caller() -> Arc<dyn HttpCaller> {
    Arc::new(NetworkCaller::new(|| {
        reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(10))
            .pool_max_idle_per_host(2)
    }))
}

impl ProviderCalls {
    /// A client without known endpoints.
    pub fn new(http: Arc<dyn HttpCaller>) -> Self {
        Self { http, discovered: Mutex::default() }
    }

    /// The endpoints of a provider: those of the configuration, or those of the discovery document. If the
    /// document cannot be read again, the endpoints that were read before stay in use.
    ///
    /// # Errors
    /// [`ProviderFailure`] if the endpoints are unknown.
    pub async fn endpoints(
        &self,
        provider: &ConfiguredProvider,
        now: Timestamp,
    ) -> Result<ProviderEndpoints, ProviderFailure> {
        let issuer = &provider.provider.issuer;
        if let Some(endpoints) = &provider.provider.endpoints {
            return Ok(endpoints.clone());
        }
        let cached = self.lock_discovered().get(issuer).cloned();
        if let Some(cached) = &cached
            && now < cached.read + DISCOVERY_LIFETIME
        {
            return Ok(cached.endpoints.clone());
        }
        match (self.discover(issuer, provider.timeout).await, cached) {
            (Ok(endpoints), _) => {
                let discovered = DiscoveredEndpoints { endpoints: endpoints.clone(), read: now };
                self.lock_discovered().insert(issuer.clone(), discovered);
                Ok(endpoints)
            }
            (Err(failure), Some(cached)) => {
                tracing::warn!(issuer, ?failure, "failed to read the discovery document again");
                Ok(cached.endpoints)
            }
            (Err(failure), None) => {
                tracing::warn!(issuer, ?failure, "failed to read the discovery document");
                Err(ProviderFailure::Other("the endpoints of the provider are unknown"))
            }
        }
    }

    fn lock_discovered(&self) -> std::sync::MutexGuard<'_, HashMap<String, DiscoveredEndpoints>> {
        self.discovered.lock().expect("no thread panics while it holds the lock")
    }

    /// Reads the discovery document of an issuer (OpenID Connect Discovery 1.0 section 4).
    async fn discover(&self, issuer: &str, limit: Duration) -> Result<ProviderEndpoints, ProviderFailure> {
        let address = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let request = http::Request::get(address).header("accept", "application/json").body(Bytes::new());
        let response = self.call(request, limit, ProviderFailure::Stalled).await?;
        let document = serde_json::from_slice(&response)
            .map_err(|_| ProviderFailure::Other("the discovery document is not JSON"))?;
        ProviderEndpoints::from_discovery(issuer, &document)
    }

    async fn call(
        &self,
        request: http::Result<http::Request<Bytes>>,
        limit: Duration,
        on_timeout: ProviderFailure,
    ) -> Result<Bytes, ProviderFailure> {
        let request = request.map_err(|_| ProviderFailure::Other("the URL of an endpoint is malformed"))?;
        read_answer(self.http.send(request), limit, on_timeout).await
    }

    /// Sends a token request. Returns the tokens and the key set of the provider.
    ///
    /// # Errors
    /// [`ProviderFailure`] if a request fails or an answer is malformed.
    pub async fn exchange_code(
        &self,
        provider: &ConfiguredProvider,
        endpoints: &ProviderEndpoints,
        content: ProviderTokenRequest,
    ) -> Result<(ProviderTokens, Value), ProviderFailure> {
        let mut request = http::Request::post(&endpoints.token_endpoint)
            .header("accept", "application/json")
            .header("content-type", "application/x-www-form-urlencoded");
        if let Some((client_id, secret)) = content.basic {
            // RFC 6749 section 2.3.1: both are form-encoded first.
            let encode = |text: String| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
            let pair = format!("{}:{}", encode(client_id), encode(secret));
            request = request.header("authorization", format!("Basic {}", STANDARD.encode(pair)));
        }
        let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(&content.form).finish();
        let response =
            self.call(request.body(form.into()), provider.timeout, ProviderFailure::TokenTimeout).await?;
        let tokens = serde_json::from_slice(&response)
            .map_err(|_| ProviderFailure::Other("the token response is not JSON with an ID token"))?;
        let request = http::Request::get(&endpoints.jwks_uri).body(Bytes::new());
        let keys = self.call(request, provider.timeout, ProviderFailure::KeySetTimeout).await?;
        let keys =
            serde_json::from_slice(&keys).map_err(|_| ProviderFailure::Other("the key set is not JSON"))?;
        Ok((tokens, keys))
    }

    /// Reads the claims of the userinfo endpoint (OpenID Connect Core section 5.3).
    ///
    /// # Errors
    /// [`ProviderFailure`] if the request fails or the answer is not a JSON object.
    pub async fn userinfo(
        &self,
        provider: &ConfiguredProvider,
        endpoint: &str,
        access_token: &str,
    ) -> Result<Map<String, Value>, ProviderFailure> {
        let request = http::Request::get(endpoint)
            .header("accept", "application/json")
            .header("authorization", format!("Bearer {access_token}"));
        let response =
            self.call(request.body(Bytes::new()), provider.timeout, ProviderFailure::Stalled).await?;
        serde_json::from_slice(&response)
            .map_err(|_| ProviderFailure::Other("the answer of the userinfo endpoint is not a JSON object"))
    }
}

/// Reads an answer. Returns the body of a 2xx response.
async fn read_answer(
    answer: AnswerFuture<'_>,
    limit: Duration,
    on_timeout: ProviderFailure,
) -> Result<Bytes, ProviderFailure> {
    let mut response = match timeout(limit, answer).await {
        Err(_) | Ok(Err(CallError::TimedOut)) => return Err(on_timeout),
        Ok(Err(error)) => return Err(classify_error(error)),
        Ok(Ok(response)) => response,
    };
    let mut body = BytesMut::new();
    let read = async {
        loop {
            match timeout(limit, response.body_mut().try_next()).await {
                Err(_) => return Err(ProviderFailure::Stalled),
                Ok(Err(error)) => return Err(classify_error(error)),
                Ok(Ok(None)) => return Ok(()),
                Ok(Ok(Some(piece))) if body.len() + piece.len() > ANSWER_LIMIT => {
                    return Err(ProviderFailure::Other("the answer is too large"));
                }
                Ok(Ok(Some(piece))) => body.extend_from_slice(&piece),
            }
        }
    };
    let result = read.await;
    let status = response.status();
    if status.is_success() {
        return result.map(|()| body.freeze());
    }
    // The error code of the body is added to the status if there is one.
    let code = serde_json::from_slice::<serde_json::Value>(&body)
        .ok()
        .and_then(|body| body["error"].as_str().map(str::to_owned))
        .filter(|code| {
            code.len() <= 64 && code.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
        });
    Err(ProviderFailure::Status { status: status.as_u16(), code })
}

/// Classifies a failed request. A failure before any exchange is `Other`.
fn classify_error(error: CallError) -> ProviderFailure {
    // The reason of a failure of TLS or of a proxy is in the text only.
    tracing::warn!("a request to an external provider failed: {error}");
    match error {
        CallError::NoConnection(_) => ProviderFailure::Other("no connection to the provider"),
        CallError::TimedOut => ProviderFailure::Stalled,
        CallError::Reset => ProviderFailure::Reset,
        CallError::Other(_) => ProviderFailure::Other("the call to the provider failed"),
    }
}
