//! Identity providers for federated sign-in: a correct one, and one for each way in which a provider can
//! fail.
//!
//! The providers are stateless. The `code` of the redirect determines the response of the correct provider:
//! `400.invalid_grant` requests an error with this status and code, `SUB~MAIL~NONCE` an ID token for this
//! subject with this verified e-mail address, `SUB~MAIL~NONCE~AGE` one whose `auth_time` is so many seconds
//! ago, and any other text an ID token with the text as nonce. `!FAULT` after such a text is the fault of the
//! ID token: see [`add_fault`].

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use wiremock::matchers::path;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use crate::wire::jose;

/// Time that the server under test waits for a provider that does not answer, in milliseconds. It waits
/// longer for the others, so that rows do not depend on the speed of the machine.
const TIMEOUT_MS: u64 = 400;
/// The providers that do not answer.
const SILENT: [&str; 3] = ["SlowToken", "SlowKeys", "Stalled"];
/// A delay that is longer than this timeout.
const TOO_LONG: Duration = Duration::from_secs(20);
/// client_id of the server under test at each provider.
pub const CLIENT_ID: &str = "trefoil-at-provider";

/// All identity providers. They stop when this value is dropped.
pub struct FakeProviders {
    http: MockServer,
    raw: Vec<(&'static str, u16)>,
    refused: TcpSocket,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for FakeProviders {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

struct TokenResponder {
    key: Value,
    issuer: String,
}

impl Respond for TokenResponder {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let form: BTreeMap<String, String> = form_urlencoded::parse(&request.body).into_owned().collect();
        let code = form.get("code").map(String::as_str).unwrap_or_default();
        if let Some((status, error)) = code.split_once('.')
            && let Ok(status) = status.parse::<u16>()
        {
            return ResponseTemplate::new(status).set_body_json(json!({ "error": error }));
        }
        let now = Timestamp::now().as_second();
        let (code, fault) = code.split_once('!').unwrap_or((code, ""));
        let parts: Vec<&str> = code.split('~').collect();
        let (sub, email, verified, nonce) = match parts[..] {
            [sub, email, nonce] | [sub, email, nonce, _] => (sub, email, true, nonce),
            _ => ("outside-1", "ash@outside.example", false, code),
        };
        let mut claims = json!({
            "iss": self.issuer, "sub": sub, "aud": CLIENT_ID, "nonce": nonce,
            "iat": now, "exp": now + 300,
            "name": "Ash Outside", "given_name": "Ash", "family_name": "Outside",
            "preferred_username": "ash", "email": email, "email_verified": verified,
        });
        if let Some(age) = parts.get(3).and_then(|age| age.parse::<i64>().ok()) {
            claims["auth_time"] = (now - age).into();
        }
        add_fault(&mut claims, fault, now);
        match jose::sign(&self.key, &json!({ "alg": "ES256", "kid": "outside" }), &claims) {
            Ok(id_token) => ResponseTemplate::new(200).set_body_json(
                json!({ "access_token": "outside", "token_type": "Bearer", "id_token": id_token }),
            ),
            Err(_) => ResponseTemplate::new(500),
        }
    }
}

/// Adds a fault to the claims of an ID token: a wrong value of the claim with this name, or an e-mail address
/// that is `unverified`.
fn add_fault(claims: &mut Value, fault: &str, now: i64) {
    match fault {
        "aud" => claims["aud"] = "another-client".into(),
        "azp" => {
            claims["aud"] = json!([CLIENT_ID, "another-client"]);
            claims["azp"] = "another-client".into();
        }
        "iss" => claims["iss"] = "https://other.example".into(),
        "exp" => claims["exp"] = (now - 120).into(),
        "iat" => claims["iat"] = (now + 600).into(),
        "at_hash" => claims["at_hash"] = "77QmUPtjPfzWtF2AnpK9RQ".into(),
        "unverified" => claims["email_verified"] = false.into(),
        _ => {}
    }
}

impl FakeProviders {
    /// Starts the providers.
    ///
    /// # Errors
    /// An error if there is no free port or no key can be generated.
    pub async fn start() -> Result<Self> {
        let http = MockServer::start().await;
        let key = jose::fresh_key("outside")?;
        let keys = ResponseTemplate::new(200).set_body_json(json!({ "keys": [jose::public_half(&key)] }));
        let answers: [(&str, ResponseTemplate); 4] = [
            ("/keys", keys.clone()),
            (
                "/other-keys",
                ResponseTemplate::new(200)
                    .set_body_json(json!({ "keys": [jose::public_half(&jose::fresh_key("outside")?)] })),
            ),
            ("/slow/keys", keys.set_delay(TOO_LONG)),
            ("/slow/token", ResponseTemplate::new(200).set_delay(TOO_LONG)),
        ];
        for (url_path, answer) in answers {
            Mock::given(path(url_path)).respond_with(answer).mount(&http).await;
        }
        let discovered = format!("{}/discovered", http.uri());
        let document = json!({
            "issuer": discovered, "authorization_endpoint": format!("{discovered}/authorize"),
            "token_endpoint": format!("{discovered}/token"), "jwks_uri": format!("{}/keys", http.uri()),
            "authorization_response_iss_parameter_supported": true,
        });
        for (url_path, issuer) in [("/token", http.uri()), ("/discovered/token", discovered)] {
            let tokens = TokenResponder { key: key.clone(), issuer };
            Mock::given(path(url_path)).respond_with(tokens).mount(&http).await;
        }
        Mock::given(path("/discovered/.well-known/openid-configuration"))
            .respond_with(ResponseTemplate::new(200).set_body_json(document))
            .mount(&http)
            .await;
        let mut raw = Vec::new();
        let mut tasks = Vec::new();
        for (name, manner) in [
            ("reset", ProviderFault::Reset),
            ("cut", ProviderFault::Cut),
            ("stalled", ProviderFault::Stalled),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.context("failed to find a free port")?;
            raw.push((name, listener.local_addr()?.port()));
            tasks.push(tokio::spawn(serve(listener, manner)));
        }
        // Connections to a socket that does not listen are refused, and no other program gets its port.
        let silent = TcpSocket::new_v4()?;
        silent.bind(SocketAddr::from(([127, 0, 0, 1], 0))).context("failed to find a free port")?;
        Ok(Self { http, raw, refused: silent, tasks })
    }

    /// The `[[provider]]` sections for the server's configuration.
    pub fn config(&self) -> String {
        let http = self.http.uri();
        let (token, keys) = (format!("{http}/token"), format!("{http}/keys"));
        let slow = |what: &str| format!("{http}/slow/{what}");
        let raw = |name: &str| {
            let port = self.raw.iter().find(|(key, _)| *key == name).map_or(0, |(_, port)| *port);
            format!("http://127.0.0.1:{port}/token")
        };
        let port = self.refused.local_addr().map_or(0, |address| address.port());
        let silent_url = format!("http://127.0.0.1:{port}/token");
        let other_keys = format!("{http}/other-keys");
        let all = [
            ("Outside", token.as_str(), keys.as_str()),
            ("Two Words", &token, &keys),
            ("Strict", &token, &keys),
            ("ByMail", &token, &keys),
            ("Google", &token, &keys),
            ("SlowToken", &slow("token"), &keys),
            ("SlowKeys", &token, &slow("keys")),
            ("Forged", &token, &other_keys),
            ("Reset", &raw("reset"), &keys),
            ("Cut", &raw("cut"), &keys),
            ("Stalled", &raw("stalled"), &keys),
            ("Refused", &silent_url, &keys),
        ];
        let mut text = String::new();
        for (name, token, keys) in all {
            let preset = if name == "Google" { "preset = \"google\"\n" } else { "" };
            let (create, by_email) = (["Outside", "Two Words"].contains(&name), name == "ByMail");
            let timeout = match SILENT.contains(&name) {
                true => format!("timeout_ms = {TIMEOUT_MS}\n"),
                false => String::new(),
            };
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "[[provider]]\nname = \"{name}\"\n{preset}issuer = \"{http}\"\n\
                 authorization_endpoint = \"{http}/authorize\"\ntoken_endpoint = \"{token}\"\n\
                 jwks_uri = \"{keys}\"\nclient_id = \"{CLIENT_ID}\"\ncreate_users = {create}\n\
                 link_by_email = {by_email}\n\
                 {timeout}\n"
            );
        }
        for (name, issuer) in [("Discovered", format!("{http}/discovered")), ("Undiscovered", http)] {
            let _ = write!(
                text,
                "[[provider]]\nname = \"{name}\"\nissuer = \"{issuer}\"\nclient_id = \"{CLIENT_ID}\"\n\
                 create_users = true\n\n"
            );
        }
        text
    }

    /// The variables of the providers.
    pub fn vars(&self) -> Value {
        json!({ "uri": self.http.uri(), "client_id": CLIENT_ID })
    }
}

#[derive(Debug, Clone, Copy)]
enum ProviderFault {
    Reset,
    /// The connection ends in the middle of the response.
    Cut,
    /// The response is never completed.
    Stalled,
}

async fn serve(listener: TcpListener, manner: ProviderFault) {
    let mut open = Vec::new();
    while let Ok((stream, _)) = listener.accept().await {
        open.push(tokio::spawn(answer(stream, manner)));
    }
}

async fn answer(mut stream: TcpStream, manner: ProviderFault) {
    if matches!(manner, ProviderFault::Reset) {
        // Closing a socket with unread bytes makes the operating system reset the connection.
        drop(stream.readable().await);
        return;
    }
    let mut request = [0; 4096];
    let half_response =
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"id_token\":";
    if stream.read(&mut request).await.is_ok() && stream.write_all(half_response).await.is_ok() {
        match manner {
            ProviderFault::Stalled => std::future::pending().await,
            ProviderFault::Cut | ProviderFault::Reset => {}
        }
    }
}
