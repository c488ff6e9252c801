//! A request as sent and its response as received, and both as text. The text of a request is a curl command.

use std::fmt::Write as _;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use serde_json::Value;
use url::Url;

/// Maximum number of characters of a body in the text.
const SHOWN_BODY: usize = 20_000;

/// A request as sent.
#[derive(Debug, Clone)]
pub struct SentRequest {
    /// HTTP method.
    pub method: Method,
    /// URL with the query.
    pub url: Url,
    /// Headers, without those that the HTTP client adds.
    pub headers: HeaderMap,
    /// Body of the request, as sent.
    pub body: Bytes,
}

/// A received response.
#[derive(Debug, Clone)]
pub struct Answer {
    /// HTTP status of the response.
    pub status: StatusCode,
    /// Headers of the response, as received.
    pub headers: HeaderMap,
    /// Complete body, as received.
    pub body: Bytes,
}

impl Answer {
    /// A header. Several values are joined with commas (RFC 9110 5.3).
    pub fn header(&self, name: &str) -> Option<String> {
        let values: Vec<_> = self
            .headers
            .get_all(name)
            .iter()
            .map(|value| String::from_utf8_lossy(value.as_bytes()))
            .collect();
        (!values.is_empty()).then(|| values.join(", "))
    }

    /// The media type of the body, without parameters.
    pub fn media_type(&self) -> Option<String> {
        let value = self.header("content-type")?;
        Some(value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
    }

    /// The body as text. Invalid UTF-8 is replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// The destination of a redirect.
    pub fn location(&self) -> Option<Url> {
        Url::parse(&self.header("location")?).ok()
    }
}

/// The request as a curl command for a shell.
pub fn curl(request: &SentRequest) -> String {
    let mut line = String::from("curl -i");
    if request.method != Method::GET {
        let _ = write!(line, " -X {}", request.method);
    }
    for (name, value) in &request.headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        let _ = write!(line, " -H {}", quoted(&format!("{name}: {}", value)));
    }
    if !request.body.is_empty() {
        let body = String::from_utf8_lossy(&request.body);
        let _ = write!(line, " --data-raw {}", quoted(&cut(&body)));
    }
    let _ = write!(line, " {}", quoted(request.url.as_str()));
    line
}

/// The response as text: status line, headers and body.
pub fn shown(response: &Answer) -> String {
    let mut text = format!("{}\n", response.status);
    for (name, value) in &response.headers {
        let _ = writeln!(text, "{name}: {}", String::from_utf8_lossy(value.as_bytes()));
    }
    let body = cut(&response.text());
    if !body.is_empty() {
        let _ = write!(text, "\n{body}");
    }
    text.trim_end().to_owned()
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN_BODY) {
        Some((end, _)) => format!("{}… ({} bytes in all)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_converted_to_a_curl_command() {
        let mut headers = HeaderMap::new();
        headers.insert("accept", http::HeaderValue::from_static("it's"));
        let request = SentRequest {
            method: Method::POST,
            url: Url::parse("https://localhost:1/oauth2/token").unwrap(),
            headers,
            body: Bytes::from_static(b"a=b"),
        };
        assert_eq!(
            curl(&request),
            r"curl -i -X POST -H 'accept: it'\''s' --data-raw 'a=b' 'https://localhost:1/oauth2/token'"
        );
    }
}
