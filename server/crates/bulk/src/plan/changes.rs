//! The resources that changed after `_since`, read from the change feed of the store. An incremental export therefore
//! costs as much as its changes, and not as much as a scan of the store.

use std::collections::HashMap;

use jiff::Timestamp;
use store::{Seq, Store, StoreError, Versions as _};

/// Maximum number of changes that are collected. An export with more scans the types.
const MAX_CHANGES: u64 = 100_000;
/// Number of changes in one read.
const PAGE: usize = 5_000;

/// Ids of the resources that changed, by type, sorted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ChangedResources {
    ids: HashMap<String, Vec<String>>,
}

impl ChangedResources {
    /// Collects the resources with a version after `since` and at or before the snapshot `until`. Returns `None` if
    /// there are too many. The result is always the same, so a resumed job reads the same resources.
    pub async fn since(store: &Store, since: Timestamp, until: Seq) -> Result<Option<Self>, StoreError> {
        let mut after = store.seq_at(since).await?;
        if until.0.saturating_sub(after.0) > MAX_CHANGES {
            return Ok(None);
        }
        let mut ids: HashMap<String, Vec<String>> = HashMap::new();
        loop {
            let changes = store.changes(after, PAGE).await?;
            let Some(last) = changes.last() else { break };
            after = last.seq;
            for change in changes.into_iter().take_while(|change| change.seq <= until) {
                ids.entry(change.key.kind).or_default().push(change.key.id);
            }
            if after >= until {
                break;
            }
        }
        for ids in ids.values_mut() {
            ids.sort_unstable();
            ids.dedup();
        }
        Ok(Some(Self { ids }))
    }

    /// Returns up to `count` ids of a type after an id, sorted.
    pub fn after(&self, kind: &str, after: Option<&str>, count: usize) -> &[String] {
        let ids = self.ids.get(kind).map_or(&[][..], Vec::as_slice);
        let start = after.map_or(0, |after| ids.partition_point(|id| id.as_str() <= after));
        &ids[start..ids.len().min(start + count)]
    }
}

#[cfg(test)]
mod tests {
    use store::{ResourceDraft, ResourceKey, VersionWrite};

    use super::*;

    async fn write(store: &Store, kind: &str, ids: impl Iterator<Item = u64>) {
        let put = |id: u64| {
            let draft = ResourceDraft { bytes: b"{}".to_vec(), version_at: 1, updated_at: 1 };
            VersionWrite::put(ResourceKey::new(kind, format!("{id:06}")), draft, Vec::new())
        };
        store.commit(ids.map(put).collect(), Timestamp::UNIX_EPOCH).await.unwrap();
    }

    #[tokio::test]
    async fn changes_between_two_snapshots_are_collected_unless_they_are_too_many() {
        let store = Store::memory();
        write(&store, "Basic", 0..2).await;
        let since = store.snapshot(Timestamp::UNIX_EPOCH).await.unwrap();
        write(&store, "Basic", [3, 1, 3].into_iter()).await;
        write(&store, "Group", 7..8).await;
        let until = store.snapshot(Timestamp::UNIX_EPOCH).await.unwrap();
        write(&store, "Basic", 8..9).await;
        let changes = ChangedResources::since(&store, since.time, until.seq).await.unwrap().unwrap();
        assert_eq!(changes.after("Basic", None, 9), ["000001", "000003"]);
        assert_eq!(changes.after("Basic", None, 1), ["000001"]);
        assert_eq!(changes.after("Basic", Some("000001"), 9), ["000003"]);
        assert_eq!(changes.after("Group", None, 9), ["000007"]);
        assert!(changes.after("Patient", None, 9).is_empty());

        write(&store, "Basic", 0..MAX_CHANGES).await;
        let many = ChangedResources::since(&store, until.time, Seq::LATEST).await.unwrap();
        assert_eq!(many, None);
    }
}
