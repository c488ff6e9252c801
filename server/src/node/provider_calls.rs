//! The requests to external providers: discovery, token endpoint and key set.
//!
//! Each request has a limit for the response head, one for each pause in the body, and a maximum size; redirects are
//! not followed.

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use identity::model::provider::{ProviderEndpoints, ProviderFailure};
use identity::sign_in::provider_id_token::ProviderTokens;
use identity::sign_in::provider_sign_in::ProviderTokenRequest;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::time::timeout;

use crate::config::ConfiguredProvider;

/// Maximum size of a provider's response, in bytes.
const ANSWER_LIMIT: usize = 1 << 20;
/// Time after which a discovery document is read again.
const DISCOVERY_LIFETIME: SignedDuration = SignedDuration::from_hours(1);

/// The HTTP client for external providers, and the endpoints that were read from discovery documents.
pub struct ProviderCalls {
    http: reqwest::Client,
    discovered: Mutex<HashMap<String, DiscoveredEndpoints>>,
}

#[derive(Clone)]
struct DiscoveredEndpoints {
    endpoints: ProviderEndpoints,
    read: Timestamp,
}

impl ProviderCalls {
    /// Returns a client without known endpoints.
    ///
    /// # Errors
    /// Returns an error if the HTTP client cannot be created.
    pub fn new() -> anyhow::Result<Self> {
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(Duration::from_secs(10))
            .pool_max_idle_per_host(2)
            .build()
            .context("failed to set up the client for external providers")?;
        Ok(Self { http, discovered: Mutex::default() })
    }

    /// Returns the endpoints of a provider: those of the configuration, or those of the discovery document. If the
    /// document cannot be read again, the endpoints that were read before stay in use.
    ///
    /// # Errors
    /// Returns [`ProviderFailure`] if the endpoints are unknown.
    pub async fn endpoints(
        &self,
        provider: &ConfiguredProvider,
        now: Timestamp,
    ) -> Result<ProviderEndpoints, ProviderFailure> {
        let issuer = &provider.provider.issuer;
        if let Some(endpoints) = &provider.provider.endpoints {
            return Ok(endpoints.clone());
        }
        let known = self.lock_discovered().get(issuer).cloned();
        if let Some(known) = &known
            && now < known.read + DISCOVERY_LIFETIME
        {
            return Ok(known.endpoints.clone());
        }
        match (self.discover(issuer, provider.timeout).await, known) {
            (Ok(endpoints), _) => {
                let found = DiscoveredEndpoints { endpoints: endpoints.clone(), read: now };
                self.lock_discovered().insert(issuer.clone(), found);
                Ok(endpoints)
            }
            (Err(failure), Some(known)) => {
                tracing::warn!(issuer, ?failure, "failed to read the discovery document again");
                Ok(known.endpoints)
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
        let request = self.http.get(address).header("accept", "application/json");
        let answer = send_request(request, limit, ProviderFailure::Stalled).await?;
        let document = serde_json::from_slice(&answer)
            .map_err(|_| ProviderFailure::Other("the discovery document is not JSON"))?;
        ProviderEndpoints::from_discovery(issuer, &document)
    }

    /// Sends a token request. Returns the tokens and the key set of the provider.
    ///
    /// # Errors
    /// Returns [`ProviderFailure`] if a request fails or an answer is malformed.
    pub async fn exchange_code(
        &self,
        provider: &ConfiguredProvider,
        endpoints: &ProviderEndpoints,
        content: ProviderTokenRequest,
    ) -> Result<(ProviderTokens, Value), ProviderFailure> {
        let mut request = self.http.post(&endpoints.token_endpoint).header("accept", "application/json");
        if let Some((client_id, secret)) = content.basic {
            // RFC 6749 section 2.3.1: both are form-encoded first.
            let encode = |text: String| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
            let pair = format!("{}:{}", encode(client_id), encode(secret));
            request = request.header("authorization", format!("Basic {}", STANDARD.encode(pair)));
        }
        let request = request.form(&content.form);
        let answer = send_request(request, provider.timeout, ProviderFailure::TokenTimeout).await?;
        let tokens = serde_json::from_slice(&answer)
            .map_err(|_| ProviderFailure::Other("the token response is not JSON with an ID token"))?;
        let request = self.http.get(&endpoints.jwks_uri);
        let keys = send_request(request, provider.timeout, ProviderFailure::KeySetTimeout).await?;
        let keys =
            serde_json::from_slice(&keys).map_err(|_| ProviderFailure::Other("the key set is not JSON"))?;
        Ok((tokens, keys))
    }
}

/// Sends a request. Returns the body of a 2xx response.
async fn send_request(
    request: reqwest::RequestBuilder,
    limit: Duration,
    on_timeout: ProviderFailure,
) -> Result<Bytes, ProviderFailure> {
    let mut response = match timeout(limit, request.send()).await {
        Err(_) => return Err(on_timeout),
        Ok(Err(error)) if error.is_timeout() => return Err(on_timeout),
        Ok(Err(error)) => return Err(classify_error(&error)),
        Ok(Ok(response)) => response,
    };
    let mut body = BytesMut::new();
    let read = async {
        loop {
            match timeout(limit, response.chunk()).await {
                Err(_) => return Err(ProviderFailure::Stalled),
                Ok(Err(error)) => return Err(classify_error(&error)),
                Ok(Ok(None)) => return Ok(()),
                Ok(Ok(Some(piece))) if body.len() + piece.len() > ANSWER_LIMIT => {
                    return Err(ProviderFailure::Other("the answer is too large"));
                }
                Ok(Ok(Some(piece))) => body.extend_from_slice(&piece),
            }
        }
    };
    let ended = read.await;
    let status = response.status();
    if status.is_success() {
        return ended.map(|()| body.freeze());
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

/// Classifies a failed request. A refused connection, an unknown host name and a TLS failure precede any exchange and
/// are `Other`.
fn classify_error(error: &reqwest::Error) -> ProviderFailure {
    if error.is_connect() {
        return ProviderFailure::Other("no connection to the provider");
    }
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            match io.kind() {
                io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => {
                    return ProviderFailure::Reset;
                }
                io::ErrorKind::TimedOut => return ProviderFailure::Stalled,
                _ => {}
            }
        }
        if error
            .downcast_ref::<hyper::Error>()
            .is_some_and(|error| error.is_incomplete_message() || error.is_closed() || error.is_canceled())
        {
            return ProviderFailure::Reset;
        }
        cause = error.source();
    }
    ProviderFailure::Other("the call to the provider failed")
}
