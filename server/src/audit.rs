//! The audit log: what happened, who did it and from where, as FHIR R4 AuditEvents, one JSON line each, in
//! `DIR/audit/audit-YYYY-MM-DD.ndjson` by the day (UTC). Lines are only ever added.
//!
//! The rules tell typed events ([`identity::audit`]); who called is known to the task that carries the request. When
//! the disk does not take the lines, readiness says so.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use identity::audit::{Action, Event, Sink};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::clock::{Clock, resource_id};
use crate::line_log::LineLog;

tokio::task_local! {
    static CALLER: Arc<Caller>;
}

/// Who calls: what an event is told with.
#[derive(Debug, Default)]
pub struct Caller {
    /// From where.
    pub address: Option<IpAddr>,
    /// Id of the request.
    pub request_id: Option<Arc<str>>,
    actor: OnceLock<Actor>,
}

/// On whose behalf something is done, where the event itself does not say it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actor {
    /// Whoever may use the data folder: the command line.
    Operator,
    /// A user, by the subject of a token.
    User(String),
    /// A client, by its id.
    Client(String),
}

impl Caller {
    /// Whoever sent a request.
    pub fn of_request(address: Option<IpAddr>, request_id: Arc<str>) -> Self {
        Self { address, request_id: Some(request_id), ..Self::default() }
    }

    /// The command line.
    pub fn operator() -> Self {
        Self { actor: Actor::Operator.into(), ..Self::default() }
    }
}

/// Does the work on behalf of a caller.
pub async fn on_behalf<T>(caller: Caller, work: impl Future<Output = T>) -> T {
    CALLER.scope(Arc::new(caller), work).await
}

/// Says who the caller is, once that is known.
pub fn is_actor(actor: Actor) {
    // Outside of a request nobody asks.
    let _ = CALLER.try_with(|caller| caller.actor.set(actor));
}

/// An event of ours beside those of the rules.
#[derive(Debug)]
pub enum Entry {
    /// Of the rules.
    Identity(Event),
    /// An export began.
    Export {
        /// The client.
        client_id: String,
        /// The job.
        job: String,
        /// What was asked for: the kick-off address.
        request: String,
    },
}

/// The audit log of one server. Cheap to share.
pub struct Audit {
    clock: Clock,
    /// The server, as the observer of all events.
    observer: String,
    lines: LineLog,
}

impl Audit {
    /// Opens the log in a data folder.
    ///
    /// # Errors
    /// The folder cannot be made, or the thread not started.
    pub fn open(data: &Path, observer: &str, clock: Clock) -> io::Result<Arc<Self>> {
        let lines = LineLog::open(data.join("audit"), "audit log")?;
        Ok(Arc::new(Self { clock, observer: observer.to_owned(), lines }))
    }

    /// Adds an entry. Never waits.
    pub fn add(&self, entry: &Entry) {
        let now = self.clock.now();
        let caller = CALLER.try_with(Arc::clone).unwrap_or_default();
        let id = resource_id(&*self.clock.random);
        let event = render(entry, &caller, now, &id, &self.observer);
        let day = &fhir::instant::format(now)[..10];
        self.lines.add(format!("audit-{day}.ndjson"), format!("{event}\n"));
    }

    /// What is wrong with the log, if something is.
    pub fn trouble(&self) -> Option<&'static str> {
        self.lines.is_stuck().then_some("the audit log cannot be written; the server's log says why")
    }

    /// Writes all that waits and ends; tries a disk that does not take it only once more. May block.
    pub fn close(&self) {
        self.lines.close();
    }
}

impl Sink for Audit {
    fn record(&self, event: Event) {
        self.add(&Entry::Identity(event));
    }
}

const DCM: &str = "http://dicom.nema.org/resources/ontology/DCM";
const TYPES: &str = "http://terminology.hl7.org/CodeSystem/audit-event-type";
/// Codes of ours, where nobody has one.
const OURS: &str = "https://trefoil.example/fhir/CodeSystem/audit-event";

/// What the rendering of an event needs.
struct Rendered {
    /// System, code and display.
    kind: [&'static str; 3],
    subtype: [&'static str; 3],
    /// C, R, U, D or E.
    action: &'static str,
    /// 0, 4 or 8.
    outcome: &'static str,
    said: Option<String>,
    /// On whose behalf, where the event says it.
    actors: Vec<Actor>,
    /// What it was about: name of the kind, and id.
    entities: Vec<(&'static str, String)>,
    details: Vec<(&'static str, String)>,
}

const AUTHENTICATION: [&str; 3] = [DCM, "110114", "User Authentication"];
const LOGIN: [&str; 3] = [DCM, "110122", "Login"];
const LOGOUT: [&str; 3] = [DCM, "110123", "Logout"];
const ALERT: [&str; 3] = [DCM, "110113", "Security Alert"];
const NODE: [&str; 3] = [DCM, "110126", "Node Authentication"];
const CONFIGURATION: [&str; 3] = [DCM, "110129", "Security Configuration"];
const ATTRIBUTES: [&str; 3] = [DCM, "110137", "User Security Attributes Changed"];
const EXPORT: [&str; 3] = [DCM, "110106", "Export"];
const REST: [&str; 3] = [TYPES, "rest", "RESTful Operation"];

impl Rendered {
    fn new(kind: [&'static str; 3], subtype: [&'static str; 3], action: &'static str) -> Self {
        Self {
            kind,
            subtype,
            action,
            outcome: "0",
            said: None,
            actors: Vec::new(),
            entities: Vec::new(),
            details: Vec::new(),
        }
    }

    fn refused(mut self, outcome: &'static str, said: impl Into<String>) -> Self {
        (self.outcome, self.said) = (outcome, Some(said.into()));
        self
    }

    fn user(mut self, sub: impl Into<Option<String>>) -> Self {
        self.actors.extend(sub.into().map(Actor::User));
        self
    }

    fn client(mut self, client_id: impl Into<Option<String>>) -> Self {
        self.actors.extend(client_id.into().map(Actor::Client));
        self
    }

    fn about(mut self, kind: &'static str, id: &str) -> Self {
        self.entities.push((kind, id.to_owned()));
        self
    }

    fn detail(mut self, name: &'static str, value: &str) -> Self {
        // FHIR has no empty strings.
        if !value.is_empty() {
            self.details.push((name, value.to_owned()));
        }
        self
    }
}

const fn ours(code: &'static str, display: &'static str) -> [&'static str; 3] {
    [OURS, code, display]
}

fn action_code(action: Action) -> &'static str {
    match action {
        Action::Create => "C",
        Action::Update => "U",
        Action::Delete => "D",
    }
}

fn describe(entry: &Entry) -> Rendered {
    let event = match entry {
        Entry::Identity(event) => event,
        Entry::Export { client_id, job, request } => {
            return Rendered::new(EXPORT, ours("export", "Bulk export"), "R")
                .client(client_id.clone())
                .about("job", job)
                .detail("request", request);
        }
    };
    match event {
        Event::SignIn { sub, sid, amr, provider } => Rendered::new(AUTHENTICATION, LOGIN, "E")
            .user(sub.clone())
            .about("session", sid)
            .detail("amr", &amr.join(" "))
            .detail("provider", provider.as_deref().unwrap_or_default()),
        Event::SignInFailed { sub, reason } => {
            Rendered::new(AUTHENTICATION, LOGIN, "E").user(sub.clone()).refused("4", *reason)
        }
        Event::SignOut { sid } => Rendered::new(AUTHENTICATION, LOGOUT, "E").about("session", sid),
        Event::SignOutEverywhere { sub } => {
            Rendered::new(AUTHENTICATION, ours("global-sign-out", "Sign-out everywhere"), "E")
                .about("user", sub)
        }
        Event::Consent { sub, client_id, scope } => {
            let action = if scope.is_empty() { "D" } else { "C" };
            Rendered::new(ATTRIBUTES, ours("consent", "Consent"), action)
                .user(sub.clone())
                .about("client", client_id)
                .detail("scope", scope)
        }
        Event::Granted { sub, client_id, scope, family } => {
            Rendered::new(AUTHENTICATION, ours("grant", "Authorization granted"), "C")
                .user(sub.clone())
                .client(client_id.clone())
                .about("grant", family)
                .detail("scope", scope)
        }
        Event::TokenIssued { jti, sub, client_id, scope } => {
            let user = (sub != client_id).then(|| sub.clone());
            Rendered::new(AUTHENTICATION, ours("token", "Access token issued"), "C")
                .client(client_id.clone())
                .user(user)
                .about("token", jti)
                .detail("scope", scope)
        }
        Event::ClientRefused { client_id, reason } => {
            Rendered::new(NODE, ours("client-authentication", "Client authentication"), "E")
                .client(client_id.clone())
                .refused("4", reason.clone())
        }
        Event::Reused { what, client_id, sub, family } => {
            Rendered::new(ALERT, ours("reuse", "Reuse of what was spent"), "E")
                .client(client_id.clone())
                .about("user", sub)
                .about("grant", family)
                .detail("what", what)
                .refused("8", "it was used before; all tokens from the grant are revoked")
        }
        Event::Revoked { client_id, what, id } => {
            let kind = if *what == "family" { "grant" } else { "token" };
            Rendered::new(AUTHENTICATION, ours("revocation", "Token revoked"), "D")
                .client(client_id.clone())
                .about(kind, id)
        }
        Event::KeysRotated => Rendered::new(CONFIGURATION, ours("key-rotation", "Signing keys rotated"), "U"),
        Event::KeyRevoked { kid } => {
            Rendered::new(CONFIGURATION, ours("key-revocation", "Signing key revoked"), "D").about("key", kid)
        }
        Event::User { action, sub } => {
            Rendered::new(ATTRIBUTES, ours("user", "User record"), action_code(*action)).about("user", sub)
        }
        Event::SignInMethod { action, sub, method } => {
            Rendered::new(ATTRIBUTES, ours("sign-in-method", "Way to sign in"), action_code(*action))
                .about("user", sub)
                .detail("method", method.name())
        }
        Event::DeviceAnswered { sub, client_id, scope } => {
            let rendered = Rendered::new(ATTRIBUTES, ours("device", "Device authorization"), "C");
            let rendered = rendered.user(sub.clone()).about("client", client_id).detail("scope", scope);
            if scope.is_empty() { rendered.refused("4", "the user denied access") } else { rendered }
        }
        Event::Client { action, client_id } => {
            Rendered::new(CONFIGURATION, ours("client", "Client record"), action_code(*action))
                .about("client", client_id)
        }
        // What the rules tell one day and this page does not know yet is told by its name alone.
        other => Rendered::new(REST, ours("other", "Other"), "E").detail(
            "event",
            format!("{other:?}").split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default(),
        ),
    }
}

fn coding([system, code, display]: [&str; 3]) -> Value {
    json!({ "system": system, "code": code, "display": display })
}

/// An event as a FHIR R4 AuditEvent.
fn render(entry: &Entry, caller: &Caller, at: Timestamp, id: &str, observer: &str) -> Value {
    let rendered = describe(entry);
    let mut actors = rendered.actors;
    if let Some(actor) = caller.actor.get().filter(|actor| !actors.contains(actor)) {
        actors.insert(0, actor.clone());
    }
    let network = caller.address.map(|address| json!({ "address": address.to_string(), "type": "2" }));
    let mut agents: Vec<Value> = actors
        .iter()
        .map(|actor| {
            let (kind, value) = match actor {
                Actor::Operator => ("operator", "command line"),
                Actor::User(sub) => ("user", sub.as_str()),
                Actor::Client(client_id) => ("client", client_id.as_str()),
            };
            json!({
                "type": { "text": kind },
                "who": { "identifier": { "system": observer, "value": value }, "display": kind },
                "requestor": false,
            })
        })
        .collect();
    if agents.is_empty() {
        // Somebody asked, even where nobody knows who; without an address it was the server by itself.
        let who = if caller.address.is_some() { "unknown" } else { "server" };
        agents.push(json!({ "type": { "text": who }, "who": { "display": who }, "requestor": false }));
    }
    agents[0]["requestor"] = true.into();
    if let Some(network) = network {
        agents[0]["network"] = network;
    }
    let mut entities: Vec<Value> = rendered
        .entities
        .iter()
        .map(|(kind, id)| json!({ "what": { "identifier": { "value": id } }, "name": kind }))
        .collect();
    let mut details = rendered.details;
    details.extend(caller.request_id.as_deref().map(|id| ("request-id", id.to_owned())));
    if !details.is_empty() {
        let details: Vec<_> =
            details.iter().map(|(kind, value)| json!({ "type": kind, "valueString": value })).collect();
        match entities.first_mut() {
            Some(first) => first["detail"] = details.into(),
            None => entities.push(json!({ "name": "request", "detail": details })),
        }
    }
    let mut event = json!({
        "resourceType": "AuditEvent",
        "id": id,
        "type": coding(rendered.kind),
        "subtype": [coding(rendered.subtype)],
        "action": rendered.action,
        "recorded": fhir::instant::format(at),
        "outcome": rendered.outcome,
        "agent": agents,
        "source": {
            "observer": { "display": observer },
            "type": [{
                "system": "http://terminology.hl7.org/CodeSystem/security-source-type",
                "code": "4",
                "display": "Application Server",
            }],
        },
    });
    if let Some(said) = rendered.said {
        event["outcomeDesc"] = said.into();
    }
    if !entities.is_empty() {
        event["entity"] = entities.into();
    }
    event
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;

    use identity::audit::SignInMethod;

    use super::*;
    use crate::line_log::WAITING;

    /// What R4 demands of an AuditEvent.
    fn check_shape(event: &Value) {
        assert_eq!(event["resourceType"], "AuditEvent");
        for member in ["/type/system", "/type/code", "/recorded", "/source/observer/display"] {
            assert!(event.pointer(member).is_some_and(Value::is_string), "{member} of {event}");
        }
        assert!("CRUDE".contains(event["action"].as_str().unwrap()), "{event}");
        assert!(["0", "4", "8", "12"].contains(&event["outcome"].as_str().unwrap()), "{event}");
        let agents = event["agent"].as_array().unwrap();
        assert!(!agents.is_empty() && agents.iter().all(|agent| agent["requestor"].is_boolean()), "{event}");
        assert_eq!(agents.iter().filter(|agent| agent["requestor"] == true).count(), 1, "{event}");
        let empty = |value: &Value| {
            value.as_str() == Some("") || value.as_array().is_some_and(Vec::is_empty) || value.is_null()
        };
        fn all<'a>(value: &'a Value, test: &dyn Fn(&Value) -> bool) -> Vec<&'a Value> {
            let inner: Vec<_> = match value {
                Value::Array(items) => items.iter().flat_map(|item| all(item, test)).collect(),
                Value::Object(members) => members.values().flat_map(|item| all(item, test)).collect(),
                _ => Vec::new(),
            };
            inner.into_iter().chain(test(value).then_some(value)).collect()
        }
        assert!(all(event, &empty).is_empty(), "FHIR has no empty values: {event}");
    }

    fn events() -> Vec<Entry> {
        let text = || "x1".to_owned();
        let action = Action::Delete;
        let mut events = vec![
            Event::SignIn { sub: text(), sid: text(), amr: vec![], provider: None },
            Event::SignInFailed { sub: None, reason: "too many attempts" },
            Event::SignOut { sid: text() },
            Event::SignOutEverywhere { sub: text() },
            Event::Consent { sub: text(), client_id: text(), scope: String::new() },
            Event::Granted { sub: text(), client_id: text(), scope: text(), family: text() },
            Event::TokenIssued { jti: text(), sub: text(), client_id: text(), scope: text() },
            Event::ClientRefused { client_id: None, reason: text() },
            Event::Reused { what: "code", client_id: text(), sub: text(), family: text() },
            Event::Revoked { client_id: text(), what: "jti", id: text() },
        ];
        events.extend([
            Event::SignInMethod { action, sub: text(), method: SignInMethod::Passkey },
            Event::DeviceAnswered { sub: text(), client_id: text(), scope: String::new() },
        ]);
        events.extend([Event::KeysRotated, Event::KeyRevoked { kid: text() }]);
        events.extend([Event::User { action, sub: text() }, Event::Client { action, client_id: text() }]);
        let export = Entry::Export { client_id: text(), job: text(), request: text() };
        events.into_iter().map(Entry::Identity).chain([export]).collect()
    }

    #[test]
    fn every_event_is_an_audit_event() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        for entry in events() {
            for caller in [Caller::default(), Caller::operator()] {
                check_shape(&render(&entry, &caller, now, "a1", "https://as.example"));
            }
            let address = Some("203.0.113.9".parse().unwrap());
            let caller = Caller { address, request_id: Some("r1".into()), ..Caller::default() };
            let event = render(&entry, &caller, now, "a1", "https://as.example");
            check_shape(&event);
            assert_eq!(event["agent"][0]["network"], json!({ "address": "203.0.113.9", "type": "2" }));
        }
    }

    fn lines(folder: &Path) -> Vec<Value> {
        let mut files: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let text: Vec<_> = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
        let text = text.join("\n");
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    #[test]
    fn lines_are_added_by_the_day_and_private() {
        let data = tempfile::tempdir().unwrap();
        let clock = |day: &'static str| Clock::new(move || day.parse().unwrap(), Clock::system().random);
        for day in ["2026-01-31T23:59:59Z", "2026-01-31T23:59:59.5Z", "2026-02-01T00:00:00Z"] {
            let audit = Audit::open(data.path(), "https://as.example", clock(day)).unwrap();
            audit.record(Event::KeysRotated);
            audit.close();
            assert_eq!(audit.trouble(), None);
            // A crash may cut a line off.
            let file = data.path().join(format!("audit/audit-{}.ndjson", &day[..10]));
            assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
            OpenOptions::new().append(true).open(&file).unwrap().write_all(b"{\"cut").unwrap();
        }
        let lines = lines(&data.path().join("audit"));
        assert_eq!(lines.len(), 3, "{lines:?}");
        lines.iter().for_each(check_shape);
        assert!(data.path().join("audit/audit-2026-02-01.ndjson").exists());
    }

    #[test]
    fn a_log_that_cannot_be_written_is_told_and_hangs_nobody() {
        let data = tempfile::tempdir().unwrap();
        let audit = Audit::open(data.path(), "https://as.example", Clock::system()).unwrap();
        // A file in the place of the folder: nothing can be opened there.
        std::fs::remove_dir(data.path().join("audit")).unwrap();
        std::fs::write(data.path().join("audit"), "in the way").unwrap();
        for _ in 0..WAITING + 100 {
            audit.record(Event::KeysRotated);
        }
        while audit.trouble().is_none() {
            std::thread::yield_now();
        }
        audit.close();
        assert_eq!(audit.lines.lost(), WAITING as u64 + 100);
    }

    #[test]
    fn what_waited_is_written_when_the_disk_takes_it_again() {
        let data = tempfile::tempdir().unwrap();
        let audit = Audit::open(data.path(), "https://as.example", Clock::system()).unwrap();
        let folder = data.path().join("audit");
        std::fs::remove_dir(&folder).unwrap();
        audit.record(Event::KeysRotated);
        while audit.trouble().is_none() {
            std::thread::yield_now();
        }
        std::fs::create_dir(&folder).unwrap();
        audit.record(Event::KeysRotated);
        audit.close();
        assert_eq!((audit.trouble(), lines(&folder).len()), (None, 2));
    }
}
