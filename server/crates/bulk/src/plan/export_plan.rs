//! The selection of a job, prepared for reading: patients, searches and elements.

use std::sync::Arc;

use fhir::{Issue, IssueCode, Severity};
use jiff::Timestamp;
use resources::filter::TypeFilter;
use resources::result::elements::ElementProjection;
use store::{PageLimit, ResourceKey, Seq, Store, StoreError, Versions as _};
use tokio::sync::Mutex;

use crate::group::{CurrentMembers, Excluded, GroupError, GroupMembers, MemberCollector};
use crate::job::Job;
use crate::job::cursor::ExportCursor;
use crate::plan::listed_resources::ListedResources;
use crate::plan::member_provenance::provenance_of_members;
use crate::plan::supporting::ReferenceSet;
use crate::request::exported_kinds::{ExportRole, role};
use crate::request::kick_off::ExportLevel;
use crate::request::parameters::ExportParameters;

/// Reads Groups with the settings of the server.
#[derive(Debug, Clone)]
pub(crate) struct GroupReader {
    /// Base URL of the FHIR interface.
    pub fhir_base: String,
    /// `true` if the members of nested Groups are included.
    pub nested_groups: bool,
}

impl GroupReader {
    /// The members of a Group at time `at`, from the snapshot `seq`. A Group that contains itself is read
    /// once. A nested Group that does not exist has no members.
    pub async fn members(
        &self,
        store: &Store,
        id: &str,
        seq: Seq,
        time: Timestamp,
    ) -> Result<GroupMembers, GroupError> {
        self.current_members(store, id, seq, time).await.map(|current| current.members)
    }

    /// The members of a Group as [`GroupReader::members`] does, and what the list depends on.
    pub async fn current_members(
        &self,
        store: &Store,
        id: &str,
        seq: Seq,
        time: Timestamp,
    ) -> Result<CurrentMembers, GroupError> {
        let mut gathering = MemberCollector::new(&self.fhir_base, time);
        let (mut groups, mut exclusion) = (vec![id.to_owned()], None);
        let mut next = 0;
        while let Some(group) = groups.get(next) {
            let found = store.read(&ResourceKey::new("Group", group), seq).await?;
            match found.and_then(|version| version.body) {
                Some(body) => {
                    let added = gathering.add(group, &body).map_err(GroupError::Bad)?;
                    exclusion = if next == 0 { added } else { exclusion };
                }
                None if next == 0 => return Err(GroupError::NoGroup(id.to_owned())),
                None => {}
            }
            let nested = gathering.take_nested();
            for group in nested {
                if self.nested_groups && !groups.contains(&group) {
                    groups.push(group);
                }
            }
            next += 1;
        }
        Ok(CurrentMembers { exclusion, ..gathering.finish(groups) })
    }
}

/// The patients whose resources are exported.
#[derive(Debug)]
pub(crate) enum PatientScope {
    /// All resources, whether or not they are in a Patient compartment.
    All,
    /// Resources in the compartment of any Patient.
    Patients,
    /// Resources in the compartments of these Patients.
    Members(Arc<GroupMembers>),
}

/// The selection of a job, prepared for reading.
#[derive(Debug)]
pub(crate) struct ExportPlan {
    pub patients: PatientScope,
    pub filters: Vec<TypeFilter>,
    pub fhir_base: String,
    /// The resources that changed after `_since`, if they are few, and those of `joiners`.
    pub changes: Option<ListedResources>,
    /// The Patients who have become members of the Group since `_since`. All their resources are exported,
    /// however old they are: no earlier export contained them.
    pub joiners: GroupMembers,
    /// The Patients who are no longer members of the Group. The client may still have their resources.
    pub leavers: GroupMembers,
    /// The members of the Group that are not exported, by reason.
    pub excluded: Vec<Excluded>,
    /// The candidates of searches, for the types whose candidates are read ([`Job::indexed_types`]), and the
    /// Provenance of the resources of a Group's members.
    pub candidates: ListedResources,
    /// Supporting resources that have been found so far.
    pub supporting: Mutex<SupportingReferences>,
}

/// State of the search for supporting resources.
#[derive(Debug, Default)]
pub(crate) struct SupportingReferences {
    pub references: ReferenceSet,
    pub stage: CollectStage,
}

/// Position of the search for supporting resources.
#[derive(Debug, Default)]
pub(crate) enum CollectStage {
    /// The search has not started; it walks the exported types first.
    #[default]
    Begin,
    /// Searching the resources of this type of the job, from a cursor.
    Main { kind: usize, start: ExportCursor },
    /// Following references from the supporting resources that are already known. The search repeats in
    /// rounds until a round finds no new reference. `kind` is an index into the types of the job, `after` is
    /// the last id that was read, and `known` is the number of known references when the round began.
    Round { kind: usize, after: Option<String>, known: usize },
    /// All supporting resources are known.
    Done,
}

impl ExportPlan {
    /// Prepares the selection of a job.
    pub async fn of(job: &Job, store: &Store, reading: &GroupReader) -> Result<Self, GroupError> {
        let patients = job.parameters.patients.as_ref();
        let (mut joiners, mut leavers, mut excluded) =
            (GroupMembers::default(), GroupMembers::default(), Vec::new());
        let patients = match (&job.level, patients) {
            (ExportLevel::System, _) => PatientScope::All,
            (ExportLevel::Patient, None) => PatientScope::Patients,
            (ExportLevel::Patient, Some(patients)) => {
                PatientScope::Members(Arc::new(patients.iter().collect()))
            }
            (ExportLevel::Group(id), patients) => {
                let current = reading.current_members(store, id, job.seq(), job.transaction_time).await?;
                let (lacks_groups, members) = (current.lacks_groups(), current.members);
                let before = members_since(job, id, store, reading).await?;
                let exported = match patients {
                    None => members,
                    Some(patients) => patients.iter().filter(|id| members.position(id).is_some()).collect(),
                };
                if let Some(before) = before {
                    joiners = exported.without(&before);
                    // Nothing is known about the members of an excluded Group, or about those whom the
                    // request does not name.
                    if !lacks_groups && patients.is_none() {
                        leavers = before.without(&exported);
                    }
                }
                excluded = current.excluded;
                PatientScope::Members(Arc::new(exported))
            }
        };
        let filters = read_filters(&job.parameters, &reading.fhir_base, job.transaction_time)?;
        let mut changes = match job.parameters.since {
            Some(since) => ListedResources::changed_since(store, since, job.seq()).await?,
            None => None,
        };
        if let Some(listed) = &mut changes
            && !listed.add_patients(store, &joiners, &job.kinds, job.seq()).await?
        {
            changes = None;
        }
        let mut candidates = ListedResources::candidates(store, &filters, &job.indexed_types).await?;
        // The changes since a time take precedence, and are few.
        if let (PatientScope::Members(members), None) = (&patients, &changes)
            && let Some(ids) = provenance_of_members(store, job, members).await?
        {
            candidates.set("Provenance", ids);
        }
        let (fhir_base, supporting) = (reading.fhir_base.clone(), Mutex::default());
        Ok(Self { patients, filters, fhir_base, changes, joiners, leavers, excluded, candidates, supporting })
    }

    /// The notes about the export for its client: omitted parameters, members of the Group that are not
    /// exported, and Patients who have left the Group since `_since`.
    pub fn notes<'a>(&'a self, job: &'a Job) -> impl Iterator<Item = Issue> + 'a {
        let omitted = job.parameters.notes.iter();
        let omitted = omitted.map(|note| Issue::new(Severity::Warning, IssueCode::NotSupported, note));
        let information = |text| Issue::new(Severity::Information, IssueCode::Informational, text);
        let excluded = self.excluded.iter().map(move |excluded| information(excluded.to_string()));
        let left = self.leavers.iter().map(move |id| {
            information(format!(
                "Patient/{id} is no longer a member of the Group; remove its resources from your copy, unless they are also in the compartment of a member"
            ))
        });
        omitted.chain(excluded).chain(left)
    }

    /// Chooses the types of a new job whose candidates are read from the search index
    /// ([`Job::indexed_types`]). If the compartments of some Patients are exported, these are read instead.
    pub async fn choose_indexed_types(
        job: &mut Job,
        store: &Store,
        fhir_base: &str,
    ) -> Result<(), GroupError> {
        if matches!(job.level, ExportLevel::Group(_)) || job.parameters.patients.is_some() {
            return Ok(());
        }
        let filters = read_filters(&job.parameters, fhir_base, job.transaction_time)?;
        job.indexed_types = ListedResources::indexed_types(store, &filters, &job.kinds).await?;
        Ok(())
    }

    /// The projection to the requested elements of a type. `None` means that all elements are exported.
    pub fn projection(&self, job: &Job, kind: &str) -> Option<ElementProjection> {
        let elements = &job.parameters.elements;
        (!elements.is_empty()).then(|| ElementProjection::new(kind, elements))
    }

    /// `true` if the export has a search for this type.
    pub fn has_filter(&self, kind: &str) -> bool {
        self.filters.iter().any(|filter| filter.kind == kind)
    }

    /// `true` if a resource matches a search for its type, or there is no such search.
    pub fn is_met(&self, kind: &str, resource: &[u8]) -> bool {
        let mut filters = self.filters.iter().filter(|filter| filter.kind == kind).peekable();
        filters.peek().is_none() || filters.any(|filter| filter.is_met(resource))
    }

    /// `true` if any version of a resource that is deleted at `seq` matched a search for its type. An earlier
    /// export may have contained that version, and its client must learn of the deletion.
    pub async fn was_met(&self, store: &Store, key: &ResourceKey, seq: Seq) -> Result<bool, StoreError> {
        if !self.has_filter(&key.kind) {
            return Ok(true);
        }
        let mut before = seq;
        loop {
            let versions = store.history(key, before, PageLimit::default()).await?;
            let Some(last) = versions.last() else { return Ok(false) };
            before = last.seq;
            if versions.iter().filter_map(|v| v.body.as_deref()).any(|body| self.is_met(&key.kind, body)) {
                return Ok(true);
            }
        }
    }
}

/// The members of a Group at `_since`, if the request has it. The history of Groups is never removed, so that
/// the members of any time can be read.
async fn members_since(
    job: &Job,
    group: &str,
    store: &Store,
    reading: &GroupReader,
) -> Result<Option<GroupMembers>, GroupError> {
    let Some(since) = job.parameters.since else { return Ok(None) };
    let seq = store.seq_at(since).await?;
    match reading.members(store, group, seq, since).await {
        Ok(members) => Ok(Some(members)),
        // No earlier export contained members of a Group that was missing or could not be read.
        Err(GroupError::NoGroup(_) | GroupError::Bad(_)) => Ok(Some(GroupMembers::default())),
        Err(error) => Err(error),
    }
}

/// Reads the searches of a request, which were checked at the kick-off.
fn read_filters(
    parameters: &ExportParameters,
    fhir_base: &str,
    time: Timestamp,
) -> Result<Vec<TypeFilter>, GroupError> {
    let read = |text: &String| TypeFilter::read(text, fhir_base, time);
    parameters.filters.iter().map(read).collect::<Result<_, _>>().map_err(GroupError::Bad)
}

/// The role of a type in a job.
pub(crate) fn role_in(job: &Job, kind: &str) -> ExportRole {
    role(&job.level, &job.parameters, kind).unwrap_or(ExportRole::Main)
}
