//! Restores a store from backups.

use jiff::Timestamp;
use store::{Store, StoreMoment, Versions as _};

use crate::content::BackupContent;
use crate::receiver::Receiver;
use crate::succession::{StorePurpose, Succession};
use crate::{AttachmentTarget, BackupError, BackupLocation, Manifest, Progress, ProgressSink};

/// The backup or moment to restore.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RestoreSelection {
    /// Id of the backup. Without it, the last one.
    pub backup: Option<String>,
    /// Moment to which resources are restored, which may lie between two backups. Everything else is restored
    /// as of the last backup before it.
    pub at: Option<Timestamp>,
    /// Id of the store whose backups are considered. Without it, the location must have those of one store,
    /// or of stores that took the place of each other.
    pub store: Option<String>,
    /// Purpose of the restored store.
    pub purpose: StorePurpose,
    /// Beginnings of the keys of records that are not restored.
    pub left_out: &'static [&'static str],
}

/// The result of a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreReport {
    /// The backup whose ledger and files were restored.
    pub backup: Manifest,
    /// Time of the last version, if there is one.
    pub resources_until: Option<Timestamp>,
    /// Whether resources were restored to a later moment than the rest.
    pub is_between: bool,
    /// The numbers of what was restored.
    pub done: Progress,
}

/// The backups that a restore reads.
pub(crate) struct RestorePlan {
    /// The backup of the ledger and the files.
    pub backup: Manifest,
    pub content: BackupContent,
    is_between: bool,
}

impl RestorePlan {
    /// Decides which backups of a location are read.
    ///
    /// # Errors
    /// Returns [`BackupError::Refused`] if there is no such backup, or one that it follows is missing.
    pub fn new(
        location: &BackupLocation,
        backups: &[Manifest],
        selection: &RestoreSelection,
    ) -> Result<Self, BackupError> {
        let refusal = |text: String| Err(BackupError::Refused(text));
        let name = location.name();
        let is_of_store =
            |backup: &&Manifest| selection.store.as_ref().is_none_or(|store| backup.store_id == *store);
        let candidates: Vec<&Manifest> = backups.iter().filter(is_of_store).collect();
        let Some(last) = candidates.last() else {
            return refusal(match &selection.store {
                None => format!("{name} contains no backup"),
                Some(store) => format!("{name} contains no backup of the store {store}"),
            });
        };
        let backup = match (&selection.backup, selection.at) {
            (Some(id), _) => match candidates.iter().find(|backup| backup.id == *id) {
                Some(backup) => *backup,
                None => {
                    return refusal(format!("{name} contains no backup {id}; the last one is {}", last.id));
                }
            },
            (None, Some(at)) => backup_before(name, &candidates, at)?,
            (None, None) => match &heads(&candidates)[..] {
                [head] => *head,
                heads => return refusal(several_stores(name, heads)),
            },
        };
        let mut chain = chain(backups, backup)?;
        let next = selection.at.filter(|at| *at > backup.time);
        if let Some(at) = next {
            let follower =
                backups.iter().find(|other| other.follows.as_ref() == Some(&backup.id) && other.time >= at);
            let Some(follower) = follower else {
                let time = backup.time;
                return refusal(format!(
                    "no backup follows that of {time}, so that nothing is known of {at}; restore it without --at"
                ));
            };
            chain.push(follower);
        }
        // Before anything is written: a wrong key must not leave half a store.
        for backup in &chain {
            backup.check_key(location.key())?;
        }
        let content = BackupContent {
            log: chain.iter().flat_map(|backup| backup.log.clone()).collect(),
            ledger: backup.ledger.clone(),
            until: selection.at,
            left_out: selection.left_out,
        };
        Ok(Self { backup: backup.clone(), content, is_between: next.is_some() })
    }
}

/// The last backup of each store whose place no other one takes.
fn heads<'a>(backups: &[&'a Manifest]) -> Vec<&'a Manifest> {
    let is_last = |backup: &&&Manifest| {
        let is_later = |other: &&&Manifest| other.store_id == backup.store_id && other.id > backup.id;
        let is_continued = |other: &&&Manifest| other.continues.contains(&backup.store_id);
        !backups.iter().any(|other| is_later(&other) || is_continued(&other))
    };
    backups.iter().filter(is_last).copied().collect()
}

/// The last backup before a moment, of the only store whose backups contain its state at that moment.
fn backup_before<'a>(
    name: &str,
    backups: &[&'a Manifest],
    at: Timestamp,
) -> Result<&'a Manifest, BackupError> {
    let is_last_before = |backup: &&&Manifest| {
        let is_later = |other: &&&Manifest| {
            other.store_id == backup.store_id && other.id > backup.id && other.time <= at
        };
        backup.time <= at && !backups.iter().any(|other| is_later(&other))
    };
    let before: Vec<&Manifest> = backups.iter().filter(is_last_before).copied().collect();
    let is_known = |backup: &&&Manifest| {
        backup.time == at
            || backups.iter().any(|other| other.follows.as_ref() == Some(&backup.id) && other.time >= at)
    };
    let others: Vec<&Manifest> = before.iter().filter(is_known).copied().collect();
    match (&others[..], &before[..]) {
        ([backup], _) | ([], [backup]) => Ok(backup),
        ([], []) => Err(BackupError::Refused(format!("{name} contains no backup from before {at}"))),
        ([], several) | (several, _) => Err(BackupError::Refused(several_stores(name, several))),
    }
}

fn several_stores(name: &str, last: &[&Manifest]) -> String {
    let stores: Vec<String> =
        last.iter().map(|backup| format!("{} with the backup {}", backup.store_id, backup.id)).collect();
    format!(
        "{name} contains backups of several stores ({}); choose one with --store-id, or a backup with --backup",
        stores.join(", ")
    )
}

/// The backup and all that it follows, the full one first.
fn chain<'a>(backups: &'a [Manifest], last: &'a Manifest) -> Result<Vec<&'a Manifest>, BackupError> {
    let mut chain = vec![last];
    while let Some(id) = &chain[chain.len() - 1].follows {
        let Some(earlier) =
            backups.iter().find(|backup| backup.id == *id && backup.seq == chain[chain.len() - 1].after)
        else {
            let text = format!("the backup {} needs the backup {id}, which is missing", last.id);
            return Err(BackupError::Refused(text));
        };
        chain.push(earlier);
    }
    chain.reverse();
    Ok(chain)
}

/// Restores a store, which must be empty. `target` returns the place of a file by its name, or `None` if it
/// is not restored. `finish` changes the store before it can be used; it receives the moment of the content.
///
/// # Errors
/// Returns [`BackupError`] if there is no such backup, if one of its objects is damaged or missing, or if the
/// store is not empty. After an error the store cannot be used.
pub async fn restore(
    location: &BackupLocation,
    selection: &RestoreSelection,
    store: &Store,
    mut target: impl FnMut(&str) -> Option<AttachmentTarget>,
    finish: impl AsyncFnOnce(Timestamp) -> Result<(), BackupError>,
    now: Timestamp,
    progress: ProgressSink<'_>,
) -> Result<RestoreReport, BackupError> {
    let RestorePlan { backup, content, is_between } =
        RestorePlan::new(location, &location.backups().await?, selection)?;
    let receiver = Receiver::open(store, &format!("{}/{}", location.name(), backup.id), now).await?;
    let (mut done, mut resources_until) = (Progress::default(), None);
    let mut parts = content.read(location.clone());
    while let Some(part) = parts.next().await? {
        done.versions += part.versions.len() as u64;
        done.records += part.records.len() as u64;
        resources_until = part.versions.last().map(|last| last.version.updated).or(resources_until);
        receiver.add(part).await?;
        progress(done);
    }
    for file in &backup.files {
        if let Some(target) = target(&file.name) {
            file.restore(location, &target).await?;
            done.files += 1;
            progress(done);
        }
    }
    // A number without a version can be the last one: that of a commit that was interrupted.
    let seq = match selection.at {
        Some(_) => store.last_seq().await?,
        None => backup.moment().seq,
    };
    let moment = selection.at.map_or(backup.time, |at| at.max(backup.time));
    let finish = async || {
        Succession::of_restored(&backup, selection.purpose).write(store, now).await?;
        finish(moment).await
    };
    receiver.complete(StoreMoment { seq, ..backup.moment() }, finish).await?;
    Ok(RestoreReport { backup, resources_until, is_between, done })
}
