//! Requests as text: method and address, headers, an empty line, and the body. Users edit recorded requests
//! in this format and send them again.

use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Method};
use url::Url;

use super::discovery::check_safe;
use super::exchange::{MASK, RecordedExchange};
use super::{Answer, Api, ApiError, Bearer};

/// Placeholder for the access token in an `authorization` header.
pub const TOKEN_PLACEHOLDER: &str = "$TOKEN";

/// Reason why a recorded request cannot be sent again.
const MASKED: &str = "the request contains masked secrets and cannot be sent again";

/// A request that the user edited or repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawRequest {
    pub method: Method,
    pub url: Url,
    /// Headers. The value of `authorization` contains [`TOKEN_PLACEHOLDER`] instead of a token.
    pub headers: HeaderMap,
    pub body: String,
}

impl RawRequest {
    /// Parses the text format. Lines that begin with `#` before the method are comments.
    ///
    /// # Errors
    /// The reason why the text is not a request.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.lines().skip_while(|line| line.starts_with('#') || line.trim().is_empty());
        let first = lines.next().ok_or("the request is empty")?;
        let (method, url) = first
            .trim()
            .split_once(' ')
            .ok_or_else(|| format!("'{first}' is not a method and an address"))?;
        let method = method.parse().map_err(|_| format!("'{method}' is not an HTTP method"))?;
        let url = url.trim().parse().map_err(|error| format!("'{url}' is not an address: {error}"))?;
        let mut headers = HeaderMap::new();
        for line in lines.by_ref().take_while(|line| !line.trim().is_empty()) {
            let invalid = || format!("'{line}' is not a header");
            if line.contains(MASK) {
                return Err(MASKED.to_owned());
            }
            let (name, value) = line.split_once(':').ok_or_else(invalid)?;
            let name: HeaderName = name.trim().parse().map_err(|_| invalid())?;
            headers.append(name, HeaderValue::from_str(value.trim()).map_err(|_| invalid())?);
        }
        let body = lines.collect::<Vec<_>>().join("\n");
        if [first, &body].iter().any(|text| text.contains(MASK)) {
            return Err(MASKED.to_owned());
        }
        Ok(Self { method, url, headers, body })
    }
}

impl RecordedExchange {
    /// The request in the text format.
    ///
    /// # Errors
    /// The reason why the recorded request is not the one that was sent.
    pub fn request_text(&self) -> Result<String, String> {
        if self.truncated {
            return Err("the body of the request is longer than what is recorded".to_owned());
        }
        let mut text = format!("{} {}\n", self.method, self.url);
        for (name, value) in &self.request_headers {
            match name.as_str() {
                "authorization" if value.starts_with("Bearer ") => {
                    text.push_str(&format!("authorization: Bearer {TOKEN_PLACEHOLDER}\n"))
                }
                // The client computes the length.
                "content-length" => {}
                _ => text.push_str(&format!("{name}: {value}\n")),
            }
        }
        if let Some(body) = &self.request_body {
            text.push_str(&format!("\n{body}\n"));
        }
        Ok(text)
    }
}

impl Api {
    /// Sends a request of the user. The placeholder is replaced by the token of `bearer`, which is sent only
    /// to the server of the profile.
    ///
    /// # Errors
    /// The error of the request, for any status of the response.
    pub async fn send_raw(&self, request: RawRequest, bearer: &Bearer) -> Result<Answer, ApiError> {
        let RawRequest { method, url, mut headers, body } = request;
        let names_token =
            |value: &HeaderValue| value.to_str().is_ok_and(|text| text.contains(TOKEN_PLACEHOLDER));
        if headers.get("authorization").is_some_and(names_token) {
            self.check_own_server(&url)?;
            headers.remove("authorization");
            let request = self.http().request(method, url.clone()).headers(headers).body(body);
            return self.call(self.authorize(request, url.as_str(), bearer).await?).await;
        }
        self.call(self.http().request(method, url).headers(headers).body(body)).await
    }

    /// Checks that a token may be sent to this address.
    fn check_own_server(&self, url: &Url) -> Result<(), ApiError> {
        check_safe(url.as_str())?;
        let own = [&self.profile().base_url, &self.profile().fhir_base];
        let is_own = own.iter().any(|base| Url::parse(base).is_ok_and(|base| base.origin() == url.origin()));
        if is_own {
            return Ok(());
        }
        let reason = "tokens are only sent to the server of the profile; remove the authorization header";
        Err(ApiError::Unexpected { url: url.to_string(), reason: reason.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_parsed() {
        let text = "# a comment\n\nPOST https://t.example/a?b=c\nAccept: x/y\nauthorization: Bearer $TOKEN\n\n{\n  1\n}";
        let request = RawRequest::parse(text).unwrap();
        assert_eq!((request.method, request.url.as_str()), (Method::POST, "https://t.example/a?b=c"));
        assert_eq!(
            (&request.headers["accept"], request.body.as_str()),
            (&HeaderValue::from_static("x/y"), "{\n  1\n}")
        );
    }

    #[test]
    fn damaged_requests_are_rejected() {
        #[track_caller]
        fn check(text: &str, says: &str) {
            let error = RawRequest::parse(text).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        check("# only a comment\n", "empty");
        check("GET", "method and an address");
        check("G(T https://t.example", "not an HTTP method");
        check("GET /relative", "not an address");
        check("GET https://t.example\nheader\n", "not a header");
        check("POST https://t.example\n\ncode=•••", "masked secrets");
    }
}
