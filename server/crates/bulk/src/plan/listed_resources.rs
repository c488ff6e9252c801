//! Exports that read listed resources instead of scanning types: the resources that changed after `_since`,
//! read from the change feed of the store, the resources of Patients who have joined a Group since, and the
//! candidates of `_typeFilter`, read from the search index.
//! Such an export costs as much as its changes or candidates, and not as much as a scan of the store.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;
use resources::filter::TypeFilter;
use store::{PageLimit, ResourceKey, ScanOptions, Seq, Store, StoreError, Versions as _};

use crate::group::GroupMembers;

/// Maximum number of changes that are collected. An export with more scans the types.
const MAX_CHANGES: u64 = 100_000;
/// Number of changes in one read.
const PAGE: usize = 5_000;

/// Maximum number of candidates of a search that are collected. With more, the type is scanned.
const MAX_CANDIDATES: usize = 10_000;
/// Maximum number of index entries that a kick-off reads for all its searches. Types whose searches remain
/// are scanned.
const MAX_ENTRIES: usize = 10 * MAX_CANDIDATES;
/// More resources than a type has.
const MAX_RESOURCES: usize = 1 << 31;

/// Ids of resources that may be exported, by type, sorted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ListedResources {
    ids: HashMap<String, Vec<String>>,
}

impl ListedResources {
    /// Returns those of the types whose searches the search index limits to few candidates. The answer can
    /// change with later writes, so a job stores it: the types of a resumed job must be read in the same
    /// order.
    pub async fn indexed_types(
        store: &Store,
        filters: &[TypeFilter],
        kinds: &[String],
    ) -> Result<Vec<String>, StoreError> {
        let (mut indexed, mut entries) = (Vec::new(), MAX_ENTRIES);
        for kind in kinds {
            let searches: Vec<_> = filters.iter().filter(|filter| filter.kind == kind).collect();
            if !searches.is_empty()
                && TypeFilter::candidates(&searches, store, MAX_CANDIDATES, &mut entries).await?.is_some()
            {
                indexed.push(kind.clone());
            }
        }
        Ok(indexed)
    }

    /// Collects the candidates of the searches of these types. The index contains the terms of all versions,
    /// so a resource that matches at the snapshot is a candidate whatever was written since.
    pub async fn candidates(
        store: &Store,
        filters: &[TypeFilter],
        kinds: &[String],
    ) -> Result<Self, StoreError> {
        let mut ids = HashMap::new();
        for kind in kinds {
            let searches: Vec<_> = filters.iter().filter(|filter| filter.kind == kind).collect();
            // There are more candidates than at the kick-off if resources were written since.
            let (mut limit, mut entries) = (MAX_CANDIDATES, usize::MAX);
            let candidates = loop {
                match TypeFilter::candidates(&searches, store, limit, &mut entries).await? {
                    Some(list) => break list,
                    None if limit > MAX_RESOURCES => {
                        let what =
                            format!("an export reads the candidates of {kind}, but its searches have none");
                        return Err(StoreError::Corrupt { what });
                    }
                    None => limit *= 4,
                }
            };
            ids.insert(kind.clone(), candidates);
        }
        Ok(Self { ids })
    }

    /// Lists the resources of a type, whose ids are sorted.
    pub fn set(&mut self, kind: &str, ids: Vec<String>) {
        self.ids.insert(kind.to_owned(), ids);
    }

    /// `true` if the resources of a type are listed, even if there are none.
    pub fn has(&self, kind: &str) -> bool {
        self.ids.contains_key(kind)
    }

    /// Collects the resources with a version after `since` and at or before the snapshot `until`. Returns
    /// `None` if there are too many. The result is always the same, so a resumed job reads the same
    /// resources.
    pub async fn changed_since(
        store: &Store,
        since: Timestamp,
        until: Seq,
    ) -> Result<Option<Self>, StoreError> {
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

    pub fn add(&mut self, others: &BTreeMap<String, BTreeSet<String>>) {
        for (kind, others) in others {
            let ids = self.ids.entry(kind.clone()).or_default();
            ids.extend(others.iter().cloned());
            ids.sort_unstable();
            ids.dedup();
        }
    }

    /// Adds all resources of some Patients and their Provenance, of these types. Returns `false` if there are
    /// too many; the list is then incomplete.
    pub async fn add_patients(
        &mut self,
        store: &Store,
        patients: &GroupMembers,
        kinds: &[String],
        seq: Seq,
    ) -> Result<bool, StoreError> {
        let mut added = 0;
        for patient in patients.iter() {
            let compartment = format!("Patient/{patient}");
            for kind in kinds {
                let mut after: Option<String> = None;
                loop {
                    let limit = PageLimit { count: 500, ..PageLimit::default() };
                    let scan = ScanOptions::at(seq).limit(limit).after(after.as_deref());
                    let page = store.scan_compartment(&compartment, kind, scan).await?;
                    added += page.versions.len() as u64;
                    if added > MAX_CHANGES {
                        return Ok(false);
                    }
                    for version in page.versions {
                        if kinds.iter().any(|kind| kind == "Provenance") {
                            added += self.add_provenance(store, &version.key, seq).await?;
                        }
                        self.ids.entry(kind.clone()).or_default().push(version.key.id);
                    }
                    after = page.next;
                    if after.is_none() {
                        break;
                    }
                }
            }
        }
        for ids in self.ids.values_mut() {
            ids.sort_unstable();
            ids.dedup();
        }
        Ok(true)
    }

    /// Adds the Provenance of a resource, and returns their number.
    async fn add_provenance(
        &mut self,
        store: &Store,
        target: &ResourceKey,
        seq: Seq,
    ) -> Result<u64, StoreError> {
        let (mut added, mut after) = (0, None::<String>);
        loop {
            let scan = ScanOptions::at(seq).after(after.as_deref());
            let page = store.scan_compartment(&target.to_string(), "Provenance", scan).await?;
            added += page.versions.len() as u64;
            let ids = page.versions.into_iter().map(|version| version.key.id);
            self.ids.entry("Provenance".to_owned()).or_default().extend(ids);
            after = page.next;
            if after.is_none() {
                return Ok(added);
            }
        }
    }

    /// Up to `count` ids of a type after an id, sorted.
    pub fn after(&self, kind: &str, after: Option<&str>, count: usize) -> &[String] {
        let ids = self.ids.get(kind).map_or(&[][..], Vec::as_slice);
        let start = after.map_or(0, |after| ids.partition_point(|id| id.as_str() <= after));
        &ids[start..ids.len().min(start + count)]
    }
}

#[cfg(test)]
mod tests {
    use store::{ResourceDraft, VersionWrite};

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
        let changes = ListedResources::changed_since(&store, since.time, until.seq).await.unwrap().unwrap();
        assert_eq!(changes.after("Basic", None, 9), ["000001", "000003"]);
        assert_eq!(changes.after("Basic", None, 1), ["000001"]);
        assert_eq!(changes.after("Basic", Some("000001"), 9), ["000003"]);
        assert_eq!(changes.after("Group", None, 9), ["000007"]);
        assert!(changes.after("Patient", None, 9).is_empty());

        write(&store, "Basic", 0..MAX_CHANGES).await;
        let many = ListedResources::changed_since(&store, until.time, Seq::LATEST).await.unwrap();
        assert_eq!(many, None);
    }

    async fn put_observations(
        resources: &resources::Resources,
        ids: impl Iterator<Item = usize>,
        code: &str,
    ) {
        for id in ids {
            let body = format!(
                r#"{{"resourceType":"Observation","id":"{id}","status":"final","code":{{"coding":[{{"code":"{code}"}}]}}}}"#
            );
            resources
                .update("Observation", &id.to_string(), body.as_bytes(), None, Timestamp::UNIX_EPOCH)
                .await
                .unwrap();
        }
    }

    #[tokio::test]
    async fn candidates_contain_all_matches_at_the_snapshot_however_many_are_written_later() {
        let store = Store::memory();
        let resources = resources::Resources::at(store.clone(), "https://s.example");
        let filters = |texts: &[&str]| -> Vec<TypeFilter> {
            let read =
                |text: &&str| TypeFilter::read(text, "https://s.example", Timestamp::UNIX_EPOCH).unwrap();
            texts.iter().map(read).collect()
        };
        let kinds = ["Observation".to_owned(), "Patient".to_owned()];
        let indexed = async |texts: &[&str]| {
            ListedResources::indexed_types(&store, &filters(texts), &kinds).await.unwrap()
        };
        put_observations(&resources, 0..3, "a").await;
        assert_eq!(indexed(&["Observation?code=a"]).await, ["Observation"]);
        assert_eq!(indexed(&["Observation?code=a&status:not=final", "Patient?_id=p"]).await, kinds);
        // A search that the index does not limit, alone or as an alternative.
        assert!(indexed(&["Observation?code:not=a"]).await.is_empty());
        assert!(indexed(&["Observation?code=a", "Observation?code:missing=true"]).await.is_empty());
        assert!(indexed(&[]).await.is_empty());

        put_observations(&resources, 0..3, "b").await;
        put_observations(&resources, 3..=MAX_CANDIDATES, "a").await;
        assert!(indexed(&["Observation?code=a"]).await.is_empty());
        let searches = filters(&["Observation?code=a"]);
        let resources = ListedResources::candidates(&store, &searches, &kinds[..1]).await.unwrap();
        assert_eq!(resources.after("Observation", None, usize::MAX / 2).len(), MAX_CANDIDATES + 1);
        assert!(resources.has("Observation") && !resources.has("Patient"));

        // Ten parameters with too many candidates use up the entries of a kick-off.
        let long = |count: usize| {
            let parameters: Vec<String> = (0..count).map(|n| format!("code=a,x{n}")).collect();
            format!("Observation?{}", parameters.join("&"))
        };
        assert_eq!(indexed(&[&long(9), "Patient?gender=male"]).await, ["Patient"]);
        assert!(indexed(&[&long(10), "Patient?gender=male"]).await.is_empty());
    }
}
