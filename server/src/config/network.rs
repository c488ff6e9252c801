//! Settings about other machines: maximum numbers of connections, trusted proxies, hosts with private addresses.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;

/// Maximum numbers of open connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// For the server.
    pub total: usize,
    /// For one address; an IPv6 address counts by its /64 network.
    pub per_address: usize,
}

/// The header in which the proxies send the client's address. No other header is read, because a client could set it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProxyHeader {
    /// `X-Forwarded-For`.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

/// Proxies that are trusted to name the client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    /// Networks of the proxies.
    pub networks: Vec<IpNet>,
    /// The header that they set.
    pub header: ProxyHeader,
}

impl TrustedProxies {
    /// Returns whether an address is that of a trusted proxy.
    pub fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks.iter().any(|network| network.contains(&address))
    }
}

/// Hosts whose private addresses may be called: `allow_private_jwks`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum PrivateHosts {
    /// All hosts or none.
    All(bool),
    /// The named hosts.
    Named(Vec<String>),
}

impl Default for PrivateHosts {
    fn default() -> Self {
        Self::All(false)
    }
}

impl PrivateHosts {
    /// Returns whether key sets may be fetched from a host although its address is private.
    pub fn contains(&self, host: &str) -> bool {
        match self {
            Self::All(all) => *all,
            Self::Named(hosts) => hosts.iter().any(|known| known.eq_ignore_ascii_case(host)),
        }
    }
}
