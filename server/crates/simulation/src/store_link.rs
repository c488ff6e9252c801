//! The links of a node to the shared store and to the bucket, with their faults.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use jiff::Timestamp;
use store::StoreError;
use store::shared_memory::{LinkFuture, StoreLink, StoreStep};
use tokio::time::{Instant, sleep};

use crate::simulated_nodes;

/// Time after which a transaction of a silent node ends, and after which a node gives up a request.
const LIMIT: Duration = Duration::from_secs(4);
/// Interval at which a waiting message checks the state of its link.
const STATE_CHECK: Duration = Duration::from_millis(20);

/// State of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LinkState {
    /// Requests pass.
    #[default]
    Open,
    /// Requests and answers are lost at once.
    Refused,
    /// Nothing passes and nothing is refused.
    Stalled,
}

/// The link between one node and the store, or the bucket.
pub struct NodeLink {
    state: Mutex<(LinkState, Rng)>,
    slowest: Duration,
}

impl NodeLink {
    /// An open link.
    pub fn new(random: Rng, slowest: Duration) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new((LinkState::Open, random)), slowest })
    }

    fn lock(&self) -> MutexGuard<'_, (LinkState, Rng)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state.
    pub fn set(&self, state: LinkState) {
        self.lock().0 = state;
    }

    /// Waits until a message has passed. Returns `false` if it is lost.
    pub async fn cross(&self) -> bool {
        let start = Instant::now();
        let micros = {
            let mut state = self.lock();
            // Few steps take long.
            let most = self.slowest.as_micros() as u64;
            let most = if state.1.u8(..20) == 0 { most } else { most / 20 };
            state.1.u64(0..=most)
        };
        sleep(Duration::from_micros(micros)).await;
        loop {
            let state = self.lock().0;
            match state {
                LinkState::Open => return true,
                LinkState::Refused => return false,
                LinkState::Stalled if start.elapsed() > LIMIT => return false,
                LinkState::Stalled => sleep(STATE_CHECK).await,
            }
        }
    }
}

impl fmt::Debug for NodeLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeLink")
    }
}

impl StoreLink for NodeLink {
    fn pass(&self, _: StoreStep) -> LinkFuture<'_> {
        Box::pin(async move {
            match self.cross().await {
                true => Ok(()),
                false => Err(StoreError::Unavailable { reason: "the store cannot be reached".to_owned() }),
            }
        })
    }

    fn time(&self) -> Timestamp {
        simulated_nodes::time()
    }
}
