//! The threads and the memory that requests share, and the limits on each.

use std::sync::Arc;

use identity::sign_in::pending_quota::PendingQuota;

use crate::config::Config;
use crate::node::abandoned_requests::AbandonedRequests;
use crate::node::byte_budget::{self, ByteBudget};
use crate::node::hashing::PasswordHasher;
use crate::node::memory_limit;
use crate::node::question_pool::QuestionPool;

/// Factor by which the processing of a request body takes more memory than the body: its text without white
/// space, the record of the store, and the copy in the tables that are not yet on the disk.
pub const BODY_COST: usize = 3;

/// Memory in bytes for each entry of a batch and of a transaction, besides their text: the plan, the result,
/// and the keys and index entries in the tables of the store. A transaction writes them all together.
/// Measured: 500 to 1,000, and 2,500 to 3,500.
pub const BATCH_ENTRY_COST: usize = 1_000;
/// See [`BATCH_ENTRY_COST`].
pub const TRANSACTION_ENTRY_COST: usize = 3_000;

/// The threads and the memory that requests share.
pub struct Capacity {
    /// Runs long terminology questions.
    pub questions: QuestionPool,
    /// Runs password hashes.
    pub hashing: PasswordHasher,
    /// Requests whose clients have disconnected.
    pub abandoned: AbandonedRequests,
    /// Memory for request bodies.
    pub bodies: Arc<ByteBudget>,
    /// Memory for answers.
    pub answers: Arc<ByteBudget>,
    /// Counts the pending records that anonymous requests created.
    pub pending: PendingQuota,
}

impl Capacity {
    /// The capacity of this machine or container, for bodies of at most `body_limit` bytes.
    pub fn new(config: &Config, body_limit: usize) -> Self {
        let memory = memory_limit::memory_limit();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let budget = |configured, largest| {
            let bytes = memory_limit::limited_budget(configured, memory);
            ByteBudget::new(bytes, largest, byte_budget::MAX_WAIT)
        };
        Self {
            questions: QuestionPool::new(cores, memory_limit::limited_budget(usize::MAX, memory)),
            hashing: PasswordHasher::new(cores),
            abandoned: AbandonedRequests::default(),
            bodies: budget(config.body_memory_bytes, body_limit * BODY_COST),
            answers: budget(config.response_memory_bytes, body_limit * 2),
            pending: PendingQuota::new(config.pending),
        }
    }
}
