//! The Patients that a client with `groups` may access: the current members of its Groups, cached until one
//! of the Groups or of their nested Groups changes, or a membership ends by its period.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bulk::{Bulk, GroupError};
use jiff::Timestamp;
use resources::PatientSet;
use store::{Seq, Store, StoreError, Versions as _};

/// Maximum number of lists, one for each set of Groups.
const MAX_LISTS: usize = 100;

/// Lists of members, by the Groups that they were read from.
#[derive(Default)]
pub struct GroupMembers {
    lists: Mutex<HashMap<Vec<String>, MemberList>>,
}

#[derive(Clone)]
struct MemberList {
    /// Ids of the Groups, including nested and missing ones; sorted.
    groups: Arc<[String]>,
    /// The list contains the changes of these Groups up to this number.
    seq: Seq,
    /// Time at which a membership ends.
    until: Option<Timestamp>,
    patients: Arc<PatientSet>,
}

impl GroupMembers {
    /// The current members of these Groups. A Group that is missing has no members.
    ///
    /// # Errors
    /// [`GroupError`] if a Group cannot be read.
    pub async fn patients(
        &self,
        groups: &[String],
        store: &Store,
        bulk: &Bulk,
        now: Timestamp,
    ) -> Result<Arc<PatientSet>, GroupError> {
        let cached = self.lookup(groups).filter(|list| list.until.is_none_or(|until| now < until));
        let current = match cached {
            Some(list) => list.if_unchanged(store).await?,
            None => None,
        };
        let list = match current {
            Some(list) => list,
            None => read_members(groups, store, bulk, now).await?,
        };
        let patients = Arc::clone(&list.patients);
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        if lists.len() >= MAX_LISTS && !lists.contains_key(groups) {
            lists.clear();
        }
        lists.insert(groups.to_vec(), list);
        Ok(patients)
    }

    fn lookup(&self, groups: &[String]) -> Option<MemberList> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner).get(groups).cloned()
    }
}

impl MemberList {
    /// The list with the number up to which its Groups are unchanged. Returns `None` if one of them or many
    /// other Groups have changed.
    async fn if_unchanged(mut self, store: &Store) -> Result<Option<Self>, StoreError> {
        const PAGE: usize = 100;
        // The changes up to this number are visible to the read that follows.
        let heard = store.heard_seq();
        let changes = store.changes_of(&["Group"], self.seq, PAGE).await?;
        let has_changed = changes.iter().any(|change| self.groups.binary_search(&change.key.id).is_ok());
        if has_changed || changes.len() == PAGE {
            return Ok(None);
        }
        let last = changes.last().map_or(self.seq, |last| last.seq);
        self.seq = last.max(heard).max(self.seq);
        Ok(Some(self))
    }
}

async fn read_members(
    groups: &[String],
    store: &Store,
    bulk: &Bulk,
    now: Timestamp,
) -> Result<MemberList, GroupError> {
    let seq = store.last_seq().await?;
    let (mut all, mut patients, mut until) = (groups.to_vec(), Vec::new(), None::<Timestamp>);
    for group in groups {
        match bulk.members(group, seq, now).await {
            Ok(current) => {
                patients.extend(current.members.iter().map(|id| format!("Patient/{id}")));
                all.extend(current.groups);
                until = until.into_iter().chain(current.until).min();
            }
            Err(GroupError::NoGroup(_)) => {}
            Err(error) => return Err(error),
        }
    }
    all.sort_unstable();
    all.dedup();
    Ok(MemberList { groups: all.into(), seq, until, patients: Arc::new(PatientSet::new(patients)) })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bulk::{BulkOptions, FileLocation, GuideVersion, InFlight};
    use jiff::SignedDuration;
    use store::space::DiskSpace;
    use store::{ResourceDraft, ResourceKey, VersionWrite};

    use super::*;
    use crate::clock::Clock;

    fn open_bulk(store: &Store, folder: &std::path::Path) -> Bulk {
        let options = BulkOptions {
            files: FileLocation::Folder { disk: DiskSpace::of(folder), path: folder.to_owned() },
            fhir_base: "https://s.example/fhir/R4".to_owned(),
            retention: Duration::MAX,
            lease: SignedDuration::from_secs(60),
            guide: GuideVersion::default(),
            nested_groups: true,
            supporting: false,
            group_leavers: bulk::GroupLeavers::default(),
            open_downloads: 1,
            file_size: 1,
            poll_limit: None,
            signing: None,
            in_flight: InFlight::default(),
        };
        Bulk::open(store.clone(), options, Clock::system().for_bulk()).unwrap()
    }

    #[tokio::test]
    async fn a_membership_ends_at_the_end_of_its_period() {
        let (store, folder) = (Store::memory(), tempfile::tempdir().unwrap());
        let bulk = open_bulk(&store, folder.path());
        let now: Timestamp = "2026-01-31T12:00:00Z".parse().unwrap();
        let put = |id: &str, members: &str| {
            let (start, middle) = (r#"{"meta":{"versionId":""#, r#"","lastUpdated":""#);
            let bytes =
                format!(r#"{start}{middle}"}},"resourceType":"Group","member":[{members}]}}"#).into_bytes();
            let (version_at, updated_at) = (start.len(), start.len() + middle.len());
            let draft = ResourceDraft { bytes, version_at, updated_at };
            VersionWrite::put(ResourceKey::new("Group", id), draft, Vec::new())
        };
        let member = |reference: &str, end: &str| {
            format!(r#"{{"entity":{{"reference":"{reference}"}},"period":{{"end":"{end}"}}}}"#)
        };
        let inner = put("inner", &member("Patient/b", "2026-01-31T12:00:05Z"));
        let members =
            [member("Patient/a", "2026-02-01T00:00:00Z"), member("Group/inner", "2026-01-31T12:00:09Z")];
        let outer = put("outer", &members.join(","));
        for group in [inner, outer] {
            store.commit(vec![group], now).await.unwrap();
        }
        let lists = GroupMembers::default();
        let members_at = async |after_ms: i64| {
            let now = now + SignedDuration::from_millis(after_ms);
            lists.patients(&["outer".to_owned()], &store, &bulk, now).await.unwrap().join(" ")
        };
        for (after_ms, expected) in
            [(0, "Patient/a Patient/b"), (4_999, "Patient/a Patient/b"), (5_000, "Patient/a")]
        {
            assert_eq!(members_at(after_ms).await, expected, "after {after_ms} ms");
        }
        assert_eq!(members_at(24 * 60 * 60 * 1_000).await, "");
    }
}
