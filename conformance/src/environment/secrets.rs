//! The secrets that are sent in a run. They are collected so that reports can mask them, and so that the log of our own
//! server can be searched for them.

use std::collections::BTreeSet;
use std::sync::Mutex;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

use super::cookies::CookieJar;
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

/// Minimum length of a secret that is searched for in a log; shorter texts could occur by chance.
const SHORTEST: usize = 20;
/// Text that replaces a secret in a report.
const MASK: &str = "***";

/// The collected secrets.
#[derive(Default)]
pub struct SeenSecrets {
    /// Secrets as they were sent; of a signed token only the signature.
    values: Mutex<BTreeSet<String>>,
    /// Base URL of the FHIR interface, where `code` is no secret.
    fhir_base: Option<String>,
}

impl SeenSecrets {
    /// Collects the secrets of a profile: passwords, client secrets and private keys.
    pub fn of_profile(profile: &Map<String, Value>, fhir_base: Option<&str>) -> Self {
        let secrets = Self { fhir_base: fhir_base.map(str::to_owned), ..Self::default() };
        profile.values().for_each(|value| secrets.take_profile(value));
        for token in profile.get("tokens").and_then(Value::as_object).into_iter().flat_map(Map::values) {
            secrets.add(token.as_str().unwrap_or_default());
        }
        secrets
    }

    fn all(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.values.lock().expect("no thread panics while it holds the lock")
    }

    fn is_fhir(&self, url: &url::Url) -> bool {
        self.fhir_base.as_deref().is_some_and(|base| url.as_str().starts_with(base))
    }

    /// Returns the text with all secrets masked: as they are, form-encoded, and in JSON.
    pub fn mask(&self, text: &str) -> String {
        let mut masked = text.to_owned();
        let mut values: Vec<String> = self.all().iter().cloned().collect();
        // A secret may contain another one.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        for value in values {
            let encoded: String = form_urlencoded::byte_serialize(value.as_bytes()).collect();
            let quoted = Value::from(value.as_str()).to_string();
            for form in [value.as_str(), encoded.as_str(), quoted.trim_matches('"')] {
                if masked.contains(form) {
                    masked = masked.replace(form, MASK);
                }
            }
        }
        masked
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
        if secret.is_empty() {
            return;
        }
        // The signature of a token is its secret part.
        let part = match secret.split('.').collect::<Vec<_>>()[..] {
            [_, _, signature] if signature.len() >= SHORTEST => signature,
            _ => secret,
        };
        self.all().insert(part.to_owned());
    }

    /// Adds a text that may be a word of a row instead of a secret, if it is long enough to be a secret.
    fn add_long(&self, text: &str) {
        if text.len() >= SHORTEST {
            self.add(text);
        }
    }

    fn take_pairs(&self, encoded: &str, add: fn(&Self, &str)) {
        for (name, value) in form_urlencoded::parse(encoded.as_bytes()) {
            if NAMES.contains(&&*name) {
                add(self, &value);
            }
        }
    }

    /// Collects the secrets of a request.
    pub fn take_sent(&self, sent: &SentRequest) {
        if !self.is_fhir(&sent.url) {
            self.take_pairs(sent.url.query().unwrap_or_default(), Self::add_long);
        }
        if let Some(value) = sent.headers.get(http::header::AUTHORIZATION).and_then(|v| v.to_str().ok()) {
            let credentials = value.split_once(' ').map_or(value, |(_, rest)| rest);
            self.add_long(credentials);
            let basic = STANDARD.decode(credentials).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            if let Some((_, secret)) = basic.as_deref().and_then(|text| text.split_once(':')) {
                self.add_long(secret);
            }
        }
        // Larger bodies are test data of rows and contain no secrets.
        if sent.body.len() < 16 * 1024 && !self.is_fhir(&sent.url) {
            self.take_pairs(&String::from_utf8_lossy(&sent.body), Self::add_long);
        }
    }

    /// Collects the secrets of a response, and the current cookies of the browser.
    pub fn take_answer(&self, answer: &Answer, cookies: &CookieJar) {
        cookies.values().for_each(|value| self.add_long(value));
        if let Some(to) = answer.location() {
            self.take_pairs(to.query().unwrap_or_default(), Self::add);
            self.take_pairs(to.fragment().unwrap_or_default(), Self::add);
        }
        if let Some(Value::Object(members)) = answer.json() {
            for name in NAMES {
                self.add(members.get(name).and_then(Value::as_str).unwrap_or_default());
            }
        }
    }

    /// Returns the secrets that are long enough to be searched for.
    fn searched(&self) -> Vec<String> {
        self.all().iter().filter(|secret| secret.len() >= SHORTEST).cloned().collect()
    }

    /// Returns the number of secrets that are searched for in a log.
    pub fn len(&self) -> usize {
        self.searched().len()
    }

    /// Returns whether there is no secret to search for.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the lines of a text that contain a secret, shortened.
    pub fn found_in(&self, text: &str) -> Vec<String> {
        let seen = self.searched();
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
        let secrets = SeenSecrets::of_profile(profile.as_object().unwrap(), Some("https://a.example/fhir"));
        secrets
            .take_pairs("code=0123456789012345678901234&state=not-a-secret-at-all-0123456", SeenSecrets::add);
        secrets.add("eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ4In0.a-signature-that-is-long-enough");
        assert_eq!(secrets.len(), 3);
        assert_eq!(secrets.found_in("all is well\nstate not-a-secret-at-all-0123456"), [""; 0]);
        let log = "a\nb code=0123456789012345678901234 c\nd a-signature-that-is-long-enough";
        assert_eq!(secrets.found_in(log).len(), 2);
    }

    #[test]
    fn secrets_of_any_length_are_masked() {
        let profile = json!({ "users": [{ "password": "p&1" }], "public": { "client_secret": "a\"b" } });
        let secrets = SeenSecrets::of_profile(profile.as_object().unwrap(), None);
        assert_eq!(secrets.mask("x=p%261&y=p&1 {\"s\":\"a\\\"b\"}"), "x=***&y=*** {\"s\":\"***\"}");
    }
}
