//! Restarts of a server whose socket a service manager holds: no new client is refused.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{Server, have};

/// Sends requests on new connections until `is_over` is set. Returns the number of answers.
async fn ask(address: SocketAddr, is_over: Arc<AtomicBool>) -> Result<usize, String> {
    let client = reqwest::Client::builder()
        .pool_max_idle_per_host(0)
        .timeout(Duration::from_secs(60))
        .build()
        .map_err(|error| error.to_string())?;
    let mut answers = 0;
    while !is_over.load(Ordering::Relaxed) {
        let response = client.get(format!("http://{address}/health/live")).send().await;
        let status = response.map_err(|error| format!("{error:?}"))?.status();
        if !status.is_success() {
            return Err(status.to_string());
        }
        answers += 1;
    }
    Ok(answers)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_new_client_is_refused_while_the_socket_is_inherited() {
    if !have("bash", "passing a socket to the server") {
        return;
    }
    let mut server = Server::in_fresh_folder().over_plain_http().holding_its_socket();
    let address = server.address();
    server.start();
    let is_over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4).map(|_| tokio::spawn(ask(address, Arc::clone(&is_over)))).collect();
    tokio::task::block_in_place(|| {
        for _ in 0..3 {
            assert_eq!(server.stop(), Some(0));
            server.start();
        }
    });
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        let answers = client.await.unwrap().unwrap();
        assert!(answers > 0);
    }
}
