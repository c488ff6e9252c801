//! Every secret that goes over the wire in a run, kept so that the server's log can be searched for them
//! afterwards.

use std::collections::BTreeSet;
use std::sync::Mutex;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

use super::target::CookieJar;
use crate::wire::exchange::{Answer, SentRequest};

/// Members of answers, parameters of forms and of addresses that are secrets.
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

/// The secrets that were seen.
#[derive(Default)]
pub struct SeenSecrets(Mutex<BTreeSet<String>>);

impl SeenSecrets {
    /// Takes up what the profile holds: passwords, client secrets, private halves of keys.
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
        let mut seen = self.0.lock().expect("no thread panics while it is held");
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

    /// Takes up what a request carried.
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
        // Rows that fill a body with rubbish send no secrets.
        if sent.body.len() < 16 * 1024 {
            self.take_pairs(&String::from_utf8_lossy(&sent.body));
        }
    }

    /// Takes up what an answer carried, and the cookies that the browser has now.
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
        self.0.lock().expect("no thread panics while it is held").len()
    }

    /// Was none seen?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the lines of a text that contain a secret, shortened.
    pub fn found_in(&self, text: &str) -> Vec<String> {
        let seen = self.0.lock().expect("no thread panics while it is held");
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
    fn secrets_are_found_where_they_stand() {
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
