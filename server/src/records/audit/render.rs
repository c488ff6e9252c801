//! Events as FHIR R4 AuditEvents.

use identity::audit::{AuditEvent, RecordAction};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::caller::{AuditActor, AuditCaller};
use super::coding::{DCM, TYPES, coding};
use super::entry::{AuditEntry, AuditSource};
use super::rest;

/// System of the codes for events that no standard has a code for.
const OURS: &str = "https://trefoil.example/fhir/CodeSystem/audit-event";

/// The parts of an AuditEvent that depend on the event.
struct RenderedEvent {
    kind: [&'static str; 3],
    subtype: [&'static str; 3],
    /// Create (C), read (R), update (U), delete (D) or execute (E).
    action: &'static str,
    /// Success (0), minor failure (4) or serious failure (8).
    outcome: &'static str,
    description: Option<String>,
    /// The actors that the event contains.
    actors: Vec<AuditActor>,
    /// The objects of the event: name of the kind, and id.
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
const IMPORT: [&str; 3] = [DCM, "110107", "Import"];
const REST: [&str; 3] = [TYPES, "rest", "RESTful Operation"];

impl RenderedEvent {
    fn new(kind: [&'static str; 3], subtype: [&'static str; 3], action: &'static str) -> Self {
        Self {
            kind,
            subtype,
            action,
            outcome: "0",
            description: None,
            actors: Vec::new(),
            entities: Vec::new(),
            details: Vec::new(),
        }
    }

    fn refused(mut self, outcome: &'static str, description: impl Into<String>) -> Self {
        (self.outcome, self.description) = (outcome, Some(description.into()));
        self
    }

    fn user(mut self, sub: impl Into<Option<String>>) -> Self {
        self.actors.extend(sub.into().map(AuditActor::User));
        self
    }

    fn client(mut self, client_id: impl Into<Option<String>>) -> Self {
        self.actors.extend(client_id.into().map(AuditActor::Client));
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

fn action_code(action: RecordAction) -> &'static str {
    match action {
        RecordAction::Create => "C",
        RecordAction::Update => "U",
        RecordAction::Delete => "D",
    }
}

fn describe(event: &AuditEvent) -> RenderedEvent {
    match event {
        AuditEvent::SignIn { sub, sid, amr, provider } => RenderedEvent::new(AUTHENTICATION, LOGIN, "E")
            .user(sub.clone())
            .about("session", sid)
            .detail("amr", &amr.join(" "))
            .detail("provider", provider.as_deref().unwrap_or_default()),
        AuditEvent::SignInFailed { sub, reason } => {
            RenderedEvent::new(AUTHENTICATION, LOGIN, "E").user(sub.clone()).refused("4", *reason)
        }
        AuditEvent::SignOut { sid } => RenderedEvent::new(AUTHENTICATION, LOGOUT, "E").about("session", sid),
        AuditEvent::SignOutEverywhere { sub } => {
            RenderedEvent::new(AUTHENTICATION, ours("global-sign-out", "Sign-out everywhere"), "E")
                .about("user", sub)
        }
        AuditEvent::OneTimeLink { action, sub, id } => {
            RenderedEvent::new(ATTRIBUTES, ours("one-time-link", "One-time link"), action_code(*action))
                .about("user", sub)
                .about("one-time-link", id)
        }
        AuditEvent::Consent { sub, client_id, scope } => {
            let action = if scope.is_empty() { "D" } else { "C" };
            RenderedEvent::new(ATTRIBUTES, ours("consent", "Consent"), action)
                .user(sub.clone())
                .about("client", client_id)
                .detail("scope", scope)
        }
        AuditEvent::Granted { sub, client_id, scope, family } => {
            RenderedEvent::new(AUTHENTICATION, ours("grant", "Authorization granted"), "C")
                .user(sub.clone())
                .client(client_id.clone())
                .about("grant", family)
                .detail("scope", scope)
        }
        AuditEvent::TokenIssued { jti, sub, client_id, scope } => {
            let user = (sub != client_id).then(|| sub.clone());
            RenderedEvent::new(AUTHENTICATION, ours("token", "Access token issued"), "C")
                .client(client_id.clone())
                .user(user)
                .about("token", jti)
                .detail("scope", scope)
        }
        AuditEvent::ClientRejected { client_id, reason } => {
            RenderedEvent::new(NODE, ours("client-authentication", "Client authentication"), "E")
                .client(client_id.clone())
                .refused("4", reason.clone())
        }
        AuditEvent::RequestRefused { client_id, error, reason, value } => {
            let code = ours("authorization-request", "Authorization request");
            let event = RenderedEvent::new(NODE, code, "E").client(client_id.clone()).detail("error", error);
            let event = match value {
                Some(value) => event.detail("value", value),
                None => event,
            };
            event.refused("4", *reason)
        }
        AuditEvent::Reused { kind, client_id, sub, family } => {
            RenderedEvent::new(ALERT, ours("reuse", "Reuse of a code or token"), "E")
                .client(client_id.clone())
                .about("user", sub)
                .about("grant", family)
                .detail("what", kind)
                .refused("8", "it was used before; all tokens from the grant are revoked")
        }
        AuditEvent::Revoked { client_id, kind, id } => {
            let entity = if *kind == "family" { "grant" } else { "token" };
            RenderedEvent::new(AUTHENTICATION, ours("revocation", "Token revoked"), "D")
                .client(client_id.clone())
                .about(entity, id)
        }
        AuditEvent::KeysRotated => {
            RenderedEvent::new(CONFIGURATION, ours("key-rotation", "Signing keys rotated"), "U")
        }
        AuditEvent::KeyRevoked { kid } => {
            RenderedEvent::new(CONFIGURATION, ours("key-revocation", "Signing key revoked"), "D")
                .about("key", kid)
        }
        AuditEvent::User { action, sub } => {
            RenderedEvent::new(ATTRIBUTES, ours("user", "User record"), action_code(*action))
                .about("user", sub)
        }
        AuditEvent::SignInMethod { action, sub, method } => {
            RenderedEvent::new(ATTRIBUTES, ours("sign-in-method", "Way to sign in"), action_code(*action))
                .about("user", sub)
                .detail("method", method.name())
        }
        AuditEvent::DeviceAnswered { sub, client_id, scope } => {
            let rendered = RenderedEvent::new(ATTRIBUTES, ours("device", "Device authorization"), "C");
            let rendered = rendered.user(sub.clone()).about("client", client_id).detail("scope", scope);
            if scope.is_empty() { rendered.refused("4", "the user denied access") } else { rendered }
        }
        AuditEvent::Client { action, client_id } => {
            RenderedEvent::new(CONFIGURATION, ours("client", "Client record"), action_code(*action))
                .about("client", client_id)
        }
        // An event that this function does not know yet is recorded by its name alone.
        other => RenderedEvent::new(REST, ours("other", "Other"), "E").detail(
            "event",
            format!("{other:?}").split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default(),
        ),
    }
}

/// Renders an entry as a FHIR R4 AuditEvent. Without a caller, the server itself is the agent.
pub(super) fn render(
    entry: &AuditEntry,
    caller: Option<&AuditCaller>,
    time: Timestamp,
    id: &str,
    source: &AuditSource,
) -> Value {
    let observer = source.observer.as_str();
    let nobody = AuditCaller::default();
    let caller = caller.unwrap_or(&nobody);
    let parts = match entry {
        AuditEntry::Rest(event) => rest::render(event, caller, observer),
        AuditEntry::Identity(event) => render_parts(describe(event), caller, observer),
        AuditEntry::Further { event, count, minute } => {
            let record = describe(event).detail("further-events", &count.to_string());
            let mut parts = render_parts(record, caller, observer);
            // The events of a minute share one record, so that a client cannot fill the log.
            let end = *minute + SignedDuration::from_mins(1);
            parts["period"] =
                json!({ "start": fhir::instant::format(*minute), "end": fhir::instant::format(end) });
            parts
        }
        AuditEntry::Export { client_id, job, request } => {
            let export =
                RenderedEvent::new(EXPORT, ours("export", "Bulk export"), "R").client(client_id.clone());
            render_parts(export.about("job", job).detail("request", request), caller, observer)
        }
        AuditEntry::ExportCompleted { client_id, job, files, lines, bytes } => {
            let kind = ours("export-completed", "Bulk export completed");
            let export = RenderedEvent::new(EXPORT, kind, "E").about("job", job).detail("client", client_id);
            let export = export.detail("files", &files.to_string()).detail("lines", &lines.to_string());
            render_parts(export.detail("bytes", &bytes.to_string()), caller, observer)
        }
        AuditEntry::Download { job, file } => {
            let download = RenderedEvent::new(EXPORT, ours("export-file", "File of a bulk export"), "R");
            render_parts(download.about("job", job).detail("file", file), caller, observer)
        }
        AuditEntry::Import { stored, paths } => {
            let import = RenderedEvent::new(IMPORT, ours("import", "Import of resources"), "C");
            let import = import.detail("resources", &stored.to_string());
            let import = paths.iter().fold(import, |import, path| import.detail("path", path));
            render_parts(import, caller, observer)
        }
        AuditEntry::ReleaseRemoved { id } => {
            let removal = RenderedEvent::new(IMPORT, ours("release-removed", "Removal of a release"), "D");
            render_parts(removal.detail("release", id), caller, observer)
        }
        AuditEntry::StoreAccepted { moment } => {
            let kind = ours("store-accepted", "Acceptance of a restored store");
            let moment = fhir::instant::format(*moment);
            render_parts(
                RenderedEvent::new(IMPORT, kind, "U").detail("writes-until", &moment),
                caller,
                observer,
            )
        }
        AuditEntry::Erased { resource, resources } => {
            let erasure = RenderedEvent::new(IMPORT, ours("erasure", "Erasure of a record"), "D");
            let erasure = erasure.about("resource", resource).detail("resources", &resources.to_string());
            render_parts(erasure, caller, observer)
        }
    };
    let mut event =
        json!({ "resourceType": "AuditEvent", "id": id, "recorded": fhir::instant::format(time) });
    if let (Value::Object(event), Value::Object(parts)) = (&mut event, parts) {
        event.extend(parts);
    }
    event["source"] = json!({
        "site": source.node,
        "observer": { "display": observer },
        "type": [{
            "system": "http://terminology.hl7.org/CodeSystem/security-source-type",
            "code": "4",
            "display": "Application Server",
        }],
    });
    event
}

/// The parts of an event of a kind that has no profile.
fn render_parts(rendered: RenderedEvent, caller: &AuditCaller, observer: &str) -> Value {
    let mut actors = rendered.actors;
    if let Some(actor) = caller.actor.get().filter(|actor| !actors.contains(actor)) {
        actors.insert(0, actor.clone());
    }
    let network = caller.address.map(|address| json!({ "address": address.to_string(), "type": "2" }));
    let mut agents: Vec<Value> = actors
        .iter()
        .map(|actor| {
            let (kind, value) = match actor {
                AuditActor::Operator => ("operator", "command line"),
                AuditActor::User(sub) => ("user", sub.as_str()),
                AuditActor::Client(client_id) => ("client", client_id.as_str()),
            };
            json!({
                "type": { "text": kind },
                "who": { "identifier": { "system": observer, "value": value }, "display": kind },
                "requestor": false,
            })
        })
        .collect();
    if agents.is_empty() {
        // An unknown client; without an address, the server itself.
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
        "type": coding(rendered.kind),
        "subtype": [coding(rendered.subtype)],
        "action": rendered.action,
        "outcome": rendered.outcome,
        "agent": agents,
    });
    if let Some(description) = rendered.description {
        event["outcomeDesc"] = description.into();
    }
    if !entities.is_empty() {
        event["entity"] = entities.into();
    }
    event
}

/// A source of events for tests.
#[cfg(test)]
pub(super) fn test_source() -> AuditSource {
    AuditSource { observer: "https://as.example".to_owned(), node: "node-1".to_owned() }
}

/// Checks what R4 requires of an AuditEvent.
#[cfg(test)]
pub(super) fn check_shape(event: &Value) {
    assert_eq!(event["resourceType"], "AuditEvent");
    for member in ["/type/system", "/type/code", "/recorded", "/source/observer/display", "/source/site"] {
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

#[cfg(test)]
mod tests {
    use identity::audit::SignInMethod;

    use super::*;

    fn events() -> Vec<AuditEntry> {
        let text = || "x1".to_owned();
        let action = RecordAction::Delete;
        let mut events = vec![
            AuditEvent::SignIn { sub: text(), sid: text(), amr: vec![], provider: None },
            AuditEvent::SignInFailed { sub: None, reason: "too many attempts" },
            AuditEvent::SignOut { sid: text() },
            AuditEvent::SignOutEverywhere { sub: text() },
            AuditEvent::OneTimeLink { action: RecordAction::Create, sub: text(), id: text() },
            AuditEvent::Consent { sub: text(), client_id: text(), scope: String::new() },
            AuditEvent::Granted { sub: text(), client_id: text(), scope: text(), family: text() },
            AuditEvent::TokenIssued { jti: text(), sub: text(), client_id: text(), scope: text() },
            AuditEvent::ClientRejected { client_id: None, reason: text() },
            AuditEvent::Reused { kind: "code", client_id: text(), sub: text(), family: text() },
            AuditEvent::Revoked { client_id: text(), kind: "jti", id: text() },
        ];
        events.extend([
            AuditEvent::SignInMethod { action, sub: text(), method: SignInMethod::Passkey },
            AuditEvent::DeviceAnswered { sub: text(), client_id: text(), scope: String::new() },
        ]);
        events.extend([AuditEvent::KeysRotated, AuditEvent::KeyRevoked { kid: text() }]);
        events.extend([
            AuditEvent::User { action, sub: text() },
            AuditEvent::Client { action, client_id: text() },
        ]);
        let mut entries: Vec<_> = events.into_iter().map(AuditEntry::Identity).collect();
        entries.extend([
            AuditEntry::Export { client_id: text(), job: text(), request: text() },
            AuditEntry::ExportCompleted { client_id: text(), job: text(), files: 2, lines: 7, bytes: 900 },
            AuditEntry::Download { job: text(), file: text() },
            AuditEntry::Import { stored: 3, paths: vec![text(), text()] },
            AuditEntry::ReleaseRemoved { id: text() },
            AuditEntry::StoreAccepted { moment: Timestamp::UNIX_EPOCH },
            AuditEntry::Erased { resource: text(), resources: 4 },
        ]);
        entries
    }

    #[test]
    fn every_event_is_an_audit_event() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        for entry in events() {
            for caller in [None, Some(&AuditCaller::default()), Some(&AuditCaller::operator())] {
                check_shape(&render(&entry, caller, now, "a1", &test_source()));
            }
            let address = Some("203.0.113.9".parse().unwrap());
            let caller = AuditCaller { address, request_id: Some("r1".into()), ..AuditCaller::default() };
            let event = render(&entry, Some(&caller), now, "a1", &test_source());
            check_shape(&event);
            assert_eq!(event["agent"][0]["network"], json!({ "address": "203.0.113.9", "type": "2" }));
        }
    }
}
