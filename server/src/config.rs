//! Configuration: flags over `trefoil.toml` over defaults. Nobody else reads files or the
//! environment for settings.
//!
//! Unknown keys are refused with their line. Secrets come by `…_file` or by `…_env`, never by value. A relative
//! path in the file is one beside the file.
//!
//! | module | what lives there |
//! |---|---|
//! | [`sections`] | the tables of the file, as they are written |
//! | [`declared`] | `[[client]]` and `[[scope]]` |
//! | [`provider`] | `[[provider]]` |
//! | [`bulk`] | `[bulk]` |
//! | [`file`](mod@file) | reading: secrets that stand elsewhere, errors with line and key |
//! | here | everything together: [`Flags`] over the file over defaults, checked |

pub mod bulk;
pub mod declared;
pub mod file;
pub mod provider;
pub mod sections;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use identity::password::PasswordPolicy;
use identity::pending::PendingLimits;
use identity::seal::Seal;
use jiff::SignedDuration;

use self::bulk::BulkConfig;
use self::declared::Declared;
pub use self::file::{ConfigError, File};
use self::file::{parse, text_of};
pub use self::provider::ConfiguredProvider;
use self::provider::provider;
use crate::audit::AuditConfig;
use crate::http::listen::admission::ConnectionLimits;
use crate::http::peer::TrustedProxies;
use crate::settings::Settings;

/// Where the store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Nothing outlives the process.
    Memory,
    /// A folder.
    File,
}

/// The settings of one server, checked.
#[derive(Debug)]
pub struct Config {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Base URL; `None` until the port is known.
    pub base_url: Option<String>,
    /// Folder of everything.
    pub data: PathBuf,
    /// Engine.
    pub engine: Engine,
    /// Plain HTTP on loopback?
    pub insecure_http: bool,
    /// Demo project?
    pub demo: bool,
    /// How far the clock goes ahead, in seconds: `TREFOIL_DEMO_AHEAD_S`, which only a demo heeds, so
    /// that it can be seen how codes and tokens end.
    pub ahead_s: i64,
    /// Certificate and key files.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// What can be changed while the server runs.
    pub settings: Settings,
    /// Declared clients.
    pub clients: Vec<Declared>,
    /// Keys that encrypt secrets in the store.
    pub seal: Seal,
    /// Exports.
    pub bulk: BulkConfig,
    /// The audit log.
    pub audit: AuditConfig,
    /// Maximum numbers of open connections.
    pub connections: ConnectionLimits,
    /// Maximum numbers of records that anonymous requests create.
    pub pending: PendingLimits,
    /// Memory for request bodies, in bytes.
    pub body_memory_bytes: usize,
    /// Silence that ends a connection.
    pub idle_timeout: Duration,
    /// From the signal to stop until no connection is accepted.
    pub shutdown_grace: Duration,
}

/// The `[identity]` of a file for commands on a stopped server: the keys that open the secrets of a store, and what a new
/// password must be.
///
/// # Errors
/// [`ConfigError`].
pub fn read_identity(path: Option<&Path>) -> Result<(Seal, PasswordPolicy), ConfigError> {
    let Some(path) = path else { return Ok((Seal::default(), PasswordPolicy::default())) };
    let text = text_of(path)?;
    let (file, at) = (parse(path, &text)?, File { path, text: &text });
    Ok((at.seal(&file.identity)?, at.passwords(&file.identity)?))
}

/// What the flags of `serve` say.
#[derive(Debug, Default, Clone)]
pub struct Flags {
    /// `--config`
    pub config: Option<PathBuf>,
    /// `--data`
    pub data: Option<PathBuf>,
    /// `--store`
    pub store: Option<String>,
    /// `--listen`
    pub listen: Option<SocketAddr>,
    /// `--base-url`
    pub base_url: Option<String>,
    /// `--demo`
    pub demo: bool,
    /// `--insecure-http`
    pub insecure_http: bool,
}

impl Config {
    /// Reads the file, lays the flags over it and checks everything.
    ///
    /// # Errors
    /// [`ConfigError`]: what to change and where.
    pub fn load(flags: &Flags) -> Result<Self, ConfigError> {
        let path = flags.config.clone().unwrap_or_default();
        let text = match &flags.config {
            Some(path) => text_of(path)?,
            None => String::new(),
        };
        let file = parse(&path, &text)?;
        let at = File { path: &path, text: &text };
        let setting = ConfigError::Setting;
        let listen =
            flags.listen.or(file.server.listen).unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 8443)));
        let engine = match flags.store.as_deref().or(file.store.engine.as_deref()) {
            None | Some("file") => Engine::File,
            Some("memory") => Engine::Memory,
            Some(other) => {
                return Err(setting(format!("store '{other}' is not known; use memory or file")));
            }
        };
        if flags.insecure_http && !listen.ip().is_loopback() {
            return Err(setting(format!(
                "--insecure-http serves loopback addresses only, not {listen}; put a TLS proxy in front"
            )));
        }
        if flags.demo && !listen.ip().is_loopback() {
            return Err(setting(format!("--demo is refused on {listen}: it serves loopback addresses only")));
        }
        let base_url = flags.base_url.clone().or(file.server.base_url);
        if let Some(base) = &base_url {
            check_base_url(base, flags.insecure_http)?;
        }
        let certificate = match (file.server.certificate, file.server.private_key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err(setting("[server] certificate and private_key go together".to_owned())),
        };
        let scopes = file.scope.into_iter().map(|scope| scope.read(&at)).collect::<Result<_, _>>()?;
        let clients: Vec<_> =
            file.client.into_iter().map(|client| client.read(&at)).collect::<Result<_, _>>()?;
        let mut ids = BTreeSet::new();
        if let Some(twice) = clients.iter().find(|declared| !ids.insert(declared.client.client_id.clone())) {
            return Err(ConfigError::Value {
                path,
                line: twice.line,
                key: "client_id",
                why: format!("'{}' is declared twice", twice.client.client_id),
            });
        }
        let days = match &file.identity.rotate_keys_days {
            None => 90,
            Some(days) if (1..=3650).contains(days.as_ref()) => i64::from(*days.as_ref()),
            Some(days) => return Err(at.wrong(days.span(), "rotate_keys_days", "use 1 to 3650 days")),
        };
        let pending = PendingLimits::default();
        let idle_timeout = match &file.server.idle_timeout_s {
            None => Duration::from_secs(75),
            Some(seconds) if (1..=3600).contains(seconds.as_ref()) => {
                Duration::from_secs((*seconds.as_ref()).into())
            }
            Some(seconds) => {
                return Err(at.wrong(seconds.span(), "idle_timeout_s", "use 1 to 3600 seconds"));
            }
        };
        let networks = file.server.trusted_proxies.iter().map(|text| at.network(text));
        let settings = Settings {
            providers: file
                .provider
                .into_iter()
                .map(|section| provider(section, &at))
                .collect::<Result<_, _>>()?,
            scopes,
            anonymous_terminology: file.terminology.anonymous,
            trusted_proxies: TrustedProxies {
                networks: networks.collect::<Result<_, _>>()?,
                header: file.server.proxy_header,
            },
            rotate_keys_every: SignedDuration::from_hours(24 * days),
            body_limit_bytes: file.limits.body_limit_bytes.unwrap_or(16 << 20),
            private_key_hosts: file.identity.allow_private_jwks.clone(),
            passwords: at.passwords(&file.identity)?,
            throttle: at.throttle(&file.identity.throttle)?,
        };
        Ok(Self {
            seal: at.seal(&file.identity)?,
            settings,
            clients,
            listen,
            base_url: base_url.map(|base| base.trim_end_matches('/').to_owned()),
            data: flags.data.clone().or(file.store.data).unwrap_or_else(|| PathBuf::from("trefoil-data")),
            engine,
            insecure_http: flags.insecure_http,
            demo: flags.demo,
            ahead_s: if flags.demo { demo_ahead()? } else { 0 },
            certificate,
            bulk: file.bulk.read(&at)?,
            audit: file.audit,
            connections: ConnectionLimits {
                total: file.limits.connections.unwrap_or(10_000).max(1),
                per_address: file.limits.connections_per_address.unwrap_or(512).max(1),
            },
            pending: PendingLimits {
                per_address: file.limits.pending_per_address.unwrap_or(pending.per_address),
                total: file.limits.pending_total.unwrap_or(pending.total),
                ..pending
            },
            body_memory_bytes: file.limits.body_memory_bytes.unwrap_or(256 << 20),
            idle_timeout,
            shutdown_grace: Duration::from_secs(file.server.shutdown_grace_s.unwrap_or(1).into()),
        })
    }

    /// What a running server cannot change: names and values, to tell what needs a restart.
    pub fn fixed(&self) -> Vec<(&'static str, String)> {
        vec![
            ("[server] listen", self.listen.to_string()),
            ("[server] base_url", format!("{:?}", self.base_url)),
            ("[server] certificate", format!("{:?}", self.certificate)),
            ("[store]", format!("{:?} {:?}", self.engine, self.data)),
            ("[identity] key_encryption_key", format!("{:?}", self.seal)),
            ("[bulk]", format!("{:?}", self.bulk)),
            ("[audit]", format!("{:?}", self.audit)),
            ("[server] idle_timeout_s", format!("{:?}", self.idle_timeout)),
            ("[server] shutdown_grace_s", format!("{:?}", self.shutdown_grace)),
            ("[limits] body_memory_bytes", self.body_memory_bytes.to_string()),
            ("[limits] pending", format!("{:?}", self.pending)),
            ("[limits] connections", self.connections.total.to_string()),
            ("[limits] connections_per_address", self.connections.per_address.to_string()),
        ]
    }
}

fn demo_ahead() -> Result<i64, ConfigError> {
    match std::env::var("TREFOIL_DEMO_AHEAD_S") {
        Err(_) => Ok(0),
        Ok(text) => text.parse::<u32>().map(i64::from).map_err(|_| {
            ConfigError::Setting(format!("TREFOIL_DEMO_AHEAD_S is '{text}'; it must be a number of seconds"))
        }),
    }
}

fn check_base_url(base: &str, insecure_http: bool) -> Result<(), ConfigError> {
    let wrong = |why: &str| ConfigError::Setting(format!("base URL '{base}' {why}"));
    let url = url::Url::parse(base).map_err(|_| wrong("is not an address such as https://id.example"))?;
    if url.scheme() != "https" && !(insecure_http && url.scheme() == "http") {
        return Err(wrong("must begin with https://"));
    }
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("must have neither path nor query nor fragment"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Config, ConfigError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trefoil.toml");
        std::fs::write(&path, text).unwrap();
        Config::load(&Flags { config: Some(path), ..Flags::default() })
    }

    #[track_caller]
    fn check_refused(text: &str, says: &str) {
        let error = load(text).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }

    #[test]
    fn unknown_keys_are_named_with_their_line() {
        check_refused("[server]\nlisten = \"127.0.0.1:0\"\nlissten = 3\n", "line 3");
        check_refused("[server]\nlissten = 3\n", "did you mean `listen`?");
        check_refused("[[provider]]\nname = \"P\"\nclientid = \"c\"\n", "did you mean `client_id`?");
        check_refused("[serverr]\n", "unknown field `serverr`");
        check_refused("[audit]\ndurability = \"sync\"\n", "did you mean `synced`?");
        check_refused("[audit]\nresources = \"reads\"\n", "expected one of `off`, `changes`, `all`");
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        check_refused("[store]\nengine = \"oracle\"\n", "store 'oracle' is not known");
        check_refused("[server]\nbase_url = \"http://id.example\"\n", "must begin with https://");
        check_refused("[server]\nbase_url = \"https://id.example/x\"\n", "neither path");
        check_refused("[[provider]]\nname = \"P\"\nclient_id = \"c\"\n", "needs issuer");
        let demo =
            Flags { demo: true, listen: Some(SocketAddr::from(([0, 0, 0, 0], 1))), ..Flags::default() };
        assert!(Config::load(&demo).is_err());
    }

    #[test]
    fn what_is_wrong_with_a_declared_client_is_told_with_line_and_key() {
        let client = |rest: &str| format!("[server]\n\n[[client]]\nclient_id = \"web\"\n{rest}\n");
        let check =
            |rest: &str, says: &[&str]| says.iter().for_each(|says| check_refused(&client(rest), says));
        check("redirect_uri = 3", &["line 5", "did you mean `redirect_uris`?"]);
        check(
            "redirect_uris = [\n  \"https://app.example/cb\",\n  \"http://app.example/cb\",\n]",
            &["line 7: redirect_uris: redirect URI 'http://app.example/cb' is not HTTPS"],
        );
        check(
            "grant_types = [\"authorisation_code\"]",
            &["line 5: grant_types", "did you mean 'authorization_code'?"],
        );
        check("token_endpoint_auth_method = \"client_secret\"", &["line 5: token_endpoint_auth_methods"]);
        check("client_secret = \"0123456789\"", &["line 5: client_secret", "does not stand in this file"]);
        check("client_secret_file = \"no-such-file\"", &["line 5: client_secret: failed to read"]);
        check(
            "client_secret_env = \"TREFOIL_NO_SUCH\"",
            &["line 5", "the environment has no TREFOIL_NO_SUCH"],
        );
        check("jwks_uri = \"http://keys.example/\"", &["line 5: jwks_uri"]);
        check("jwks = { keys = [{ kty = \"EC\", kid = \"k\" }] }", &["line 5: jwks: key 0"]);
        check("id_token_signed_response_alg = \"none\"", &["line 5: id_token_signed_response_alg"]);
        check(
            "token_endpoint_auth_method = \"client_secret_basic\"",
            &["line 4: client_id", "needs client_secret_file"],
        );
        check("pkce_required = false", &["line 5: pkce_required", "must use PKCE"]);
        check("application_type = \"phone\"", &["line 5: application_type"]);
        check("scope = \"a  b\"", &["line 5: scope"]);
        check("[[client]]\nclient_id = \"web\"", &["line 6: client_id: 'web' is declared twice"]);
        // What is refused is not shown where it may be a secret.
        let error = load(&client("client_secret = \"s3cr3t-value\"")).unwrap_err().to_string();
        assert!(!error.contains("s3cr3t"), "{error}");
    }

    #[test]
    fn the_rest_of_the_file_is_judged_too() {
        check_refused(
            "[[scope]]\nname = \"openid\"\n",
            "line 2: name: the scope 'openid' is the server's own",
        );
        check_refused("[[scope]]\nname = \"a b\"\n", "one word");
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
            "line 2: key_encryption_key: a key-encryption key is 32",
        );
        check_refused(
            "[server]\ntrusted_proxies = [\n\"10.0.0.0/8\",\n\"10.0.0.0/33\"]\n",
            "line 4: trusted_proxies",
        );
        check_refused("[server]\nproxy_header = \"x-forwarded-fo\"\n", "did you mean `x-forwarded-for`?");
        let provider = "[[provider]]\nname = \"P\"\npreset = \"google\"\nclient_id = \"c\"\n";
        check_refused(&format!("{provider}client_secret = \"x\"\n"), "line 5: client_secret");
    }

    #[test]
    fn a_declared_client_needs_little() {
        let config = load(
            "[identity]\nallow_private_jwks = [\"keys.internal\"]\n[server]\ntrusted_proxies = [\"10.0.0.1\"]\n\
             [[client]]\nclient_id = \"web\"\nredirect_uris = [\"https://app.example/cb\"]\n\
             [[client]]\nclient_id = \"batch\"\njwks_uri = \"https://keys.example/jwks\"\nscope = \"system/*.rs\"\n\
             [[scope]]\nname = \"notes\"\ndescription = \"Read your notes\"\n",
        )
        .unwrap();
        let (web, batch) = (&config.clients[0].client, &config.clients[1].client);
        assert!(web.is_public() && web.pkce_required && web.consent);
        assert_eq!(web.grant_types.len(), 2);
        assert_eq!(batch.auth_methods, [identity::client::AuthMethod::PrivateKeyJwt]);
        assert_eq!(batch.grant_types, [identity::client::GrantType::ClientCredentials]);
        assert_eq!(config.settings.describe("notes"), Some("Read your notes"));
        assert_eq!(config.settings.trusted_proxies.networks.len(), 1);
    }

    #[test]
    fn the_google_preset_needs_only_the_client() {
        let config =
            load("[[provider]]\nname = \"Google\"\npreset = \"google\"\nclient_id = \"c\"\n").unwrap();
        assert_eq!(config.settings.providers[0].provider.issuer, "https://accounts.google.com");
        assert!(config.settings.providers[0].provider.google);
    }
}
