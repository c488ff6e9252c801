//! Exports and erasures: an erasure leaves nothing that the deletions of an increment could name, and an
//! earlier export may contain what was erased.

use jiff::Timestamp;
use store::{ErasureRecord, Store, StoreError, Versions as _};

use crate::group::GroupError;
use crate::job::Job;
use crate::plan::membership::GroupReader;
use crate::request::kick_off::{ExportLevel, KickOffError};

/// Checks that no erasure since `_since` concerns an export. Called after the snapshot was taken, because the
/// record of an erasure precedes it. The reason does not name the record.
pub(crate) async fn check_erasures(
    job: &Job,
    store: &Store,
    reading: &GroupReader,
) -> Result<(), KickOffError> {
    let Some(since) = job.parameters.since else { return Ok(()) };
    for erasure in store.erasures().await?.iter().filter(|erasure| erasure.concerns(since)) {
        if may_contain(job, store, reading, erasure, since).await? {
            let reason = format!(
                "{since} is before {}, when records were erased that the deletions of an increment cannot name; export without \
                 _since, and replace all earlier files",
                erasure.time
            );
            return Err(KickOffError::Parameter { name: "_since".to_owned(), reason });
        }
    }
    Ok(())
}

/// `true` if an export may contain resources that were erased later: those of its snapshot, and those of its
/// snapshot at `_since`, whose deletion it may report.
///
/// # Errors
/// Returns [`StoreError`] if the store cannot be read.
pub(crate) async fn may_contain_erased(
    job: &Job,
    store: &Store,
    fhir_base: &str,
    erasure: &ErasureRecord,
) -> Result<bool, StoreError> {
    // More members than an export without nested Groups has.
    let reading = GroupReader { fhir_base: fhir_base.to_owned(), nested_groups: true };
    for time in [Some(job.transaction_time), job.parameters.since].into_iter().flatten() {
        if may_contain(job, store, &reading, erasure, time).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `true` if the export at a time may contain resources that were erased later. The record of a Patient has
/// only resources that belong to no other one, so that an export of others never has them.
async fn may_contain(
    job: &Job,
    store: &Store,
    reading: &GroupReader,
    erasure: &ErasureRecord,
    time: Timestamp,
) -> Result<bool, StoreError> {
    let Some((kind, id)) = erasure.resource.split_once('/') else { return Ok(true) };
    if kind != "Patient" {
        // The members of an erased Group, or of one that contained it, are not known any more.
        let is_of_groups = kind == "Group" && matches!(job.level, ExportLevel::Group(_));
        let is_exported = job.parameters.supporting || job.kinds.iter().any(|exported| exported == kind);
        return Ok(is_of_groups || is_exported);
    }
    if let Some(patients) = &job.parameters.patients
        && !patients.iter().any(|patient| patient == id)
    {
        return Ok(false);
    }
    let ExportLevel::Group(group) = &job.level else { return Ok(true) };
    let seq = store.seq_at(time).await?;
    match reading.current_members(store, group, seq, time).await {
        Ok(current) => Ok(current.lacks_groups() || current.members.position(id).is_some()),
        Err(GroupError::NoGroup(_)) => Ok(false),
        Err(GroupError::Bad(_)) => Ok(true),
        Err(GroupError::Store(error)) => Err(error),
    }
}
