//! Download of one file. A connection that is lost is resumed with a range request (RFC 9110 14), in this process or a
//! later one. A file has a temporary name until it is complete and its lines are counted.

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use futures_util::StreamExt as _;
use http::{StatusCode, header};

use super::job::{ExportFile, FileProgress, FileStatus};
use super::retry::RetryCounter;
use crate::api::{Api, ApiError, Bearer, FileRange};
use crate::private_files::{create_private_folder, private_file};

/// Number of bytes between two progress reports.
const REPORT_INTERVAL: u64 = 1 << 20;
/// Size of the buffers for reading and writing files.
const BUFFER: usize = 256 * 1024;

/// Downloads a file to `path` and returns its size and number of lines. If the file exists, it is complete.
///
/// # Errors
/// Returns the error of the last attempt, [`ApiError::File`] if the file cannot be written, or
/// [`ApiError::Unexpected`] if the number of lines is not the number in the manifest.
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
    // A server without ranges sends the file from its beginning again, which is progress only beyond the longest part.
    let mut longest = part.bytes;
    loop {
        let Err(error) = attempt(api, file, &mut part, bearer, report).await else { break };
        if part.bytes > longest {
            longest = part.bytes;
            retries.reset();
        }
        let Some(delay) = retries.next_delay(&error, api, bearer).await else { return Err(error) };
        report(part.progress(FileStatus::Retrying(error.to_string())));
        api.wait(delay).await;
    }
    let resources = part.resources();
    if let Some(count) = file.count.filter(|count| *count != resources) {
        // The next attempt must not resume this file.
        part.discard().map_err(|error| not_written(path, &error))?;
        let reason = format!("the manifest says {count} resources, the file has {resources}");
        return Err(ApiError::Unexpected { url: file.url.clone(), reason });
    }
    let done = part.progress(FileStatus::Done);
    part.complete(path).map_err(|error| not_written(path, &error))?;
    Ok(done)
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
    let range = FileRange { start: part.bytes, validator: part.validator.clone() };
    let response = api.request_file(&file.url, &range, bearer).await?;
    match response.status() {
        StatusCode::PARTIAL_CONTENT if range_start(&response) == Some(part.bytes) => {}
        StatusCode::PARTIAL_CONTENT => {
            part.restart().map_err(|error| failed(&part.path, error))?;
            let reason = "the range in the response is not the requested one".to_owned();
            return Err(ApiError::Interrupted { url: file.url.clone(), reason });
        }
        StatusCode::RANGE_NOT_SATISFIABLE if total_size(&response) == Some(part.bytes) => return Ok(()),
        StatusCode::RANGE_NOT_SATISFIABLE => {
            part.restart().map_err(|error| failed(&part.path, error))?;
            let reason = "the file is shorter than the part that was downloaded before".to_owned();
            return Err(ApiError::Interrupted { url: file.url.clone(), reason });
        }
        _ => part.restart().map_err(|error| failed(&part.path, error))?,
    }
    part.validator = strong_validator(&response);
    let mut reported = part.bytes;
    report(part.progress(FileStatus::Downloading));
    let mut body = response.bytes_stream();
    while let Some(piece) = body.next().await {
        let piece = match piece {
            Ok(piece) => piece,
            Err(error) => {
                part.flush().map_err(|error| failed(&part.path, error))?;
                return Err(ApiError::interrupted(&file.url, &error, part.bytes));
            }
        };
        part.append(&piece).map_err(|error| failed(&part.path, error))?;
        if part.bytes - reported >= REPORT_INTERVAL {
            reported = part.bytes;
            report(part.progress(FileStatus::Downloading));
        }
    }
    part.flush().map_err(|error| failed(&part.path, error))
}

/// Returns the first byte of the range in a response: `Content-Range: bytes 5-9/10`.
fn range_start(response: &reqwest::Response) -> Option<u64> {
    let (range, _) = content_range(response)?.split_once('/')?;
    range.split_once('-')?.0.parse().ok()
}

/// Returns the size of the file in a response: `Content-Range: bytes */10`.
fn total_size(response: &reqwest::Response) -> Option<u64> {
    content_range(response)?.split_once('/')?.1.parse().ok()
}

fn content_range(response: &reqwest::Response) -> Option<&str> {
    response.headers().get(header::CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes ")
}

/// Returns the entity tag, if it is strong; `If-Range` does not accept a weak one (RFC 9110 13.1.5).
fn strong_validator(response: &reqwest::Response) -> Option<String> {
    let tag = response.headers().get(header::ETAG)?.to_str().ok()?;
    (!tag.starts_with("W/")).then(|| tag.to_owned())
}

/// The beginning of a file, under a temporary name.
struct PartialFile {
    path: PathBuf,
    out: BufWriter<File>,
    bytes: u64,
    /// Number of line ends.
    lines: u64,
    last_byte: u8,
    /// Entity tag of the content, if the server sent one to this process.
    validator: Option<String>,
}

impl PartialFile {
    /// Opens the part of the file at `path` that was downloaded before, if there is one.
    fn open(path: &Path) -> io::Result<Self> {
        let part = path.with_extension("ndjson.part");
        if let Some(folder) = part.parent() {
            create_private_folder(folder)?;
        }
        let (bytes, lines, last_byte) = match File::open(&part) {
            Ok(file) => count_lines(file)?,
            Err(_) => (0, 0, b'\n'),
        };
        let mut file = private_file(&part, false)?;
        file.seek(io::SeekFrom::End(0))?;
        let out = BufWriter::with_capacity(BUFFER, file);
        Ok(Self { path: part, out, bytes, lines, last_byte, validator: None })
    }

    fn append(&mut self, piece: &[u8]) -> io::Result<()> {
        self.out.write_all(piece)?;
        self.bytes += piece.len() as u64;
        self.lines += line_ends(piece);
        self.last_byte = piece.last().copied().unwrap_or(self.last_byte);
        Ok(())
    }

    fn restart(&mut self) -> io::Result<()> {
        self.flush()?;
        let file = self.out.get_mut();
        file.set_len(0)?;
        file.rewind()?;
        (self.bytes, self.lines, self.last_byte) = (0, 0, b'\n');
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Returns the number of lines. The last line need not end with a line feed.
    fn resources(&self) -> u64 {
        self.lines + u64::from(self.last_byte != b'\n')
    }

    fn progress(&self, status: FileStatus) -> FileProgress {
        FileProgress { bytes: self.bytes, resources: self.resources(), status }
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

/// Returns the progress of a file that an earlier process completed.
fn existing(file: &ExportFile, path: &Path) -> io::Result<FileProgress> {
    let bytes = std::fs::metadata(path)?.len();
    let resources = match file.count {
        Some(count) => count,
        None => {
            let (_, lines, last) = count_lines(File::open(path)?)?;
            lines + u64::from(last != b'\n')
        }
    };
    Ok(FileProgress { bytes, resources, status: FileStatus::Done })
}

/// Returns the size of a file, the number of its line ends, and its last byte.
fn count_lines(mut file: File) -> io::Result<(u64, u64, u8)> {
    let mut buffer = vec![0; BUFFER];
    let (mut bytes, mut lines, mut last) = (0, 0, b'\n');
    loop {
        let piece = match file.read(&mut buffer)? {
            0 => return Ok((bytes, lines, last)),
            size => &buffer[..size],
        };
        bytes += piece.len() as u64;
        lines += line_ends(piece);
        last = piece[piece.len() - 1];
    }
}

fn line_ends(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

fn not_written(path: &Path, error: &io::Error) -> ApiError {
    ApiError::File { path: path.display().to_string(), reason: error.to_string() }
}
