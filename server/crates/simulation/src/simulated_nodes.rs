//! The nodes as simulated clients reach them, with the time and the log of the run.

use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use http::{HeaderValue, Request, Response, header};
use jiff::{SignedDuration, Timestamp};
use node_clients::Nodes;
use sha2::{Digest as _, Sha256};
use test_parties::base64url;

use crate::network;

/// Base URL of the nodes.
pub const BASE: &str = "https://trefoil.example";
/// Value of `Host` in requests to the nodes.
const AUTHORITY: HeaderValue = HeaderValue::from_static("trefoil.example");
/// Time at which a simulation begins, in seconds since 1970.
const BEGIN: i64 = 1_900_000_000;
/// Name and password of the user.
pub const USER: (&str, &str) = ("simulated", "a simulated password 7");

/// The time since the simulation has begun.
pub fn elapsed() -> Duration {
    turmoil::sim_elapsed().unwrap_or_default()
}

/// The time of day.
pub fn time() -> Timestamp {
    let elapsed = SignedDuration::try_from(elapsed()).unwrap_or_default();
    Timestamp::from_second(BEGIN).unwrap_or_default() + elapsed
}

/// The name of the host of a node.
pub fn host_of(node: usize) -> String {
    format!("node-{node}")
}

/// The nodes as simulated clients reach them.
#[derive(Default)]
pub struct SimulatedNodes {
    log: Mutex<String>,
    /// Number of times that a node was opened.
    pub opened: AtomicUsize,
}

impl SimulatedNodes {
    /// Writes a line to the log, with this time.
    pub fn log_at(&self, now: Duration, line: &str) {
        let line = format!("{:>6}.{:03} {line}\n", now.as_millis(), now.subsec_micros() % 1_000);
        self.log.lock().unwrap_or_else(PoisonError::into_inner).push_str(&line);
    }

    /// Takes the log.
    pub fn take_log(&self) -> String {
        std::mem::take(&mut self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Nodes for SimulatedNodes {
    fn now(&self) -> Duration {
        elapsed()
    }

    fn time(&self) -> Timestamp {
        time()
    }

    fn send(
        &self,
        node: Option<usize>,
        name: &'static str,
        mut request: Request<Bytes>,
    ) -> BoxFuture<'_, Result<Response<Bytes>, String>> {
        let host = host_of(node.unwrap_or_default());
        request.headers_mut().insert(header::HOST, AUTHORITY);
        async move {
            let target = format!("{} {}", request.method(), request.uri());
            let answer = network::send_patiently(&host, request).await.map_err(|error| error.to_string());
            let result = match &answer {
                Ok(response) => {
                    let sum = base64url(&Sha256::digest(response.body())[..6]);
                    format!("{} {sum}", response.status().as_u16())
                }
                Err(error) => error.clone(),
            };
            self.log(&format!("client -> {host} {name}: {target} -> {result}"));
            answer
        }
        .boxed()
    }

    fn visit(&self, address: &str) -> BoxFuture<'_, Option<String>> {
        let request = Request::get(address).body(Bytes::new());
        async move {
            let answer = network::send_patiently("provider", request.ok()?).await.ok();
            let to = answer.and_then(|response| {
                Some(response.headers().get(header::LOCATION)?.to_str().ok()?.to_owned())
            });
            self.log(&format!("client -> provider: {}", if to.is_some() { "302" } else { "lost" }));
            to
        }
        .boxed()
    }

    fn log(&self, line: &str) {
        self.log_at(elapsed(), line);
    }
}
