//! Download of one file. A connection that is lost is resumed with a range request (RFC 9110 14), in this
//! process or a later one. A file has a temporary name until it is complete and its lines are counted.
//!
//! A complete file is requested with gzip, and stored uncompressed. The bytes of a range are those of the
//! representation that `Accept-Encoding` selects, and the compressed one has a validator of its own (RFC 9110
//! 8.8.3.3). A compressed download is therefore continued at its last compressed byte, with its own strong
//! entity tag, by the decoder that has decoded the bytes before. Without this tag or this decoder, the
//! uncompressed representation is requested from the last decoded byte on.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use flate2::write::MultiGzDecoder;
use futures_util::StreamExt as _;
use http::{HeaderValue, StatusCode, header};

use super::job::{ExportFile, FileProgress, FileStatus};
use super::retry::RetryCounter;
use super::row_count::RowCount;
use crate::api::{Api, ApiError, Bearer, FileRange};
use crate::private_files::{create_private_folder, private_file};

/// Number of bytes between two progress reports.
const REPORT_INTERVAL: u64 = 1 << 20;
/// Size of the buffers for reading and writing files.
const BUFFER: usize = 256 * 1024;
/// Number of compressed bytes that are decoded at once, to at most a thousand times as many.
const DECODED_PIECE: usize = 4096;

/// Downloads a file to `path` and returns its size and number of lines. If the file exists, it is complete.
///
/// # Errors
/// The error of the last attempt, [`ApiError::File`] if the file cannot be written, or
/// [`ApiError::Unexpected`] if a line is not a resource, or if their number is not that of the manifest.
pub(super) async fn download(
    api: &Api,
    file: &ExportFile,
    path: &Path,
    bearer: Option<&Bearer>,
    report: &(impl Fn(FileProgress) + Sync),
) -> Result<FileProgress, ApiError> {
    if path.exists() {
        return existing(file, path).map_err(|error| not_written(path, &error));
    }
    let mut part = PartialFile::open(path).map_err(|error| not_written(path, &error))?;
    let mut retries = RetryCounter::default();
    // A server without ranges sends the file from its beginning again, which is progress only beyond the
    // longest part.
    let mut longest = part.bytes;
    loop {
        let result = attempt(api, file, &mut part, bearer, report).await;
        if let Some(row) = part.rows.refused {
            part.discard().map_err(|error| not_written(path, &error))?;
            let reason = format!("line {row} of the file is not a JSON object, and so not a resource");
            return Err(ApiError::Unexpected { url: file.url.clone(), reason });
        }
        let Err(error) = result else { break };
        if part.bytes > longest {
            longest = part.bytes;
            retries.reset();
        }
        let Some(delay) = retries.next_delay(&error, api, bearer).await else { return Err(error) };
        report(part.progress(FileStatus::Retrying(error.to_string())));
        api.wait(delay).await;
    }
    let resources = part.rows.resources;
    if let Some(count) = file.count.filter(|count| *count != resources) {
        // The next attempt must not resume this file.
        part.discard().map_err(|error| not_written(path, &error))?;
        let reason = format!("the manifest says {count} resources, the file has {resources}");
        return Err(ApiError::Unexpected { url: file.url.clone(), reason });
    }
    let progress = part.progress(FileStatus::Done);
    // Waiting for the disk must not stop the other downloads: an export may have thousands of small
    // files, and the disk stores those that wait together at once.
    let target = path.to_owned();
    let completed = tokio::task::spawn_blocking(move || part.complete(&target)).await;
    let completed = completed.map_err(io::Error::other).and_then(|outcome| outcome);
    completed.map_err(|error| not_written(path, &error))?;
    Ok(progress)
}

/// Sends one request for the missing part of the file and appends the response.
async fn attempt(
    api: &Api,
    file: &ExportFile,
    part: &mut PartialFile,
    bearer: Option<&Bearer>,
    report: &(impl Fn(FileProgress) + Sync),
) -> Result<(), ApiError> {
    let failed = |path: &Path, error: io::Error| not_written(path, &error);
    let interrupted =
        |reason: &str| ApiError::Interrupted { url: file.url.clone(), reason: reason.to_owned() };
    let range = part.missing();
    let response = api.request_file(&file.url, &range, bearer).await?;
    let coding = ContentCoding::of(&response);
    match response.status() {
        StatusCode::PARTIAL_CONTENT
            if range_start(&response) == Some(range.start) && coding == Ok(part.coding()) => {}
        StatusCode::PARTIAL_CONTENT => {
            part.restart().map_err(|error| failed(&part.path, error))?;
            return Err(interrupted("the range in the response is not the requested one"));
        }
        // The earlier attempt received all bytes, and was interrupted before it was recorded as complete.
        StatusCode::RANGE_NOT_SATISFIABLE if total_size(&response) == Some(range.start) => {
            return finish(file, part);
        }
        StatusCode::RANGE_NOT_SATISFIABLE => {
            part.restart().map_err(|error| failed(&part.path, error))?;
            return Err(interrupted("the file is shorter than the part that was downloaded before"));
        }
        _ => {
            part.restart().map_err(|error| failed(&part.path, error))?;
            let coding = coding.map_err(|reason| ApiError::Unexpected { url: file.url.clone(), reason })?;
            part.decoder = (coding == ContentCoding::Gzip).then(Decoder::new);
        }
    }
    // A weak validator does not promise equal bytes, so it cannot guard the next range (RFC 9110 section
    // 13.1.5).
    part.validator = strong_validator(&response);
    let mut reported = part.bytes;
    report(part.progress(FileStatus::Downloading));
    let mut body = response.bytes_stream();
    while let Some(piece) = body.next().await {
        let piece = match piece {
            Ok(piece) => piece,
            Err(error) => {
                part.flush().map_err(|error| failed(&part.path, error))?;
                let received = part.missing().start;
                part.keep_resumable();
                return Err(ApiError::interrupted(&file.url, &error, received));
            }
        };
        for piece in piece.chunks(DECODED_PIECE) {
            let decoded = match &mut part.decoder {
                Some(decoder) => decoder.decode(piece).map(Cow::Owned),
                None => Ok(Cow::Borrowed(piece)),
            };
            let Ok(decoded) = decoded else { return Err(damaged(file, part)) };
            part.append(&decoded).map_err(|error| failed(&part.path, error))?;
        }
        if part.rows.refused.is_some() {
            return Ok(());
        }
        if part.bytes - reported >= REPORT_INTERVAL {
            reported = part.bytes;
            report(part.progress(FileStatus::Downloading));
        }
    }
    finish(file, part)
}

/// Writes the end of a file whose bytes were all received.
fn finish(file: &ExportFile, part: &mut PartialFile) -> Result<(), ApiError> {
    if let Some(decoder) = part.decoder.take() {
        let Ok(rest) = decoder.finish() else { return Err(damaged(file, part)) };
        part.append(&rest).map_err(|error| not_written(&part.path, &error))?;
    }
    part.flush().map_err(|error| not_written(&part.path, &error))
}

/// Discards a file that cannot be decompressed. The next attempt requests it uncompressed.
fn damaged(file: &ExportFile, part: &mut PartialFile) -> ApiError {
    if let Err(error) = part.restart() {
        return not_written(&part.path, &error);
    }
    part.without_gzip = true;
    let reason = "the server compressed the file incorrectly".to_owned();
    ApiError::Interrupted { url: file.url.clone(), reason }
}

/// Coding of the content of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ContentCoding {
    Identity,
    Gzip,
}

impl ContentCoding {
    /// Reads `Content-Encoding` (RFC 9110 8.4).
    fn of(response: &reqwest::Response) -> Result<Self, String> {
        let value = response.headers().get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes);
        match value.map(|value| String::from_utf8_lossy(value).trim().to_ascii_lowercase()).as_deref() {
            None | Some("" | "identity") => Ok(Self::Identity),
            Some("gzip" | "x-gzip") => Ok(Self::Gzip),
            Some(other) => Err(format!("the file has the content coding '{other}', which was not requested")),
        }
    }
}

/// Decodes gzip. Its state continues when the download does.
struct Decoder {
    gzip: MultiGzDecoder<Vec<u8>>,
    /// Number of compressed bytes that were received.
    received: u64,
}

impl Decoder {
    fn new() -> Self {
        Self { gzip: MultiGzDecoder::new(Vec::new()), received: 0 }
    }

    /// Decodes the next bytes.
    fn decode(&mut self, piece: &[u8]) -> io::Result<Vec<u8>> {
        self.gzip.write_all(piece)?;
        self.received += piece.len() as u64;
        Ok(std::mem::take(self.gzip.get_mut()))
    }

    /// Checks the end of the content, and returns the last decoded bytes.
    fn finish(mut self) -> io::Result<Vec<u8>> {
        if self.received > 0 {
            self.gzip.try_finish()?;
        }
        Ok(std::mem::take(self.gzip.get_mut()))
    }
}

/// The first byte of the range in a response: `Content-Range: bytes 5-9/10`.
fn range_start(response: &reqwest::Response) -> Option<u64> {
    let (range, _) = content_range(response)?.split_once('/')?;
    range.split_once('-')?.0.parse().ok()
}

/// The size of the file in a response: `Content-Range: bytes */10`.
fn total_size(response: &reqwest::Response) -> Option<u64> {
    content_range(response)?.split_once('/')?.1.parse().ok()
}

fn content_range(response: &reqwest::Response) -> Option<&str> {
    response.headers().get(header::CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes ")
}

/// The entity tag, if it is strong; `If-Range` does not accept a weak one (RFC 9110 13.1.5).
fn strong_validator(response: &reqwest::Response) -> Option<String> {
    let tag = response.headers().get(header::ETAG)?.to_str().ok()?;
    (!tag.starts_with("W/")).then(|| tag.to_owned())
}

/// The beginning of a file, under a temporary name.
struct PartialFile {
    path: PathBuf,
    out: BufWriter<File>,
    bytes: u64,
    rows: RowCount,
    /// Strong entity tag of the representation, if the server sent one to this process.
    validator: Option<String>,
    /// Decoder of the compressed representation, if that is downloaded.
    decoder: Option<Decoder>,
    /// Whether the file is requested uncompressed, because it could not be decompressed.
    without_gzip: bool,
}

impl PartialFile {
    /// Opens the part of the file at `path` that was downloaded before, if there is one.
    fn open(path: &Path) -> io::Result<Self> {
        let part = path.with_extension("ndjson.part");
        if let Some(folder) = part.parent() {
            create_private_folder(folder)?;
        }
        let (bytes, rows) = match File::open(&part) {
            Ok(file) => count_rows(file)?,
            Err(_) => Default::default(),
        };
        let mut file = private_file(&part, false)?;
        file.seek(io::SeekFrom::End(0))?;
        let out = BufWriter::with_capacity(BUFFER, file);
        let (validator, decoder, without_gzip) = (None, None, false);
        Ok(Self { path: part, out, bytes, rows, validator, decoder, without_gzip })
    }

    /// The part that is missing: of the compressed representation, or of the uncompressed one.
    fn missing(&self) -> FileRange {
        match &self.decoder {
            Some(decoder) => {
                FileRange { start: decoder.received, validator: self.validator.clone(), gzip: true }
            }
            None => FileRange {
                start: self.bytes,
                validator: self.validator.clone(),
                gzip: self.bytes == 0 && !self.without_gzip,
            },
        }
    }

    fn coding(&self) -> ContentCoding {
        if self.decoder.is_some() { ContentCoding::Gzip } else { ContentCoding::Identity }
    }

    /// After a lost connection, drops the decoder if the compressed representation has no strong entity tag.
    /// The tag of one representation is not valid for the other.
    fn keep_resumable(&mut self) {
        if self.validator.is_none() {
            self.decoder = None;
        }
    }

    fn append(&mut self, piece: &[u8]) -> io::Result<()> {
        self.out.write_all(piece)?;
        self.bytes += piece.len() as u64;
        self.rows.add(piece);
        Ok(())
    }

    fn restart(&mut self) -> io::Result<()> {
        self.flush()?;
        let file = self.out.get_mut();
        file.set_len(0)?;
        file.rewind()?;
        (self.bytes, self.rows) = Default::default();
        (self.validator, self.decoder) = (None, None);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn progress(&self, status: FileStatus) -> FileProgress {
        FileProgress { bytes: self.bytes, resources: self.rows.resources, status }
    }

    fn complete(self, path: &Path) -> io::Result<()> {
        let file = self.out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        std::fs::rename(&self.path, path)
    }

    fn discard(self) -> io::Result<()> {
        std::fs::remove_file(&self.path)
    }
}

/// The progress of a file that an earlier process completed.
fn existing(file: &ExportFile, path: &Path) -> io::Result<FileProgress> {
    let bytes = std::fs::metadata(path)?.len();
    let resources = match file.count {
        Some(count) => count,
        None => count_rows(File::open(path)?)?.1.resources,
    };
    Ok(FileProgress { bytes, resources, status: FileStatus::Done })
}

/// The size of a file and its rows.
fn count_rows(mut file: File) -> io::Result<(u64, RowCount)> {
    let mut buffer = vec![0; BUFFER];
    let (mut bytes, mut rows) = (0, RowCount::default());
    loop {
        let piece = match file.read(&mut buffer)? {
            0 => return Ok((bytes, rows)),
            size => &buffer[..size],
        };
        bytes += piece.len() as u64;
        rows.add(piece);
    }
}

fn not_written(path: &Path, error: &io::Error) -> ApiError {
    ApiError::File { path: path.display().to_string(), reason: error.to_string() }
}
