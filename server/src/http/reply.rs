//! How an answer is put together. No decisions here.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use jiff::Timestamp;
use maud::Markup;
use serde::Serialize;

/// A response as warp sends it.
pub type Response = warp::reply::Response;

/// Media type of FHIR JSON.
pub const FHIR_JSON: &str = "application/fhir+json;charset=utf-8";

/// Media type of pages.
pub const HTML: &str = "text/html;charset=utf-8";

/// A body of a media type.
pub fn body(status: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(body.into().into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// No body.
pub fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Bytes::new().into());
    *response.status_mut() = status;
    response
}

/// Plain JSON.
///
/// # Panics
/// Never for types of ours, whose serialisation cannot fail.
pub fn json(status: StatusCode, value: &impl Serialize) -> Response {
    body(status, "application/json;charset=UTF-8", written(value))
}

/// FHIR JSON.
///
/// # Panics
/// Never for types of ours, whose serialisation cannot fail.
pub fn fhir_json(status: StatusCode, value: &impl Serialize) -> Response {
    body(status, FHIR_JSON, written(value))
}

/// As JSON. Most answers fit into what is taken at first, so that they need not be moved as they grow.
fn written(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1024);
    serde_json::to_writer(&mut bytes, value).expect("our own types serialise");
    bytes
}

/// A page for people.
pub fn html(status: StatusCode, page: Markup) -> Response {
    body(status, HTML, page.into_string())
}

/// Sends the browser on.
pub fn redirect(status: StatusCode, to: &str) -> Response {
    with(empty(status), header::LOCATION, to)
}

/// A date as HTTP headers write it (RFC 9110 5.6.7).
pub fn http_date(at: Timestamp) -> String {
    jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&at).unwrap_or_default()
}

/// Adds a header. A value that no header can hold is left out.
#[must_use]
pub fn with(mut response: Response, name: HeaderName, value: &str) -> Response {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().append(name, value);
    }
    response
}

/// Adds a header whose value is known when this is compiled.
#[must_use]
pub fn with_static(mut response: Response, name: HeaderName, value: &'static str) -> Response {
    response.headers_mut().append(name, HeaderValue::from_static(value));
    response
}

/// Must not be kept by anybody on the way.
#[must_use]
pub fn no_store(response: Response) -> Response {
    with_static(with_static(response, header::CACHE_CONTROL, "no-store"), header::PRAGMA, "no-cache")
}
