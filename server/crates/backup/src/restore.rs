//! Restores a store from backups.

use jiff::Timestamp;
use store::{Store, StoreMoment, Versions as _};

use crate::content::BackupContent;
use crate::receiver::Receiver;
use crate::{AttachmentTarget, BackupError, BackupLocation, Manifest, Progress, ProgressSink};

/// The backup or moment to restore.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RestoreSelection {
    /// Id of the backup. Without it, the last one.
    pub backup: Option<String>,
    /// Moment to which resources are restored, which may lie between two backups. Everything else is restored
    /// as of the last backup before it.
    pub at: Option<Timestamp>,
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
        let refused = |text: String| Err(BackupError::Refused(text));
        let name = location.name();
        let Some(last) = backups.last() else {
            return refused(format!("{name} contains no backup"));
        };
        let backup = match (&selection.backup, selection.at) {
            (Some(id), _) => match backups.iter().find(|backup| backup.id == *id) {
                Some(backup) => backup,
                None => {
                    return refused(format!("{name} contains no backup {id}; the last one is {}", last.id));
                }
            },
            (None, Some(at)) => {
                // A folder can have backups of an earlier store, whose moments say nothing about this one.
                let mut of_store = backups.iter().filter(|backup| backup.store_id == last.store_id);
                match of_store.rfind(|backup| backup.time <= at) {
                    Some(backup) => backup,
                    None => return refused(format!("{name} contains no backup from before {at}")),
                }
            }
            (None, None) => last,
        };
        let mut chain = chain(backups, backup)?;
        let next = selection.at.filter(|at| *at > backup.time);
        if let Some(at) = next {
            let follower =
                backups.iter().find(|other| other.follows.as_ref() == Some(&backup.id) && other.time >= at);
            let Some(follower) = follower else {
                let time = backup.time;
                return refused(format!(
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
/// is not restored. `finish` changes the store before it can be used.
///
/// # Errors
/// Returns [`BackupError`] if there is no such backup, if one of its objects is damaged or missing, or if the
/// store is not empty. After an error the store cannot be used.
pub async fn restore(
    location: &BackupLocation,
    selection: &RestoreSelection,
    store: &Store,
    mut target: impl FnMut(&str) -> Option<AttachmentTarget>,
    finish: impl AsyncFnOnce() -> Result<(), BackupError>,
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
    receiver.complete(StoreMoment { seq, ..backup.moment() }, finish).await?;
    Ok(RestoreReport { backup, resources_until, is_between, done })
}
