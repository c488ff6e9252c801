//! Tests of the accept loop with slow and silent clients and short timeouts. Every connection must be closed
//! eventually, and other clients must be served meanwhile.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use trefoil_server::config::{ConnectionLimits, PlainHttp};
use trefoil_server::http::dispatch::Routes;
use trefoil_server::http::listen::admission::Admission;
use trefoil_server::http::listen::{self, ConnectionTimers, HttpServer, ServingPhase, Transport};
use warp::{Filter as _, Reply as _};

const TIMERS: ConnectionTimers = ConnectionTimers {
    first: Duration::from_millis(200),
    head: Duration::from_millis(300),
    idle: Duration::from_millis(500),
    drain: Duration::from_millis(1_000),
};

/// Timers that do not expire in a test.
const LONG_TIMERS: ConnectionTimers = ConnectionTimers {
    first: Duration::from_secs(60),
    head: Duration::from_secs(60),
    idle: Duration::from_secs(60),
    drain: Duration::from_secs(60),
};

/// Routes of the test: `/` answers immediately, `/endless` never completes, and POST reads the whole body
/// first.
fn routes() -> Routes {
    let endless = warp::path("endless").map(|| {
        let pieces = stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b'x'; 64 * 1024]));
        warp::reply::stream(pieces).into_response()
    });
    let body = warp::post()
        .and(warp::body::bytes())
        .map(|body: bytes::Bytes| body.len().to_string().into_response());
    let at_once = warp::get().map(|| "hello".into_response());
    endless.or(body).unify().or(at_once).unify().boxed()
}

struct Running {
    address: SocketAddr,
    phase: watch::Sender<ServingPhase>,
    served: tokio::task::JoinHandle<()>,
}

async fn start(connections: usize) -> Running {
    start_with(connections, TIMERS).await
}

async fn start_with(connections: usize, timers: ConnectionTimers) -> Running {
    let listeners = listen::bind_listeners(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let address = listeners.sockets[0].local_addr().unwrap();
    let (phase, phases) = watch::channel(ServingPhase::Serving);
    let admission = Admission::new(ConnectionLimits { total: connections, per_address: connections });
    let transport = Transport::Plain(Arc::new(PlainHttp::Loopback));
    let edge = HttpServer {
        routes: routes(),
        transport,
        admission,
        is_proxy: Box::new(|_| false),
        proxy_protocol_from: Arc::default(),
        timers,
    };
    let served = tokio::spawn(edge.serve(listeners, phases));
    Running { address, phase, served }
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

/// Sends a request on an open connection and reads one response.
async fn ask(stream: &mut TcpStream) -> String {
    stream.write_all(GET).await.unwrap();
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"hello") {
        assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "the server closed the connection");
    }
    String::from_utf8(bytes).unwrap()
}

/// Sends bytes and reads until the server closes or resets the connection.
async fn until_closed(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut all = Vec::new();
    let read = stream.read_to_end(&mut all);
    // A reset also ends the connection. The test fails only if the connection stays open.
    drop(tokio::time::timeout(Duration::from_secs(20), read).await.expect("the server ends the connection"));
    all
}

#[track_caller]
fn check(bytes: &[u8], begins: &str) {
    let text = String::from_utf8_lossy(bytes);
    assert!(text.starts_with(begins), "{text:?} does not begin with {begins:?}");
}

#[tokio::test]
async fn slow_and_silent_clients_are_disconnected() {
    let server = start(100).await;
    check(&until_closed(server.address, b"").await, "");
    check(&until_closed(server.address, b"G").await, "");
    check(&until_closed(server.address, b"PRI * HTTP/2.0\r\n").await, "");
    check(&until_closed(server.address, b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ").await, "");
    check(
        &until_closed(server.address, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc").await,
        "",
    );
    // A persistent connection is closed after the idle time.
    check(&until_closed(server.address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await, "HTTP/1.1 200");
    check(&until_closed(server.address, b"nonsense\r\n\r\n").await, "HTTP/1.1 400");
}

#[tokio::test]
async fn a_client_that_stops_reading_is_disconnected_and_frees_its_connection() {
    // Only one connection is allowed: the next client is rejected until the slow one is disconnected.
    let server = start(1).await;
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    slow.write_all(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut first = [0; 12];
    slow.read_exact(&mut first).await.unwrap();
    check(&first, "HTTP/1.1 200");
    let served = async {
        loop {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            let mut bytes = Vec::new();
            drop(stream.write_all(GET).await);
            if stream.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {
                return bytes;
            }
        }
    };
    let bytes =
        tokio::time::timeout(Duration::from_secs(20), served).await.expect("the slow reader is disconnected");
    check(&bytes, "HTTP/1.1 200");
    drop(slow);
}

#[tokio::test]
async fn an_idle_connection_is_closed_for_a_new_one() {
    let server = start_with(2, LONG_TIMERS).await;
    let mut first = TcpStream::connect(server.address).await.unwrap();
    ask(&mut first).await;
    let mut second = TcpStream::connect(server.address).await.unwrap();
    ask(&mut second).await;
    let mut third = TcpStream::connect(server.address).await.unwrap();
    ask(&mut third).await;
    // The server has closed the oldest connection.
    assert_eq!(first.read(&mut [0]).await.unwrap_or_default(), 0);
    ask(&mut second).await;
}

#[tokio::test]
async fn a_persistent_connection_may_exceed_the_header_timeout() {
    let server = start_with(100, ConnectionTimers { head: TIMERS.head, ..LONG_TIMERS }).await;
    let mut open_stream = TcpStream::connect(server.address).await.unwrap();
    ask(&mut open_stream).await;
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    ask(&mut slow).await;
    slow.write_all(b"GET / HTTP/1.1\r\nHost:").await.unwrap();
    // The connection is closed because its request headers did not arrive in time, which is after the last
    // request of the other connection.
    assert_eq!(slow.read(&mut [0]).await.unwrap_or_default(), 0);
    ask(&mut open_stream).await;
}

#[tokio::test]
async fn ambiguous_targets_are_rejected() {
    let server = start(100).await;
    let close = "Connection: close\r\n\r\n";
    for (head, status) in [
        ("GET / HTTP/1.1\r\n", "HTTP/1.1 400"),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n", "HTTP/1.1 400"),
        ("GET / HTTP/1.0\r\n", "HTTP/1.0 200"),
        ("CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n", "HTTP/1.1 501"),
    ] {
        check(&until_closed(server.address, format!("{head}{close}").as_bytes()).await, status);
    }
}

#[tokio::test]
async fn a_stop_serves_persistent_connections_and_the_accept_queue() {
    let server = start_with(100, LONG_TIMERS).await;
    let mut open_stream = TcpStream::connect(server.address).await.unwrap();
    ask(&mut open_stream).await;
    server.phase.send(ServingPhase::Closing).unwrap();
    let mut new = TcpStream::connect(server.address).await.unwrap();
    for stream in [&mut open_stream, &mut new] {
        assert!(ask(stream).await.contains("connection: close\r\n"));
    }
    // The kernel has accepted these connections, but the accept loop has not run since then.
    let queued: Vec<_> = (0..30).map(|_| std::net::TcpStream::connect(server.address).unwrap()).collect();
    server.phase.send(ServingPhase::Stopping).unwrap();
    for stream in queued {
        stream.set_nonblocking(true).unwrap();
        ask(&mut TcpStream::from_std(stream).unwrap()).await;
    }
    server.served.await.unwrap();
}

#[tokio::test]
async fn a_stop_waits_for_requests_and_disconnects_hanging_ones() {
    let server = start_with(100, ConnectionTimers { drain: TIMERS.drain, ..LONG_TIMERS }).await;
    let mut under_way = TcpStream::connect(server.address).await.unwrap();
    under_way.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nabc").await.unwrap();
    let mut hangs = TcpStream::connect(server.address).await.unwrap();
    hangs.write_all(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut first = [0; 12];
    hangs.read_exact(&mut first).await.unwrap();
    server.phase.send(ServingPhase::Stopping).unwrap();
    under_way.write_all(b"def").await.unwrap();
    let mut bytes = Vec::new();
    under_way.read_to_end(&mut bytes).await.unwrap();
    check(&bytes, "HTTP/1.1 200");
    tokio::time::timeout(Duration::from_secs(20), server.served)
        .await
        .expect("the drain has a deadline")
        .unwrap();
}
