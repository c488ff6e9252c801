//! Keeps the terminology up to date with the store: reads all stored code systems and value sets at the
//! start, and the changes since then before a request is answered.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use bytes::Bytes;
use jiff::Timestamp;
use store::blocking::run_blocking;
use store::{ScanOptions, Seq, Store, StoreError, Versions as _};
use terminology::{CodeSystemIndex, Terminology, TerminologyChange};
use tokio::sync::Mutex;

use crate::node::saved_indexes::{MIN_SAVED_BYTES, SavedIndexes};
use crate::node::shared_releases::SharedReleases;

/// The resource types that the terminology is built from.
const TERMINOLOGY_TYPES: [&str; 4] = ["CodeSystem", "ValueSet", "ConceptMap", "StructureDefinition"];

/// Applies the resources of a store to the terminology.
pub struct TerminologySync {
    store: Store,
    terminology: Terminology,
    /// `None` if the store is in memory, so that no index is saved.
    indexes: Option<SavedIndexes>,
    /// The releases that other nodes share; `None` if there are no other nodes, or no bucket for the indexes.
    shared: Option<SharedReleases>,
    sharing: Mutex<()>,
    /// Sequence number up to which the changes of the store are applied.
    applied: AtomicU64,
    applying: Mutex<()>,
}

/// A version of a stored resource; without a body if it is deleted.
struct ResourceVersion {
    kind: &'static str,
    id: String,
    seq: Seq,
    body: Option<Bytes>,
}

impl TerminologySync {
    /// Applies all imported releases and all stored resources.
    ///
    /// # Errors
    /// An error if the store or the folder of the saved indexes cannot be read.
    pub async fn open(
        store: Store,
        terminology: Terminology,
        indexes: Option<SavedIndexes>,
        shared: Option<SharedReleases>,
        now: Timestamp,
    ) -> Result<Self> {
        let (applied, applying, sharing) = (AtomicU64::new(0), Mutex::new(()), Mutex::new(()));
        let sync = Self { store, terminology, indexes, shared, sharing, applied, applying };
        if let Err(error) = sync.synchronize_releases(now).await {
            tracing::error!("releases of other nodes are not available yet: {error:#}");
        }
        sync.apply_all().await?;
        Ok(sync)
    }

    async fn apply_all(&self) -> Result<()> {
        if let Some(indexes) = self.indexes.clone() {
            let releases = run_blocking(move || indexes.releases()).await??;
            self.terminology.apply(releases);
        }
        let seq = self.store.last_seq().await?;
        for kind in TERMINOLOGY_TYPES {
            let mut after: Option<String> = None;
            loop {
                let page = self.store.scan_kind(kind, ScanOptions::at(seq).after(after.as_deref())).await?;
                let versions = page.versions.into_iter().map(|version| ResourceVersion {
                    kind,
                    id: version.key.id,
                    seq: version.seq,
                    body: version.body,
                });
                self.apply_resources(versions.collect(), false);
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        self.applied.store(seq.0, Ordering::Release);
        Ok(())
    }

    /// `true` if other nodes share their releases.
    pub fn shares_releases(&self) -> bool {
        self.shared.is_some()
    }

    /// Makes the releases of this node available on other nodes, and those of other nodes on this one.
    ///
    /// # Errors
    /// See [`SharedReleases::synchronize`].
    pub async fn synchronize_releases(&self, now: Timestamp) -> Result<()> {
        let Some(shared) = &self.shared else { return Ok(()) };
        let _turn = self.sharing.lock().await;
        shared.synchronize(now, |change| self.terminology.apply(vec![change])).await
    }

    /// The saved indexes, if the server has a data folder.
    pub fn indexes(&self) -> Option<&SavedIndexes> {
        self.indexes.as_ref()
    }

    /// Removes a release from this node, and from the others.
    ///
    /// # Errors
    /// An error of the ledger or of the data folder.
    pub async fn remove_release(&self, id: &str, now: Timestamp) -> Result<()> {
        let _turn = self.sharing.lock().await;
        // The record first: the other nodes follow it, and this one does so if it stops here.
        if let Some(shared) = &self.shared {
            shared.withdraw(id, now).await?;
        }
        if let Some(indexes) = self.indexes.clone() {
            let id = id.to_owned();
            run_blocking(move || indexes.remove_release(&id)).await??;
        }
        self.terminology.apply([TerminologyChange::release_removed(id)]);
        Ok(())
    }

    /// Repairs the releases in the bucket.
    ///
    /// # Errors
    /// See [`SharedReleases::repair`].
    pub async fn repair_releases(&self, now: Timestamp) -> Result<()> {
        let Some(shared) = &self.shared else { return Ok(()) };
        let _turn = self.sharing.lock().await;
        shared.repair(now).await
    }

    /// Applies the changes that were written since the last call, so that an answer after a write takes it
    /// into account.
    ///
    /// # Errors
    /// [`StoreError`] if the changes cannot be read.
    pub async fn apply_changes(&self) -> Result<(), StoreError> {
        // Boxed, because few requests need the memory of this future.
        if self.is_behind() { Box::pin(self.catch_up()).await } else { Ok(()) }
    }

    fn is_behind(&self) -> bool {
        Seq(self.applied.load(Ordering::Acquire)) < self.store.heard_seq()
    }

    async fn catch_up(&self) -> Result<(), StoreError> {
        const PAGE: usize = 1_000;
        let _turn = self.applying.lock().await;
        while self.is_behind() {
            let heard = self.store.heard_seq();
            let applied = Seq(self.applied.load(Ordering::Acquire));
            let changes = self.store.changes_of(&TERMINOLOGY_TYPES, applied, PAGE).await?;
            let last = match changes.last() {
                Some(change) if changes.len() == PAGE => change.seq,
                // All changes up to the number before the read were read.
                Some(change) => change.seq.max(heard),
                None => heard,
            };
            let mut versions = Vec::new();
            for change in changes {
                let kind = TERMINOLOGY_TYPES.into_iter().find(|kind| *kind == change.key.kind);
                let Some(kind) = kind else { continue };
                // The newest version counts, which may be a later one.
                let newest = self.store.read(&change.key, Seq::LATEST).await?;
                let (seq, body) = newest.map_or((change.seq, None), |version| (version.seq, version.body));
                versions.push(ResourceVersion { kind, id: change.key.id, seq, body });
            }
            self.apply_resources(versions, true);
            self.applied.store(last.0, Ordering::Release);
        }
        Ok(())
    }

    /// Applies resources to the terminology. For a large code system the saved index is used; if there is
    /// none, the index is built and saved in the background. The saved index of a deleted one is removed.
    /// Logs a warning for a cyclic hierarchy: of each code system that was just written, and of each one
    /// whose index is built here.
    fn apply_resources(&self, versions: Vec<ResourceVersion>, just_written: bool) {
        let (mut large, mut small, mut deleted) = (Vec::new(), Vec::new(), Vec::new());
        let change = |ResourceVersion { kind, id, seq, body }| {
            let Some(bytes) = body else {
                if kind == "CodeSystem" && self.indexes.is_some() {
                    deleted.push((id.clone(), seq));
                }
                return TerminologyChange::Delete { kind, id };
            };
            // A large code system takes long to index. Its index is saved, and read at the next start.
            if kind == "CodeSystem" && bytes.len() >= MIN_SAVED_BYTES {
                if let Some(index) = self.indexes.as_ref().and_then(|indexes| indexes.of_resource(&id, seq)) {
                    return TerminologyChange::Index { id, index };
                }
                large.push((id.clone(), seq));
            } else if kind == "CodeSystem" && just_written {
                small.push((id.clone(), bytes.clone()));
            }
            TerminologyChange::Put { kind, id, bytes }
        };
        let changes: Vec<TerminologyChange> = versions.into_iter().map(change).collect();
        if changes.is_empty() {
            return;
        }
        self.terminology.apply(changes);
        if large.is_empty() && small.is_empty() && deleted.is_empty() {
            return;
        }
        let (terminology, indexes) = (self.terminology.clone(), self.indexes.clone());
        let warn = |id: &str, cycle: Option<Vec<String>>| {
            if let Some(cycle) = cycle {
                tracing::warn!(id, codes = cycle.join(" > "), "the hierarchy of a CodeSystem has a cycle");
            }
        };
        run_blocking(move || {
            for (id, bytes) in small {
                warn(&id, CodeSystemIndex::cycle_in(&bytes));
            }
            for (id, seq) in large {
                let Some(index) = terminology.index(&id) else { continue };
                warn(&id, index.cycle());
                let saved =
                    indexes.as_ref().map_or(Ok(()), |indexes| indexes.save_resource(&id, seq, &index));
                if let Err(error) = saved {
                    tracing::warn!(%error, id, "failed to save an index; it will be built again at the next start");
                }
            }
            for (id, seq) in deleted {
                let removed = indexes.as_ref().map_or(Ok(()), |indexes| indexes.remove_resource(&id, seq));
                if let Err(error) = removed {
                    tracing::warn!(%error, id, "failed to remove the index of a deleted CodeSystem");
                }
            }
        });
    }
}
