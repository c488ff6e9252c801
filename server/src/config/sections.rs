//! The tables of `trefoil.toml`, as they are written.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use super::bulk::BulkSection;
use super::declared::{ClientSection, ScopeSection};
use super::provider::ProviderSection;
use crate::config::PrivateHosts;
use crate::config::ProxyHeader;
use crate::config::audit::AuditConfig;

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
    /// Base URL of the server; default `https://localhost:PORT`.
    pub base_url: Option<String>,
    /// PEM file with the certificate chain; without it a development certificate is generated.
    pub certificate: Option<PathBuf>,
    /// PEM file with the private key.
    pub private_key: Option<PathBuf>,
    /// Networks of the proxies that are trusted to name the client.
    pub trusted_proxies: Vec<Spanned<String>>,
    /// The header in which they do so: `x-forwarded-for` (the default) or `forwarded`.
    pub proxy_header: ProxyHeader,
    /// Seconds without a byte in either direction until a connection is closed; default 75.
    pub idle_timeout_s: Option<Spanned<u32>>,
    /// Seconds between the signal to stop and the last accepted connection; default 1.
    pub shutdown_grace_s: Option<u32>,
}

/// `[identity]`: keys, passwords, and the hosts of clients' key sets.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IdentitySection {
    /// Hosts with private addresses from which key sets may be fetched: `true`, or a list of hosts. Default none.
    pub allow_private_jwks: PrivateHosts,
    /// Days for which a signing key is active; default 90.
    pub rotate_keys_days: Option<Spanned<u32>>,
    /// File with the key that encrypts secrets in the store: 32 bytes in base64.
    pub key_encryption_key_file: Option<Spanned<PathBuf>>,
    /// Environment variable with that key.
    pub key_encryption_key_env: Option<Spanned<String>>,
    /// File with the previous key, while the key is being rotated.
    pub previous_key_encryption_key_file: Option<Spanned<PathBuf>>,
    /// Environment variable with the previous key.
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
    /// Failures before delays begin, for one user name at one address or in one known browser; default 5.
    pub free_failures_per_pair: Option<Spanned<u32>>,
    /// Failures before delays begin, for one user name over all addresses; default 25.
    pub free_failures_per_user: Option<Spanned<u32>>,
    /// Failures before delays begin, for one address over all user names; default 50.
    pub free_failures_per_address: Option<Spanned<u32>>,
    /// Maximum lockout, in seconds; default 900.
    pub max_lockout_s: Option<Spanned<u32>>,
}

/// `[store]`: engine and folder.
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
    /// Maximum number of open connections, further limited by the file descriptors; default 10,000.
    pub connections: Option<usize>,
    /// Maximum number of open connections of one address; default 512. Trusted proxies are exempt.
    pub connections_per_address: Option<usize>,
    /// Maximum number of pending requests of each kind (pushed requests, device authorizations, passkey ceremonies,
    /// sign-ins at a provider) that one address may create; default 300.
    pub pending_per_address: Option<usize>,
    /// The same maximum for all addresses together; default 20,000.
    pub pending_total: Option<usize>,
    /// Maximum size of a FHIR request body, in bytes; default 16 MiB.
    pub body_limit_bytes: Option<usize>,
    /// Memory for all request bodies together, in bytes; one address can use a quarter of it. Default 256 MiB.
    pub body_memory_bytes: Option<usize>,
}
