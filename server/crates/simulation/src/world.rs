//! The common part of all clients of a run: the time, the log, the history, and the requests.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use http::{HeaderMap, Request};
use jiff::{SignedDuration, Timestamp};
use node_history::{Action, Event, History};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::network;
use crate::outside::{SimulatedKey, base64url};

/// Base URL of the nodes.
pub const BASE: &str = "https://trefoil.example";
/// Number of nodes.
pub const NODES: usize = 3;
/// Time at which a simulation begins, in seconds since 1970.
const BEGIN: i64 = 1_900_000_000;
/// Id of the back-end client, whose keys are fetched.
pub const BACKEND: &str = "backend";
/// Id of the browser application.
pub const APP: &str = "app";
/// Redirect URI of the browser application.
pub const REDIRECT: &str = "https://app.example/callback";
/// Name and password of the user.
pub const USER: (&str, &str) = ("simulated", "a simulated password 7");

/// Returns the time since the simulation has begun.
pub fn elapsed() -> Duration {
    turmoil::sim_elapsed().unwrap_or_default()
}

/// Returns the time.
pub fn time() -> Timestamp {
    let elapsed = SignedDuration::try_from(elapsed()).unwrap_or_default();
    Timestamp::from_second(BEGIN).unwrap_or_default() + elapsed
}

/// Returns the name of the host of a node.
pub fn host_of(node: usize) -> String {
    format!("node-{node}")
}

/// The answer to a request of a client.
pub struct Answer {
    /// The status; `None` if there was no complete answer.
    pub status: Option<u16>,
    /// The headers.
    pub headers: HeaderMap,
    /// The body: JSON, or a text.
    pub body: Value,
    /// The time at which it had arrived.
    pub ended: Duration,
}

impl Answer {
    /// Returns whether the status is this one.
    pub fn is(&self, status: u16) -> bool {
        self.status == Some(status)
    }

    /// Returns a member that is a text.
    pub fn text(&self, member: &str) -> Option<String> {
        self.body[member].as_str().map(str::to_owned)
    }

    /// Returns a header.
    pub fn header(&self, name: &str) -> Option<String> {
        Some(self.headers.get(name)?.to_str().ok()?.to_owned())
    }
}

/// A request of a client, which is sent to a node.
pub struct ClientRequest(http::request::Builder, Bytes);

impl ClientRequest {
    /// A request without a body. `path` can also be a whole URL.
    pub fn get(path: &str) -> Self {
        Self(Request::get(url(path)), Bytes::new())
    }

    /// A request with a form.
    pub fn form(path: &str, form: &[(&str, &str)]) -> Self {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let request = Request::post(url(path)).header("content-type", "application/x-www-form-urlencoded");
        Self(request, body.into())
    }

    /// A request with a resource.
    pub fn json(method: &str, path: &str, body: &Value) -> Self {
        let request = Request::builder().method(method).uri(url(path));
        Self(request.header("content-type", "application/fhir+json"), body.to_string().into())
    }

    /// Adds a header.
    pub fn header(self, name: &str, value: &str) -> Self {
        Self(self.0.header(name, value), self.1)
    }

    /// Adds an access token.
    pub fn bearer(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }
}

fn url(path: &str) -> String {
    if path.starts_with('/') { format!("{BASE}{path}") } else { path.to_owned() }
}

/// The common part of all clients of a run.
pub struct World {
    /// The history of all requests.
    pub history: Mutex<History>,
    log: Mutex<String>,
    random: Mutex<Rng>,
    key: SimulatedKey,
    is_over: AtomicBool,
    /// Questions for codes that all nodes had to know: the node, the time from which it had to know the code, the time of the
    /// question, and the code, if it was unknown.
    pub unknown_codes: Mutex<Vec<(usize, Duration, Duration, String)>>,
    /// Number of times that a node was opened.
    pub opened: AtomicUsize,
    /// Number of exports that were compared with the store.
    pub exports: AtomicUsize,
}

impl World {
    /// Begins a run.
    pub fn new(mut random: Rng) -> Self {
        let key = SimulatedKey::new("backend-1", &mut random);
        Self {
            history: Mutex::default(),
            log: Mutex::default(),
            random: Mutex::new(random),
            key,
            is_over: AtomicBool::new(false),
            unknown_codes: Mutex::default(),
            opened: AtomicUsize::default(),
            exports: AtomicUsize::default(),
        }
    }

    /// Returns the public keys of the back-end client.
    pub fn backend_keys(&self) -> Value {
        json!({ "keys": [self.key.jwk()] })
    }

    /// Writes a line to the log.
    pub fn log(&self, line: &str) {
        self.log_at(elapsed(), line);
    }

    /// Writes a line to the log, with this time.
    pub fn log_at(&self, now: Duration, line: &str) {
        let line = format!("{:>6}.{:03} {line}\n", now.as_millis(), now.subsec_micros() % 1_000);
        self.log.lock().unwrap_or_else(PoisonError::into_inner).push_str(&line);
    }

    /// Takes the log.
    pub fn take_log(&self) -> String {
        std::mem::take(&mut self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the history.
    pub fn record<T>(&self, record: impl FnOnce(&mut History) -> T) -> T {
        record(&mut self.history.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records that a rule was broken.
    pub fn violation(&self, text: String) {
        self.log(&format!("VIOLATION {text}"));
        self.record(|history| history.violations.push(text));
    }

    /// Draws from the random numbers of the clients.
    pub fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.random.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Draws an id.
    pub fn id(&self) -> String {
        format!("{:016x}", self.draw(|random| random.u64(..)))
    }

    /// Draws a node.
    pub fn any_node(&self) -> usize {
        self.draw(|random| random.usize(..NODES))
    }

    /// Draws two or three different nodes.
    pub fn several_nodes(&self) -> Vec<usize> {
        self.draw(|random| {
            let mut nodes: Vec<usize> = (0..NODES).collect();
            random.shuffle(&mut nodes);
            nodes.truncate(random.usize(2..=NODES));
            nodes
        })
    }

    /// Waits for up to a number of milliseconds.
    pub async fn pause(&self, most: u64) {
        let milliseconds = self.draw(|random| random.u64(1..=most));
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    }

    /// Waits until all nodes are open.
    pub async fn await_nodes(&self) {
        while self.opened.load(Ordering::Relaxed) < NODES {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // They listen a moment later.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    /// Returns whether the clients shall stop.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Stops the clients.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Sends a request to a node and records it. Besides the expected statuses, only 503 with `Retry-After` is right.
    pub async fn ask(&self, node: usize, action: Action, expected: &[u16], request: ClientRequest) -> Answer {
        let ClientRequest(builder, body) = request;
        let begun = elapsed();
        let Ok(request) = builder.body(body) else { panic!("the request of {action:?} is malformed") };
        let what = format!(
            "{} {}",
            request.method(),
            request.uri().path_and_query().map_or("", |path| path.as_str())
        );
        let mut answer =
            Answer { status: None, headers: HeaderMap::new(), body: Value::Null, ended: Duration::ZERO };
        let (mut sum, mut why) = (String::new(), String::new());
        match network::send_patiently(&host_of(node), request).await {
            Ok(response) => {
                let (head, body) = response.into_parts();
                sum = base64url(&Sha256::digest(&body)[..6]);
                answer.status = Some(head.status.as_u16());
                answer.headers = head.headers;
                answer.body = serde_json::from_slice(&body)
                    .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&body).into_owned()));
            }
            Err(error) => why = error.to_string(),
        }
        answer.ended = elapsed();
        let name = action.name();
        let status = answer.status.map_or(why, |status| status.to_string());
        self.log(&format!("client -> node-{node} {name}: {what} -> {status} {sum}"));
        let version = version_of(&action, &answer);
        let is_right = match answer.status {
            None => true,
            Some(503) => answer.headers.contains_key("retry-after"),
            Some(status) => expected.contains(&status),
        };
        let event =
            Event { node: Some(node), action, begun, ended: answer.ended, status: answer.status, version };
        if !is_right {
            self.violation(format!("unexpected answer: {event:?}: {}", answer.body));
        }
        self.record(|history| history.events.push(event));
        answer
    }

    /// Returns a new assertion of the back-end client.
    pub fn assertion(&self) -> String {
        let now = time().as_second();
        self.key.sign(
            "JWT",
            &json!({
                "iss": BACKEND, "sub": BACKEND, "aud": format!("{BASE}/oauth2/token"), "jti": self.id(),
                "iat": now, "exp": now + 240,
            }),
        )
    }

    /// Returns a new DPoP proof for the token endpoint.
    pub fn proof(&self) -> String {
        let header = json!({ "alg": "EdDSA", "typ": "dpop+jwt", "jwk": self.key.bare_jwk() });
        let claims = json!({
            "htm": "POST", "htu": format!("{BASE}/oauth2/token"), "jti": self.id(), "iat": time().as_second(),
        });
        self.key.sign_with_header(&header, &claims)
    }

    /// Requests an access token with an assertion, and a DPoP proof if there is one.
    pub async fn request_token(
        &self,
        node: usize,
        action: Action,
        assertion: &str,
        proof: Option<&str>,
    ) -> Answer {
        let [kind, assertion] = assertion_fields(assertion);
        let form =
            [("grant_type", "client_credentials"), ("scope", "system/*.read system/*.cud"), kind, assertion];
        let mut request = ClientRequest::form("/oauth2/token", &form);
        if let Some(proof) = proof {
            request = request.header("dpop", proof);
        }
        self.ask(node, action, &[200, 400, 401], request).await
    }

    /// Requests access tokens until one is issued.
    pub async fn token(&self) -> String {
        loop {
            let (node, assertion) = (self.any_node(), self.assertion());
            let answer = self.request_token(node, Action::Other("new token"), &assertion, None).await;
            if let Some(token) = answer.text("access_token") {
                return token;
            }
            self.pause(200).await;
        }
    }

    /// Revokes a token of the back-end client. Returns whether it was acknowledged.
    pub async fn revoke(&self, node: usize, name: &str, token: &str) -> bool {
        let assertion = self.assertion();
        let [kind, assertion] = assertion_fields(&assertion);
        let request = ClientRequest::form("/oauth2/revoke", &[("token", token), kind, assertion]);
        self.ask(node, Action::Revoke(name.to_owned()), &[200], request).await.is(200)
    }
}

/// Returns the form fields of a client assertion.
pub fn assertion_fields(assertion: &str) -> [(&str, &str); 2] {
    let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
    [("client_assertion_type", kind), ("client_assertion", assertion)]
}

/// Returns the version in an answer. A resource that does not exist has version 0.
fn version_of(action: &Action, answer: &Answer) -> Option<(u64, String)> {
    match (action, answer.status?) {
        (Action::Read(_), 404) => Some((0, String::new())),
        (Action::Read(_) | Action::Write(_), 200 | 201) => {
            let number = answer.body["meta"]["versionId"].as_str()?.parse().ok()?;
            Some((number, answer.text("name")?))
        }
        _ => None,
    }
}
