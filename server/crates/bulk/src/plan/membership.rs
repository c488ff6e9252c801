//! The Patients of an export: all, or the members of a Group at the snapshot and at `_since`.

use std::sync::Arc;

use jiff::Timestamp;
use store::{ResourceKey, Seq, Store, Versions as _};

use crate::group::{CurrentMembers, Excluded, Exclusion, GroupError, GroupMembers, MemberCollector};
use crate::job::Job;
use crate::plan::scope_changes::ScopeAt;
use crate::request::kick_off::ExportLevel;

/// Reads Groups with the settings of the server.
#[derive(Debug, Clone)]
pub(crate) struct GroupReader {
    /// Base URL of the FHIR interface.
    pub fhir_base: String,
    /// `true` if the members of nested Groups are included.
    pub nested_groups: bool,
}

/// A Group and its nested Groups, read at one time.
pub(crate) struct GroupsRead<'a> {
    members: MemberCollector<'a>,
    groups: Vec<String>,
    /// The reason why the Group itself has no members.
    pub exclusion: Option<Exclusion>,
}

impl GroupsRead<'_> {
    /// The members. Sorts them, which takes as long as the reading.
    pub fn into_members(self) -> CurrentMembers {
        CurrentMembers { exclusion: self.exclusion, ..self.members.finish(self.groups) }
    }
}

impl GroupReader {
    /// Reads a Group at a time, from the snapshot `seq`. A Group that contains itself is read once. A nested
    /// Group that does not exist has no members.
    pub async fn read(
        &self,
        store: &Store,
        id: &str,
        seq: Seq,
        time: Timestamp,
    ) -> Result<GroupsRead<'_>, GroupError> {
        let mut gathering = MemberCollector::new(&self.fhir_base, time);
        let (mut groups, mut exclusion) = (vec![id.to_owned()], None);
        let mut next = 0;
        while let Some(group) = groups.get(next) {
            let group_version = store.read(&ResourceKey::new("Group", group), seq).await?;
            match group_version.and_then(|version| version.body) {
                Some(body) => {
                    let added = gathering.add(group, &body).map_err(GroupError::Bad)?;
                    exclusion = if next == 0 { added } else { exclusion };
                }
                None if next == 0 => return Err(GroupError::NoGroup(id.to_owned())),
                None => {}
            }
            if !self.nested_groups {
                gathering.exclude_nested();
            }
            for group in gathering.take_nested() {
                if !groups.contains(&group) {
                    groups.push(group);
                }
            }
            next += 1;
        }
        Ok(GroupsRead { members: gathering, groups, exclusion })
    }

    /// The members of a Group at a time, as [`GroupReader::read`] reads them.
    pub async fn current_members(
        &self,
        store: &Store,
        id: &str,
        seq: Seq,
        time: Timestamp,
    ) -> Result<CurrentMembers, GroupError> {
        self.read(store, id, seq, time).await.map(GroupsRead::into_members)
    }
}

/// The patients whose resources are exported.
#[derive(Debug, Default)]
pub(crate) enum PatientScope {
    /// All resources, whether or not they are in a Patient compartment.
    #[default]
    All,
    /// Resources in the compartment of any Patient.
    Patients,
    /// Resources in the compartments of these Patients.
    Members(Arc<GroupMembers>),
}

impl PatientScope {
    /// The scope at one time.
    pub fn at_one_time(&self) -> ScopeAt<'_> {
        match self {
            Self::All => ScopeAt::All,
            Self::Patients => ScopeAt::Patients,
            Self::Members(members) => ScopeAt::Members(members),
        }
    }
}

/// The Patients of an export, and their changes since `_since`.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    pub patients: PatientScope,
    /// The members of the Group at `_since`.
    pub before: Option<GroupMembers>,
    /// The members who were not members then.
    pub joiners: GroupMembers,
    /// The Patients who were members then and no longer are.
    pub leavers: GroupMembers,
    /// The members that are not exported, by reason.
    pub excluded: Vec<Excluded>,
    /// `true` if the Group or a nested one is excluded, so that nothing is known about its members.
    pub lacks_groups: bool,
    /// `true` if this was so at `_since`.
    pub was_unknown: bool,
}

impl Membership {
    pub async fn of(job: &Job, store: &Store, reading: &GroupReader) -> Result<Self, GroupError> {
        let requested_ids = job.parameters.patients.as_ref();
        let ExportLevel::Group(id) = &job.level else {
            let patients = match (&job.level, requested_ids) {
                (ExportLevel::System, _) => PatientScope::All,
                (_, None) => PatientScope::Patients,
                (_, Some(ids)) => PatientScope::Members(Arc::new(ids.iter().collect())),
            };
            return Ok(Self { patients, ..Self::default() });
        };
        let current = reading.current_members(store, id, job.seq(), job.transaction_time).await?;
        let lacks_groups = current.lacks_groups();
        let exported = requested(requested_ids, current.members);
        let mut membership = Self { excluded: current.excluded, lacks_groups, ..Self::default() };
        if let Some((before, all_known)) = members_since(job, id, store, reading).await? {
            let before = requested(requested_ids, before);
            membership.joiners = exported.without(&before);
            // Nothing is known about the members of an excluded Group.
            membership.leavers =
                if lacks_groups { GroupMembers::default() } else { before.without(&exported) };
            membership.was_unknown = !lacks_groups && !all_known;
            membership.before = Some(before);
        }
        membership.patients = PatientScope::Members(Arc::new(exported));
        Ok(membership)
    }
}

/// The members whom a request asks for: those of its parameter `patient`, or all.
fn requested(patients: Option<&Vec<String>>, members: GroupMembers) -> GroupMembers {
    match patients {
        None => members,
        Some(patients) => patients.iter().filter(|id| members.position(id).is_some()).collect(),
    }
}

/// The members of a Group at `_since`, if the request has it, and whether all were known then. The history of
/// Groups is never removed, so that the members of any time can be read.
async fn members_since(
    job: &Job,
    group: &str,
    store: &Store,
    reading: &GroupReader,
) -> Result<Option<(GroupMembers, bool)>, GroupError> {
    let Some(since) = job.parameters.since else { return Ok(None) };
    let seq = store.seq_at(since).await?;
    match reading.current_members(store, group, seq, since).await {
        Ok(current) => {
            let all_known = !current.lacks_groups();
            Ok(Some((current.members, all_known)))
        }
        // No earlier export contained members of a Group that was missing or could not be read.
        Err(GroupError::NoGroup(_)) => Ok(Some((GroupMembers::default(), true))),
        Err(GroupError::Bad(_)) => Ok(Some((GroupMembers::default(), false))),
        Err(error) => Err(error),
    }
}
