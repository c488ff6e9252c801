//! Files of completed jobs, plain or as gzip. The gzip is created on the first request for it and stored next
//! to the file.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use store::StoreError;
use store::blocking::run_blocking;
use tokio::sync::Mutex;

use crate::files::export_files::{AttemptFile, ExportFiles, GZIP_SUM};
use crate::files::file_hasher::FileHasher;
use crate::files::file_source::FileSource;
use crate::files::file_stream::{DownloadPermit, FileStream};
use crate::files::file_writer::FileWriter;
use crate::files::format::Format;
use crate::files::gzip::{self, GzipMember};
use crate::files::write_error::WriteError;
use crate::job::{Job, JobRequestError, ManifestSection, OutputFile};

/// Content coding of a file (RFC 9110 section 8.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentEncoding {
    /// The bytes without a coding.
    Identity,
    /// The bytes compressed with gzip.
    Gzip,
}

/// Reasons why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The client has no export with a file of this name.
    #[error("file {file} does not exist")]
    NotFound {
        /// Name of the file.
        file: String,
    },
    /// The file differs from the file that the worker wrote.
    #[error("the file {file} is corrupt: {reason}")]
    Damaged {
        /// Name of the file.
        file: String,
        /// Description of the difference.
        reason: &'static str,
    },
    /// The maximum number of concurrent downloads is reached.
    #[error("too many files are being downloaded; try again in a few seconds")]
    Busy,
    /// A signed URL is not valid.
    #[error("the signed URL is not valid: {reason}")]
    BadAddress {
        /// Reason why the URL is not valid.
        reason: &'static str,
    },
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
    /// The bucket of the files did not answer or was overloaded.
    #[error("the bucket of the exports is unavailable: {0}")]
    Unavailable(object_store::Error),
    /// The storage of export files failed.
    #[error("failed to read or write a file of an export: {0}")]
    Files(object_store::Error),
    /// The disk has no space for the gzip. The plain file can still be read.
    #[error("failed to compress a file of an export: {0}")]
    NoSpace(store::space::NoSpace),
    /// A file could not be opened or read.
    #[error("failed to read a file of an export: {0}")]
    Read(#[from] std::io::Error),
}

impl From<WriteError> for FileError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::NoSpace(error) => Self::NoSpace(error),
            WriteError::Unavailable(error) => Self::Unavailable(error),
            WriteError::Files(error) => Self::Files(error),
        }
    }
}

impl From<JobRequestError> for FileError {
    fn from(error: JobRequestError) -> Self {
        match error {
            JobRequestError::NotFound { job } => Self::NotFound { file: job },
            JobRequestError::Store(error) => Self::Store(error),
        }
    }
}

/// Locks for creating gzip files. They allow two files at a time, and each file only once.
#[derive(Default)]
pub(crate) struct GzipLocks([Mutex<()>; 2]);

impl GzipLocks {
    fn turn(&self, file: AttemptFile<'_>) -> &Mutex<()> {
        let mut hasher = DefaultHasher::new();
        (file.job, file.name).hash(&mut hasher);
        &self.0[usize::from(hasher.finish() % 2 == 1)]
    }
}

/// An output file before it is opened.
#[derive(Clone)]
pub struct ExportFile {
    job: String,
    kinds: Vec<String>,
    format: Format,
    file: OutputFile,
    files: ExportFiles,
    gzips: Arc<GzipLocks>,
}

/// An open output file.
pub struct OpenExportFile {
    file: FileSource,
    permit: DownloadPermit,
    hash: String,
    /// Length in the requested content coding, in bytes.
    pub length: u64,
}

impl OpenExportFile {
    /// A stream of a range of the file. An object that is sent as a whole is compared with its hash
    /// meanwhile.
    pub fn stream(self, range: Range<u64>) -> FileStream {
        let is_compared = self.file.is_remote() && range == (0..self.length);
        let stream = FileStream::new(self.file, range, self.permit);
        if is_compared { stream.comparing(self.hash) } else { stream }
    }
}

impl ExportFile {
    pub(crate) fn new(job: &Job, file: OutputFile, files: ExportFiles, gzips: Arc<GzipLocks>) -> Self {
        let kinds = match (file.section, &job.parameters.organize_by) {
            (ManifestSection::Output, None) => vec![file.kind.clone()],
            // A file of an earlier version can contain each type of its export.
            (ManifestSection::Output, Some(_)) => job.kinds.clone(),
            (ManifestSection::Deleted | ManifestSection::Error, _) => Vec::new(),
        };
        let (id, format) = (job.id.clone(), job.parameters.format);
        Self { job: id, kinds, format, file, files, gzips }
    }

    /// The resource types that the file may contain.
    pub fn kinds(&self) -> &[String] {
        &self.kinds
    }

    /// The format of the file.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The strong `ETag` of the bytes in a content coding, with quotation marks (RFC 9110 section 8.8.3).
    pub fn etag(&self, encoding: ContentEncoding) -> String {
        let hash = FileHasher::digits(&self.file.hash);
        match encoding {
            ContentEncoding::Identity => format!("\"{hash}\""),
            ContentEncoding::Gzip => format!("\"{hash}-{}\"", gzip::VERSION),
        }
    }

    /// Opens the file. If gzip is requested and does not exist yet, creates it first.
    ///
    /// # Errors
    /// Returns [`FileError`] if the file is missing, damaged or cannot be read.
    pub async fn open(&self, encoding: ContentEncoding) -> Result<OpenExportFile, FileError> {
        let permit = self.files.admit_download().ok_or(FileError::Busy)?;
        let (file, length, hash) = self.open_encoding(encoding).await?;
        Ok(OpenExportFile { file, permit, hash, length })
    }

    /// An address at which the bytes in a content coding can be read directly from the bucket, for `time`.
    /// Returns `None` if files are sent by this server only.
    ///
    /// # Errors
    /// Returns [`FileError`] if the file is missing or cannot be read.
    pub async fn signed_url(
        &self,
        encoding: ContentEncoding,
        time: Duration,
    ) -> Result<Option<String>, FileError> {
        if !self.files.signs_urls() {
            return Ok(None);
        }
        self.open_encoding(encoding).await?;
        let file = match encoding {
            ContentEncoding::Identity => self.file.at(&self.job),
            ContentEncoding::Gzip => self.gzip_at(),
        };
        Ok(self.files.signed_url(file, time).await?)
    }

    /// The bytes in a content coding, their length and their hash.
    async fn open_encoding(&self, encoding: ContentEncoding) -> Result<(FileSource, u64, String), FileError> {
        match encoding {
            ContentEncoding::Identity => {
                let file = self.open_identity().await?;
                Ok((file, self.file.bytes, self.file.hash.clone()))
            }
            ContentEncoding::Gzip => {
                if let Some(file) = self.open_gzip().await? {
                    return Ok(file);
                }
                // Compression continues if the request is cancelled, and the next request uses its result.
                let this = self.clone();
                let task = tokio::spawn(async move { this.make_gzip().await });
                task.await.map_err(std::io::Error::other)??;
                self.open_gzip().await?.ok_or_else(|| self.damaged("its gzip was changed by another process"))
            }
        }
    }

    /// Opens the gzip. Returns `None` if it does not exist or is damaged.
    async fn open_gzip(&self) -> Result<Option<(FileSource, u64, String)>, FileError> {
        let attempt_file = self.gzip_at();
        let Some((length, hash)) = self.files.read_sum(self.gzip_sum_at()).await else { return Ok(None) };
        let Some((file, found)) = self.files.open_file(attempt_file).await? else { return Ok(None) };
        if found == length && self.files.is_sound(attempt_file, &file, &hash).await? {
            return Ok(Some((file, length, hash)));
        }
        tracing::warn!(
            job = self.job,
            file = self.file.name,
            "the gzip of a file is corrupt and will be created again"
        );
        Ok(None)
    }

    async fn open_identity(&self) -> Result<FileSource, FileError> {
        let attempt_file = self.file.at(&self.job);
        match self.files.open_file(attempt_file).await? {
            Some((file, length)) if length == self.file.bytes => {
                if self.files.is_sound(attempt_file, &file, &self.file.hash).await? {
                    Ok(file)
                } else {
                    Err(self.damaged("its checksum differs"))
                }
            }
            Some(_) => Err(self.damaged("its length differs")),
            None => Err(self.damaged("it is missing")),
        }
    }

    fn damaged(&self, reason: &'static str) -> FileError {
        FileError::Damaged { file: format!("{}/{}", self.job, self.file.name), reason }
    }

    fn gzip_at(&self) -> AttemptFile<'_> {
        AttemptFile { made: gzip::VERSION, ..self.file.at(&self.job) }
    }

    fn gzip_sum_at(&self) -> AttemptFile<'_> {
        AttemptFile { made: GZIP_SUM, ..self.file.at(&self.job) }
    }

    async fn make_gzip(&self) -> Result<(), FileError> {
        let attempt_file = self.gzip_at();
        let _turn = self.gzips.turn(attempt_file).lock().await;
        if self.open_gzip().await?.is_some() {
            return Ok(());
        }
        // Held from the first look at the file, so that a delete leaves nothing of the gzip.
        let gone = |_| FileError::NotFound { file: format!("{}/{}", self.job, self.file.name) };
        let write = self.files.begin_write(&self.job).map_err(gone)?;
        let (mut file, length) = (self.open_identity().await?, self.file.bytes);
        let mut writing = FileWriter::new(&self.files, attempt_file).guarded_by(write.clone());
        let (mut gzip, mut hasher) = (Box::new(GzipMember::new()), Box::<FileHasher>::default());
        for start in (0..length).step_by(gzip::BLOCK) {
            let (text, packed);
            (file, text) = file.read(start..length.min(start + gzip::BLOCK as u64)).await?;
            (gzip, hasher, packed) = run_blocking(move || {
                hasher.update(&text);
                let packed = gzip.block(&text);
                (gzip, hasher, packed)
            })
            .await
            .map_err(std::io::Error::other)?;
            writing.add(packed.into());
            writing.flush_if_large().await?;
        }
        if FileHasher::made(&self.file.hash) && hasher.finish() != self.file.hash {
            return Err(self.damaged("its checksum differs"));
        }
        writing.add(gzip.end().into());
        let length = writing.bytes;
        let hash = writing.finish().await?.await?;
        self.files.write_sum(self.gzip_sum_at(), length, &hash, write).await?;
        Ok(())
    }
}
