//! Assigns stored versions to Patients by the current rules ([`assignment`]). Versions
//! that an earlier program wrote lack the names that were added since.
//!
//! A version keeps its number, its time and its bytes; names are only added. The pass can be interrupted at
//! any time: its position is in the ledger, and names that are written twice are the same. A pass that ran
//! while nodes of an earlier program were running is repeated for what was written since.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{
    Expect, Ledger as _, LedgerWrite, PageLimit, Reassignment, ResourceKey, ScanOptions, Seq, Store,
    StoreError, Version, Versions as _,
};

use crate::search::index::referrers;
use crate::write::assignment::{self, patients_of};
use crate::write::prepare::ResourceRules;
use crate::write::scan;

/// Key of the record in the ledger.
const KEY: &str = "patient-assignment";
/// Number of the rules. A change of [`assignment`] increments it, so that the pass runs
/// again.
const RULES: u32 = 1;
/// Number of resources that are written at a time, and size of the pages in which they are read.
const AT_ONCE: usize = 100;
const PAGE: PageLimit = PageLimit { count: 1_000, bytes: 4 << 20 };
/// How often a resource is read again because it was written meanwhile.
const ATTEMPTS: usize = 5;

/// The state of the pass over the stored versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignmentRecord {
    rules: u32,
    /// Time from which resources belong to Patients by these rules; `None` until the pass is complete. An
    /// increment since an earlier time contains all resources of the types that were added.
    pub since: Option<Timestamp>,
    /// Sequence number at the start of the pass. Later versions of earlier programs are found after it.
    start: u64,
    /// The type that is read, and the last id.
    position: Option<(String, Option<String>)>,
    /// Number of resources that were examined.
    pub examined: u64,
    /// Whether the pass is repeated when no node of an earlier program runs any more.
    pub awaits_earlier_nodes: bool,
}

impl AssignmentRecord {
    /// Whether all stored versions are assigned by the current rules.
    pub fn is_complete(&self) -> bool {
        self.rules == RULES && self.since.is_some()
    }
}

/// The record of the store. `None` if an earlier program wrote the store, or it is empty.
///
/// # Errors
/// Returns [`StoreError`] if it cannot be read.
pub async fn read_record(store: &Store) -> Result<Option<AssignmentRecord>, StoreError> {
    Ok(read_with_revision(store).await?.map(|(record, _)| record))
}

async fn read_with_revision(store: &Store) -> Result<Option<(AssignmentRecord, u64)>, StoreError> {
    // The record does not expire, so that every time finds it.
    let Some(last_record) = store.get(KEY, Timestamp::UNIX_EPOCH).await? else { return Ok(None) };
    let record = serde_json::from_slice(&last_record.value)
        .map_err(|error| StoreError::Corrupt { what: format!("{KEY}: {error}") })?;
    Ok(Some((record, last_record.revision)))
}

/// A step of the pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AssignmentStep {
    /// The pass continues.
    Running,
    /// Another node has advanced the pass.
    Overtaken,
    /// All versions are assigned.
    Complete,
}

/// A pass over the stored versions.
pub struct AssignmentPass<'a> {
    store: &'a Store,
    fhir_base: &'a str,
    record: AssignmentRecord,
    expect: Expect,
}

impl<'a> AssignmentPass<'a> {
    /// Begins or resumes a pass. `has_earlier_nodes` tells whether nodes of an earlier program may be
    /// writing.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the store cannot be read.
    pub async fn begin(
        store: &'a Store,
        fhir_base: &'a str,
        has_earlier_nodes: bool,
    ) -> Result<Self, StoreError> {
        let (mut record, expect) = match read_with_revision(store).await? {
            Some((record, revision)) if record.rules == RULES => (record, Expect::Revision(revision)),
            earlier => {
                let start = store.last_seq().await?;
                let is_new = start == Seq::ZERO && earlier.is_none() && !has_earlier_nodes;
                let record = AssignmentRecord {
                    rules: RULES,
                    // In a new store, all versions are assigned when they are written.
                    since: is_new.then_some(Timestamp::UNIX_EPOCH),
                    start: start.0,
                    position: None,
                    examined: 0,
                    awaits_earlier_nodes: has_earlier_nodes,
                };
                (record, earlier.map_or(Expect::Absent, |(_, revision)| Expect::Revision(revision)))
            }
        };
        if record.since.is_none() {
            record.awaits_earlier_nodes |= has_earlier_nodes;
        }
        Ok(Self { store, fhir_base, record, expect })
    }

    /// The state of the pass.
    pub fn record(&self) -> &AssignmentRecord {
        &self.record
    }

    /// Assigns the resources of the next page, and stores the position.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the store cannot be read or written.
    pub async fn step(&mut self, now: Timestamp) -> Result<AssignmentStep, StoreError> {
        if self.record.since.is_none() {
            self.assign_page(now).await?;
        }
        let step = match self.record.since {
            Some(_) => AssignmentStep::Complete,
            None => AssignmentStep::Running,
        };
        match self.write(now).await {
            Err(StoreError::Conflict { .. }) => Ok(AssignmentStep::Overtaken),
            written => written.map(|()| step),
        }
    }

    async fn assign_page(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let kinds = self.store.kinds(Seq::LATEST).await?;
        let (kind, after) = match self.record.position.take() {
            Some((kind, after)) => (Some(kind), after),
            None => (kinds.first().cloned(), None),
        };
        let Some(kind) = kind else {
            self.record.since = Some(now);
            return Ok(());
        };
        let scan = ScanOptions::at(Seq::LATEST).limit(PAGE).after(after.as_deref()).with_deleted();
        let page = self.store.scan_kind(&kind, scan).await?;
        self.record.examined += page.versions.len() as u64;
        self.assign(page.versions).await?;
        self.record.position = match page.next {
            Some(next) => Some((kind, Some(next))),
            // A type that appears meanwhile is written by the current rules.
            None => kinds.into_iter().find(|other| *other > kind).map(|next| (next, None)),
        };
        if self.record.position.is_none() {
            self.record.since = Some(now);
        }
        Ok(())
    }

    /// Repeats the pass for what was written since its start, after the last node of an earlier program has
    /// ended.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the store cannot be read or written.
    pub async fn repeat(mut self, now: Timestamp) -> Result<AssignmentStep, StoreError> {
        let (mut after, until) = (Seq(self.record.start), self.store.last_seq().await?);
        while after < until {
            let changes = self.store.changes(after, PAGE.count).await?;
            let Some(last) = changes.last() else { break };
            after = last.seq;
            let keys: BTreeSet<ResourceKey> = changes.into_iter().map(|change| change.key).collect();
            let mut versions = Vec::with_capacity(keys.len());
            for key in &keys {
                versions.extend(self.store.read(key, Seq::LATEST).await?);
            }
            self.assign(versions).await?;
        }
        self.record.since = Some(now);
        self.record.awaits_earlier_nodes = false;
        match self.write(now).await {
            Err(StoreError::Conflict { .. }) => Ok(AssignmentStep::Overtaken),
            written => written.map(|()| AssignmentStep::Complete),
        }
    }

    async fn write(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let value = serde_json::to_vec(&self.record).expect("a record has string keys only");
        let revisions = self.store.write(vec![LedgerWrite::put(KEY, value, self.expect)], now).await?;
        self.expect = revisions.first().map_or(Expect::Any, |revision| Expect::Revision(*revision));
        Ok(())
    }

    /// Assigns resources, of which these are the newest versions.
    async fn assign(&self, versions: Vec<Version>) -> Result<(), StoreError> {
        let mut reassignments = Vec::new();
        for version in versions {
            reassignments.extend(self.reassignment(version).await?);
            if reassignments.len() >= AT_ONCE {
                self.write_reassignments(std::mem::take(&mut reassignments)).await?;
            }
        }
        self.write_reassignments(reassignments).await
    }

    /// Writes names. Resources that are written meanwhile are read again.
    async fn write_reassignments(&self, mut reassignments: Vec<Reassignment>) -> Result<(), StoreError> {
        for _ in 0..ATTEMPTS {
            if reassignments.is_empty() {
                return Ok(());
            }
            let keys: Vec<ResourceKey> = reassignments.iter().map(|one| one.key.clone()).collect();
            match self.store.reassign(std::mem::take(&mut reassignments)).await {
                Err(StoreError::Conflict { .. }) => {}
                written => return written.map(drop),
            }
            for key in keys {
                if let Some(newest) = self.store.read(&key, Seq::LATEST).await? {
                    reassignments.extend(self.reassignment(newest).await?);
                }
            }
        }
        Err(StoreError::Unavailable { reason: "a resource is written again and again".to_owned() })
    }

    /// The names that a resource lacks, or `None` if it has all.
    async fn reassignment(&self, newest: Version) -> Result<Option<Reassignment>, StoreError> {
        let (key, number) = (newest.key.clone(), newest.version);
        let mut versions = match number {
            1 => vec![newest],
            _ => self.all_versions(&key).await?,
        };
        versions.reverse();
        let mut is_changed = false;
        let mut terms = BTreeSet::new();
        let mut assigned: Vec<(Seq, Vec<String>)> = Vec::with_capacity(versions.len());
        for version in versions {
            let names = match &version.body {
                Some(body) => {
                    let names = self.names(&version, body);
                    terms.extend(referrers::terms(&key.kind, body, patients_of(&names)));
                    names
                }
                // A tombstone has the names of the version that it replaced.
                None => assigned.last().map_or(version.compartments.clone(), |(_, names)| names.clone()),
            };
            is_changed |= names != version.compartments;
            assigned.push((version.seq, names));
        }
        let terms = terms.into_iter().collect::<Vec<_>>();
        let is_needed = is_changed || !terms.is_empty();
        Ok(is_needed.then_some(Reassignment { key, newest: number, versions: assigned, terms }))
    }

    async fn all_versions(&self, key: &ResourceKey) -> Result<Vec<Version>, StoreError> {
        let (mut versions, mut before) = (Vec::new(), Seq::LATEST);
        loop {
            let page = self.store.history(key, before, PAGE).await?;
            let Some(last) = page.last() else { return Ok(versions) };
            before = last.seq;
            versions.extend(page);
        }
    }

    /// The names of a version: those that it has, and those that it lacks.
    fn names(&self, version: &Version, body: &[u8]) -> Vec<String> {
        let key = &version.key;
        let depth = ResourceRules::default().depth;
        let scan = match scan::scan(body, Some(&key.kind), depth, None) {
            Ok(scan) => scan,
            Err(error) => {
                tracing::warn!(%key, %error, "a stored version is not a resource, and is assigned to no Patient");
                return version.compartments.clone();
            }
        };
        let is_joined = fhir::patient_compartment::is_joined(&key.kind);
        let added = assignment::names(&key.kind, &key.id, &scan, self.fhir_base);
        // The base URL may have changed, so that compartments of R4 stay as they were.
        let added = added.into_iter().filter(|name| is_joined || name.starts_with('@'));
        let mut names: Vec<String> = version.compartments.iter().cloned().chain(added).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// States that the versions of an empty store are assigned when they are written, for a command that creates
/// the store. A store with resources, or with a node that may write them by earlier rules, is left to the
/// server.
///
/// # Errors
/// Returns [`StoreError`] if the store cannot be read or written.
pub async fn record_new_store(store: &Store, now: Timestamp) -> Result<(), StoreError> {
    let is_new = store.last_seq().await? == Seq::ZERO && read_record(store).await?.is_none();
    if !is_new || store.nodes().await?.iter().any(|node| node.is_running) {
        return Ok(());
    }
    // Without resources, no reference is read that the base URL could be part of.
    AssignmentPass::begin(store, "", false).await?.step(now).await.map(drop)
}

/// Assigns all stored versions, for a command on a store that no server uses. `progress` receives the
/// number of resources that were examined.
///
/// # Errors
/// Returns [`StoreError`] if the store cannot be read or written.
pub async fn assign_all(
    store: &Store,
    fhir_base: &str,
    now: Timestamp,
    mut progress: impl FnMut(u64),
) -> Result<(), StoreError> {
    if read_record(store).await?.is_some_and(|record| record.is_complete()) {
        return Ok(());
    }
    loop {
        let mut pass = AssignmentPass::begin(store, fhir_base, false).await?;
        loop {
            match pass.step(now).await? {
                AssignmentStep::Running => progress(pass.record().examined),
                AssignmentStep::Overtaken => break,
                AssignmentStep::Complete => return Ok(()),
            }
        }
    }
}
