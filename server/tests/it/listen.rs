//! The accept loop against slow and silent clients, with short timers: every connection ends, and
//! the others are served meanwhile.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::stream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use trefoil_server::http::listen::{self, Timers};
use trefoil_server::http::routes::Routes;
use warp::{Filter as _, Reply as _};

const TIMERS: Timers = Timers {
    first: Duration::from_millis(200),
    head: Duration::from_millis(300),
    idle: Duration::from_millis(500),
    drain: Duration::from_millis(1_000),
};

/// `/` answers at once, `/endless` never ends, POST reads the whole body first.
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
    stop: watch::Sender<bool>,
    served: tokio::task::JoinHandle<()>,
}

async fn start(connections: usize) -> Running {
    let listeners = listen::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let address = listeners[0].local_addr().unwrap();
    let (stop, stopped) = watch::channel(false);
    let served = tokio::spawn(listen::serve(listeners, None, routes(), connections, TIMERS, stopped));
    Running { address, stop, served }
}

/// Sends bytes and reads until the server ends the connection, however it does.
async fn until_closed(address: SocketAddr, sent: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(sent).await.unwrap();
    let mut all = Vec::new();
    let read = stream.read_to_end(&mut all);
    // A reset is an end too; what must not happen is that nothing does.
    drop(tokio::time::timeout(Duration::from_secs(20), read).await.expect("the server ends the connection"));
    all
}

#[track_caller]
fn check(answer: &[u8], begins: &str) {
    let text = String::from_utf8_lossy(answer);
    assert!(text.starts_with(begins), "{text:?} does not begin with {begins:?}");
}

#[tokio::test]
async fn slow_and_silent_clients_are_let_go() {
    let server = start(100).await;
    check(&until_closed(server.address, b"").await, "");
    check(&until_closed(server.address, b"G").await, "");
    check(&until_closed(server.address, b"PRI * HTTP/2.0\r\n").await, "");
    check(&until_closed(server.address, b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ").await, "");
    check(
        &until_closed(server.address, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc").await,
        "",
    );
    // A kept connection ends after the idle time.
    check(&until_closed(server.address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await, "HTTP/1.1 200");
    check(&until_closed(server.address, b"nonsense\r\n\r\n").await, "HTTP/1.1 400");
}

#[tokio::test]
async fn a_reader_that_stops_reading_is_let_go_and_its_place_is_free() {
    // One place: the next client is served only when the slow one is gone.
    let server = start(1).await;
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    slow.write_all(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut first = [0; 12];
    slow.read_exact(&mut first).await.unwrap();
    check(&first, "HTTP/1.1 200");
    let answer =
        until_closed(server.address, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    check(&answer, "HTTP/1.1 200");
    drop(slow);
}

#[tokio::test]
async fn a_stop_lets_requests_end_and_cuts_what_hangs() {
    let server = start(100).await;
    let mut under_way = TcpStream::connect(server.address).await.unwrap();
    under_way.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nabc").await.unwrap();
    let mut hangs = TcpStream::connect(server.address).await.unwrap();
    hangs.write_all(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut first = [0; 12];
    hangs.read_exact(&mut first).await.unwrap();
    server.stop.send(true).unwrap();
    under_way.write_all(b"def").await.unwrap();
    let mut answer = Vec::new();
    under_way.read_to_end(&mut answer).await.unwrap();
    check(&answer, "HTTP/1.1 200");
    tokio::time::timeout(Duration::from_secs(20), server.served)
        .await
        .expect("the drain has a deadline")
        .unwrap();
}
