//! Removes old backups.

use std::collections::HashSet;

use futures_util::TryStreamExt as _;
use jiff::{SignedDuration, Timestamp};
use object_store::ObjectStoreExt as _;

use crate::{BackupError, BackupLocation, Manifest};

/// Age from which a file that no backup names is removed. A younger one may belong to a backup that is being
/// made.
const UNNAMED_AGE: SignedDuration = SignedDuration::from_hours(24);

/// Removes the backups of a store, and of those whose place it takes, that are older than `keep`, and the
/// files that no backup names any more. A backup is kept as long as another one follows it, directly or not,
/// that is kept. The last full backup and those that follow it are always kept. Returns the ids of the
/// removed backups.
///
/// # Errors
/// Returns [`BackupError`] if the location cannot be read or an object not removed.
pub async fn remove_old(
    location: &BackupLocation,
    store_ids: &[String],
    keep: SignedDuration,
    now: Timestamp,
) -> Result<Vec<String>, BackupError> {
    let backups = location.backups().await?;
    let oldest = now - keep;
    let mut removed = Vec::new();
    // The newest comes first, so that a backup goes before the one that it follows.
    for chain in
        chains(backups.iter().filter(|backup| store_ids.contains(&backup.store_id))).iter().rev().skip(1)
    {
        if chain.iter().all(|backup| backup.time < oldest) {
            for backup in chain.iter().rev() {
                // Without its manifest it is no backup, so that an interrupted removal leaves none in part.
                let manifest = location.path(&Manifest::object(&backup.id));
                location.objects().delete(&manifest).await.map_err(location.failed("remove", &backup.id))?;
                location.remove(&backup.id).await?;
                removed.push(backup.id.clone());
            }
        }
    }
    let remaining = backups.iter().filter(|backup| !removed.contains(&backup.id));
    let names: HashSet<_> = remaining
        .flat_map(|backup| backup.files.iter().map(|file| file.object(backup.key_id.is_some())))
        .map(|object| location.path(&object))
        .collect();
    let failed = location.failed("remove", "files");
    let files: Vec<_> =
        location.objects().list(Some(&location.path("files"))).try_collect().await.map_err(&failed)?;
    let youngest = (now - UNNAMED_AGE).as_second();
    for file in files {
        if !names.contains(&file.location) && file.last_modified.timestamp() < youngest {
            location.objects().delete(&file.location).await.map_err(&failed)?;
        }
    }
    Ok(removed)
}

/// The full backups, each with those that follow it, the oldest first.
fn chains<'a>(backups: impl Iterator<Item = &'a Manifest>) -> Vec<Vec<&'a Manifest>> {
    let mut chains: Vec<Vec<&Manifest>> = Vec::new();
    for backup in backups {
        let follows = |chain: &&mut Vec<&Manifest>| {
            chain.iter().any(|earlier| backup.follows.as_ref() == Some(&earlier.id))
        };
        match chains.iter_mut().find(follows) {
            Some(chain) => chain.push(backup),
            None => chains.push(vec![backup]),
        }
    }
    chains
}
