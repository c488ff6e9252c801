//! A file of a finished job: as it is, or as gzip, which is made once, when it is first asked for, and kept beside the
//! file.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::io::Read as _;
use std::ops::Range;
use std::sync::Arc;

use store::StoreError;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use crate::file_stream::{DownloadPermit, FileStream};
use crate::files::{FileAt, Files, GZIP_SUM, Hasher, WriteError};
use crate::format::Format;
use crate::gzip::{self, Gzip};
use crate::job::{Job, JobError, OutputFile, Section};

/// How the bytes of a file are coded (RFC 9110 8.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// As they are.
    Identity,
    /// gzip.
    Gzip,
}

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// No such file in an export of this client.
    #[error("there is no file {file}")]
    NotFound {
        /// Its name.
        file: String,
    },
    /// The file is not what was written.
    #[error("the file {file} is damaged: {why}")]
    Damaged {
        /// Its name.
        file: String,
        /// How that shows.
        why: &'static str,
    },
    /// As many files are being downloaded as the descriptors of the process allow.
    #[error("too many files are being downloaded; try again in a few seconds")]
    Busy,
    /// A signed address that does not work.
    #[error("the address does not work: {why}")]
    BadAddress {
        /// What is wrong with it.
        why: &'static str,
    },
    /// The store's.
    #[error(transparent)]
    Store(StoreError),
    /// The files' store.
    #[error("failed to read or write a file of an export: {0}")]
    Files(#[from] object_store::Error),
    /// The disk is too full to make gzip; the file itself can be read.
    #[error("failed to make gzip of a file of an export: {0}")]
    NoSpace(store::space::NoSpace),
    /// A file's.
    #[error("failed to read a file of an export: {0}")]
    Read(#[from] std::io::Error),
}

impl From<WriteError> for FileError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::NoSpace(error) => Self::NoSpace(error),
            WriteError::Files(error) => Self::Files(error),
        }
    }
}

impl From<JobError> for FileError {
    fn from(error: JobError) -> Self {
        match error {
            JobError::NotFound { job } => Self::NotFound { file: job },
            JobError::Store(error) => Self::Store(error),
        }
    }
}

/// Whose turn it is to make gzip: so many at the same time, and each file once.
#[derive(Default)]
pub(crate) struct Gzips([Mutex<()>; 2]);

impl Gzips {
    fn turn(&self, at: FileAt<'_>) -> &Mutex<()> {
        let mut hasher = DefaultHasher::new();
        (at.job, at.name).hash(&mut hasher);
        &self.0[usize::from(hasher.finish() % 2 == 1)]
    }
}

/// An output file. Nothing is open yet.
#[derive(Clone)]
pub struct File {
    job: String,
    kinds: Vec<String>,
    is_organized: bool,
    format: Format,
    file: OutputFile,
    files: Files,
    gzips: Arc<Gzips>,
}

/// An output file that is open.
pub struct Opened {
    file: std::fs::File,
    permit: DownloadPermit,
    /// Its length in this encoding.
    pub length: u64,
}

impl Opened {
    /// These bytes of it.
    pub fn stream(self, range: Range<u64>) -> FileStream {
        FileStream::new(self.file, range, self.permit)
    }
}

impl File {
    pub(crate) fn new(job: &Job, file: OutputFile, files: Files, gzips: Arc<Gzips>) -> Self {
        let kinds = match (file.section, &job.parameters.organize_by) {
            (Section::Output, None) => vec![file.kind.clone()],
            (Section::Output, Some(_)) => job.kinds.clone(),
            (Section::Deleted | Section::Error, _) => Vec::new(),
        };
        let is_organized = job.parameters.organize_by.is_some();
        let (id, format) = (job.id.clone(), job.parameters.format);
        Self { job: id, kinds, is_organized, format, file, files, gzips }
    }

    /// The types of the stored resources that it may hold.
    pub fn kinds(&self) -> &[String] {
        &self.kinds
    }

    /// What the manifest says of it.
    pub fn listed(&self) -> &OutputFile {
        &self.file
    }

    /// Does it hold blocks, where it is a file of resources?
    pub fn is_organized(&self) -> bool {
        self.is_organized
    }

    /// How it is written.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The strong validator of its bytes in an encoding, with quotes (RFC 9110 8.8.3).
    pub fn etag(&self, encoding: Encoding) -> String {
        let hash = Hasher::digits(&self.file.hash);
        match encoding {
            Encoding::Identity => format!("\"{hash}\""),
            Encoding::Gzip => format!("\"{hash}-{}\"", gzip::VERSION),
        }
    }

    /// Opens it; waits until gzip is made where it is not there yet.
    ///
    /// # Errors
    /// [`FileError`].
    pub async fn open(&self, encoding: Encoding) -> Result<Opened, FileError> {
        let permit = self.files.admit_download().ok_or(FileError::Busy)?;
        let (file, length) = self.open_encoding(encoding).await?;
        Ok(Opened { file, permit, length })
    }

    async fn open_encoding(&self, encoding: Encoding) -> Result<(std::fs::File, u64), FileError> {
        match encoding {
            Encoding::Identity => self.open_identity().await,
            Encoding::Gzip => {
                if let Some(opened) = self.open_gzip().await? {
                    return Ok(opened);
                }
                // Who asked may go away meanwhile; the next one finds it made.
                let this = self.clone();
                let made = tokio::spawn(async move { this.make_gzip().await });
                made.await.map_err(std::io::Error::other)??;
                self.open_gzip().await?.ok_or_else(|| self.damaged("its gzip changes while it is read"))
            }
        }
    }

    /// Opens the gzip; `None` if it is not there, or not what was written.
    async fn open_gzip(&self) -> Result<Option<(std::fs::File, u64)>, FileError> {
        let at = self.gzip_at();
        let Some((length, hash)) = self.files.read_sum(self.gzip_sum_at()).await else { return Ok(None) };
        let (file, found) = match self.files.open_file(at).await {
            Ok(opened) => opened,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if found == length && self.files.is_sound(at, &file, &hash).await? {
            return Ok(Some((file, length)));
        }
        tracing::warn!(
            job = self.job,
            file = self.file.name,
            "the gzip of a file is damaged; it is made again"
        );
        Ok(None)
    }

    async fn open_identity(&self) -> Result<(std::fs::File, u64), FileError> {
        let at = self.file.at(&self.job);
        match self.files.open_file(at).await {
            Ok((file, length)) if length == self.file.bytes => {
                if self.files.is_sound(at, &file, &self.file.hash).await? {
                    Ok((file, length))
                } else {
                    Err(self.damaged("its bytes are not those that were written"))
                }
            }
            Ok(_) => Err(self.damaged("its length is not what was written")),
            Err(object_store::Error::NotFound { .. }) => Err(self.damaged("it is not there any more")),
            Err(error) => Err(error.into()),
        }
    }

    fn damaged(&self, why: &'static str) -> FileError {
        FileError::Damaged { file: format!("{}/{}", self.job, self.file.name), why }
    }

    fn gzip_at(&self) -> FileAt<'_> {
        FileAt { made: gzip::VERSION, ..self.file.at(&self.job) }
    }

    fn gzip_sum_at(&self) -> FileAt<'_> {
        FileAt { made: GZIP_SUM, ..self.file.at(&self.job) }
    }

    async fn make_gzip(&self) -> Result<(), FileError> {
        let at = self.gzip_at();
        let _turn = self.gzips.turn(at).lock().await;
        if self.open_gzip().await?.is_some() {
            return Ok(());
        }
        let (mut file, _) = self.open_identity().await?;
        let mut writing = self.files.create(at);
        let (mut gzip, mut hasher) = (Box::new(Gzip::new()), Box::<Hasher>::default());
        loop {
            let (text, packed);
            (file, gzip, hasher, text, packed) = spawn_blocking(move || -> std::io::Result<_> {
                let mut text = Vec::with_capacity(gzip::BLOCK);
                (&mut file).take(gzip::BLOCK as u64).read_to_end(&mut text)?;
                hasher.update(&text);
                let packed = if text.is_empty() { Vec::new() } else { gzip.block(&text) };
                Ok((file, gzip, hasher, text.len(), packed))
            })
            .await
            .map_err(std::io::Error::other)??;
            if text == 0 {
                break;
            }
            writing.add(packed.into());
            writing.flush_if_large().await?;
        }
        if Hasher::made(&self.file.hash) && hasher.finish() != self.file.hash {
            return Err(self.damaged("its bytes are not those that were written"));
        }
        writing.add(gzip.end().into());
        let length = writing.bytes;
        let hash = writing.finish().await?.await?;
        self.files.write_sum(self.gzip_sum_at(), length, &hash).await?;
        Ok(())
    }
}
