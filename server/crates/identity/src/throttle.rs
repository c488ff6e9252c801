//! Guessing passwords is made slow: five failures of one user name from one address lock that pair for a
//! second, each further one twice as long, up to 15 minutes; 15 quiet minutes forget it all.
//!
//! Names that nobody has are counted the same way, so that nothing is learned from a lock. An attempt
//! during a lock is not looked at and does not lengthen it.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use store::{Expect, LedgerWrite, StoreError};

use crate::{Identity, ledger};

/// Failures before the first lock.
const FREE: u32 = 5;
/// The longest lock, and the pause that forgets.
const QUIET: SignedDuration = SignedDuration::from_mins(15);

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Failures {
    count: u32,
    last: Timestamp,
}

impl Failures {
    /// When the lock ends.
    fn locked_until(self) -> Timestamp {
        match self.count.checked_sub(FREE) {
            None => self.last,
            Some(over) => self.last + SignedDuration::from_secs(1 << over.min(10)).min(QUIET),
        }
    }
}

impl Identity {
    /// How long a sign-in of this name from this address has to wait; `None` when it need not.
    ///
    /// # Errors
    /// The store's.
    pub async fn sign_in_wait(
        &self,
        username: &str,
        address: &str,
        now: Timestamp,
    ) -> Result<Option<SignedDuration>, StoreError> {
        let found = ledger::get::<Failures>(&self.store, &key(username, address), now).await?;
        let wait = found.map(|stored| now.duration_until(stored.value.locked_until()));
        Ok(wait.filter(|wait| wait.is_positive()))
    }

    /// Counts a failed sign-in, or forgets the failures after one that worked.
    ///
    /// # Errors
    /// The store's.
    pub async fn count_sign_in(
        &self,
        username: &str,
        address: &str,
        worked: bool,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let key = key(username, address);
        loop {
            let found = ledger::get::<Failures>(&self.store, &key, now).await?;
            let write = match (&found, worked) {
                (None, true) => return Ok(()),
                (Some(_), true) => LedgerWrite::Delete { key: key.clone(), expect: Expect::Any },
                (_, false) => {
                    let count = found.as_ref().map_or(0, |stored| stored.value.count).saturating_add(1);
                    let expect =
                        found.as_ref().map_or(Expect::Absent, |stored| Expect::Revision(stored.revision));
                    let failures = Failures { count, last: now };
                    ledger::put(key.clone(), &failures, Some(failures.locked_until() + QUIET), expect)
                }
            };
            match self.store.write(vec![write], now).await {
                // Somebody counted at the same time: count again, so that no failure is lost.
                Err(StoreError::Conflict { .. }) => {}
                done => return done.map(drop),
            }
        }
    }
}

fn key(username: &str, address: &str) -> String {
    format!("throttle/{}", ledger::digest(&format!("{address} {}", username.to_lowercase())))
}
