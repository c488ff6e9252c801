//! Provenance in the block of a Patient, found from the resources of the compartment.

use std::collections::VecDeque;

use bytes::Bytes;
use store::{ResourceKey, ScanOptions, StoreError, Version, Versions as _};

use crate::read::read_ahead::PAGE;
use super::{BlockSource, OutputBlock};
use crate::read::selection::Selection;
use crate::request::kick_off::in_compartments;

/// Finds the Provenance of the resources in the compartment of a Patient, each once.
pub(super) struct ProvenanceLookup<'a> {
    block: &'a OutputBlock<'a>,
    chosen: Selection<'a>,
    compartment: String,
    /// Resource types that occur in the compartment.
    kinds: Vec<String>,
    kind: usize,
    after: Option<String>,
    /// Ids of resources of one type in the compartment. The first is being looked up.
    targets: VecDeque<String>,
    behind: Option<String>,
}

impl<'a> ProvenanceLookup<'a> {
    pub async fn of(block: &'a OutputBlock<'a>) -> Result<Self, StoreError> {
        let source = block.round.source;
        let mut kinds = source.store.kinds(source.job.seq()).await?;
        kinds.retain(|kind| kind != "Provenance" && in_compartments(kind));
        Ok(Self {
            block,
            chosen: source.of_kind("Provenance").within(&block.patients),
            compartment: block.key.to_string(),
            kinds,
            kind: 0,
            after: None,
            targets: VecDeque::new(),
            behind: None,
        })
    }

    pub async fn next(&mut self) -> Result<Option<Vec<Bytes>>, StoreError> {
        let BlockSource { store, job, .. } = self.block.round.source;
        if let Some(target) = self.targets.front().cloned() {
            let scan = ScanOptions::at(job.seq()).limit(PAGE).after(self.behind.as_deref());
            let page = store.scan_compartment(&target, "Provenance", scan).await?;
            self.behind = page.next;
            if self.behind.is_none() {
                self.targets.pop_front();
            }
            let mut found = Vec::new();
            for version in page.versions {
                if self.is_first(&version, &target).await? {
                    found.extend(self.chosen.chosen(version).await?);
                }
            }
            return Ok(Some(found));
        }
        let Some(kind) = self.kinds.get(self.kind) else { return Ok(None) };
        let scan = ScanOptions::at(job.seq()).limit(PAGE).after(self.after.as_deref());
        let page = store.scan_compartment(&self.compartment, kind, scan).await?;
        self.after = page.next;
        if self.after.is_none() {
            self.kind += 1;
        }
        self.targets.extend(page.versions.iter().filter(|v| !v.is_deleted()).map(|v| v.key.to_string()));
        Ok(Some(Vec::new()))
    }

    /// Returns `true` if `target` is the first target of a Provenance that is in the compartment.
    async fn is_first(&self, provenance: &Version, target: &str) -> Result<bool, StoreError> {
        let BlockSource { store, job, .. } = self.block.round.source;
        for before in provenance.compartments.iter().take_while(|before| *before != target) {
            let Some((kind, id)) = before.split_once('/') else { continue };
            let lies_there = *before == self.compartment
                || store.read(&ResourceKey::new(kind, id), job.seq()).await?.is_some_and(|found| {
                    !found.is_deleted() && found.compartments.contains(&self.compartment)
                });
            if lies_there {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
