//! Several servers as nodes on one PostgreSQL database: their start, the links between a node and the
//! database, which a test can break, and a balancer in front of the nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use node_clients::tokens::assertion_fields;
use reqwest::Response;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::support::{Server, assertion};

/// Prepares a node for each database URL, and starts all of them without a wait between them. `base` is the
/// URL that they share, by default that of the first node; `settings` is their configuration file.
pub fn start_nodes(databases: &[String], base: Option<&str>, settings: Option<&str>) -> Vec<Server> {
    let mut nodes: Vec<Server> = Vec::new();
    for database in databases {
        let node = Server::in_fresh_folder().over_plain_http();
        let base = base.map_or_else(|| nodes.first().unwrap_or(&node).base(), str::to_owned);
        let node = node.sharing(&base, database);
        nodes.push(settings.iter().fold(node, |node, text| node.with_settings(text)));
    }
    std::thread::scope(|scope| nodes.iter_mut().for_each(|node| drop(scope.spawn(|| node.start()))));
    nodes
}

/// Sends a form to an endpoint of a node, authenticated with a client assertion.
pub async fn post_as_backend(node: &Server, path: &str, assertion: &str, form: &[(&str, &str)]) -> Response {
    let form = [form, &assertion_fields(assertion)].concat();
    node.client().post(format!("{}{path}", node.base())).form(&form).send().await.unwrap()
}

/// Returns a new assertion of the back-end client in `demo.json` for the nodes with this base URL.
pub fn backend_assertion(demo: &Value, base: &str) -> String {
    let backend = demo["backend"].as_array().unwrap().iter().find(|client| client["alg"] == "ES384").unwrap();
    assertion(backend, &format!("{base}/oauth2/token"))
}

/// State of the link between a node and its database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    /// Data are forwarded.
    Open,
    /// Connections are reset, and new ones too.
    Refused,
    /// Nothing is forwarded and nothing is closed, as with a network that loses all packets.
    Stalled,
}

/// A proxy between a node and its database.
pub struct DatabaseLink {
    pub port: u16,
    state: watch::Sender<LinkState>,
    /// Incremented to reset the connections that are open.
    resets: watch::Sender<u64>,
}

impl DatabaseLink {
    pub async fn start(database: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (state, resets) = (watch::Sender::new(LinkState::Open), watch::Sender::new(0));
        let (states, all_resets) = (state.subscribe(), resets.subscribe());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(relay(client, database, states.clone(), all_resets.clone()));
            }
        });
        Self { port, state, resets }
    }

    /// Sets the state. [`LinkState::Refused`] also resets the connections that are open.
    pub fn set(&self, state: LinkState) {
        self.state.send_replace(state);
        if state == LinkState::Refused {
            self.reset();
        }
    }

    /// Resets the connections that are open.
    pub fn reset(&self) {
        self.resets.send_modify(|resets| *resets += 1);
    }
}

/// Relays one connection until it ends or is reset.
async fn relay(
    client: TcpStream,
    database: u16,
    mut state: watch::Receiver<LinkState>,
    mut resets: watch::Receiver<u64>,
) {
    resets.mark_unchanged();
    match state.wait_for(|state| *state != LinkState::Stalled).await.map(|state| *state) {
        Ok(LinkState::Open) => {}
        // The test may have ended meanwhile.
        _ => return,
    }
    let Ok(server) = TcpStream::connect(("127.0.0.1", database)).await else { return };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = forward(from_client, to_server, state.clone()) => {}
        () = forward(from_server, to_client, state) => {}
        _ = resets.changed() => {}
    }
}

/// Forwards the data of one direction. Waits while the link is stalled.
async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut state: watch::Receiver<LinkState>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(size @ 1..) = from.read(&mut buffer).await {
        let is_over = state.wait_for(|state| *state != LinkState::Stalled).await.is_err();
        if is_over || to.write_all(&buffer[..size]).await.is_err() {
            break;
        }
    }
}

/// Forwards each connection of the listener to the next node that accepts it, in turn.
pub async fn start_balancer(listener: std::net::TcpListener, nodes: Vec<std::net::SocketAddr>) {
    listener.set_nonblocking(true).unwrap();
    let (listener, turn) = (TcpListener::from_std(listener).unwrap(), Arc::new(AtomicUsize::new(0)));
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let (nodes, turn) = (nodes.clone(), Arc::clone(&turn));
            tokio::spawn(async move {
                for _ in &nodes {
                    let next = nodes[turn.fetch_add(1, Ordering::Relaxed) % nodes.len()];
                    if let Ok(mut node) = TcpStream::connect(next).await {
                        let _ended = tokio::io::copy_bidirectional(&mut client, &mut node).await;
                        return;
                    }
                }
            });
        }
    });
}
