//! One node: the whole server, on the simulated network and the shared store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bulk::ObjectBucket;
use fastrand::Rng;
use identity::model::user::{StandardClaims, User};
use identity::sign_in::password;
use jiff::SignedDuration;
use node_clients::{Nodes as _, registration};
use object_store::memory::InMemory;
use store::Store;
use store::shared_memory::SharedMemory;
use tokio::sync::watch;
use trefoil_server::clock::Clock;
use trefoil_server::config::{Config, ConnectionLimits, PlainHttp, ServeFlags};
use trefoil_server::http::dispatch;
use trefoil_server::http::listen::admission::Admission;
use trefoil_server::http::listen::{ConnectionTimers, HttpServer, ServingPhase, Transport};
use trefoil_server::node::app::{App, Outside};
use trefoil_server::node::periodic_tasks::start_tasks;
use trefoil_server::serve;

use crate::bucket::LinkedBucket;
use crate::network::{PORT, SimulatedCaller};
use crate::outside::{SeededKeys, SeededRandom};
use crate::simulated_nodes::{self, BASE, SimulatedNodes, USER};
use crate::store_link::NodeLink;

/// Time after which another node resumes an export. It is shorter than many faults, so that workers lose
/// their lease while they run.
const LEASE: SignedDuration = SignedDuration::from_secs(1);
/// Time after which a node that could not be opened is started again.
const RESTART: Duration = Duration::from_millis(500);

/// The parts of a node that survive its process.
pub struct NodeParts {
    /// Number of the node.
    pub number: usize,
    /// Its folder.
    pub folder: PathBuf,
    /// The store that all nodes share.
    pub shared: SharedMemory,
    /// The objects that all nodes share.
    pub objects: Arc<InMemory>,
    /// The link to the store.
    pub store_link: Arc<NodeLink>,
    /// The link to the bucket.
    pub bucket_link: Arc<NodeLink>,
    /// Offset of its clock.
    pub ahead: SignedDuration,
}

/// Writes the configuration file of a node.
///
/// # Errors
/// An error if the file cannot be written.
pub fn write_config(folder: &Path) -> Result<()> {
    let clients = registration::configuration(r#"jwks_uri = "https://keys.example/jwks""#);
    let config = format!(
        r#"
[server]
listen = "127.0.0.1:443"
base_url = "{BASE}"

[store]
engine = "memory"

[identity]
allow_private_jwks = ["keys.example"]

{clients}
[[provider]]
name = "hospital"
issuer = "https://provider.example"
client_id = "trefoil"
token_endpoint_auth_method = "none"
create_users = true
timeout_ms = 2000
"#
    );
    std::fs::create_dir_all(folder)?;
    Ok(std::fs::write(folder.join("trefoil.toml"), config)?)
}

/// Runs a node until it crashes. `start` is different for each start.
pub async fn run_node(parts: &NodeParts, nodes: &SimulatedNodes, start: u64) -> Result<()> {
    let mut random = Rng::with_seed(start);
    loop {
        match Box::pin(open_node(parts, &mut random)).await {
            Ok(app) => {
                nodes.log(&format!("node-{} is open", parts.number));
                nodes.opened.fetch_add(1, Ordering::Relaxed);
                return serve_node(app).await;
            }
            Err(error) => {
                nodes.log(&format!("node-{} could not be opened: {error:#}", parts.number));
                tokio::time::sleep(RESTART).await;
            }
        }
    }
}

async fn open_node(parts: &NodeParts, random: &mut Rng) -> Result<Arc<App>> {
    let flags = ServeFlags {
        config: Some(parts.folder.join("trefoil.toml")),
        data: Some(parts.folder.clone()),
        insecure_http: true,
        ..ServeFlags::default()
    };
    let mut config = Config::load(&flags)?;
    config.bulk.lease = LEASE;
    config.bulk.file_size = 4 << 10;
    config.files.bucket = Some(ObjectBucket {
        store: Arc::new(LinkedBucket {
            objects: Arc::clone(&parts.objects),
            link: Arc::clone(&parts.bucket_link),
        }),
        prefix: "trefoil".into(),
        signer: None,
    });
    let ahead = parts.ahead;
    let outside = Outside {
        clock: Clock::new(
            move || simulated_nodes::time() + ahead,
            Arc::new(SeededRandom::new(random.fork())),
        ),
        keys: Arc::new(SeededKeys::new(random.fork())),
        http: Some(Arc::new(SimulatedCaller)),
    };
    let link = Arc::clone(&parts.store_link);
    let store = Store::shared_memory(&parts.shared, link);
    let app = Box::pin(serve::open_node(config, &flags, BASE.to_owned(), store, outside)).await?;
    add_user(&app).await.context("failed to add the user")?;
    Ok(app)
}

/// Adds the user, unless it exists.
async fn add_user(app: &App) -> Result<()> {
    let now = app.clock.now();
    let (username, password) = USER;
    if app.identity.users.user_by_name(username, now).await?.is_some() {
        return Ok(());
    }
    let user = User {
        username: username.to_owned(),
        claims: StandardClaims { name: Some("Simulated User".to_owned()), ..StandardClaims::default() },
        allowed_scopes: ["openid", "profile", "offline_access"].into_iter().collect(),
        password: Some(password::hash_password(password, &*app.clock.random)),
        ..User::default()
    };
    match app.identity.users.add_user(user, now).await {
        // Another node has added it.
        Ok(_) | Err(identity::directory::user_directory::UserError::Exists(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn serve_node(app: Arc<App>) -> Result<()> {
    let _tasks = start_tasks(&app);
    let listener = turmoil::net::TcpListener::bind(("0.0.0.0", PORT)).await?;
    let admission = Admission::new(ConnectionLimits { total: 10_000, per_address: 10_000 });
    let server = HttpServer {
        routes: dispatch::routes(app),
        transport: Transport::Plain(Arc::new(PlainHttp::Loopback)),
        admission: Arc::clone(&admission),
        is_proxy: Box::new(|_| false),
        proxy_protocol_from: Arc::default(),
        timers: ConnectionTimers::default(),
    };
    let (_phase, mut phases) = watch::channel(ServingPhase::Serving);
    server.serve_accepted(|| listener.accept(), &admission, &mut phases).await;
    Ok(())
}
