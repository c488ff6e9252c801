//! The secrets that are sent in a run. They are collected so that reports can mask them, and so that the log
//! of our own server can be searched for them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

use super::cookies::CookieJar;
use super::masking;
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
/// Members of a JWK that are private (RFC 7518 6).
const PRIVATE_MEMBERS: [&str; 7] = ["d", "p", "q", "dp", "dq", "qi", "k"];
/// Minimum length of a cookie that is a secret. A shorter one, such as the language of a page, is masked in
/// headers only.
const SHORTEST_COOKIE: usize = 8;
/// The collected secrets. Clones share them.
#[derive(Clone, Default)]
pub struct SeenSecrets {
    /// Secrets as they were sent; of a signed token only the signature.
    values: Arc<Mutex<BTreeSet<String>>>,
    /// Secrets of further servers that the run has started.
    others: Arc<Mutex<Vec<SeenSecrets>>>,
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

    fn all(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.values.lock().expect("no thread panics while it holds the lock")
    }

    /// Also masks the secrets of another server, now and later.
    pub fn add_server(&self, other: &Self) {
        let mut others = self.others.lock().expect("no thread panics while it holds the lock");
        if !others.iter().any(|candidate| Arc::ptr_eq(&candidate.values, &other.values)) {
            others.push(other.clone());
        }
    }

    fn is_fhir(&self, url: &url::Url) -> bool {
        self.fhir_base.as_deref().is_some_and(|base| url.as_str().starts_with(base))
    }

    /// The text with all secrets masked, in each form in which requests, pages and JSON contain them.
    pub fn mask(&self, text: &str) -> String {
        let mut values = self.all().clone();
        for other in self.others.lock().expect("no thread panics while it holds the lock").iter() {
            values.extend(other.all().iter().cloned());
        }
        masking::mask(text, &values)
    }

    fn take_profile(&self, value: &Value) {
        match value {
            Value::Object(members) => {
                let private: &[&str] = if members.contains_key("kty") { &PRIVATE_MEMBERS } else { &[] };
                for name in ["password", "client_secret"].iter().chain(private) {
                    self.add(members.get(*name).and_then(Value::as_str).unwrap_or_default());
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

    fn is_known(&self, secret: &str) -> bool {
        self.all().contains(secret)
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
    pub fn take_sent(&self, request: &SentRequest) {
        if !self.is_fhir(&request.url) {
            self.take_pairs(request.url.query().unwrap_or_default(), Self::add_long);
        }
        if let Some(value) = request.headers.get(http::header::AUTHORIZATION).and_then(|v| v.to_str().ok()) {
            let credentials = value.split_once(' ').map_or(value, |(_, rest)| rest);
            self.add_long(credentials);
            let basic = STANDARD.decode(credentials).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            if let Some((_, secret)) = basic.as_deref().and_then(|text| text.split_once(':')) {
                self.add_long(secret);
                let secret = form_urlencoded::parse(format!("={secret}").as_bytes())
                    .next()
                    .map_or_else(String::new, |(_, secret)| secret.into_owned());
                if self.is_known(&secret) {
                    self.add(credentials);
                }
            }
        }
        // Larger bodies are test data of rows and contain no secrets.
        if request.body.len() < 16 * 1024 && !self.is_fhir(&request.url) {
            self.take_pairs(&String::from_utf8_lossy(&request.body), Self::add_long);
        }
    }

    /// Collects the secrets of a response, and the current cookies of the browser.
    pub fn take_answer(&self, response: &Answer, cookies: &CookieJar) {
        cookies.values().filter(|value| value.len() >= SHORTEST_COOKIE).for_each(|value| self.add(value));
        if let Some(to) = response.location() {
            self.take_pairs(to.query().unwrap_or_default(), Self::add);
            self.take_pairs(to.fragment().unwrap_or_default(), Self::add);
        }
        if let Some(Value::Object(members)) = response.json() {
            for name in NAMES {
                self.add(members.get(name).and_then(Value::as_str).unwrap_or_default());
            }
        }
    }

    /// The secrets that are long enough to be searched for.
    fn searched(&self) -> Vec<String> {
        self.all().iter().filter(|secret| secret.len() >= SHORTEST).cloned().collect()
    }

    /// The number of secrets that are searched for in a log.
    pub fn len(&self) -> usize {
        self.searched().len()
    }

    /// Returns whether there is no secret to search for.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The lines of a text that contain a secret, shortened.
    pub fn found_in(&self, text: &str) -> Vec<String> {
        let secrets = self.searched();
        let matches = secrets.iter().filter(|secret| text.contains(secret.as_str()));
        matches
            .filter_map(|secret| text.lines().find(|line| line.contains(secret.as_str())))
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
        assert_eq!(secrets.mask("<p>p&amp;1 a&quot;b</p>"), "<p>*** ***</p>");
    }

    #[test]
    fn keys_cookies_and_other_servers_are_masked() {
        let jwk = json!({ "kty": "oct", "k": "short" });
        let profile = json!({ "backend": [{ "jwk": jwk }], "declared": [{ "d": "free" }] });
        let secrets = SeenSecrets::of_profile(profile.as_object().unwrap(), None);
        let other = SeenSecrets::default();
        secrets.add_server(&other);
        other.add("later");
        assert_eq!(secrets.mask("short free later"), "*** free ***");
        let response = "200 OK\nset-cookie: lang=en; Path=/\nset-cookie: a=b\n\nen";
        assert_eq!(secrets.mask(response), "200 OK\nset-cookie: lang=***; Path=/\nset-cookie: a=***\n\nen");
    }
}
