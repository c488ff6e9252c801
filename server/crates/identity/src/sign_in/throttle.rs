//! Limits on failed sign-ins. A counter allows a number of failures without a lock. Each further failure
//! locks the counter for twice as long as the previous lock, from one second to 15 minutes. A counter is
//! reset 15 minutes after the end of its last lock.
//!
//! Three counters count an attempt, each with its own number of free failures: the user name at this address,
//! the user name at all addresses, and the address for all user names. Attacks from one address and from many
//! addresses are both limited. A browser in which the user has signed in before is counted only by a counter
//! of its own (the device cookie of OWASP), so that an attacker cannot lock out the user.
//!
//! An attempt is counted before the password is checked, and its result is recorded afterwards. An attempt
//! reserves one of the free failures of the user name and of the address, so that concurrent attempts allow
//! no more guesses than consecutive ones. When the free failures are used up, attempts run one at a time. An
//! attempt during a lock is rejected without a password check and does not extend the lock. Unknown user
//! names are counted in the same way as existing ones, so that a lock does not reveal which users exist.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use store::{Expect, LedgerWrite, StoreError};

use crate::encoding;
use crate::ledger_keys;
use crate::model::user::User;
use crate::model::user_name;
use crate::random::Random;
use crate::storage::epoch_ledger::EpochLedger;
use crate::storage::records;
use crate::storage::server_secret::ServerSecret;

/// Time from the end of the last lock until a counter is reset.
const FAILURE_MEMORY: SignedDuration = SignedDuration::from_mins(15);

/// Maximum number of concurrent attempts for one user name at one address, or from one known browser.
/// Programs may sign in one user many times at once.
const MAX_CONCURRENT: u32 = 32;

/// Numbers of failures that cause no lock, and the maximum duration of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThrottleLimits {
    /// Free failures for one user name at one address, or for one known browser.
    pub per_pair: u32,
    /// Free failures for one user name at all addresses.
    pub per_user: u32,
    /// Free failures for one address and all user names. Several people may share an address.
    pub per_address: u32,
    /// Maximum duration of a lock.
    pub max_lockout: SignedDuration,
}

impl Default for ThrottleLimits {
    fn default() -> Self {
        Self { per_pair: 5, per_user: 25, per_address: 50, max_lockout: SignedDuration::from_mins(15) }
    }
}

/// Wait time of an attempt that is rejected because too many other attempts are in progress.
const CONTENTION_BACKOFF: SignedDuration = SignedDuration::from_secs(1);

/// Purpose of the message authentication codes in device cookies.
const MAC_PURPOSE: &str = "device";

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct FailureRecord {
    count: u32,
    /// Number of attempts whose credentials are being checked.
    under_way: u32,
    last: Timestamp,
}

impl FailureRecord {
    /// The time at which the lock ends.
    fn locked_until(self, counter: &FailureCounter) -> Timestamp {
        match self.count.checked_sub(counter.free) {
            None => self.last,
            Some(excess) => {
                self.last + SignedDuration::from_secs(1 << excess.min(20)).min(counter.max_lockout)
            }
        }
    }

    /// The time that an attempt must wait. A zero or negative value means that no wait is needed.
    fn required_wait(self, counter: &FailureCounter, now: Timestamp) -> SignedDuration {
        let is_free = self.count < counter.free;
        let concurrent = match (is_free, counter.shared) {
            (false, _) => 1,
            (true, true) => counter.free - self.count,
            (true, false) => MAX_CONCURRENT,
        };
        let backoff = if self.under_way >= concurrent { CONTENTION_BACKOFF } else { SignedDuration::ZERO };
        // Without a lock, `last` may be later than `now`: another attempt failed while this one was waiting.
        let lock =
            if is_free { SignedDuration::ZERO } else { now.duration_until(self.locked_until(counter)) };
        lock.max(backoff)
    }

    fn ledger_write(self, counter: &FailureCounter, expect: Expect) -> LedgerWrite {
        records::put_record(
            counter.key.clone(),
            &self,
            Some(self.locked_until(counter) + FAILURE_MEMORY),
            expect,
        )
    }
}

#[derive(Debug, Clone)]
struct FailureCounter {
    key: String,
    free: u32,
    max_lockout: SignedDuration,
    /// `true` if several people share the counter. If so, each concurrent attempt reserves a free failure.
    shared: bool,
    /// `true` if a successful attempt resets the counter. If not, it only releases its reservation, so that a
    /// sign-in does not remove the failures of others.
    resets_on_success: bool,
}

impl FailureCounter {
    /// The counter of a single user name at one address, or of a single known browser.
    fn exclusive(name: &str, source: &str, limits: &ThrottleLimits) -> Self {
        let key = ledger_keys::failure_counter(name, source);
        Self {
            key,
            free: limits.per_pair,
            max_lockout: limits.max_lockout,
            shared: false,
            resets_on_success: true,
        }
    }

    /// A counter that attempts of several people may share.
    fn shared_by_many(name: &str, source: &str, free: u32, limits: &ThrottleLimits) -> Self {
        Self { free, shared: true, resets_on_success: false, ..Self::exclusive(name, source, limits) }
    }
}

/// Result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptResult {
    /// The credentials were correct: the failures of this user name at this address are reset.
    Success,
    /// The credentials were wrong. The failure is counted.
    Failure,
    /// The credentials were not checked.
    NotEvaluated,
}

/// An attempt that was counted and whose credentials may now be checked.
#[derive(Debug)]
#[must_use = "the result of an attempt must be recorded"]
pub struct SignInAttempt {
    counters: Vec<FailureCounter>,
    known_device: bool,
}

impl SignInAttempt {
    /// Returns `true` if the user has signed in before in this browser.
    pub fn is_from_known_device(&self) -> bool {
        self.known_device
    }
}

/// The attempts at this node since its start.
#[derive(Debug, Default)]
pub struct ThrottleCounts {
    /// Attempts whose credentials were checked.
    pub checked: AtomicU64,
    /// Attempts that were rejected without a check.
    pub delayed: AtomicU64,
}

/// Counts failed sign-ins and delays further attempts.
pub struct SignInThrottle {
    /// Attempts to sign in and to enter codes.
    pub counts: ThrottleCounts,
    pub(crate) ledger: Arc<EpochLedger>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) server_secret: Arc<ServerSecret>,
}

impl SignInThrottle {
    /// Counts an attempt to sign in with this user name. If the attempt is rejected, the inner error is the
    /// time to wait. `user` is the user with that name and `device` the device cookie, if they exist.
    ///
    /// # Errors
    /// Returns [`StoreError`] if a counter cannot be read or written.
    pub async fn begin_sign_in_attempt(
        &self,
        username: &str,
        user: Option<&User>,
        address: &str,
        device: Option<&str>,
        limits: &ThrottleLimits,
        now: Timestamp,
    ) -> Result<Result<SignInAttempt, SignedDuration>, StoreError> {
        // Other spellings that name the same user are counted with it.
        let name = user_name::counted_name(user.map_or(username, |user| &user.username));
        let address = source_network(address);
        let known_device = device.zip(user).and_then(|(cookie, user)| self.known_device(cookie, user));
        let counters = match known_device {
            Some(device) => vec![FailureCounter::exclusive("device", device, limits)],
            None => vec![
                FailureCounter::exclusive("pair", &format!("{address} {name}"), limits),
                FailureCounter::shared_by_many("user", &name, limits.per_user, limits),
                FailureCounter::shared_by_many("address", &address, limits.per_address, limits),
            ],
        };
        self.count_attempt(counters, known_device.is_some(), now).await
    }

    /// Counts an attempt to enter a code that is not a password (the user code of a device), by user and
    /// address. A correct code does not reset the counters, because an attacker can obtain correct codes.
    ///
    /// # Errors
    /// Returns [`StoreError`] if a counter cannot be read or written.
    pub async fn begin_guess(
        &self,
        name: &str,
        sub: &str,
        address: &str,
        now: Timestamp,
    ) -> Result<Result<SignInAttempt, SignedDuration>, StoreError> {
        let limits = ThrottleLimits::default();
        let counters = vec![
            FailureCounter {
                resets_on_success: false,
                ..FailureCounter::exclusive(name, &format!("sub {sub}"), &limits)
            },
            FailureCounter::shared_by_many(
                name,
                &format!("address {}", source_network(address)),
                limits.per_user,
                &limits,
            ),
        ];
        self.count_attempt(counters, false, now).await
    }

    async fn count_attempt(
        &self,
        counters: Vec<FailureCounter>,
        known_device: bool,
        now: Timestamp,
    ) -> Result<Result<SignInAttempt, SignedDuration>, StoreError> {
        loop {
            let mut writes = Vec::new();
            let mut wait = SignedDuration::ZERO;
            for counter in &counters {
                let record = self.ledger.read_record::<FailureRecord>(&counter.key, now).await?;
                let (mut failures, expect) = match record {
                    Some(record) => (record.value, Expect::Revision(record.revision)),
                    None => (FailureRecord { count: 0, under_way: 0, last: now }, Expect::Absent),
                };
                wait = wait.max(failures.required_wait(counter, now));
                failures.under_way = failures.under_way.saturating_add(1);
                writes.push(failures.ledger_write(counter, expect));
            }
            if wait.is_positive() {
                self.counts.delayed.fetch_add(1, Ordering::Relaxed);
                return Ok(Err(wait));
            }
            match self.ledger.write(writes, now).await {
                Ok(_) => {
                    self.counts.checked.fetch_add(1, Ordering::Relaxed);
                    return Ok(Ok(SignInAttempt { counters, known_device }));
                }
                // Another attempt was counted concurrently: read the counters again.
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Records the result of an attempt.
    ///
    /// # Errors
    /// Returns [`StoreError`] if a counter cannot be read or written.
    pub async fn settle_attempt(
        &self,
        attempt: SignInAttempt,
        outcome: AttemptResult,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        for counter in attempt.counters {
            loop {
                let record = self.ledger.read_record::<FailureRecord>(&counter.key, now).await?;
                let (mut failures, expect) = match record {
                    Some(record) => (record.value, Expect::Revision(record.revision)),
                    None => (FailureRecord { count: 0, under_way: 0, last: now }, Expect::Absent),
                };
                failures.under_way = failures.under_way.saturating_sub(1);
                match outcome {
                    AttemptResult::Success if counter.resets_on_success => failures.count = 0,
                    AttemptResult::Failure => {
                        failures.count = failures.count.saturating_add(1);
                        failures.last = failures.last.max(now);
                    }
                    AttemptResult::Success | AttemptResult::NotEvaluated => {}
                }
                let write = if failures.count == 0 && failures.under_way == 0 {
                    LedgerWrite::Delete { key: counter.key.clone(), expect }
                } else {
                    failures.ledger_write(&counter, expect)
                };
                match self.ledger.write(vec![write], now).await {
                    Ok(_) => break,
                    // Another result was recorded concurrently: read the counter again, so that no failure is
                    // lost.
                    Err(StoreError::Conflict { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Returns the value of the device cookie, which proves that this user has signed in before in this
    /// browser. The cookie becomes invalid when the user's password changes.
    pub fn device_cookie(&self, user: &User, earlier_cookie: Option<&str>) -> String {
        let id = match earlier_cookie.and_then(|cookie| self.known_device(cookie, user)) {
            Some(device) => device.to_owned(),
            None => self.random.id(),
        };
        format!("{id}.{}", self.server_secret.mac(MAC_PURPOSE, &device_cookie_input(&id, user)))
    }

    /// The id of the browser if the cookie is valid for this user.
    fn known_device<'a>(&self, cookie: &'a str, user: &User) -> Option<&'a str> {
        let (id, mac) = cookie.split_once('.')?;
        self.server_secret.verify_mac(MAC_PURPOSE, &device_cookie_input(id, user), mac).then_some(id)
    }
}

/// The network of one subscriber: an IPv4 address, or the first 64 bits of an IPv6 address, because a
/// subscriber has at least a whole /64 network (RFC 6177).
pub(crate) fn source_network(address: &str) -> String {
    network_of(address, 4)
}

/// The site of an address: an IPv4 address, or the /48 network of an IPv6 address, which providers assign
/// to one customer.
pub(crate) fn source_site(address: &str) -> String {
    network_of(address, 3)
}

/// An IPv4 address, or the network of the first segments of an IPv6 address.
fn network_of(address: &str, segments: usize) -> String {
    match address.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(IpAddr::V6(address)) => {
            let mut parts = address.segments();
            parts[segments..].fill(0);
            Ipv6Addr::from(parts).to_string()
        }
        Ok(IpAddr::V4(address)) => address.to_string(),
        Err(_) => address.to_owned(),
    }
}

fn device_cookie_input(id: &str, user: &User) -> String {
    format!("{id} {} {}", user.sub, encoding::sha256_base64url(user.password.as_deref().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_counts_as_its_network() {
        for (address, counted) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("2001:db8:1:2:ffff::", "2001:db8:1:2::"),
            ("", ""),
        ] {
            assert_eq!(source_network(address), counted, "{address}");
        }
    }
}
