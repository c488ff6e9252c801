//! Hosts of the public keys of clients: a valid one, one whose keys are rotated, and one for each way in
//! which a host can fail. This module also contains the clients that the server's configuration declares with
//! these hosts.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use wiremock::matchers::path;
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::error::SetupError;
use super::target::TestTarget;
use crate::wire::jose;

/// A delay that is longer than the server waits for a key set.
const TOO_LONG: Duration = Duration::from_secs(30);
/// A size above the limit for a key set, in bytes.
const TOO_LARGE: usize = 300 * 1024;
/// Redirect URI of the declared applications.
const CALLBACK: &str = "https://declared.example/callback";

/// Paths of key sets. For each path there is a client `keys-NAME`.
const PATHS: [&str; 7] = ["good", "turned", "slow", "huge", "moved", "missing", "text"];

/// Signature algorithms for ID tokens, one for each declared application.
const ALGORITHMS: [&str; 3] = ["ES256", "ES384", "EdDSA"];

/// All key hosts. They stop when this value is dropped.
pub struct KeyHosts {
    http: MockServer,
    refused: u16,
    key: Value,
    next: Value,
}

impl KeyHosts {
    /// Starts the hosts.
    ///
    /// # Errors
    /// An error if there is no free port or no key can be generated.
    pub async fn start() -> Result<Self> {
        let http = MockServer::start().await;
        let (key, next) = (jose::fresh_key("host-1")?, jose::fresh_key("host-2")?);
        let set = |key: &Value| {
            ResponseTemplate::new(200)
                .set_body_json(json!({ "keys": [jose::public_half(key)] }))
                .insert_header("cache-control", "max-age=3600")
        };
        // The first request returns the first key only; later requests return the next one.
        Mock::given(path("/turned")).respond_with(set(&key)).up_to_n_times(1).mount(&http).await;
        let moved = ResponseTemplate::new(302).insert_header("location", format!("{}/good", http.uri()));
        let answers: [(&str, ResponseTemplate); 7] = [
            ("/turned", set(&next)),
            ("/good", set(&key)),
            ("/slow", set(&key).set_delay(TOO_LONG)),
            ("/huge", ResponseTemplate::new(200).set_body_bytes(vec![b' '; TOO_LARGE])),
            ("/moved", moved),
            ("/missing", ResponseTemplate::new(404).set_body_json(json!({ "keys": [] }))),
            ("/text", ResponseTemplate::new(200).set_body_string("not a key set")),
        ];
        for (url_path, answer) in answers {
            Mock::given(path(url_path)).respond_with(answer).mount(&http).await;
        }
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("failed to find a free port")?
            .local_addr()?
            .port();
        Ok(Self { http, refused: listener, key, next })
    }

    /// The clients as pairs of name and URL of the keys.
    fn clients(&self) -> Vec<(String, String)> {
        let http = self.http.uri();
        let hosts = PATHS.map(|name| (format!("keys-{name}"), format!("{http}/{name}")));
        let port = self.http.address().port();
        let others = [
            ("keys-refused", format!("http://127.0.0.1:{}/keys", self.refused)),
            // The same host under a name that the configuration does not allow, and internal addresses.
            ("keys-private", format!("http://localhost:{port}/good")),
            ("keys-mapped", format!("https://[::ffff:127.0.0.1]:{port}/good")),
            ("keys-metadata", "https://169.254.169.254/latest/meta-data".to_owned()),
        ];
        hosts.into_iter().chain(others.map(|(name, address)| (name.to_owned(), address))).collect()
    }

    /// The sections for the server's configuration.
    pub fn config(&self) -> String {
        let mut text = String::from("[identity]\nallow_private_jwks = [\"127.0.0.1\"]\n\n");
        for (name, address) in self.clients() {
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "[[client]]\nclient_id = \"{name}\"\njwks_uri = \"{address}\"\nscope = \"system/*.rs\"\n\
                 token_endpoint_auth_signing_algs = [\"ES256\"]\n\n"
            );
        }
        let _ = write!(
            text,
            "[[client]]\nclient_id = \"keys-usual\"\njwks_uri = \"{}/good\"\nscope = \"system/*.rs\"\n\n",
            self.http.uri()
        );
        let _ = write!(
            text,
            "[[client]]\nclient_id = \"keys-issuer\"\njwks_uri = \"{}/good\"\nscope = \"system/*.rs\"\n\
             token_endpoint_auth_signing_algs = [\"ES256\"]\nassertion_audience = \"issuer\"\n\n",
            self.http.uri()
        );
        for alg in ALGORITHMS {
            let name = alg.to_lowercase();
            let _ = write!(
                text,
                "[[client]]\nclient_id = \"app-{name}\"\nredirect_uris = [\"{CALLBACK}\"]\nfirst_party = true\n\
                 id_token_signed_response_alg = \"{alg}\"\n\n"
            );
        }
        let _ = write!(
            text,
            "[[client]]\nclient_id = \"app-admin\"\nredirect_uris = [\"{CALLBACK}\"]\nfirst_party = true\n\
             scope = \"openid trefoil/admin\"\n\n[[scope]]\nname = \"declared-notes\"\n\
             description = \"Read your notes\"\n\n\
             [[client]]\nclient_id = \"app-groups\"\nredirect_uris = [\"{CALLBACK}\"]\nfirst_party = true\n\
             scope = \"openid profile email groups offline_access\"\n\n\
             [[scope]]\nname = \"groups\"\ndescription = \"See your groups\"\n\n\
             [[claim]]\nname = \"groups\"\nscope = \"groups\"\n\n"
        );
        text
    }

    /// The declared applications in the format of clients in a profile: `declared.NAME`.
    pub fn profile(&self) -> Value {
        let names =
            ALGORITHMS.map(str::to_lowercase).into_iter().chain(["admin".to_owned(), "groups".to_owned()]);
        let app = |name: String| {
            let app = json!({ "client_id": format!("app-{name}"), "redirect_uris": [CALLBACK] });
            (name, app)
        };
        Value::Object(names.map(app).collect::<Map<_, _>>())
    }

    /// Returns assertions by the name of their client, and some that are each invalid in a different way.
    ///
    /// # Errors
    /// [`SetupError::Failed`] if the crypto library cannot sign.
    pub fn assertions(&self, target: &TestTarget) -> Result<Value, SetupError> {
        let sign_for = |key: &Value, client_id: &str, more: Value, audience: Option<Value>| {
            let mut header = json!({ "alg": "ES256", "typ": "JWT", "kid": key["kid"] });
            if let (Some(header), Value::Object(more)) = (header.as_object_mut(), more) {
                header.extend(more);
            }
            let mut claims = super::target::claims(target, client_id);
            if let Some(audience) = audience {
                claims["aud"] = audience;
            }
            let signed = jose::sign(key, &header, &claims);
            signed.map(Value::from).map_err(|error| SetupError::Failed(error.to_string()))
        };
        let sign = |key: &Value, client_id: &str, more: Value| sign_for(key, client_id, more, None);
        let mut all = Map::new();
        for (client_id, _) in self.clients() {
            let name = client_id.trim_start_matches("keys-").to_owned();
            all.insert(name, sign(&self.key, &client_id, json!({}))?);
        }
        let good = format!("{}/good", self.http.uri());
        for (name, key, client_id, more) in [
            ("turned_next", &self.next, "keys-turned", json!({})),
            ("unknown_kid", &self.key, "keys-good", json!({ "kid": "nobody" })),
            // `jku` must be the registered address (SMART Backend Services), not one that a client brings.
            ("with_jku", &self.key, "keys-good", json!({ "jku": good })),
            ("other_jku", &self.key, "keys-good", json!({ "jku": format!("{good}?") })),
            ("other_key", &self.next, "keys-good", json!({ "kid": "host-1" })),
            ("unregistered_alg", &self.key, "keys-usual", json!({})),
        ] {
            all.insert(name.to_owned(), sign(key, client_id, more)?);
        }
        let issuer = &target.addresses.base_url;
        for (name, header, audience) in [
            ("for_issuer", json!({}), json!(issuer)),
            ("for_issuer_typed", json!({ "typ": "client-authentication+jwt" }), json!(issuer)),
            ("for_issuer_in_list", json!({}), json!([issuer])),
            ("for_token_endpoint", json!({}), json!(format!("{issuer}/oauth2/token"))),
        ] {
            all.insert(name.to_owned(), sign_for(&self.key, "keys-issuer", header, Some(audience))?);
        }
        Ok(Value::Object(all))
    }
}
