//! Replacing the compartments of stored versions (see [`crate::reassignment`]).

use crate::store::StoreEngine;
use crate::{Reassignment, Seq, Store, StoreError};

impl Store {
    /// Replaces the compartments of resources, of all or none of them, durably. Returns the sequence number
    /// of the change, which no commit has.
    ///
    /// # Errors
    /// Returns [`StoreError::Conflict`] with the first resource whose newest version is another one.
    pub async fn reassign(&self, reassignments: Vec<Reassignment>) -> Result<Seq, StoreError> {
        self.pass_gate()?;
        match &self.engine {
            StoreEngine::Memory(memory) => memory.reassign(reassignments),
            StoreEngine::SharedMemory(node) => node.memory().reassign(reassignments),
            StoreEngine::File(file) => file.reassign(reassignments).await,
            StoreEngine::Postgres(database) => database.reassign(&reassignments).await,
        }
    }
}
