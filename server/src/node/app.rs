//! [`App`]: the services of one server, wired together.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use anyhow::{Context as _, Result};
use arc_swap::ArcSwap;
use bulk::{BucketRequests, Bulk, GroupError};
use bytes::Bytes;
use identity::{Dependencies, Identity, KeyProvider, SystemKeys};
use resources::Resources;
use resources::filter::TypeFilter;
use store::Store;
use terminology::Terminology;

use crate::clock::{Clock, RequestIds};
use crate::config::restart_settings::RestartSettings;
use crate::config::settings::{Settings, SharedSettings};
use crate::config::{Config, ServeFlags};
use crate::node::audit_delivery::AuditDelivery;
use crate::node::backups::BackupSources;
use crate::node::capacity::Capacity;
use crate::node::certificate::ServedCertificate;
use crate::node::client_overview::ClientOverview;
use crate::node::clock_check::ClockCheck;
use crate::node::drain::StoreDrain;
use crate::node::group_members::GroupMembers;
use crate::node::key_fetch::{self, KeyFetcher};
use crate::node::open_services::{open_bulk, open_terminology};
use crate::node::outbound::HttpCaller;
use crate::node::patient_assignment::PatientAssignment;
use crate::node::patient_relations::{GroupMembersReader, StoredRelations};
use crate::node::provider_calls::{self, ProviderCalls};
use crate::node::release_files::ReleaseFiles;
use crate::node::server_address::ServerAddress;
use crate::node::terminology_sync::TerminologySync;
use crate::records::audit::{AuditLog, AuditSource};
use crate::records::refusal_log::RefusalLog;
use crate::records::request_log::RequestLog;
use crate::records::request_metrics::RequestMetrics;
use crate::records::traces::Traces;

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

/// The services of one server.
pub struct App {
    /// Time and randomness.
    pub clock: Clock,
    /// Refuses writes after a jump of the clock.
    pub clock_check: ClockCheck,
    /// The addresses of the server.
    pub address: ServerAddress,
    /// The configuration with which the server runs.
    pub config: RunningConfig,
    /// The logs.
    pub logs: ServerLogs,
    /// The threads and the memory that requests share.
    pub capacity: Capacity,
    /// The ledger and the versions of resources.
    pub store: Store,
    /// The move of the store to another one.
    pub drain: StoreDrain,
    /// OAuth and OpenID Connect.
    pub identity: Identity,
    /// FHIR resources.
    pub resources: Resources,
    /// Whether the versions of an earlier program are assigned to Patients.
    pub patient_assignment: PatientAssignment,
    /// Code systems and value sets.
    pub terminology: Terminology,
    /// Applies the resources of the store to the terminology.
    pub terminology_sync: TerminologySync,
    /// The files of imported releases; `None` if the store is in memory.
    pub release_files: Option<ReleaseFiles>,
    /// Exports.
    pub bulk: Bulk,
    /// Backups.
    pub backups: BackupSources,
    /// Client for external providers: no redirects, no proxies, limited times and sizes.
    pub providers: ProviderCalls,
    /// Sends requests that no client causes.
    pub http: Arc<dyn HttpCaller>,
    /// Sends audit events to a place outside of the server.
    pub audit_delivery: Option<AuditDelivery>,
    /// Members of the Groups that clients are limited to.
    pub group_members: GroupMembers,
    /// Origins and response types of all clients.
    pub client_overview: ClientOverview,
    /// Ids of requests.
    pub request_ids: RequestIds,
    /// The certificate that the server presents. Empty if a proxy ends TLS.
    pub certificate: OnceLock<Arc<ServedCertificate>>,
    /// Counts the open connections, once the server listens.
    pub open_connections: OnceLock<Box<dyn Fn() -> usize + Send + Sync>>,
    /// The CapabilityStatement, after its first request.
    pub capabilities: OnceLock<Bytes>,
    /// Set when the server begins to stop, so that it is no longer ready.
    pub is_stopping: AtomicBool,
}

/// The configuration with which a server runs.
pub struct RunningConfig {
    /// The settings that can change while the server runs.
    settings: SharedSettings,
    /// The settings that cannot, with their values at the start.
    pub fixed: RestartSettings,
    /// The flags, with which the configuration is read again.
    pub flags: ServeFlags,
    /// The data folder.
    pub data: PathBuf,
    /// The server uses the certificate of its development CA.
    pub has_development_ca: bool,
}

/// The logs of a server.
pub struct ServerLogs {
    /// The audit log.
    pub audit: Arc<AuditLog>,
    /// Decides which requests have a line in the log.
    pub requests: RequestLog,
    /// Counts requests by route.
    pub metrics: RequestMetrics,
    /// Counts the requests to buckets.
    pub bucket_requests: Arc<BucketRequests>,
    /// Traces of requests.
    pub traces: Traces,
    /// Logs refused authorization requests.
    pub refusals: RefusalLog,
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
        let (traces, node) = (config.traces.clone(), config.node.clone());
        let now = clock.now();
        let address = ServerAddress::new(base_url)?;
        let clock_check = ClockCheck::open(&config, &clock, &store).await?;
        let fixed = RestartSettings::of(&config);
        let rules = config.settings.resource_rules();
        let settings = Arc::new(ArcSwap::from_pointee(std::mem::take(&mut config.settings)));
        let source = AuditSource { observer: address.base_url.clone(), node: config.node.clone() };
        let audit = AuditLog::open(&config.data, source, config.audit.clone(), clock.clone())
            .context("failed to open the audit log")?;
        let drain = StoreDrain::default();
        let gates = (Arc::clone(&clock_check.guard), audit.clone(), drain.clone());
        let gate = move || gates.0.check().and_then(|()| gates.1.check()).and_then(|()| gates.2.check());
        store.set_gate(Arc::new(gate));
        let key_sets = match &http {
            Some(http) => Arc::clone(http),
            None => key_fetch::public_caller(settings.clone()),
        };
        let resources = Resources::at(store.clone(), &address.fhir_base);
        let patient_assignment = PatientAssignment::open(&store, &address.fhir_base, now)
            .await
            .context("failed to assign stored resources to Patients")?;
        let members: Arc<OnceLock<Box<GroupMembersReader>>> = Arc::default();
        let relations = StoredRelations {
            resources: resources.clone(),
            fhir_base: address.fhir_base.clone(),
            members: members.clone(),
        };
        let dependencies = Dependencies {
            encryption: std::mem::take(&mut config.encryption),
            fetch: Arc::new(KeyFetcher::new(key_sets, settings.clone(), clock.clone())),
            keys,
            audit: audit.clone(),
            relations: Arc::new(relations),
            supports_query: TypeFilter::is_supported,
        };
        let random = clock.random.clone();
        let base_url = &address.base_url;
        let identity = Identity::open_with(store.clone(), random, dependencies, base_url, config.demo, now)
            .await
            .context("failed to open the identity records")?;
        identity.lifetimes.configure(settings.load().lifetimes, now).await?;
        identity.provider_rules.configure(settings.load().identity_providers());
        identity.provider_rules.declare_claims(settings.load().claims.clone());
        resources.set_rules(rules);
        let bulk = open_bulk(&config, &resources, &identity, &audit, &clock)?;
        let terminology = Terminology::with_dialects(config.snomed_dialects.clone());
        terminology.prefer_versions(settings.load().preferred_versions.clone());
        terminology.check_concept_model(settings.load().concept_model);
        let terminology_sync = open_terminology(&config, &terminology, &store, now).await?;
        let providers = match http {
            Some(http) => http,
            None => provider_calls::provider_caller(),
        };
        let backups = BackupSources::new(&config, flags);
        let audit_delivery = config.audit.delivery.as_ref().zip(audit.queue()).map(|(delivery, queue)| {
            AuditDelivery::new(queue.clone(), &delivery.destination, node.clone(), providers.clone())
        });
        let app = Arc::new(Self {
            capacity: Capacity::new(&config, rules.bytes),
            config: RunningConfig {
                settings,
                fixed,
                flags: flags.clone(),
                has_development_ca: config.plain_http.is_none() && config.certificate.is_none(),
                data: config.data,
            },
            logs: ServerLogs {
                refusals: RefusalLog::new(audit.clone()),
                audit,
                requests: RequestLog::new(Duration::from_millis(config.log.slow_ms.into())),
                metrics: RequestMetrics::default(),
                bucket_requests: config.files.access.requests.clone(),
                traces: Traces::new(traces.collector.as_deref(), traces.percent, node),
            },
            address,
            store,
            drain,
            identity,
            resources,
            patient_assignment,
            terminology,
            release_files: terminology_sync.indexes().cloned().map(ReleaseFiles::new),
            terminology_sync,
            bulk,
            backups,
            providers: ProviderCalls::new(Arc::clone(&providers)),
            http: providers,
            audit_delivery,
            group_members: GroupMembers::default(),
            client_overview: ClientOverview::default(),
            request_ids: RequestIds::new(&*clock.random),
            certificate: OnceLock::new(),
            open_connections: OnceLock::new(),
            capabilities: OnceLock::new(),
            is_stopping: AtomicBool::new(false),
            clock,
            clock_check,
        });
        drop(members.set(group_members_reader(Arc::downgrade(&app))));
        Ok(app)
    }

    /// The current settings. They may be replaced during a request, so a handler reads them once.
    pub fn settings(&self) -> Arc<Settings> {
        self.config.settings.load_full()
    }

    /// Replaces all settings.
    pub fn replace_settings(&self, settings: Settings) {
        self.resources.set_rules(settings.resource_rules());
        self.identity.provider_rules.configure(settings.identity_providers());
        self.identity.provider_rules.declare_claims(settings.claims.clone());
        self.terminology.prefer_versions(settings.preferred_versions.clone());
        self.terminology.check_concept_model(settings.concept_model);
        self.config.settings.store(Arc::new(settings));
    }
}

/// Reads the members of Groups, as clients with `groups` see them. A Group that cannot be read has none.
fn group_members_reader(app: Weak<App>) -> Box<GroupMembersReader> {
    Box::new(move |groups, now| {
        let app = app.upgrade();
        Box::pin(async move {
            let Some(app) = app else { return Ok(Vec::new()) };
            match app.group_members.patients(groups, &app.store, &app.bulk, now).await {
                Ok(patients) => {
                    let ids = patients.iter().filter_map(|patient| patient.strip_prefix("Patient/"));
                    Ok(ids.map(str::to_owned).collect())
                }
                Err(GroupError::Store(error)) => Err(error),
                Err(error) => {
                    tracing::warn!(%error, "a Group of a user cannot be read; the user has none of its patients");
                    Ok(Vec::new())
                }
            }
        })
    })
}
