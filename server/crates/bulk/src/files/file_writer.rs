//! Writes an output file. In a folder it is written and synced in chunks outside of the async threads, and
//! gets its name only when it is complete and synced. In a bucket it is uploaded in parts with checksums, and
//! exists only when the upload is complete. In both cases it is hashed in the same pass, and a writer that is
//! dropped leaves nothing.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStoreExt as _, PutMultipartOptions, PutPayload};
use tokio::runtime::Handle;

use crate::abort_on_drop::{AbortOnDrop, until_ended};
use crate::files::export_files::{AttemptFile, ExportFiles, WriteGuard};
use crate::files::file_hasher::FileHasher;
use crate::files::write_error::WriteError;

/// A file that is being written.
pub(crate) struct FileWriter {
    files: ExportFiles,
    job: String,
    path: Path,
    /// Held from the first write until this value is dropped and all writes have ended.
    write: Option<WriteGuard>,
    gathered: VecDeque<Bytes>,
    /// Length of the collected bytes.
    length: usize,
    /// Hash of all bytes added so far.
    hasher: Box<FileHasher>,
    upload: Option<OpenUpload>,
    /// The chunk that is being written. The next one is collected meanwhile, so that a file holds up to two
    /// in memory.
    under_way: Option<AbortOnDrop<object_store::Result<()>>>,
    /// Length so far, in bytes.
    pub bytes: u64,
}

impl FileWriter {
    /// A writer for a new file. The file is created when the first bytes are written.
    pub fn new(files: &ExportFiles, file: AttemptFile<'_>) -> Self {
        Self {
            files: files.clone(),
            job: file.job.to_owned(),
            path: files.path(file),
            write: None,
            gathered: VecDeque::new(),
            length: 0,
            hasher: Box::default(),
            upload: None,
            under_way: None,
            bytes: 0,
        }
    }

    /// Writes with a guard that the caller has.
    pub fn guarded_by(self, write: WriteGuard) -> Self {
        Self { write: Some(write), ..self }
    }

    fn guard(&mut self) -> Result<WriteGuard, WriteError> {
        if self.write.is_none() {
            self.write = Some(self.files.begin_write(&self.job)?);
        }
        Ok(self.write.clone().expect("the guard was added above"))
    }

    /// Adds bytes without copying them. They are hashed on this thread, because hashing a page takes less
    /// time than passing it to another thread and back.
    pub fn add(&mut self, bytes: Bytes) {
        self.hasher.update(&bytes);
        self.length += bytes.len();
        self.bytes += bytes.len() as u64;
        self.gathered.push_back(bytes);
    }

    /// Writes the collected bytes if they fill a chunk. Waits until the previous chunk is written.
    pub async fn flush_if_large(&mut self) -> Result<(), WriteError> {
        while self.length >= self.files.chunk() {
            self.write_chunk().await?;
        }
        Ok(())
    }

    async fn write_chunk(&mut self) -> Result<(), WriteError> {
        // The previous chunk may not be on the disk yet, so the check counts two chunks.
        self.files.check_space_for(2 * self.length as u64)?;
        self.finish_chunk().await?;
        let (chunk, write) = (self.take_chunk(), self.guard()?);
        if self.upload.is_none() {
            let upload = OpenUpload::begin(&self.files, &self.path, write).await;
            self.upload = Some(upload.map_err(|error| self.files.write_error(error))?);
        }
        let upload = self.upload.as_mut().expect("an upload was begun above");
        self.under_way = Some(AbortOnDrop::of(upload.get().put_part(chunk)));
        Ok(())
    }

    /// Waits until the chunk that is being written is written.
    async fn finish_chunk(&mut self) -> Result<(), WriteError> {
        match self.under_way.take() {
            Some(writing) => writing.await.map_err(|error| self.files.write_error(error)),
            None => Ok(()),
        }
    }

    /// Takes the collected bytes. Of those for a bucket, at most one part is taken, because some object
    /// stores accept only parts of the same length.
    fn take_chunk(&mut self) -> PutPayload {
        let Some(mut left) = self.files.part_length() else {
            self.length = 0;
            return PutPayload::from_iter(self.gathered.drain(..));
        };
        let mut part = Vec::new();
        while left > 0
            && let Some(mut bytes) = self.gathered.pop_front()
        {
            if bytes.len() > left {
                self.gathered.push_front(bytes.split_off(left));
            }
            left -= bytes.len();
            self.length -= bytes.len();
            part.push(bytes);
        }
        PutPayload::from_iter(part)
    }

    /// Completes the file in the background. The returned task resolves to the hash when the file is complete
    /// and synced.
    pub async fn finish(mut self) -> Result<AbortOnDrop<Result<String, WriteError>>, WriteError> {
        self.flush_if_large().await?;
        self.files.check_space_for(2 * self.length as u64)?;
        self.finish_chunk().await?;
        // Before the task begins, so that a removal after this waits for it.
        let write = self.guard()?;
        Ok(AbortOnDrop::of(async move {
            let completed = self.complete(write).await;
            completed.map_err(|error| self.files.write_error(error))?;
            self.files.note_written(&self.path).await;
            Ok(self.hasher.finish())
        }))
    }

    async fn complete(&mut self, write: WriteGuard) -> object_store::Result<()> {
        let (rest, last) = (self.length, self.take_chunk());
        let Some(upload) = &mut self.upload else {
            return self.files.put(&self.path, last, write).await;
        };
        if rest > 0 {
            upload.get().put_part(last).await?;
        }
        if let Err(error) = upload.get().complete().await {
            // The upload may be complete although its answer was lost.
            let metadata = self.files.store().head(&self.path).await;
            if !metadata.is_ok_and(|object| object.size == self.bytes) {
                return Err(match error {
                    // The upload is lost. The next attempt writes the file again.
                    error @ object_store::Error::NotFound { .. } => {
                        object_store::Error::Generic { store: "bucket", source: Box::new(error) }
                    }
                    error => error,
                });
            }
        }
        upload.0 = None;
        Ok(())
    }
}

/// An upload that is neither complete nor aborted. It is aborted when it is dropped.
struct OpenUpload(Option<Box<dyn MultipartUpload>>);

impl OpenUpload {
    /// Begins an upload. If the caller is dropped before the answer arrives, the task here receives it and
    /// aborts the upload.
    async fn begin(files: &ExportFiles, path: &Path, write: WriteGuard) -> object_store::Result<Self> {
        let options = PutMultipartOptions { attributes: files.attributes(path), ..Default::default() };
        let (store, path) = (Arc::clone(files.store()), path.clone());
        let task = tokio::spawn(async move {
            let _write = write;
            store.put_multipart_opts(&path, options).await.map(|upload| Self(Some(upload)))
        });
        until_ended(task).await
    }

    fn get(&mut self) -> &mut dyn MultipartUpload {
        &mut **self.0.as_mut().expect("an upload is taken only when it is complete")
    }
}

impl Drop for OpenUpload {
    fn drop(&mut self) {
        let (Some(mut upload), Ok(runtime)) = (self.0.take(), Handle::try_current()) else { return };
        runtime.spawn(async move {
            // The lifecycle rule of the bucket removes what is left after a failure.
            if let Err(error) = upload.abort().await {
                tracing::debug!(%error, "an unfinished upload was not aborted");
            }
        });
    }
}
