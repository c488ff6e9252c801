//! A memory budget for request bodies. A body beyond the first 64 KiB takes its bytes from the budget as they arrive.
//! A reader waits while the budget is used up, and gives up after a few seconds.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

/// Bytes of a body that need no reservation: small requests never wait for large ones.
pub const UNRESERVED_BYTES: usize = 64 << 10;
/// Default of the longest wait for bytes of the budget.
pub const MAX_WAIT: Duration = Duration::from_secs(5);

/// The budget was used up, and no bytes were returned in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetExhausted;

/// A budget for all request bodies together, and for those of one address.
#[derive(Debug)]
pub struct ByteBudget {
    total: usize,
    per_address: usize,
    wait: Duration,
    used: Mutex<BytesUsed>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct BytesUsed {
    total: usize,
    addresses: HashMap<Option<IpAddr>, usize>,
}

impl ByteBudget {
    /// A budget of `total` bytes, of which one address can use a quarter, but at least one body of `largest` bytes. A
    /// reader gives up after `wait`.
    pub fn new(total: usize, largest: usize, wait: Duration) -> Arc<Self> {
        let per_address = (total / 4).max(largest);
        let total = total.max(largest);
        Arc::new(Self { total, per_address, wait, used: Mutex::default(), freed: Notify::new() })
    }

    /// Returns an empty reservation.
    pub fn reservation(self: &Arc<Self>, address: Option<IpAddr>) -> ByteReservation {
        ByteReservation { budget: Arc::clone(self), address, bytes: 0 }
    }

    fn lock_used(&self) -> MutexGuard<'_, BytesUsed> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_take(&self, address: Option<IpAddr>, bytes: usize) -> bool {
        let mut used = self.lock_used();
        let of_address = used.addresses.get(&address).copied().unwrap_or_default();
        if used.total + bytes > self.total || of_address + bytes > self.per_address {
            return false;
        }
        used.total += bytes;
        used.addresses.insert(address, of_address + bytes);
        true
    }
}

/// Bytes taken from a budget, which are returned when this is dropped.
#[derive(Debug)]
pub struct ByteReservation {
    budget: Arc<ByteBudget>,
    address: Option<IpAddr>,
    bytes: usize,
}

impl ByteReservation {
    /// Enlarges the reservation to cover a body of `length` bytes.
    ///
    /// # Errors
    /// Returns [`BudgetExhausted`] if the bytes are not available in time.
    pub async fn cover(&mut self, length: usize) -> Result<(), BudgetExhausted> {
        let missing = length.saturating_sub(UNRESERVED_BYTES).saturating_sub(self.bytes);
        if missing == 0 {
            return Ok(());
        }
        let take = async {
            loop {
                let freed = self.budget.freed.notified();
                if self.budget.try_take(self.address, missing) {
                    return;
                }
                freed.await;
            }
        };
        timeout(self.budget.wait, take).await.map_err(|_| BudgetExhausted)?;
        self.bytes += missing;
        Ok(())
    }
}

impl Drop for ByteReservation {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut used = self.budget.lock_used();
        used.total -= self.bytes;
        if let Some(of_address) = used.addresses.get_mut(&self.address) {
            *of_address -= self.bytes;
            if *of_address == 0 {
                used.addresses.remove(&self.address);
            }
        }
        drop(used);
        self.budget.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[tokio::test]
    async fn one_address_leaves_bytes_for_others() {
        let budget = ByteBudget::new(8 * MIB, MIB, Duration::ZERO);
        let [first, second] = [1, 2].map(|last| Some(IpAddr::from([192, 0, 2, last])));
        let mut held = budget.reservation(first);
        held.cover(2 * MIB).await.unwrap();
        assert_eq!(budget.reservation(first).cover(MIB).await, Err(BudgetExhausted));
        assert_eq!(budget.reservation(first).cover(UNRESERVED_BYTES).await, Ok(()));
        assert_eq!(budget.reservation(second).cover(MIB).await, Ok(()));
    }

    #[tokio::test]
    async fn a_reader_waits_until_bytes_are_returned() {
        let budget = ByteBudget::new(4 * MIB, 4 * MIB, Duration::from_secs(60));
        let mut held = budget.reservation(None);
        held.cover(4 * MIB).await.unwrap();
        let other = budget.clone();
        let waiting = tokio::spawn(async move { other.reservation(None).cover(3 * MIB).await });
        tokio::task::yield_now().await;
        drop(held);
        assert_eq!(waiting.await.unwrap(), Ok(()));
        assert_eq!(budget.lock_used().total, 0);
        assert!(budget.lock_used().addresses.is_empty());
    }
}
