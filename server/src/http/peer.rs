//! The address of the client: the other end of the connection or, if that is a trusted proxy, the address
//! that the proxy names. No other source is trusted (RFC 7239 section 8.1).

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Once};

use http::{HeaderMap, HeaderName, Method, Uri};

use crate::config::{ProxyHeader, TrustedProxies};

/// The head of a request with the other end of its connection, in the extensions of the request. The filters
/// of warp for its parts would copy the headers.
#[derive(Debug, Clone)]
pub struct RequestHead {
    /// The other end of the connection.
    pub peer: SocketAddr,
    /// Method.
    pub method: Method,
    /// Target.
    pub uri: Uri,
    /// Headers.
    pub headers: Arc<HeaderMap>,
}

/// The address of the caller. Reads the hops from the last one backwards and returns the first address that
/// is not a trusted proxy or, with a number of proxies, that of this number. A hop that is not an address
/// ends the search at the proxy that wrote it.
pub fn caller_address(proxies: &TrustedProxies, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
    let mut caller = peer.to_canonical();
    if !proxies.trusts(caller) {
        warn_of_untrusted_header(proxies.header, caller, headers);
        return caller;
    }
    if let Some(number) = proxies.hops {
        let hops = forwarded_hops(proxies.header, headers);
        // With fewer hops, the request did not pass all proxies, and a client may have written them all.
        let hop = hops.len().checked_sub(number).and_then(|index| parse_address(&hops[index]));
        return hop.unwrap_or(caller);
    }
    for hop in forwarded_hops(proxies.header, headers).iter().rev() {
        let Some(address) = parse_address(hop) else { break };
        caller = address;
        if !proxies.trusts(caller) {
            break;
        }
    }
    caller
}

/// Warns, once, of a proxy that is not trusted: all its clients count as one address, so that the wrong
/// passwords of one lock out all.
fn warn_of_untrusted_header(header: ProxyHeader, peer: IpAddr, headers: &HeaderMap) {
    static WARNED: Once = Once::new();
    if headers.contains_key(header_name(header)) {
        WARNED.call_once(|| {
            let name = header_name(header);
            tracing::warn!(
                "the header {name} from {peer} is ignored, and all clients behind this proxy count as one; if it is your \
                 proxy, set [server] trusted_proxies = [\"{peer}\"]"
            );
        });
    }
}

fn header_name(header: ProxyHeader) -> HeaderName {
    match header {
        ProxyHeader::XForwardedFor => HeaderName::from_static("x-forwarded-for"),
        ProxyHeader::Forwarded => http::header::FORWARDED,
    }
}

/// The hops that the proxies wrote, the nearest last.
fn forwarded_hops(header: ProxyHeader, headers: &HeaderMap) -> Vec<String> {
    let values =
        headers.get_all(header_name(header)).iter().map(|value| value.to_str().unwrap_or("unreadable"));
    let elements = values.flat_map(|value| value.split(','));
    match header {
        ProxyHeader::XForwardedFor => elements.map(str::to_owned).collect(),
        ProxyHeader::Forwarded => elements.map(forwarded_for).collect(),
    }
}

/// The value of `for` in an element of `Forwarded`.
fn forwarded_for(element: &str) -> String {
    let pairs = element.split(';').filter_map(|pair| pair.trim().split_once('='));
    let value = pairs.filter(|(name, _)| name.eq_ignore_ascii_case("for")).map(|(_, value)| value).next();
    value.unwrap_or_default().trim().trim_matches('"').to_owned()
}

/// Parses an address, which may have a port or brackets.
fn parse_address(text: &str) -> Option<IpAddr> {
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
        let caller =
            caller_address(&TrustedProxies { networks, header, hops: None }, peer.parse().unwrap(), &map);
        assert_eq!(caller, expected.parse::<IpAddr>().unwrap(), "{peer} {headers:?}");
    }

    #[test]
    fn the_number_of_proxies_selects_the_address() {
        let caller = |peer: &str, hops: usize, value: &str| {
            let networks = vec!["10.0.0.0/8".parse().unwrap()];
            let proxies = TrustedProxies { networks, header: ProxyHeader::XForwardedFor, hops: Some(hops) };
            let mut headers = HeaderMap::new();
            headers.append("x-forwarded-for", value.parse().unwrap());
            caller_address(&proxies, peer.parse().unwrap(), &headers).to_string()
        };
        assert_eq!(caller("10.0.0.1", 1, "1.1.1.1, 10.3.0.1"), "10.3.0.1");
        assert_eq!(caller("10.0.0.1", 2, "1.1.1.1, 203.0.113.9, 198.51.100.7"), "203.0.113.9");
        assert_eq!(caller("10.0.0.1", 3, "1.1.1.1"), "10.0.0.1");
        assert_eq!(caller("10.0.0.1", 1, "nonsense"), "10.0.0.1");
        assert_eq!(caller("203.0.113.9", 1, "1.1.1.1"), "203.0.113.9");
    }

    #[test]
    fn only_a_trusted_proxy_says_who_called() {
        use ProxyHeader::{Forwarded, XForwardedFor};
        let xff = "x-forwarded-for";
        // The header of an untrusted client is ignored.
        check(XForwardedFor, "198.51.100.7", &[(xff, "203.0.113.9")], "198.51.100.7");
        check(XForwardedFor, "10.0.0.1", &[(xff, "203.0.113.9")], "203.0.113.9");
        // The client's own value precedes the one that the proxy added.
        check(XForwardedFor, "10.0.0.1", &[(xff, "1.1.1.1, 203.0.113.9")], "203.0.113.9");
        check(XForwardedFor, "10.0.0.1", &[(xff, "1.1.1.1"), (xff, "203.0.113.9, 10.9.9.9")], "203.0.113.9");
        check(XForwardedFor, "10.0.0.1", &[(xff, "1.1.1.1, 10.3.0.1, 10.2.0.1")], "1.1.1.1");
        check(XForwardedFor, "10.0.0.1", &[(xff, "10.3.0.1, 10.2.0.1")], "10.3.0.1");
        check(XForwardedFor, "10.0.0.1", &[], "10.0.0.1");
        check(XForwardedFor, "10.0.0.1", &[(xff, "1.1.1.1, nonsense")], "10.0.0.1");
        check(XForwardedFor, "10.0.0.1", &[(xff, "1.1.1.1, unknown, 10.2.0.1")], "10.2.0.1");
        check(XForwardedFor, "::ffff:10.0.0.1", &[(xff, "::ffff:203.0.113.9")], "203.0.113.9");
        // A header that the proxy does not set may come from the client.
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
