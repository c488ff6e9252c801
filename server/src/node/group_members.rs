//! The Patients that a client with `groups` may access: the current members of its Groups, cached until one of the
//! Groups or of their nested Groups changes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bulk::{Bulk, GroupError};
use jiff::{SignedDuration, Timestamp};
use store::{Seq, Store, StoreError, Versions as _};

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
    /// Ids of the Groups, including nested and missing ones; sorted.
    groups: Arc<[String]>,
    /// The list contains the changes of these Groups up to this number.
    seq: Seq,
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
        let found = self.lookup(groups).filter(|list| now.duration_since(list.read) < MAX_AGE);
        let current = match found {
            Some(list) => list.if_unchanged(store).await?,
            None => None,
        };
        let list = match current {
            Some(list) => list,
            None => read_members(groups, store, bulk, now).await?,
        };
        let compartments = Arc::clone(&list.compartments);
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        if lists.len() >= MAX_LISTS && !lists.contains_key(groups) {
            lists.clear();
        }
        lists.insert(groups.to_vec(), list);
        Ok(compartments)
    }

    fn lookup(&self, groups: &[String]) -> Option<MemberList> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner).get(groups).cloned()
    }
}

impl MemberList {
    /// Returns the list with the number up to which its Groups are unchanged. Returns `None` if one of them or many other
    /// Groups have changed.
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
    let (mut all, mut compartments) = (groups.to_vec(), Vec::new());
    for group in groups {
        match bulk.members(group, seq, now).await {
            Ok((members, read)) => {
                compartments.extend(members.iter().map(|id| format!("Patient/{id}")));
                all.extend(read);
            }
            Err(GroupError::NoGroup(_)) => {}
            Err(error) => return Err(error),
        }
    }
    for list in [&mut all, &mut compartments] {
        list.sort_unstable();
        list.dedup();
    }
    Ok(MemberList { groups: all.into(), seq, read: now, compartments: compartments.into() })
}
