//! The accept loop: TLS by rustls, HTTP/2 and HTTP/1.1, a timer for every phase in which a client can be
//! slow, maximum numbers of connections, and a stop that loses no request.
//!
//! ALPN selects the protocol; without TLS it is HTTP/1.1. Detecting it from the first bytes would leave the
//! connections of silent clients open forever.
//!
//! | module | contents |
//! |---|---|
//! | `bind` | the sockets: inherited from a service manager, or its own |
//! | [`admission`] | maximum numbers of connections, and the choice of the one to close |
//! | [`timed_stream`] | deadlines for bytes |
//! | `proxy_header` | the address of the client, as a TCP proxy says it |
//! | `first_byte` | tells TLS from plain HTTP |
//! | `timers` | the timers of a connection, and the phase in which a server answers |
//! | [`service`] | warp as a hyper service: peer address, `Host`, count of running requests |

pub mod admission;
mod bind;
mod first_byte;
mod proxy_header;
mod service;
mod timed_stream;
mod timers;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Once};
use std::task::Poll;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use ipnet::IpNet;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use self::admission::{Admission, AdmittedConnection, ConnectionState};
pub use self::bind::{BoundListeners, bind_listeners};
use self::first_byte::FirstByte;
use self::service::ServedRequests;
use self::timed_stream::TimedStream;
pub use self::timers::{ConnectionTimers, ServingPhase};
use super::dispatch::Routes;
use crate::config::PlainHttp;
use crate::node::memory_limit;

/// Minimum interval between log entries about failures of the accept loop, and the pause after a failure.
const ACCEPT_LOG_INTERVAL: Duration = Duration::from_secs(1);
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Maximum time until the first request of a connection that was accepted before a stop.
const FIRST_REQUEST_AT_STOP: Duration = Duration::from_secs(1);

/// The windows of HTTP/2 for the memory of this process.
static HTTP2_WINDOWS: LazyLock<(u32, u32)> =
    LazyLock::new(|| memory_limit::http2_windows(memory_limit::memory_limit()));

/// Whether the log has a warning about a proxy without the PROXY protocol. Each connection is in the log at
/// the level `debug`.
static WARNED: Once = Once::new();

/// How clients reach the server.
#[derive(Clone)]
pub enum Transport {
    /// By plain HTTP, from these clients. Others can read `/health/` only.
    Plain(Arc<PlainHttp>),
    /// By TLS. Plain HTTP is redirected to the base URL.
    Tls {
        /// The configuration of rustls.
        config: Arc<rustls::ServerConfig>,
        /// Base URL of the server.
        base_url: Arc<str>,
    },
}

/// The HTTP server.
pub struct HttpServer {
    /// The filter that answers all requests.
    pub routes: Routes,
    /// How clients reach the server.
    pub transport: Transport,
    /// The open connections, with their maximum numbers.
    pub admission: Arc<Admission>,
    /// Returns whether an address is a trusted proxy, which is exempt from the maximum of an address.
    pub is_proxy: Box<dyn Fn(SocketAddr) -> bool + Send + Sync>,
    /// Networks of the TCP proxies whose connections begin with a header of the PROXY protocol.
    pub proxy_protocol_from: Arc<[IpNet]>,
    /// Deadlines.
    pub timers: ConnectionTimers,
}

impl HttpServer {
    /// Serves until `phase` becomes [`ServingPhase::Stopping`], then waits for open connections for the drain
    /// time.
    pub async fn serve(self, listeners: BoundListeners, mut phase: watch::Receiver<ServingPhase>) {
        let BoundListeners { sockets, is_inherited } = listeners;
        let admission = Arc::clone(&self.admission);
        self.serve_accepted(|| accept_any(&sockets), &admission, &mut phase).await;
        // The clients in the queue of an inherited socket are those of the next process.
        for listener in sockets.into_iter().filter(|_| !is_inherited) {
            if let Err(error) = self.drain(listener, &admission, &phase).await {
                tracing::warn!(%error, "failed to empty the accept queue; its clients are reset");
            }
        }
        if timeout(self.timers.drain, admission.all_closed()).await.is_err() {
            tracing::warn!(open = admission.open(), "connections still open after the drain time are closed");
        }
    }

    /// Serves the clients that `accept` returns, until `phase` becomes [`ServingPhase::Stopping`].
    pub async fn serve_accepted<S, A>(
        &self,
        accept: impl Fn() -> A,
        admission: &Arc<Admission>,
        phase: &mut watch::Receiver<ServingPhase>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        A: Future<Output = io::Result<(S, SocketAddr)>>,
    {
        let mut logged = AcceptLog::default();
        loop {
            let accept_result = tokio::select! {
                accepted = accept() => accepted,
                () = wait_for_phase(phase, ServingPhase::Stopping) => return,
            };
            match accept_result {
                Ok((stream, peer)) => self.admit(admission, stream, peer, phase).await,
                Err(error) => {
                    logged.failed_to_accept(&error);
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Serves the clients that the kernel has accepted, and closes the listener.
    async fn drain(
        &self,
        listener: TcpListener,
        admission: &Arc<Admission>,
        phase: &watch::Receiver<ServingPhase>,
    ) -> io::Result<()> {
        // With a backlog of 0 the kernel accepts no more clients, so the queue can be emptied.
        rustix::net::listen(&listener, 0)?;
        // The kernel may have accepted clients of which the runtime does not know yet.
        let listener = listener.into_std()?;
        loop {
            match listener.accept() {
                Ok((stream, peer)) => {
                    stream.set_nonblocking(true)?;
                    stream.set_nodelay(true)?;
                    let stream = TcpStream::from_std(stream)?;
                    self.admit(admission, stream, peer, phase).await;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Serves a client on a task of its own, or closes the connection if no more are admitted.
    async fn admit<S>(
        &self,
        admission: &Arc<Admission>,
        stream: S,
        peer: SocketAddr,
        phase: &watch::Receiver<ServingPhase>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let address = peer.ip().to_canonical();
        let sends_header = self.proxy_protocol_from.iter().any(|network| network.contains(&address));
        let is_proxy = sends_header || (self.is_proxy)(peer);
        let Some(admitted) = admission.admit(peer.ip(), is_proxy).await else {
            tracing::debug!(%peer, "connection refused: the maximum number of connections is reached");
            return;
        };
        let (routes, timers, phase) = (self.routes.clone(), self.timers, phase.clone());
        let transport = self.transport.clone();
        tokio::spawn(async move {
            let state = Arc::clone(&admitted.state);
            let admitted = Arc::new(admitted);
            let connection_count = Arc::clone(&admitted);
            let connection = Connection {
                peer,
                sends_header,
                state: Arc::clone(&state),
                counted: connection_count,
                routes,
                timers,
                phase,
            };
            let end = tokio::select! {
                ended = connection.serve(stream, transport) => ended,
                () = state.evicted() => Err("closed for another connection".into()),
            };
            if let Err(error) = end {
                tracing::debug!(%peer, %error, "connection ended");
            }
            drop::<Arc<AdmittedConnection>>(admitted);
        });
    }
}

/// Accepts the next client of any listener.
async fn accept_any(listeners: &[TcpListener]) -> io::Result<(TcpStream, SocketAddr)> {
    std::future::poll_fn(|context| {
        for listener in listeners {
            if let Poll::Ready(accepted) = listener.poll_accept(context) {
                return Poll::Ready(accepted.and_then(|(stream, peer)| {
                    stream.set_nodelay(true)?;
                    Ok((stream, peer))
                }));
            }
        }
        Poll::Pending
    })
    .await
}

/// Logs failures of the accept loop once per interval.
#[derive(Default)]
struct AcceptLog {
    last: Option<Instant>,
    left_out: u64,
}

impl AcceptLog {
    fn failed_to_accept(&mut self, error: &io::Error) {
        if self.last.is_some_and(|last| last.elapsed() < ACCEPT_LOG_INTERVAL) {
            self.left_out += 1;
            return;
        }
        tracing::warn!(%error, left_out = self.left_out, "failed to accept a connection");
        *self = Self { last: Some(Instant::now()), left_out: 0 };
    }
}

/// Waits for a phase. A dropped sender counts as the last phase.
async fn wait_for_phase(phase: &mut watch::Receiver<ServingPhase>, target: ServingPhase) {
    drop(phase.wait_for(|phase| *phase >= target).await);
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

struct Connection {
    /// The address that connected, or the one that its header says.
    peer: SocketAddr,
    /// Whether it begins with a header of the PROXY protocol.
    sends_header: bool,
    state: Arc<ConnectionState>,
    /// The place of the connection among those that are counted.
    counted: Arc<AdmittedConnection>,
    routes: Routes,
    timers: ConnectionTimers,
    phase: watch::Receiver<ServingPhase>,
}

impl Connection {
    async fn serve<S>(mut self, stream: S, transport: Transport) -> Result<(), BoxError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut stream = TimedStream::new(stream, Arc::clone(&self.state), self.timers);
        // Plain HTTP is accepted from the proxy, whichever client it serves.
        let direct = self.peer.ip();
        if self.sends_header {
            let client = timeout(self.timers.first, proxy_header::read_client_address(&mut stream)).await?;
            let client = client.inspect_err(|error| {
                if error.kind() == io::ErrorKind::InvalidData {
                    WARNED.call_once(|| tracing::warn!(%direct, %error, "a connection was refused"));
                }
            })?;
            if let Some(client) = client {
                if !self.counted.count_by_client(client.ip()).await {
                    return Err("the maximum number of connections of the client is reached".into());
                }
                self.peer = client;
            }
        }
        let (config, base_url) = match transport {
            Transport::Plain(clients) => {
                stream.expect_requests();
                let served = match clients.accepts(direct) {
                    true => ServedRequests::All,
                    false => ServedRequests::Health,
                };
                return self.http1(stream, served).await;
            }
            Transport::Tls { config, base_url } => (config, base_url),
        };
        let mut stream = timeout(self.timers.first, FirstByte::read(stream)).await??;
        if stream.begins_request() {
            stream.get_mut().expect_requests();
            return self.http1(stream, ServedRequests::Redirected(base_url)).await;
        }
        let mut stream = timeout(self.timers.first, TlsAcceptor::from(config).accept(stream)).await??;
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            return self.http2(stream).await;
        }
        stream.get_mut().0.get_mut().expect_requests();
        self.http1(stream, ServedRequests::All).await
    }

    async fn http1<S>(self, stream: S, served: ServedRequests) -> Result<(), BoxError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(64 * 1024);
        let state = Arc::clone(&self.state);
        let service = service::service(self.routes, self.peer, served, state, self.phase.clone());
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        // Until then each response of the closing phase ends its connection.
        let stop = async {
            let mut phase = self.phase;
            wait_for_phase(&mut phase, ServingPhase::Stopping).await;
            let _ = timeout(FIRST_REQUEST_AT_STOP, self.state.first_request()).await;
        };
        drive_connection(connection, stop, |connection| connection.graceful_shutdown()).await
    }

    async fn http2<S>(self, stream: S) -> Result<(), BoxError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (stream_window, connection_window) = *HTTP2_WINDOWS;
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(100)
            .initial_stream_window_size(stream_window)
            .initial_connection_window_size(connection_window)
            .max_header_list_size(64 * 1024)
            .max_pending_accept_reset_streams(Some(20));
        let state = Arc::clone(&self.state);
        let all = ServedRequests::All;
        let service = service::service(self.routes, self.peer, all, state, self.phase.clone());
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        // GOAWAY lets the client finish its requests and connect elsewhere.
        let stop = async {
            let mut phase = self.phase.clone();
            wait_for_phase(&mut phase, ServingPhase::Closing).await;
            let mut phase = self.phase;
            tokio::select! {
                () = self.state.first_request() => {}
                () = async {
                    wait_for_phase(&mut phase, ServingPhase::Stopping).await;
                    sleep(FIRST_REQUEST_AT_STOP).await;
                } => {}
            }
        };
        drive_connection(connection, stop, |connection| connection.graceful_shutdown()).await
    }
}

/// Drives a connection. After `stop`, it ends with its running requests.
async fn drive_connection<C>(
    connection: C,
    stop: impl Future<Output = ()>,
    shut_down: impl FnOnce(Pin<&mut C>),
) -> Result<(), BoxError>
where
    C: Future<Output = Result<(), hyper::Error>>,
{
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        // First, so that a request that has arrived is read before the connection shuts down.
        biased;
        ended = connection.as_mut() => return Ok(ended?),
        () = stop => {}
    }
    shut_down(connection.as_mut());
    Ok(connection.await?)
}
