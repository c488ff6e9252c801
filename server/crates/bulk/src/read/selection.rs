//! Selects the resources of a part of a job in an order fixed by the snapshot. Resources have the order of
//! the store. If the compartments of some Patients are read, they are ordered by Patient first. The resources
//! of an incremental export with few changes, and those of a type whose candidates are read from the search
//! index, are ordered by id. Pages are small, so memory does not grow with the export. The cursor between two
//! pages can be stored, so that another process resumes there.

use std::sync::Arc;

use bytes::Bytes;
use resources::assignment::patients_of;
use resources::result::elements::ElementProjection;
use store::{
    LinePage, ResourceKey, ScanOptions, Seq, Store, StoreError, UpdatedRange, Version, VersionPage,
    Versions as _,
};

use crate::abort_on_drop::AbortOnDrop;
use crate::group::GroupMembers;
use crate::job::Job;
use crate::job::cursor::ExportCursor;
use crate::plan::export_plan::{CollectStage, ExportPlan};
use crate::plan::latest_provenance::latest_provenance;
use crate::plan::listed_resources::ListedResources;
use crate::plan::membership::PatientScope;
use crate::plan::supporting::TooManyReferences;
use crate::read::read_ahead::PAGE;
use crate::read::read_ahead::{LineSource, ReadAhead, VersionFilter};
use crate::request::exported_kinds::ExportRole;
use crate::request::parameters::ProvenanceScope;

/// Number of members from which a whole type is read and filtered. This costs less than opening each
/// compartment, except in a database, which reads many compartments at once and would send the bodies of all
/// other patients.
const MANY: usize = 100_000;

#[derive(Debug, thiserror::Error)]
pub(crate) enum SelectionError {
    #[error(
        "the exported resources refer to too many supporting resources; export fewer types, or do not use _supporting"
    )]
    TooManySupporting,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<TooManyReferences> for SelectionError {
    fn from(_: TooManyReferences) -> Self {
        Self::TooManySupporting
    }
}

/// Reads the selected resources of one type of a job.
pub(crate) struct Selection<'a> {
    store: &'a Store,
    job: &'a Job,
    kind: &'a str,
    criteria: &'a ExportPlan,
    role: ExportRole,
    projection: Option<ElementProjection>,
    at: ExportCursor,
    /// The page that is read while the previous one is processed, with its cursor.
    ahead: Option<(ExportCursor, AbortOnDrop<Result<VersionPage, StoreError>>)>,
    /// The reader for pages of lines, if lines are selected.
    lines_ahead: Option<ReadAhead<'a>>,
    /// `true` if tombstones are selected instead of resources.
    deleted: bool,
    /// Id of the Patient that was looked up last, and whether the Patient exists. Resources are read by
    /// compartment, so most lookups are for the same Patient.
    looked_up: Option<(String, bool)>,
    /// The resource whose latest Provenance was looked up last, and the id of that Provenance.
    latest: Option<(String, Option<String>)>,
    /// The resources in the compartments of the members, and those that are known to be supporting, if the
    /// type has both.
    with_supporting: Option<ListedResources>,
}

impl<'a> Selection<'a> {
    /// Creates a selection that starts at the cursor `at` (see [`Selection::cursor`]).
    pub fn from(
        store: &'a Store,
        job: &'a Job,
        kind: &'a str,
        criteria: &'a ExportPlan,
        cursor: ExportCursor,
    ) -> Self {
        Self {
            store,
            job,
            kind,
            criteria,
            role: job.role(kind),
            projection: criteria.projection(job, kind),
            at: cursor,
            ahead: None,
            lines_ahead: None,
            deleted: false,
            looked_up: None,
            latest: None,
            with_supporting: None,
        }
    }

    /// Selects deleted resources. A deleted resource matches a search if any of its versions matched.
    pub fn of_deleted(self) -> Self {
        Self { deleted: true, ..self.without_supporting() }
    }

    /// Selects only what the request selects itself, if it selects anything of the type.
    fn without_supporting(self) -> Self {
        let role = if self.role.is_main() { ExportRole::Main } else { self.role };
        Self { role, ..self }
    }

    /// The cursor of the next page.
    pub fn cursor(&self) -> ExportCursor {
        self.at.clone()
    }

    /// The next resources, or `None` at the end. A page may be empty.
    pub async fn next(&mut self) -> Result<Option<Vec<Version>>, SelectionError> {
        if self.at.done || (self.deleted && !self.role.is_main()) {
            return Ok(None);
        }
        if self.role.is_supporting() && !self.know_supporting().await? {
            return Ok(Some(Vec::new()));
        }
        self.list_with_supporting().await?;
        let by_member = self.walked_members();
        let ahead = self.ahead.take().filter(|(cursor, _)| *cursor == self.at).map(|(_, reading)| reading);
        let Some(reading) = ahead.or_else(|| self.read_at(&self.at)) else { return Ok(None) };
        let page = reading.await?;
        let member = by_member.map(|_| self.at.member);
        match (page.next, by_member) {
            (Some(next), _) => self.at.after = Some(next),
            (None, Some(_)) => (self.at.after, self.at.member) = (None, self.at.member + 1),
            (None, None) => self.at.done = true,
        }
        if !self.at.done {
            self.ahead = self.read_at(&self.at).map(|reading| (self.at.clone(), reading));
        }
        let mut lines = Vec::with_capacity(page.versions.len());
        for mut version in page.versions {
            if self.is_chosen(&version, member).await? {
                self.project(&mut version)?;
                lines.push(version);
            }
        }
        Ok(Some(lines))
    }

    /// The next resources as lines, or `None` at the end. A page may be empty.
    pub async fn next_lines(&mut self) -> Result<Option<LinePage>, SelectionError> {
        let Some(filter) = self.wanted() else {
            let Some(versions) = self.next().await? else { return Ok(None) };
            return Ok(Some(lines_of(&versions)));
        };
        if self.at.done {
            return Ok(None);
        }
        let members = self.walked_members();
        let ahead = self.lines_ahead.get_or_insert_with(|| {
            let (store, kind, seq) = (self.store, self.kind, self.job.seq());
            ReadAhead::new(LineSource { store, kind, seq, wanted: filter, members }, self.at.clone())
        });
        let page = ahead.next().await?;
        match &page {
            Some(page) => self.at.pass(page, members.is_some()),
            None => self.at.done = true,
        }
        Ok(page)
    }

    /// The condition on the resources, if it can be checked without the body and without other resources.
    fn wanted(&self) -> Option<VersionFilter> {
        let patients = match &self.criteria.patients {
            PatientScope::All if self.kind != "Provenance" || self.job.parameters.provenance.is_none() => {
                None
            }
            PatientScope::Members(members) if self.kind != "Provenance" => Some(Arc::clone(members)),
            _ => return None,
        };
        let is_plain = self.role == ExportRole::Main
            && self.listed().is_none()
            && !self.deleted
            && self.projection.is_none()
            && self.criteria.joiners.is_empty()
            && self.criteria.scope.entered.is_empty()
            && !self.criteria.has_filter(self.kind);
        let parameters = &self.job.parameters;
        let after = parameters.since.filter(|_| !self.job.is_new_type(self.kind));
        let updated = UpdatedRange { after, before: parameters.until };
        is_plain.then_some(VersionFilter { updated, patients })
    }

    /// Starts to read the page at a cursor. Returns `None` after the last member.
    fn read_at(&self, cursor: &ExportCursor) -> Option<AbortOnDrop<Result<VersionPage, StoreError>>> {
        let compartment = match self.walked_members() {
            None => None,
            Some(members) => Some(format!("Patient/{}", members.get(cursor.member)?)),
        };
        let (store, kind, after) = (self.store.clone(), self.kind.to_owned(), cursor.after.clone());
        let (seq, deleted) = (self.job.seq(), self.deleted);
        let batch = self.listed().map(|list| list.after(&kind, after.as_deref(), PAGE.count).to_vec());
        Some(AbortOnDrop::of(async move {
            if let Some(ids) = batch {
                return read_ids(&store, &kind, ids, seq).await;
            }
            let scan = ScanOptions::at(seq).limit(PAGE).after(after.as_deref());
            let scan = ScanOptions { deleted, ..scan };
            match compartment {
                None => store.scan_kind(&kind, scan).await,
                Some(compartment) => store.scan_compartment(&compartment, &kind, scan).await,
            }
        }))
    }

    /// The resources to read, if only they can be selected.
    fn listed(&self) -> Option<&ListedResources> {
        let ExportPlan { changes, candidates, .. } = self.criteria;
        let candidates = match self.role {
            ExportRole::Main => Some(candidates).filter(|list| list.has(self.kind)),
            ExportRole::Supporting | ExportRole::MainAndSupporting => self.with_supporting.as_ref(),
        };
        // All resources of a new type are exported, however old they are.
        let is_new_type =
            self.job.is_new_type(self.kind) || self.kind == "Provenance" && self.job.has_new_type();
        let is_new_type = !self.deleted && is_new_type;
        changes.as_ref().filter(|_| !is_new_type).or(candidates)
    }

    /// The members whose compartments are read one after the other.
    fn walked_members(&self) -> Option<&'a GroupMembers> {
        match &self.criteria.patients {
            PatientScope::Members(members)
                if self.kind != "Provenance"
                    && self.role == ExportRole::Main
                    && self.listed().is_none()
                    && (members.len() < MANY || self.store.is_shared()) =>
            {
                Some(members)
            }
            _ => None,
        }
    }

    fn project(&self, version: &mut Version) -> Result<(), StoreError> {
        let (Some(projection), Some(body)) = (&self.projection, &version.body) else {
            return Ok(());
        };
        let projected = projection
            .apply(body)
            .map_err(|error| StoreError::Corrupt { what: format!("{}: {error}", version.key) })?;
        if let Some(projected) = projected {
            version.body = Some(Bytes::from(projected));
        }
        Ok(())
    }

    async fn is_chosen(&mut self, version: &Version, member: Option<usize>) -> Result<bool, StoreError> {
        if version.is_deleted() != self.deleted {
            return Ok(false);
        }
        if self.role.is_supporting() && self.is_supporting(version).await {
            return Ok(self.is_new(version) && self.is_met(version).await?);
        }
        if self.role == ExportRole::Supporting {
            return Ok(false);
        }
        let is_in_time = self.is_in_time(version) || self.is_of_joiner_by_target(version).await?;
        if !is_in_time || !self.is_met(version).await? {
            return Ok(false);
        }
        if self.kind == "Provenance"
            && let Some(which) = self.job.parameters.provenance
        {
            return self.is_provenance_of_exported(version, which).await;
        }
        match (&self.criteria.patients, member) {
            (PatientScope::All, _) => Ok(true),
            // A resource in the compartments of several members is exported with the first of them.
            (PatientScope::Members(members), Some(member)) => {
                Ok(first_member(version, members) == Some(member))
            }
            _ => self.is_inside(version).await,
        }
    }

    /// `true` if exported resources refer to the resource, and it is not that of another Patient.
    async fn is_supporting(&self, version: &Version) -> bool {
        let is_shared =
            self.job.joined_since.is_none() || patients_of(&version.compartments).next().is_none();
        let supporting = self.criteria.supporting.lock().await;
        is_shared && !version.is_deleted() && supporting.references.has(&version.key.kind, &version.key.id)
    }

    /// Lists the resources of a type that has both roles, so that not all of the type are read. In an
    /// export of all Patients, they are.
    async fn list_with_supporting(&mut self) -> Result<(), StoreError> {
        let PatientScope::Members(members) = &self.criteria.patients else { return Ok(()) };
        let is_listed = self.with_supporting.is_some() || self.criteria.changes.is_some();
        if self.role != ExportRole::MainAndSupporting || is_listed {
            return Ok(());
        }
        let mut ids = self.criteria.supporting.lock().await.references.ids_of(self.kind);
        for member in members.iter() {
            let (compartment, mut after) = (format!("Patient/{member}"), None::<String>);
            loop {
                let scan = ScanOptions::at(self.seq()).limit(PAGE).after(after.as_deref());
                let page = self.store.scan_compartment(&compartment, self.kind, scan).await?;
                ids.extend(page.versions.into_iter().map(|version| version.key.id));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        ids.sort_unstable();
        ids.dedup();
        let mut resources = ListedResources::default();
        resources.set(self.kind, ids);
        self.with_supporting = Some(resources);
        Ok(())
    }

    fn is_in_time(&self, version: &Version) -> bool {
        let until = self.job.parameters.until;
        self.is_new(version) && until.is_none_or(|until| version.updated < until)
    }

    /// `true` if a client that has the export of `_since` does not have this version.
    fn is_new(&self, version: &Version) -> bool {
        let is_entered = self.is_of_joiner(version)
            || self.criteria.scope.has_entered(&version.key)
            || self.job.is_new_type(&version.key.kind);
        let since = self.job.parameters.since;
        since.is_none_or(|since| version.updated > since) || !self.deleted && is_entered
    }

    /// `true` if the resource is in the compartment of a Patient who has joined the Group since `_since`.
    fn is_of_joiner(&self, version: &Version) -> bool {
        let joiners = &self.criteria.joiners;
        let is_joiner = |compartment: &String| {
            compartment.strip_prefix("Patient/").is_some_and(|id| joiners.position(id).is_some())
        };
        !joiners.is_empty() && version.compartments.iter().any(is_joiner)
    }

    /// `true` if a target of the Provenance is in the compartment of such a Patient, or of a type that is
    /// new to the client.
    async fn is_of_joiner_by_target(&self, version: &Version) -> Result<bool, StoreError> {
        let parameters = &self.job.parameters;
        if self.kind != "Provenance"
            || self.deleted
            || self.criteria.joiners.is_empty() && !self.job.has_new_type()
            || parameters.until.is_some_and(|until| version.updated >= until)
        {
            return Ok(false);
        }
        for target in &version.compartments {
            let Some((kind, id)) = target.split_once('/') else { continue };
            let target = self.store.read(&ResourceKey::new(kind, id), self.seq()).await?;
            let is_new = |target: &Version| {
                !target.is_deleted() && (self.is_of_joiner(target) || self.job.is_new_type(&target.key.kind))
            };
            if target.as_ref().is_some_and(is_new) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn is_met(&self, version: &Version) -> Result<bool, StoreError> {
        match &version.body {
            Some(body) => Ok(self.criteria.is_met(&version.key.kind, body)),
            None => self.criteria.was_met(self.store, &version.key, version.seq).await,
        }
    }

    /// `true` if the resource is in the compartment of one of the Patients, or is Provenance of a resource in
    /// it.
    async fn is_inside(&mut self, version: &Version) -> Result<bool, StoreError> {
        for compartment in version.compartments.iter().filter(|name| !name.starts_with('@')) {
            let Some((kind, id)) = compartment.split_once('/') else { continue };
            let is_exported_patient = if kind == "Patient" {
                self.is_patient(id).await?
            } else {
                match self.store.read(&ResourceKey::new(kind, id), self.seq()).await? {
                    // A Provenance and its target may have been deleted together.
                    Some(target) if self.deleted || !target.is_deleted() => self.has_patient(&target).await?,
                    _ => false,
                }
            };
            if is_exported_patient {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn has_patient(&mut self, version: &Version) -> Result<bool, StoreError> {
        if !self.job.has_compartments_of(&version.key.kind) {
            return Ok(false);
        }
        for compartment in &version.compartments {
            if let Some(id) = compartment.strip_prefix("Patient/")
                && self.is_patient(id).await?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// `true` if the resources of this Patient are exported.
    async fn is_patient(&mut self, id: &str) -> Result<bool, StoreError> {
        if let PatientScope::Members(members) = &self.criteria.patients {
            return Ok(members.position(id).is_some());
        }
        if let Some((known, is_there)) = &self.looked_up
            && known == id
        {
            return Ok(*is_there);
        }
        let version = self.store.read(&ResourceKey::new("Patient", id), self.seq()).await?;
        // For a deleted Patient, deletes of the Patient's resources are exported too.
        let is_there = version.is_some_and(|patient| self.deleted || !patient.is_deleted());
        self.looked_up = Some((id.to_owned(), is_there));
        Ok(is_there)
    }

    /// `true` if a target of the Provenance is exported. If only the latest Provenance is requested, no later
    /// Provenance may have the same target.
    async fn is_provenance_of_exported(
        &mut self,
        version: &Version,
        which: ProvenanceScope,
    ) -> Result<bool, StoreError> {
        for target in &version.compartments {
            if !self.is_exported(target).await? {
                continue;
            }
            if which == ProvenanceScope::Relevant
                || self.latest_of(target).await?.as_deref() == Some(&version.key.id)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn is_exported(&mut self, target: &str) -> Result<bool, StoreError> {
        let Some((kind, id)) = target.split_once('/') else { return Ok(false) };
        if kind == "Provenance" || !self.job.kinds.iter().any(|exported| exported == kind) {
            return Ok(false);
        }
        let version = self.store.read(&ResourceKey::new(kind, id), self.seq()).await?;
        let Some(version) = version.filter(|version| self.deleted || !version.is_deleted()) else {
            return Ok(false);
        };
        if !self.job.role(kind).is_main() {
            return Ok(false);
        }
        // An increment has new Provenance of unchanged resources, too.
        let until = self.job.parameters.until;
        let is_in_time = match self.deleted {
            true => self.is_in_time(&version),
            false => until.is_none_or(|until| version.updated < until),
        };
        if !is_in_time || !self.is_met(&version).await? {
            return Ok(false);
        }
        match &self.criteria.patients {
            PatientScope::All => Ok(true),
            _ => self.has_patient(&version).await,
        }
    }

    /// The id of the Provenance of a resource with the latest `recorded` time.
    async fn latest_of(&mut self, target: &str) -> Result<Option<String>, StoreError> {
        if let Some((known, latest)) = &self.latest
            && known == target
        {
            return Ok(latest.clone());
        }
        let latest = latest_provenance(self.store, target, self.seq()).await?;
        self.latest = Some((target.to_owned(), latest.clone()));
        Ok(latest)
    }

    /// Searches one more page for references to supporting resources. Returns `true` when all references are
    /// known.
    pub async fn know_supporting(&self) -> Result<bool, SelectionError> {
        let mut guard = self.criteria.supporting.lock().await;
        let supporting = &mut *guard;
        let kinds = &self.job.kinds;
        let wants =
            |kind: &str| kinds.iter().any(|exported| exported == kind) && self.job.role(kind).is_supporting();
        let fhir_base = &self.criteria.fhir_base;
        supporting.stage = match std::mem::take(&mut supporting.stage) {
            CollectStage::Begin => CollectStage::Main { kind: 0, start: ExportCursor::default() },
            CollectStage::Main { kind, start } => match kinds.get(kind) {
                None => CollectStage::Round { kind: 0, after: None, known: supporting.references.len() },
                Some(name) if !self.job.role(name).is_main() => CollectStage::Main { kind: kind + 1, start },
                Some(name) => {
                    let main = Selection::from(self.store, self.job, name, self.criteria, start);
                    let mut main = main.without_supporting();
                    // The inner selection does not search supporting resources, so the recursion has depth
                    // one.
                    match Box::pin(main.next()).await? {
                        None => CollectStage::Main { kind: kind + 1, start: ExportCursor::default() },
                        Some(versions) => {
                            for body in versions.iter().filter_map(|version| version.body.as_ref()) {
                                supporting.references.add(body, fhir_base, wants)?;
                            }
                            CollectStage::Main { kind, start: main.cursor() }
                        }
                    }
                }
            },
            CollectStage::Round { kind, after, known: before } => match kinds.get(kind) {
                None if supporting.references.len() == before => CollectStage::Done,
                None => CollectStage::Round { kind: 0, after: None, known: supporting.references.len() },
                Some(name) if !wants(name) => {
                    CollectStage::Round { kind: kind + 1, after: None, known: before }
                }
                Some(name) => {
                    let scan = ScanOptions::at(self.seq()).limit(PAGE).after(after.as_deref());
                    let page = self.store.scan_kind(name, scan).await?;
                    let is_shared = |version: &Version| {
                        self.job.joined_since.is_none() || patients_of(&version.compartments).next().is_none()
                    };
                    let referred = page.versions.iter().filter(|version| {
                        supporting.references.has(&version.key.kind, &version.key.id) && is_shared(version)
                    });
                    let bodies: Vec<Bytes> = referred.filter_map(|version| version.body.clone()).collect();
                    for body in &bodies {
                        supporting.references.add(body, fhir_base, wants)?;
                    }
                    match page.next {
                        None => CollectStage::Round { kind: kind + 1, after: None, known: before },
                        after => CollectStage::Round { kind, after, known: before },
                    }
                }
            },
            CollectStage::Done => CollectStage::Done,
        };
        Ok(matches!(supporting.stage, CollectStage::Done))
    }

    fn seq(&self) -> Seq {
        self.job.seq()
    }
}

/// Reads resources by id. The page continues after the last id that was read.
async fn read_ids(store: &Store, kind: &str, ids: Vec<String>, seq: Seq) -> Result<VersionPage, StoreError> {
    let versions = store.read_many(kind, ids.clone(), seq, PAGE.bytes).await?;
    let is_last = versions.len() == ids.len() && ids.len() < PAGE.count;
    let next = if is_last { None } else { ids.into_iter().nth(versions.len().saturating_sub(1)) };
    Ok(VersionPage { versions: versions.into_iter().flatten().collect(), next })
}

fn lines_of(versions: &[Version]) -> LinePage {
    let bodies = || versions.iter().filter_map(|version| version.body.as_ref());
    let mut text = Vec::with_capacity(bodies().map(|body| body.len() + 1).sum());
    let mut ends = Vec::with_capacity(versions.len());
    for body in bodies() {
        text.extend_from_slice(body);
        text.push(b'\n');
        ends.push(text.len());
    }
    LinePage { text: text.into(), ends, ..LinePage::default() }
}

/// The index of the first member whose compartment contains the resource.
fn first_member(version: &Version, members: &GroupMembers) -> Option<usize> {
    let ids = version.compartments.iter().filter_map(|compartment| compartment.strip_prefix("Patient/"));
    ids.filter_map(|id| members.position(id)).min()
}
