//! Resources that left an export since `_since`, and those that entered it without being changed. A copy that
//! a client keeps by increments would otherwise keep the former, and lack the latter.
//!
//! The export at `_since` and the one at the snapshot are compared resource by resource, for those that can
//! differ: resources that were changed since, those of Patients who have left or joined the Group or who were
//! deleted or created, and the Provenance of all these.

use std::collections::{BTreeMap, BTreeSet};

use resources::assignment::patients_of;
use resources::filter::TypeFilter;
use store::{ResourceKey, ScanOptions, Seq, Store, StoreError, Version, Versions as _};

use crate::group::{GroupError, GroupMembers};
use crate::job::Job;
use crate::plan::latest_provenance::latest_provenance;
use crate::plan::supporting::{ReferenceSet, SupportingSets};
use crate::request::parameters::ProvenanceScope;

/// Number of changes in one read.
const PAGE: usize = 5_000;
/// Maximum number of resources that left or entered an export.
const MAX_CHANGED: usize = 1_000_000;
const PROVENANCE: &str = "Provenance";

type IdsByType = BTreeMap<String, BTreeSet<String>>;

/// The resources that left and entered an export.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ScopeChanges {
    /// Resources that were exported at `_since`, are not exported at the snapshot, and are listed under
    /// `deleted`. Some of them may be deleted.
    pub listed: IdsByType,
    /// Resources that left the export and are named in an OperationOutcome instead.
    pub named: IdsByType,
    /// Resources that were not exported at `_since`, are at the snapshot, and were not changed between.
    pub entered: IdsByType,
}

impl ScopeChanges {
    /// The ids of a type that left the export and are listed under `deleted`, sorted.
    pub fn listed(&self, kind: &str) -> Vec<&str> {
        self.listed.get(kind).into_iter().flatten().map(String::as_str).collect()
    }

    /// Checks that the lists fit into the memory.
    fn check_size(&self) -> Result<(), GroupError> {
        let lists = [&self.listed, &self.named, &self.entered];
        let count: usize = lists.into_iter().flat_map(BTreeMap::values).map(BTreeSet::len).sum();
        if count <= MAX_CHANGED {
            return Ok(());
        }
        Err(GroupError::Bad(format!(
            "more than {MAX_CHANGED} resources have left or entered this export since _since without being changed; export all without _since"
        )))
    }

    /// `true` if the resource has left the export and is listed under `deleted`.
    pub fn lists(&self, key: &ResourceKey) -> bool {
        self.listed.get(&key.kind).is_some_and(|ids| ids.contains(&key.id))
    }

    /// `true` if the resource has entered the export.
    pub fn has_entered(&self, key: &ResourceKey) -> bool {
        self.entered.get(&key.kind).is_some_and(|ids| ids.contains(&key.id))
    }
}

/// The Patients whose resources were exported at a time.
pub(crate) enum ScopeAt<'a> {
    All,
    /// The resources of all Patients that exist.
    Patients,
    Members(&'a GroupMembers),
}

/// An export at one time.
pub(crate) struct ScopeSide<'a> {
    pub patients: ScopeAt<'a>,
    /// Sequence number of the last write at this time.
    pub seq: Seq,
    /// The references to supporting resources, if the export has some.
    pub supporting: Option<&'a ReferenceSet>,
}

/// The export at `_since` and at the snapshot.
pub(crate) struct ScopeComparison<'a> {
    pub store: &'a Store,
    pub job: &'a Job,
    pub filters: &'a [TypeFilter],
    pub before: ScopeSide<'a>,
    pub now: ScopeSide<'a>,
    /// `true` if all resources that left are listed under `deleted`. Otherwise only deleted ones are.
    pub lists: bool,
    /// Patients who have joined the Group. Their resources are exported however old they are, and so is the
    /// Provenance of these.
    pub joiners: &'a GroupMembers,
    /// Patients whose resources need not be named one by one, because the Patients are.
    pub named: &'a GroupMembers,
}

impl ScopeComparison<'_> {
    /// Compares the exports. `leavers` are the Patients whose resources may have left although they were not
    /// changed.
    pub async fn run(
        &self,
        leavers: &GroupMembers,
        supporting: Option<&SupportingSets>,
    ) -> Result<ScopeChanges, GroupError> {
        let mut scope_changes = ScopeChanges::default();
        let kinds = self.store.kinds(self.job.seq()).await?;
        let compartment_kinds: Vec<_> =
            kinds.iter().filter(|kind| self.job.has_compartments_of(kind)).collect();
        for patient in leavers.iter() {
            self.compare_compartment(&format!("Patient/{patient}"), &compartment_kinds, &mut scope_changes)
                .await?;
            scope_changes.check_size()?;
        }
        if self.exports(PROVENANCE) {
            for patient in self.joiners.iter() {
                // Also of types that are not exported.
                for key in self.keys_in(&format!("Patient/{patient}"), &compartment_kinds).await? {
                    self.compare_provenance(&key.to_string(), &mut scope_changes).await?;
                }
                scope_changes.check_size()?;
            }
        }
        for (kind, id) in supporting.into_iter().flat_map(SupportingSets::differences) {
            self.compare_alone(&ResourceKey::new(kind, id), &mut scope_changes).await?;
        }
        scope_changes.check_size()?;
        let mut after = self.before.seq;
        loop {
            let changes = self.store.changes(after, PAGE).await?;
            let Some(last) = changes.last() else { break };
            after = last.seq;
            for change in changes {
                if change.seq > self.job.seq() {
                    break;
                }
                let now = self.store.read(&change.key, self.job.seq()).await?;
                // Of several changes of a resource, only the last one counts.
                if now.as_ref().is_none_or(|now| now.seq != change.seq) {
                    continue;
                }
                let exists = now.is_some_and(|now| !now.is_deleted());
                self.compare(&change.key, &mut scope_changes).await?;
                if change.key.kind == "Patient"
                    && matches!(self.now.patients, ScopeAt::Patients)
                    && exists != self.existed(&change.key).await?
                {
                    let compartment = change.key.to_string();
                    self.compare_compartment(&compartment, &compartment_kinds, &mut scope_changes).await?;
                }
            }
            scope_changes.check_size()?;
            if after >= self.job.seq() {
                break;
            }
        }
        Ok(scope_changes)
    }

    /// `true` if a resource existed at `_since`.
    async fn existed(&self, key: &ResourceKey) -> Result<bool, StoreError> {
        let before = self.store.read(key, self.before.seq).await?;
        Ok(before.is_some_and(|before| !before.is_deleted()))
    }

    /// Compares the resources in a compartment, at both times.
    async fn compare_compartment(
        &self,
        compartment: &str,
        kinds: &[&String],
        scope_changes: &mut ScopeChanges,
    ) -> Result<(), StoreError> {
        for key in self.keys_in(compartment, kinds).await? {
            self.compare(&key, scope_changes).await?;
        }
        Ok(())
    }

    /// The resources of some types that are in a compartment at one of the times.
    async fn keys_in(
        &self,
        compartment: &str,
        kinds: &[&String],
    ) -> Result<BTreeSet<ResourceKey>, StoreError> {
        let mut keys = BTreeSet::new();
        for kind in kinds {
            keys.extend(self.ids_in(compartment, kind).await?);
        }
        Ok(keys)
    }

    /// The resources of a type that are in a compartment at one of the times.
    async fn ids_in(&self, compartment: &str, kind: &str) -> Result<BTreeSet<ResourceKey>, StoreError> {
        let mut keys = BTreeSet::new();
        for seq in [self.before.seq, self.now.seq] {
            let mut after: Option<String> = None;
            loop {
                let scan = ScanOptions::at(seq).after(after.as_deref());
                let page = self.store.scan_compartment(compartment, kind, scan).await?;
                keys.extend(page.versions.into_iter().map(|version| version.key));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(keys)
    }

    /// Compares a resource, and the Provenance that has it as a target. If only the latest Provenance of a
    /// resource is exported, another one can change which one that is.
    async fn compare(&self, key: &ResourceKey, scope_changes: &mut ScopeChanges) -> Result<(), StoreError> {
        self.compare_alone(key, scope_changes).await?;
        if key.kind != PROVENANCE && self.exports(PROVENANCE) {
            self.compare_provenance(&key.to_string(), scope_changes).await?;
        }
        if key.kind == PROVENANCE && self.job.parameters.provenance == Some(ProvenanceScope::Latest) {
            let mut targets = BTreeSet::new();
            for seq in [self.before.seq, self.now.seq] {
                let version = self.store.read(key, seq).await?;
                targets.extend(version.into_iter().flat_map(|version| version.compartments));
            }
            for target in targets {
                self.compare_provenance(&target, scope_changes).await?;
            }
        }
        Ok(())
    }

    /// Compares the Provenance of a target, such as `Observation/o`.
    async fn compare_provenance(
        &self,
        target: &str,
        scope_changes: &mut ScopeChanges,
    ) -> Result<(), StoreError> {
        for provenance in self.ids_in(target, PROVENANCE).await? {
            self.compare_alone(&provenance, scope_changes).await?;
        }
        Ok(())
    }

    async fn compare_alone(
        &self,
        key: &ResourceKey,
        scope_changes: &mut ScopeChanges,
    ) -> Result<(), StoreError> {
        if !self.exports(&key.kind) {
            return Ok(());
        }
        let before = self.store.read(key, self.before.seq).await?;
        let now = self.store.read(key, self.now.seq).await?;
        let is_unchanged = now.as_ref().is_some_and(|now| now.seq <= self.before.seq);
        let was_exported = match &before {
            Some(version) => self.has(&self.before, version).await?,
            None => false,
        };
        let is_exported = match &now {
            Some(version) => self.has(&self.now, version).await?,
            None => false,
        };
        let is_named = |compartment: &String| {
            compartment.strip_prefix("Patient/").is_some_and(|id| self.named.position(id).is_some())
        };
        if before.is_some_and(|before| before.compartments.iter().any(is_named)) {
            return Ok(());
        }
        let is_deleted = now.as_ref().is_none_or(Version::is_deleted);
        // Tombstones of exported Patients are listed in any case.
        if !self.lists
            && let Some(now) = now.filter(Version::is_deleted)
            && self.keeps_tombstone(&now)
        {
            return Ok(());
        }
        let lists = self.lists || is_deleted && self.depends_on_others(&key.kind);
        let list = match (was_exported, is_exported) {
            (true, false) if lists => &mut scope_changes.listed,
            (true, false) => &mut scope_changes.named,
            (false, true) if is_unchanged => &mut scope_changes.entered,
            _ => return Ok(()),
        };
        list.entry(key.kind.clone()).or_default().insert(key.id.clone());
        Ok(())
    }

    /// `true` if a tombstone is listed under `deleted` without regard to this comparison.
    fn keeps_tombstone(&self, tombstone: &Version) -> bool {
        if self.depends_on_others(&tombstone.key.kind) {
            return false;
        }
        let mut patients = tombstone.compartments.iter().filter_map(|own| own.strip_prefix("Patient/"));
        match &self.now.patients {
            ScopeAt::All => true,
            ScopeAt::Patients => patients.next().is_some(),
            ScopeAt::Members(members) => patients.any(|id| members.position(id).is_some()),
        }
    }

    fn exports(&self, kind: &str) -> bool {
        self.job.kinds.iter().any(|exported| exported == kind)
    }

    /// `true` for types whose resources are exported because of other exported resources.
    fn depends_on_others(&self, kind: &str) -> bool {
        let is_associated = kind == PROVENANCE && self.job.parameters.provenance.is_some();
        is_associated || self.job.role(kind).is_supporting()
    }

    /// `true` if the export at a time contains this version.
    async fn has(&self, side: &ScopeSide<'_>, version: &Version) -> Result<bool, StoreError> {
        if version.key.kind == PROVENANCE
            && let Some(which) = self.job.parameters.provenance
        {
            return self.has_provenance(side, version, which).await;
        }
        Ok(self.has_supporting(side, version) || self.selects(side, version).await?)
    }

    /// `true` if exported resources refer to this version, and it is not that of another Patient.
    fn has_supporting(&self, side: &ScopeSide<'_>, version: &Version) -> bool {
        let Version { key, compartments, body, .. } = version;
        let is_shared = self.job.joined_since.is_none() || patients_of(compartments).next().is_none();
        is_shared
            && self.job.role(&key.kind).is_supporting()
            && side.supporting.is_some_and(|references| references.has(&key.kind, &key.id))
            && body.as_ref().is_some_and(|body| is_met(self.filters, &key.kind, body))
    }

    /// `true` if the Provenance belongs to a resource that the request selects.
    async fn has_provenance(
        &self,
        side: &ScopeSide<'_>,
        version: &Version,
        which: ProvenanceScope,
    ) -> Result<bool, StoreError> {
        let Some(body) = &version.body else { return Ok(false) };
        if !is_met(self.filters, PROVENANCE, body) {
            return Ok(false);
        }
        for name in &version.compartments {
            let Some((kind, id)) = name.split_once('/').filter(|(kind, _)| *kind != PROVENANCE) else {
                continue;
            };
            if !self.exports(kind) {
                continue;
            }
            let target = self.store.read(&ResourceKey::new(kind, id), side.seq).await?;
            let Some(target) = target else { continue };
            if self.selects(side, &target).await?
                && (which == ProvenanceScope::Relevant
                    || latest_provenance(self.store, name, side.seq).await?.as_ref() == Some(&version.key.id))
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// `true` if the request selects this version itself, at a time.
    async fn selects(&self, side: &ScopeSide<'_>, version: &Version) -> Result<bool, StoreError> {
        let Some(body) = &version.body else { return Ok(false) };
        let (scope, seq) = (&side.patients, side.seq);
        if !self.job.role(&version.key.kind).is_main() || !is_met(self.filters, &version.key.kind, body) {
            return Ok(false);
        }
        if matches!(scope, ScopeAt::All) {
            return Ok(true);
        }
        if !self.job.has_compartments_of(&version.key.kind) {
            return Ok(false);
        }
        for compartment in version.compartments.iter().filter(|name| !name.starts_with('@')) {
            let is_inside = match compartment.split_once('/') {
                Some(("Patient", id)) => self.has_patient(scope, id, seq).await?,
                Some((kind, id)) => match self.store.read(&ResourceKey::new(kind, id), seq).await? {
                    Some(target) if !target.is_deleted() => self.has_a_patient(scope, &target, seq).await?,
                    _ => false,
                },
                None => false,
            };
            if is_inside {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn has_a_patient(
        &self,
        scope: &ScopeAt<'_>,
        target: &Version,
        seq: Seq,
    ) -> Result<bool, StoreError> {
        if !self.job.has_compartments_of(&target.key.kind) {
            return Ok(false);
        }
        for compartment in &target.compartments {
            if let Some(id) = compartment.strip_prefix("Patient/")
                && self.has_patient(scope, id, seq).await?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn has_patient(&self, scope: &ScopeAt<'_>, id: &str, seq: Seq) -> Result<bool, StoreError> {
        match scope {
            ScopeAt::All => Ok(true),
            ScopeAt::Members(members) => Ok(members.position(id).is_some()),
            ScopeAt::Patients => {
                let patient = self.store.read(&ResourceKey::new("Patient", id), seq).await?;
                Ok(patient.is_some_and(|patient| !patient.is_deleted()))
            }
        }
    }
}

/// `true` if a resource matches a search for its type, or there is no such search.
pub(crate) fn is_met(filters: &[TypeFilter], kind: &str, resource: &[u8]) -> bool {
    let mut filters = filters.iter().filter(|filter| filter.kind == kind).peekable();
    filters.peek().is_none() || filters.any(|filter| filter.is_met(resource))
}
