//! [`App`]: the services of one server, wired together.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, Result, bail};
use arc_swap::ArcSwap;
use bulk::{Bulk, BulkOptions, FileLocation};
use bytes::Bytes;
use identity::sign_in::pending_quota::PendingQuota;
use identity::{Dependencies, Identity, KeyProvider, SystemKeys};
use jiff::SignedDuration;
use resources::filter::TypeFilter;
use resources::{ResourceLimits, Resources};
use store::Store;
use store::space::DiskSpace;
use terminology::Terminology;

use crate::clock::guard::{self, ClockGuard};
use crate::clock::{Clock, RequestIds};
use crate::config::settings::{Settings, SharedSettings};
use crate::config::{ClockJump, Config, ServeFlags, StoreEngine};
use crate::node::abandoned_requests::AbandonedRequests;
use crate::node::byte_budget::{self, ByteBudget};
use crate::node::client_origins::ClientOrigins;
use crate::node::descriptors;
use crate::node::group_members::GroupMembers;
use crate::node::hashing::PasswordHasher;
use crate::node::key_fetch::{self, KeyFetcher};
use crate::node::memory_limit;
use crate::node::outbound::HttpCaller;
use crate::node::provider_calls::{self, ProviderCalls};
use crate::node::question_pool::QuestionPool;
use crate::node::saved_indexes::SavedIndexes;
use crate::node::shared_releases::SharedReleases;
use crate::node::terminology_sync::TerminologySync;
use crate::records::audit::{AuditEntry, AuditLog, AuditSource};
use crate::records::export_log::ExportLog;
use crate::records::request_log::RequestLog;

/// The world outside of a server. A simulation passes its own.
pub struct Outside {
    /// Time and randomness.
    pub clock: Clock,
    /// Generates and opens the private keys of this server.
    pub keys: Arc<dyn KeyProvider>,
    /// Sends all requests to other servers. `None` means the network, where key sets are fetched from public
    /// addresses only.
    pub http: Option<Arc<dyn HttpCaller>>,
}

impl From<Clock> for Outside {
    fn from(clock: Clock) -> Self {
        Self { clock, keys: Arc::new(SystemKeys), http: None }
    }
}

/// Factor by which the processing of a request body takes more memory than the body: its text without white
/// space, the record of the store, and the copy in the tables that are not yet on the disk.
pub const BODY_COST: usize = 3;

/// Memory in bytes for each entry of a batch and of a transaction, besides their text: the plan, the result,
/// and the keys and index entries in the tables of the store. A transaction writes them all together.
/// Measured: 500 to 1,000, and 2,500 to 3,500.
pub const BATCH_ENTRY_COST: usize = 1_000;
/// See [`BATCH_ENTRY_COST`].
pub const TRANSACTION_ENTRY_COST: usize = 3_000;

/// The services of one server.
pub struct App {
    /// Time and randomness.
    pub clock: Clock,
    /// Refuses writes after a jump of the clock.
    pub clock_guard: Arc<ClockGuard>,
    /// Ids of requests.
    pub request_ids: RequestIds,
    /// Base URL without trailing slash.
    pub base_url: String,
    /// Base URL of the FHIR endpoints.
    pub fhir_base: String,
    /// The host of the base URL is a loopback name.
    pub is_loopback: bool,
    /// The base URL is HTTPS, so cookies are sent over HTTPS only.
    pub is_https: bool,
    /// The server uses the certificate of its development CA.
    pub has_development_ca: bool,
    /// The data folder.
    pub data: PathBuf,
    /// The ledger and the versions of resources.
    pub store: Store,
    /// OAuth and OpenID Connect.
    pub identity: Identity,
    /// FHIR resources.
    pub resources: Resources,
    /// Code systems and value sets.
    pub terminology: Terminology,
    /// Applies the resources of the store to the terminology.
    pub terminology_sync: TerminologySync,
    /// Exports.
    pub bulk: Bulk,
    /// Records the requests of clients for their exports; `None` if no export log is configured.
    pub export_log: Option<Arc<ExportLog>>,
    /// The CapabilityStatement, after its first request.
    pub capabilities: OnceLock<Bytes>,
    /// The audit log.
    pub audit: Arc<AuditLog>,
    /// Decides which requests have a line in the log.
    pub request_log: RequestLog,
    /// The settings that can change while the server runs.
    settings: SharedSettings,
    /// The settings that cannot, with their values at the start.
    pub fixed: Vec<(&'static str, String)>,
    /// The flags, with which the configuration is read again.
    pub flags: ServeFlags,
    /// Client for external providers: no redirects, no proxies, limited times and sizes.
    pub providers: ProviderCalls,
    /// Runs long terminology questions.
    pub questions: QuestionPool,
    /// Runs password hashes.
    pub hashing: PasswordHasher,
    /// Members of the Groups that clients are limited to.
    pub group_members: GroupMembers,
    /// Requests whose clients have disconnected.
    pub abandoned: AbandonedRequests,
    /// Memory for request bodies.
    pub bodies: Arc<ByteBudget>,
    /// Memory for answers.
    pub answers: Arc<ByteBudget>,
    /// Counts the pending records that anonymous requests created.
    pub pending: PendingQuota,
    /// Origins whose scripts may read responses.
    pub origins: ClientOrigins,
    /// Set when the server begins to stop, so that it is no longer ready.
    pub is_stopping: AtomicBool,
    /// The wall clock must agree with the clock of the database; not if it was set ahead for a demonstration.
    pub follows_database_clock: bool,
}

impl App {
    /// Opens all services over a store.
    ///
    /// # Errors
    /// An error if the store cannot be read or a folder cannot be created.
    pub async fn open(
        mut config: Config,
        flags: &ServeFlags,
        base_url: String,
        store: Store,
        outside: Outside,
    ) -> Result<Arc<Self>> {
        let Outside { clock, keys, http } = outside;
        let now = clock.now();
        if let Some(last) = store.last_time().await? {
            guard::log_start(now, last);
        }
        let clock_guard = Arc::new(clock.guard());
        if config.clock_jump == ClockJump::Accept && !store.is_shared() {
            clock_guard.accept_jumps();
        }
        let asked = clock.now();
        if let Some(database) = store.shared_time().await?.filter(|_| config.ahead_s == 0)
            && let Some(ahead) = clock_guard.compare(asked, database)
        {
            bail!(
                "the clock of this machine differs by {} s from that of the database; correct it, for example with NTP",
                ahead.as_secs()
            );
        }
        let fixed = config.restart_settings();
        let limits = ResourceLimits { bytes: config.settings.body_limit_bytes, ..ResourceLimits::default() };
        let settings = Arc::new(ArcSwap::from_pointee(std::mem::take(&mut config.settings)));
        let source = AuditSource { observer: base_url.clone(), node: config.node.clone() };
        let audit = AuditLog::open(&config.data, source, config.audit, clock.clone())
            .context("failed to open the audit log")?;
        let gates = (Arc::clone(&clock_guard), audit.clone());
        store.set_gate(Arc::new(move || gates.0.check().and_then(|()| gates.1.check())));
        let dependencies = Dependencies {
            encryption: std::mem::take(&mut config.encryption),
            fetch: Arc::new(KeyFetcher::new(
                match &http {
                    Some(http) => Arc::clone(http),
                    None => key_fetch::public_caller(settings.clone())?,
                },
                settings.clone(),
                clock.clone(),
            )),
            keys,
            audit: audit.clone(),
            supports_query: TypeFilter::is_supported,
        };
        let random = clock.random.clone();
        let identity = Identity::open_with(store.clone(), random, dependencies, &base_url, config.demo, now)
            .await
            .context("failed to open the identity records")?;
        identity.lifetimes.configure(settings.load().lifetimes, now).await?;
        let host = url::Url::parse(&base_url)?.host_str().unwrap_or_default().to_owned();
        let resources = Resources::at(store.clone(), &format!("{base_url}/fhir/R4"));
        resources.set_limits(limits);
        if let Some(bucket) = config.files.bucket.clone() {
            tokio::spawn(async move {
                if let Err(why) = bucket.check().await {
                    tracing::error!(why, "the bucket of [files] cannot be used; exports fail until it can");
                }
            });
        }
        let bulk = Bulk::open(
            store.clone(),
            resources.clone(),
            BulkOptions {
                files: match config.files.bucket.clone() {
                    Some(bucket) => FileLocation::Bucket(bucket),
                    None => {
                        let path = config.data.join("exports");
                        FileLocation::Folder { disk: DiskSpace::of(&path), path }
                    }
                },
                lease: config.bulk.lease,
                fhir_base: format!("{base_url}/fhir/R4"),
                retention: config.bulk.retention,
                file_size: config.bulk.file_size,
                poll_limit: config.bulk.poll_limit,
                signing: config.bulk.signed_urls.map(|lifetime| {
                    let secret = Arc::clone(&identity.server_secret);
                    bulk::AddressSigning { mac: Arc::new(move |url| secret.mac("file-url", url)), lifetime }
                }),
                in_flight: config.bulk.in_flight,
                guide: config.bulk.guide,
                nested_groups: config.bulk.nested_groups,
                open_downloads: descriptors::descriptor_budget().downloads,
            },
            clock.for_bulk(),
        )?;
        let completed = audit.clone();
        bulk.on_complete(Arc::new(move |job| {
            completed.add(&AuditEntry::ExportCompleted {
                client_id: job.client_id.clone(),
                job: job.id.clone(),
                files: job.files.len(),
                lines: job.files.iter().map(|file| file.count).sum(),
                bytes: job.files.iter().map(|file| file.bytes).sum(),
            });
        }));
        let export_log = match config.bulk.export_log.clone() {
            None => None,
            Some(folder) => {
                let retention =
                    SignedDuration::try_from(config.bulk.retention).unwrap_or(SignedDuration::MAX);
                let fhir_base = format!("{base_url}/fhir/R4");
                let log = ExportLog::open(folder, &fhir_base, &config.node, retention, clock.clone(), &store)
                    .context("failed to open the export log")?;
                Some(Arc::new(log))
            }
        };
        let indexes = match config.engine {
            StoreEngine::Memory => None,
            StoreEngine::File | StoreEngine::Postgres { .. } => {
                let indexes = SavedIndexes::open(&config.data);
                let swept = indexes.and_then(|indexes| indexes.remove_partial().map(|()| indexes));
                Some(swept.context("failed to open the saved indexes")?)
            }
        };
        let terminology = Terminology::default();
        terminology.prefer_versions(settings.load().preferred_versions.clone());
        // Indexes of releases are shared by the nodes on one database.
        let shared = match (config.files.bucket.clone(), &indexes) {
            (Some(bucket), Some(indexes)) if store.is_shared() => {
                Some(SharedReleases::new(store.clone(), bucket, indexes.clone()))
            }
            _ => None,
        };
        let terminology_sync =
            TerminologySync::open(store.clone(), terminology.clone(), indexes, shared, now)
                .await
                .context("failed to read the stored terminology")?;
        let memory = memory_limit::memory_limit();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let app = Self {
            fhir_base: format!("{base_url}/fhir/R4"),
            is_loopback: matches!(host.as_str(), "localhost" | "127.0.0.1" | "[::1]"),
            is_https: base_url.starts_with("https://"),
            has_development_ca: !config.insecure_http && config.certificate.is_none(),
            base_url,
            data: config.data.clone(),
            store,
            identity,
            resources,
            terminology,
            terminology_sync,
            bulk,
            export_log,
            capabilities: OnceLock::new(),
            audit,
            request_log: RequestLog::default(),
            settings,
            fixed,
            flags: flags.clone(),
            providers: ProviderCalls::new(match http {
                Some(http) => http,
                None => provider_calls::provider_caller()?,
            }),
            questions: QuestionPool::new(cores, memory_limit::limited_budget(usize::MAX, memory)),
            hashing: PasswordHasher::new(cores),
            group_members: GroupMembers::default(),
            abandoned: AbandonedRequests::default(),
            bodies: ByteBudget::new(
                memory_limit::limited_budget(config.body_memory_bytes, memory),
                limits.bytes * BODY_COST,
                byte_budget::MAX_WAIT,
            ),
            answers: ByteBudget::new(
                memory_limit::limited_budget(config.response_memory_bytes, memory),
                limits.bytes * 2,
                byte_budget::MAX_WAIT,
            ),
            pending: PendingQuota::new(config.pending),
            origins: ClientOrigins::default(),
            is_stopping: AtomicBool::new(false),
            follows_database_clock: config.ahead_s == 0,
            request_ids: RequestIds::new(&*clock.random),
            clock,
            clock_guard,
        };
        Ok(Arc::new(app))
    }

    /// The current settings. They may be replaced during a request, so a handler reads them once.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    /// Replaces all settings.
    pub fn replace_settings(&self, settings: Settings) {
        // The maximum size of a body is that of a resource, too.
        self.resources
            .set_limits(ResourceLimits { bytes: settings.body_limit_bytes, ..self.resources.limits() });
        self.terminology.prefer_versions(settings.preferred_versions.clone());
        self.settings.store(Arc::new(settings));
    }
}
