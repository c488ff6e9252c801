//! The selection of a job, prepared for reading: patients, searches and elements.

use fhir::{Issue, IssueCode, Severity};
use jiff::Timestamp;
use resources::filter::TypeFilter;
use resources::result::elements::ElementProjection;
use store::{PageLimit, ResourceKey, Seq, Store, StoreError, Versions as _};
use tokio::sync::Mutex;

use crate::GroupLeavers;
use crate::group::{Excluded, GroupError, GroupMembers};
use crate::job::Job;
use crate::job::cursor::ExportCursor;
use crate::plan::listed_resources::ListedResources;
use crate::plan::member_provenance::provenance_of_members;
use crate::plan::membership::{GroupReader, Membership, PatientScope};
use crate::plan::scope_changes::{ScopeAt, ScopeChanges, ScopeComparison, ScopeSide, is_met};
use crate::plan::supporting::{ReferenceSet, SupportingSets};
use crate::request::kick_off::ExportLevel;
use crate::request::parameters::ExportParameters;

/// Number of references in an OperationOutcome about resources that have left an export.
const NAMED_TOGETHER: usize = 100;

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
    /// `true` if the Group, or a nested one, was excluded at `_since`, so that nothing is known about the
    /// members who left it before.
    pub was_unknown: bool,
    /// The candidates of searches, for the types whose candidates are read ([`Job::indexed_types`]), and the
    /// Provenance of the resources of a Group's members.
    pub candidates: ListedResources,
    /// Resources that left or entered the export since `_since`.
    pub scope: ScopeChanges,
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
    Main {
        kind: usize,
        start: ExportCursor,
    },
    /// Following references from the supporting resources that are already known. The search repeats in
    /// rounds until a round finds no new reference. `kind` is an index into the types of the job, `after` is
    /// the last id that was read, and `known` is the number of known references when the round began.
    Round {
        kind: usize,
        after: Option<String>,
        known: usize,
    },
    Done,
}

impl ExportPlan {
    /// Prepares the selection of a job. An increment that has supporting resources needs them; all other jobs
    /// search them while they write.
    pub async fn of(
        job: &Job,
        store: &Store,
        reading: &GroupReader,
        supporting: Option<SupportingSets>,
    ) -> Result<Self, GroupError> {
        let filters = read_filters(&job.parameters, &reading.fhir_base, job.transaction_time)?;
        let membership = Membership::of(job, store, reading).await?;
        let scope = scope_changes(job, store, &filters, &membership, supporting.as_ref()).await?;
        let Membership { patients, joiners, leavers, excluded, was_unknown, .. } = membership;
        let mut changes = match job.parameters.since {
            Some(since) => ListedResources::changed_since(store, since, job.seq()).await?,
            None => None,
        };
        if let Some(list) = &mut changes {
            list.add(&scope.entered);
            if !list.add_patients(store, &joiners, &job.kinds, job.seq()).await? {
                changes = None;
            }
        }
        let mut candidates = ListedResources::candidates(store, &filters, &job.indexed_types).await?;
        // The changes since a time take precedence, and are few.
        if let (PatientScope::Members(members), None) = (&patients, &changes)
            && let Some(ids) = provenance_of_members(store, job, members).await?
        {
            candidates.set("Provenance", ids);
        }
        let supporting =
            supporting.map(|sets| SupportingReferences { references: sets.now, stage: CollectStage::Done });
        let (fhir_base, supporting) = (reading.fhir_base.clone(), Mutex::new(supporting.unwrap_or_default()));
        Ok(Self {
            patients,
            filters,
            fhir_base,
            changes,
            joiners,
            leavers,
            excluded,
            was_unknown,
            candidates,
            scope,
            supporting,
        })
    }

    /// The notes about the export for its client: omitted parameters, members of the Group that are not
    /// exported, and Patients who have left the Group since `_since`.
    pub fn notes(&self, job: &Job) -> Vec<Issue> {
        let omitted = job.parameters.notes.iter();
        let omitted = omitted.map(|note| Issue::new(Severity::Warning, IssueCode::NotSupported, note));
        let mut texts: Vec<String> = self.excluded.iter().map(ToString::to_string).collect();
        if self.was_unknown {
            texts.push(
                "the Group was inactive or could not be read at the time of _since, so that this increment does not list the Patients who left it before; to update a copy, export the Group without _since".to_owned(),
            );
        }
        // Patients whose resources are listed under `deleted` need no further words.
        if job.group_leavers == GroupLeavers::Outcome {
            texts.extend(self.leavers.iter().map(|id| {
                format!(
                    "Patient/{id} is no longer a member of the Group; remove its resources from your copy, unless they are also in the compartment of a member"
                )
            }));
            let absent = self.scope.named.iter();
            let absent = absent.flat_map(|(kind, ids)| ids.iter().map(move |id| format!("{kind}/{id}")));
            texts.extend(absent.collect::<Vec<_>>().chunks(NAMED_TOGETHER).map(|references| {
                format!(
                    "no longer in this export, because they belong to other patients, match no search, or are not referred to any more: {}; remove them from your copy",
                    references.join(", ")
                )
            }));
        }
        let information = |text| Issue::new(Severity::Information, IssueCode::Informational, text);
        omitted.chain(texts.into_iter().map(information)).collect()
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
        is_met(&self.filters, kind, resource)
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

/// The resources that left or entered the export since `_since`. An export of everything without a search,
/// and without resources that depend on others, has none.
async fn scope_changes(
    job: &Job,
    store: &Store,
    filters: &[TypeFilter],
    membership: &Membership,
    supporting: Option<&SupportingSets>,
) -> Result<ScopeChanges, GroupError> {
    let depends = supporting.is_some() || job.has_associated_provenance();
    let is_limited = job.level != ExportLevel::System || !filters.is_empty() || depends;
    let Some(since) = job.parameters.since.filter(|_| is_limited && !membership.lacks_groups) else {
        return Ok(ScopeChanges::default());
    };
    // Leavers are either named as Patients, or their resources are listed one by one.
    let (no_patients, lists) = (GroupMembers::default(), job.group_leavers == GroupLeavers::Deleted);
    let (listed, named) = match lists {
        true => (&membership.leavers, &no_patients),
        false => (&no_patients, &membership.leavers),
    };
    let now = membership.patients.at_one_time();
    let before =
        membership.before.as_ref().map_or_else(|| membership.patients.at_one_time(), ScopeAt::Members);
    let before = ScopeSide {
        patients: before,
        seq: store.seq_at(since).await?,
        supporting: supporting.map(|sets| &sets.before),
    };
    let now = ScopeSide { patients: now, seq: job.seq(), supporting: supporting.map(|sets| &sets.now) };
    let joiners = &membership.joiners;
    ScopeComparison { store, job, filters, before, now, lists, joiners, named }.run(listed, supporting).await
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
