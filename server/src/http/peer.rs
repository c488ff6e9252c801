//! Who called: the other end of the connection, or, where that is a proxy of the operator's, whom the proxy
//! names. Nobody else is believed (RFC 7239 8.1).

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName, header};
use ipnet::IpNet;
use serde::Deserialize;

/// The header that the proxies write. Only this one is read: another one may come from the caller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProxyHeader {
    /// `X-Forwarded-For`.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

/// Proxies that may say who called.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    /// Their networks.
    pub networks: Vec<IpNet>,
    /// What they write.
    pub header: ProxyHeader,
}

impl TrustedProxies {
    /// Whether an address is that of a trusted proxy.
    pub fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks.iter().any(|network| network.contains(&address))
    }

    /// The address of the caller. From the last hop backwards: the first address that is no trusted proxy. A
    /// hop that is no address ends the search at the proxy that wrote it.
    pub fn client_ip(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut found = peer.to_canonical();
        if !self.trusts(found) {
            return found;
        }
        for hop in self.hops(headers).iter().rev() {
            let Some(address) = address(hop) else { break };
            found = address;
            if !self.trusts(found) {
                break;
            }
        }
        found
    }

    /// What the proxies wrote, the nearest last.
    fn hops(&self, headers: &HeaderMap) -> Vec<String> {
        let name = match self.header {
            ProxyHeader::XForwardedFor => HeaderName::from_static("x-forwarded-for"),
            ProxyHeader::Forwarded => header::FORWARDED,
        };
        let values = headers.get_all(name).iter().map(|value| value.to_str().unwrap_or("unreadable"));
        let elements = values.flat_map(|value| value.split(','));
        match self.header {
            ProxyHeader::XForwardedFor => elements.map(str::to_owned).collect(),
            ProxyHeader::Forwarded => elements.map(forwarded_for).collect(),
        }
    }
}

/// The value of `for` in an element of `Forwarded`.
fn forwarded_for(element: &str) -> String {
    let pairs = element.split(';').filter_map(|pair| pair.trim().split_once('='));
    let value = pairs.filter(|(name, _)| name.eq_ignore_ascii_case("for")).map(|(_, value)| value).next();
    value.unwrap_or_default().trim().trim_matches('"').to_owned()
}

/// An address, perhaps with a port, in brackets or with a zone left out.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let plain = text.parse::<IpAddr>().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|socket| socket.ip());
    let in_brackets = || text.strip_prefix('[')?.strip_suffix(']')?.parse::<IpAddr>().ok();
    plain.or_else(with_port).or_else(in_brackets).map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(header: ProxyHeader, peer: &str, headers: &[(&'static str, &str)], expected: &str) {
        let networks = ["10.0.0.0/8", "fd00::/8"].map(|network| network.parse().unwrap()).to_vec();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let found = TrustedProxies { networks, header }.client_ip(peer.parse().unwrap(), &map);
        assert_eq!(found, expected.parse::<IpAddr>().unwrap(), "{peer} {headers:?}");
    }

    #[test]
    fn only_a_trusted_proxy_says_who_called() {
        use ProxyHeader::{Forwarded, XForwardedFor};
        let xff = "x-forwarded-for";
        // A stranger's own words are not heard.
        check(XForwardedFor, "198.51.100.7", &[(xff, "203.0.113.9")], "198.51.100.7");
        check(XForwardedFor, "10.0.0.1", &[(xff, "203.0.113.9")], "203.0.113.9");
        // What the caller sent itself stands before what the proxy added.
        check(XForwardedFor, "10.0.0.1", &[(xff, "1.1.1.1, 203.0.113.9")], "203.0.113.9");
        check(XForwardedFor, "10.0.0.1", &[(xff, "1.1.1.1"), (xff, "203.0.113.9, 10.9.9.9")], "203.0.113.9");
        check(XForwardedFor, "10.0.0.1", &[(xff, "1.1.1.1, 10.3.0.1, 10.2.0.1")], "1.1.1.1");
        check(XForwardedFor, "10.0.0.1", &[(xff, "10.3.0.1, 10.2.0.1")], "10.3.0.1");
        check(XForwardedFor, "10.0.0.1", &[], "10.0.0.1");
        check(XForwardedFor, "10.0.0.1", &[(xff, "1.1.1.1, nonsense")], "10.0.0.1");
        check(XForwardedFor, "10.0.0.1", &[(xff, "1.1.1.1, unknown, 10.2.0.1")], "10.2.0.1");
        check(XForwardedFor, "::ffff:10.0.0.1", &[(xff, "::ffff:203.0.113.9")], "203.0.113.9");
        // A header that the proxy does not write may be the caller's.
        check(XForwardedFor, "10.0.0.1", &[("forwarded", "for=1.1.1.1")], "10.0.0.1");
        check(Forwarded, "10.0.0.1", &[(xff, "1.1.1.1")], "10.0.0.1");
        check(
            Forwarded,
            "10.0.0.1",
            &[("forwarded", "for=1.1.1.1, For=\"203.0.113.9:4711\";proto=https")],
            "203.0.113.9",
        );
        check(Forwarded, "fd00::1", &[("forwarded", "for=\"[2001:db8::7]:80\"")], "2001:db8::7");
        check(Forwarded, "fd00::1", &[("forwarded", "for=_hidden")], "fd00::1");
        check(Forwarded, "fd00::1", &[("forwarded", "proto=https")], "fd00::1");
    }
}
