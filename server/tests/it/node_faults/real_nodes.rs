//! Real nodes as their clients reach them, and the start of a run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fastrand::Rng;
use futures_util::future::{BoxFuture, FutureExt as _};
use http::{Request, Response};
use jiff::Timestamp;
use node_clients::history::RECOVERY;
use node_clients::registration;
use node_clients::{Nodes, Pace, Workload, terminology};
use reqwest::Client;
use test_parties::ClientKey;

use crate::support::Server;

/// Time after which a client gives up.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time without faults at the end, after the recovery.
const CALM: Duration = Duration::from_secs(5);
/// The clients use the nodes as much as they can.
const PACE: Pace = Pace { rests: false, probe: Duration::from_millis(30), poll: Duration::from_millis(600) };

/// Real nodes as their clients reach them.
pub struct RealNodes {
    /// The client of all requests. It uses no connection twice, because the balancer chooses a node for each
    /// connection.
    pub client: Client,
    /// URLs of the nodes.
    pub urls: Vec<String>,
    balancer: Option<String>,
    begun: Instant,
}

impl Nodes for RealNodes {
    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn time(&self) -> Timestamp {
        Timestamp::now()
    }

    fn has_balancer(&self) -> bool {
        self.balancer.is_some()
    }

    fn send(
        &self,
        node: Option<usize>,
        _: &'static str,
        request: Request<Bytes>,
    ) -> BoxFuture<'_, Result<Response<Bytes>, String>> {
        async move {
            let base = node.map_or_else(|| self.balancer.as_ref().unwrap(), |node| &self.urls[node]);
            let (head, body) = request.into_parts();
            let request = self.client.request(head.method, format!("{base}{}", head.uri));
            let answer = request.headers(head.headers).body(body).send().await;
            let response = answer.map_err(|error| error.to_string())?;
            let (status, headers) = (response.status(), response.headers().clone());
            let mut whole = Response::new(response.bytes().await.map_err(|error| error.to_string())?);
            (*whole.status_mut(), *whole.headers_mut()) = (status, headers);
            Ok(whole)
        }
        .boxed()
    }
}

/// The clients of a run, before its nodes are started.
pub struct Clients {
    key: ClientKey,
    random: Rng,
}

impl Clients {
    pub fn new(random: &mut Rng) -> Self {
        Self { key: ClientKey::new("backend-1", random), random: random.fork() }
    }

    /// Returns their part of the configuration of the nodes.
    pub fn configuration(&self) -> String {
        let jwk = self.key.jwk();
        let members: Vec<_> =
            jwk.as_object().unwrap().iter().map(|(name, value)| format!("{name} = {value}")).collect();
        registration::configuration(&format!("jwks = {{ keys = [{{ {} }}] }}", members.join(", ")))
    }

    /// Prepares the data that the clients use. `base` is the URL of all nodes, that of the balancer if there
    /// is one.
    pub async fn open_workload(
        self,
        servers: &[Server],
        base: String,
        has_balancer: bool,
    ) -> (Arc<RealNodes>, &'static Workload) {
        let client = Client::builder().tls_certs_only([]).redirect(reqwest::redirect::Policy::none());
        let nodes = Arc::new(RealNodes {
            client: client.no_proxy().pool_max_idle_per_host(0).timeout(PATIENCE).build().unwrap(),
            urls: servers.iter().map(|server| format!("http://{}", server.address())).collect(),
            balancer: has_balancer.then(|| base.clone()),
            begun: Instant::now(),
        });
        let demo = servers[0].demo_json();
        let [user, password] =
            ["username", "password"].map(|name| demo["user"][name].as_str().unwrap().to_owned());
        let clients = Arc::<RealNodes>::clone(&nodes);
        let workload = Workload::new(clients, base, (user, password), self.key, PACE, self.random);
        let workload: &Workload = Box::leak(Box::new(workload));
        terminology::add_code_system(workload).await;
        await_return(workload).await;
        (nodes, workload)
    }
}

/// Waits until all nodes serve requests again.
pub async fn await_return(workload: &Workload) {
    let times = terminology::await_service(workload, RECOVERY).await.unwrap();
    println!("the nodes serve after {times:?}");
}

/// Lets the clients work for a time in which no request may fail and new codes must be known, and ends them.
pub async fn end_calmly(workload: &Workload) {
    tokio::time::sleep(RECOVERY + CALM).await;
    workload.end();
}
