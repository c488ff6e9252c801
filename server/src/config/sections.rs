//! The tables of `trefoil.toml` in the form of the file, before they are checked.

use std::net::SocketAddr;
use std::path::PathBuf;

use identity::lifetimes;
use identity::sign_in::password::PasswordPolicy;
use identity::sign_in::pending_quota::PendingLimits;
use identity::sign_in::throttle::ThrottleLimits;
use serde::Deserialize;
use toml::Spanned;

use super::audit::AuditSection;
use super::backup::BackupSection;
use super::brand::PagesSection;
use super::bulk::BulkSection;
use super::claim::ClaimSection;
use super::declared::{ClientSection, ScopeSection};
use super::documented::{implicit, settings_table};
use super::files::FilesSection;
use super::network::{PrivateHosts, ProxyHeader};
use super::node::{ClockJump, NodeSection};
use super::provider::ProviderSection;
use super::traces::TracesSection;

settings_table! {
    /// `trefoil.toml`.
    pub struct ConfigFile {
        /// Addresses and certificate.
        server: ServerSection = ServerSection::default(),
        /// Engine and folder.
        store: StoreSection = StoreSection::default(),
        /// Keys, passwords, and the hosts of clients' key sets.
        identity: IdentitySection = IdentitySection::default(),
        /// Clients.
        client: Vec<ClientSection> = Vec::new(),
        /// Scopes.
        scope: Vec<Spanned<ScopeSection>> = Vec::new(),
        /// Claims.
        claim: Vec<Spanned<ClaimSection>> = Vec::new(),
        /// The pages for people.
        pages: PagesSection = PagesSection::default(),
        /// External providers.
        provider: Vec<Spanned<ProviderSection>> = Vec::new(),
        /// Resources.
        resources: ResourcesSection = ResourcesSection::default(),
        /// Terminology.
        terminology: TerminologySection = TerminologySection::default(),
        /// Exports.
        bulk: BulkSection = BulkSection::default(),
        /// Places of files.
        files: FilesSection = FilesSection::default(),
        /// Backups by schedule.
        backup: BackupSection = BackupSection::default(),
        /// Maximum numbers and sizes.
        limits: LimitsSection = LimitsSection::default(),
        /// The audit log.
        audit: AuditSection = AuditSection::default(),
        /// The log of the server.
        log: LogSection = LogSection::default(),
        /// Metrics.
        metrics: MetricsSection = MetricsSection::default(),
        /// Traces.
        traces: TracesSection = TracesSection::default(),
        /// This server among several ones.
        node: NodeSection = NodeSection::default(),
    }
}

settings_table! {
    /// Addresses, certificate, proxies and connections.
    pub struct ServerSection {
        /// Address to listen on; `127.0.0.1:8443` listens on `[::1]` too.
        listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 8443)),
        /// Base URL of the server. Without this setting, `https://localhost:PORT`.
        base_url: Option<String> = None,
        /// PEM file with the certificate chain. Without this setting, a development certificate is generated.
        certificate: Option<PathBuf> = None,
        /// PEM file with the private key.
        private_key: Option<PathBuf> = None,
        /// Networks of the proxies that end TLS and send plain HTTP to this server; `base_url` is the address
        /// at the proxy. Other clients can read `/health/` only.
        plain_http_from: Vec<Spanned<String>> = Vec::new(),
        /// Networks of the TCP proxies whose connections begin with a header of the PROXY protocol, version 1
        /// or 2, which has the address of the client. Without this header they are closed.
        proxy_protocol_from: Vec<Spanned<String>> = Vec::new(),
        /// Networks of the proxies whose header with the address of the client is trusted.
        trusted_proxies: Vec<Spanned<String>> = Vec::new(),
        /// Header in which these proxies send the address of the client; `forwarded` is that of RFC 7239.
        proxy_header: ProxyHeader = ProxyHeader::default(),
        /// Number of proxies in front of this server, 1 to 10: the address of the client is this one from the
        /// right in the header. Without this setting, it is the last that is not of a trusted proxy.
        proxy_hops: Option<Spanned<u32>> = None,
        /// Time without data in either direction after which a connection is closed, 1 to 3600. Set it higher
        /// than the idle timeout of your load balancer.
        idle_timeout_s: Spanned<u32> ["seconds"] = implicit(75),
        /// Reaction when the clock of the machine jumps ahead by more than 5 minutes, as after a pause of a
        /// virtual machine: writes are refused until `trefoil clock accept`, or the new time is accepted.
        /// With a database, its time decides.
        clock_jump: ClockJump = ClockJump::default(),
        /// Time after the stop signal during which new connections are still accepted.
        shutdown_grace_s: u32 ["seconds"] = 1,
    }
}

settings_table! {
    /// Keys, passwords, and the hosts of clients' key sets.
    pub struct IdentitySection {
        /// Hosts with private addresses from which key sets may be fetched: all, none, or a list of names.
        allow_private_jwks: PrivateHosts = PrivateHosts::default(),
        /// Time for which a signing key is active, 1 to 3650.
        rotate_keys_days: Spanned<u32> ["days"] = implicit(90),
        /// File with the key that encrypts secrets in the store: 32 bytes in base64.
        key_encryption_key_file: Option<Spanned<PathBuf>> = None,
        /// Environment variable with the key that encrypts secrets in the store.
        key_encryption_key_env: Option<Spanned<String>> = None,
        /// File with the previous key, during a rotation of the key.
        previous_key_encryption_key_file: Option<Spanned<PathBuf>> = None,
        /// Environment variable with the previous key.
        previous_key_encryption_key_env: Option<Spanned<String>> = None,
        /// Minimum length of a new password, 8 to 64.
        password_min_length: Spanned<u32> ["characters"] = implicit(PasswordPolicy::default().min_length as u32),
        /// Minimum strength of a new password, 0 to 4 by zxcvbn; 3 withstands 10^8 guesses, 4 withstands
        /// 10^10.
        password_min_strength: Spanned<u32> = implicit(PasswordPolicy::default().min_strength.into()),
        /// Lifetimes of tokens and sessions.
        lifetimes: LifetimesSection = LifetimesSection::default(),
        /// Failed sign-ins.
        throttle: ThrottleSection = ThrottleSection::default(),
    }
}

settings_table! {
    /// Lifetimes of tokens and sessions. Clients can have other ones, for example `access_token_lifetime_s`.
    /// Access tokens of the token flow are always valid for 3600 seconds, and authorization codes for 300.
    pub struct LifetimesSection {
        /// Access tokens of users, 60 to 86400.
        access_token_s: Spanned<u32> ["seconds"] = implicit(lifetimes::ACCESS_TOKEN.as_secs() as u32),
        /// Access tokens from `client_credentials`, 60 to 86400.
        backend_access_token_s: Spanned<u32> ["seconds"] = implicit(lifetimes::BACKEND_ACCESS_TOKEN.as_secs() as u32),
        /// ID tokens, 60 to 86400.
        id_token_s: Spanned<u32> ["seconds"] = implicit(lifetimes::ID_TOKEN.as_secs() as u32),
        /// Refresh tokens, counted from the first one of a grant, 60 to 31622400.
        refresh_token_s: Spanned<u32> ["seconds"] = implicit(lifetimes::REFRESH_TOKEN_FAMILY.as_secs() as u32),
        /// Sessions of browsers, counted from the last request, 60 to 2592000.
        idle_session_s: Spanned<u32> ["seconds"] = implicit(lifetimes::IDLE_SESSION.as_secs() as u32),
        /// Sessions of browsers, counted from the sign-in, 60 to 2592000.
        session_s: Spanned<u32> ["seconds"] = implicit(lifetimes::SESSION.as_secs() as u32),
    }
}

settings_table! {
    /// Limits on failed sign-ins: numbers of failures after which attempts are delayed, each 1 to 1000000.
    pub struct ThrottleSection {
        /// Failures for one user name at one address, or for one known browser.
        free_failures_per_pair: Spanned<u32> = implicit(ThrottleLimits::default().per_pair),
        /// Failures for one user name at all addresses.
        free_failures_per_user: Spanned<u32> = implicit(ThrottleLimits::default().per_user),
        /// Failures for one address and all user names.
        free_failures_per_address: Spanned<u32> = implicit(ThrottleLimits::default().per_address),
        /// Maximum duration of a delay, 1 to 86400.
        max_lockout_s: Spanned<u32> ["seconds"] = implicit(ThrottleLimits::default().max_lockout.as_secs() as u32),
    }
}

settings_table! {
    /// Engine and folder.
    pub struct StoreSection {
        /// Number of this configuration if several servers share a database. Raise it when you add or remove
        /// clients: a server with a lower number leaves the clients as they are.
        edition: u64 = 0,
        /// Storage engine: `memory`, `file`, or the URL of a PostgreSQL database.
        engine: Spanned<String> = implicit("file".to_owned()),
        /// File with the password of the database, if the URL contains none. Otherwise the environment
        /// variables `PGPASSWORD` and `PGPASSFILE` are used.
        password_file: Option<Spanned<PathBuf>> = None,
        /// Create and update the tables of the database at the start. If the server has no right to do so,
        /// run `trefoil migrate` before the start.
        migrate: bool = true,
        /// Folder for the store, exports, keys and certificate.
        data: PathBuf = PathBuf::from(DEFAULT_DATA_FOLDER),
    }
}

/// Default data folder of the server and of the administration commands.
pub const DEFAULT_DATA_FOLDER: &str = "trefoil-data";

settings_table! {
    /// Terminology.
    pub struct TerminologySection {
        /// Answer terminology requests, and reads and searches of CodeSystems, ValueSets and ConceptMaps,
        /// without a token.
        anonymous: bool = false,
        /// Versions to use if a request names none, each as `url|version`. A URL that ends with `*` is a
        /// prefix, and a version may be a pattern such as `4.x`: `http://hl7.org/fhir/*|5.x`.
        preferred_versions: Vec<Spanned<String>> = Vec::new(),
        /// Dialects of SNOMED CT, best first, each as alias (`en-gb`) or as the id of a language reference
        /// set. Their preferred terms are displays before those that the edition prefers, and decide between
        /// the terms of a language that a request asks for without a dialect.
        snomed_dialects: Vec<Spanned<String>> = Vec::new(),
        /// Use of SNOMED CT's concept model (MRCM) in the validation of post-coordinated expressions, if the
        /// edition has its reference sets: an attribute or a value that it forbids is a warning, or makes the
        /// code invalid. With `off`, and without reference sets, the answer says that this was not checked.
        mrcm: ::terminology::ConceptModelMode = ::terminology::ConceptModelMode::default(),
    }
}

settings_table! {
    /// Resources.
    pub struct ResourcesSection {
        /// Validation of resources that are written or imported: the elements of their type, cardinalities
        /// and the formats of primitive values, but not profiles and bindings. `warn` logs defects and
        /// refuses what no reader of FHIR R4 can parse, such as a number instead of a string or a day that
        /// the calendar does not have. `reject` refuses any defect. `off` validates nothing.
        validation: ::resources::Validation = ::resources::Validation::default(),
        /// Accept ids of up to 128 characters, as some record systems have. FHIR R4 permits 64, and other
        /// servers may refuse longer ones. Resources that have such ids stay readable without this setting.
        long_ids: bool = false,
    }
}

settings_table! {
    /// Maximum numbers and sizes.
    pub struct LimitsSection {
        /// Maximum number of open connections. The limit of file descriptors can reduce it.
        connections: usize = 10_000,
        /// Maximum number of open connections of one address, or of one IPv6 network of 64 bits. Trusted
        /// proxies are exempt.
        connections_per_address: usize = 512,
        /// Maximum number of pending requests of each kind (pushed requests, device authorizations, passkey
        /// ceremonies, sign-ins at a provider) that one address may create. Above it, requests are answered
        /// with 429.
        pending_per_address: usize = PendingLimits::default().per_address,
        /// The same maximum for all addresses together.
        pending_total: usize = PendingLimits::default().total,
        /// Maximum size of a FHIR request body, and of a resource. Raw content of a Binary may have three
        /// quarters of it.
        body_limit_bytes: usize ["bytes"] = 16 << 20,
        /// Maximum memory for all request bodies together: three times the size of each, and 1 to 3 kB for
        /// each entry of a Bundle; one address can use a quarter of it. Above it, requests are answered with
        /// 503. At most a fifth of the memory of the machine or of the control group.
        body_memory_bytes: usize ["bytes"] = 512 << 20,
        /// Maximum memory for all answers that contain resources; one client can use a quarter of it. Above
        /// it, requests wait, and are answered with 503 after 5 s. At most a fifth of the memory of the
        /// machine or of the control group.
        response_memory_bytes: usize ["bytes"] = 256 << 20,
    }
}

settings_table! {
    /// Metrics for Prometheus. Administrators also read them at `{base}/metrics`.
    #[derive(Clone)]
    pub struct MetricsSection {
        /// Address on which `/metrics` is served over plain HTTP and without a token, such as
        /// `127.0.0.1:9464`. Choose an address that only the monitoring can reach.
        listen: Option<SocketAddr> = None,
    }
}

/// The form of the lines of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Words and `name=value`.
    #[default]
    Text,
    /// JSON objects.
    Json,
}

settings_table! {
    /// The log of the server. The environment variable `TREFOIL_LOG` selects the lines.
    #[derive(Clone)]
    pub struct LogSection {
        /// Form of a line: `text`, or `json` with one object on each line.
        format: LogFormat = LogFormat::default(),
        /// Duration of a request from which its line is a warning; 0 for none. Exports and downloads are
        /// measured until their headers.
        slow_ms: u32 ["milliseconds"] = 5_000,
        /// Folder for daily files. Without this setting, the log is written to standard error.
        folder: Option<PathBuf> = None,
        /// Number of days for which the files are kept; 0 for all.
        keep_days: u32 ["days"] = 30,
        /// Maximum size of all files; 0 for none. Above it, and before the reserve of the disk is used, the
        /// oldest files are removed.
        max_bytes: u64 ["bytes"] = 1 << 30,
    }
}
