//! The manifest of a bulk export in a folder (`manifest.json`), which `trefoil export` and bulk clients
//! write. It says which files contain resources, and which list deletions.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Deserialize;

pub(super) const NAME: &str = "manifest.json";
/// Files in which clients record a download: the terminal client, and SMART's Bulk Data client.
const RECORDS: [&str; 2] = ["job.json", "log.ndjson"];

/// The list of a manifest that contains a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileRole {
    /// Resources, of which a Bundle is one.
    Output,
    /// Bundles with the deletions since the previous export, and the time of this one.
    Deleted(Option<Timestamp>),
    /// Remarks of the server about the export. They are no data.
    Remarks,
    Manifest,
    /// The record of a client about its download. It is no data.
    Record,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    transaction_time: String,
    output: Vec<ListedFile>,
    #[serde(default)]
    deleted: Vec<ListedFile>,
    #[serde(default)]
    error: Vec<ListedFile>,
}

#[derive(Deserialize)]
struct ListedFile {
    url: String,
}

/// The roles of the files in some folders.
#[derive(Debug, Default)]
pub(super) struct FileRoles {
    /// The manifests that were read, by folder; without a manifest, the folder is empty.
    folders: HashMap<PathBuf, HashMap<String, FileRole>>,
}

impl FileRoles {
    /// The role of a file, according to the manifest in its folder. `None` if there is no manifest, or it
    /// does not list the file.
    pub(super) fn of(&mut self, file: &Path) -> Option<FileRole> {
        let (folder, name) = (file.parent()?, file.file_name()?.to_str()?);
        if !self.folders.contains_key(folder) {
            self.folders.insert(folder.to_owned(), read(&folder.join(NAME)).unwrap_or_default());
        }
        // A file may have been compressed after the export.
        self.folders.get(folder)?.get(uncompressed(name)).copied()
    }
}

/// The name without the suffix of a compressed file.
fn uncompressed(name: &str) -> &str {
    name.strip_suffix(".gz").unwrap_or(name)
}

/// The files beside a manifest that it lists by a relative URL, as `trefoil export` does, and that are
/// missing: the export was not copied completely. Downloaded files may have other names than their URLs.
pub(super) fn missing_files(manifest: &Path) -> Vec<String> {
    let Some(Manifest { output, deleted, .. }) = parse(manifest) else { return Vec::new() };
    let names = output.into_iter().chain(deleted).map(|file| file.url).filter(|url| !url.contains("://"));
    let is_missing = |name: &String| {
        let file = manifest.with_file_name(name);
        !file.exists() && !file.with_added_extension("gz").exists()
    };
    names.filter(is_missing).collect()
}

fn parse(path: &Path) -> Option<Manifest> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// The roles in a manifest, by file name. `None` if the file is missing or no manifest of an export.
fn read(path: &Path) -> Option<HashMap<String, FileRole>> {
    let Manifest { transaction_time, output, deleted, error } = parse(path)?;
    let mut roles = HashMap::from([(NAME.to_owned(), FileRole::Manifest)]);
    roles.extend(RECORDS.map(|name| (name.to_owned(), FileRole::Record)));
    // A client that downloads files names them by the last segment of their URL.
    let lists = [
        (output, FileRole::Output),
        (deleted, FileRole::Deleted(transaction_time.parse().ok())),
        (error, FileRole::Remarks),
    ];
    for (files, role) in lists {
        let names = files.iter().filter_map(|file| file.url.rsplit('/').next()?.split(['?', '#']).next());
        roles.extend(names.map(|name| (uncompressed(name).to_owned(), role)));
    }
    Some(roles)
}
