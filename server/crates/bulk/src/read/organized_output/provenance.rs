//! Provenance in the block of a Patient, found from the resources of the compartment.

use std::collections::VecDeque;

use bytes::Bytes;
use store::{ResourceKey, ScanOptions, StoreError, Version, Versions as _};

use super::block_source::BlockSource;
use crate::plan::membership::PatientScope;
use crate::read::read_ahead::PAGE;
use crate::read::selection::Selection;

/// Finds the Provenance of the resources in the compartment of a Patient, each once.
pub(super) struct ProvenanceLookup<'a> {
    source: BlockSource<'a>,
    chosen: Selection<'a>,
    compartment: String,
    /// Resource types that occur in the compartment.
    kinds: Vec<String>,
    completed_kinds: usize,
    /// Where the next page of targets begins.
    last_target: Option<String>,
    /// Resources of one type in the compartment, as `Type/id`. The first is being looked up.
    targets: VecDeque<String>,
    /// Where the next page of the Provenance of the first target begins.
    last_provenance: Option<String>,
}

impl<'a> ProvenanceLookup<'a> {
    /// `patient` is the key of the Patient, and `scope` contains only this Patient.
    pub async fn of(
        source: BlockSource<'a>,
        patient: &ResourceKey,
        scope: &'a PatientScope,
    ) -> Result<Self, StoreError> {
        let mut kinds = source.store.kinds(source.job.seq()).await?;
        kinds.retain(|kind| kind != "Provenance" && source.job.has_compartments_of(kind));
        Ok(Self {
            source,
            chosen: source.resources_of("Provenance").within(scope),
            compartment: patient.to_string(),
            kinds,
            completed_kinds: 0,
            last_target: None,
            targets: VecDeque::new(),
            last_provenance: None,
        })
    }

    /// The next Provenance, or `None` at the end. A page may be empty.
    pub async fn next(&mut self) -> Result<Option<Vec<Bytes>>, StoreError> {
        let BlockSource { store, job, .. } = self.source;
        if let Some(target) = self.targets.front().cloned() {
            let scan = ScanOptions::at(job.seq()).limit(PAGE).after(self.last_provenance.as_deref());
            let page = store.scan_compartment(&target, "Provenance", scan).await?;
            self.last_provenance = page.next;
            if self.last_provenance.is_none() {
                self.targets.pop_front();
            }
            let mut bodies = Vec::new();
            for version in page.versions {
                if self.is_first(&version, &target).await? {
                    bodies.extend(self.chosen.chosen(version).await?);
                }
            }
            return Ok(Some(bodies));
        }
        let Some(kind) = self.kinds.get(self.completed_kinds) else { return Ok(None) };
        let scan = ScanOptions::at(job.seq()).limit(PAGE).after(self.last_target.as_deref());
        let page = store.scan_compartment(&self.compartment, kind, scan).await?;
        self.last_target = page.next;
        if self.last_target.is_none() {
            self.completed_kinds += 1;
        }
        self.targets.extend(page.versions.iter().filter(|v| !v.is_deleted()).map(|v| v.key.to_string()));
        Ok(Some(Vec::new()))
    }

    /// `true` if `target` is the first target of a Provenance that is in the compartment.
    async fn is_first(&self, provenance: &Version, target: &str) -> Result<bool, StoreError> {
        let BlockSource { store, job, .. } = self.source;
        for before in provenance.compartments.iter().take_while(|before| *before != target) {
            let Some((kind, id)) = before.split_once('/') else { continue };
            let is_in_compartment = *before == self.compartment
                || store.read(&ResourceKey::new(kind, id), job.seq()).await?.is_some_and(|resource| {
                    !resource.is_deleted() && resource.compartments.contains(&self.compartment)
                });
            if is_in_compartment {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
