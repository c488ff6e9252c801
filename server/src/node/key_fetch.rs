//! Fetches the key sets of clients (`jwks_uri`), without giving access to private networks.
//!
//! The resolved address is checked, not the name: names are resolved here, and a private address is not
//! called. So a name that resolves to different addresses each time gains nothing. There are no redirects,
//! and time and size are limited. If the environment names a proxy (`HTTPS_PROXY`), the proxy resolves the
//! names and decides which addresses are reached.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt as _;
use http::{HeaderMap, StatusCode, header};
use identity::client_auth::key_set_cache::{FetchKeySet, FetchedKeySet, KeySetFuture, KeySetUnreachable};
use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::Host;

use crate::clock::Clock;
use crate::config::environment;
use crate::config::settings::SharedSettings;
use crate::node::outbound::{HttpCaller, NetworkCaller};

/// Maximum duration of a fetch.
const MAX_DURATION: Duration = Duration::from_secs(5);
/// Maximum size of a key set, in bytes.
const MAX_BYTES: usize = 256 * 1024;

/// IPv4 networks that are not public (IANA special-purpose registry).
const NOT_PUBLIC_V4: [&str; 15] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
];
/// The public IPv6 network. All others are local, mapped, translated, multicast or reserved.
const PUBLIC_V6: &str = "2000::/3";
/// Special-purpose parts of the public network: protocol assignments and Teredo, 6to4, documentation.
const NOT_PUBLIC_V6: [&str; 4] = ["2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"];

static NOT_PUBLIC: LazyLock<Vec<IpNet>> = LazyLock::new(|| {
    let all = NOT_PUBLIC_V4.iter().chain(&NOT_PUBLIC_V6);
    all.map(|network| network.parse().expect("the networks are well-formed")).collect()
});

/// Returns whether an address is public.
fn is_public(address: IpAddr) -> bool {
    // ::ffff:10.0.0.1 is 10.0.0.1.
    let address = address.to_canonical();
    let public_v6: IpNet = PUBLIC_V6.parse().expect("the network is well-formed");
    (address.is_ipv4() || public_v6.contains(&address))
        && !NOT_PUBLIC.iter().any(|network| network.contains(&address))
}

/// The hosts of the proxies that the environment names.
fn proxy_hosts() -> impl Iterator<Item = String> {
    environment::proxies().filter_map(|value| {
        let url = url::Url::parse(&value).or_else(|_| url::Url::parse(&format!("http://{value}"))).ok()?;
        url.host_str().map(str::to_owned)
    })
}

struct PublicNames(SharedSettings);

impl Resolve for PublicNames {
    fn resolve(&self, name: Name) -> Resolving {
        let settings = self.0.load_full();
        Box::pin(async move {
            let host = name.as_str();
            let is_proxy = proxy_hosts().any(|proxy| proxy == host);
            let all = tokio::net::lookup_host((host, 0)).await?;
            let may = |address: &SocketAddr| {
                is_proxy || settings.private_key_hosts.contains(host) || is_public(address.ip())
            };
            let addresses: Vec<_> = all.filter(may).collect();
            if addresses.is_empty() {
                return Err(format!("{host} has no public address").into());
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// Fetches key sets.
pub struct KeyFetcher {
    http: Arc<dyn HttpCaller>,
    settings: SharedSettings,
    clock: Clock,
}

/// A caller that reaches public addresses only.
pub fn public_caller(settings: SharedSettings) -> Arc<dyn HttpCaller> {
    Arc::new(NetworkCaller::new(move || {
        reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            // Connections are not reused, so that each fetch connects to an address that was checked for it.
            .pool_max_idle_per_host(0)
            .dns_resolver(Arc::new(PublicNames(settings.clone())))
    }))
}

impl KeyFetcher {
    /// A fetcher that follows these settings.
    pub fn new(http: Arc<dyn HttpCaller>, settings: SharedSettings, clock: Clock) -> Self {
        Self { http, settings, clock }
    }

    async fn fetch_key_set(&self, address: &str) -> Result<FetchedKeySet> {
        let url = url::Url::parse(address)?;
        // A literal address is connected to without a resolver.
        let literal: Option<IpAddr> = match url.host() {
            Some(Host::Ipv4(address)) => Some(Ipv4Addr::into(address)),
            Some(Host::Ipv6(address)) => Some(Ipv6Addr::into(address)),
            Some(Host::Domain(_)) => None,
            None => bail!("the URL has no host"),
        };
        let host = url.host_str().unwrap_or_default();
        let private = self.settings.load().private_key_hosts.contains(host);
        if literal.is_some_and(|address| !is_public(address)) && !private {
            bail!("{host} is not a public address");
        }
        // Registration accepts plain HTTP for loopback hosts only; those must be permitted, too.
        if url.scheme() != "https" && !private {
            bail!("the URL is not HTTPS");
        }
        let request = http::Request::get(url.as_str()).header(header::ACCEPT, "application/json");
        let mut response = self.http.send(request.body(Bytes::new())?).await?;
        if response.status() != StatusCode::OK {
            bail!("status {}", response.status());
        }
        let lifetime = cache_lifetime(response.headers(), self.clock.now());
        let mut body = BytesMut::new();
        while let Some(piece) = response.body_mut().try_next().await? {
            if body.len() + piece.len() > MAX_BYTES {
                bail!("the key set is larger than {MAX_BYTES} bytes");
            }
            body.extend_from_slice(&piece);
        }
        let mut set: serde_json::Value = serde_json::from_slice(&body).context("the key set is not JSON")?;
        match set["keys"].take() {
            serde_json::Value::Array(keys) => Ok(FetchedKeySet { keys, lifetime }),
            _ => bail!("the key set has no member 'keys'"),
        }
    }
}

impl FetchKeySet for KeyFetcher {
    fn fetch<'a>(&'a self, address: &'a str) -> KeySetFuture<'a> {
        Box::pin(async move {
            let reason = match tokio::time::timeout(MAX_DURATION, self.fetch_key_set(address)).await {
                Ok(Ok(fetched)) => return Ok(fetched),
                Ok(Err(error)) => format!("{error:#}"),
                Err(_) => format!("the request took more than {} s", MAX_DURATION.as_secs()),
            };
            tracing::warn!(address, reason, "failed to fetch the key set of a client");
            Err(KeySetUnreachable)
        })
    }
}

/// Returns how long a response may be cached (RFC 9111 sections 5.2.2 and 5.3), if it says so.
fn cache_lifetime(headers: &HeaderMap, now: Timestamp) -> Option<SignedDuration> {
    let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let date = |name| text(name).and_then(|text| jiff::fmt::rfc2822::parse(text).ok());
    let directives = headers.get_all(header::CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let mut max_age = None;
    for directive in directives.flat_map(|value| value.split(',')) {
        let (name, value) = directive.trim().split_once('=').unwrap_or((directive.trim(), ""));
        match name.to_ascii_lowercase().as_str() {
            "no-store" | "no-cache" => return Some(SignedDuration::ZERO),
            "max-age" => max_age = value.trim_matches('"').parse().ok().or(max_age),
            _ => {}
        }
    }
    if let Some(seconds) = max_age {
        return Some(SignedDuration::from_secs(seconds));
    }
    let expires = date(header::EXPIRES)?.timestamp();
    let from = date(header::DATE).map_or(now, |date| date.timestamp());
    Some(from.duration_until(expires))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PrivateHosts;

    #[test]
    fn private_addresses_are_detected_in_every_form() {
        for private in [
            "127.0.0.1",
            "10.1.2.3",
            "172.31.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "2002:a00:1::",
            "2001:0:a00:1::",
            "::10.0.0.1",
            "2001:db8::1",
            "fec0::1",
            "100::1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
        for public in
            ["1.1.1.1", "93.184.215.14", "172.32.0.1", "2606:4700::1111", "2a00:1450::1", "::ffff:1.1.1.1"]
        {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
    }

    #[track_caller]
    fn check(headers: &[(&'static str, &str)], expected: Option<i64>) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let now = Timestamp::from_second(784_111_777).unwrap();
        assert_eq!(cache_lifetime(&map, now).map(|life| life.as_secs()), expected, "{headers:?}");
    }

    #[test]
    fn cache_headers_set_the_lifetime() {
        check(&[], None);
        check(&[("cache-control", "public, max-age=900")], Some(900));
        check(&[("cache-control", "public"), ("cache-control", "Max-Age=\"7\"")], Some(7));
        check(&[("cache-control", "no-store, max-age=900")], Some(0));
        check(&[("cache-control", "max-age=900, no-store")], Some(0));
        check(&[("cache-control", "max-age=soon")], None);
        check(&[("expires", "Sun, 06 Nov 1994 08:59:37 GMT")], Some(600));
        check(
            &[("date", "Sun, 06 Nov 1994 08:59:07 GMT"), ("expires", "Sun, 06 Nov 1994 08:59:37 GMT")],
            Some(30),
        );
        check(&[("expires", "0")], None);
    }

    fn fetcher(hosts: PrivateHosts) -> KeyFetcher {
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let settings = crate::config::settings::Settings { private_key_hosts: hosts, ..Default::default() };
        let settings = Arc::new(arc_swap::ArcSwap::from_pointee(settings));
        KeyFetcher::new(public_caller(settings.clone()), settings, Clock::system())
    }

    #[tokio::test]
    async fn private_names_and_addresses_are_not_called() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let without_hosts = fetcher(PrivateHosts::default());
        let other = fetcher(PrivateHosts::Named(vec!["keys.example".to_owned()]));
        for host in
            ["127.0.0.1", "localhost", "[::1]", "0x7f.1", "2130706433", "[::ffff:127.0.0.1]", "LOCALHOST"]
        {
            for scheme in ["http", "https"] {
                let address = format!("{scheme}://{host}:{port}/keys");
                let error = without_hosts.fetch_key_set(&address).await.unwrap_err();
                let chain = format!("{error:#} {error:?}");
                assert!(chain.contains("public address") || chain.contains("HTTPS"), "{address}: {chain}");
                assert!(other.fetch_key_set(&address).await.is_err(), "{address}");
            }
        }
        let called = tokio::time::timeout(Duration::ZERO, listener.accept()).await;
        assert!(called.is_err(), "a connection was made");
    }
}
