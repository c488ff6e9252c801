//! A stream with deadlines for what hyper's own timers do not cover: the first byte, the head of an HTTP/1.1
//! request counted from its first byte, and silence in both directions, which includes HTTP/2, slow bodies
//! and readers that stop reading.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::admission::ConnectionState;
use super::timers::ConnectionTimers;

/// A stream that fails with [`io::ErrorKind::TimedOut`] after a deadline.
pub struct TimedStream<S> {
    stream: S,
    state: Arc<ConnectionState>,
    timers: ConnectionTimers,
    /// Bytes moved since the deadline was set.
    moved: bool,
    /// Stays set, so that later calls fail, too.
    expired: bool,
    head: Option<ArrivingHead>,
    /// Set when requests are expected; the bytes of a TLS handshake do not begin a request.
    expects_requests: bool,
    deadline: Pin<Box<Sleep>>,
}

/// A request head that has begun to arrive.
struct ArrivingHead {
    since: Instant,
    /// [`ConnectionState::requests`] at that time; a higher number means that the head is complete.
    requests: u64,
    is_armed: bool,
}

impl<S> TimedStream<S> {
    /// A stream whose first byte must arrive within `timers.first`.
    pub fn new(stream: S, state: Arc<ConnectionState>, timers: ConnectionTimers) -> Self {
        let deadline = Box::pin(sleep_until(Instant::now() + timers.first));
        Self {
            stream,
            state,
            timers,
            moved: false,
            expired: false,
            head: None,
            expects_requests: false,
            deadline,
        }
    }

    /// Measures request heads from now on (HTTP/1.1).
    pub fn expect_requests(&mut self) {
        self.expects_requests = true;
    }

    /// Records that a head begins with the bytes just read, unless one is already arriving.
    fn note_head(&mut self) {
        let requests = self.state.requests();
        let is_same = self.head.as_ref().is_some_and(|head| head.requests == requests);
        if self.expects_requests && !is_same && self.state.is_waiting() {
            self.head = Some(ArrivingHead { since: Instant::now(), requests, is_armed: false });
        }
    }

    /// The deadline of the head that is arriving.
    fn head_deadline(&self) -> Option<Instant> {
        let head = self.head.as_ref().filter(|head| head.requests == self.state.requests())?;
        Some(head.since + self.timers.head)
    }

    /// Brings the deadline forward for a head that did not arrive in one piece. Most heads do, and need no
    /// timer.
    fn arm_for_head(&mut self) {
        let Some(deadline) = self.head_deadline() else { return };
        if let Some(head) = self.head.as_mut().filter(|head| !head.is_armed) {
            head.is_armed = true;
            if deadline < self.deadline.deadline() {
                self.deadline.as_mut().reset(deadline);
            }
        }
    }

    /// Passes on the result of a read or write, or a timeout. The timer is reset once per interval instead of
    /// for every read, so an idle connection ends after one to two times the idle time.
    fn check_deadline<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.moved = true;
            return polled;
        }
        self.arm_for_head();
        while !self.expired && self.deadline.as_mut().poll(context).is_ready() {
            let now = Instant::now();
            let head = self.head_deadline();
            if head.is_some_and(|head| head <= now) || !std::mem::take(&mut self.moved) {
                self.expired = true;
            } else {
                let idle = now + self.timers.idle;
                self.deadline.as_mut().reset(head.map_or(idle, |head| head.min(idle)));
            }
        }
        if self.expired { Poll::Ready(Err(io::ErrorKind::TimedOut.into())) } else { Poll::Pending }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if polled.is_ready() {
            self.note_head();
        }
        self.check_deadline(cx, polled)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.check_deadline(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.check_deadline(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
