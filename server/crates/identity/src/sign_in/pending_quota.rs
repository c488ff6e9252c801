//! Limits on the number of records that anonymous requests create: pushed requests, device authorizations,
//! passkey ceremonies, sign-ins at a provider and sign-out requests. Each kind has a maximum for one source
//! and one for all addresses together. A record is counted until it expires, even if it was used before.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};

use crate::lifetimes;
use crate::model::client::Client;
use crate::sign_in::throttle::source_network;

/// Maximum numbers of pending records of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingLimits {
    /// Maximum for one network address. An IPv6 address is counted by its /64 network.
    pub per_address: usize,
    /// Maximum for one confidential client.
    pub per_client: usize,
    /// Maximum for all addresses together.
    pub total: usize,
}

impl Default for PendingLimits {
    fn default() -> Self {
        Self { per_address: 300, per_client: 10_000, total: 20_000 }
    }
}

/// A kind of pending record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PendingKind {
    /// A pushed authorization request (RFC 9126).
    PushedRequest,
    /// A device authorization (RFC 8628).
    DeviceAuthorization,
    /// A passkey ceremony.
    PasskeyCeremony,
    /// A sign-in at an external provider.
    ProviderSignIn,
    /// A sign-out request by POST.
    SignOutRequest,
}

impl PendingKind {
    const COUNT: usize = 5;

    fn lifetime(self) -> SignedDuration {
        match self {
            Self::PushedRequest => lifetimes::PUSHED_REQUEST,
            Self::DeviceAuthorization => lifetimes::DEVICE_CODE,
            Self::PasskeyCeremony => lifetimes::PASSKEY_CEREMONY,
            Self::ProviderSignIn => lifetimes::PROVIDER_SIGN_IN,
            Self::SignOutRequest => lifetimes::SIGN_OUT_REQUEST,
        }
    }
}

/// The error for a request that exceeds a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many requests of this kind are pending; try again in {retry_after_s} s")]
pub struct TooManyPending {
    /// Seconds until the first pending record expires, at least 1.
    pub retry_after_s: i64,
}

/// The source by which a record is counted: a client or a network address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum PendingSource {
    Address(String),
    Client(String),
}

/// Counters of pending records, kept in memory.
#[derive(Debug, Default)]
pub struct PendingQuota {
    limits: PendingLimits,
    kinds: [Mutex<PendingRecords>; PendingKind::COUNT],
}

#[derive(Debug, Default)]
struct PendingRecords {
    by_expiry: BinaryHeap<Reverse<(Timestamp, u64)>>,
    /// The source of each record in `by_expiry`, by record number.
    sources: HashMap<u64, PendingSource>,
    counts: HashMap<PendingSource, usize>,
    /// Number of records whose source is an address.
    anonymous: usize,
    next: u64,
}

impl PendingQuota {
    /// Returns counters for an empty set of records.
    pub fn new(limits: PendingLimits) -> Self {
        Self { limits, kinds: Default::default() }
    }

    /// Counts a record that a request from `address` is about to create. `client` is the client that sent the
    /// request, if any. A public client is counted by its address.
    ///
    /// # Errors
    /// Returns [`TooManyPending`] if the source, or all addresses together, have reached the maximum.
    pub fn add_request(
        &self,
        kind: PendingKind,
        address: &str,
        client: Option<&Client>,
        now: Timestamp,
    ) -> Result<(), TooManyPending> {
        let (source, maximum) = match client.filter(|client| !client.is_public()) {
            Some(client) => (PendingSource::Client(client.client_id.clone()), self.limits.per_client),
            None => (PendingSource::Address(source_network(address)), self.limits.per_address),
        };
        let mut pending = self.kinds[kind as usize].lock().unwrap_or_else(PoisonError::into_inner);
        pending.forget_expired(now);
        let count = pending.counts.get(&source).copied().unwrap_or_default();
        let is_anonymous = matches!(source, PendingSource::Address(_));
        if count >= maximum || is_anonymous && pending.anonymous >= self.limits.total {
            let first = pending.by_expiry.peek().map_or(now, |Reverse((expires, _))| *expires);
            return Err(TooManyPending { retry_after_s: now.duration_until(first).as_secs().max(1) });
        }
        let number = pending.next;
        pending.next += 1;
        pending.by_expiry.push(Reverse((now + kind.lifetime(), number)));
        *pending.counts.entry(source.clone()).or_default() += 1;
        pending.anonymous += usize::from(is_anonymous);
        pending.sources.insert(number, source);
        Ok(())
    }
}

impl PendingRecords {
    fn forget_expired(&mut self, now: Timestamp) {
        while self.by_expiry.peek().is_some_and(|Reverse((expires, _))| *expires <= now) {
            let Some(Reverse((_, number))) = self.by_expiry.pop() else { return };
            let Some(source) = self.sources.remove(&number) else { continue };
            self.anonymous -= usize::from(matches!(source, PendingSource::Address(_)));
            if let Some(count) = self.counts.get_mut(&source) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&source);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: PendingKind = PendingKind::PushedRequest;

    fn quota() -> PendingQuota {
        PendingQuota::new(PendingLimits { per_address: 2, per_client: 3, total: 5 })
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_source_has_a_maximum_until_its_records_expire() {
        let quota = quota();
        for second in [0, 10] {
            assert_eq!(quota.add_request(KIND, "192.0.2.1", None, at(second)), Ok(()));
        }
        assert_eq!(
            quota.add_request(KIND, "192.0.2.1", None, at(20)),
            Err(TooManyPending { retry_after_s: 70 })
        );
        // Records of other kinds and from other addresses are counted separately.
        assert_eq!(quota.add_request(PendingKind::PasskeyCeremony, "192.0.2.1", None, at(20)), Ok(()));
        assert_eq!(quota.add_request(KIND, "192.0.2.2", None, at(20)), Ok(()));
        assert_eq!(quota.add_request(KIND, "192.0.2.1", None, at(90)), Ok(()));
        assert!(quota.add_request(KIND, "192.0.2.1", None, at(91)).is_err());
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_source() {
        let quota = quota();
        for host in 1..=2 {
            assert_eq!(quota.add_request(KIND, &format!("2001:db8::{host}"), None, at(0)), Ok(()));
        }
        assert!(quota.add_request(KIND, "2001:db8::3", None, at(0)).is_err());
    }

    #[test]
    fn all_addresses_together_have_a_maximum() {
        let quota = quota();
        for host in 1..=5 {
            assert_eq!(quota.add_request(KIND, &format!("192.0.2.{host}"), None, at(0)), Ok(()));
        }
        assert!(quota.add_request(KIND, "192.0.2.9", None, at(0)).is_err());
        assert_eq!(quota.add_request(KIND, "192.0.2.9", None, at(90)), Ok(()));
    }
}
