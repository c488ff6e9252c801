//! Assigns the versions that an earlier program wrote to Patients, by the rules of this program
//! ([`resources::assign_stored`]). Until this is complete, the types that are affected are closed to
//! clients that are limited to some Patients, because the store does not know whose resources they are.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use resources::assign_stored::{AssignmentPass, AssignmentStep, read_record};
use store::{Expect, Ledger as _, LedgerWrite, Store, StoreError};

/// Number of pages that are assigned before the server answers requests. A small store is thus complete
/// when it does.
const FIRST_PAGES: usize = 20;
/// Number of pages between two attempts.
const PAGES: usize = 1_000;
/// Beginning of the keys of the records with which nodes state that they write by the current rules.
const NODES: &str = "patient-assignment-node/";

/// Whether the stored versions are assigned.
#[derive(Default)]
pub struct PatientAssignment {
    is_complete: AtomicBool,
    /// Whether nothing remains to be done, not even a repetition after nodes of an earlier program.
    is_final: AtomicBool,
}

impl PatientAssignment {
    /// Whether all stored versions are assigned.
    pub fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Acquire)
    }

    /// States that this node writes by the current rules, and assigns the first pages.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the store cannot be read or written.
    pub async fn open(store: &Store, fhir_base: &str, now: Timestamp) -> Result<Self, StoreError> {
        let assignment = Self::default();
        let startup = async {
            if let Some(node) = store.node_id().await {
                let key = format!("{NODES}{node}");
                if store.get(&key, now).await?.is_none() {
                    store.write(vec![LedgerWrite::put(key, "", Expect::Any)], now).await?;
                }
            }
            assignment.advance(store, fhir_base, now, FIRST_PAGES).await
        };
        match startup.await {
            // A server starts on a full disk or with a damaged table, to be read. The pass continues when the
            // disk has space or the table is restored; until then limited clients are refused.
            Err(
                error @ (StoreError::ReadOnly { .. } | StoreError::Clock { .. } | StoreError::Corrupt { .. }),
            ) => {
                tracing::warn!(%error, "stored resources cannot be assigned to Patients now");
            }
            startup => startup?,
        }
        Ok(assignment)
    }

    /// Continues the assignment, unless nothing remains to be done.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the store cannot be read or written.
    pub async fn proceed(&self, store: &Store, fhir_base: &str, now: Timestamp) -> Result<(), StoreError> {
        match self.is_final.load(Ordering::Acquire) {
            true => Ok(()),
            false => self.advance(store, fhir_base, now, PAGES).await,
        }
    }

    /// Assigns up to `pages` pages, or repeats the pass after the last node of an earlier program has ended.
    async fn advance(
        &self,
        store: &Store,
        fhir_base: &str,
        now: Timestamp,
        pages: usize,
    ) -> Result<(), StoreError> {
        let assignment = read_record(store).await?;
        if let Some(record) = assignment.filter(|record| record.is_complete()) {
            self.is_complete.store(true, Ordering::Release);
            if !record.awaits_earlier_nodes {
                self.is_final.store(true, Ordering::Release);
            } else if !has_earlier_nodes(store, now).await? {
                AssignmentPass::begin(store, fhir_base, false).await?.repeat(now).await?;
                tracing::info!(
                    "the resources that nodes of an earlier version wrote are assigned to Patients"
                );
            }
            return Ok(());
        }
        let has_earlier_nodes = has_earlier_nodes(store, now).await?;
        let mut pass = AssignmentPass::begin(store, fhir_base, has_earlier_nodes).await?;
        for _ in 0..pages {
            match pass.step(now).await? {
                AssignmentStep::Running => {}
                AssignmentStep::Overtaken => return Ok(()),
                AssignmentStep::Complete => {
                    self.is_complete.store(true, Ordering::Release);
                    self.is_final.store(!has_earlier_nodes, Ordering::Release);
                    return Ok(());
                }
            }
        }
        tracing::info!(examined = pass.record().examined, "stored resources are being assigned to Patients");
        Ok(())
    }
}

/// Whether a node runs that does not write by the current rules.
async fn has_earlier_nodes(store: &Store, now: Timestamp) -> Result<bool, StoreError> {
    let running = store.nodes().await?.into_iter().filter(|node| node.is_running);
    let records = store.scan(NODES, None, 1_000, now).await?;
    let current: HashSet<&str> = records.iter().filter_map(|(key, _)| key.strip_prefix(NODES)).collect();
    Ok(running.into_iter().any(|node| !current.contains(&*node.id)))
}
