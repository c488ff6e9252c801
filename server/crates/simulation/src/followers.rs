//! Followers of the feed of changes. Each must see each change once and in order.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use node_clients::Workload;
use store::{Seq, Store, Versions as _};

/// The changes that a follower has seen.
pub type SeenChanges = Arc<Mutex<Vec<Seq>>>;

/// Follows the changes through a handle with faults, until the run is over.
pub async fn follow(workload: &Workload, store: &Store, changes: &SeenChanges) {
    let mut after = Seq::ZERO;
    while !workload.is_over() {
        tokio::time::sleep(Duration::from_millis(100)).await;
        after = read(store, after, changes).await;
    }
}

/// Reads the changes until now. Returns the number of the last one.
pub async fn read(store: &Store, mut after: Seq, record: &SeenChanges) -> Seq {
    while let Ok(changes) = store.changes(after, 7).await {
        let Some(last) = changes.last() else { break };
        after = last.seq;
        record.lock().unwrap_or_else(PoisonError::into_inner).extend(changes.iter().map(|change| change.seq));
    }
    after
}
