//! Whether a visible resource refers to one that has no Patient, such as the monitor of a ward. The search
//! index has the resources that refer to it ([`crate::search::index::referrers`]).

use std::collections::HashSet;

use store::{IndexEntry, IndexLookup, ResourceKey, Seq, Version, Versions as _, cpu_budget};

use crate::search::index::referrers::{self, ReferrerTerm};
use crate::view::restriction::{Restriction, Visibility};
use crate::{ResourceError, Resources};

/// Maximum number of resources that are read for one question. A resource to which more refer that are not
/// visible is treated as not visible.
const MAX_READ: usize = 1_000;
/// Number of entries of the index in one read.
const PAGE: usize = 64;

/// A search for a visible resource that refers to another one.
pub(crate) struct ReferrerSearch<'a> {
    resources: &'a Resources,
    restriction: &'a Restriction,
    /// Number of resources that may still be read.
    left: usize,
    /// Resources whose referrers were searched. Resources without a Patient may refer to each other.
    visited: HashSet<ResourceKey>,
}

impl<'a> ReferrerSearch<'a> {
    pub fn new(resources: &'a Resources, restriction: &'a Restriction) -> Self {
        Self { resources, restriction, left: MAX_READ, visited: HashSet::new() }
    }

    /// Returns whether a visible resource refers to this one.
    pub async fn is_referred_to(&mut self, key: &ResourceKey) -> Result<bool, ResourceError> {
        let mut targets = vec![key.clone()];
        while let Some(target) = targets.pop() {
            if !self.visited.insert(target.clone()) {
                continue;
            }
            if self.has_patient_referrer(&target).await? {
                return Ok(true);
            }
            if self.has_other_referrer(&target, &mut targets).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Searches the referrers of the caller's Patients. The entries and the Patients are both sorted by
    /// hash, so that each step skips what the other sequence lacks.
    async fn has_patient_referrer(&mut self, target: &ResourceKey) -> Result<bool, ResourceError> {
        let Restriction::Patients { patients, .. } = self.restriction else { return Ok(false) };
        let hashes = patients.hashes();
        let (mut next, mut after) = (0, None::<IndexEntry>);
        while let Some(patient) = hashes.get(next) {
            let range = referrers::range(&target.kind, &target.id, Some(*patient));
            let lookup = IndexLookup::first(range, PAGE).after(after.take());
            let entries = self.entries(lookup).await?;
            for entry in &entries {
                let Some(ReferrerTerm { patient: Some(patient), kind }) = referrers::read(&entry.term) else {
                    continue;
                };
                next += hashes[next..].partition_point(|own| *own < patient);
                if hashes.get(next) == Some(&patient) && self.refers(kind, &entry.id, target).await?.is_some()
                {
                    return Ok(true);
                }
            }
            let Some(last) = entries.last().filter(|_| entries.len() == PAGE && self.left > 0) else {
                return Ok(false);
            };
            let patient = referrers::read(&last.term).and_then(|term| term.patient).unwrap_or_default();
            next = hashes.partition_point(|own| *own < patient);
            // Other resources of the same Patient may follow.
            after = (hashes.get(next) == Some(&patient)).then(|| last.clone());
        }
        Ok(false)
    }

    /// Searches the referrers whose Patients are not in the index. Those without a Patient are added to
    /// `targets`, because a resource may refer to them.
    async fn has_other_referrer(
        &mut self,
        target: &ResourceKey,
        targets: &mut Vec<ResourceKey>,
    ) -> Result<bool, ResourceError> {
        let mut after = None;
        loop {
            let range = referrers::range_without_patient(&target.kind, &target.id);
            let entries = self.entries(IndexLookup::first(range, PAGE).after(after)).await?;
            for entry in &entries {
                let Some(ReferrerTerm { kind, .. }) = referrers::read(&entry.term) else { continue };
                match self.refers(kind, &entry.id, target).await? {
                    Some(Visibility::ByReference) => targets.push(ResourceKey::new(kind, &*entry.id)),
                    Some(_) => return Ok(true),
                    None => {}
                }
            }
            after = entries.last().filter(|_| entries.len() == PAGE && self.left > 0).cloned();
            if after.is_none() {
                return Ok(false);
            }
        }
    }

    /// The visibility of a resource, if it is not hidden and refers to the target now. The index also has the
    /// references of earlier versions.
    async fn refers(
        &mut self,
        kind: &'static str,
        id: &str,
        target: &ResourceKey,
    ) -> Result<Option<Visibility>, ResourceError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let key = ResourceKey::new(kind, id);
        let version = self.resources.store().read(&key, Seq::LATEST).await?;
        let Some(version) = version.filter(|version| self.has_reference(version, target)) else {
            return Ok(None);
        };
        let visibility = self.restriction.visibility(&version);
        Ok(Some(visibility).filter(|visibility| *visibility != Visibility::Hidden))
    }

    fn has_reference(&self, version: &Version, target: &ResourceKey) -> bool {
        let Some(body) = &version.body else { return false };
        let targets = referrers::local_targets(body, self.resources.fhir_base());
        targets.iter().any(|(kind, id)| *kind == target.kind && *id == target.id)
    }

    async fn entries(&self, lookup: IndexLookup) -> Result<Vec<IndexEntry>, ResourceError> {
        cpu_budget::check()?;
        Ok(self.resources.store().index_entries(vec![lookup]).await?.pop().unwrap_or_default())
    }
}

impl Resources {
    /// Returns whether any resource refers to this one now.
    ///
    /// # Errors
    /// Returns [`ResourceError::Store`] if the read fails.
    pub(crate) async fn has_referrer(&self, key: &ResourceKey) -> Result<bool, ResourceError> {
        let mut after = None;
        loop {
            let range = referrers::range(&key.kind, &key.id, None);
            let lookup = IndexLookup::first(range, PAGE).after(after);
            let entries = self.store().index_entries(vec![lookup]).await?.pop().unwrap_or_default();
            for entry in &entries {
                let Some(ReferrerTerm { kind, .. }) = referrers::read(&entry.term) else { continue };
                let version = self.store().read(&ResourceKey::new(kind, &*entry.id), Seq::LATEST).await?;
                let body = version.and_then(|version| version.body);
                let targets = body.map(|body| referrers::local_targets(&body, self.fhir_base()));
                let is_target = |(kind, id): &(&'static str, String)| *kind == key.kind && *id == key.id;
                if targets.is_some_and(|targets| targets.iter().any(is_target)) {
                    return Ok(true);
                }
            }
            after = entries.last().filter(|_| entries.len() == PAGE).cloned();
            if after.is_none() {
                return Ok(false);
            }
        }
    }
}
