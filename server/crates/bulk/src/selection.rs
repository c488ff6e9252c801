//! Which resources belong to a part, in an order that a snapshot fixes: the store's; by patient, then the store's, where
//! the compartments of some Patients are walked. Pages are small, so memory does not grow with the export. Between two
//! pages the place can be written down, so that another process goes on there.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use store::{Limit, Lines, Page, ResourceKey, Scan, Seq, Store, StoreError, Version, Versions as _};

use crate::ahead::{Ahead, Source, Wanted};
use crate::criteria::{Criteria, Stage, Whose, role_in};
use crate::elements::Projection;
use crate::group::Members;
use crate::job::Job;
use crate::kick_off::{Provenance, Role};
use crate::supporting::TooMany;
use crate::task::Task;

/// How much of the store is held at once.
pub(crate) const PAGE: Limit = Limit { count: 2_000, bytes: 1 << 20 };
/// From so many members on, a type is walked whole and sifted: opening each compartment costs more.
const MANY: usize = 100_000;

/// A place between two pages. It means the same at any later time, since the snapshot fixes the order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Cursor {
    /// Which member's compartment is being walked; 0 at system level.
    #[serde(default)]
    member: usize,
    /// The id that the last page gave to go on behind.
    #[serde(default)]
    after: Option<String>,
    #[serde(default)]
    done: bool,
}

impl Cursor {
    /// At the beginning of a member's compartment.
    pub fn of_member(member: usize) -> Self {
        Self { member, ..Self::default() }
    }

    pub fn member(&self) -> usize {
        self.member
    }

    pub fn after(&self) -> Option<&str> {
        self.after.as_deref()
    }

    /// Moves it behind a page of lines.
    pub fn pass(&mut self, page: &Lines, by_member: bool) {
        self.member += page.compartments;
        // A page of a whole type that is empty ends where it began.
        if by_member || page.next.is_some() {
            self.after.clone_from(&page.next);
        }
    }
}

/// Why a selection cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SelectionError {
    #[error(
        "exported resources refer to more supporting ones than can be kept in mind; export fewer types, or without _supporting"
    )]
    TooManySupporting,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<TooMany> for SelectionError {
    fn from(_: TooMany) -> Self {
        Self::TooManySupporting
    }
}

/// Walks one type of a job.
pub(crate) struct Selection<'a> {
    store: &'a Store,
    job: &'a Job,
    kind: &'a str,
    criteria: &'a Criteria,
    whose: &'a Whose,
    role: Role,
    projection: Option<Projection>,
    at: Cursor,
    /// The page that is being read while the one before it is worked on, and where it begins.
    ahead: Option<(Cursor, Task<Result<Page, StoreError>>)>,
    /// The same, of lines.
    lines_ahead: Option<Ahead<'a>>,
    /// Tombstones instead of what there is.
    deleted: bool,
    /// All that there is, whenever it was changed and whatever is searched for, with all elements.
    every: bool,
    /// The Patient that was looked up last, and whether there is one. Resources come by compartment, so most ask for the
    /// same one again.
    looked_up: Option<(String, bool)>,
    /// The resource whose Provenance was looked up last, and the id of its latest one.
    latest: Option<(String, Option<String>)>,
}

impl<'a> Selection<'a> {
    /// From the first resource on, or where `at` says ([`Selection::cursor`]).
    pub fn from(store: &'a Store, job: &'a Job, kind: &'a str, criteria: &'a Criteria, at: Cursor) -> Self {
        Self {
            store,
            job,
            kind,
            criteria,
            whose: &criteria.whose,
            role: role_in(job, kind),
            projection: criteria.projection(job, kind),
            at,
            ahead: None,
            lines_ahead: None,
            deleted: false,
            every: false,
            looked_up: None,
            latest: None,
        }
    }

    /// What was deleted instead of what there is. A search meets what it met in any version.
    pub fn of_deleted(self) -> Self {
        Self { deleted: true, ..self }
    }

    /// Also what was not changed and what no search meets.
    pub fn of_every(self) -> Self {
        Self { every: true, ..self }
    }

    /// Of these Patients instead of the job's.
    pub fn within(self, whose: &'a Whose) -> Self {
        Self { whose, ..self }
    }

    /// With all elements.
    pub fn whole(self) -> Self {
        Self { projection: None, ..self }
    }

    /// A resource as it is exported, where it is.
    pub async fn chosen(&mut self, version: Version) -> Result<Option<Bytes>, StoreError> {
        if !self.is_chosen(&version, None).await? {
            return Ok(None);
        }
        Ok(self.projected(version)?.body)
    }

    /// A resource with the elements that are exported.
    pub fn projected(&self, mut version: Version) -> Result<Version, StoreError> {
        self.project(&mut version)?;
        Ok(version)
    }

    /// Where the next page begins.
    pub fn cursor(&self) -> Cursor {
        self.at.clone()
    }

    /// The next resources; `None` at the end. A page may be empty.
    pub async fn next(&mut self) -> Result<Option<Vec<Version>>, SelectionError> {
        if self.at.done || (self.deleted && self.role == Role::Supporting) {
            return Ok(None);
        }
        if self.role == Role::Supporting && !self.know_supporting().await? {
            return Ok(Some(Vec::new()));
        }
        let by_member = self.walked_members();
        let ahead = self.ahead.take().filter(|(at, _)| *at == self.at).map(|(_, reading)| reading);
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
        let mut chosen = Vec::with_capacity(page.versions.len());
        for mut version in page.versions {
            if self.is_chosen(&version, member).await? {
                self.project(&mut version)?;
                chosen.push(version);
            }
        }
        Ok(Some(chosen))
    }

    /// The next resources as lines of text; `None` at the end. A page may be empty.
    pub async fn next_lines(&mut self) -> Result<Option<Lines>, SelectionError> {
        let Some(wanted) = self.wanted() else {
            let Some(versions) = self.next().await? else { return Ok(None) };
            return Ok(Some(lines_of(&versions)));
        };
        if self.at.done {
            return Ok(None);
        }
        let members = self.walked_members();
        let ahead = self.lines_ahead.get_or_insert_with(|| {
            let (store, kind, seq) = (self.store, self.kind, self.job.seq());
            Ahead::new(Source { store, kind, seq, wanted, members }, self.at.clone())
        });
        let page = ahead.next().await?;
        match &page {
            Some(page) => self.at.pass(page, members.is_some()),
            None => self.at.done = true,
        }
        Ok(page)
    }

    /// What says of a resource that it is chosen, where that needs no look into it or at others.
    fn wanted(&self) -> Option<Wanted> {
        let whose = match &self.criteria.whose {
            Whose::All if self.kind != "Provenance" || self.job.parameters.provenance.is_none() => None,
            Whose::Members(members) if self.kind != "Provenance" => Some(Arc::clone(members)),
            _ => return None,
        };
        let is_plain = self.role == Role::Main
            && !(self.deleted || self.every)
            && self.projection.is_none()
            && !self.criteria.has_filter(self.kind);
        let parameters = &self.job.parameters;
        is_plain.then_some(Wanted { since: parameters.since, until: parameters.until, whose })
    }

    /// Begins to read the page at a place; `None` behind the last member.
    fn read_at(&self, at: &Cursor) -> Option<Task<Result<Page, StoreError>>> {
        let compartment = match self.walked_members() {
            None => None,
            Some(members) => Some(format!("Patient/{}", members.get(at.member)?)),
        };
        let (store, kind, after) = (self.store.clone(), self.kind.to_owned(), at.after.clone());
        let (seq, deleted) = (self.job.seq(), self.deleted);
        Some(Task::of(async move {
            let scan = Scan::at(seq).limit(PAGE).after(after.as_deref());
            let scan = Scan { deleted, ..scan };
            match compartment {
                None => store.scan_kind(&kind, scan).await,
                Some(compartment) => store.scan_compartment(&compartment, &kind, scan).await,
            }
        }))
    }

    /// The members whose compartments are opened one by one.
    fn walked_members(&self) -> Option<&'a Members> {
        match self.whose {
            Whose::Members(members)
                if self.kind != "Provenance" && self.role == Role::Main && members.len() < MANY =>
            {
                Some(members)
            }
            _ => None,
        }
    }

    fn project(&self, version: &mut Version) -> Result<(), StoreError> {
        let (Some(projection), Some(body), false) = (&self.projection, &version.body, self.every) else {
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
        let is_in_time = self.role == Role::Supporting || self.is_in_time(version);
        if !is_in_time || !self.is_met(version).await? {
            return Ok(false);
        }
        if self.role == Role::Supporting {
            let known = self.criteria.supporting.lock().await;
            return Ok(known.references.has(&version.key.kind, &version.key.id));
        }
        if self.kind == "Provenance"
            && let Some(which) = self.job.parameters.provenance
        {
            return self.is_provenance_of_exported(version, which).await;
        }
        match (self.whose, member) {
            (Whose::All, _) => Ok(true),
            // A resource in the compartments of two members is written for the first of them.
            (Whose::Members(members), Some(member)) => Ok(first_member(version, members) == Some(member)),
            _ => self.is_inside(version).await,
        }
    }

    fn is_in_time(&self, version: &Version) -> bool {
        let parameters = &self.job.parameters;
        let is_after = parameters.since.is_none_or(|since| version.updated > since);
        let is_before = parameters.until.is_none_or(|until| version.updated < until);
        self.every || (is_after && is_before)
    }

    async fn is_met(&self, version: &Version) -> Result<bool, StoreError> {
        match &version.body {
            _ if self.every => Ok(true),
            Some(body) => Ok(self.criteria.is_met(&version.key.kind, body)),
            None => self.criteria.was_met(self.store, &version.key, version.seq).await,
        }
    }

    /// Does it lie in the compartment of one of the Patients, or tell where such a resource came from?
    async fn is_inside(&mut self, version: &Version) -> Result<bool, StoreError> {
        for compartment in &version.compartments {
            let Some((kind, id)) = compartment.split_once('/') else { continue };
            let found = if kind == "Patient" {
                self.is_patient(id).await?
            } else {
                match self.store.read(&ResourceKey::new(kind, id), self.seq()).await? {
                    // A Provenance may have been deleted together with what it speaks of.
                    Some(target) if self.deleted || !target.is_deleted() => self.has_patient(&target).await?,
                    _ => false,
                }
            };
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn has_patient(&mut self, version: &Version) -> Result<bool, StoreError> {
        for compartment in &version.compartments {
            if let Some(id) = compartment.strip_prefix("Patient/")
                && self.is_patient(id).await?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Is it one of the Patients whose resources are exported?
    async fn is_patient(&mut self, id: &str) -> Result<bool, StoreError> {
        if let Whose::Members(members) = self.whose {
            return Ok(members.position(id).is_some());
        }
        if let Some((known, is_there)) = &self.looked_up
            && known == id
        {
            return Ok(*is_there);
        }
        let found = self.store.read(&ResourceKey::new("Patient", id), self.seq()).await?;
        // One that was deleted took its resources along, at another time or at once.
        let is_there = found.is_some_and(|patient| self.deleted || !patient.is_deleted());
        self.looked_up = Some((id.to_owned(), is_there));
        Ok(is_there)
    }

    /// Does it speak of a resource that this job exports, and is it the latest that does, where only that is wanted?
    async fn is_provenance_of_exported(
        &mut self,
        version: &Version,
        which: Provenance,
    ) -> Result<bool, StoreError> {
        for target in &version.compartments {
            if !self.is_exported(target).await? {
                continue;
            }
            if which == Provenance::Relevant
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
        let found = self.store.read(&ResourceKey::new(kind, id), self.seq()).await?;
        let Some(found) = found.filter(|found| self.deleted || !found.is_deleted()) else { return Ok(false) };
        if role_in(self.job, kind) == Role::Supporting {
            return Ok(false);
        }
        if !self.is_in_time(&found) || !self.is_met(&found).await? {
            return Ok(false);
        }
        match self.whose {
            Whose::All => Ok(true),
            _ => self.has_patient(&found).await,
        }
    }

    /// The id of the Provenance of a resource that was recorded last.
    async fn latest_of(&mut self, target: &str) -> Result<Option<String>, StoreError> {
        if let Some((known, latest)) = &self.latest
            && known == target
        {
            return Ok(latest.clone());
        }
        let mut latest = None;
        let mut after = None;
        loop {
            let scan = Scan::at(self.seq()).limit(PAGE).after(after.as_deref());
            let page = self.store.scan_compartment(target, "Provenance", scan).await?;
            for version in page.versions {
                let recorded = version.body.as_deref().and_then(recorded);
                latest = latest.max(Some((recorded, version.updated, version.key.id)));
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let latest = latest.map(|(_, _, id)| id);
        self.latest = Some((target.to_owned(), latest.clone()));
        Ok(latest)
    }

    /// Goes one page further towards knowing the supporting resources; says whether all are known.
    async fn know_supporting(&self) -> Result<bool, SelectionError> {
        let mut known = self.criteria.supporting.lock().await;
        let known = &mut *known;
        let kinds = &self.job.kinds;
        let wants = |kind: &str| {
            kinds.iter().any(|exported| exported == kind) && role_in(self.job, kind) == Role::Supporting
        };
        let fhir_base = &self.criteria.fhir_base;
        known.stage = match std::mem::take(&mut known.stage) {
            Stage::Begin => Stage::Main { kind: 0, at: Cursor::default() },
            Stage::Main { kind, at } => match kinds.get(kind) {
                None => Stage::Round { kind: 0, after: None, known: known.references.len() },
                Some(name) if wants(name) => Stage::Main { kind: kind + 1, at },
                Some(name) => {
                    let mut main = Selection::from(self.store, self.job, name, self.criteria, at);
                    // It walks another kind than one that supports, so it does not come back here.
                    match Box::pin(main.next()).await? {
                        None => Stage::Main { kind: kind + 1, at: Cursor::default() },
                        Some(versions) => {
                            for body in versions.iter().filter_map(|version| version.body.as_ref()) {
                                known.references.add(body, fhir_base, wants)?;
                            }
                            Stage::Main { kind, at: main.cursor() }
                        }
                    }
                }
            },
            Stage::Round { kind, after, known: before } => match kinds.get(kind) {
                None if known.references.len() == before => Stage::Done,
                None => Stage::Round { kind: 0, after: None, known: known.references.len() },
                Some(name) if !wants(name) => Stage::Round { kind: kind + 1, after: None, known: before },
                Some(name) => {
                    let scan = Scan::at(self.seq()).limit(PAGE).after(after.as_deref());
                    let page = self.store.scan_kind(name, scan).await?;
                    let referred =
                        page.versions.iter().filter(|v| known.references.has(&v.key.kind, &v.key.id));
                    let bodies: Vec<Bytes> = referred.filter_map(|version| version.body.clone()).collect();
                    for body in &bodies {
                        known.references.add(body, fhir_base, wants)?;
                    }
                    match page.next {
                        None => Stage::Round { kind: kind + 1, after: None, known: before },
                        after => Stage::Round { kind, after, known: before },
                    }
                }
            },
            Stage::Done => Stage::Done,
        };
        Ok(matches!(known.stage, Stage::Done))
    }

    fn seq(&self) -> Seq {
        self.job.seq()
    }
}

fn lines_of(versions: &[Version]) -> Lines {
    let bodies = || versions.iter().filter_map(|version| version.body.as_ref());
    let mut text = Vec::with_capacity(bodies().map(|body| body.len() + 1).sum());
    let mut ends = Vec::with_capacity(versions.len());
    for body in bodies() {
        text.extend_from_slice(body);
        text.push(b'\n');
        ends.push(text.len());
    }
    Lines { text: text.into(), ends, ..Lines::default() }
}

/// The first member whose compartment holds the resource.
fn first_member(version: &Version, members: &Members) -> Option<usize> {
    let ids = version.compartments.iter().filter_map(|compartment| compartment.strip_prefix("Patient/"));
    ids.filter_map(|id| members.position(id)).min()
}

/// When a Provenance says that it was recorded.
fn recorded(provenance: &[u8]) -> Option<jiff::Timestamp> {
    #[derive(Deserialize)]
    struct Recorded<'a> {
        #[serde(borrow)]
        recorded: resources::json::Text<'a>,
    }
    fhir::instant::parse(&serde_json::from_slice::<Recorded<'_>>(provenance).ok()?.recorded).ok()
}
