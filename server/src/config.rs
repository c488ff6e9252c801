//! Configuration: flags over `trefoil.toml` over defaults. Nobody else reads files or the
//! environment for settings.
//!
//! Unknown keys are refused with their line. Secrets come by `…_file` or by `…_env`, never by value. A relative
//! path in the file is one beside the file.
//!
//! | module | what lives there |
//! |---|---|
//! | [`declared`] | `[[client]]` and `[[scope]]` |

pub mod declared;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use identity::provider::Provider;
use identity::seal::{Seal, SealKey};
use ipnet::IpNet;
use jiff::SignedDuration;
use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use self::declared::{ClientSection, Declared, ScopeSection};
use crate::http::peer::{ProxyHeader, TrustedProxies};
use crate::key_fetch::PrivateHosts;
use crate::registration::nearest;
use crate::settings::Settings;

/// `trefoil.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConfigFile {
    /// `[server]`
    pub server: ServerSection,
    /// `[store]`
    pub store: StoreSection,
    /// `[identity]`
    pub identity: IdentitySection,
    /// `[[client]]`
    pub client: Vec<ClientSection>,
    /// `[[scope]]`
    pub scope: Vec<ScopeSection>,
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
    /// Networks of the proxies that may say who called.
    pub trusted_proxies: Vec<Spanned<String>>,
    /// The header in which they say it: `x-forwarded-for` (the default) or `forwarded`.
    pub proxy_header: ProxyHeader,
}

/// `[identity]`: keys, and what clients' keys may be fetched from.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IdentitySection {
    /// May key sets be fetched from private addresses: `true`, or a list of hosts. Default no.
    pub allow_private_jwks: PrivateHosts,
    /// How long signing keys sign, in days; default 90.
    pub rotate_keys_days: Option<Spanned<u32>>,
    /// File with the key that encrypts secrets in the store: 32 bytes in base64.
    pub key_encryption_key_file: Option<Spanned<PathBuf>>,
    /// Environment variable with that key.
    pub key_encryption_key_env: Option<Spanned<String>>,
    /// File with the key before that one, while it is turned.
    pub previous_key_encryption_key_file: Option<Spanned<PathBuf>>,
    /// Environment variable with the key before that one.
    pub previous_key_encryption_key_env: Option<Spanned<String>>,
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
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderSection {
    /// Name: value of `identity_provider`.
    pub name: Spanned<String>,
    /// `google` fills in the addresses.
    pub preset: Option<Spanned<String>>,
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
    /// Refused: a secret does not stand here.
    pub client_secret: Option<Spanned<IgnoredAny>>,
    /// File that holds our secret there.
    pub client_secret_file: Option<Spanned<PathBuf>>,
    /// Environment variable that holds the secret.
    pub client_secret_env: Option<Spanned<String>>,
    /// Scopes to ask for; default `openid profile email`.
    pub scopes: Option<String>,
    /// Make a user for somebody who signs in for the first time; default no.
    #[serde(default)]
    pub create_users: bool,
    /// Link somebody who signs in for the first time to the user with the same verified e-mail; default no.
    #[serde(default)]
    pub link_by_email: bool,
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
    /// Longest output file, in bytes, but for a single longer resource; default 128 MiB.
    pub file_size: Option<Spanned<u64>>,
    /// How often the status of an export may be asked for within a minute; default without limit.
    pub poll_limit: Option<Spanned<u32>>,
    /// Version of the guide whose parameters are known: `2.0.0` (the default) or `3.0.0`.
    pub guide: bulk::Guide,
    /// Are members of Groups within a Group its members? Default no.
    pub nested_groups: bool,
}

impl BulkSection {
    fn read(&self, at: &File<'_>) -> Result<BulkConfig, ConfigError> {
        let file_size = match &self.file_size {
            None => 128 << 20,
            Some(size) if *size.as_ref() >= 1 << 10 => *size.as_ref(),
            Some(size) => return Err(at.wrong(size.span(), "file_size", "use 1024 bytes or more")),
        };
        if let Some(limit) = &self.poll_limit
            && *limit.as_ref() == 0
        {
            return Err(at.wrong(limit.span(), "poll_limit", "use 1 or more, or leave it out"));
        }
        Ok(BulkConfig {
            retention: Duration::from_secs(self.retention_s.unwrap_or(24 * 3600)),
            file_size,
            poll_limit: self.poll_limit.as_ref().map(|limit| *limit.as_ref()),
            guide: self.guide,
            nested_groups: self.nested_groups,
        })
    }
}

/// How exports are made and kept.
#[derive(Debug, Clone)]
pub struct BulkConfig {
    /// How long a finished export is kept.
    pub retention: Duration,
    /// Longest output file in bytes.
    pub file_size: u64,
    /// How often the status of an export may be asked for within a minute.
    pub poll_limit: Option<u32>,
    /// Version of the guide whose parameters are known.
    pub guide: bulk::Guide,
    /// Are members of Groups within a Group its members?
    pub nested_groups: bool,
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
    /// What can be changed while the server runs.
    pub settings: Settings,
    /// Declared clients.
    pub clients: Vec<Declared>,
    /// Keys that encrypt secrets in the store.
    pub seal: Seal,
    /// Exports.
    pub bulk: BulkConfig,
    /// Open connections.
    pub connections: usize,
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
    /// A value that cannot work.
    #[error("{}: line {line}: {key}: {why}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// Where it stands.
        line: usize,
        /// The key.
        key: &'static str,
        /// What to change.
        why: String,
    },
    /// A setting that cannot work.
    #[error("{0}")]
    Setting(String),
}

/// The file that is being read: its place and its text, for errors with a line.
pub struct File<'a> {
    path: &'a Path,
    text: &'a str,
}

impl File<'_> {
    /// The line of a value, from 1.
    fn line(&self, span: Range<usize>) -> usize {
        self.text.bytes().take(span.start).filter(|byte| *byte == b'\n').count() + 1
    }

    fn wrong(&self, span: Range<usize>, key: &'static str, why: impl Display) -> ConfigError {
        ConfigError::Value { path: self.path.to_owned(), line: self.line(span), key, why: why.to_string() }
    }

    /// A path of the file, which lies beside it where it is relative.
    fn beside(&self, path: &Path) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(path)
    }

    /// A secret from a file or from the environment.
    fn secret(
        &self,
        key: &'static str,
        file: Option<&Spanned<PathBuf>>,
        variable: Option<&Spanned<String>>,
    ) -> Result<Option<String>, ConfigError> {
        let (span, read) = match (file, variable) {
            (None, None) => return Ok(None),
            (Some(file), None) => {
                let path = self.beside(file.as_ref());
                let read = std::fs::read_to_string(&path);
                (file.span(), read.map_err(|error| format!("failed to read {}: {error}", path.display())))
            }
            (None, Some(variable)) => {
                let name = variable.as_ref();
                (variable.span(), std::env::var(name).map_err(|_| format!("the environment has no {name}")))
            }
            (Some(_), Some(variable)) => (variable.span(), Err("give it in one way only".to_owned())),
        };
        let text = read.map_err(|why| self.wrong(span, key, why))?;
        Ok(Some(text.trim().to_owned()))
    }

    fn seal_key(
        &self,
        key: &'static str,
        file: Option<&Spanned<PathBuf>>,
        variable: Option<&Spanned<String>>,
    ) -> Result<Option<SealKey>, ConfigError> {
        let span = file.map(Spanned::span).or(variable.map(Spanned::span)).unwrap_or_default();
        let text = self.secret(key, file, variable)?;
        text.map(|text| SealKey::from_base64(&text).map_err(|error| self.wrong(span, key, error))).transpose()
    }

    fn seal(&self, section: &IdentitySection) -> Result<Seal, ConfigError> {
        Ok(Seal {
            current: self.seal_key(
                "key_encryption_key",
                section.key_encryption_key_file.as_ref(),
                section.key_encryption_key_env.as_ref(),
            )?,
            previous: self.seal_key(
                "previous_key_encryption_key",
                section.previous_key_encryption_key_file.as_ref(),
                section.previous_key_encryption_key_env.as_ref(),
            )?,
        })
    }

    /// A network, or one address.
    fn network(&self, text: &Spanned<String>) -> Result<IpNet, ConfigError> {
        let network = text.as_ref().parse::<IpNet>().ok();
        let network = network.or_else(|| text.as_ref().parse::<IpAddr>().ok().map(IpNet::from));
        network.ok_or_else(|| {
            let why = format!("'{}' is no network such as 10.0.0.0/8", text.as_ref());
            self.wrong(text.span(), "trusted_proxies", why)
        })
    }
}

/// The keys that open the secrets of a store, by the `[identity]` of a file; for commands on a stopped server.
///
/// # Errors
/// [`ConfigError`].
pub fn read_seal(path: Option<&Path>) -> Result<Seal, ConfigError> {
    let Some(path) = path else { return Ok(Seal::default()) };
    let text = text_of(path)?;
    File { path, text: &text }.seal(&parse(path, &text)?.identity)
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
            connections: file.limits.connections.unwrap_or(10_000).max(1),
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
            ("[limits] connections", self.connections.to_string()),
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

fn text_of(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|error| ConfigError::Read { path: path.to_owned(), error })
}

fn parse(path: &Path, text: &str) -> Result<ConfigFile, ConfigError> {
    toml::from_str(text)
        .map_err(|error| ConfigError::Syntax { path: path.to_owned(), text: with_nearest(error.to_string()) })
}

/// Adds the nearest known name to a text that says "unknown field `x`, expected one of `y`, `z`".
fn with_nearest(text: String) -> String {
    let rest = text.split_once("unknown field ").or_else(|| text.split_once("unknown variant "));
    let Some((_, rest)) = rest else { return text };
    let mut names = rest.split('`').skip(1).step_by(2);
    let Some(unknown) = names.next() else { return text };
    match nearest(unknown, names) {
        Some(name) => format!("{}; did you mean `{name}`?", text.trim_end()),
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

fn provider(section: ProviderSection, file: &File<'_>) -> Result<ConfiguredProvider, ConfigError> {
    let google = match &section.preset {
        None => false,
        Some(preset) if preset.as_ref() == "google" => true,
        Some(other) => {
            let why = format!("'{}' is not known; use google", other.as_ref());
            return Err(file.wrong(other.span(), "preset", why));
        }
    };
    let (span, name) = (section.name.span(), section.name.into_inner());
    let need = |value: Option<String>, key: &'static str, preset: &str| {
        value
            .or_else(|| google.then(|| preset.to_owned()))
            .ok_or_else(|| file.wrong(span.clone(), key, format!("provider '{name}' needs {key}")))
    };
    if let Some(inline) = &section.client_secret {
        let why = "a secret does not stand in this file; use client_secret_file or client_secret_env";
        return Err(file.wrong(inline.span(), "client_secret", why));
    }
    let client_secret = file.secret(
        "client_secret",
        section.client_secret_file.as_ref(),
        section.client_secret_env.as_ref(),
    )?;
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
            link_by_email: section.link_by_email,
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
