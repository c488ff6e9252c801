//! Memory budgets for request bodies and for answers. A request takes bytes from a budget before it uses the
//! memory. It waits while the budget is used up, and gives up after a few seconds.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::timeout;

/// Bytes of a request that need no reservation: small requests never wait for large ones.
pub const UNRESERVED_BYTES: usize = 64 << 10;
/// Default of the longest wait for bytes of the budget.
pub const MAX_WAIT: Duration = Duration::from_secs(5);

/// The budget was used up, and no bytes were returned in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetExhausted;

/// The user of a part of a budget.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum BudgetOwner {
    /// All requests from a network address; `None` if it is unknown.
    Address(Option<IpAddr>),
    /// All requests of a client, for one user or for itself.
    Client {
        /// Client id.
        client_id: Box<str>,
        /// Subject of the token.
        sub: Box<str>,
    },
}

/// A budget for all requests together, and for those of one owner.
#[derive(Debug)]
pub struct ByteBudget {
    total: usize,
    per_owner: usize,
    wait: Duration,
    used: Mutex<BytesUsed>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct BytesUsed {
    total: usize,
    owners: HashMap<BudgetOwner, usize>,
}

impl ByteBudget {
    /// A budget of `total` bytes, of which one owner can use a quarter, but at least one reservation of
    /// `largest` bytes. A request gives up after `wait`.
    pub fn new(total: usize, largest: usize, wait: Duration) -> Arc<Self> {
        let per_owner = (total / 4).max(largest);
        let total = total.max(largest);
        Arc::new(Self { total, per_owner, wait, used: Mutex::default(), freed: Notify::new() })
    }

    /// An empty reservation.
    pub fn reservation(self: &Arc<Self>, owner: BudgetOwner) -> ByteReservation {
        ByteReservation { budget: Arc::clone(self), owner, bytes: 0 }
    }

    /// The size of the budget in bytes.
    pub fn total(&self) -> usize {
        self.total
    }

    /// The number of bytes in use.
    pub fn used(&self) -> usize {
        self.lock_used().total
    }

    /// The number of bytes that one owner can use.
    pub fn per_owner(&self) -> usize {
        self.per_owner
    }

    fn lock_used(&self) -> MutexGuard<'_, BytesUsed> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_take(&self, owner: &BudgetOwner, bytes: usize) -> bool {
        let mut used = self.lock_used();
        let of_owner = used.owners.get(owner).copied().unwrap_or_default();
        if used.total + bytes > self.total || of_owner + bytes > self.per_owner {
            return false;
        }
        used.total += bytes;
        used.owners.insert(owner.clone(), of_owner + bytes);
        true
    }

    fn give_back(&self, owner: &BudgetOwner, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let mut used = self.lock_used();
        used.total -= bytes;
        if let Some(of_owner) = used.owners.get_mut(owner) {
            *of_owner -= bytes;
            if *of_owner == 0 {
                used.owners.remove(owner);
            }
        }
        drop(used);
        self.freed.notify_waiters();
    }
}

/// Bytes taken from a budget, which are returned when this is dropped.
#[derive(Debug)]
pub struct ByteReservation {
    budget: Arc<ByteBudget>,
    owner: BudgetOwner,
    bytes: usize,
}

impl ByteReservation {
    /// The number of bytes that this owner can have.
    pub fn largest(&self) -> usize {
        self.budget.per_owner
    }

    /// The bytes that are missing to cover `length` bytes. A length above the maximum of an owner counts as
    /// the maximum: nothing can be larger than what was accepted, except after a change of the settings.
    fn missing(&self, length: usize) -> usize {
        let length = length.min(self.budget.per_owner);
        length.saturating_sub(UNRESERVED_BYTES).saturating_sub(self.bytes)
    }

    /// Enlarges the reservation to cover `length` bytes.
    ///
    /// # Errors
    /// [`BudgetExhausted`] if the bytes are not available in time.
    pub async fn cover(&mut self, length: usize) -> Result<(), BudgetExhausted> {
        let missing = self.missing(length);
        if missing == 0 {
            return Ok(());
        }
        let take = async {
            loop {
                let freed = self.budget.freed.notified();
                if self.budget.try_take(&self.owner, missing) {
                    return;
                }
                freed.await;
            }
        };
        timeout(self.budget.wait, take).await.map_err(|_| BudgetExhausted)?;
        self.bytes += missing;
        Ok(())
    }

    /// Enlarges the reservation to cover `length` bytes if they are available now.
    ///
    /// # Errors
    /// [`BudgetExhausted`] if they are not.
    pub fn try_cover(&mut self, length: usize) -> Result<(), BudgetExhausted> {
        let missing = self.missing(length);
        if missing > 0 && !self.budget.try_take(&self.owner, missing) {
            return Err(BudgetExhausted);
        }
        self.bytes += missing;
        Ok(())
    }

    /// Reduces the reservation to what covers `length` bytes.
    fn shrink(&mut self, length: usize) {
        let bytes = length.min(self.budget.per_owner).saturating_sub(UNRESERVED_BYTES);
        let excess = self.bytes.saturating_sub(bytes);
        self.bytes -= excess;
        self.budget.give_back(&self.owner, excess);
    }

    /// The bytes with this reservation, which ends when the last copy of them is dropped. An answer thus
    /// counts until it was sent or its client has left.
    pub fn attach(self, bytes: impl Into<Bytes>) -> Bytes {
        let bytes = bytes.into();
        let length = bytes.len();
        self.attach_last(bytes, length)
    }

    /// Like [`ByteReservation::attach`], for the last part of an answer of `length` bytes.
    pub fn attach_last(mut self, bytes: Bytes, length: usize) -> Bytes {
        self.shrink(length);
        if self.bytes == 0 {
            return bytes;
        }
        Bytes::from_owner(ReservedBytes { bytes, _reservation: self })
    }
}

impl Drop for ByteReservation {
    fn drop(&mut self) {
        self.budget.give_back(&self.owner, self.bytes);
    }
}

struct ReservedBytes {
    bytes: Bytes,
    _reservation: ByteReservation,
}

impl AsRef<[u8]> for ReservedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[tokio::test]
    async fn one_address_leaves_bytes_for_others() {
        let budget = ByteBudget::new(8 * MIB, MIB, Duration::ZERO);
        let [first, second] = [1, 2].map(|last| BudgetOwner::Address(Some(IpAddr::from([192, 0, 2, last]))));
        let mut reservation = budget.reservation(first.clone());
        reservation.cover(2 * MIB).await.unwrap();
        assert_eq!(budget.reservation(first.clone()).cover(MIB).await, Err(BudgetExhausted));
        assert_eq!(budget.reservation(first).cover(UNRESERVED_BYTES).await, Ok(()));
        assert_eq!(budget.reservation(second).cover(MIB).await, Ok(()));
    }

    #[tokio::test]
    async fn a_reader_waits_until_bytes_are_returned() {
        let budget = ByteBudget::new(4 * MIB, 4 * MIB, Duration::from_secs(60));
        let mut reservation = budget.reservation(BudgetOwner::Address(None));
        reservation.cover(4 * MIB).await.unwrap();
        let other = budget.clone();
        let waiting =
            tokio::spawn(async move { other.reservation(BudgetOwner::Address(None)).cover(3 * MIB).await });
        tokio::task::yield_now().await;
        drop(reservation);
        assert_eq!(waiting.await.unwrap(), Ok(()));
        assert_eq!(budget.lock_used().total, 0);
        assert!(budget.lock_used().owners.is_empty());
    }

    #[test]
    fn attached_bytes_count_until_the_last_copy_is_dropped() {
        let budget = ByteBudget::new(4 * MIB, 4 * MIB, Duration::ZERO);
        let client = BudgetOwner::Client { client_id: "app".into(), sub: "ada".into() };
        let mut reservation = budget.reservation(client.clone());
        assert_eq!(reservation.try_cover(3 * MIB), Ok(()));
        let body = reservation.attach(vec![0; MIB]);
        assert_eq!(budget.lock_used().total, MIB - UNRESERVED_BYTES);
        assert_eq!(budget.reservation(client.clone()).try_cover(4 * MIB), Err(BudgetExhausted));
        let part = body.slice(..10);
        drop(body);
        assert_eq!(budget.lock_used().total, MIB - UNRESERVED_BYTES);
        drop(part);
        assert_eq!(budget.lock_used().total, 0);
        // More than one owner can have is the most that one can have.
        assert_eq!(budget.reservation(client).try_cover(40 * MIB), Ok(()));
        assert!(budget.lock_used().owners.is_empty());
    }
}
