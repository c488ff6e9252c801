//! What a handler gets: one [`Call`], with readers that yield `Result` so that the handler answers in
//! the dialect of its endpoint. No decisions here.

use std::borrow::Cow;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};
use http::{HeaderMap, Method, header};
use identity::client::Client;
use identity::dpop::BadProof;
use identity::params::Params;
use identity::pending::{PendingKind, TooManyPending};
use identity::token::Presented;
use jiff::Timestamp;
use percent_encoding::percent_decode_str;

use super::byte_budget::{BudgetExhausted, ByteReservation};
use crate::app::App;

/// Body of a request as it comes in.
pub type BodyStream = Pin<Box<dyn Stream<Item = Result<Bytes, warp::Error>> + Send>>;

/// Longest wait for a whole body that is read into memory.
const BODY_TIME: Duration = Duration::from_secs(60);
/// What is read away of a body that nobody wanted, in bytes and in time.
const DRAIN_BYTES: usize = 64 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(20);

/// Body of a request. What a handler leaves unread is read away behind it, within bounds: a connection
/// that is closed over unread bytes is reset, and the client never sees the answer.
pub struct Body {
    /// `None` once its end was seen.
    stream: Option<BodyStream>,
    /// Is there, by the headers, something that the client sends without being asked to?
    comes: bool,
}

impl Body {
    /// The body of a request with these headers.
    pub fn new(headers: &HeaderMap, stream: BodyStream) -> Self {
        let length = headers.get(header::CONTENT_LENGTH);
        let comes = headers.contains_key(header::TRANSFER_ENCODING) || length.is_some_and(|v| v != "0");
        Self { stream: Some(stream), comes: comes && !headers.contains_key(header::EXPECT) }
    }

    async fn next(&mut self) -> Option<Result<Bytes, warp::Error>> {
        let piece = self.stream.as_mut()?.next().await;
        if !matches!(piece, Some(Ok(_))) {
            self.stream = None;
        }
        piece
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        let Some(mut stream) = self.stream.take().filter(|_| self.comes) else { return };
        tokio::spawn(tokio::time::timeout(DRAIN_TIME, async move {
            let mut left = DRAIN_BYTES;
            while let Some(Ok(piece)) = stream.next().await {
                let Some(rest) = left.checked_sub(piece.len()) else { return };
                left = rest;
            }
        }));
    }
}

/// One request.
pub struct Call {
    /// The server.
    pub app: Arc<App>,
    /// When it came in.
    pub now: Timestamp,
    /// Method.
    pub method: Method,
    /// Path as it was sent.
    pub path: String,
    /// Values of the route's placeholders, decoded.
    pub args: Vec<String>,
    /// Query as it was sent, without `?`.
    pub query: String,
    /// Headers.
    pub headers: HeaderMap,
    /// Body. The mutex is never locked: it makes a call `Sync`, so that `&Call` may cross an await.
    pub body: Mutex<Body>,
    /// The memory that the body takes of the budget for all bodies; it returns with the end of the request.
    pub body_bytes: ByteReservation,
    /// The address of the client: the other end of the connection, or the one that a trusted proxy names.
    pub client_ip: Option<IpAddr>,
    /// Id of the request, in the answer and in the log.
    pub request_id: Arc<str>,
}

/// Why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// Too large.
    #[error("the body is larger than {0} bytes, the limit here")]
    TooLarge(usize),
    /// Too slow.
    #[error("the body did not arrive in time")]
    TimedOut,
    /// The connection broke.
    #[error("the body ended early")]
    Broken,
    /// Other bodies hold the memory that is set aside for them.
    #[error("the server is reading too many large bodies at the moment; try again in a few seconds")]
    Busy(BudgetExhausted),
}

impl Call {
    /// Value of a header as text.
    pub fn header(&self, name: impl header::AsHeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Counts a record that this request is about to create, against the maximum of its source.
    ///
    /// # Errors
    /// Returns [`TooManyPending`] if too many are pending.
    pub fn add_pending(&self, kind: PendingKind, client: Option<&Client>) -> Result<(), TooManyPending> {
        let address = self.client_ip.map(|ip| ip.to_string()).unwrap_or_default();
        self.app.pending.add(kind, &address, client, self.now)
    }

    /// The parameters of the query.
    pub fn params(&self) -> Params {
        Params::parse(self.query.as_bytes())
    }

    /// Media type of the body: lower case, without parameters.
    pub fn content_type(&self) -> Option<String> {
        let value = self.header(header::CONTENT_TYPE)?;
        Some(value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
    }

    /// The access token of `Authorization: Bearer` or `DPoP`, with the proof of the latter; the scheme's case
    /// does not matter (RFC 9110 11.1). `None` where there is no such header, or more than one.
    ///
    /// # Errors
    /// [`BadProof::Count`] for a `DPoP` token without exactly one proof.
    pub fn presented(&self) -> Result<Option<Presented<'_>>, BadProof> {
        let mut sent = self.headers.get_all(header::AUTHORIZATION).iter();
        let (Some(sent), None) = (sent.next(), sent.next()) else { return Ok(None) };
        let Some((scheme, token)) = sent.to_str().ok().and_then(|value| value.split_once(' ')) else {
            return Ok(None);
        };
        let token = token.trim();
        if token.is_empty() || token.as_bytes().contains(&b' ') {
            return Ok(None);
        }
        let presented = Presented { token, proof: None, method: self.method.as_str(), path: &self.path };
        if scheme.eq_ignore_ascii_case("bearer") {
            return Ok(Some(presented));
        }
        if !scheme.eq_ignore_ascii_case("dpop") {
            return Ok(None);
        }
        let proof = self.proof()?.ok_or(BadProof::Count)?;
        Ok(Some(Presented { proof: Some(proof), ..presented }))
    }

    /// The DPoP proof, where there is one (RFC 9449 4.1).
    ///
    /// # Errors
    /// [`BadProof::Count`] for more than one.
    pub fn proof(&self) -> Result<Option<&str>, BadProof> {
        let mut proofs = self.headers.get_all("dpop").iter();
        match (proofs.next(), proofs.next()) {
            (None, _) => Ok(None),
            (Some(proof), None) => proof.to_str().map(Some).map_err(|_| BadProof::Malformed),
            (Some(_), Some(_)) => Err(BadProof::Count),
        }
    }

    /// Value of a cookie.
    pub fn cookie(&self, name: &str) -> Option<&str> {
        let cookies = self.headers.get_all(header::COOKIE).iter();
        cookies
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .find_map(|(key, value)| (key == name).then_some(value))
    }

    /// The whole body, at most `limit` bytes.
    ///
    /// # Errors
    /// [`BodyError`].
    pub async fn bytes(&mut self, limit: usize) -> Result<Bytes, BodyError> {
        let announced = self.header(header::CONTENT_LENGTH).and_then(|text| text.parse::<usize>().ok());
        if announced.is_some_and(|length| length > limit) {
            return Err(BodyError::TooLarge(limit));
        }
        let body = self.body.get_mut().expect("nobody locks it");
        let reserved = &mut self.body_bytes;
        let read = async {
            // As a rule all of it comes in one piece, which then is not copied.
            let first = match body.next().await {
                Some(piece) => piece.map_err(|_| BodyError::Broken)?,
                None => Bytes::new(),
            };
            if first.len() > limit {
                return Err(BodyError::TooLarge(limit));
            }
            reserved.cover(first.len()).await.map_err(BodyError::Busy)?;
            if announced == Some(first.len()) {
                body.stream = None;
                return Ok(first);
            }
            let mut whole = BytesMut::from(first);
            while let Some(piece) = body.next().await {
                let piece = piece.map_err(|_| BodyError::Broken)?;
                if whole.len() + piece.len() > limit {
                    return Err(BodyError::TooLarge(limit));
                }
                if whole.len() + piece.len() > whole.capacity() {
                    // What grows is copied, so it grows by doubling up to the length that was announced.
                    let most = announced.unwrap_or(limit).max(whole.len() + piece.len());
                    let capacity = (whole.len() * 2).clamp(whole.len() + piece.len(), most);
                    reserved.cover(capacity).await.map_err(BodyError::Busy)?;
                    whole.reserve(capacity - whole.len());
                }
                whole.extend_from_slice(&piece);
            }
            Ok(whole.freeze())
        };
        tokio::time::timeout(BODY_TIME, read).await.map_err(|_| BodyError::TimedOut)?
    }
}

/// Decodes the segments of a path; `None` when one is no UTF-8.
pub fn segments(path: &str) -> Option<Vec<Cow<'_, str>>> {
    let decode = |segment| percent_decode_str(segment).decode_utf8().ok();
    path.trim_start_matches('/').split('/').map(decode).collect()
}

/// Turns warp's stream of buffers into one of bytes.
pub fn body_stream<B: Buf>(
    stream: impl Stream<Item = Result<B, warp::Error>> + Send + 'static,
) -> BodyStream {
    Box::pin(stream.map(|piece| piece.map(|mut buf| buf.copy_to_bytes(buf.remaining()))))
}
