//! The accept loop: TLS by rustls, HTTP/2 and HTTP/1.1, a timer for everything a client can be slow
//! at, a cap on connections, and a drain with a deadline (DESIGN 5, HTTP).
//!
//! The protocol is what ALPN agreed on; without TLS it is HTTP/1.1. Guessing it from the first
//! bytes would leave silent clients open for ever.

use std::future::Future;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;

use super::routes::Routes;

/// The other end of a connection, in the extensions of each request.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub SocketAddr);

/// How long a client may take.
#[derive(Debug, Clone, Copy)]
pub struct Timers {
    /// TLS handshake; and the first byte.
    pub first: Duration,
    /// A request head.
    pub head: Duration,
    /// Nothing in either direction. It is looked at when it is over, so that silence ends a connection after
    /// once to twice this time.
    pub idle: Duration,
    /// From the wish to stop until open connections are cut.
    pub drain: Duration,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(10),
            head: Duration::from_secs(15),
            idle: Duration::from_secs(75),
            drain: Duration::from_secs(20),
        }
    }
}

/// Binds the address; `127.0.0.1` brings `[::1]` along where the machine has it.
///
/// # Errors
/// The operating system's: the port is taken, or may not be used.
pub async fn bind(listen: SocketAddr) -> io::Result<Vec<TcpListener>> {
    let first = TcpListener::bind(listen).await?;
    let port = first.local_addr()?.port();
    let mut listeners = vec![first];
    if listen.ip() == SocketAddr::from(([127, 0, 0, 1], 0)).ip()
        && let Ok(second) = TcpListener::bind((Ipv6Addr::LOCALHOST, port)).await
    {
        listeners.push(second);
    }
    Ok(listeners)
}

/// Serves until `stop` turns true, then lets what is under way end within the drain time.
pub async fn serve(
    listeners: Vec<TcpListener>,
    tls: Option<Arc<rustls::ServerConfig>>,
    routes: Routes,
    connections: usize,
    timers: Timers,
    stop: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(connections));
    accept(&listeners, tls.map(TlsAcceptor::from), routes, places.clone(), timers, stop).await;
    // The kernel queues no more clients from here on.
    drop(listeners);
    // Every place back means that every connection has ended.
    let all = u32::try_from(connections).unwrap_or(u32::MAX);
    if timeout(timers.drain, places.acquire_many(all)).await.is_err() {
        tracing::warn!("connections still open after the drain time are cut");
    }
}

/// One loop for all listeners: a loop each would hold a place each while it waits.
async fn accept(
    listeners: &[TcpListener],
    acceptor: Option<TlsAcceptor>,
    routes: Routes,
    places: Arc<Semaphore>,
    timers: Timers,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        // A place first: while all are taken, new clients wait in the kernel's queue.
        let place = tokio::select! {
            place = places.clone().acquire_owned() => place.expect("the semaphore is never closed"),
            () = stopped(&mut stop) => return,
        };
        let accepted = tokio::select! {
            accepted = any_of(listeners) => accepted,
            () = stopped(&mut stop) => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, or a client that left at once: go on.
                tracing::warn!(%error, "failed to accept a connection");
                tokio::task::yield_now().await;
                continue;
            }
        };
        let (acceptor, routes, stop) = (acceptor.clone(), routes.clone(), stop.clone());
        tokio::spawn(async move {
            if let Err(error) = connection(stream, peer, acceptor, routes, timers, stop).await {
                tracing::debug!(%peer, %error, "connection ended");
            }
            drop(place);
        });
    }
}

/// The next client of any listener.
async fn any_of(listeners: &[TcpListener]) -> io::Result<(TcpStream, SocketAddr)> {
    std::future::poll_fn(|context| {
        for listener in listeners {
            if let Poll::Ready(accepted) = listener.poll_accept(context) {
                return Poll::Ready(accepted);
            }
        }
        Poll::Pending
    })
    .await
}

/// Waits for the wish to stop; a sender that is gone wishes it too.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stop| *stop).await);
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    routes: Routes,
    timers: Timers,
    stop: watch::Receiver<bool>,
) -> Result<(), BoxError> {
    stream.set_nodelay(true)?;
    let stream = Timed::new(stream, timers);
    match acceptor {
        None => http1(stream, peer, routes, timers, stop).await,
        Some(acceptor) => {
            let stream = timeout(timers.first, acceptor.accept(stream)).await??;
            match stream.get_ref().1.alpn_protocol() {
                Some(b"h2") => http2(stream, peer, routes, stop).await,
                _ => http1(stream, peer, routes, timers, stop).await,
            }
        }
    }
}

/// warp as a hyper service that knows the peer.
macro_rules! service {
    ($routes:expr, $peer:expr) => {{
        let inner = TowerToHyperService::new(warp::service($routes));
        service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
            request.extensions_mut().insert(Peer($peer));
            inner.call(request)
        })
    }};
}

async fn http1<S>(
    stream: S,
    peer: SocketAddr,
    routes: Routes,
    timers: Timers,
    stop: watch::Receiver<bool>,
) -> Result<(), BoxError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(timers.head).max_buf_size(64 * 1024);
    let connection = builder.serve_connection(TokioIo::new(stream), service!(routes, peer));
    until_stopped(connection, stop, |connection| connection.graceful_shutdown()).await
}

async fn http2<S>(
    stream: S,
    peer: SocketAddr,
    routes: Routes,
    stop: watch::Receiver<bool>,
) -> Result<(), BoxError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(100)
        .max_header_list_size(64 * 1024)
        .max_pending_accept_reset_streams(Some(20));
    let connection = builder.serve_connection(TokioIo::new(stream), service!(routes, peer));
    until_stopped(connection, stop, |connection| connection.graceful_shutdown()).await
}

/// Drives a connection; at the wish to stop tells it to end after what is under way.
async fn until_stopped<C>(
    connection: C,
    mut stop: watch::Receiver<bool>,
    shut_down: impl FnOnce(Pin<&mut C>),
) -> Result<(), BoxError>
where
    C: Future<Output = Result<(), hyper::Error>>,
{
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return Ok(ended?),
        () = stopped(&mut stop) => {}
    }
    shut_down(connection.as_mut());
    Ok(connection.await?)
}

/// A stream that fails when nothing moves: no first byte in time, or silence in both directions
/// for longer than the idle time. It covers what hyper's own timers do not: HTTP/2, slow bodies,
/// readers that stop reading.
struct Timed {
    stream: TcpStream,
    idle: Duration,
    /// Something moved since the deadline was set.
    moved: bool,
    /// Once too late, always too late: whoever asks next is told so too.
    expired: bool,
    deadline: Pin<Box<Sleep>>,
}

impl Timed {
    fn new(stream: TcpStream, timers: Timers) -> Self {
        Self {
            stream,
            idle: timers.idle,
            moved: false,
            expired: false,
            deadline: Box::pin(sleep_until(Instant::now() + timers.first)),
        }
    }

    /// Notes that something moved; where nothing did, asks whether the time is over. The clock is read once in
    /// an idle time and not for every piece.
    fn judge<T>(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.moved = true;
            return polled;
        }
        while !self.expired && self.deadline.as_mut().poll(context).is_ready() {
            if std::mem::take(&mut self.moved) {
                self.deadline.as_mut().reset(Instant::now() + self.idle);
            } else {
                self.expired = true;
            }
        }
        if self.expired { Poll::Ready(Err(io::ErrorKind::TimedOut.into())) } else { Poll::Pending }
    }
}

impl AsyncRead for Timed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.judge(cx, polled)
    }
}

impl AsyncWrite for Timed {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.judge(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.judge(cx, polled)
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
