//! The secrets that are sent in a run. They are collected so that the server's log can be searched for them afterwards.

use std::collections::BTreeSet;
use std::sync::Mutex;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

use super::target::CookieJar;
use crate::wire::exchange::{Answer, SentRequest};

/// Names of members, form fields and URL parameters whose values are secrets.
const NAMES: [&str; 14] = [
    "access_token",
    "client_assertion",
    "client_secret",
    "code",
    "code_verifier",
    "csrf",
    "device_code",
    "id_token",
    "id_token_hint",
    "password",
    "refresh_token",
    "request_uri",
    "subject_token",
    "token",
];

/// Minimum length of a secret; shorter texts could occur by chance.
const SHORTEST: usize = 20;

/// The collected secrets.
#[derive(Default)]
pub struct SeenSecrets(Mutex<BTreeSet<String>>);

impl SeenSecrets {
    /// Collects the secrets of a profile: passwords, client secrets and private keys.
    pub fn of_profile(profile: &Map<String, Value>) -> Self {
        let secrets = Self::default();
        profile.values().for_each(|value| secrets.take_profile(value));
        secrets
    }

    fn take_profile(&self, value: &Value) {
        match value {
            Value::Object(members) => {
                for name in ["password", "client_secret", "d", "p", "q"] {
                    self.add(members.get(name).and_then(Value::as_str).unwrap_or_default());
                }
                members.values().for_each(|value| self.take_profile(value));
            }
            Value::Array(items) => items.iter().for_each(|value| self.take_profile(value)),
            _ => {}
        }
    }

    fn add(&self, secret: &str) {
        if secret.len() < SHORTEST {
            return;
        }
        let mut seen = self.0.lock().expect("no thread panics while it holds the lock");
        // The signature of a token is its secret part.
        let part = match secret.split('.').collect::<Vec<_>>()[..] {
            [_, _, signature] if signature.len() >= SHORTEST => signature,
            _ => secret,
        };
        seen.insert(part.to_owned());
    }

    fn take_pairs(&self, encoded: &str) {
        for (name, value) in form_urlencoded::parse(encoded.as_bytes()) {
            if NAMES.contains(&&*name) {
                self.add(&value);
            }
        }
    }

    /// Collects the secrets of a request.
    pub fn take_sent(&self, sent: &SentRequest) {
        self.take_pairs(sent.url.query().unwrap_or_default());
        if let Some(value) = sent.headers.get(http::header::AUTHORIZATION).and_then(|v| v.to_str().ok()) {
            let credentials = value.split_once(' ').map_or(value, |(_, rest)| rest);
            self.add(credentials);
            let basic = STANDARD.decode(credentials).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            if let Some((_, secret)) = basic.as_deref().and_then(|text| text.split_once(':')) {
                self.add(secret);
            }
        }
        // Larger bodies are test data of rows and contain no secrets.
        if sent.body.len() < 16 * 1024 {
            self.take_pairs(&String::from_utf8_lossy(&sent.body));
        }
    }

    /// Collects the secrets of a response, and the current cookies of the browser.
    pub fn take_answer(&self, answer: &Answer, cookies: &CookieJar) {
        cookies.values().for_each(|value| self.add(value));
        if let Some(to) = answer.location() {
            self.take_pairs(to.query().unwrap_or_default());
            self.take_pairs(to.fragment().unwrap_or_default());
        }
        if let Some(Value::Object(members)) = answer.json() {
            for name in NAMES {
                self.add(members.get(name).and_then(Value::as_str).unwrap_or_default());
            }
        }
    }

    /// Returns the number of secrets.
    pub fn len(&self) -> usize {
        self.0.lock().expect("no thread panics while it holds the lock").len()
    }

    /// Returns whether no secret was collected.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the lines of a text that contain a secret, shortened.
    pub fn found_in(&self, text: &str) -> Vec<String> {
        let seen = self.0.lock().expect("no thread panics while it holds the lock");
        let held = seen.iter().filter(|secret| text.contains(secret.as_str()));
        held.filter_map(|secret| text.lines().find(|line| line.contains(secret.as_str())))
            .map(|line| line.chars().take(300).collect())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_found_in_a_log() {
        let profile = json!({ "users": [{ "username": "willow", "password": "a-password-of-22-chars" }] });
        let secrets = SeenSecrets::of_profile(profile.as_object().unwrap());
        secrets.take_pairs("code=0123456789012345678901234&state=not-a-secret-at-all-0123456");
        secrets.add("eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ4In0.a-signature-that-is-long-enough");
        assert_eq!(secrets.len(), 3);
        assert_eq!(secrets.found_in("all is well\nstate not-a-secret-at-all-0123456"), [""; 0]);
        let log = "a\nb code=0123456789012345678901234 c\nd a-signature-that-is-long-enough";
        assert_eq!(secrets.found_in(log).len(), 2);
    }
}
