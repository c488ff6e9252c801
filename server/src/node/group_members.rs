//! The Patients that a client with `groups` may access: the current members of its Groups, cached until one of the
//! Groups changes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bulk::{Bulk, GroupError};
use jiff::{SignedDuration, Timestamp};
use store::{ResourceKey, Seq, Store, StoreError, Versions as _};

/// Maximum age of a list: a membership can end by its period, without a change of the Group.
const MAX_AGE: SignedDuration = SignedDuration::from_secs(60);
/// Maximum number of lists, one for each set of Groups.
const MAX_LISTS: usize = 100;

/// Lists of members, by the Groups that they were read from.
#[derive(Default)]
pub struct GroupMembers {
    lists: Mutex<HashMap<Vec<String>, MemberList>>,
}

#[derive(Clone)]
struct MemberList {
    /// Versions of the Groups, 0 for one that is missing.
    versions: Vec<u64>,
    read: Timestamp,
    /// `Patient/p1`, …; sorted.
    compartments: Arc<[String]>,
}

impl GroupMembers {
    /// Returns the compartments of the current members of these Groups, sorted. A Group that is missing has no members.
    ///
    /// # Errors
    /// Returns [`GroupError`] if a Group cannot be read.
    pub async fn compartments(
        &self,
        groups: &[String],
        store: &Store,
        bulk: &Bulk,
        now: Timestamp,
    ) -> Result<Arc<[String]>, GroupError> {
        let versions = group_versions(groups, store).await?;
        if let Some(found) = self.lookup(groups, &versions, now) {
            return Ok(found);
        }
        let mut compartments = Vec::new();
        for group in groups {
            match bulk.members(group, now).await {
                Ok(members) => compartments.extend(members.iter().map(|id| format!("Patient/{id}"))),
                Err(GroupError::NoGroup(_)) => {}
                Err(error) => return Err(error),
            }
        }
        compartments.sort_unstable();
        compartments.dedup();
        let list = MemberList { versions, read: now, compartments: compartments.into() };
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        if lists.len() >= MAX_LISTS {
            lists.clear();
        }
        lists.insert(groups.to_vec(), list.clone());
        Ok(list.compartments)
    }

    fn lookup(&self, groups: &[String], versions: &[u64], now: Timestamp) -> Option<Arc<[String]>> {
        let lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let list = lists.get(groups)?;
        let is_current = list.versions == versions && now.duration_since(list.read) < MAX_AGE;
        is_current.then(|| Arc::clone(&list.compartments))
    }
}

async fn group_versions(groups: &[String], store: &Store) -> Result<Vec<u64>, StoreError> {
    let mut versions = Vec::with_capacity(groups.len());
    for group in groups {
        let found = store.read(&ResourceKey::new("Group", group), Seq::LATEST).await?;
        versions.push(found.map_or(0, |version| version.version));
    }
    Ok(versions)
}
