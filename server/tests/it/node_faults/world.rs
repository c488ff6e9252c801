//! The nodes as their clients reach them, and the requests that are recorded in the history.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::header::HeaderMap;
use reqwest::{Client, RequestBuilder};
use serde_json::{Value, json};

use crate::cluster::{assertion_fields, backend_assertion};
use crate::support::{fresh_id, sign_jwt};
use node_history::{Action, Event, History};

/// Time after which a client gives up.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time that a client waits after a request that failed.
const PAUSE: Duration = Duration::from_millis(20);

/// An answer.
pub struct Answer {
    pub status: Option<u16>,
    pub headers: HeaderMap,
    pub body: Value,
    /// The body as it was received.
    pub text: String,
    pub ended: Duration,
}

impl Answer {
    pub fn is(&self, status: u16) -> bool {
        self.status == Some(status)
    }

    pub fn text(&self, member: &str) -> Option<String> {
        self.body[member].as_str().map(str::to_owned)
    }
}

pub struct World {
    /// URL of the balancer, which is that of all nodes.
    pub base: String,
    /// URLs of the nodes.
    pub nodes: Vec<String>,
    pub demo: Value,
    pub client: Client,
    pub history: Mutex<History>,
    begun: Instant,
    is_over: AtomicBool,
}

impl World {
    pub fn new(base: String, nodes: &[SocketAddr], demo: Value) -> Self {
        // A connection is not used again, because the balancer chooses a node for each connection.
        let client = Client::builder().tls_certs_only([]).redirect(reqwest::redirect::Policy::none());
        Self {
            base,
            nodes: nodes.iter().map(|node| format!("http://{node}")).collect(),
            demo,
            client: client.no_proxy().pool_max_idle_per_host(0).timeout(PATIENCE).build().unwrap(),
            history: Mutex::default(),
            begun: Instant::now(),
            is_over: AtomicBool::new(false),
        }
    }

    pub fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    pub fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    pub fn record<T>(&self, record: impl FnOnce(&mut History) -> T) -> T {
        record(&mut self.history.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the URL of a path at a node, or at the balancer.
    pub fn url(&self, node: Option<usize>, path: &str) -> String {
        format!("{}{path}", node.map_or(&self.base, |node| &self.nodes[node]))
    }

    /// Sends a request and records it. Besides the expected statuses, only 503 with `Retry-After` is right, in the dialect of
    /// the endpoint. A redirect that tells the client the same is recorded as 503.
    pub async fn ask(
        &self,
        node: Option<usize>,
        action: Action,
        expected: &[u16],
        request: RequestBuilder,
    ) -> Answer {
        let (client, request) = request.build_split();
        let request = request.unwrap();
        let path = request.url().path().to_owned();
        let begun = self.now();
        let mut answer = Answer {
            status: None,
            headers: HeaderMap::new(),
            body: Value::Null,
            text: String::new(),
            ended: Duration::ZERO,
        };
        if let Ok(response) = client.execute(request).await {
            let (status, headers) = (response.status().as_u16(), response.headers().clone());
            if let Ok(text) = response.text().await {
                let body = serde_json::from_str(&text).unwrap_or_else(|_| Value::String(text.clone()));
                answer = Answer { status: Some(status), headers, body, text, ended: Duration::ZERO };
            }
        }
        answer.ended = self.now();
        let version = version_of(&action, &answer);
        let is_right = match answer.status {
            None => true,
            Some(302) if is_redirect_with(&answer, "temporarily_unavailable") => {
                answer.status = Some(503);
                true
            }
            Some(302) if is_redirect_with(&answer, "") => false,
            Some(503) => answer.headers.contains_key("retry-after") && has_dialect(&path, &answer.body),
            Some(status) => expected.contains(&status),
        };
        let event = Event { node, action, begun, ended: answer.ended, status: answer.status, version };
        self.record(|history| {
            if !is_right {
                history.violations.push(format!("unexpected answer: {event:?}: {}", answer.body));
            }
            history.events.push(event);
        });
        if matches!(answer.status, None | Some(503)) {
            tokio::time::sleep(PAUSE).await;
        }
        answer
    }

    /// Requests an access token with an assertion, and a DPoP proof if there is one.
    pub async fn request_token(
        &self,
        node: Option<usize>,
        action: Action,
        assertion: &str,
        proof: Option<&str>,
    ) -> Answer {
        let [kind, assertion] = assertion_fields(assertion);
        let scope = ("scope", "system/*.read system/Group.cud");
        let form = [("grant_type", "client_credentials"), scope, kind, assertion];
        let mut request = self.client.post(self.url(node, "/oauth2/token")).form(&form);
        if let Some(proof) = proof {
            request = request.header("dpop", proof);
        }
        self.ask(node, action, &[200, 400, 401], request).await
    }

    pub fn assertion(&self) -> String {
        backend_assertion(&self.demo, &self.base)
    }

    /// Returns a DPoP proof for the token endpoint, by the key of a back-end client.
    pub fn proof(&self) -> String {
        let jwk =
            &self.demo["backend"].as_array().unwrap().iter().find(|c| c["alg"] == "ES384").unwrap()["jwk"];
        let public = json!({ "kty": "EC", "crv": "P-384", "x": jwk["x"], "y": jwk["y"] });
        let header = json!({ "alg": "ES384", "typ": "dpop+jwt", "jwk": public });
        let claims = json!({
            "htm": "POST", "htu": format!("{}/oauth2/token", self.base), "jti": fresh_id(),
            "iat": jiff::Timestamp::now().as_second(),
        });
        sign_jwt(jwk, &header, &claims)
    }

    /// Requests access tokens until one is issued.
    pub async fn token(&self) -> String {
        loop {
            let answer = self.request_token(None, Action::Other("new token"), &self.assertion(), None).await;
            if let Some(token) = answer.text("access_token") {
                return token;
            }
        }
    }

    /// Revokes a token of the back-end client. Returns whether it was acknowledged.
    pub async fn revoke(&self, node: usize, name: &str, token: &str) -> bool {
        let assertion = self.assertion();
        let [kind, assertion] = assertion_fields(&assertion);
        let request = self.client.post(self.url(Some(node), "/oauth2/revoke"));
        let request = request.form(&[("token", token), kind, assertion]);
        self.ask(Some(node), Action::Revoke(name.to_owned()), &[200], request).await.is(200)
    }

    /// Uses an access token for a terminology operation. Returns the status.
    pub async fn use_token(
        &self,
        node: Option<usize>,
        name: &str,
        token: &str,
        operation: usize,
    ) -> Option<u16> {
        let path = [
            "/fhir/R4/CodeSystem/$subsumes?system=http://faults.example&codeA=a&codeB=b",
            "/fhir/R4/CodeSystem/$validate-code?url=http://faults.example&code=b",
        ][operation % 2];
        let request = self.client.get(self.url(node, path)).bearer_auth(token);
        let answer = self.ask(node, Action::UseToken(name.to_owned()), &[200, 401], request).await;
        if answer.is(200) {
            let expected = [json!("subsumes"), json!(true)];
            let parameters = answer.body["parameter"].as_array().cloned().unwrap_or_default();
            let is_right = parameters.iter().any(|parameter| {
                expected.contains(&parameter["valueCode"]) || expected.contains(&parameter["valueBoolean"])
            });
            if !is_right {
                self.record(|history| history.violations.push(format!("{path}: {}", answer.body)));
            }
        }
        answer.status
    }
}

/// Returns whether an answer sends the client an error that begins with this code.
fn is_redirect_with(answer: &Answer, code: &str) -> bool {
    let location = answer.headers.get("location").and_then(|to| to.to_str().ok());
    location.is_some_and(|to| to.contains(&format!("error={code}")))
}

/// Returns whether an error has the format of its endpoint.
fn has_dialect(path: &str, body: &Value) -> bool {
    match path {
        "/oauth2/authorize" => body.as_str().is_some_and(|page| page.starts_with("<!DOCTYPE html>")),
        path if path.starts_with("/oauth2/") => body["error"].is_string(),
        _ => body["resourceType"] == "OperationOutcome",
    }
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
