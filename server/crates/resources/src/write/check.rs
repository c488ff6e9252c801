//! Compares the tables of a store with its resources.

use std::collections::{BTreeSet, HashMap};

use store::{
    IndexEntry, IndexLookup, IndexRange, IndexTerm, PageLimit, ResourceKey, ScanOptions, Seq, Store,
    StoreError, Version, Versions as _,
};

use crate::body::references;
use crate::write::stored::replayed;

/// Number of versions that are compared at a time.
const PAGE: PageLimit = PageLimit { count: 200, bytes: 1 << 20 };
/// Maximum number of defects that are named.
const MAX_NAMED: usize = 20;

/// The result of a comparison.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct StoreCheck {
    /// Number of versions, with tombstones.
    pub versions: u64,
    /// Number of resources that are not deleted.
    pub resources: u64,
    /// Versions whose content is not a resource, or that the search index does not list under one of their
    /// terms.
    pub defects: u64,
    /// The first defects.
    pub named_defects: Vec<String>,
    /// Number of references to a resource of this server that does not exist. They are not defects: FHIR
    /// permits them.
    pub dangling_references: u64,
    /// The first of them.
    pub named_dangling: Vec<String>,
}

impl StoreCheck {
    fn add_defect(&mut self, text: String) {
        self.defects += 1;
        if self.named_defects.len() < MAX_NAMED {
            self.named_defects.push(text);
        }
    }
}

/// Reads all versions of a store, and compares them with the change feed and the search index. Counts the
/// references of the newest versions that lead nowhere. `progress` receives the number of versions read.
///
/// # Errors
/// Returns [`StoreError::Corrupt`] if a version of the change feed is missing or cannot be decoded.
pub async fn check_store(
    store: &Store,
    fhir_base: &str,
    mut progress: impl FnMut(u64),
) -> Result<StoreCheck, StoreError> {
    let mut check = StoreCheck::default();
    let until = store.last_seq().await?;
    let mut last = Seq::ZERO;
    loop {
        let page = store.read_log(last, until, PAGE).await?;
        let Some(end) = page.last() else { break };
        last = end.seq;
        check.versions += page.len() as u64;
        check_index(store, page, &mut check).await?;
        progress(check.versions);
    }
    for kind in store.kinds(until).await? {
        let mut after = None::<String>;
        loop {
            let scan = ScanOptions::at(until).limit(PAGE).after(after.as_deref());
            let page = store.scan_kind(&kind, scan).await?;
            check.resources += page.versions.len() as u64;
            check_references(store, &page.versions, fhir_base, until, &mut check).await?;
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
    }
    Ok(check)
}

/// Looks up each version under each of its terms.
async fn check_index(store: &Store, page: Vec<Version>, check: &mut StoreCheck) -> Result<(), StoreError> {
    let (mut lookups, mut wanted) = (Vec::new(), Vec::new());
    for version in page {
        let (key, number) = (version.key.clone(), version.version);
        match replayed(version) {
            Ok(replayed) => {
                for term in replayed.terms {
                    lookups.push(lookup_of(&term, &key.id));
                    wanted.push((key.clone(), number));
                }
            }
            Err(error) => check.add_defect(format!("{key} version {number}: {error}")),
        }
    }
    let index_entries = store.index_entries(lookups).await?;
    let mut missing = BTreeSet::new();
    for (entries, (key, number)) in index_entries.iter().zip(&wanted) {
        if entries.first().is_none_or(|entry| entry.id != key.id) {
            missing.insert((key, number));
        }
    }
    for (key, number) in missing {
        check.add_defect(format!(
            "{key} version {number}: the search index does not list it under all its terms"
        ));
    }
    Ok(())
}

/// The lookup of one entry: of the first id of a term that is not before this one.
fn lookup_of(term: &IndexTerm, id: &str) -> IndexLookup {
    // The entry just before the id. Ids contain no byte below `-`, so that the predecessor of the last byte
    // is a character, and none from 127 on, so that nothing lies between the two.
    let (last, start) = id.as_bytes().split_last().expect("an id is not empty");
    let before = format!("{}{}\u{7f}", String::from_utf8_lossy(start), char::from(last - 1));
    let after = Some(IndexEntry { term: term.clone(), id: before });
    IndexLookup::first(IndexRange::Term(term.clone()), 1).after(after)
}

/// Counts references that lead nowhere.
async fn check_references(
    store: &Store,
    page: &[Version],
    fhir_base: &str,
    until: Seq,
    check: &mut StoreCheck,
) -> Result<(), StoreError> {
    let mut existing: HashMap<ResourceKey, bool> = HashMap::new();
    for version in page {
        let Some(body) = &version.body else { continue };
        for (kind, id) in references::local_targets(body, fhir_base) {
            let key = ResourceKey::new(kind, id);
            let exists = match existing.get(&key) {
                Some(exists) => *exists,
                None => {
                    let target = store.read(&key, until).await?;
                    let exists = target.is_some_and(|target| !target.is_deleted());
                    existing.insert(key.clone(), exists);
                    exists
                }
            };
            if !exists {
                check.dangling_references += 1;
                if check.named_dangling.len() < MAX_NAMED {
                    check.named_dangling.push(format!("{} refers to {key}", version.key));
                }
            }
        }
    }
    Ok(())
}
