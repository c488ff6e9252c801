//! Proves that backups can be restored: every object is read, compared with its digest and decoded.

use crate::restore::RestorePlan;
use crate::{BackupError, BackupLocation, Manifest, Progress, ProgressSink, RestoreSelection};

/// A backup that was read completely, or the reason why it cannot be restored.
#[derive(Debug)]
pub struct VerifiedBackup {
    /// The backup.
    pub backup: Manifest,
    /// Its content, together with the backups that it follows.
    pub content: Result<Progress, BackupError>,
}

/// Verifies one backup, or the last one: everything that a restore reads is read as a restore reads it.
///
/// # Errors
/// Returns [`BackupError`] if the location cannot be read or contains no such backup.
pub async fn verify(
    location: &BackupLocation,
    selection: &RestoreSelection,
    progress: ProgressSink<'_>,
) -> Result<VerifiedBackup, BackupError> {
    let RestorePlan { backup, content, .. } =
        RestorePlan::new(location, &location.backups().await?, selection)?;
    let read = async {
        let mut progress_total = Progress::default();
        let mut parts = content.read(location.clone());
        while let Some(part) = parts.next().await? {
            progress_total.versions += part.versions.len() as u64;
            progress_total.records += part.records.len() as u64;
            progress(progress_total);
        }
        for file in &backup.files {
            file.check(location).await?;
            progress_total.files += 1;
            progress(progress_total);
        }
        Ok(progress_total)
    };
    let content = read.await;
    Ok(VerifiedBackup { backup, content })
}
