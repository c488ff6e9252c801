//! Limits of the large authorization requests that wait for their users. Anyone can send them: the memory of
//! the store is limited by the bytes of one network and of all, and a browser keeps its newest.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

use crate::lifetimes;
use crate::sign_in::pending_quota::TooManyPending;
use crate::sign_in::throttle::source_network;

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
    bytes: usize,
}

#[derive(Debug)]
struct PendingRequest {
    browser: String,
    address: String,
    bytes: usize,
}

impl LargeRequestQuota {
    /// Counters for no requests.
    pub fn new(limits: LargeRequestLimits) -> Self {
        Self { limits, pending: Mutex::default() }
    }

    /// Counts a request, and returns the id of the request of the same browser that it replaces, if any.
    pub(crate) fn add(
        &self,
        id: &str,
        browser: &str,
        address: &str,
        bytes: usize,
        now: Timestamp,
    ) -> Result<Option<String>, TooManyPending> {
        let address = source_network(address);
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.forget_expired(now);
        let of_browser = pending.by_browser.get(browser);
        let replaced = of_browser.filter(|ids| ids.len() >= self.limits.per_browser);
        let replaced = replaced.and_then(|ids| ids.front().cloned());
        if let Some(oldest) = &replaced {
            pending.remove(oldest);
        }
        let of_address = pending.bytes_of_addresses.get(&address).copied().unwrap_or_default();
        if of_address + bytes > self.limits.address_bytes || pending.bytes + bytes > self.limits.bytes {
            let first = pending.by_expiry.front().map_or(now, |(expires, _)| *expires);
            return Err(TooManyPending { retry_after_s: now.duration_until(first).as_secs().max(1) });
        }
        pending.bytes += bytes;
        *pending.bytes_of_addresses.entry(address.clone()).or_default() += bytes;
        pending.by_browser.entry(browser.to_owned()).or_default().push_back(id.to_owned());
        pending.by_expiry.push_back((now + lifetimes::INTERACTION, id.to_owned()));
        pending
            .requests
            .insert(id.to_owned(), PendingRequest { browser: browser.to_owned(), address, bytes });
        Ok(replaced)
    }

    /// Forgets a request that was answered.
    pub(crate) fn remove(&self, id: &str) {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}

impl PendingRequests {
    fn forget_expired(&mut self, now: Timestamp) {
        while self.by_expiry.front().is_some_and(|(expires, _)| *expires <= now) {
            let Some((_, id)) = self.by_expiry.pop_front() else { return };
            self.remove(&id);
        }
    }

    fn remove(&mut self, id: &str) {
        let Some(PendingRequest { browser, address, bytes }) = self.requests.remove(id) else { return };
        self.bytes -= bytes;
        if let Some(of_address) = self.bytes_of_addresses.get_mut(&address) {
            *of_address -= bytes;
            if *of_address == 0 {
                self.bytes_of_addresses.remove(&address);
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

    #[test]
    fn a_browser_keeps_its_newest_requests() {
        let quota = quota();
        assert_eq!(quota.add("a", "b", "192.0.2.1", 10, at(0)), Ok(None));
        assert_eq!(quota.add("b", "b", "192.0.2.1", 10, at(1)), Ok(None));
        assert_eq!(quota.add("c", "b", "192.0.2.1", 10, at(2)), Ok(Some("a".to_owned())));
        assert_eq!(quota.add("d", "other", "192.0.2.1", 10, at(3)), Ok(None));
    }

    #[test]
    fn the_bytes_of_an_address_and_of_all_are_limited_until_the_requests_end() {
        let quota = quota();
        assert_eq!(quota.add("a", "1", "192.0.2.1", 20, at(0)), Ok(None));
        let full = Err(TooManyPending { retry_after_s: 3_590 });
        assert_eq!(quota.add("b", "2", "192.0.2.1", 20, at(10)), full);
        assert_eq!(quota.add("b", "2", "192.0.2.2", 30, at(10)), Ok(None));
        assert_eq!(quota.add("c", "3", "192.0.2.3", 10, at(10)), full);
        quota.remove("a");
        assert_eq!(quota.add("c", "3", "192.0.2.3", 10, at(20)), Ok(None));
        assert_eq!(quota.add("d", "4", "192.0.2.1", 30, at(3_610)), Ok(None));
        let pending = quota.pending.lock().unwrap();
        assert_eq!((pending.bytes, pending.requests.len(), pending.by_browser.len()), (40, 2, 2));
    }
}
