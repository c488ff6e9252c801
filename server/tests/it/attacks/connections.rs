//! Attacks with many connections: idle connections from several addresses with a low limit of file
//! descriptors, and a stop under load.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpSocket, TcpStream};

use super::{report, size};
use crate::support::Server;

/// Opens a connection from an address of this machine and sends no data.
async fn connect_from(from: [u8; 4], to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((from, 0)))?;
    socket.connect(to).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sign_in_and_writes_continue_during_a_flood_of_idle_connections() {
    trefoil_server::node::descriptors::descriptor_budget();
    let mut server = Server::in_fresh_folder().with_descriptors(300);
    server.start();
    let mut connections = Vec::new();
    for n in 0..size(1_000, 10_000) {
        let from = [127, 0, 0, u8::try_from(2 + n % 5).unwrap()];
        connections.extend(connect_from(from, server.address()).await);
        // The attacker keeps at most this many connections open, because its own descriptors are limited too.
        if connections.len() > 900 {
            connections.remove(0);
        }
    }
    let started = Instant::now();
    for n in 0..10 {
        let token = server.backend_token("system/Group.cud system/Group.rs").await;
        let group =
            json!({ "resourceType": "Group", "id": format!("g{n}"), "type": "person", "actual": true });
        let request = server.client().put(format!("{}/Group/g{n}", server.fhir())).bearer_auth(token);
        let response = request.header("content-type", "application/fhir+json").body(group.to_string());
        assert_eq!(response.send().await.unwrap().status(), 201);
    }
    report("10 tokens and writes beside a flood under ulimit -n 300", format!("{:?}", started.elapsed()));
    // The server must have closed most connections of the flood.
    let mut ended_count = 0;
    for stream in &mut connections {
        let read = tokio::time::timeout(Duration::from_millis(1), stream.read(&mut [0])).await;
        ended_count += usize::from(matches!(read, Ok(Ok(0) | Err(_))));
    }
    assert!(ended_count >= connections.len() - 150, "{ended_count} of {}", connections.len());
    let from: IpAddr = [127, 0, 0, 2].into();
    report(
        "connections of the flood that were closed",
        format!("{ended_count} of {} ({from} and others)", connections.len()),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_under_load_resets_no_request() {
    for _ in 0..size(2, 12) {
        // Each persistent connection must send a request within this time, even on a busy machine.
        let settings = "[server]\nshutdown_grace_s = 5\n";
        let mut server = Server::in_fresh_folder().over_plain_http().with_settings(settings);
        server.start();
        let base = server.base();
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let clients: Vec<_> = (0..20)
            .map(|n| {
                let (url, client, stopped) =
                    (format!("{base}/health/live"), server.client(), stopped.clone());
                tokio::spawn(async move {
                    let mut answered = 0;
                    loop {
                        // Half of the clients keep their connections open.
                        let request = client.get(&url);
                        let request =
                            if n % 2 == 0 { request } else { request.header("connection", "close") };
                        match request.send().await {
                            Ok(response) => {
                                assert_eq!(response.status(), 200);
                                answered += 1;
                            }
                            // The connection is refused after the listener was closed. Any other error means
                            // that the server lost a request.
                            Err(error) if error.is_connect() && *stopped.borrow() => return answered,
                            Err(error) => panic!("after {answered} answers: {error:?}"),
                        }
                    }
                })
            })
            .collect();
        let probe = server.client();
        assert_eq!(probe.get(format!("{base}/health/ready")).send().await.unwrap().status(), 200);
        stop.send(true).unwrap();
        server.signal("TERM");
        let probe_result = probe.get(format!("{base}/health/ready")).send().await;
        // The server still accepts connections, and reports that it is not ready.
        assert!(probe_result.is_ok_and(|response| response.status() == 503 || response.status() == 200));
        let mut answered = 0;
        for client in clients {
            answered += client.await.unwrap();
        }
        assert_eq!(server.wait(), Some(0));
        report("requests answered around a stop, none lost", answered);
    }
}
