//! Configuration: flags over `trefoil.toml` over defaults. Nobody else reads files or the
//! environment for settings.
//!
//! Unknown keys are refused with their line. Secrets come by value, by `…_file` or by `…_env`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use identity::provider::Provider;
use serde::Deserialize;

/// `trefoil.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConfigFile {
    /// `[server]`
    pub server: ServerSection,
    /// `[store]`
    pub store: StoreSection,
    /// `[[provider]]`
    pub provider: Vec<ProviderSection>,
    /// `[terminology]`
    pub terminology: TerminologySection,
    /// `[bulk]`
    pub bulk: BulkSection,
    /// `[limits]`
    pub limits: LimitsSection,
}

/// `[server]`: addresses and certificate.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerSection {
    /// Address to listen on; `127.0.0.1:8443` listens on `[::1]` too.
    pub listen: Option<SocketAddr>,
    /// Address that people and programs use; default `https://localhost:PORT`.
    pub base_url: Option<String>,
    /// PEM file with the certificate chain; without it a development certificate is made.
    pub certificate: Option<PathBuf>,
    /// PEM file with the private key.
    pub private_key: Option<PathBuf>,
}

/// `[store]`: where records and resources are kept.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreSection {
    /// `memory` or `file`.
    pub engine: Option<String>,
    /// Folder of store, files, keys and certificate.
    pub data: Option<PathBuf>,
}

/// `[[provider]]`: an external OpenID Connect provider.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderSection {
    /// Name: value of `identity_provider`.
    pub name: String,
    /// `google` fills in the addresses.
    pub preset: Option<String>,
    /// Issuer identifier.
    pub issuer: Option<String>,
    /// Where the browser goes.
    pub authorization_endpoint: Option<String>,
    /// Where the code is exchanged.
    pub token_endpoint: Option<String>,
    /// Its keys.
    pub jwks_uri: Option<String>,
    /// Our id there.
    pub client_id: String,
    /// Our secret there.
    pub client_secret: Option<String>,
    /// File that holds the secret.
    pub client_secret_file: Option<PathBuf>,
    /// Environment variable that holds the secret.
    pub client_secret_env: Option<String>,
    /// Scopes to ask for; default `openid profile email`.
    pub scopes: Option<String>,
    /// Make a user for somebody who signs in for the first time; default no.
    #[serde(default)]
    pub create_users: bool,
    /// Longest wait for an answer head and between two pieces of a body, in milliseconds; default 8000.
    pub timeout_ms: Option<u64>,
}

/// `[terminology]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TerminologySection {
    /// Answer terminology requests without a token.
    pub anonymous: bool,
}

/// `[bulk]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BulkSection {
    /// How long a finished export is kept, in seconds; default one day.
    pub retention_s: Option<u64>,
}

/// `[limits]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsSection {
    /// Open connections; default 10,000.
    pub connections: Option<usize>,
    /// Largest body of a FHIR request, in bytes; default 16 MiB.
    pub body_limit_bytes: Option<usize>,
}

/// Where the store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Nothing outlives the process.
    Memory,
    /// A folder.
    File,
}

/// A provider with its time limit.
#[derive(Debug, Clone)]
pub struct ConfiguredProvider {
    /// The rules' view.
    pub provider: Provider,
    /// Longest wait.
    pub timeout: Duration,
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
    /// External providers.
    pub providers: Vec<ConfiguredProvider>,
    /// Terminology without token?
    pub anonymous_terminology: bool,
    /// How long a finished export is kept.
    pub retention: Duration,
    /// Open connections.
    pub connections: usize,
    /// Largest body of a FHIR request.
    pub body_limit_bytes: usize,
}

/// A configuration that cannot work: exit code 3.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file could not be read.
    #[error("failed to read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file says something that is not understood; the text shows the line.
    #[error("{}: {text}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line, column and what was wrong.
        text: String,
    },
    /// A setting that cannot work.
    #[error("{0}")]
    Setting(String),
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
        let file = match &flags.config {
            Some(path) => read(path)?,
            None => ConfigFile::default(),
        };
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
        Ok(Self {
            listen,
            base_url: base_url.map(|base| base.trim_end_matches('/').to_owned()),
            data: flags.data.clone().or(file.store.data).unwrap_or_else(|| PathBuf::from("trefoil-data")),
            engine,
            insecure_http: flags.insecure_http,
            demo: flags.demo,
            ahead_s: if flags.demo { demo_ahead()? } else { 0 },
            certificate,
            providers: file.provider.into_iter().map(provider).collect::<Result<_, _>>()?,
            anonymous_terminology: file.terminology.anonymous,
            retention: Duration::from_secs(file.bulk.retention_s.unwrap_or(24 * 3600)),
            connections: file.limits.connections.unwrap_or(10_000).max(1),
            body_limit_bytes: file.limits.body_limit_bytes.unwrap_or(16 << 20),
        })
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

fn read(path: &Path) -> Result<ConfigFile, ConfigError> {
    let text =
        std::fs::read_to_string(path).map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
    toml::from_str(&text)
        .map_err(|error| ConfigError::Syntax { path: path.to_owned(), text: with_nearest(error.to_string()) })
}

/// Adds the nearest known name to a text that says "unknown field `x`, expected one of `y`, `z`".
fn with_nearest(text: String) -> String {
    let Some((_, rest)) = text.split_once("unknown field ") else { return text };
    let mut names = rest.split('`').skip(1).step_by(2);
    let Some(unknown) = names.next() else { return text };
    let nearest = names
        .map(|name| (strsim::normalized_damerau_levenshtein(unknown, name), name))
        .filter(|(likeness, _)| *likeness > 0.5)
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    match nearest {
        Some((_, name)) => format!("{}; did you mean `{name}`?", text.trim_end()),
        None => text,
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

fn provider(section: ProviderSection) -> Result<ConfiguredProvider, ConfigError> {
    let name = section.name.clone();
    let google = match section.preset.as_deref() {
        None => false,
        Some("google") => true,
        Some(other) => {
            return Err(ConfigError::Setting(format!(
                "provider '{name}': preset '{other}' is not known; use google"
            )));
        }
    };
    let need = |value: Option<String>, key: &str, preset: &str| {
        value
            .or_else(|| google.then(|| preset.to_owned()))
            .ok_or_else(|| ConfigError::Setting(format!("provider '{name}' needs {key}")))
    };
    let client_secret =
        match (&section.client_secret, &section.client_secret_file, &section.client_secret_env) {
            (Some(secret), None, None) => Some(secret.clone()),
            (None, Some(path), None) => Some(
                std::fs::read_to_string(path)
                    .map_err(|error| ConfigError::Read { path: path.clone(), error })?
                    .trim()
                    .to_owned(),
            ),
            (None, None, Some(variable)) => Some(std::env::var(variable).map_err(|_| {
                ConfigError::Setting(format!("provider '{name}': the environment has no {variable}"))
            })?),
            (None, None, None) => None,
            _ => {
                return Err(ConfigError::Setting(format!(
                    "provider '{name}': give client_secret in one way only"
                )));
            }
        };
    Ok(ConfiguredProvider {
        timeout: Duration::from_millis(section.timeout_ms.unwrap_or(8_000)),
        provider: Provider {
            issuer: need(section.issuer, "issuer", "https://accounts.google.com")?,
            authorization_endpoint: need(
                section.authorization_endpoint,
                "authorization_endpoint",
                "https://accounts.google.com/o/oauth2/v2/auth",
            )?,
            token_endpoint: need(
                section.token_endpoint,
                "token_endpoint",
                "https://oauth2.googleapis.com/token",
            )?,
            jwks_uri: need(section.jwks_uri, "jwks_uri", "https://www.googleapis.com/oauth2/v3/certs")?,
            name,
            client_id: section.client_id,
            client_secret,
            scopes: section.scopes.unwrap_or_else(|| "openid profile email".to_owned()),
            google,
            create_users: section.create_users,
        },
    })
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
    fn the_google_preset_needs_only_the_client() {
        let config =
            load("[[provider]]\nname = \"Google\"\npreset = \"google\"\nclient_id = \"c\"\n").unwrap();
        assert_eq!(config.providers[0].provider.issuer, "https://accounts.google.com");
        assert!(config.providers[0].provider.google);
    }
}
