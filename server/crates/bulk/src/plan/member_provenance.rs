//! Provenance of the resources of a Group's members, found from these resources by the compartments that are
//! named after targets. An export of a small Group thus does not read all Provenance of the server.

use std::sync::{Arc, Mutex, PoisonError};

use store::{
    LineScanRange, PageLimit, ResourceKey, ScanOptions, Store, StoreError, UpdatedRange, VersionHeader,
    Versions as _,
};

use crate::group::GroupMembers;
use crate::job::Job;

/// Number of Provenance resources, in all and for each member, that are read and filtered without a look at
/// the members' resources, because that is cheaper. A member has about a hundred resources, and a lookup of
/// the Provenance of one costs as much as reading and filtering two Provenance resources. A database looks up
/// many at once.
const FEW: usize = 64;
const FEW_PER_MEMBER: usize = 200;
const FEW_PER_MEMBER_IN_DATABASE: usize = 20;
/// Number of members from which all Provenance is read.
const MANY_MEMBERS: usize = 100_000;
/// Maximum number of ids in memory. With more, all Provenance is read.
const MAX_IDS: usize = 500_000;
/// Number of compartments that are read at once in a database.
const COMPARTMENTS: usize = 500;

/// The ids of the Provenance that may be exported with the members, sorted, or `None` if all Provenance is to
/// be read. The result depends on the snapshot only, so that a resumed job reads the same resources.
pub(crate) async fn provenance_of_members(
    store: &Store,
    job: &Job,
    members: &GroupMembers,
) -> Result<Option<Vec<String>>, StoreError> {
    if !job.kinds.iter().any(|kind| kind == "Provenance") || members.len() >= MANY_MEMBERS {
        return Ok(None);
    }
    let few_per_member = if store.is_shared() { FEW_PER_MEMBER_IN_DATABASE } else { FEW_PER_MEMBER };
    if is_at_most(store, job, FEW + few_per_member * members.len()).await? {
        return Ok(None);
    }
    let is_associated = job.parameters.provenance.is_some();
    let mut kinds = store.kinds(job.seq()).await?;
    kinds.retain(|kind| {
        let is_exported = !is_associated || job.kinds.contains(kind);
        kind != "Provenance" && job.has_compartments_of(kind) && is_exported
    });
    let lookup = MemberLookup { store, job };
    let mut ids = Vec::new();
    let compartments: Vec<String> = members.iter().map(|id| format!("Patient/{id}")).collect();
    for members in compartments.chunks(COMPARTMENTS) {
        for kind in &kinds {
            let resources = lookup.ids_in(members, kind).await?;
            let targets: Vec<_> =
                resources.iter().map(|id| ResourceKey::new(kind, &**id).to_string()).collect();
            for targets in targets.chunks(COMPARTMENTS) {
                ids.extend(lookup.ids_in(targets, "Provenance").await?);
            }
        }
        ids.sort_unstable();
        ids.dedup();
        if ids.len() > MAX_IDS {
            return Ok(None);
        }
    }
    Ok(Some(ids))
}

/// Returns whether the store has at most `most` Provenance resources, deleted or not.
async fn is_at_most(store: &Store, job: &Job, most: usize) -> Result<bool, StoreError> {
    let (mut count, mut after) = (0, None::<String>);
    loop {
        let limit = PageLimit { count: most + 1 - count, bytes: 1 << 20 };
        let scan = ScanOptions::at(job.seq()).limit(limit).after(after.as_deref());
        let page = store.scan_kind("Provenance", ScanOptions { deleted: true, ..scan }).await?;
        count += page.versions.len();
        after = page.next;
        if after.is_none() || count > most {
            return Ok(count <= most);
        }
    }
}

struct MemberLookup<'a> {
    store: &'a Store,
    job: &'a Job,
}

impl MemberLookup<'_> {
    /// The ids of the resources of a type in some compartments.
    async fn ids_in(&self, compartments: &[String], kind: &str) -> Result<Vec<String>, StoreError> {
        // Only exports since a time contain deletions. A database reads many compartments with one statement.
        match self.store.is_shared() && self.job.parameters.since.is_none() {
            true => self.ids_at_once(compartments, kind).await,
            false => self.ids_with_deleted(compartments, kind).await,
        }
    }

    async fn ids_at_once(&self, compartments: &[String], kind: &str) -> Result<Vec<String>, StoreError> {
        let ids: Arc<Mutex<Vec<String>>> = Arc::default();
        let collected = Arc::clone(&ids);
        let collect = move |version: &VersionHeader<'_>| {
            collected.lock().unwrap_or_else(PoisonError::into_inner).push(version.id.to_owned());
            false
        };
        let range = LineScanRange::Compartments(compartments.to_vec());
        let scan = ScanOptions::at(self.job.seq());
        self.store.scan_lines(kind, range, scan, UpdatedRange::default(), collect, |_| true).await?;
        let ids = std::mem::take(&mut *ids.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(ids)
    }

    async fn ids_with_deleted(&self, compartments: &[String], kind: &str) -> Result<Vec<String>, StoreError> {
        let mut ids = Vec::new();
        for compartment in compartments {
            let mut after: Option<String> = None;
            loop {
                let scan = ScanOptions::at(self.job.seq()).after(after.as_deref());
                let scan = ScanOptions { deleted: true, ..scan };
                let page = self.store.scan_compartment(compartment, kind, scan).await?;
                ids.extend(page.versions.into_iter().map(|version| version.key.id));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(ids)
    }
}
