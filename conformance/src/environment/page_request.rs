//! Loads a page of the server.

use bytes::Bytes;
use http::{HeaderMap, Method};
use url::Url;

use crate::wire::exchange::SentRequest;

/// A GET request without headers.
pub fn get(url: Url) -> SentRequest {
    SentRequest { method: Method::GET, url, headers: HeaderMap::new(), body: Bytes::new() }
}
