//! Exports in a backup: the files of all jobs, and jobs that were running at the moment of the backup.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::Arc;

use futures_util::TryStreamExt as _;
use jiff::{SignedDuration, Timestamp};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt as _};
use store::{ErasureRecord, Expect, Ledger as _, Seq, Store, StoreError};

use crate::FileLocation;
use crate::files::export_files::UNFINISHED;
use crate::job::{self, Job, JobState, decode, file_list, open_jobs};
use crate::plan::erased_since::may_contain_erased;

/// The result of [`ExportArchive::missing`].
#[derive(Debug, Default)]
pub struct MissingFiles {
    /// Number of files that were looked for.
    pub checked: usize,
    /// Names of those that are missing or have another length.
    pub names: Vec<String>,
}

/// The files of the exports of one store.
pub struct ExportArchive {
    objects: Arc<dyn ObjectStore>,
    /// Beginning of the paths in a bucket; `None` for a folder.
    in_bucket: Option<Path>,
    store_id: String,
}

impl ExportArchive {
    /// Opens the files at a location.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be opened.
    pub fn open(location: &FileLocation, store_id: &str) -> io::Result<Self> {
        let store_id = store_id.to_owned();
        Ok(match location {
            FileLocation::Folder { path, .. } => {
                let objects = LocalFileSystem::new_with_prefix(path).map_err(io::Error::other)?;
                Self { objects: Arc::new(objects.with_fsync(true)), in_bucket: None, store_id }
            }
            FileLocation::Bucket(bucket) => {
                let in_bucket = Some(bucket.folder(&store_id, "exports"));
                Self { objects: Arc::clone(&bucket.store), in_bucket, store_id }
            }
        })
    }

    /// The folder or bucket.
    pub fn objects(&self) -> &Arc<dyn ObjectStore> {
        &self.objects
    }

    /// All complete files, by their names (see [`ExportArchive::path`]).
    ///
    /// # Errors
    /// Returns an error if the folder or bucket cannot be read.
    pub async fn files(&self) -> object_store::Result<Vec<(String, ObjectMeta)>> {
        let files: Vec<ObjectMeta> = self.objects.list(self.in_bucket.as_ref()).try_collect().await?;
        let files_by_name = files.into_iter().filter_map(|file| {
            let mut end = file.location.parts().collect::<Vec<_>>().into_iter().rev();
            let (name, folder) = (end.next()?, end.next()?);
            let job = match &self.in_bucket {
                Some(_) => folder.as_ref(),
                None => folder.as_ref().strip_suffix(&self.store_id)?.strip_suffix('-')?,
            };
            let name = format!("{job}/{}", name.as_ref());
            (!name.contains(UNFINISHED)).then_some((name, file))
        });
        Ok(files_by_name.collect())
    }

    /// The files of complete exports that are missing or have another length, by their names.
    ///
    /// # Errors
    /// Returns an error if the store, the folder or the bucket cannot be read.
    pub async fn missing(&self, store: &Store, now: Timestamp) -> Result<MissingFiles, StoreError> {
        let failed = |error: object_store::Error| StoreError::Engine {
            action: "list the files of exports",
            reason: error.to_string(),
        };
        let files = self.files().await.map_err(failed)?;
        let lengths: HashMap<String, u64> = files.into_iter().map(|(name, meta)| (name, meta.size)).collect();
        let (mut missing, mut after) = (MissingFiles::default(), None::<String>);
        loop {
            let page = store.scan(job::PREFIX, after.as_deref(), 100, now).await?;
            let Some((last, _)) = page.last() else { return Ok(missing) };
            after = Some(last.clone());
            for (key, record) in &page {
                let job: Job = decode(key, &record.value)?;
                if !matches!(job.state, JobState::Complete { .. }) {
                    continue;
                }
                for file in file_list::load(store, &job, now).await? {
                    let name = format!("{}/{}", job.id, file.at(&job.id).in_folder());
                    missing.checked += 1;
                    if lengths.get(&name) != Some(&file.bytes) {
                        missing.names.push(name);
                    }
                }
            }
        }
    }

    /// Ends the exports that may contain what was erased, and removes their files. Returns their number.
    /// Files that are being written are removed when their server notices.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the store cannot be read or written, or a file cannot be removed.
    pub async fn end_exports(
        &self,
        store: &Store,
        erased: &ErasedContent<'_>,
        now: Timestamp,
    ) -> Result<usize, StoreError> {
        let (mut ended, mut after) = (BTreeSet::new(), None::<String>);
        loop {
            let page = store.scan(job::PREFIX, after.as_deref(), 100, now).await?;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.clone());
            for (key, _) in &page {
                if let Some(id) = end_export(store, key, erased, now).await? {
                    ended.insert(id);
                }
            }
        }
        let failed = |error: object_store::Error| StoreError::Engine {
            action: "remove the files of exports",
            reason: error.to_string(),
        };
        for (name, meta) in self.files().await.map_err(failed)? {
            if name.split_once('/').is_some_and(|(job, _)| ended.contains(job)) {
                match self.objects.delete(&meta.location).await {
                    // The server removes them, too.
                    Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                    Err(error) => return Err(failed(error)),
                }
            }
        }
        Ok(ended.len())
    }

    /// The path of a file by its name `{job}/{file}`; `None` if the name is none.
    pub fn path(&self, name: &str) -> Option<Path> {
        let (job, file) = name.split_once('/').filter(|(_, file)| !file.contains('/'))?;
        Some(match &self.in_bucket {
            Some(exports) => exports.clone().join(job).join(file),
            None => Path::from_iter([format!("{job}-{}", self.store_id), file.to_owned()]),
        })
    }
}

/// An erasure, and the answer to the clients of exports that may contain what was erased.
#[derive(Debug, Clone, Copy)]
pub struct ErasedContent<'a> {
    /// The erasure.
    pub record: &'a ErasureRecord,
    /// Sequence number after the erasure. Exports of later snapshots do not contain what was erased.
    pub until: Seq,
    /// The FHIR base URL of the server.
    pub fhir_base: &'a str,
    /// The reason for the clients.
    pub reason: &'a str,
    /// Time for which the status of an ended export has the reason.
    pub retention: SignedDuration,
}

/// Fails a job that may contain what was erased, and returns its id.
async fn end_export(
    store: &Store,
    key: &str,
    erased: &ErasedContent<'_>,
    now: Timestamp,
) -> Result<Option<String>, StoreError> {
    loop {
        let Some(record) = store.get(key, now).await? else { return Ok(None) };
        let mut job: Job = decode(key, &record.value)?;
        if job.seq() > erased.until
            || matches!(job.state, JobState::Failed { .. })
            || !may_contain_erased(&job, store, erased.fhir_base, erased.record).await?
        {
            return Ok(None);
        }
        let (reason, expires) = (erased.reason.to_owned(), now + erased.retention);
        job.state = JobState::Failed { by_data: true, reason, expires };
        let writes = vec![job.put(Expect::Revision(record.revision)), open_jobs::add(&job.id)];
        match store.write(writes, now).await {
            Ok(_) => return Ok(Some(job.id)),
            // Its worker has written it meanwhile.
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Fails all jobs that are waiting or running, in a store that was restored or copied: their place in the
/// order of the earlier engine means nothing here. Clients are told `reason` until `retention` has passed.
/// Returns the number of jobs.
///
/// # Errors
/// Returns [`StoreError`] if the store cannot be read or written.
pub async fn fail_open_jobs(
    store: &Store,
    reason: &str,
    retention: SignedDuration,
    now: Timestamp,
) -> Result<usize, StoreError> {
    let mut count = 0;
    for id in open_jobs::ids(store, now).await? {
        let key = job::key(&id);
        let Some(record) = store.get(&key, now).await? else { continue };
        let mut job: Job = decode(&key, &record.value)?;
        if job.state != JobState::Running {
            continue;
        }
        let expires = now + retention;
        job.state = JobState::Failed { by_data: false, reason: reason.to_owned(), expires };
        store.write(vec![job.put(Expect::Revision(record.revision))], now).await?;
        count += 1;
    }
    Ok(count)
}
