//! The history of a run: requests with their nodes, times and answers, the faults, and the rules that the
//! history must satisfy. All times are those of the test's clock.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Time after which a revocation must hold on every node.
const REVOCATION_BOUND: Duration = Duration::from_secs(1);
/// Time after a fault in which requests can still fail.
pub const RECOVERY: Duration = Duration::from_secs(5);

/// Returns whether it is unknown what a request with this status did.
pub(crate) fn is_unknown(status: Option<u16>) -> bool {
    matches!(status, None | Some(503))
}

/// Purpose of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// The use of a credential that is accepted once: an assertion, a proof, a code, a refresh token, or the
    /// credential of a ceremony.
    UseOnce(String),
    /// The use of a token, or of another member of its family.
    UseToken(String),
    /// The use of a refresh token or a passkey, which no node may answer from a cache.
    UseUncached(String),
    /// The revocation of a token, or of its family, or the removal of a passkey.
    Revoke(String),
    /// A new version of a resource.
    Write(String),
    /// The newest version of a resource.
    Read(String),
    /// The creation of a resource unless a search finds one.
    CreateOnce(String),
    /// Any other request, with its name.
    Other(&'static str),
}

impl Action {
    /// The kind of the request.
    pub fn name(&self) -> &'static str {
        match self {
            Self::UseOnce(key) if key.starts_with("assertion") => "assertion",
            Self::UseOnce(key) if key.starts_with("proof") => "DPoP proof",
            Self::UseOnce(key) if key.starts_with("code") => "code",
            Self::UseOnce(key) if key.starts_with("ceremony") => "ceremony of a passkey",
            Self::UseOnce(_) => "refresh token",
            Self::UseToken(_) => "token in use",
            Self::UseUncached(key) if key.starts_with("passkey") => "removed passkey",
            Self::UseUncached(_) => "refresh token of a revoked family",
            Self::Revoke(_) => "revocation",
            Self::Write(_) => "write",
            Self::Read(_) => "read",
            Self::CreateOnce(_) => "conditional create",
            Self::Other(name) => name,
        }
    }
}

/// A version of a resource: its number and content.
pub type SeenVersion = (u64, String);

/// A request and its result.
#[derive(Debug, Clone)]
pub struct Event {
    /// Number of the node; `None` for the balancer.
    pub node: Option<usize>,
    /// Its purpose.
    pub action: Action,
    /// The node asks the identity provider before it answers.
    pub asks_provider: bool,
    /// Time at which it was sent.
    pub begun: Duration,
    /// Time at which the answer had arrived.
    pub ended: Duration,
    /// The status; `None` if the connection failed.
    pub status: Option<u16>,
    /// The version that was written or read.
    pub version: Option<SeenVersion>,
}

impl Event {
    /// Returns whether the request was accepted. The answer to an accepted form is a redirect.
    pub fn is_accepted(&self) -> bool {
        matches!(self.status, Some(200..=299 | 303))
    }

    /// Returns whether it is unknown what the request did.
    fn is_unknown(&self) -> bool {
        is_unknown(self.status)
    }

    /// Returns whether the request failed. 502 and 504 are failures of a provider.
    fn is_failed(&self) -> bool {
        matches!(self.status, None | Some(502..=504))
    }
}

/// The requests that can fail because of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Affected {
    /// The requests at this node.
    Node(usize),
    /// The requests at all nodes.
    AllNodes,
    /// The requests for which a node asks the identity provider.
    Provider,
}

/// A fault with its start and end.
#[derive(Debug, Clone)]
pub struct FaultSpan {
    /// Description of the fault.
    pub name: String,
    /// The requests that can fail because of it.
    pub affected: Affected,
    /// Time of its start.
    pub begun: Duration,
    /// Time of its end.
    pub ended: Duration,
}

/// A code that a node did not know, although its write was acknowledged and the permitted time had passed.
#[derive(Debug, Clone)]
pub struct UnknownCode {
    /// The node.
    pub node: usize,
    /// The code.
    pub code: String,
    /// Time at which it was acknowledged.
    pub written: Duration,
    /// Time of the request, at which all nodes must know the code.
    pub asked: Duration,
}

/// The events of a run.
#[derive(Default)]
pub struct History {
    /// All requests, in order of their answers.
    pub events: Vec<Event>,
    /// All faults.
    pub faults: Vec<FaultSpan>,
    /// All versions of each resource after the run.
    pub versions: BTreeMap<String, Vec<SeenVersion>>,
    /// Codes that a node did not know.
    pub unknown_codes: Vec<UnknownCode>,
    /// Answers that are wrong whatever else happened.
    pub violations: Vec<String>,
}

impl History {
    /// Adds a violation for each kind of credential of which none was accepted. Kinds are the beginnings of
    /// the keys of [`Action::UseOnce`].
    pub fn require_accepted(&mut self, kinds: &[&str]) {
        for kind in kinds {
            let is_accepted = |event: &Event| {
                event.is_accepted() && matches!(&event.action, Action::UseOnce(key) if key.starts_with(*kind))
            };
            if !self.events.iter().any(is_accepted) {
                self.violations.push(format!("no {kind} was accepted"));
            }
        }
    }

    /// Adds the violations of all rules. Returns the latest acceptance of a token after its revocation.
    pub fn apply_rules(&mut self) -> Duration {
        self.check_failures();
        self.check_single_use();
        let latest = self.check_revocations();
        self.check_resources();
        self.check_codes();
        latest
    }

    /// Applies all rules, prints figures, and panics with the violations.
    pub fn check(mut self) {
        let latest = self.apply_rules();
        self.print(latest);
        for event in &self.violations {
            println!("VIOLATION {event}");
        }
        assert!(
            self.violations.is_empty(),
            "{} violations, the first: {}",
            self.violations.len(),
            self.violations[0]
        );
    }

    /// Requests fail only at nodes with a fault, while it lasts and until the recovery from it.
    fn check_failures(&mut self) {
        for event in self.events.iter().filter(|event| event.is_failed()) {
            if !self.is_excused(event.node, event.asks_provider, event.begun, event.ended) {
                self.violations.push(format!("failed without a fault: {event:?}"));
            }
        }
    }

    /// A credential is accepted once. It is accepted if no attempt failed.
    fn check_single_use(&mut self) {
        let mut uses: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
        for event in &self.events {
            if let Action::UseOnce(key) = &event.action {
                uses.entry(key).or_default().push(event);
            }
        }
        for (key, uses) in uses {
            let count = uses.iter().filter(|event| event.is_accepted()).count();
            if count > 1 {
                self.violations.push(format!("{key} was accepted {count} times: {uses:?}"));
            }
            if count == 0 && !uses.iter().any(|event| event.is_unknown()) {
                self.violations.push(format!("{key} was rejected by all nodes: {uses:?}"));
            }
        }
    }

    /// No token is accepted after its revocation. Returns the latest acceptance.
    fn check_revocations(&mut self) -> Duration {
        let mut revoked: HashMap<&str, Vec<&Event>> = HashMap::new();
        for event in self.events.iter().filter(|event| event.is_accepted()) {
            if let Action::Revoke(token) = &event.action {
                revoked.entry(token).or_default().push(event);
            }
        }
        let mut latest = Duration::ZERO;
        for event in self.events.iter().filter(|event| event.is_accepted()) {
            let (token, bound) = match &event.action {
                Action::UseToken(token) => (token, REVOCATION_BOUND),
                Action::UseUncached(token) => (token, Duration::ZERO),
                _ => continue,
            };
            for revocation in revoked.get(token.as_str()).into_iter().flatten() {
                let late = event.begun.saturating_sub(revocation.ended);
                let bound = if event.node == revocation.node { Duration::ZERO } else { bound };
                if late > bound {
                    self.violations.push(format!("accepted {late:?} after {revocation:?}: {event:?}"));
                }
                latest = latest.max(late);
            }
        }
        latest
    }

    /// Every acknowledged version is stored once, with its number, and visible everywhere from then on.
    fn check_resources(&mut self) {
        let mut by_key: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
        for event in &self.events {
            if let (Action::Write(key) | Action::Read(key), Some(_)) = (&event.action, &event.version) {
                by_key.entry(key).or_default().push(event);
            }
        }
        for (key, mut events) in by_key {
            let versions = self.versions.get(key).map_or(&[][..], Vec::as_slice);
            let mut contents: Vec<_> = versions.iter().map(|(_, content)| content).collect();
            contents.sort();
            if let Some(pair) = contents.windows(2).find(|pair| pair[0] == pair[1]) {
                self.violations.push(format!("{key}: {} was written twice: {versions:?}", pair[0]));
            }
            for event in &events {
                let version = event.version.as_ref().filter(|(number, _)| *number > 0);
                if let Some(version) = version.filter(|version| !versions.contains(version)) {
                    self.violations.push(format!("{key}: {version:?} is lost: {event:?} {versions:?}"));
                }
            }
            // Acknowledged writes of the same version: one of them is lost.
            let mut writes: Vec<_> =
                events.iter().filter(|event| matches!(event.action, Action::Write(_))).collect();
            writes.sort_by_key(|event| &event.version);
            for pair in writes
                .windows(2)
                .filter(|pair| pair[0].version.as_ref().map(|v| v.0) == pair[1].version.as_ref().map(|v| v.0))
            {
                self.violations.push(format!("{key}: written twice: {pair:?}"));
            }
            events.sort_by_key(|event| event.ended);
            let number = |event: &Event| event.version.as_ref().map_or(0, |(number, _)| *number);
            for event in &events {
                let earlier = events.partition_point(|other| other.ended < event.begun);
                if let Some(newer) = events[..earlier].iter().find(|other| number(other) > number(event)) {
                    self.violations.push(format!("{key}: went back: {newer:?}, then {event:?}"));
                }
            }
        }
    }

    /// All nodes know a code, unless they had a fault meanwhile.
    fn check_codes(&mut self) {
        for unknown in &self.unknown_codes {
            if !self.is_excused(Some(unknown.node), false, unknown.written, unknown.asked) {
                self.violations.push(format!("a code is not known: {unknown:?}"));
            }
        }
    }

    /// Returns whether a fault that affects such a request, or the recovery from it, overlaps this time. The
    /// balancer (`None`) uses all nodes.
    fn is_excused(&self, node: Option<usize>, asks_provider: bool, from: Duration, until: Duration) -> bool {
        self.faults.iter().any(|fault| {
            let is_affected = match fault.affected {
                Affected::Node(faulty) => node.is_none_or(|node| node == faulty),
                Affected::AllNodes => true,
                Affected::Provider => asks_provider,
            };
            is_affected && until >= fault.begun && from <= fault.ended + RECOVERY
        })
    }

    fn print(&self, latest: Duration) {
        for fault in &self.faults {
            println!("{:>6} to {:>6} ms: {}", fault.begun.as_millis(), fault.ended.as_millis(), fault.name);
        }
        let mut counts: BTreeMap<&str, BTreeMap<Option<u16>, usize>> = BTreeMap::new();
        for event in &self.events {
            *counts.entry(event.action.name()).or_default().entry(event.status).or_default() += 1;
        }
        for (name, statuses) in counts {
            let statuses: Vec<_> = statuses
                .iter()
                .map(|(status, count)| {
                    format!("{} {count}", status.map_or("lost".to_owned(), |s| s.to_string()))
                })
                .collect();
            println!("{name:<34} {}", statuses.join(", "));
        }
        let versions: usize = self.versions.values().map(Vec::len).sum();
        println!(
            "{} requests, {} faults, {versions} versions, latest acceptance {} ms after a revocation",
            self.events.len(),
            self.faults.len(),
            latest.as_millis()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_excuses_the_requests_that_it_affects() {
        let second = Duration::from_secs;
        let failed = |affected: Affected, node: Option<usize>, asks_provider: bool, start_s: u64| {
            let fault = FaultSpan { name: String::new(), affected, begun: second(10), ended: second(20) };
            let action = Action::Other("page");
            let (start, ended) = (second(start_s), second(start_s + 1));
            let event =
                Event { node, action, asks_provider, begun: start, ended, status: Some(503), version: None };
            let mut history = History { events: vec![event], faults: vec![fault], ..History::default() };
            history.apply_rules();
            !history.violations.is_empty()
        };
        // The recovery takes 5 s.
        for (begun, is_violation) in [(8, true), (9, false), (15, false), (25, false), (26, true)] {
            assert_eq!(failed(Affected::Node(1), Some(1), false, begun), is_violation, "{begun} s");
        }
        for affected in [Affected::Node(1), Affected::Provider] {
            assert!(failed(affected, Some(0), false, 15), "{affected:?}");
        }
        for (affected, node, asks_provider) in [
            (Affected::Node(1), None, false),
            (Affected::AllNodes, Some(0), false),
            (Affected::Provider, Some(0), true),
        ] {
            assert!(!failed(affected, node, asks_provider, 15), "{affected:?}");
        }
    }
}
