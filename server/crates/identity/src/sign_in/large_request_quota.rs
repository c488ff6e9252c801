//! Limits of the large authorization requests that wait for their users. Anyone can send them: the memory of
//! the store is limited by the bytes of one network and of all, and a browser keeps its newest.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

use crate::lifetimes;
use crate::sign_in::throttle::{source_network, source_site};

/// Limits of the large requests whose users are on the pages of this server.
#[derive(Debug, Clone, Copy)]
pub struct LargeRequestLimits {
    /// Maximum number for one browser. The oldest is dropped.
    pub per_browser: usize,
    /// Maximum number of bytes for one network address. An IPv6 address is counted by its /64 network.
    pub address_bytes: usize,
    /// Maximum number of bytes in all.
    pub bytes: usize,
}

impl Default for LargeRequestLimits {
    fn default() -> Self {
        Self { per_browser: 20, address_bytes: 4 << 20, bytes: 64 << 20 }
    }
}

/// Counts the large requests of this node, in memory.
#[derive(Debug, Default)]
pub struct LargeRequestQuota {
    limits: LargeRequestLimits,
    pending: Mutex<PendingRequests>,
}

#[derive(Debug, Default)]
struct PendingRequests {
    requests: HashMap<String, PendingRequest>,
    /// The ids in the order of their expiry. Ids that were removed stay until then.
    by_expiry: VecDeque<(Timestamp, String)>,
    /// The ids of each browser, the oldest first.
    by_browser: HashMap<String, VecDeque<String>>,
    bytes_of_addresses: HashMap<String, usize>,
    /// The requests of each site: an IPv4 address, or an IPv6 network of 48 bits.
    sites: HashMap<String, SiteRequests>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct SiteRequests {
    /// The ids that may be dropped, the oldest first. Ids that were removed stay until they are the oldest.
    ids: VecDeque<String>,
    bytes: usize,
}

#[derive(Debug)]
struct PendingRequest {
    browser: String,
    address: String,
    site: String,
    bytes: usize,
}

/// A large request that is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CountedRequest<'a> {
    pub id: &'a str,
    pub browser: &'a str,
    pub address: &'a str,
    pub bytes: usize,
    /// A client that is authenticated pushed the request. It is never dropped for another one.
    pub is_pushed: bool,
}

/// The limit for which a large request has no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LargeRequestLimit {
    /// The bytes of one network address.
    OfNetwork,
    /// The bytes of all.
    OfAll,
}

impl LargeRequestQuota {
    /// Counters for no requests.
    pub fn new(limits: LargeRequestLimits) -> Self {
        Self { limits, pending: Mutex::default() }
    }

    /// Counts a request, and returns the ids of the requests that it replaces: the oldest one of the same
    /// browser beyond its number, and if all bytes are taken, the oldest ones of the site with the most
    /// bytes. A flood from a few networks thus displaces itself.
    ///
    /// # Errors
    /// Returns the limit that the request would exceed.
    pub(crate) fn add(
        &self,
        request: CountedRequest<'_>,
        now: Timestamp,
    ) -> Result<Vec<String>, LargeRequestLimit> {
        let CountedRequest { id, browser, bytes, is_pushed, .. } = request;
        let (address, site) = (source_network(request.address), source_site(request.address));
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.forget_expired(now);
        let of_browser = pending.by_browser.get(browser);
        let oldest = of_browser.filter(|ids| ids.len() >= self.limits.per_browser);
        let mut replaced: Vec<String> = oldest.and_then(|ids| ids.front().cloned()).into_iter().collect();
        let freed = |pending: &PendingRequests, id: &String, address: Option<&str>| {
            let request = pending.requests.get(id).filter(|one| address.is_none_or(|own| one.address == own));
            request.map_or(0, |one| one.bytes)
        };
        let of_address = pending.bytes_of_addresses.get(&address).copied().unwrap_or_default();
        let own_freed: usize = replaced.iter().map(|id| freed(&pending, id, Some(&address))).sum();
        if of_address - own_freed + bytes > self.limits.address_bytes {
            return Err(LargeRequestLimit::OfNetwork);
        }
        let all_freed: usize = replaced.iter().map(|id| freed(&pending, id, None)).sum();
        let excess = (pending.bytes - all_freed + bytes).saturating_sub(self.limits.bytes);
        if excess > 0 {
            replaced.extend(pending.oldest_of_heaviest(&site, excess).ok_or(LargeRequestLimit::OfAll)?);
        }
        replaced.iter().for_each(|id| pending.remove(id));
        pending.bytes += bytes;
        *pending.bytes_of_addresses.entry(address.clone()).or_default() += bytes;
        let of_site = pending.sites.entry(site.clone()).or_default();
        of_site.bytes += bytes;
        if !is_pushed {
            of_site.ids.push_back(id.to_owned());
        }
        pending.by_browser.entry(browser.to_owned()).or_default().push_back(id.to_owned());
        pending.by_expiry.push_back((now + lifetimes::INTERACTION, id.to_owned()));
        let request = PendingRequest { browser: browser.to_owned(), address, site, bytes };
        pending.requests.insert(id.to_owned(), request);
        Ok(replaced)
    }

    /// Forgets a request that was answered.
    pub(crate) fn remove(&self, id: &str) {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}

impl PendingRequests {
    /// The oldest requests of the site with the most bytes, of at least `bytes` bytes. `None` if no other
    /// site has more than this one, or it has too few that may be dropped.
    fn oldest_of_heaviest(&self, own: &str, bytes: usize) -> Option<Vec<String>> {
        let own_bytes = self.sites.get(own).map_or(0, |site| site.bytes);
        let (_, heaviest) = self.sites.iter().max_by_key(|(_, site)| site.bytes)?;
        if heaviest.bytes <= own_bytes {
            return None;
        }
        let (mut freed, mut ids) = (0, Vec::new());
        for id in &heaviest.ids {
            let Some(request) = self.requests.get(id) else { continue };
            freed += request.bytes;
            ids.push(id.clone());
            if freed >= bytes {
                return Some(ids);
            }
        }
        None
    }

    fn forget_expired(&mut self, now: Timestamp) {
        while self.by_expiry.front().is_some_and(|(expires, _)| *expires <= now) {
            let Some((_, id)) = self.by_expiry.pop_front() else { return };
            self.remove(&id);
        }
    }

    fn remove(&mut self, id: &str) {
        let Some(PendingRequest { browser, address, site, bytes }) = self.requests.remove(id) else { return };
        self.bytes -= bytes;
        if let Some(of_address) = self.bytes_of_addresses.get_mut(&address) {
            *of_address -= bytes;
            if *of_address == 0 {
                self.bytes_of_addresses.remove(&address);
            }
        }
        if let Some(of_site) = self.sites.get_mut(&site) {
            of_site.bytes -= bytes;
            while of_site.ids.front().is_some_and(|oldest| !self.requests.contains_key(oldest)) {
                of_site.ids.pop_front();
            }
            if of_site.bytes == 0 {
                self.sites.remove(&site);
            }
        }
        if let Some(ids) = self.by_browser.get_mut(&browser) {
            ids.retain(|other| other != id);
            if ids.is_empty() {
                self.by_browser.remove(&browser);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn quota() -> LargeRequestQuota {
        LargeRequestQuota::new(LargeRequestLimits { per_browser: 2, address_bytes: 30, bytes: 50 })
    }

    fn request<'a>(id: &'a str, browser: &'a str, address: &'a str, bytes: usize) -> CountedRequest<'a> {
        CountedRequest { id, browser, address, bytes, is_pushed: false }
    }

    #[test]
    fn a_browser_keeps_its_newest_requests() {
        let quota = quota();
        assert_eq!(quota.add(request("a", "b", "192.0.2.1", 10), at(0)), Ok(vec![]));
        assert_eq!(quota.add(request("b", "b", "192.0.2.1", 10), at(1)), Ok(vec![]));
        assert_eq!(quota.add(request("c", "b", "192.0.2.1", 10), at(2)), Ok(vec!["a".to_owned()]));
        assert_eq!(quota.add(request("d", "other", "192.0.2.1", 10), at(3)), Ok(vec![]));
    }

    #[test]
    fn the_bytes_of_an_address_are_limited_until_the_requests_end() {
        let quota = quota();
        assert_eq!(quota.add(request("a", "1", "192.0.2.1", 20), at(0)), Ok(vec![]));
        let full = Err(LargeRequestLimit::OfNetwork);
        assert_eq!(quota.add(request("b", "2", "192.0.2.1", 20), at(10)), full);
        assert_eq!(quota.add(request("b", "2", "192.0.2.2", 20), at(10)), Ok(vec![]));
        quota.remove("a");
        assert_eq!(quota.add(request("c", "3", "192.0.2.1", 20), at(20)), Ok(vec![]));
        assert_eq!(quota.add(request("d", "4", "192.0.2.1", 30), at(3_620)), Ok(vec![]));
        let pending = quota.pending.lock().unwrap();
        assert_eq!((pending.bytes, pending.requests.len(), pending.by_browser.len()), (30, 1, 1));
        assert_eq!(pending.sites.len(), 1);
    }

    #[test]
    fn a_flood_displaces_its_own_oldest_requests() {
        let quota = quota();
        // Two networks of one site fill the limit.
        assert_eq!(quota.add(request("a", "1", "2001:db8:0:1::1", 20), at(0)), Ok(vec![]));
        assert_eq!(quota.add(request("b", "2", "2001:db8:0:2::1", 20), at(1)), Ok(vec![]));
        // The site itself gets no more, and another one does.
        let full = Err(LargeRequestLimit::OfAll);
        assert_eq!(quota.add(request("c", "3", "2001:db8:0:3::1", 20), at(2)), full);
        assert_eq!(quota.add(request("d", "4", "2001:db8:1::1", 20), at(2)), Ok(vec!["a".to_owned()]));
        assert_eq!(quota.add(request("e", "5", "192.0.2.1", 10), at(2)), Ok(vec![]));
    }

    #[test]
    fn a_pushed_request_is_never_displaced() {
        let quota = quota();
        let pushed = CountedRequest { is_pushed: true, ..request("a", "1", "2001:db8::1", 30) };
        assert_eq!(quota.add(pushed, at(0)), Ok(vec![]));
        assert_eq!(quota.add(request("b", "2", "192.0.2.1", 15), at(0)), Ok(vec![]));
        let full = Err(LargeRequestLimit::OfAll);
        assert_eq!(quota.add(request("c", "3", "192.0.2.2", 10), at(1)), full);
    }
}
