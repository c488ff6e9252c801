//! The end of a server whose store moves: first no write is accepted any more, then the server stops.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use store::StoreError;
use tokio_util::sync::CancellationToken;

/// The state of the move. Clones share it.
#[derive(Clone, Default)]
pub struct StoreDrain {
    /// Name of the new store while the writes are refused.
    target: Arc<ArcSwapOption<String>>,
    /// Cancelled when the server has to stop.
    moved: CancellationToken,
}

impl StoreDrain {
    /// Refuses all writes, because the content is being moved to this store.
    pub fn begin(&self, target: &str) {
        self.target.store(Some(Arc::new(target.to_owned())));
    }

    /// A guard that accepts writes again when it is dropped, unless the move is complete by then.
    pub fn guard(&self) -> DrainGuard<'_> {
        DrainGuard(self)
    }

    /// Makes the server stop, because its store was moved.
    pub fn complete(&self) {
        self.moved.cancel();
    }

    /// Completes when the store was moved.
    pub async fn completed(&self) {
        self.moved.cancelled().await;
    }

    /// Checks that writes are accepted.
    ///
    /// # Errors
    /// Returns [`StoreError::Unavailable`] during a move, so that clients try again.
    pub fn check(&self) -> Result<(), StoreError> {
        match &*self.target.load() {
            None => Ok(()),
            Some(target) => {
                let reason = format!("the content of the store is being moved to {target}");
                Err(StoreError::Unavailable { reason })
            }
        }
    }
}

/// See [`StoreDrain::guard`].
pub struct DrainGuard<'a>(&'a StoreDrain);

impl Drop for DrainGuard<'_> {
    fn drop(&mut self) {
        if !self.0.moved.is_cancelled() {
            self.0.target.store(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_accepted_again_unless_the_store_was_moved() {
        for is_moved in [false, true] {
            let drain = StoreDrain::default();
            let guard = drain.guard();
            assert!(drain.check().is_ok());
            drain.begin("file:elsewhere");
            assert!(drain.check().unwrap_err().to_string().contains("file:elsewhere"));
            if is_moved {
                drain.complete();
            }
            drop(guard);
            assert_eq!(drain.check().is_err(), is_moved);
        }
    }
}
