//! Many connections at once, some of them slow. Other clients must be served, and connections above the
//! limits must be rejected cleanly.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use super::{report, size};
use crate::support::Server;

const LIVE: &[u8] = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Sends a request and reads its response. Returns `false` if the server closed the connection.
async fn ask(stream: &mut TcpStream) -> bool {
    let mut bytes = Vec::new();
    if stream.write_all(LIVE).await.is_err() {
        return false;
    }
    while !bytes.ends_with(b"live\n") {
        if !stream.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {
            return false;
        }
    }
    true
}

/// Opens connections from several addresses. Every fifth one is slow and stops within the request headers.
/// The others have sent a request and stay open.
async fn crowd(server: &Server, count: usize) -> Vec<TcpStream> {
    let mut connections = Vec::new();
    for n in 0..count {
        let socket = TcpSocket::new_v4().unwrap();
        let from = [127, 0, 2, u8::try_from(1 + n % 40).unwrap()];
        socket.bind((from, 0).into()).unwrap();
        let Ok(mut stream) = socket.connect(server.address()).await else { continue };
        if n % 5 == 0 {
            drop(stream.write_all(&LIVE[..20]).await);
        } else {
            ask(&mut stream).await;
        }
        connections.push(stream);
    }
    connections
}

/// Returns the 99th percentile of the request time, for clients with persistent connections. A client opens a
/// new connection if the server has closed its connection.
async fn p99(server: &Server, requests: usize) -> Duration {
    let clients = (0..8).map(|_| {
        let address = server.address();
        tokio::spawn(async move {
            let mut times = Vec::with_capacity(requests / 8);
            let mut stream = TcpStream::connect(address).await.unwrap();
            while times.len() < requests / 8 {
                let started = Instant::now();
                if ask(&mut stream).await {
                    times.push(started.elapsed());
                } else {
                    stream = TcpStream::connect(address).await.unwrap();
                }
            }
            times
        })
    });
    let mut all = Vec::new();
    for client in clients.collect::<Vec<_>>() {
        all.extend(client.await.unwrap());
    }
    all.sort_unstable();
    all[all.len() * 99 / 100]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_are_served_during_many_other_connections() {
    trefoil_server::node::descriptors::descriptor_budget();
    for descriptors in [None, Some(1_024)] {
        let mut server = Server::in_fresh_folder().over_plain_http();
        if let Some(limit) = descriptors {
            server = server.with_descriptors(limit);
        }
        server.start();
        let requests = size(400, 20_000);
        let quiet = p99(&server, requests).await;
        let connections = crowd(&server, size(1_500, 10_000)).await;
        let crowded = p99(&server, requests).await;
        let limit = descriptors.map_or("no limit".to_owned(), |limit| format!("ulimit -n {limit}"));
        let (quiet, crowded) = (quiet.as_micros(), crowded.as_micros());
        report(
            &format!("p99 beside {} connections, {limit}", connections.len()),
            format!("{crowded} µs, {:.1} times the quiet {quiet} µs", crowded as f64 / quiet as f64),
        );
    }
}
