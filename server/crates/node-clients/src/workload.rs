//! The common part of all clients of a run: requests that are recorded, random numbers, begin and end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use serde_json::Value;
use test_parties::ClientKey;

use crate::history::{Action, Event, History, SeenVersion};
use crate::nodes::{Answer, ClientRequest, NODES, Nodes};
use crate::registration::REDIRECT;

/// Time that a client waits after a request that failed.
const PAUSE: Duration = Duration::from_millis(20);

/// Time for which a revoked token is used, which is longer than a revocation may take.
pub(crate) const PROBE_TIME: Duration = Duration::from_millis(1_500);
pub(crate) const AUTHORIZATION: &str = "/oauth2/authorize";

/// The speed of the clients of a run.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Whether clients rest between two pieces of work.
    pub rests: bool,
    /// Time between two uses of a revoked token.
    pub probe: Duration,
    /// Longest time between two requests for the status of an export.
    pub poll: Duration,
}

/// The fields of a request to the token endpoint.
pub type Form = Vec<(&'static str, String)>;

/// The common part of all clients of a run.
pub struct Workload {
    /// Base URL of all nodes.
    pub base: String,
    /// Name and password of the user.
    pub user: (String, String),
    /// Key of the back-end client.
    pub key: ClientKey,
    /// Speed of the clients.
    pub pace: Pace,
    nodes: Arc<dyn Nodes>,
    history: Mutex<History>,
    random: Mutex<Rng>,
    /// Codes and refresh tokens that were redeemed: their names and forms.
    pub(crate) spent: Mutex<Vec<(String, Form)>>,
    has_begun: AtomicBool,
    is_over: AtomicBool,
}

impl Workload {
    /// Prepares a run.
    pub fn new(
        nodes: Arc<dyn Nodes>,
        base: String,
        user: (String, String),
        key: ClientKey,
        pace: Pace,
        random: Rng,
    ) -> Self {
        Self {
            base,
            user,
            key,
            pace,
            nodes,
            history: Mutex::default(),
            random: Mutex::new(random),
            spent: Mutex::default(),
            has_begun: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        }
    }

    /// The nodes.
    pub fn nodes(&self) -> &dyn Nodes {
        &*self.nodes
    }

    /// The time since the run has begun.
    pub fn now(&self) -> Duration {
        self.nodes.now()
    }

    /// Changes the history.
    pub fn record<T>(&self, record: impl FnOnce(&mut History) -> T) -> T {
        record(&mut lock(&self.history))
    }

    /// Records that a rule was broken.
    pub fn violation(&self, text: String) {
        self.nodes.log(&format!("VIOLATION {text}"));
        self.record(|history| history.violations.push(text));
    }

    /// Draws from the random numbers of the clients.
    pub fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut lock(&self.random))
    }

    /// Draws an id.
    pub fn id(&self) -> String {
        format!("{:016x}", self.draw(|random| random.u64(..)))
    }

    /// Draws a node.
    pub fn any_node(&self) -> usize {
        self.draw(|random| random.usize(..NODES))
    }

    /// Draws a node, or the balancer if there is one.
    pub(crate) fn any_target(&self) -> Option<usize> {
        let targets = NODES + usize::from(self.nodes.has_balancer());
        Some(self.draw(|random| random.usize(..targets))).filter(|target| *target < NODES)
    }

    /// Draws two or three different nodes. The balancer can take the place of one.
    pub fn several_nodes(&self) -> Vec<Option<usize>> {
        let mut nodes: Vec<_> = (0..NODES).map(Some).collect();
        nodes.extend(self.nodes.has_balancer().then_some(None));
        self.draw(|random| {
            random.shuffle(&mut nodes);
            nodes.truncate(random.usize(2..=NODES));
        });
        nodes
    }

    /// Waits for up to a number of milliseconds.
    pub async fn wait(&self, most: u64) {
        let milliseconds = self.draw(|random| random.u64(1..=most.max(1)));
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    }

    /// Waits for up to a number of milliseconds, if the clients of this run rest.
    pub async fn rest(&self, most: u64) {
        if self.pace.rests {
            self.wait(most).await;
        }
    }

    /// Starts the clients that wait in [`Workload::await_begin`].
    pub fn begin(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
    }

    /// Returns whether [`Workload::begin`] was called.
    pub fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    /// Waits until the run is prepared.
    pub async fn await_begin(&self) {
        while !self.has_begun() {
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns whether the clients must stop.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Stops the clients.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// The path of a URL of the nodes.
    pub fn path_of<'a>(&self, url: &'a str) -> Option<&'a str> {
        url.strip_prefix(&self.base)
    }

    /// Sends a request to a node, or to the balancer, and records it. Any status that is not expected is a
    /// violation, except a 503 with `Retry-After` in the format of the endpoint. A redirect with
    /// `temporarily_unavailable` is recorded as 503.
    pub async fn ask(
        &self,
        node: impl Into<Option<usize>>,
        action: Action,
        expected: &[u16],
        request: ClientRequest,
    ) -> Answer {
        let (node, request, begun) = (node.into(), request.build(), self.now());
        let path = request.uri().path().to_owned();
        let asks_provider = path.starts_with("/oauth2/idpresponse/")
            || request.uri().query().is_some_and(|query| query.contains("identity_provider="));
        let mut answer = Answer::default();
        if let Ok(response) = self.nodes.send(node, action.name(), request).await {
            let (head, bytes) = response.into_parts();
            let body = serde_json::from_slice(&bytes)
                .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
            let status = Some(head.status.as_u16());
            answer = Answer { status, headers: head.headers, bytes, body, ended: Duration::ZERO };
        }
        answer.ended = self.now();
        let is_right = match answer.status {
            None => true,
            Some(302) if is_redirect_with(&answer, "temporarily_unavailable") => {
                answer.status = Some(503);
                true
            }
            // The failure of a provider is recorded with the status that its page has.
            Some(302) if asks_provider && is_redirect_with(&answer, "") => {
                answer.status = Some(502);
                true
            }
            Some(302) if is_redirect_with(&answer, "") => false,
            Some(503) => answer.headers.contains_key("retry-after") && has_dialect(&path, &answer.body),
            Some(status) => expected.contains(&status),
        };
        let version = version_of(&action, &answer);
        let (ended, status) = (answer.ended, answer.status);
        let event = Event { node, action, asks_provider, begun, ended, status, version };
        if !is_right {
            self.violation(format!("unexpected answer: {event:?}: {}", answer.body));
        }
        self.record(|history| history.events.push(event));
        if answer.is_failure() {
            tokio::time::sleep(PAUSE).await;
        }
        answer
    }
}

/// Locks, also after a client has panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether an answer sends the application an error that begins with this code.
fn is_redirect_with(response: &Answer, code: &str) -> bool {
    let error = format!("error={code}");
    response.header("location").is_some_and(|to| to.starts_with(REDIRECT) && to.contains(&error))
}

/// Returns whether an error has the format of its endpoint.
fn has_dialect(path: &str, body: &Value) -> bool {
    if path.starts_with("/fhir/") {
        return body["resourceType"] == "OperationOutcome";
    }
    match path {
        "/oauth2/token" | "/oauth2/revoke" | "/oauth2/userinfo" => body["error"].is_string(),
        _ => body.as_str().is_some_and(|page| page.starts_with("<!DOCTYPE html>")),
    }
}

/// The version in an answer. A resource that does not exist has version 0.
fn version_of(action: &Action, response: &Answer) -> Option<SeenVersion> {
    match (action, response.status?) {
        (Action::Read(_), 404) => Some((0, String::new())),
        (Action::Read(_) | Action::Write(_), 200 | 201) => {
            let number = response.body["meta"]["versionId"].as_str()?.parse().ok()?;
            Some((number, response.member("name")?))
        }
        _ => None,
    }
}
