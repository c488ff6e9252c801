//! Building responses.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use jiff::Timestamp;
use maud::Markup;
use serde::Serialize;

/// The response type of warp.
pub type Response = warp::reply::Response;

/// Media type of FHIR JSON.
pub const FHIR_JSON: &str = "application/fhir+json;charset=utf-8";

/// Media type of pages.
pub const HTML: &str = "text/html;charset=utf-8";

/// A response with a body.
pub fn body(status: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(body.into().into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// A response without a body.
pub fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Bytes::new().into());
    *response.status_mut() = status;
    response
}

/// A JSON response.
///
/// # Panics
/// Panics if the value cannot be serialized, which is a bug.
pub fn json(status: StatusCode, value: &impl Serialize) -> Response {
    body(status, "application/json;charset=UTF-8", written(value))
}

/// A FHIR JSON response.
///
/// # Panics
/// Panics if the value cannot be serialized, which is a bug.
pub fn fhir_json(status: StatusCode, value: &impl Serialize) -> Response {
    body(status, FHIR_JSON, written(value))
}

/// Serializes a value. Most responses fit into the initial capacity and need not be moved.
fn written(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1024);
    serde_json::to_writer(&mut bytes, value).expect("these types serialise to JSON");
    bytes
}

/// A page.
pub fn html(status: StatusCode, page: Markup) -> Response {
    body(status, HTML, page.into_string())
}

/// A redirect.
pub fn redirect(status: StatusCode, to: &str) -> Response {
    with(empty(status), header::LOCATION, to)
}

/// Formats a date for HTTP headers (RFC 9110 section 5.6.7).
pub fn http_date(time: Timestamp) -> String {
    jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&time).unwrap_or_default()
}

/// Adds a header. A value that is not valid in a header is left out.
#[must_use]
pub fn with(mut response: Response, name: HeaderName, value: &str) -> Response {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().append(name, value);
    }
    response
}

/// Adds a header with a constant value.
#[must_use]
pub fn with_static(mut response: Response, name: HeaderName, value: &'static str) -> Response {
    response.headers_mut().append(name, HeaderValue::from_static(value));
    response
}

/// Adds the headers that forbid caching.
#[must_use]
pub fn no_store(response: Response) -> Response {
    with_static(with_static(response, header::CACHE_CONTROL, "no-store"), header::PRAGMA, "no-cache")
}
