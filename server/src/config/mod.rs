//! Configuration. Command-line options take precedence over `trefoil.toml`, and the file over defaults. No
//! other module reads settings from files or the environment.
//!
//! Unknown keys are rejected with their line. Secrets are read from files (`…_file`) or environment variables
//! (`…_env`); they are not allowed in the configuration file itself. A relative path is resolved against the
//! folder of the configuration file.
//!
//! | module | contents |
//! |---|---|
//! | [`sections`] | the tables of the file, as they are written |
//! | `documented` | the declaration of a table; in tests, `document` generates `server/docs/configuration.md` from it |
//! | [`store_engine`] | the storage engine of `[store]` |
//! | `checks` | in tests, configuration texts and why they are refused |
//! | `setting_value` | the type and the default of a setting, as documented |
//! | [`declared`] | `[[client]]` and `[[scope]]` |
//! | [`claim`] | `[[claim]]` |
//! | [`provider`] | `[[provider]]` |
//! | [`brand`] | `[pages]` |
//! | [`backup`](mod@backup) | `[backup]` |
//! | [`bulk`] | `[bulk]` |
//! | [`files`] | `[files]` |
//! | [`audit`] | `[audit]` |
//! | [`network`] | connections, trusted proxies, private hosts |
//! | [`node`] | `[node]` |
//! | [`traces`] | `[traces]` |
//! | [`file`](mod@file), [`source`] | reading the file: secrets, and errors with line and key |
//! | `server_checks` | the checks of `[server]` and `[store]` together with the flags |
//! | [`environment`] | the environment variables |
//! | [`settings`] | the settings that can change while the server runs |
//! | [`restart_settings`] | the settings that cannot |
//! | here | [`Config`]: the checked result of flags, file and defaults |

pub mod audit;
pub mod backup;
pub mod brand;
pub mod bulk;
#[cfg(test)]
mod checks;
pub mod claim;
pub mod declared;
#[cfg(test)]
mod document;
mod documented;
pub mod environment;
pub mod file;
pub mod files;
pub mod network;
pub mod node;
pub mod provider;
pub mod restart_settings;
pub mod sections;
mod server_checks;
#[cfg(test)]
mod setting_value;
pub mod settings;
pub mod source;
pub mod store_engine;
pub mod traces;

use fhir::IdLength;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use identity::sign_in::password::PasswordPolicy;
use identity::sign_in::pending_quota::PendingLimits;
use identity::storage::encryption::{SecretEncryption, SecretStorageError};
use ipnet::IpNet;
use jiff::SignedDuration;
use terminology::SnomedDialects;

use self::audit::AuditConfig;
use self::backup::BackupConfig;
use self::bulk::BulkConfig;
use self::claim::check_claims;
use self::declared::DeclaredClient;
pub use self::environment::ENVIRONMENT;
use self::file::{parse, read_text};
use self::files::FilesConfig;
pub use self::network::{ConnectionLimits, PlainHttp, PrivateHosts, ProxyHeader, TrustedProxies};
pub use self::node::ClockJump;
pub use self::provider::ConfiguredProvider;
use self::provider::check_provider;
pub use self::sections::{LogFormat, LogSection, MetricsSection};
use self::settings::Settings;
pub use self::source::{ConfigError, ConfigSource};
pub use self::store_engine::StoreEngine;
use self::traces::TracesConfig;

/// The checked settings of a server.
#[derive(Debug)]
pub struct Config {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Base URL. `None` until the port is known.
    pub base_url: Option<String>,
    /// The data folder.
    pub data: PathBuf,
    /// Dialects of SNOMED CT whose terms are displays.
    pub snomed_dialects: SnomedDialects,
    /// The storage engine.
    pub engine: StoreEngine,
    /// Number of the configuration, on a store that several servers share.
    pub edition: u64,
    /// The clients from which plain HTTP is accepted. `None` if the server ends TLS itself.
    pub plain_http: Option<PlainHttp>,
    /// Networks of the TCP proxies whose connections begin with a header of the PROXY protocol.
    pub proxy_protocol_from: Arc<[IpNet]>,
    /// Serve the demo project with its users and clients.
    pub demo: bool,
    /// Seconds by which the clock is set ahead (`TREFOIL_DEMO_AHEAD_S`, for the demo project only), to show
    /// that codes and tokens expire.
    pub ahead_s: i64,
    /// Paths of the certificate file and the key file.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The settings that can change while the server runs.
    pub settings: Settings,
    /// The clients declared in the file.
    pub clients: Vec<DeclaredClient>,
    /// Keys that encrypt secrets in the store at rest.
    pub encryption: SecretEncryption,
    /// Settings of exports.
    pub bulk: BulkConfig,
    /// Places of files.
    pub files: FilesConfig,
    /// Backups by schedule.
    pub backup: BackupConfig,
    /// Settings of the audit log.
    pub audit: AuditConfig,
    /// Name of this server among several ones.
    pub node: String,
    /// Maximum numbers of open connections.
    pub connections: ConnectionLimits,
    /// Maximum numbers of records that anonymous requests create.
    pub pending: PendingLimits,
    /// Maximum memory for all request bodies together, in bytes.
    pub body_memory_bytes: usize,
    /// The log of the server.
    pub log: LogSection,
    /// Metrics.
    pub metrics: MetricsSection,
    /// Traces.
    pub traces: TracesConfig,
    /// Reaction when the clock jumps ahead.
    pub clock_jump: ClockJump,
    /// Maximum memory for all answers together, in bytes.
    pub response_memory_bytes: usize,
    /// Idle time after which a connection is closed.
    pub idle_timeout: Duration,
    /// Time between the stop signal and the closing of the listener, during which connections are still
    /// accepted.
    pub shutdown_grace: Duration,
}

/// Reads the table `[identity]` of a configuration file, for commands on a stopped server. Returns the keys
/// that encrypt secrets in the store, and the requirements for new passwords.
///
/// # Errors
/// [`ConfigError`] if the file cannot be read or is invalid.
pub fn read_identity(path: Option<&Path>) -> Result<(SecretEncryption, PasswordPolicy), ConfigError> {
    let Some(path) = path else { return Ok((SecretEncryption::default(), PasswordPolicy::default())) };
    let text = read_text(path)?;
    let (file, source) = (parse(path, &text)?, ConfigSource { path, text: &text });
    Ok((source.encryption_keys(&file.identity)?, source.password_policy(&file.identity)?))
}

/// Command-line options of `serve`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ServeFlags {
    /// Configuration file; flags take precedence over it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Folder for the store, exports, keys and certificate [default: trefoil-data]
    #[arg(long, value_name = "FOLDER")]
    pub data: Option<PathBuf>,
    /// Store engine: memory, file, or the URL of a PostgreSQL database [default: file]
    #[arg(long, value_name = "ENGINE")]
    pub store: Option<String>,
    /// Address and port to listen on; port 0 chooses a free one [default: 127.0.0.1:8443]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// Base URL of the server [default: https://localhost:PORT]
    #[arg(long, value_name = "URL")]
    pub base_url: Option<String>,
    /// Add the demo project and serve it, on loopback addresses only
    #[arg(long)]
    pub demo: bool,
    /// Serve plain HTTP, on loopback addresses only: for benchmarks or a local TLS proxy
    #[arg(long)]
    pub insecure_http: bool,
    /// For tests of apps: serve the demo project from memory on a free port, print one line of JSON with the
    /// addresses, users and clients, and leave nothing behind
    #[arg(long, conflicts_with_all = ["data", "store", "demo", "use_moved_store"])]
    pub ephemeral: bool,
    /// Use a store again that `trefoil copy` has moved, without what was written to the copy
    #[arg(long)]
    pub use_moved_store: bool,
}

impl Config {
    /// Reads the file, applies the options and checks the result.
    ///
    /// # Errors
    /// [`ConfigError`] with the position of the invalid setting and the remedy.
    pub fn load(flags: &ServeFlags) -> Result<Self, ConfigError> {
        let path = flags.config.clone().unwrap_or_default();
        let text = match &flags.config {
            Some(path) => read_text(path)?,
            None => String::new(),
        };
        let mut file = parse(&path, &text)?;
        let source = ConfigSource { path: &path, text: &text };
        let listen = flags.listen.unwrap_or(file.server.listen);
        let engine = server_checks::store_engine(&source, &file.store, flags.store.as_deref())?;
        server_checks::check_loopback(listen, flags.insecure_http, flags.demo)?;
        let base_url = flags.base_url.clone().or(file.server.base_url.take());
        if let Some(base) = &base_url {
            server_checks::check_base_url(base, flags.insecure_http)?;
        }
        let plain_http =
            server_checks::plain_http(&source, &file.server, flags.insecure_http, base_url.is_some())?;
        let proxy_protocol_from =
            source.parse_networks("proxy_protocol_from", &file.server.proxy_protocol_from)?;
        let certificate = server_checks::certificate(&mut file.server, plain_http.is_some())?;
        let scopes = file
            .scope
            .into_iter()
            .map(|scope| {
                let span = scope.span();
                scope.into_inner().check(&source, &span)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let clients: Vec<_> =
            file.client.into_iter().map(|client| client.check(&source, &scopes)).collect::<Result<_, _>>()?;
        server_checks::check_declared_once(&clients, &path)?;
        let days = source.bounded_number("rotate_keys_days", &file.identity.rotate_keys_days, 1..=3650)?;
        let idle_timeout_s =
            source.bounded_number("idle_timeout_s", &file.server.idle_timeout_s, 1..=3600)?;
        let trusted_proxies = server_checks::trusted_proxies(&source, &file.server)?;
        let snomed_dialects = source.snomed_dialects(&file.terminology)?;
        let providers = file.provider.into_iter().map(|section| check_provider(section, &source));
        let mut providers = providers.collect::<Result<Vec<_>, _>>()?;
        let claims = check_claims(file.claim, &source, &scopes, &mut providers)?;
        let settings = Settings {
            providers,
            scopes,
            claims,
            demo_scopes: if flags.demo { declared::demo_scopes().collect() } else { Vec::new() },
            brand: file.pages.check(&source)?,
            anonymous_terminology: file.terminology.anonymous,
            preferred_versions: source.preferred_versions(&file.terminology)?,
            concept_model: file.terminology.mrcm,
            trusted_proxies,
            rotate_keys_every: SignedDuration::from_hours(24 * i64::from(days)),
            body_limit_bytes: file.limits.body_limit_bytes,
            validation: file.resources.validation,
            ids: if file.resources.long_ids { IdLength::Long } else { IdLength::R4 },
            private_key_hosts: file.identity.allow_private_jwks.clone(),
            passwords: source.password_policy(&file.identity)?,
            throttle: source.throttle_limits(&file.identity.throttle)?,
            lifetimes: source.lifetimes(&file.identity.lifetimes)?,
        };
        let files = file.files.check(&source, &file.bulk)?;
        Ok(Self {
            encryption: source.encryption_keys(&file.identity)?,
            settings,
            clients,
            listen,
            base_url: base_url.map(|base| base.trim_end_matches('/').to_owned()),
            data: flags.data.clone().unwrap_or(file.store.data),
            engine,
            snomed_dialects,
            edition: file.store.edition,
            plain_http,
            proxy_protocol_from: proxy_protocol_from.into(),
            demo: flags.demo,
            ahead_s: if flags.demo { environment::demo_ahead()? } else { 0 },
            certificate,
            backup: file.backup.check(&source, &files.access)?,
            files,
            bulk: file.bulk.check(&source)?,
            audit: file.audit.check(&source)?,
            node: file.node.check(&source)?,
            connections: ConnectionLimits {
                total: file.limits.connections.max(1),
                per_address: file.limits.connections_per_address.max(1),
            },
            pending: PendingLimits {
                per_address: file.limits.pending_per_address,
                total: file.limits.pending_total,
                ..PendingLimits::default()
            },
            body_memory_bytes: file.limits.body_memory_bytes,
            log: file.log,
            metrics: file.metrics,
            traces: file.traces.check(&source)?,
            clock_jump: file.server.clock_jump,
            response_memory_bytes: file.limits.response_memory_bytes,
            idle_timeout: Duration::from_secs(idle_timeout_s.into()),
            shutdown_grace: Duration::from_secs(file.server.shutdown_grace_s.into()),
        })
    }
}

/// Returns exit code 3 if the configuration must be changed, and 1 for any other error.
pub fn exit_code(error: &anyhow::Error) -> ExitCode {
    let wrong_key =
        matches!(error.downcast_ref::<SecretStorageError>(), Some(SecretStorageError::Encryption(_)));
    let is_config_error = error.downcast_ref::<ConfigError>().is_some();
    ExitCode::from(if wrong_key || is_config_error { 3 } else { 1 })
}

#[cfg(test)]
mod tests {
    use super::checks::{check_refused, load};
    use super::*;

    #[test]
    fn unknown_keys_are_named_with_their_line() {
        check_refused("[server]\nlisten = \"127.0.0.1:0\"\nlissten = 3\n", "line 3");
        check_refused("[server]\nlissten = 3\n", "did you mean `listen`?");
        check_refused("[[provider]]\nname = \"P\"\nclientid = \"c\"\n", "did you mean `client_id`?");
        check_refused("[serverr]\n", "unknown field `serverr`");
        check_refused("[audit]\ndurability = \"sync\"\n", "did you mean `synced`?");
        check_refused("[audit]\nresources = \"reads\"\n", "expected one of `off`, `changes`, `all`");
        // The only key of a table is named once.
        let error = load("[node]\nnam = \"a\"\n").unwrap_err().to_string();
        assert_eq!(error.matches("`name`").count(), 1, "{error}");
    }

    #[test]
    fn settings_that_cannot_work_are_rejected() {
        check_refused("[store]\nengine = \"oracle\"\n", "store 'oracle' is not known");
        check_refused("[server]\nbase_url = \"http://id.example\"\n", "must begin with https://");
        check_refused("[server]\nbase_url = \"https://id.example/x\"\n", "neither path");
        check_refused("[[provider]]\nname = \"P\"\nclient_id = \"c\"\n", "needs issuer");
        let demo = ServeFlags {
            demo: true,
            listen: Some(SocketAddr::from(([0, 0, 0, 0], 1))),
            ..ServeFlags::default()
        };
        assert!(Config::load(&demo).is_err());
    }

    #[test]
    fn errors_in_other_tables_contain_line_and_key() {
        check_refused(
            "[[scope]]\nname = \"openid\"\ndescription = \"x\"\n",
            "line 2: name: the scope 'openid' is reserved by the server",
        );
        check_refused("[[scope]]\nname = \"a b\"\ndescription = \"x\"\n", "one word");
        check_refused("\n[[scope]]\ndescription = \"x\"\n", "line 2: name: this member is required");
        check_refused("\n[[scope]]\nname = \"notes\"\n", "line 2: description: this member is required");
        check_refused(
            "[[scope]]\nname = \"notes\"\ndescription = \" \"\n",
            "line 3: description: users must",
        );
        check_refused(
            "[[client]]\nclient_id = \"web\"\nredirect_uris = [\"https://app.example/cb\"]\nscope = \"openid notes\"\n",
            "line 4: scope: the scope 'notes' has no description for users",
        );
        check_refused("[pages]\nname = \"\"\n", "line 2: name: a name must have");
        check_refused("[pages]\ncolor = \"red\"\n", "line 2: color: 'red' is not a colour such as #1d6b41");
        check_refused("[pages]\ncolor = \"#ffcc00\"\n", "'#ffcc00' has a contrast of 1.3 to a background");
        check_refused("[pages]\ndark_color = \"#222222\"\n", "line 2: dark_color");
        check_refused("[pages]\nlogo = \"leaf.bmp\"\n", "is not a file of type .svg, .png or .webp");
        check_refused("[pages]\nlogo = \"no-such.svg\"\n", "line 2: logo: failed to read");
        check_refused(
            "[[provider]]\nname = \"P\"\npreset = \"google\"\n",
            "line 1: client_id: this member is required",
        );
        check_refused(
            "[files]\nlocation = \"/exports\"\n",
            "line 2: location: '/exports' is not the URL of a bucket",
        );
        check_refused("[files]\nlocation = \"s3://B/x\"\n", "has no valid name of a bucket");
        check_refused("[files]\nlocation = \"s3://bucket/a//b\"\n", "has no valid prefix");
        check_refused(
            "[files]\nsigned_downloads = true\n",
            "line 2: signed_downloads: this setting needs location",
        );
        let bucket = "[files]\nlocation = \"s3://bucket/a\"\n";
        let with = |line: &str| format!("{bucket}{line}\n");
        check_refused(
            &with("endpoint = \"http://127.0.0.1:9000\""),
            "line 3: endpoint: 'http://127.0.0.1:9000' needs allow_http",
        );
        check_refused(
            &with("allow_http = true\nendpoint = \"http://10.0.0.1\""),
            "plain HTTP is allowed on loopback addresses only",
        );
        check_refused(&with("endpoint = \"https://u:p@s3.example\""), "must have no credentials");
        check_refused(&with("access_key_id = \"a\""), "line 3: access_key_id: set secret_access_key_file");
        check_refused(
            &with("secret_access_key_env = \"HOME\""),
            "line 3: secret_access_key: set access_key_id too",
        );
        check_refused(&with("secret_access_key = \"x\""), "unknown field `secret_access_key`");
        check_refused(
            &format!("{bucket}[bulk]\nfile_size = 100000000000\n"),
            "line 4: file_size: a file in a bucket",
        );
        check_refused("[bulk]\nlease_s = 1\n", "line 2: lease_s: 1 is not in 2 to 600");
        check_refused(&with("signed_downloads = true"), "this setting needs [bulk] signed_url_s");
        check_refused("[node]\nname = \" \"\n", "line 2: name: use 1 to 100 bytes");
        check_refused("[identity]\nrotate_keys_days = 0\n", "line 2: rotate_keys_days");
        check_refused(
            "[identity]\npassword_min_length = 6\n",
            "line 2: password_min_length: 6 is not in 8 to 64",
        );
        check_refused("[identity]\npassword_min_strength = 5\n", "5 is not in 0 to 4");
        check_refused("[identity.throttle]\nfree_failures_per_user = 0\n", "line 2: free_failures_per_user");
        check_refused("[identity]\nrotate_key_days = 3\n", "did you mean `rotate_keys_days`?");
        check_refused(
            "[identity]\nkey_encryption_key_env = \"HOME\"\n",
            "line 2: key_encryption_key: a key-encryption key must be 32",
        );
        check_refused(
            "[server]\ntrusted_proxies = [\n\"10.0.0.0/8\",\n\"10.0.0.0/33\"]\n",
            "line 4: trusted_proxies",
        );
        check_refused("[server]\nproxy_header = \"x-forwarded-fo\"\n", "did you mean `x-forwarded-for`?");
        check_refused(
            "[terminology]\npreferred_versions = [\n\"urn:a|1\",\n\"urn:b\"]\n",
            "line 4: preferred_versions: 'urn:b' has no version; write url|version",
        );
        check_refused(
            "[terminology]\nsnomed_dialects = [\n\"en-gb\",\n\"english\"]\n",
            "line 4: snomed_dialects: 'english' is not a dialect",
        );
        let provider = "[[provider]]\nname = \"P\"\npreset = \"google\"\nclient_id = \"c\"\n";
        check_refused(&format!("{provider}client_secret = \"x\"\n"), "line 5: client_secret");
    }

    #[test]
    fn lifetimes_have_bounds() {
        let config = load("[identity.lifetimes]\naccess_token_s = 600\n").unwrap();
        assert_eq!(config.settings.lifetimes.access_token.as_secs(), 600);
        let default = load("").unwrap().settings.lifetimes;
        assert_eq!(default, identity::lifetimes::Lifetimes::default());
        check_refused(
            "[identity.lifetimes]\nsession_s = 59\n",
            "line 2: session_s: 59 is not in 60 to 2592000",
        );
    }
}
