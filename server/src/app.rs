//! The services wired together. No request data.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, Result};
use arc_swap::ArcSwap;
use bulk::Bulk;
use bytes::Bytes;
use identity::pending::PendingQuota;
use identity::{Identity, Outside};
use jiff::SignedDuration;
use resources::{Limits, Resources};
use store::{Scan, Seq, Store, StoreError, Versions as _};
use terminology::{Change, Index, Terminology};
use tokio::sync::Mutex;

use crate::audit::Audit;
use crate::clock::{Clock, RequestIds};
use crate::clock_guard::{self, ClockGuard};
use crate::config::{Config, Engine, Flags};
use crate::descriptors;
use crate::export_log::ExportLog;
use crate::group_members::GroupMembers;
use crate::hashing::Hashing;
use crate::http::byte_budget::{self, ByteBudget};
use crate::http::cors::ClientOrigins;
use crate::indexes::{self, Indexes};
use crate::key_fetch::KeyFetcher;
use crate::question_pool::QuestionPool;
use crate::settings::{Live, Settings};

/// One server.
pub struct App {
    /// Time and chance.
    pub clock: Clock,
    /// Refuses writes after a jump of the clock.
    pub clock_guard: Arc<ClockGuard>,
    /// Ids of requests.
    pub request_ids: RequestIds,
    /// Base URL without trailing slash.
    pub base_url: String,
    /// FHIR base.
    pub fhir_base: String,
    /// Is the base URL's host a loopback name?
    pub is_loopback: bool,
    /// Are cookies to be sent over HTTPS only?
    pub is_https: bool,
    /// Folder of everything.
    pub data: PathBuf,
    /// The ledger and the resources' bytes.
    pub store: Store,
    /// OAuth and OpenID Connect.
    pub identity: Identity,
    /// FHIR resources.
    pub resources: Resources,
    /// Code systems and value sets.
    pub terminology: Terminology,
    /// Saved indexes of code systems; `None` where the store forgets and nothing is saved.
    pub indexes: Option<Indexes>,
    /// Exports.
    pub bulk: Bulk,
    /// What clients did with them, where it is kept.
    pub export_log: Option<Arc<ExportLog>>,
    /// The CapabilityStatement, once it was asked for.
    pub capabilities: OnceLock<Bytes>,
    /// What happened.
    pub audit: Arc<Audit>,
    /// What can be changed while the server runs.
    settings: Live,
    /// What cannot, as it was at the start.
    pub fixed: Vec<(&'static str, String)>,
    /// Flags, to read the configuration again.
    pub flags: Flags,
    /// For calls to providers: no redirects, no proxies, our own limits.
    pub http: reqwest::Client,
    /// Terminology questions that take long.
    pub questions: QuestionPool,
    /// Password hashes under way and waiting.
    pub hashing: Hashing,
    /// Members of the Groups that clients are limited to.
    pub group_members: GroupMembers,
    /// Memory for request bodies.
    pub bodies: Arc<ByteBudget>,
    /// Counters of what anonymous requests created.
    pub pending: PendingQuota,
    /// Origins that may read responses from scripts.
    pub origins: ClientOrigins,
    /// Set when the server begins to stop: it is not ready any more.
    pub is_stopping: AtomicBool,
    /// How far the terminology index has followed the store.
    followed: AtomicU64,
    /// One follower at a time.
    following: Mutex<()>,
}

/// The resource types that the terminology index follows.
const TERMINOLOGY_TYPES: [&str; 3] = ["CodeSystem", "ValueSet", "StructureDefinition"];

impl App {
    /// Opens everything over a store.
    ///
    /// # Errors
    /// The store's, and folders that cannot be made.
    pub async fn open(
        mut config: Config,
        flags: &Flags,
        base_url: String,
        store: Store,
        clock: Clock,
    ) -> Result<Arc<Self>> {
        let now = clock.now();
        if let Some(last) = store.last_time()? {
            clock_guard::log_start(now, last);
        }
        let clock_guard = Arc::new(clock.guard());
        let fixed = config.fixed();
        let limits = Limits { bytes: config.settings.body_limit_bytes, ..Limits::default() };
        let settings = Arc::new(ArcSwap::from_pointee(std::mem::take(&mut config.settings)));
        let audit = Audit::open(&config.data, &base_url, config.audit, clock.clone())
            .context("failed to open the audit log")?;
        let gates = (Arc::clone(&clock_guard), audit.clone());
        store.set_gate(Arc::new(move || gates.0.check().and_then(|()| gates.1.check())));
        let outside = Outside {
            seal: std::mem::take(&mut config.seal),
            fetch: Arc::new(KeyFetcher::new(settings.clone())?),
            audit: audit.clone(),
        };
        let random = clock.random.clone();
        let identity = Identity::open_with(store.clone(), random, outside, &base_url, config.demo, now)
            .await
            .context("failed to open the identity records")?;
        let host = url::Url::parse(&base_url)?.host_str().unwrap_or_default().to_owned();
        let resources = Resources::at(store.clone(), &format!("{base_url}/fhir/R4"));
        resources.set_limits(limits);
        let bulk = Bulk::open(
            store.clone(),
            resources.clone(),
            bulk::Options {
                files: config.data.join("exports"),
                disk: store::space::Disk::of(&config.data.join("exports")),
                fhir_base: format!("{base_url}/fhir/R4"),
                retention: config.bulk.retention,
                file_size: config.bulk.file_size,
                poll_limit: config.bulk.poll_limit,
                signing: config.bulk.signed_urls.map(|lifetime| {
                    bulk::Signing::new(identity.mark("bulk", "addresses of files").as_bytes(), lifetime)
                }),
                in_flight: config.bulk.in_flight,
                guide: config.bulk.guide,
                nested_groups: config.bulk.nested_groups,
                open_downloads: descriptors::budget().downloads,
            },
            clock.for_bulk(),
        )?;
        let export_log = match config.bulk.export_log.clone() {
            None => None,
            Some(folder) => {
                let retention =
                    SignedDuration::try_from(config.bulk.retention).unwrap_or(SignedDuration::MAX);
                let log = ExportLog::open(folder, &format!("{base_url}/fhir/R4"), retention, clock.clone());
                Some(Arc::new(log.context("failed to open the export log")?))
            }
        };
        let indexes = match config.engine {
            Engine::Memory => None,
            Engine::File => {
                let indexes = Indexes::open(&config.data);
                let swept = indexes.and_then(|indexes| indexes.sweep().map(|()| indexes));
                Some(swept.context("failed to open the saved indexes")?)
            }
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let app = Self {
            fhir_base: format!("{base_url}/fhir/R4"),
            is_loopback: matches!(host.as_str(), "localhost" | "127.0.0.1" | "[::1]"),
            is_https: base_url.starts_with("https://"),
            base_url,
            data: config.data.clone(),
            store,
            identity,
            resources,
            terminology: Terminology::default(),
            indexes,
            bulk,
            export_log,
            capabilities: OnceLock::new(),
            audit,
            settings,
            fixed,
            flags: flags.clone(),
            http: provider_client()?,
            questions: QuestionPool::new(cores),
            hashing: Hashing::new(cores),
            group_members: GroupMembers::default(),
            bodies: ByteBudget::new(config.body_memory_bytes, limits.bytes, byte_budget::WAIT),
            pending: PendingQuota::new(config.pending),
            origins: ClientOrigins::default(),
            is_stopping: AtomicBool::new(false),
            followed: AtomicU64::new(0),
            following: Mutex::new(()),
            request_ids: RequestIds::new(&*clock.random),
            clock,
            clock_guard,
        };
        app.read_terminology().await.context("failed to read the stored terminology")?;
        Ok(Arc::new(app))
    }

    /// The settings of now. A request that asks twice may see two different ones.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    /// Takes over other settings, whole.
    pub fn take_over(&self, settings: Settings) {
        // What an endpoint reads, a resource may measure.
        self.resources.set_limits(Limits { bytes: settings.body_limit_bytes, ..self.resources.limits() });
        self.settings.store(Arc::new(settings));
    }

    /// Fills the terminology index with what is stored.
    async fn read_terminology(&self) -> Result<()> {
        if let Some(indexes) = self.indexes.clone() {
            let releases = tokio::task::spawn_blocking(move || indexes.releases()).await??;
            self.terminology.apply(releases);
        }
        let at = self.store.last_seq();
        for kind in TERMINOLOGY_TYPES {
            let mut after: Option<String> = None;
            loop {
                let page = self.store.scan_kind(kind, Scan::at(at).after(after.as_deref())).await?;
                let stored = page
                    .versions
                    .into_iter()
                    .map(|version| (kind, version.key.id, version.seq, version.body));
                self.take_in(stored.collect(), false);
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        self.followed.store(at.0, Ordering::Release);
        Ok(())
    }

    /// Tells the terminology of stored resources. A large code system is taken by its saved index; where there is
    /// none, it is compiled and saved behind the requests, one at a time. A hierarchy that runs in a circle is told in
    /// the log: of what was written now, and of what is compiled here.
    fn take_in(&self, stored: Vec<(&'static str, String, Seq, Option<Bytes>)>, written: bool) {
        let (mut large, mut small) = (Vec::new(), Vec::new());
        let change = |(kind, id, seq, body): (&'static str, String, Seq, Option<Bytes>)| {
            let Some(bytes) = body else { return Change::Delete { kind, id } };
            if kind == "CodeSystem" && bytes.len() >= indexes::LARGE {
                if let Some(index) = self.indexes.as_ref().and_then(|indexes| indexes.of_resource(&id, seq)) {
                    return Change::Index { id, index };
                }
                large.push((id.clone(), seq));
            } else if kind == "CodeSystem" && written {
                small.push((id.clone(), bytes.clone()));
            }
            Change::Put { kind, id, bytes }
        };
        let changes: Vec<Change> = stored.into_iter().map(change).collect();
        if changes.is_empty() {
            return;
        }
        self.terminology.apply(changes);
        if large.is_empty() && small.is_empty() {
            return;
        }
        let (terminology, indexes) = (self.terminology.clone(), self.indexes.clone());
        let warn = |id: &str, circle: Option<Vec<String>>| {
            if let Some(circle) = circle {
                tracing::warn!(
                    id,
                    codes = circle.join(" > "),
                    "the hierarchy of a CodeSystem runs in a circle"
                );
            }
        };
        tokio::task::spawn_blocking(move || {
            for (id, bytes) in small {
                warn(&id, Index::circle_in(&bytes));
            }
            for (id, seq) in large {
                let Some(index) = terminology.index(&id) else { continue };
                warn(&id, index.circle());
                let saved =
                    indexes.as_ref().map_or(Ok(()), |indexes| indexes.keep_resource(&id, seq, &index));
                if let Err(error) = saved {
                    tracing::warn!(%error, id, "an index could not be saved; a restart will build it again");
                }
            }
        });
    }

    /// Feeds the terminology index what was written since the last time, so that an answer that
    /// comes after a write knows of it.
    ///
    /// # Errors
    /// The store's.
    pub async fn follow(&self) -> Result<(), StoreError> {
        const PAGE: usize = 1_000;
        let is_behind = || Seq(self.followed.load(Ordering::Acquire)) < self.store.last_seq();
        if !is_behind() {
            return Ok(());
        }
        let _turn = self.following.lock().await;
        while is_behind() {
            let changes = self.store.changes(Seq(self.followed.load(Ordering::Acquire)), PAGE).await?;
            let Some(last) = changes.last().map(|change| change.seq) else { break };
            let mut feed = Vec::new();
            for change in changes {
                let Some(kind) = TERMINOLOGY_TYPES.into_iter().find(|kind| *kind == change.key.kind) else {
                    continue;
                };
                // The newest version counts, which may be a later one.
                let newest = self.store.read(&change.key, Seq::LATEST).await?;
                let (seq, body) = newest.map_or((change.seq, None), |version| (version.seq, version.body));
                feed.push((kind, change.key.id, seq, body));
            }
            self.take_in(feed, true);
            self.followed.store(last.0, Ordering::Release);
        }
        Ok(())
    }
}

/// The client that calls external providers. Their limits are per call; what is fixed is here.
fn provider_client() -> Result<reqwest::Client> {
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .connect_timeout(Duration::from_secs(10))
        .pool_max_idle_per_host(2)
        .build()
        .context("failed to set up the client for external providers")
}
