//! The numbers of stored resources by type. Each is counted once and then follows the changes, so that
//! `_summary=count` of a whole type costs as much as the changes since the last time.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use store::{Seq, Store, StoreError, Versions as _};
use tokio::sync::Mutex;

/// Maximum number of changes that a number follows. With more, the type is counted again.
const MAX_CHANGES: u64 = 5_000;
/// Size of the bodies that are read at a time.
const READ_BYTES: usize = 512 * 1024;

/// A number of resources as of a sequence number.
#[derive(Debug, Clone, Copy)]
struct TypeCount {
    seq: Seq,
    count: u64,
}

/// The numbers that are known. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct TypeCounts(Arc<Mutex<HashMap<&'static str, TypeCount>>>);

impl TypeCounts {
    /// The number of resources of a type now.
    pub async fn of(&self, store: &Store, kind: &'static str) -> Result<u64, StoreError> {
        let (counts, store) = (Arc::clone(&self.0), store.clone());
        // The first count of a large type may take longer than a request may, and others wait for it.
        let counting = tokio::spawn(async move {
            let mut counts = counts.lock().await;
            let seq = store.last_seq().await?;
            let followed = match counts.get(kind) {
                Some(cached_count) => follow(&store, kind, *cached_count, seq).await?,
                None => None,
            };
            let count = match followed {
                Some(count) => count,
                None => store.count(kind, seq).await?,
            };
            counts.insert(kind, TypeCount { seq, count });
            Ok(count)
        });
        let task_error = |error: tokio::task::JoinError| StoreError::Engine {
            action: "count resources",
            reason: error.to_string(),
        };
        counting.await.map_err(task_error)?
    }
}

/// The number at a later sequence number, or `None` if it has to be counted again: there are too many
/// changes, or an erasure, which has a sequence number and no change.
async fn follow(
    store: &Store,
    kind: &'static str,
    cached: TypeCount,
    seq: Seq,
) -> Result<Option<u64>, StoreError> {
    let Some(between) = seq.0.checked_sub(cached.seq.0).filter(|between| *between <= MAX_CHANGES) else {
        return Ok(None);
    };
    if between == 0 {
        return Ok(Some(cached.count));
    }
    let mut changes = store.changes(cached.seq, between as usize).await?;
    changes.retain(|change| change.seq <= seq);
    if changes.len() as u64 != between {
        return Ok(None);
    }
    let of_type = changes.into_iter().filter(|change| change.key.kind == kind);
    let ids: BTreeSet<String> = of_type.map(|change| change.key.id).collect();
    let ids: Vec<String> = ids.into_iter().collect();
    let before = count_live(store, kind, &ids, cached.seq).await?;
    let now = count_live(store, kind, &ids, seq).await?;
    Ok((cached.count + now).checked_sub(before))
}

/// The number of these resources that exist at a sequence number.
async fn count_live(store: &Store, kind: &str, ids: &[String], seq: Seq) -> Result<u64, StoreError> {
    let (mut count, mut rest) = (0, ids);
    while !rest.is_empty() {
        let versions = store.read_many(kind, rest.to_vec(), seq, READ_BYTES).await?;
        count += versions.iter().flatten().filter(|version| !version.is_deleted()).count() as u64;
        rest = &rest[versions.len()..];
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;
    use crate::{ExpectedVersion, Resources};

    /// A write of a resource of two types: its number, and whether it is stored or deleted; or an erasure.
    #[derive(Debug, Clone)]
    enum Step {
        Put(bool, u8),
        Delete(bool, u8),
        Erase(u8),
        Count,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (any::<bool>(), 0..5u8).prop_map(|(is_basic, id)| Step::Put(is_basic, id)),
            2 => (any::<bool>(), 0..5u8).prop_map(|(is_basic, id)| Step::Delete(is_basic, id)),
            1 => (0..5u8).prop_map(Step::Erase),
            2 => Just(Step::Count),
        ]
    }

    async fn check(steps: &[Step]) {
        let resources = Resources::new(Store::memory());
        let (store, now) = (resources.store().clone(), Timestamp::UNIX_EPOCH);
        let counts = TypeCounts::default();
        let kind_of = |is_basic| if is_basic { "Basic" } else { "Flag" };
        for step in steps.iter().chain([&Step::Count]) {
            match step {
                Step::Put(is_basic, id) => {
                    let (kind, id) = (kind_of(*is_basic), id.to_string());
                    let body = format!(r#"{{"resourceType":"{kind}","id":"{id}"}}"#);
                    resources.update(kind, &id, body, ExpectedVersion::Anything, now).await.unwrap();
                }
                Step::Delete(is_basic, id) => {
                    drop(resources.delete(kind_of(*is_basic), &id.to_string(), None, now).await);
                }
                Step::Erase(id) => {
                    let key = store::ResourceKey::new("Basic", id.to_string());
                    if let Some(version) = store.read(&key, Seq::LATEST).await.unwrap() {
                        let erasure = store::Erasure { key, newest: version.version, terms: Vec::new() };
                        store.erase(vec![erasure]).await.unwrap();
                    }
                }
                Step::Count => {
                    for kind in ["Basic", "Flag"] {
                        let expected = store.count(kind, Seq::LATEST).await.unwrap();
                        assert_eq!(counts.of(&store, kind).await.unwrap(), expected, "{kind}");
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_kept_number_is_that_of_a_new_count(steps in proptest::collection::vec(step(), 0..30)) {
            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(check(&steps));
        }
    }
}
