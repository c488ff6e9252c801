//! Network settings: maximum numbers of connections, trusted proxies, and hosts with private addresses.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;

/// Maximum numbers of open connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Maximum for the whole server.
    pub total: usize,
    /// Maximum for one address. An IPv6 address is counted by its /64 network.
    pub per_address: usize,
}

/// The header in which trusted proxies send the address of the client. No other header is read, because a
/// client could set it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProxyHeader {
    /// The header `X-Forwarded-For`.
    #[default]
    XForwardedFor,
    /// The header `Forwarded` (RFC 7239).
    Forwarded,
}

/// Proxies whose header with the client's address is trusted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    /// IP networks of the proxies.
    pub networks: Vec<IpNet>,
    /// The header that the proxies set.
    pub header: ProxyHeader,
    /// Number of proxies in front of this server, if their addresses are not all known.
    pub hops: Option<usize>,
}

/// Clients from which plain HTTP is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlainHttp {
    /// All: the server listens on a loopback address.
    Loopback,
    /// Proxies that end TLS, by network.
    Proxies(Vec<IpNet>),
}

impl PlainHttp {
    /// Returns whether plain HTTP is accepted from an address.
    pub fn accepts(&self, address: IpAddr) -> bool {
        match self {
            Self::Loopback => true,
            Self::Proxies(networks) => {
                let address = address.to_canonical();
                networks.iter().any(|network| network.contains(&address))
            }
        }
    }
}

impl TrustedProxies {
    /// `true` if the address belongs to a trusted proxy.
    pub fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks.iter().any(|network| network.contains(&address))
    }
}

/// Hosts from which key sets may be fetched although their addresses are private (`allow_private_jwks`).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum PrivateHosts {
    /// All hosts (`true`) or none (`false`).
    All(bool),
    /// The hosts with these names.
    Named(Vec<String>),
}

impl Default for PrivateHosts {
    fn default() -> Self {
        Self::All(false)
    }
}

impl PrivateHosts {
    /// `true` if key sets may be fetched from the host although its address is private.
    pub fn contains(&self, host: &str) -> bool {
        match self {
            Self::All(all) => *all,
            Self::Named(hosts) => hosts.iter().any(|candidate| candidate.eq_ignore_ascii_case(host)),
        }
    }
}
