//! Fetches the key sets of clients (`jwks_uri`), and nothing else that an address could lead to.
//!
//! The address that is connected to is judged, not the name: names are resolved here, and what resolves to a
//! private address is not called, so that a name that changes its mind between two questions gains nothing.
//! No redirects, no proxies, a few seconds and a few kilobytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::BytesMut;
use http::{HeaderMap, StatusCode, header};
use identity::key_sets::{FetchKeySet, Fetched, Fetching, Unreachable};
use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use serde::Deserialize;
use url::Host;

use crate::settings::Live;

/// Longest time for all of it.
const TIME: Duration = Duration::from_secs(5);
/// Largest set, in bytes.
const SIZE: usize = 256 * 1024;

/// Hosts with private addresses that may be called all the same: `allow_private_jwks`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum PrivateHosts {
    /// All or none.
    All(bool),
    /// These.
    Named(Vec<String>),
}

impl Default for PrivateHosts {
    fn default() -> Self {
        Self::All(false)
    }
}

impl PrivateHosts {
    fn has(&self, host: &str) -> bool {
        match self {
            Self::All(all) => *all,
            Self::Named(hosts) => hosts.iter().any(|known| known.eq_ignore_ascii_case(host)),
        }
    }
}

/// Networks of IPv4 that are none of the public's (IANA special-purpose registry).
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
/// The one network of IPv6 that is public: everything else is local, mapped, translated, multicast or reserved.
const PUBLIC_V6: &str = "2000::/3";
/// What of it is special: protocol assignments and Teredo, 6to4, documentation.
const NOT_PUBLIC_V6: [&str; 4] = ["2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"];

static NOT_PUBLIC: LazyLock<Vec<IpNet>> = LazyLock::new(|| {
    let all = NOT_PUBLIC_V4.iter().chain(&NOT_PUBLIC_V6);
    all.map(|network| network.parse().expect("the networks are well-formed")).collect()
});

/// Is it an address of the public internet?
fn is_public(address: IpAddr) -> bool {
    // ::ffff:10.0.0.1 is 10.0.0.1.
    let address = address.to_canonical();
    let public_v6: IpNet = PUBLIC_V6.parse().expect("the network is well-formed");
    (address.is_ipv4() || public_v6.contains(&address))
        && !NOT_PUBLIC.iter().any(|network| network.contains(&address))
}

/// Resolves names to public addresses.
struct PublicNames(Live);

impl Resolve for PublicNames {
    fn resolve(&self, name: Name) -> Resolving {
        let settings = self.0.load_full();
        Box::pin(async move {
            let host = name.as_str();
            let all = tokio::net::lookup_host((host, 0)).await?;
            let may = |address: &SocketAddr| settings.private_key_hosts.has(host) || is_public(address.ip());
            let found: Vec<_> = all.filter(may).collect();
            if found.is_empty() {
                return Err(format!("{host} has no public address").into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// Fetches key sets.
pub struct KeyFetcher {
    http: reqwest::Client,
    settings: Live,
}

impl KeyFetcher {
    /// One that heeds these settings.
    ///
    /// # Errors
    /// The client cannot be set up.
    pub fn new(settings: Live) -> Result<Self> {
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            // Nothing is kept open: each fetch connects to an address that was judged for it.
            .pool_max_idle_per_host(0)
            .dns_resolver(Arc::new(PublicNames(settings.clone())))
            .build()
            .context("failed to set up the client for key sets")?;
        Ok(Self { http, settings })
    }

    async fn get(&self, address: &str) -> Result<Fetched> {
        let url = url::Url::parse(address)?;
        // A literal address is connected to without a resolver.
        let literal: Option<IpAddr> = match url.host() {
            Some(Host::Ipv4(address)) => Some(Ipv4Addr::into(address)),
            Some(Host::Ipv6(address)) => Some(Ipv6Addr::into(address)),
            Some(Host::Domain(_)) => None,
            None => bail!("there is no host"),
        };
        let host = url.host_str().unwrap_or_default();
        let private = self.settings.load().private_key_hosts.has(host);
        if literal.is_some_and(|address| !is_public(address)) && !private {
            bail!("{host} is no public address");
        }
        // Registration let plain HTTP pass for loopback hosts only; those need the permission too.
        if url.scheme() != "https" && !private {
            bail!("it is not HTTPS");
        }
        let mut response = self.http.get(url).header(header::ACCEPT, "application/json").send().await?;
        if response.status() != StatusCode::OK {
            bail!("status {}", response.status());
        }
        let lifetime = lifetime(response.headers(), Timestamp::now());
        let mut body = BytesMut::new();
        while let Some(piece) = response.chunk().await? {
            if body.len() + piece.len() > SIZE {
                bail!("it is larger than {SIZE} bytes");
            }
            body.extend_from_slice(&piece);
        }
        let mut set: serde_json::Value = serde_json::from_slice(&body).context("it is no JSON")?;
        match set["keys"].take() {
            serde_json::Value::Array(keys) => Ok(Fetched { keys, lifetime }),
            _ => bail!("it has no member 'keys'"),
        }
    }
}

impl FetchKeySet for KeyFetcher {
    fn fetch<'a>(&'a self, address: &'a str) -> Fetching<'a> {
        Box::pin(async move {
            let why = match tokio::time::timeout(TIME, self.get(address)).await {
                Ok(Ok(fetched)) => return Ok(fetched),
                Ok(Err(error)) => format!("{error:#}"),
                Err(_) => format!("it took more than {} s", TIME.as_secs()),
            };
            tracing::warn!(address, why, "the key set of a client could not be read");
            Err(Unreachable)
        })
    }
}

/// How long an answer may be kept (RFC 9111 5.2.2, 5.3), where it says so.
fn lifetime(headers: &HeaderMap, now: Timestamp) -> Option<SignedDuration> {
    let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let date = |name| text(name).and_then(|text| jiff::fmt::rfc2822::parse(text).ok());
    let directives = headers.get_all(header::CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    for directive in directives.flat_map(|value| value.split(',')) {
        let (name, value) = directive.trim().split_once('=').unwrap_or((directive.trim(), ""));
        match name.to_ascii_lowercase().as_str() {
            "no-store" | "no-cache" => return Some(SignedDuration::ZERO),
            "max-age" => {
                let seconds: i64 = value.trim_matches('"').parse().ok()?;
                return Some(SignedDuration::from_secs(seconds));
            }
            _ => {}
        }
    }
    let expires = date(header::EXPIRES)?.timestamp();
    let from = date(header::DATE).map_or(now, |date| date.timestamp());
    Some(from.duration_until(expires))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_known_in_every_disguise() {
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
        assert_eq!(lifetime(&map, now).map(|life| life.as_secs()), expected, "{headers:?}");
    }

    #[test]
    fn headers_say_how_long() {
        check(&[], None);
        check(&[("cache-control", "public, max-age=900")], Some(900));
        check(&[("cache-control", "public"), ("cache-control", "Max-Age=\"7\"")], Some(7));
        check(&[("cache-control", "no-store, max-age=900")], Some(0));
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
        let settings = crate::settings::Settings { private_key_hosts: hosts, ..Default::default() };
        KeyFetcher::new(Arc::new(arc_swap::ArcSwap::from_pointee(settings))).unwrap()
    }

    #[tokio::test]
    async fn names_and_literals_that_lead_inside_are_not_called() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let nobody = fetcher(PrivateHosts::default());
        let other = fetcher(PrivateHosts::Named(vec!["keys.example".to_owned()]));
        for host in
            ["127.0.0.1", "localhost", "[::1]", "0x7f.1", "2130706433", "[::ffff:127.0.0.1]", "LOCALHOST"]
        {
            for scheme in ["http", "https"] {
                let address = format!("{scheme}://{host}:{port}/keys");
                let error = nobody.get(&address).await.unwrap_err();
                let chain = format!("{error:#} {error:?}");
                assert!(chain.contains("public address") || chain.contains("HTTPS"), "{address}: {chain}");
                assert!(other.get(&address).await.is_err(), "{address}");
            }
        }
        let called = tokio::time::timeout(Duration::ZERO, listener.accept()).await;
        assert!(called.is_err(), "somebody connected");
    }
}
