//! The server under test: its addresses, the profile with its users and clients, and the HTTP client for all
//! requests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use form_urlencoded::byte_serialize;
use http::{StatusCode, header};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use url::Url;

use super::addresses::TargetAddresses;
use super::cookies::CookieJar;
use super::error::SetupError;
use super::leftovers::Leftovers;
use super::pauses::Pauses;
use super::secrets::SeenSecrets;
use super::treatment::Treatment;
use crate::profile::Profile;
use crate::wire::adapt::ADAPT;
use crate::wire::exchange::{Answer, SentRequest};
use crate::wire::random::random_text;
use crate::wire::variables::Variables;

/// Maximum time until a target that does not answer a request must answer another one.
const ALIVE: Duration = Duration::from_secs(5);
/// Usual maximum time until a response is complete.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// How the suite treats a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetKind {
    /// A Trefoil server: its addresses are those of its interface, and its own rules are tested.
    Trefoil,
    /// Any other server: its metadata states its addresses, and the suite follows its pages, its
    /// `Retry-After` and its requirements, such as code challenges.
    Other,
}

impl TargetKind {
    fn treatment(self) -> Treatment {
        match self {
            Self::Trefoil => Treatment::TREFOIL,
            Self::Other => Treatment::OTHER,
        }
    }
}

/// A running server.
pub struct TestTarget {
    /// Addresses that the server states.
    pub addresses: TargetAddresses,
    /// Users, clients and resources, in the format of `demo.json`.
    pub profile: Map<String, Value>,
    /// How the suite treats the server.
    pub treatment: Treatment,
    /// Secrets that were sent and must not be in a log or a report.
    pub secrets: SeenSecrets,
    /// Beginning of the ids of resources that this run creates.
    pub run: String,
    /// Resources and exports that the run has created on the server.
    pub leftovers: Leftovers,
    /// Maximum time of all pauses of one request or case, if the server asks for pauses. `None` for a server
    /// that the suite started.
    pub max_wait: Option<Duration>,
    /// Number of answers with a status of 500 or above.
    server_errors: AtomicUsize,
    client: reqwest::Client,
}

impl TestTarget {
    /// Connects to a server and reads its metadata.
    ///
    /// # Errors
    /// An error if the server cannot be reached or states no addresses.
    pub async fn connect(
        base_url: &str,
        profile: Profile,
        kind: TargetKind,
        timeout: Duration,
    ) -> Result<Self> {
        // The URL is part of every report.
        if url::Url::parse(base_url).is_ok_and(|url| !url.username().is_empty() || url.password().is_some()) {
            bail!("the URL of the server must not contain a user name or a password");
        }
        super::crypto::install_crypto();
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(timeout)
            .no_proxy();
        if let Some(pem) = &profile.ca_pem {
            let certificates =
                reqwest::Certificate::from_pem_bundle(pem).context("the CA is not a PEM certificate")?;
            builder = builder.tls_certs_merge(certificates);
        }
        let client = builder.build()?;
        let base_url = base_url.trim_end_matches('/');
        let addresses = match kind {
            TargetKind::Trefoil => TargetAddresses::of_trefoil(&client, base_url).await?,
            TargetKind::Other => TargetAddresses::discover(&client, base_url, &profile).await?,
        };
        let secrets = SeenSecrets::of_profile(&profile.members, addresses.fhir_base.as_deref());
        Ok(Self {
            addresses,
            profile: profile.members,
            treatment: kind.treatment(),
            secrets,
            run: crate::wire::random::random_text()[..8].replace(['_', '-'], "x"),
            leftovers: Leftovers::default(),
            max_wait: None,
            server_errors: AtomicUsize::new(0),
            client,
        })
    }

    /// Returns whether authorization requests need a code challenge: the server is not ours, and its profile
    /// does not say that it knows none.
    pub fn requires_pkce(&self) -> bool {
        self.treatment.adapts_requests && self.profile.get("pkce").is_none_or(|candidate| candidate == true)
    }

    /// The base URL of the FHIR interface.
    ///
    /// # Errors
    /// [`SetupError::Lacking`] if there is none.
    pub fn fhir_base(&self) -> Result<&str, SetupError> {
        let lacking = || SetupError::Lacking("the target has no FHIR interface".to_owned());
        self.addresses.fhir_base.as_deref().ok_or_else(lacking)
    }

    /// The URL of an endpoint.
    ///
    /// # Errors
    /// [`SetupError::Lacking`] if the target does not state it.
    pub fn endpoint(&self, name: &str) -> Result<&str, SetupError> {
        let lacking = || SetupError::Lacking(format!("the target has no endpoint '{name}' in its metadata"));
        self.addresses.endpoint(name).ok_or_else(lacking)
    }

    /// Sends a request with cookies, and stores the cookies of the response. Repeats it if a server that the
    /// suite did not start asks for a pause, which it may do at any time (RFC 6585 4).
    ///
    /// # Errors
    /// [`SetupError::NoAnswer`] if there is no complete response, and [`SetupError::TooSlow`] if the server
    /// asks for more than the maximum time.
    pub async fn send(
        &self,
        sent_request: &SentRequest,
        cookies: &mut CookieJar,
    ) -> Result<Answer, SetupError> {
        let mut response = self.send_once(sent_request, cookies).await?;
        let Some(max_wait) = self.max_wait else { return Ok(response) };
        let mut pauses = Pauses::after_limits(max_wait);
        while response.status == StatusCode::TOO_MANY_REQUESTS {
            pauses.wait(&response).await?;
            response = self.send_once(sent_request, cookies).await?;
        }
        Ok(response)
    }

    /// Sends a request like [`send`](Self::send), but returns 429 as any other response.
    ///
    /// # Errors
    /// [`SetupError::NoAnswer`] if there is no complete response.
    pub async fn send_once(
        &self,
        sent_request: &SentRequest,
        cookies: &mut CookieJar,
    ) -> Result<Answer, SetupError> {
        let no_answer = |error: reqwest::Error| {
            SetupError::NoAnswer(format!("{} {}: {}", sent_request.method, sent_request.url, causes(error)))
        };
        self.secrets.take_sent(sent_request);
        let mut headers = sent_request.headers.clone();
        if !headers.contains_key(header::COOKIE)
            && let Some(value) = cookies.header(&sent_request.url)
        {
            headers.insert(header::COOKIE, value);
        }
        let request =
            self.client.request(sent_request.method.clone(), sent_request.url.clone()).headers(headers);
        let request =
            if sent_request.body.is_empty() { request } else { request.body(sent_request.body.clone()) };
        let response = request.send().await.map_err(no_answer)?;
        let (status, headers) = (response.status(), response.headers().clone());
        if status.is_server_error() {
            self.server_errors.fetch_add(1, Ordering::Relaxed);
        }
        let body = response.bytes().await.map_err(no_answer)?;
        cookies.keep(&sent_request.url, &headers);
        let response = Answer { status, headers, body };
        self.secrets.take_answer(&response, cookies);
        self.leftovers.note(sent_request, &response, self.addresses.fhir_base.as_deref());
        Ok(response)
    }

    /// The pauses between questions about a state. The profile can state their length (`poll_seconds`).
    pub fn poll_pauses(&self) -> Pauses {
        let stated = self.profile.get("poll_seconds").and_then(Value::as_u64).map(Duration::from_secs);
        Pauses::between_polls(self.max_wait, stated)
    }

    /// The number of answers so far that say that the server has failed (5xx).
    pub fn server_errors(&self) -> usize {
        self.server_errors.load(Ordering::Relaxed)
    }

    /// Checks that the target answers at all. The error names what was asked.
    pub(super) async fn check_alive(&self) -> Result<(), String> {
        let url = self.addresses.endpoint("discovery").or(self.addresses.endpoint("jwks"));
        let metadata = || self.addresses.fhir_base.as_ref().map(|base| format!("{base}/metadata"));
        let Some(url) = url.map(str::to_owned).or_else(metadata) else { return Ok(()) };
        let response = self.client.get(&url).timeout(ALIVE).send().await;
        response.map(drop).map_err(|error| format!("GET {url}: {}", causes(error)))
    }

    /// Deletes what the run has created on the server. Returns the URLs that could not be deleted, with the
    /// reason.
    pub async fn clean_up(&self) -> Vec<String> {
        let mut remaining = Vec::new();
        for request in self.leftovers.take() {
            match self.send(&request, &mut CookieJar::new()).await {
                Ok(response)
                    if response.status.is_success() || matches!(response.status.as_u16(), 404 | 410) => {}
                Ok(response) => remaining.push(format!("{}: {}", request.url, response.status)),
                Err(error) => remaining.push(format!("{}: {error}", request.url)),
            }
        }
        remaining
    }

    /// The variables that every case has: profile, addresses, a PKCE pair, `$state`, `$nonce`.
    pub fn vars(&self) -> Variables {
        let mut vars = Variables::default();
        for (name, value) in &self.profile {
            let mut value = value.clone();
            // Credentials for the Authorization header, each encoded as in a form (RFC 6749 2.3.1).
            if let (Some(id), Some(secret)) = (value["client_id"].as_str(), value["client_secret"].as_str()) {
                let encoded = |text: &str| -> String { byte_serialize(text.as_bytes()).collect() };
                let basic = |secret: &str| STANDARD.encode(format!("{}:{}", encoded(id), encoded(secret)));
                let (right, wrong) = (basic(secret), basic("wrong-secret"));
                value["basic"] = right.into();
                value["wrong"] = wrong.into();
            }
            vars.set(name, value);
        }
        vars.set("base_url", self.addresses.base_url.as_str());
        vars.set("run", self.run.as_str());
        vars.set("issuer", self.addresses.issuer.as_str());
        vars.set("endpoints", self.addresses.endpoints.clone());
        if let Some(fhir_base) = &self.addresses.fhir_base {
            vars.set("fhir_base", fhir_base.as_str());
        }
        if self.treatment.adapts_requests {
            vars.set(ADAPT, json!({ "pkce": self.requires_pkce(), "json": self.addresses.has_plain_json }));
        }
        let (verifier, challenge) = crate::wire::random::pkce_pair();
        vars.set("pkce", json!({ "verifier": verifier, "challenge": challenge }));
        vars.set("state", crate::wire::random::random_text());
        vars.set("nonce", crate::wire::random::random_text());
        vars
    }
}

/// The texts of an error and of its causes. The URL is left out.
fn causes(error: reqwest::Error) -> String {
    format!("{:#}", anyhow::Error::new(error.without_url()))
}

/// The URLs at which the client of an authorization request may receive the response: the one in the request,
/// and those of the profile, because the request may be pushed or signed.
pub fn redirect_uris(target: &TestTarget, request: &Url) -> Vec<String> {
    let parameter =
        |name: &str| request.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
    let client_id = parameter("client_id");
    let clients =
        target.profile.values().filter(|client| client["client_id"].as_str() == client_id.as_deref());
    let registered = clients.filter_map(|client| client["redirect_uris"].as_array()).flatten();
    parameter("redirect_uri")
        .into_iter()
        .chain(registered.filter_map(Value::as_str).map(str::to_owned))
        .collect()
}

/// The claims of a valid client assertion (RFC 7523 3, SMART Backend Services).
pub(super) fn claims(target: &TestTarget, client_id: &str) -> Value {
    json!({
        "iss": client_id,
        "sub": client_id,
        "aud": target.addresses.endpoint("token"),
        "exp": Timestamp::now().as_second() + 300,
        "jti": random_text(),
    })
}
