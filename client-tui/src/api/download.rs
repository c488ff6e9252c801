//! Download of the files of a finished export. Several files at a time are streamed to a folder, and their lines are
//! counted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use futures_util::{StreamExt as _, TryStreamExt as _};
use serde::Serialize;
use tokio::fs::File;
use tokio::io::AsyncWriteExt as _;

use super::discovery::check_safe;
use super::export::{ExportManifest, OutputFile};
use super::{Answer, Api, ApiError, Bearer};

/// Maximum number of concurrent downloads.
const AT_ONCE: usize = 4;

/// Progress of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileProgress {
    /// Position of the file in the list of output files followed by error files.
    pub index: usize,
    /// Bytes written so far.
    pub bytes: u64,
    /// Lines written so far.
    pub lines: u64,
    /// Whether the file is complete.
    pub done: bool,
}

/// A completed download.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Download {
    /// Folder of the files.
    pub folder: PathBuf,
    /// Files in the order of the manifest.
    pub files: Vec<SavedFile>,
    /// Total size of the files, in bytes.
    pub bytes: u64,
    /// Number of resources in the output files.
    pub resources: u64,
}

/// A downloaded file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SavedFile {
    /// Type of the resources in the file.
    #[serde(rename = "type")]
    pub kind: String,
    /// Name of the file in the folder.
    pub name: String,
    /// Number of resources, which is the number of lines.
    pub resources: u64,
    /// Size of the file.
    pub bytes: u64,
}

impl Api {
    /// Downloads all files and the manifest to a folder, which is created if it does not exist.
    ///
    /// # Errors
    /// Returns the error of a request, [`ApiError::File`] if a file cannot be written, or [`ApiError::Unexpected`] if
    /// the number of lines of a file is not the number in the manifest.
    pub async fn download(
        &self,
        manifest: &ExportManifest,
        folder: &Path,
        bearer: &Bearer,
        watch: impl Fn(FileProgress),
    ) -> Result<Download, ApiError> {
        tokio::fs::create_dir_all(folder).await.map_err(|error| not_written(folder, &error))?;
        let bearer = manifest.requires_access_token.then_some(bearer);
        let watch = &watch;
        let one = |(index, (file, name)): (usize, (OutputFile, String))| async move {
            let path = folder.join(&name);
            let (bytes, resources) = self
                .download_one(&file, &path, bearer, |bytes, lines, done| {
                    watch(FileProgress { index, bytes, lines, done });
                })
                .await?;
            Ok::<_, ApiError>((index, SavedFile { kind: file.kind, name, resources, bytes }))
        };
        let named = names(manifest);
        let mut files: Vec<_> = futures_util::stream::iter(named.into_iter().enumerate().map(one))
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await?;
        files.sort_by_key(|(index, _)| *index);
        let path = folder.join("manifest.json");
        let text = serde_json::to_vec_pretty(manifest).expect("all keys of a manifest are strings");
        tokio::fs::write(&path, text).await.map_err(|error| not_written(&path, &error))?;
        Ok(Download {
            folder: folder.to_owned(),
            bytes: files.iter().map(|(_, file)| file.bytes).sum(),
            resources: files.iter().take(manifest.output.len()).map(|(_, file)| file.resources).sum(),
            files: files.into_iter().map(|(_, file)| file).collect(),
        })
    }

    /// Streams one file to disk, under a temporary name until it is complete.
    async fn download_one(
        &self,
        file: &OutputFile,
        path: &Path,
        bearer: Option<&Bearer>,
        watch: impl Fn(u64, u64, bool),
    ) -> Result<(u64, u64), ApiError> {
        let mut request = self.http().get(&file.url).header("accept", "application/fhir+ndjson");
        if let Some(bearer) = bearer {
            check_safe(&file.url)?;
            request = request.bearer_auth(self.token(bearer).await?);
        }
        let response = self.stream(request).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        if !status.is_success() {
            let body = response.bytes().await.unwrap_or_default();
            return Err(ApiError::refused(&file.url, &Answer { status, headers, body }));
        }
        let part = path.with_extension("ndjson.part");
        let mut out = File::create(&part).await.map_err(|error| not_written(&part, &error))?;
        let (mut bytes, mut lines, mut last) = (0, 0, b'\n');
        let mut body = response.bytes_stream();
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(|error| ApiError::unreachable(&file.url, &error))?;
            out.write_all(&piece).await.map_err(|error| not_written(&part, &error))?;
            bytes += piece.len() as u64;
            lines += piece.iter().filter(|byte| **byte == b'\n').count() as u64;
            last = piece.last().copied().unwrap_or(last);
            watch(bytes, lines, false);
        }
        lines += u64::from(last != b'\n');
        out.flush().await.map_err(|error| not_written(&part, &error))?;
        if let Some(count) = file.count.filter(|count| *count != lines) {
            let reason = format!("the manifest says {count} resources, the file has {lines}");
            return Err(ApiError::Unexpected { url: file.url.clone(), reason });
        }
        tokio::fs::rename(&part, path).await.map_err(|error| not_written(path, &error))?;
        watch(bytes, lines, true);
        Ok((bytes, lines))
    }
}

fn not_written(path: &Path, error: &std::io::Error) -> ApiError {
    ApiError::File { path: path.display().to_string(), reason: error.to_string() }
}

/// Returns a file name for each file: its type, with a number from the second file of the type on. Only letters and
/// digits from the server are used in a name.
fn names(manifest: &ExportManifest) -> Vec<(OutputFile, String)> {
    let mut seen = BTreeMap::new();
    let mut name = |file: &OutputFile, prefix: &str| {
        let kind: String = file.kind.chars().filter(char::is_ascii_alphanumeric).take(64).collect();
        let stem = format!("{prefix}{kind}");
        let count = seen.entry(stem.clone()).and_modify(|count| *count += 1).or_insert(1);
        let name = if *count == 1 { format!("{stem}.ndjson") } else { format!("{stem}.{count}.ndjson") };
        (file.clone(), name)
    };
    let output: Vec<_> = manifest.output.iter().map(|file| name(file, "")).collect();
    output.into_iter().chain(manifest.error.iter().map(|file| name(file, "error."))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_stay_in_the_folder() {
        let file = |kind: &str| OutputFile { kind: kind.to_owned(), url: String::new(), count: None };
        let manifest = ExportManifest {
            transaction_time: String::new(),
            request: String::new(),
            requires_access_token: true,
            output: vec![file("Patient"), file("Patient"), file("../../etc/passwd"), file("")],
            error: vec![file("OperationOutcome")],
        };
        let found: Vec<_> = names(&manifest).into_iter().map(|(_, name)| name).collect();
        let expected = [
            "Patient.ndjson",
            "Patient.2.ndjson",
            "etcpasswd.ndjson",
            ".ndjson",
            "error.OperationOutcome.ndjson",
        ];
        assert_eq!(found, expected);
    }
}
