//! The server under test: its addresses, the profile with its users and clients, and the HTTP client for all
//! requests.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderValue, header};
use serde_json::{Map, Value, json};

use super::SetupError;
use super::secrets::SeenSecrets;
use crate::wire::exchange::{Answer, SentRequest};
use crate::wire::variables::Variables;

/// Maximum time until a response is complete.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Cookies by name.
pub type CookieJar = BTreeMap<String, String>;

/// A running server.
pub struct TestTarget {
    /// Base URL, without a trailing slash.
    pub base_url: String,
    /// Base URL of the FHIR interface.
    pub fhir_base: String,
    /// Users, clients and resources, in the format of `demo.json`.
    pub profile: Map<String, Value>,
    /// Published key set of the server.
    pub keys: Value,
    /// Secrets that were sent and must not be in a log.
    pub secrets: SeenSecrets,
    client: reqwest::Client,
}

impl TestTarget {
    /// Connects to a server: reads the discovery document and the keys.
    ///
    /// # Errors
    /// Returns an error if the server cannot be reached or has no valid discovery document.
    pub async fn connect(base_url: &str, ca_pem: Option<&[u8]>, profile: Map<String, Value>) -> Result<Self> {
        super::install_crypto();
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(TIMEOUT)
            .no_proxy();
        if let Some(pem) = ca_pem {
            let certificate =
                reqwest::Certificate::from_pem(pem).context("the CA is not a PEM certificate")?;
            builder = builder.tls_certs_merge([certificate]);
        }
        let client = builder.build()?;
        let base_url = base_url.trim_end_matches('/').to_owned();
        let get = async |address: String| -> Result<Value> {
            let answer = client.get(&address).send().await.with_context(|| format!("GET {address}"))?;
            answer.error_for_status()?.json().await.with_context(|| format!("{address} is not valid JSON"))
        };
        let discovery = get(format!("{base_url}/.well-known/openid-configuration")).await?;
        let jwks_uri = discovery["jwks_uri"].as_str().context("discovery has no jwks_uri")?;
        let keys = get(jwks_uri.to_owned()).await?;
        let fhir_base = format!("{base_url}/fhir/R4");
        let secrets = SeenSecrets::of_profile(&profile);
        Ok(Self { base_url, fhir_base, profile, keys, secrets, client })
    }

    /// Sends a request with cookies, and stores the cookies of the response.
    ///
    /// # Errors
    /// Returns [`SetupError::NoAnswer`] if there is no complete response.
    pub async fn send(&self, sent: &SentRequest, cookies: &mut CookieJar) -> Result<Answer, SetupError> {
        let no_answer = |error: reqwest::Error| {
            let mut text = error.to_string();
            let mut cause = std::error::Error::source(&error);
            while let Some(error) = cause {
                text = format!("{text}: {error}");
                cause = error.source();
            }
            SetupError::NoAnswer(text)
        };
        self.secrets.take_sent(sent);
        let mut headers = sent.headers.clone();
        if !cookies.is_empty() && !headers.contains_key(header::COOKIE) {
            let pairs: Vec<_> = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            if let Ok(value) = HeaderValue::from_str(&pairs.join("; ")) {
                headers.insert(header::COOKIE, value);
            }
        }
        let request = self.client.request(sent.method.clone(), sent.url.clone()).headers(headers);
        let request = if sent.body.is_empty() { request } else { request.body(sent.body.clone()) };
        let response = request.send().await.map_err(no_answer)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.bytes().await.map_err(no_answer)?;
        for value in headers.get_all(header::SET_COOKIE) {
            keep(cookies, &String::from_utf8_lossy(value.as_bytes()));
        }
        let answer = Answer { status, headers, body };
        self.secrets.take_answer(&answer, cookies);
        Ok(answer)
    }

    /// Returns the variables that every case has: profile, addresses, a PKCE pair, `$state`, `$nonce`.
    pub fn vars(&self) -> Variables {
        let mut vars = Variables::default();
        for (name, value) in &self.profile {
            let mut value = value.clone();
            // Credentials for the Authorization header (RFC 6749 2.3.1).
            if let (Some(id), Some(secret)) = (value["client_id"].as_str(), value["client_secret"].as_str()) {
                value["basic"] = STANDARD.encode(format!("{id}:{secret}")).into();
            }
            vars.set(name, value);
        }
        vars.set("base_url", self.base_url.as_str());
        vars.set("fhir_base", self.fhir_base.as_str());
        let (verifier, challenge) = crate::wire::random::pkce_pair();
        vars.set("pkce", json!({ "verifier": verifier, "challenge": challenge }));
        vars.set("state", crate::wire::random::random_text());
        vars.set("nonce", crate::wire::random::random_text());
        vars
    }
}

/// Stores or deletes the cookie of a `Set-Cookie` header. Attributes other than `Max-Age=0` are ignored.
fn keep(cookies: &mut CookieJar, set: &str) {
    let Some((name, value)) = set.split(';').next().and_then(|pair| pair.split_once('=')) else { return };
    if set.to_ascii_lowercase().contains("max-age=0") {
        cookies.remove(name.trim());
    } else {
        cookies.insert(name.trim().to_owned(), value.trim().to_owned());
    }
}
