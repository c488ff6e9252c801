//! Limits on failed sign-ins. The first failures of a counter are free. Each further one locks it for twice as long as
//! the one before, from one second to 15 minutes. A counter is forgotten 15 minutes after its last lock.
//!
//! An attempt is counted by three counters, each with its own number of free failures: the user name at this address,
//! the user name at all addresses, and the address for all user names. So neither one address nor many get far. A
//! browser in which the user has signed in before has a counter of its own and is counted by that only (the device
//! cookie of OWASP), so that an attacker cannot lock out the user.
//!
//! An attempt is counted before the password is checked, and its result is recorded afterwards. It reserves one of the
//! free failures of the user name and of the address, so that concurrent attempts get no more guesses than consecutive
//! ones. When the free failures are used up, attempts run one at a time. An attempt during a lock is rejected unchecked
//! and does not extend the lock. Unknown user names are counted as known ones are, so that a lock does not reveal which
//! users exist.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use store::{Expect, LedgerWrite, StoreError};

use crate::encoding;
use crate::ledger_keys;
use crate::model::user::User;
use crate::random::Random;
use crate::storage::epoch_ledger::EpochLedger;
use crate::storage::records;
use crate::storage::server_secret::ServerSecret;

/// Time after the end of the last lock until the failures are forgotten.
const FAILURE_MEMORY: SignedDuration = SignedDuration::from_mins(15);

/// Maximum number of concurrent attempts for one user name at one address, or from one known browser. It allows
/// programs that sign one user in many times.
const MAX_CONCURRENT: u32 = 32;

/// Numbers of free failures, and the maximum lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThrottleLimits {
    /// Free failures of one user name at one address, or of one known browser.
    pub per_pair: u32,
    /// Free failures of one user name at all addresses.
    pub per_user: u32,
    /// Free failures of one address for all user names. Several people may share an address.
    pub per_address: u32,
    /// Maximum duration of a lock.
    pub max_lockout: SignedDuration,
}

impl Default for ThrottleLimits {
    fn default() -> Self {
        Self { per_pair: 5, per_user: 25, per_address: 50, max_lockout: SignedDuration::from_mins(15) }
    }
}

/// Wait for attempts that are being checked.
const CONTENTION_BACKOFF: SignedDuration = SignedDuration::from_secs(1);

/// Purpose of the message authentication codes of device cookies.
const MAC_PURPOSE: &str = "device";

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct FailureRecord {
    count: u32,
    /// Number of attempts that are being checked.
    under_way: u32,
    last: Timestamp,
}

impl FailureRecord {
    /// Returns the end of the lock.
    fn locked_until(self, counter: &FailureCounter) -> Timestamp {
        match self.count.checked_sub(counter.free) {
            None => self.last,
            Some(excess) => {
                self.last + SignedDuration::from_secs(1 << excess.min(20)).min(counter.max_lockout)
            }
        }
    }

    /// Returns the time that an attempt must wait. It is not positive if there is no need to wait.
    fn required_wait(self, counter: &FailureCounter, now: Timestamp) -> SignedDuration {
        let is_free = self.count < counter.free;
        let concurrent = match (is_free, counter.shared) {
            (false, _) => 1,
            (true, true) => counter.free - self.count,
            (true, false) => MAX_CONCURRENT,
        };
        let backoff = if self.under_way >= concurrent { CONTENTION_BACKOFF } else { SignedDuration::ZERO };
        // Without a lock, `last` may be in the future: another attempt failed while this one waited.
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

/// One counter of failures.
#[derive(Debug, Clone)]
struct FailureCounter {
    key: String,
    free: u32,
    max_lockout: SignedDuration,
    /// `true` if several people share the counter. If so, each concurrent attempt reserves a free failure.
    shared: bool,
    /// `true` if a successful attempt resets the counter. If not, it only releases its reservation, so that a sign-in
    /// does not remove the failures of others.
    resets_on_success: bool,
}

impl FailureCounter {
    /// Returns a counter of one person in one place.
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

    /// Returns a counter that several people may share.
    fn shared_by_many(name: &str, source: &str, free: u32, limits: &ThrottleLimits) -> Self {
        Self { free, shared: true, resets_on_success: false, ..Self::exclusive(name, source, limits) }
    }
}

/// Result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptResult {
    /// The credentials were correct: the failures of this user name at this address are forgotten.
    Success,
    /// The credentials were wrong. The failure is counted.
    Failure,
    /// The credentials were not checked.
    NotEvaluated,
}

/// A counted attempt, whose credentials may be checked.
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

/// Counts failed sign-ins and delays further attempts.
pub struct SignInThrottle {
    pub(crate) ledger: Arc<EpochLedger>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) server_secret: Arc<ServerSecret>,
}

impl SignInThrottle {
    /// Counts an attempt to sign in with this user name. Returns the time to wait as the inner error if the attempt is
    /// rejected. `user` is the user of that name and `device` the device cookie, if they exist.
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
        let (name, address) = (username.to_lowercase(), source_network(address));
        let known = device.zip(user).and_then(|(cookie, user)| self.known_device(cookie, user));
        let counters = match known {
            Some(device) => vec![FailureCounter::exclusive("device", device, limits)],
            None => vec![
                FailureCounter::exclusive("pair", &format!("{address} {name}"), limits),
                FailureCounter::shared_by_many("user", &name, limits.per_user, limits),
                FailureCounter::shared_by_many("address", &address, limits.per_address, limits),
            ],
        };
        self.count_attempt(counters, known.is_some(), now).await
    }

    /// Counts an attempt to enter a code other than a password (the user code of a device), by user and address. A
    /// correct code does not reset the counters, because an attacker can create correct codes.
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
                let found = self.ledger.read_record::<FailureRecord>(&counter.key, now).await?;
                let (mut failures, expect) = match found {
                    Some(stored) => (stored.value, Expect::Revision(stored.revision)),
                    None => (FailureRecord { count: 0, under_way: 0, last: now }, Expect::Absent),
                };
                wait = wait.max(failures.required_wait(counter, now));
                failures.under_way = failures.under_way.saturating_add(1);
                writes.push(failures.ledger_write(counter, expect));
            }
            if wait.is_positive() {
                return Ok(Err(wait));
            }
            match self.ledger.write(writes, now).await {
                Ok(_) => return Ok(Ok(SignInAttempt { counters, known_device })),
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
                let found = self.ledger.read_record::<FailureRecord>(&counter.key, now).await?;
                let (mut failures, expect) = match found {
                    Some(stored) => (stored.value, Expect::Revision(stored.revision)),
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
                    // Another result was recorded concurrently: read the counter again, so that no failure is lost.
                    Err(StoreError::Conflict { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Returns the value of the device cookie, which shows that this user has signed in in this browser. It becomes
    /// invalid when the password changes.
    pub fn device_cookie(&self, user: &User, earlier_cookie: Option<&str>) -> String {
        let id = match earlier_cookie.and_then(|cookie| self.known_device(cookie, user)) {
            Some(known) => known.to_owned(),
            None => self.random.id(),
        };
        format!("{id}.{}", self.server_secret.mac(MAC_PURPOSE, &device_cookie_input(&id, user)))
    }

    /// Returns the id of the browser if the cookie is valid for this user.
    fn known_device<'a>(&self, cookie: &'a str, user: &User) -> Option<&'a str> {
        let (id, mac) = cookie.split_once('.')?;
        self.server_secret.verify_mac(MAC_PURPOSE, &device_cookie_input(id, user), mac).then_some(id)
    }
}

/// Returns the network of one subscriber: an IPv4 address, or the first 64 bits of an IPv6 address (RFC 6177), because
/// a subscriber has a whole /64 network.
pub(crate) fn source_network(address: &str) -> String {
    match address.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(IpAddr::V6(address)) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).to_string()
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
