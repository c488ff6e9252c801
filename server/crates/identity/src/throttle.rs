//! Guessing is made slow: so many failures are free, then each one locks for twice as long as the one
//! before, from a second to 15 minutes; 15 quiet minutes forget it all.
//!
//! An attempt counts at several places at once, each with its own number of free failures: the user name
//! at this address, the user name wherever it is tried from, and the address whatever name it tries. So
//! neither one address nor many of them get far. A browser in which this user has signed in before counts
//! by itself alone (OWASP's device cookie): strangers can lock their own attempts, never the user out.
//!
//! An attempt is counted before the password is checked, and settled afterwards. It reserves one of the free failures of
//! the user name and of the address, so that concurrent attempts get no more guesses than attempts one after another.
//! After the free failures one attempt may be under way at a time. An attempt during a lock is not checked and does not
//! lengthen the lock. Names that nobody has are counted
//! the same way, so that a lock tells nothing.

use std::net::{IpAddr, Ipv6Addr};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use store::{Expect, LedgerWrite, StoreError};

use crate::user::User;
use crate::{Identity, ledger};

/// Time without a failure, after the end of a lock, until the failures are forgotten.
const QUIET: SignedDuration = SignedDuration::from_mins(15);

/// Maximum number of concurrent attempts for one name at one address, or from one known browser: programs that sign one
/// user in many times over are not taken for an attack.
const MAX_CONCURRENT: u32 = 32;

/// How many failures are free, and how long a lock lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThrottleLimits {
    /// Free failures of one name at one address, or of one known browser.
    pub per_pair: u32,
    /// Free failures of one name over all addresses.
    pub per_user: u32,
    /// Free failures of one address over all names: many people may share one.
    pub per_address: u32,
    /// The longest lock.
    pub max_lockout: SignedDuration,
}

impl Default for ThrottleLimits {
    fn default() -> Self {
        Self { per_pair: 5, per_user: 25, per_address: 50, max_lockout: SignedDuration::from_mins(15) }
    }
}

/// How long to wait for those that are under way.
const MOMENT: SignedDuration = SignedDuration::from_secs(1);

/// Purpose of the marks on device cookies.
const DEVICE: &str = "device";

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Failures {
    count: u32,
    /// Attempts that are being looked at.
    under_way: u32,
    last: Timestamp,
}

impl Failures {
    /// When the lock ends.
    fn locked_until(self, counter: &Counter) -> Timestamp {
        match self.count.checked_sub(counter.free) {
            None => self.last,
            Some(over) => self.last + SignedDuration::from_secs(1 << over.min(20)).min(counter.max_lockout),
        }
    }

    /// How long an attempt has to wait; not positive if it need not.
    fn wait(self, counter: &Counter, now: Timestamp) -> SignedDuration {
        let is_free = self.count < counter.free;
        let concurrent = match (is_free, counter.shared) {
            (false, _) => 1,
            (true, true) => counter.free - self.count,
            (true, false) => MAX_CONCURRENT,
        };
        let crowd = if self.under_way >= concurrent { MOMENT } else { SignedDuration::ZERO };
        // Without a lock the time says nothing: a failure that was noted while this attempt waited is younger than it.
        let lock =
            if is_free { SignedDuration::ZERO } else { now.duration_until(self.locked_until(counter)) };
        lock.max(crowd)
    }

    fn put(self, counter: &Counter, expect: Expect) -> LedgerWrite {
        ledger::put(counter.key.clone(), &self, Some(self.locked_until(counter) + QUIET), expect)
    }
}

/// One place where failures are counted.
#[derive(Debug, Clone)]
struct Counter {
    key: String,
    free: u32,
    max_lockout: SignedDuration,
    /// Do many people share it? Then each attempt under way reserves a free failure.
    shared: bool,
    /// Does a successful attempt forget the failures before it? If not, it only takes itself back: nobody removes the
    /// failures of others by signing in.
    forgets: bool,
}

impl Counter {
    /// What one person does in one place.
    fn narrow(what: &str, of: &str, limits: &ThrottleLimits) -> Self {
        let key = format!("throttle/{what}/{}", ledger::digest(of));
        Self { key, free: limits.per_pair, max_lockout: limits.max_lockout, shared: false, forgets: true }
    }

    /// What many people may share.
    fn wide(what: &str, of: &str, free: u32, limits: &ThrottleLimits) -> Self {
        Self { free, shared: true, forgets: false, ..Self::narrow(what, of, limits) }
    }
}

/// What came of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was right: the failures of this name here are forgotten.
    Right,
    /// It was wrong, and counts.
    Wrong,
    /// It was not looked at.
    Unseen,
}

/// An attempt that was noted and may be looked at.
#[derive(Debug)]
#[must_use = "an attempt is settled"]
pub struct Attempt {
    counters: Vec<Counter>,
    known_device: bool,
}

impl Attempt {
    /// Does it come from a browser in which the user has signed in before?
    pub fn is_from_known_device(&self) -> bool {
        self.known_device
    }
}

impl Identity {
    /// Notes an attempt to sign in as this user name; `Err` says how long to wait where it may not be
    /// looked at. `device` is the device cookie, and `user` who the name belongs to, where there are any.
    ///
    /// # Errors
    /// The store's.
    pub async fn attempt_sign_in(
        &self,
        username: &str,
        user: Option<&User>,
        address: &str,
        device: Option<&str>,
        limits: &ThrottleLimits,
        now: Timestamp,
    ) -> Result<Result<Attempt, SignedDuration>, StoreError> {
        let (name, address) = (username.to_lowercase(), network(address));
        let known = device.zip(user).and_then(|(cookie, user)| self.known_device(cookie, user));
        let counters = match known {
            Some(device) => vec![Counter::narrow("device", device, limits)],
            None => vec![
                Counter::narrow("pair", &format!("{address} {name}"), limits),
                Counter::wide("user", &name, limits.per_user, limits),
                Counter::wide("address", &address, limits.per_address, limits),
            ],
        };
        self.attempt(counters, known.is_some(), now).await
    }

    /// Notes an attempt to guess something that is no password (a device's user code), by who tries and
    /// from where. What is right forgets nothing: whoever guesses can make a right one for the purpose.
    ///
    /// # Errors
    /// The store's.
    pub async fn attempt_guess(
        &self,
        what: &str,
        sub: &str,
        address: &str,
        now: Timestamp,
    ) -> Result<Result<Attempt, SignedDuration>, StoreError> {
        let limits = ThrottleLimits::default();
        let counters = vec![
            Counter { forgets: false, ..Counter::narrow(what, &format!("sub {sub}"), &limits) },
            Counter::wide(what, &format!("address {}", network(address)), limits.per_user, &limits),
        ];
        self.attempt(counters, false, now).await
    }

    async fn attempt(
        &self,
        counters: Vec<Counter>,
        known_device: bool,
        now: Timestamp,
    ) -> Result<Result<Attempt, SignedDuration>, StoreError> {
        loop {
            let mut writes = Vec::new();
            let mut wait = SignedDuration::ZERO;
            for counter in &counters {
                let found = ledger::get::<Failures>(&self.store, &counter.key, now).await?;
                let (mut failures, expect) = match found {
                    Some(stored) => (stored.value, Expect::Revision(stored.revision)),
                    None => (Failures { count: 0, under_way: 0, last: now }, Expect::Absent),
                };
                wait = wait.max(failures.wait(counter, now));
                failures.under_way = failures.under_way.saturating_add(1);
                writes.push(failures.put(counter, expect));
            }
            if wait.is_positive() {
                return Ok(Err(wait));
            }
            match self.store.write(writes, now).await {
                Ok(_) => return Ok(Ok(Attempt { counters, known_device })),
                // Somebody noted one at the same time: look again.
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Says what came of an attempt.
    ///
    /// # Errors
    /// The store's.
    pub async fn settle(&self, attempt: Attempt, outcome: Outcome, now: Timestamp) -> Result<(), StoreError> {
        for counter in attempt.counters {
            loop {
                let found = ledger::get::<Failures>(&self.store, &counter.key, now).await?;
                let (mut failures, expect) = match found {
                    Some(stored) => (stored.value, Expect::Revision(stored.revision)),
                    None => (Failures { count: 0, under_way: 0, last: now }, Expect::Absent),
                };
                failures.under_way = failures.under_way.saturating_sub(1);
                match outcome {
                    Outcome::Right if counter.forgets => failures.count = 0,
                    Outcome::Wrong => {
                        failures.count = failures.count.saturating_add(1);
                        failures.last = failures.last.max(now);
                    }
                    Outcome::Right | Outcome::Unseen => {}
                }
                let write = if failures.count == 0 && failures.under_way == 0 {
                    LedgerWrite::Delete { key: counter.key.clone(), expect }
                } else {
                    failures.put(&counter, expect)
                };
                match self.store.write(vec![write], now).await {
                    Ok(_) => break,
                    // Somebody settled at the same time: look again, so that no failure is lost.
                    Err(StoreError::Conflict { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Value of the cookie that says of a browser that this user has signed in there. It ends with the
    /// user's password.
    pub fn device_cookie(&self, user: &User, before: Option<&str>) -> String {
        let id = match before.and_then(|cookie| self.known_device(cookie, user)) {
            Some(known) => known.to_owned(),
            None => self.random.id(),
        };
        format!("{id}.{}", self.mark(DEVICE, &device_text(&id, user)))
    }

    /// The browser's own id, where the cookie is one of ours for this user.
    fn known_device<'a>(&self, cookie: &'a str, user: &User) -> Option<&'a str> {
        let (id, mark) = cookie.split_once('.')?;
        self.is_marked(DEVICE, &device_text(id, user), mark).then_some(id)
    }
}

/// What one subscriber holds: an IPv4 address, or the 64 bits before the rest of an IPv6 one (RFC 6177), of
/// which anybody has more than can be counted.
pub(crate) fn network(address: &str) -> String {
    match address.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(IpAddr::V6(address)) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).to_string()
        }
        Ok(IpAddr::V4(address)) => address.to_string(),
        Err(_) => address.to_owned(),
    }
}

fn device_text(id: &str, user: &User) -> String {
    format!("{id} {} {}", user.sub, ledger::digest(user.password.as_deref().unwrap_or_default()))
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
            assert_eq!(network(address), counted, "{address}");
        }
    }
}
