//! The tables of `trefoil.toml`, as they are written.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use super::bulk::BulkSection;
use super::declared::{ClientSection, ScopeSection};
use super::provider::ProviderSection;
use crate::audit::AuditConfig;
use crate::http::peer::ProxyHeader;
use crate::key_fetch::PrivateHosts;

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
    /// `[audit]`
    pub audit: AuditConfig,
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
    /// Seconds without a byte in either direction until a connection is closed; default 75.
    pub idle_timeout_s: Option<Spanned<u32>>,
    /// Seconds between the signal to stop and the last accepted connection; default 1.
    pub shutdown_grace_s: Option<u32>,
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
    /// Minimum number of characters of a new password; default 8.
    pub password_min_length: Option<Spanned<u32>>,
    /// Minimum strength of a new password, 0 to 4 by zxcvbn; default 3.
    pub password_min_strength: Option<Spanned<u32>>,
    /// `[identity.throttle]`
    pub throttle: ThrottleSection,
}

/// `[identity.throttle]`: failed sign-ins.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ThrottleSection {
    /// Free failures of one user name at one address, or of one known browser; default 5.
    pub free_failures_per_pair: Option<Spanned<u32>>,
    /// Free failures of one user name over all addresses; default 25.
    pub free_failures_per_user: Option<Spanned<u32>>,
    /// Free failures of one address over all user names; default 50.
    pub free_failures_per_address: Option<Spanned<u32>>,
    /// The longest lock, in seconds; default 900.
    pub max_lockout_s: Option<Spanned<u32>>,
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

/// `[terminology]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TerminologySection {
    /// Answer terminology requests without a token.
    pub anonymous: bool,
}

/// `[limits]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsSection {
    /// Maximum number of open connections; default 10,000, and never more than the file descriptors allow.
    pub connections: Option<usize>,
    /// Maximum number of open connections of one address; default 512. Trusted proxies are exempt.
    pub connections_per_address: Option<usize>,
    /// Maximum number of pending requests of each kind (pushed requests, device authorizations, passkey ceremonies,
    /// sign-ins at a provider) that one address may create; default 300.
    pub pending_per_address: Option<usize>,
    /// The same for all addresses together; default 20,000.
    pub pending_total: Option<usize>,
    /// Largest body of a FHIR request, in bytes; default 16 MiB.
    pub body_limit_bytes: Option<usize>,
    /// Memory for all request bodies together, in bytes; default 256 MiB. One address can have a quarter of it.
    pub body_memory_bytes: Option<usize>,
}
