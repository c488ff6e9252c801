//! The checks of `[server]`, `[store]` and `[[client]]` together with the flags of `serve`.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use store::{DatabasePassword, DatabaseUrl};

use super::declared::DeclaredClient;
use super::network::{PlainHttp, TrustedProxies};
use super::sections::{ServerSection, StoreSection};
use super::source::{ConfigError, ConfigSource};
use super::store_engine::StoreEngine;

fn setting(text: &str) -> ConfigError {
    ConfigError::Setting(text.to_owned())
}

/// The storage engine of `--store`, or of `[store]`.
pub(super) fn store_engine(
    source: &ConfigSource<'_>,
    store: &StoreSection,
    flag: Option<&str>,
) -> Result<StoreEngine, ConfigError> {
    // Configuration files are copied and committed; the password must not go with them.
    if DatabaseUrl::new(store.engine.as_ref().as_str(), None).has_password() {
        let reason = "the URL contains a password; write it without one, and use password_file, or the environment variable \
                   PGPASSWORD or PGPASSFILE";
        return Err(source.value_error(store.engine.span(), "engine", reason));
    }
    let name = flag.unwrap_or(store.engine.as_ref());
    // Reports a file that cannot be read with its line.
    source.read_secret("password_file", store.password_file.as_ref(), None)?;
    let file = store.password_file.as_ref().map(|file| source.resolve_path(file.as_ref()));
    StoreEngine::named(name, store.migrate, file.map(DatabasePassword::File))
}

/// Checks that plain HTTP and a demo project are served on a loopback address only.
pub(super) fn check_loopback(listen: SocketAddr, insecure_http: bool, demo: bool) -> Result<(), ConfigError> {
    let is_loopback = listen.ip().is_loopback();
    if insecure_http && !is_loopback {
        return Err(ConfigError::Setting(format!(
            "--insecure-http serves loopback addresses only, not {listen}; put a TLS proxy in front"
        )));
    }
    if demo && !is_loopback {
        let reason = format!("--demo is refused on {listen}: it serves loopback addresses only");
        return Err(ConfigError::Setting(reason));
    }
    Ok(())
}

/// Who may use plain HTTP.
pub(super) fn plain_http(
    source: &ConfigSource<'_>,
    server: &ServerSection,
    insecure_http: bool,
    has_base_url: bool,
) -> Result<Option<PlainHttp>, ConfigError> {
    let networks = source.parse_networks("plain_http_from", &server.plain_http_from)?;
    match (insecure_http, networks.is_empty()) {
        (true, true) => Ok(Some(PlainHttp::Loopback)),
        (false, true) => Ok(None),
        (true, false) => Err(setting("use --insecure-http or [server] plain_http_from, not both")),
        (false, false) if !has_base_url => Err(setting(
            "[server] plain_http_from requires base_url, the https address at which the proxy is reached",
        )),
        (false, false) => Ok(Some(PlainHttp::Proxies(networks))),
    }
}

/// The files of the certificate and its key.
pub(super) fn certificate(
    server: &mut ServerSection,
    is_plain: bool,
) -> Result<Option<(PathBuf, PathBuf)>, ConfigError> {
    let certificate = match (server.certificate.take(), server.private_key.take()) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err(setting("[server] certificate and private_key must be set together")),
    };
    if is_plain && certificate.is_some() {
        return Err(setting(
            "with plain HTTP, a proxy presents the certificate; remove [server] certificate and private_key, or \
             plain_http_from",
        ));
    }
    Ok(certificate)
}

/// The proxies that say the address of their client.
pub(super) fn trusted_proxies(
    source: &ConfigSource<'_>,
    server: &ServerSection,
) -> Result<TrustedProxies, ConfigError> {
    let networks = source.parse_networks("trusted_proxies", &server.trusted_proxies)?;
    let hops = match &server.proxy_hops {
        Some(hops) => Some(source.bounded_number("proxy_hops", hops, 1..=10)? as usize),
        None => None,
    };
    if let Some(hops) = server.proxy_hops.as_ref().filter(|_| networks.is_empty()) {
        let reason = "without trusted_proxies the header is not read; name the networks of the proxies";
        return Err(source.value_error(hops.span(), "proxy_hops", reason));
    }
    Ok(TrustedProxies { networks, header: server.proxy_header, hops })
}

/// Checks that no client is declared twice: the later declaration would replace the earlier one silently.
pub(super) fn check_declared_once(clients: &[DeclaredClient], path: &Path) -> Result<(), ConfigError> {
    let mut ids = BTreeSet::new();
    match clients.iter().find(|declared| !ids.insert(&declared.client.client_id)) {
        None => Ok(()),
        Some(twice) => Err(ConfigError::Value {
            path: path.to_owned(),
            line: twice.line,
            key: "client_id".into(),
            reason: format!("'{}' is declared twice", twice.client.client_id),
        }),
    }
}

/// Checks the base URL.
pub(super) fn check_base_url(base: &str, insecure_http: bool) -> Result<(), ConfigError> {
    let wrong = |reason: &str| ConfigError::Setting(format!("base URL '{base}' {reason}"));
    let url = url::Url::parse(base).map_err(|_| wrong("is not an address such as https://id.example"))?;
    if url.scheme() != "https" && !(insecure_http && url.scheme() == "http") {
        return Err(wrong("must begin with https://"));
    }
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("must have neither path nor query nor fragment"));
    }
    Ok(())
}
