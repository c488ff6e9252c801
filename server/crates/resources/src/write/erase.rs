//! Erasure of a patient's record, or of one deleted resource, with all versions (see [`store::erase`]).
//!
//! A Patient is erased with everything that was ever in its compartment or mentions it, and with the
//! Binaries that this names: they contain the notes and images. Resources that belong to or mention other
//! patients too are kept and reported, and so are definitions. Any other resource must be deleted first, so
//! that clients that follow the changes have learned of its end.

use std::collections::BTreeSet;
use std::time::Duration;

use fhir::patient_references::{WithoutPatient, without_patient};
use jiff::Timestamp;
use store::{
    Erasure, ErasureRecord, Histories, IndexTerm, PageLimit, ResourceKey, Seq, Store, StoreError, Version,
    Versions as _,
};
use tokio::time::Instant;

use crate::body::references;
use crate::write::assignment::{UNASSIGNED, mention_of, patient_of};
use crate::write::stored::replayed;

/// Least and greatest number of resources that are erased at a time.
const FEWEST: usize = 50;
const MOST: usize = 1_000;
/// Time for which all other writes wait for one step: those that take longer are followed by smaller ones.
const STEP: Duration = Duration::from_millis(200);
/// Size of the pages in which the versions are read.
const PAGE: PageLimit = PageLimit { count: 2_000, bytes: 4 << 20 };
/// How often resources are read again because they were written meanwhile.
const ATTEMPTS: usize = 5;
/// Types whose resources the server has in memory and in files of its own. They describe codes, not people.
const UNERASABLE: [&str; 3] = ["CodeSystem", "ConceptMap", "ValueSet"];

/// The result of an erasure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErasureResult {
    /// The record in the ledger.
    pub record: ErasureRecord,
    /// Number of versions that were erased.
    pub versions: u64,
    /// Resources that were kept because a version of them belongs to another patient, too.
    pub shared: Vec<ResourceKey>,
    /// Sequence number after the erasure: exports of snapshots before it may contain what was erased.
    pub seq: Seq,
}

/// Reasons why nothing was erased.
#[derive(Debug, thiserror::Error)]
pub enum ErasureError {
    /// The name is not that of a resource.
    #[error("'{0}' is not the name of a resource; write Patient/ID, or TYPE/ID of a deleted resource")]
    NotAName(String),
    /// The type describes codes.
    #[error("a {0} describes codes, not a person, and is not erased; delete it")]
    Unerasable(&'static str),
    /// The resource exists and is not a Patient.
    #[error("{0} is not deleted; delete it first, so that clients that follow the changes learn of it")]
    NotDeleted(ResourceKey),
    /// There is nothing to erase.
    #[error("{0} has no version in this store that could be erased; check its type and id")]
    Unknown(ResourceKey),
    /// The resources are written again and again.
    #[error("{0} is being written; stop its writers, and erase it again")]
    Busy(ResourceKey),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Erases a Patient with its compartment, or a deleted resource. `progress` receives the number of erased
/// resources. An erasure that was interrupted is completed by another one.
///
/// # Errors
/// Returns [`ErasureError`] with the reason. What was erased before a failure of the store stays erased.
pub async fn erase(
    store: &Store,
    name: &str,
    fhir_base: &str,
    now: Timestamp,
    mut progress: impl FnMut(u64),
) -> Result<ErasureResult, ErasureError> {
    let (kind, id) = references::target(name).ok_or_else(|| ErasureError::NotAName(name.to_owned()))?;
    if let Some(kind) = UNERASABLE.into_iter().find(|&unerasable| unerasable == kind) {
        return Err(ErasureError::Unerasable(kind));
    }
    let root = ResourceKey::new(kind, id);
    let own = root.to_string();
    let is_patient = kind == "Patient";
    let newest = store.read(&root, Seq::LATEST).await?;
    if !is_patient && newest.is_some_and(|version| !version.is_deleted()) {
        return Err(ErasureError::NotDeleted(root));
    }
    let mut erasing = RecordErasure {
        store,
        fhir_base,
        own: is_patient.then(|| own.clone()),
        versions: 0,
        shared: BTreeSet::new(),
        binaries: BTreeSet::new(),
        since: now,
        is_recorded: false,
        now,
        record: ErasureRecord { resource: own, time: now, since: now, resources: 0, seq: Seq::LATEST.0 },
        seq: Seq::ZERO,
        at_once: FEWEST,
    };
    // A resource may be added while others are erased.
    for _ in 0..ATTEMPTS {
        let mut keys = match is_patient {
            true => {
                let own = &erasing.record.resource;
                let mut keys = store.compartment_resources(own).await?;
                keys.extend(store.compartment_resources(&mention_of(own)).await?);
                keys.sort_unstable();
                keys.dedup();
                keys
            }
            false => Vec::new(),
        };
        if keys.is_empty() && store.read(&root, Seq::LATEST).await?.is_some() {
            keys.push(root.clone());
        }
        keys.retain(|key| !erasing.shared.contains(key));
        if keys.is_empty() {
            return erasing.finish(root).await;
        }
        let mut rest = &keys[..];
        while !rest.is_empty() {
            let (next, later) = rest.split_at(erasing.at_once.min(rest.len()));
            erasing.erase(next).await?;
            progress(erasing.record.resources);
            rest = later;
        }
    }
    Err(ErasureError::Busy(root))
}

/// Removes from a copy what an erasure has removed from its source since it was copied. `copied` is the last
/// sequence number that the copy has. Returns the number of resources that were removed.
///
/// The copy must have no other writer.
///
/// # Errors
/// The error of a store.
pub async fn repeat_in_copy(
    source: &Store,
    copy: &Store,
    erased: &ErasureRecord,
    fhir_base: &str,
    copied: Seq,
) -> Result<u64, StoreError> {
    let Some((kind, id)) = references::target(&erased.resource) else { return Ok(0) };
    let mut waiting = vec![ResourceKey::new(kind, id)];
    if kind == "Patient" {
        waiting.extend(copy.compartment_resources(&erased.resource).await?);
        waiting.extend(copy.compartment_resources(&mention_of(&erased.resource)).await?);
    }
    let (mut seen, mut erasures) = (BTreeSet::new(), Vec::new());
    while let Some(key) = waiting.pop() {
        if !seen.insert(key.clone()) {
            continue;
        }
        let versions = source.history(&key, Seq(copied.0.saturating_add(1)), PAGE).await?;
        if !versions.is_empty() {
            continue;
        }
        let (mut terms, mut newest, mut before) = (BTreeSet::new(), None, Seq::LATEST);
        loop {
            let page = copy.history(&key, before, PAGE).await?;
            let Some(last) = page.last() else { break };
            before = last.seq;
            newest = newest.or(Some(page[0].version));
            for version in page {
                waiting.extend(named_binaries(&version, fhir_base));
                terms.extend(replayed(version).into_iter().flat_map(|replayed| replayed.terms));
            }
        }
        let terms = terms.into_iter().collect();
        erasures.extend(newest.map(|newest| Erasure { key, newest, terms }));
    }
    let removed = erasures.len() as u64;
    if removed > 0 {
        copy.remove_replayed(erasures).await?;
    }
    Ok(removed)
}

/// The Binaries that a version names.
fn named_binaries(version: &Version, fhir_base: &str) -> Vec<ResourceKey> {
    let of_body = version.body.as_deref().into_iter();
    of_body
        .flat_map(|body| references::attached_binaries(body, fhir_base))
        .map(|id| ResourceKey::new("Binary", id))
        .collect()
}

struct RecordErasure<'a> {
    store: &'a Store,
    fhir_base: &'a str,
    /// The compartment of the Patient; `None` for another resource.
    own: Option<String>,
    versions: u64,
    shared: BTreeSet<ResourceKey>,
    /// Binaries that the resources of this step name.
    binaries: BTreeSet<ResourceKey>,
    /// Time of the earliest version that was found.
    since: Timestamp,
    /// Whether the ledger has a record with this time.
    is_recorded: bool,
    /// Time of the machine, which snapshots may precede.
    now: Timestamp,
    record: ErasureRecord,
    seq: Seq,
    /// Number of resources that are erased at a time.
    at_once: usize,
}

/// Facts for the erasure of a resource, from its versions.
#[derive(Default)]
struct ExaminedVersions {
    newest: Option<u64>,
    count: u64,
    since: Option<Timestamp>,
    terms: BTreeSet<IndexTerm>,
    binaries: Vec<ResourceKey>,
    /// A version belongs to another Patient, too.
    is_shared: bool,
}

impl RecordErasure<'_> {
    /// Erases some resources. Those that are written meanwhile are read again.
    async fn erase(&mut self, keys: &[ResourceKey]) -> Result<(), ErasureError> {
        for _ in 0..ATTEMPTS {
            let (mut erasures, mut versions) = self.examine(keys).await?;
            // In the same step, because nothing names them after it.
            let binaries: Vec<_> = std::mem::take(&mut self.binaries).into_iter().collect();
            let others: Vec<_> = binaries.into_iter().filter(|key| !keys.contains(key)).collect();
            let (of_binaries, count) = self.examine(&others).await?;
            erasures.extend(of_binaries);
            versions += count;
            if erasures.is_empty() {
                return Ok(());
            }
            // Exports that begin after the erasure find the record. One that is too early harms nobody.
            self.put_record().await?;
            let (count, begun) = (erasures.len() as u64, Instant::now());
            match self.store.erase(erasures).await {
                Ok(seq) => {
                    let is_fast = begun.elapsed() < STEP / 2;
                    let is_slow = begun.elapsed() > STEP;
                    let next = if is_fast { self.at_once * 2 } else { self.at_once >> usize::from(is_slow) };
                    self.at_once = next.clamp(FEWEST, MOST);
                    self.seq = seq;
                    self.record.resources += count;
                    self.versions += versions;
                    return Ok(());
                }
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(ErasureError::Busy(keys[0].clone()))
    }

    /// Reads all versions of resources. Returns what is to be erased, and the number of its versions.
    async fn examine(&mut self, keys: &[ResourceKey]) -> Result<(Vec<Erasure>, u64), StoreError> {
        let (mut erasures, mut count, mut rest) = (Vec::new(), 0, keys);
        while !rest.is_empty() {
            let Histories { versions, is_complete } = self.store.histories(rest, PAGE).await?;
            let mut examined: Vec<(ResourceKey, ExaminedVersions)> = Vec::new();
            for version in versions {
                if examined.last().is_none_or(|(key, _)| *key != version.key) {
                    examined.push((version.key.clone(), ExaminedVersions::default()));
                }
                let of_resource = &mut examined.last_mut().expect("one was added").1;
                self.examine_version(version, of_resource);
            }
            // The last resource of a full page may have further versions.
            let unfinished = if is_complete { None } else { examined.pop() };
            rest = match unfinished.map(|(key, _)| key) {
                None => &[],
                Some(key) => {
                    let at = rest.iter().position(|other| *other == key).unwrap_or_default();
                    let is_alone = examined.is_empty();
                    if is_alone {
                        let of_resource = self.examine_long(&key).await?;
                        examined.push((key, of_resource));
                    }
                    &rest[at + usize::from(is_alone)..]
                }
            };
            for (key, ExaminedVersions { newest, count: versions, since, terms, binaries, is_shared }) in
                examined
            {
                if is_shared {
                    self.shared.insert(key);
                } else if let Some(newest) = newest {
                    count += versions;
                    self.since = self.since.min(since.unwrap_or(self.since));
                    self.binaries.extend(binaries);
                    erasures.push(Erasure { key, newest, terms: terms.into_iter().collect() });
                }
            }
        }
        Ok((erasures, count))
    }

    /// Reads the versions of a resource with more than a page of them.
    async fn examine_long(&self, key: &ResourceKey) -> Result<ExaminedVersions, StoreError> {
        let (mut examined, mut before) = (ExaminedVersions::default(), Seq::LATEST);
        loop {
            let page = self.store.history(key, before, PAGE).await?;
            let Some(last) = page.last() else { return Ok(examined) };
            before = last.seq;
            page.into_iter().for_each(|version| self.examine_version(version, &mut examined));
        }
    }

    fn examine_version(&self, version: Version, examined: &mut ExaminedVersions) {
        examined.is_shared |= self.is_shared(&version);
        if examined.is_shared {
            return;
        }
        examined.newest.get_or_insert(version.version);
        examined.count += 1;
        examined.since = Some(examined.since.map_or(version.updated, |since| since.min(version.updated)));
        examined.binaries.extend(named_binaries(&version, self.fhir_base));
        let key = version.key.clone();
        match replayed(version) {
            Ok(replayed) => examined.terms.extend(replayed.terms),
            Err(error) => tracing::warn!(%key, %error, "a version that is erased is not a resource"),
        }
    }

    /// Returns whether a version belongs to another Patient, mentions one, or is a definition.
    fn is_shared(&self, version: &Version) -> bool {
        let Some(own) = &self.own else { return false };
        let is_other = |name: &String| name != UNASSIGNED && patient_of(name) != Some(own);
        without_patient(&version.key.kind) == WithoutPatient::Visible
            || version.compartments.iter().any(is_other)
    }

    /// Writes the record, unless it is written with this time.
    async fn put_record(&mut self) -> Result<(), StoreError> {
        if !self.is_recorded || self.since < self.record.since {
            self.record.since = self.since;
            self.store.record_erasure(&self.record).await?;
            self.is_recorded = true;
        }
        Ok(())
    }

    async fn finish(self, root: ResourceKey) -> Result<ErasureResult, ErasureError> {
        let Self { store, now, mut record, versions, shared, seq, .. } = self;
        let shared = shared.into_iter().collect();
        if record.resources > 0 {
            record.seq = seq.0;
            record.time = store.snapshot(now).await?.time;
            store.record_erasure(&record).await?;
            return Ok(ErasureResult { record, versions, shared, seq });
        }
        // The caller may repeat an erasure to complete what follows from it.
        let earlier = store.erasures().await?.into_iter().rev().find(|one| one.resource == record.resource);
        let mut record = earlier.ok_or(ErasureError::Unknown(root))?;
        let seq = Seq(record.seq.min(store.last_seq().await?.0));
        if record.seq != seq.0 {
            record.seq = seq.0;
            record.time = store.snapshot(now).await?.time;
            store.record_erasure(&record).await?;
        }
        Ok(ErasureResult { record, versions, shared, seq })
    }
}
