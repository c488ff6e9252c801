//! The request as handlers see it: [`RequestContext`] and [`RequestBody`].

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_util::{Stream, StreamExt as _};
use headers::{ETag, HeaderMapExt as _, IfNoneMatch};
use http::{HeaderMap, HeaderValue, Method, header};
use identity::model::client::Client;
use identity::params::Params;
use identity::sign_in::pending_quota::{PendingKind, TooManyPending};
use identity::tokens::access_token::{BadToken, TokenAccess, TokenCredentials};
use identity::tokens::dpop::BadProof;
use jiff::Timestamp;
use memchr::memmem;

use crate::http::browser_cookies::BrowserCookies;
use crate::node::app::App;
use crate::node::byte_budget::{BudgetExhausted, ByteReservation, UNRESERVED_BYTES};
use crate::node::capacity::{BATCH_ENTRY_COST, BODY_COST, TRANSACTION_ENTRY_COST};
use crate::records::audit;

/// Body of a request, as it arrives.
pub type BodyStream = Pin<Box<dyn Stream<Item = Result<Bytes, warp::Error>> + Send>>;

/// Maximum time for reading a whole body into memory.
const BODY_TIME: Duration = Duration::from_secs(60);
/// Maximum size and time for discarding an unread body.
const DRAIN_BYTES: usize = 64 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(20);

/// Body of a request, with the memory that is reserved for it. If a handler leaves a part unread, it is
/// discarded in the background, within limits: a connection that is closed with unread bytes is reset, and
/// the client never sees the response.
pub struct RequestBody {
    /// `None` after the end of the body.
    stream: Option<BodyStream>,
    /// According to the headers, the client sends a body without waiting for `100 Continue`.
    comes: bool,
    /// Length according to `Content-Length`, in bytes.
    announced: Option<usize>,
    /// Memory taken from the budget for request bodies, which is returned at the end of the request.
    reservation: ByteReservation,
}

impl RequestBody {
    /// The body of a request with these headers.
    pub fn new(headers: &HeaderMap, stream: BodyStream, reservation: ByteReservation) -> Self {
        let length = headers.get(header::CONTENT_LENGTH);
        let comes = headers.contains_key(header::TRANSFER_ENCODING) || length.is_some_and(|v| v != "0");
        Self {
            stream: Some(stream),
            comes: comes && !headers.contains_key(header::EXPECT),
            announced: length.and_then(|length| length.to_str().ok()?.parse().ok()),
            reservation,
        }
    }

    async fn next(&mut self) -> Option<Result<Bytes, warp::Error>> {
        let piece = self.stream.as_mut()?.next().await;
        if !matches!(piece, Some(Ok(_))) {
            self.stream = None;
        }
        piece
    }

    /// Reads the whole body, at most `limit` bytes.
    ///
    /// # Errors
    /// [`ReadBodyError`] if it is too large, too slow or incomplete, or if the memory for bodies is used up.
    pub async fn bytes(&mut self, limit: usize) -> Result<Bytes, ReadBodyError> {
        let announced = self.announced;
        if announced.is_some_and(|length| length > limit) {
            return Err(ReadBodyError::TooLarge(limit));
        }
        let read = async {
            // All at once and before the body is read: requests that each hold a part of the memory would
            // wait for each other.
            self.reserve(announced.unwrap_or_default()).await?;
            // The body usually arrives in one piece, which then is not copied.
            let first = match self.next().await {
                Some(piece) => piece.map_err(|_| ReadBodyError::Broken)?,
                None => Bytes::new(),
            };
            if first.len() > limit {
                return Err(ReadBodyError::TooLarge(limit));
            }
            if announced == Some(first.len()) {
                self.stream = None;
                return Ok(first);
            }
            let mut whole = Vec::with_capacity(announced.unwrap_or_default());
            whole.extend_from_slice(&first);
            drop(first);
            while let Some(piece) = self.next().await {
                let piece = piece.map_err(|_| ReadBodyError::Broken)?;
                let length = whole.len() + piece.len();
                if length > limit {
                    return Err(ReadBodyError::TooLarge(limit));
                }
                if length > whole.capacity() {
                    // Growing copies the bytes, so the capacity is doubled.
                    let capacity = (whole.len() * 2).clamp(length, limit);
                    self.reserve(capacity).await?;
                    whole.reserve_exact(capacity - whole.len());
                }
                whole.extend_from_slice(&piece);
            }
            Ok(whole.into())
        };
        tokio::time::timeout(BODY_TIME, read).await.map_err(|_| ReadBodyError::TimedOut)?
    }

    /// Reserves additional memory for the entries of a Bundle, each of which becomes several records.
    ///
    /// # Errors
    /// [`ReadBodyError::TooManyEntries`] if one client can never have so much, and [`ReadBodyError::Busy`] if
    /// the memory for bodies is used up.
    pub async fn reserve_entries(&mut self, body: &[u8]) -> Result<(), ReadBodyError> {
        let entries = memmem::find_iter(body, b"\"request\"").count();
        let entry_cost = match memmem::find(body, b"\"transaction\"") {
            Some(_) => TRANSACTION_ENTRY_COST,
            None => BATCH_ENTRY_COST,
        };
        let cost = body.len() * BODY_COST + entries * entry_cost;
        if entries > 1 && cost > self.reservation.largest() {
            let most = self.reservation.largest().saturating_sub(body.len() * BODY_COST) / entry_cost;
            return Err(ReadBodyError::TooManyEntries { entries, most });
        }
        self.reservation.cover(cost).await.map_err(ReadBodyError::Busy)
    }

    /// Reserves the memory for a body of this length and for its processing.
    async fn reserve(&mut self, length: usize) -> Result<(), ReadBodyError> {
        if length <= UNRESERVED_BYTES {
            return Ok(());
        }
        self.reservation.cover(length * BODY_COST).await.map_err(ReadBodyError::Busy)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let Some(mut stream) = self.stream.take().filter(|_| self.comes) else { return };
        tokio::spawn(tokio::time::timeout(DRAIN_TIME, async move {
            let mut bytes_left = DRAIN_BYTES;
            while let Some(Ok(piece)) = stream.next().await {
                let Some(rest) = bytes_left.checked_sub(piece.len()) else { return };
                bytes_left = rest;
            }
        }));
    }
}

/// A request and the services of the server.
pub struct RequestContext {
    /// The services of the server.
    pub app: Arc<App>,
    /// Time of arrival.
    pub now: Timestamp,
    /// Method.
    pub method: Method,
    /// Path, not decoded.
    pub path: String,
    /// Query without `?`, not decoded.
    pub query: String,
    /// Headers.
    pub headers: Arc<HeaderMap>,
    /// Cookies of this server, read once from the headers.
    pub cookies: BrowserCookies,
    /// Address of the client: the other end of the connection, or the address that a trusted proxy names.
    pub client_address: Option<IpAddr>,
    /// Id of the request, in the response and in the log.
    pub request_id: Arc<str>,
}

/// An error while reading a body.
#[derive(Debug, thiserror::Error)]
pub enum ReadBodyError {
    /// The body is too large.
    #[error("the body is larger than the limit of {0} bytes")]
    TooLarge(usize),
    /// A Bundle has too many entries.
    #[error(
        "the Bundle has {entries} entries, of which at most {most} can be processed together; send several Bundles, or raise [limits] body_memory_bytes"
    )]
    TooManyEntries {
        /// Number of entries.
        entries: usize,
        /// Maximum for a Bundle of this size.
        most: usize,
    },
    /// The body arrived too slowly.
    #[error("the body did not arrive in time")]
    TimedOut,
    /// The connection broke.
    #[error("the body ended early")]
    Broken,
    /// The memory for request bodies is used up.
    #[error("too many large request bodies are being read; try again in a few seconds")]
    Busy(BudgetExhausted),
}

impl RequestContext {
    /// The value of a header as text.
    pub fn header(&self, name: impl header::AsHeaderName) -> Option<&str> {
        self.headers.get(name).and_then(header_text)
    }

    /// Authenticates an access token (see
    /// [`identity::tokens::token_service::TokenService::authenticate_token`]).
    ///
    /// # Errors
    /// [`BadToken`] if the token or the proof is rejected.
    pub async fn authenticate_token(
        &self,
        credentials: &TokenCredentials<'_>,
    ) -> Result<Arc<TokenAccess>, BadToken> {
        let access = self.app.identity.tokens.authenticate_token(credentials, self.now).await?;
        audit::mark_authenticated();
        audit::set_client(&access.token.client_id);
        Ok(access)
    }

    /// Counts a record that this request is about to create, against the maximum for its source.
    ///
    /// # Errors
    /// [`TooManyPending`] if too many are pending.
    pub fn add_pending(&self, kind: PendingKind, client: Option<&Client>) -> Result<(), TooManyPending> {
        self.app.capacity.pending.add_request(kind, &self.address_text(), client, self.now)
    }

    /// The address of the client, or an empty text.
    pub fn address_text(&self) -> String {
        self.client_address.map(|ip| ip.to_string()).unwrap_or_default()
    }

    /// Parses the query.
    pub fn params(&self) -> Params {
        Params::parse(self.query.as_bytes())
    }

    /// The media type of the body in lower case, without parameters.
    pub fn content_type(&self) -> Option<String> {
        let value = self.header(header::CONTENT_TYPE)?;
        Some(value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
    }

    /// The access token of `Authorization: Bearer` or `DPoP`, for the latter with its proof. The scheme is
    /// case-insensitive (RFC 9110 section 11.1). Returns `None` if there is no such header, or more than one.
    ///
    /// # Errors
    /// [`BadProof::Count`] for a `DPoP` token without exactly one proof.
    pub fn credentials(&self) -> Result<Option<TokenCredentials<'_>>, BadProof> {
        let mut values = self.headers.get_all(header::AUTHORIZATION).iter();
        let (Some(first), None) = (values.next(), values.next()) else { return Ok(None) };
        let Some((scheme, token)) = header_text(first).and_then(|value| value.split_once(' ')) else {
            return Ok(None);
        };
        let token = token.trim();
        if token.is_empty() || token.as_bytes().contains(&b' ') {
            return Ok(None);
        }
        let credentials =
            TokenCredentials { token, proof: None, method: self.method.as_str(), path: &self.path };
        if scheme.eq_ignore_ascii_case("bearer") {
            return Ok(Some(credentials));
        }
        if !scheme.eq_ignore_ascii_case("dpop") {
            return Ok(None);
        }
        let proof = self.proof()?.ok_or(BadProof::Count)?;
        Ok(Some(TokenCredentials { proof: Some(proof), ..credentials }))
    }

    /// The DPoP proof, if there is one (RFC 9449 section 4.1).
    ///
    /// # Errors
    /// [`BadProof::Count`] if there are several.
    pub fn proof(&self) -> Result<Option<&str>, BadProof> {
        let mut proofs = self.headers.get_all("dpop").iter();
        match (proofs.next(), proofs.next()) {
            (None, _) => Ok(None),
            (Some(proof), None) => header_text(proof).map(Some).ok_or(BadProof::Malformed),
            (Some(_), Some(_)) => Err(BadProof::Count),
        }
    }

    /// The value of a preference in `Prefer`. The first one of its name counts (RFC 7240 section 2).
    pub fn preference(&self, name: &str) -> Option<&str> {
        let values = self.headers.get_all("prefer").iter().filter_map(header_text);
        values.flat_map(|value| value.split(',')).find_map(|preference| {
            let (own, value) = preference.split(';').next()?.split_once('=')?;
            own.trim().eq_ignore_ascii_case(name).then(|| value.trim().trim_matches('"'))
        })
    }

    /// Returns whether the request prefers `handling=lenient`.
    pub fn is_lenient(&self) -> bool {
        self.preference("handling").is_some_and(|handling| handling.eq_ignore_ascii_case("lenient"))
    }

    /// Returns whether `If-None-Match` contains this ETag or `*`, by weak comparison (RFC 9110 section
    /// 13.1.2).
    pub fn has_version(&self, etag: &str) -> bool {
        if_none_match_contains(&self.headers, etag)
    }
}

fn if_none_match_contains(headers: &HeaderMap, etag: &str) -> bool {
    let Ok(etag) = etag.parse::<ETag>() else { return false };
    headers.typed_get::<IfNoneMatch>().is_some_and(|candidate| !candidate.precondition_passes(&etag))
}

/// The version in the ETag of `If-Match`. ETags of versions are weak in FHIR, while `headers::IfMatch`
/// compares strongly, as RFC 9110 requires, and would never match.
pub fn etag_version(tag: &str) -> Option<u64> {
    tag.trim().trim_start_matches("W/").trim_matches('"').parse().ok()
}

/// The text of a header of ASCII characters. [`HeaderValue::to_str`] tests its bytes one by one.
fn header_text(value: &HeaderValue) -> Option<&str> {
    std::str::from_utf8(value.as_bytes()).ok().filter(|text| text.is_ascii())
}

/// Converts warp's stream of buffers to one of bytes.
pub fn body_stream<B: Buf>(
    stream: impl Stream<Item = Result<B, warp::Error>> + Send + 'static,
) -> BodyStream {
    Box::pin(stream.map(|piece| piece.map(|mut buf| buf.copy_to_bytes(buf.remaining()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn if_none_match_is_compared_weakly() {
        #[track_caller]
        fn check(values: &[&'static str], contains: bool) {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::IF_NONE_MATCH, http::HeaderValue::from_static(value));
            }
            assert_eq!(if_none_match_contains(&headers, "\"e\""), contains, "{values:?}");
            assert_eq!(if_none_match_contains(&headers, "W/\"e\""), contains, "{values:?}");
        }
        check(&["\"e\""], true);
        check(&["W/\"e\""], true);
        check(&["\"d\", \"e\""], true);
        check(&["\"d\"", "\"e\""], true);
        check(&["*"], true);
        check(&["\"d\""], false);
        check(&["e"], false);
        check(&[], false);
    }
}
