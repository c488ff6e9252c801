//! Memory for the answer of a request. An answer can be thousands of times larger than its request, so its
//! bytes are taken from a budget before the answer is built, and are returned when it was sent or its client
//! has left.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, StatusCode, header};
use identity::tokens::access_token::TokenAccess;
use warp::Reply as _;

use super::extract::RequestContext;
use super::reply::{self, Response};
use crate::node::byte_budget::{BudgetExhausted, BudgetOwner, ByteReservation};

/// Maximum number of bytes of the matches on a page of a search, if the budget is large enough.
const PAGE_BYTES: usize = 16 << 20;
/// Factor by which a Bundle, while it is written, takes more memory than its resources.
const WRITTEN_BUNDLE: usize = 2;

/// The memory of one answer.
pub struct AnswerMemory {
    reservation: ByteReservation,
    /// Bytes that are reserved for what was read.
    held: usize,
}

impl AnswerMemory {
    /// The memory for an answer to the client of a token. It counts against the budget of this client and
    /// user, so that one client does not use up the memory of all others. Requests without a token count by
    /// address.
    pub fn new(context: &RequestContext, token: Option<&TokenAccess>) -> Self {
        let owner = match token {
            Some(access) => BudgetOwner::Client {
                client_id: access.token.client_id.as_str().into(),
                sub: access.token.sub.as_str().into(),
            },
            None => BudgetOwner::Address(context.client_address),
        };
        Self { reservation: context.app.capacity.answers.reservation(owner), held: 0 }
    }

    /// The size at which a page of a search ends.
    pub fn page_bytes(context: &RequestContext) -> usize {
        PAGE_BYTES.min(context.app.capacity.answers.per_owner() / (2 * WRITTEN_BUNDLE))
    }

    /// Reads something of which only the reader knows the size, and reserves its memory. If there is none,
    /// the value is dropped, and is read again when there is.
    ///
    /// # Errors
    /// The error of `read`, or [`BudgetExhausted`] if the memory is not available in time.
    pub async fn hold<T, E: From<BudgetExhausted>, F: Future<Output = Result<T, E>>>(
        &mut self,
        read: impl Fn() -> F,
        size: impl Fn(&T) -> usize,
    ) -> Result<T, E> {
        loop {
            let value = read().await?;
            let total = self.held + size(&value);
            if self.reservation.try_cover(total).is_ok() {
                self.held = total;
                return Ok(value);
            }
            // A value that waits for memory would itself be memory that nobody counts.
            drop(value);
            self.reservation.cover(total).await?;
        }
    }

    /// Like [`AnswerMemory::hold`], for resources that are written into a Bundle.
    ///
    /// # Errors
    /// See [`AnswerMemory::hold`].
    pub async fn hold_for_bundle<T, E: From<BudgetExhausted>, F: Future<Output = Result<T, E>>>(
        &mut self,
        read: impl Fn() -> F,
        size: impl Fn(&T) -> usize,
    ) -> Result<T, E> {
        self.hold(read, |value| size(value) * WRITTEN_BUNDLE).await
    }

    /// Reserves the memory of an answer that exists already.
    ///
    /// # Errors
    /// [`BudgetExhausted`] if the memory is not available now.
    pub fn hold_now(&mut self, bytes: usize) -> Result<(), BudgetExhausted> {
        self.reservation.try_cover(self.held + bytes)?;
        self.held += bytes;
        Ok(())
    }

    /// Like [`AnswerMemory::hold_now`], for resources that are written into a Bundle.
    ///
    /// # Errors
    /// See [`AnswerMemory::hold_now`].
    pub fn hold_for_bundle_now(&mut self, bytes: usize) -> Result<(), BudgetExhausted> {
        self.hold_now(bytes * WRITTEN_BUNDLE)
    }

    /// The bytes of the answer. The memory is returned when the last copy of them is dropped.
    pub fn attach(self, bytes: impl Into<Bytes>) -> Bytes {
        self.reservation.attach(bytes)
    }

    /// A response whose body consists of several pieces. The memory is returned when the last piece was sent.
    pub fn respond(self, media_type: &'static str, mut pieces: Vec<Bytes>) -> Response {
        let length: usize = pieces.iter().map(Bytes::len).sum();
        let last = self.reservation.attach_last(pieces.pop().unwrap_or_default(), length);
        if pieces.is_empty() {
            return reply::body(StatusCode::OK, media_type, last);
        }
        pieces.push(last);
        let pieces = stream::iter(pieces.into_iter().map(Ok::<_, Infallible>));
        let mut response = warp::reply::stream(pieces).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        response
    }
}
