//! Recorded exchanges for the Requests screen. Secrets are masked when an exchange is recorded, so that no
//! screen can show them.

use std::path::Path;

use http::{HeaderMap, HeaderName, StatusCode, header};
use jiff::Timestamp;
use reqwest::Request;
use serde_json::Value;
use url::{Url, form_urlencoded};

use crate::exact_json;

pub const MASK: &str = "•••";
/// Maximum size of a recorded body, in bytes.
const BODY_KEPT: usize = 16 * 1024;

/// Form fields, query parameters and JSON members whose values are secret.
const SECRET: [&str; 13] = [
    "device_code",
    "registration_access_token",
    "access_token",
    "refresh_token",
    "id_token",
    "id_token_hint",
    "token",
    "code",
    "code_verifier",
    "client_secret",
    "client_assertion",
    "password",
    "signature",
];

/// A recorded request with its response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedExchange {
    /// Number of the exchange in this process.
    pub id: u64,
    /// Time at which the request was sent.
    pub at: Timestamp,
    pub method: String,
    pub url: String,
    /// Names and values of the headers, in the order of sending.
    pub request_headers: Vec<(String, String)>,
    /// Body of the request, if it has one.
    pub request_body: Option<String>,
    /// Whether the recorded body is shorter than the one that was sent.
    pub truncated: bool,
    /// The response, or the reason why there is none; `None` until the response was read.
    pub outcome: Option<Result<RecordedResponse, String>>,
    /// Time from sending the request to the end of reading the response, in milliseconds.
    pub took_ms: u64,
    /// Time from sending the request to the headers of the response, in milliseconds; `None` without them.
    pub headers_ms: Option<u64>,
}

/// A program that sends HTTP requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpProgram {
    Curl,
    /// <https://httpie.io>.
    Httpie,
}

/// A response in the form in which it is displayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedResponse {
    pub status: u16,
    /// Names and values of the headers.
    pub headers: Vec<(String, String)>,
    /// The body as text, with formatted JSON; empty for files.
    pub body: String,
}

impl RecordedExchange {
    /// Starts the record of a request.
    pub(super) fn of(request: &Request, id: u64, time: Timestamp) -> Self {
        let form = is_form(request.headers());
        let request_body = request.body().and_then(|body| body.as_bytes()).unwrap_or_default();
        let body = Some(show_request_body(request_body, form));
        Self {
            id,
            at: time,
            method: request.method().to_string(),
            url: mask_url(request.url()),
            request_headers: show_headers(request.headers()),
            request_body: body.filter(|body| !body.is_empty()),
            truncated: request_body.len() > BODY_KEPT,
            outcome: None,
            took_ms: 0,
            headers_ms: None,
        }
    }

    /// The address without its origin.
    pub fn path(&self) -> String {
        let path = |url: Url| {
            let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
            format!("{}{query}", url.path())
        };
        Url::parse(&self.url).map_or_else(|_| self.url.clone(), path)
    }

    /// The exchange in one line.
    pub fn summary(&self) -> String {
        let outcome = match &self.outcome {
            None => "waiting".to_owned(),
            Some(Ok(answered)) => answered.status.to_string(),
            Some(Err(reason)) => format!("Error: {reason}"),
        };
        format!("{} {}  {outcome}", self.method, self.path())
    }

    /// The request as a command for a shell. The token is written as `$TOKEN`. `ca` is the file with the only
    /// certificates to trust.
    pub fn command(&self, program: HttpProgram, ca: Option<&Path>) -> String {
        let quote = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
        let (url, method) = (quote(&self.url), &self.method);
        let ca = ca.map(|ca| quote(&ca.to_string_lossy()));
        // HTTPie takes all words after the address for parts of the request, so that its options come first.
        let (start, target, ca_option, header_option, colon, body_option) = match program {
            HttpProgram::Curl => {
                ("curl -sS", format!("-X {method} {url}"), "--cacert", " -H", ": ", "--data-raw")
            }
            HttpProgram::Httpie => {
                ("http --ignore-stdin", format!("{method} {url}"), "--verify", "", ":", "--raw")
            }
        };
        let mut line = start.to_owned();
        if let Some(ca) = ca {
            line.push_str(&format!(" {ca_option} {ca}"));
        }
        if let Some(body) = &self.request_body {
            line.push_str(&format!(" {body_option} {}", quote(body)));
        }
        line.push_str(&format!(" {target}"));
        for (name, value) in &self.request_headers {
            let header = match name.as_str() {
                "authorization" => format!("\"authorization{colon}Bearer $TOKEN\""),
                _ => quote(&format!("{name}{colon}{value}")),
            };
            line.push_str(&format!("{header_option} {header}"));
        }
        line
    }
}

impl RecordedResponse {
    pub(super) fn read(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        Self { body: show_body(body, false), ..Self::head(status, headers) }
    }

    pub(super) fn head(status: StatusCode, headers: &HeaderMap) -> Self {
        Self { status: status.as_u16(), headers: show_headers(headers), body: String::new() }
    }
}

fn is_form(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.starts_with("application/x-www-form-urlencoded")
}

fn show_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let show = |(name, value): (&HeaderName, &http::HeaderValue)| {
        let text = match *name {
            header::AUTHORIZATION => {
                let text = value.to_str().unwrap_or_default();
                format!("{} {MASK}", text.split(' ').next().unwrap_or_default())
            }
            header::SET_COOKIE | header::COOKIE => MASK.to_owned(),
            header::LOCATION => Url::parse(value.to_str().unwrap_or_default())
                .map_or_else(|_| MASK.to_owned(), |url| mask_url(&url)),
            _ => String::from_utf8_lossy(value.as_bytes()).into_owned(),
        };
        (name.to_string(), text)
    };
    headers.iter().map(show).collect()
}

fn is_secret(name: &str) -> bool {
    let signed = ["x-amz-signature", "x-goog-signature"];
    SECRET.contains(&name)
        || signed.iter().any(|candidate| name.eq_ignore_ascii_case(candidate))
        || name == "sig"
}

/// Returns whether a parameter of a query is secret. The `code` of a FHIR operation is not an authorization
/// code.
fn is_secret_parameter(url: &Url, name: &str) -> bool {
    let is_operation =
        url.path_segments().and_then(|mut path| path.next_back()).is_some_and(|last| last.starts_with('$'));
    is_secret(name) && !(is_operation && name == "code")
}

fn mask_url(url: &Url) -> String {
    if !url.query_pairs().any(|(name, _)| is_secret_parameter(url, &name)) {
        return url.to_string();
    }
    let mut masked_url = url.clone();
    masked_url.set_query(None);
    format!("{masked_url}?{}", mask_form(url.query().unwrap_or_default()))
}

/// Masks the secret values of a form. The other values keep their encoding.
fn mask_form(form: &str) -> String {
    let field = |field: &str| {
        let (name, _) = field.split_once('=')?;
        let is_secret_name =
            form_urlencoded::parse(name.as_bytes()).next().is_some_and(|(name, _)| is_secret(&name));
        is_secret_name.then(|| format!("{name}={MASK}"))
    };
    form.split('&').map(|text| field(text).unwrap_or_else(|| text.to_owned())).collect::<Vec<_>>().join("&")
}

/// The body of a request as it was sent, unless it contains a secret.
fn show_request_body(body: &[u8], form: bool) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(BODY_KEPT)]);
    let masked_body = show_body(body, form);
    if masked_body.contains(MASK) { masked_body } else { text.into_owned() }
}

fn show_body(body: &[u8], form: bool) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(BODY_KEPT)]);
    if form {
        return mask_form(&text);
    }
    match exact_json::parse(&String::from_utf8_lossy(body)) {
        Ok(mut json) => {
            mask_json(&mut json);
            exact_json::text(&json).chars().take(BODY_KEPT).collect()
        }
        Err(_) => text.into_owned(),
    }
}

/// Masks members that contain tokens, and the signatures of addresses. A FHIR resource may have a `code`
/// member too, but always has `resourceType`.
fn mask_json(json: &mut Value) {
    match json {
        Value::Object(object) if !object.contains_key("resourceType") => {
            for (name, value) in object {
                if is_secret(name) && value.is_string() {
                    *value = MASK.into();
                } else {
                    mask_json(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask_json),
        Value::String(text) if text.starts_with("http") && text.contains('?') => {
            if let Ok(url) = Url::parse(text) {
                *text = mask_url(&url);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> reqwest::Client {
        crate::install_crypto();
        reqwest::Client::new()
    }

    #[test]
    fn secrets_are_not_recorded() {
        let request = client()
            .post("https://as.example/oauth2/token?code=abc&state=s")
            .bearer_auth("very-secret")
            .header("content-type", "application/x-www-form-urlencoded")
            .body("grant_type=authorization_code&code=abc&code_verifier=xyz&client%5Fassertion=eyJ");
        let exchange = RecordedExchange::of(&request.build().unwrap(), 1, Timestamp::UNIX_EPOCH);
        assert_eq!(exchange.url, "https://as.example/oauth2/token?code=•••&state=s");
        assert_eq!(
            exchange.request_body.as_deref(),
            Some("grant_type=authorization_code&code=•••&code_verifier=•••&client%5Fassertion=•••"),
        );
        assert!(!format!("{exchange:?}").contains("very-secret"), "{exchange:?}");
        let command = exchange.command(HttpProgram::Curl, None);
        assert!(command.contains("Bearer $TOKEN"), "{command}");
        let body = br#"{"access_token":"eyJ.a.b","scope":"openid"}"#;
        let answered = RecordedResponse::read(StatusCode::OK, &HeaderMap::new(), body);
        assert!(!answered.body.contains("eyJ") && answered.body.contains("openid"), "{}", answered.body);
    }

    #[test]
    fn codes_of_devices_and_signed_addresses_are_masked() {
        let body =
            br#"{"device_code":"d1","output":[{"url":"https://s3.example/a?X-Amz-Signature=abc&x=1"}]}"#;
        let masked_body = show_body(body, false);
        assert!(
            !masked_body.contains("d1") && !masked_body.contains("abc") && masked_body.contains("x=1"),
            "{masked_body}"
        );
    }

    #[test]
    fn a_request_body_is_recorded_as_it_was_sent() {
        let request = client().post("https://t.example").body("{\"value\":1.50}");
        let exchange = RecordedExchange::of(&request.build().unwrap(), 1, Timestamp::UNIX_EPOCH);
        assert_eq!(exchange.request_body.as_deref(), Some("{\"value\":1.50}"));
        let request = client().post("https://t.example").body("x".repeat(BODY_KEPT + 1));
        assert!(RecordedExchange::of(&request.build().unwrap(), 1, Timestamp::UNIX_EPOCH).truncated);
    }

    #[test]
    fn fhir_codes_are_not_masked() {
        let lookup = "https://t.example/fhir/R4/CodeSystem/$lookup?system=s&code=cane";
        assert_eq!(mask_url(&lookup.parse().unwrap()), lookup);
        let redirect = mask_url(&"https://t.example/callback?code=c".parse().unwrap());
        assert_eq!(redirect, "https://t.example/callback?code=•••");
        let body = br#"{"resourceType":"Coding","code":"cane"}"#;
        assert!(show_body(body, false).contains("cane"));
    }

    #[test]
    fn commands_are_quoted_for_the_shell() {
        let request = client().get("https://as.example/a").header("x-note", "it's");
        let recorded_exchange = RecordedExchange::of(&request.build().unwrap(), 1, Timestamp::UNIX_EPOCH);
        assert_eq!(
            recorded_exchange.command(HttpProgram::Curl, None),
            r"curl -sS -X GET 'https://as.example/a' -H 'x-note: it'\''s'"
        );
        let request = client().post("https://as.example/a").bearer_auth("t").body("{}");
        let exchange = RecordedExchange::of(&request.build().unwrap(), 1, Timestamp::UNIX_EPOCH);
        assert_eq!(
            exchange.command(HttpProgram::Httpie, Some(Path::new("a b.pem"))),
            r#"http --ignore-stdin --verify 'a b.pem' --raw '{}' POST 'https://as.example/a' "authorization:Bearer $TOKEN""#
        );
    }
}
