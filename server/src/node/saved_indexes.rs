//! Saved indexes of code systems, in `DIR/terminology`: those of imported releases, which are stored nowhere
//! else, and those of large CodeSystem resources, so that a restart need not build them again.
//!
//! | path | contents |
//! |---|---|
//! | `releases/ID.index` | an imported release |
//! | `releases/ID.source` | the hash of its source, so that it is not imported twice |
//! | `releases/ID.shared` | the hash of the source that all nodes shared last (see [`super::shared_releases`]) |
//! | `resources/ID@SEQ.index` | a stored CodeSystem, by the sequence number of its version |
//!
//! A file is written under another name (`….part`) and renamed, so that it is complete or missing. The hash
//! is removed before its index is replaced and written after it, each with an fsync: a killed process and a
//! power cut leave an index without a hash, never with a wrong one.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use store::Seq;
use store::folder::{make_folder, sync_folder};
use terminology::{CodeSystemIndex, TerminologyChange};

/// Size from which a CodeSystem resource is indexed when it is written, and its index saved, in bytes.
pub const MIN_SAVED_BYTES: usize = 1 << 20;
/// Maximum length of a FHIR id.
const LONGEST_ID: usize = 64;

/// Held while files are replaced, so that two concurrent writers do not mix an index with the hash of the
/// other one, and do not remove the index of a later version.
static TURN: Mutex<()> = Mutex::new(());

/// The state of a release in the data folder.
#[derive(Debug)]
pub struct LocalRelease {
    /// Id of the release.
    pub id: String,
    /// Hash of its source; `None` while it is being imported, or if it is missing.
    pub source: Option<String>,
    /// Hash of the source that all nodes shared last.
    pub shared: Option<String>,
}

/// A release in the data folder with its content.
#[derive(Debug)]
pub struct SavedRelease {
    /// Id of the release.
    pub id: String,
    /// Time at which its index was saved.
    pub imported: Timestamp,
    /// The index.
    pub index: CodeSystemIndex,
}

/// The folder of the saved indexes.
#[derive(Debug, Clone)]
pub struct SavedIndexes {
    folder: PathBuf,
}

impl SavedIndexes {
    /// Opens the folder below a data folder, and creates it if it is missing.
    ///
    /// # Errors
    /// An error if the folder cannot be created.
    pub fn open(data: &Path) -> io::Result<Self> {
        let folder = data.join("terminology");
        for part in ["releases", "resources"] {
            make_folder(&folder.join(part), 0o700)?;
        }
        Ok(Self { folder })
    }

    /// The folder of the indexes of stored CodeSystems, below a data folder.
    pub fn resources_in(data: &Path) -> PathBuf {
        data.join("terminology/resources")
    }

    /// The paths of all indexes below a data folder. Creates no folder.
    ///
    /// # Errors
    /// An error if a folder cannot be read.
    pub fn paths_in(data: &Path) -> io::Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for part in ["releases", "resources"] {
            let folder = data.join("terminology").join(part);
            match fs::read_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                entries => {
                    for entry in entries? {
                        paths.push(entry?.path());
                    }
                }
            }
        }
        paths.retain(|path| path.extension().is_some_and(|end| end == "index"));
        paths.sort();
        Ok(paths)
    }

    /// The imported releases, as changes of the terminology. A release that cannot be read is logged and
    /// skipped.
    ///
    /// # Errors
    /// An error if the folder cannot be read.
    pub fn releases(&self) -> io::Result<Vec<TerminologyChange>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.folder.join("releases"))? {
            let path = entry?.path();
            let Some(id) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".index")) else {
                continue;
            };
            match read_index(&path) {
                Ok(index) => {
                    self.update_format(&path, &index);
                    names.push(TerminologyChange::release(id, index));
                }
                Err(error) => tracing::error!(
                    %error, path = %path.display(),
                    "a code system cannot be used; import its release again"
                ),
            }
        }
        Ok(names)
    }

    /// Saves an index of an older format again, so that it need not be updated at the next start.
    fn update_format(&self, path: &Path, index: &CodeSystemIndex) {
        if !index.is_updated() {
            return;
        }
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        match self.write_file(path, |out| index.save(out)) {
            Ok(()) => tracing::info!(path = %path.display(), "updated an index to the current format"),
            Err(error) => tracing::warn!(%error, path = %path.display(), "failed to save an updated index"),
        }
    }

    /// Removes the partial files of a killed process. The caller must hold the lock of the store, and must
    /// not have written an index yet.
    ///
    /// # Errors
    /// An error if the folder cannot be read or a file not removed.
    pub fn remove_partial(&self) -> io::Result<()> {
        for part in ["releases", "resources"] {
            for entry in fs::read_dir(self.folder.join(part))? {
                let path = entry?.path();
                if path.extension().is_some_and(|end| end == "part") {
                    fs::remove_file(path)?;
                }
            }
        }
        Ok(())
    }

    /// The release that was imported from a source with this hash, and its id; `None` if there is no readable
    /// one.
    ///
    /// # Errors
    /// An error if the folder cannot be read.
    pub fn release_of(&self, hash: &str) -> io::Result<Option<(String, CodeSystemIndex)>> {
        for entry in fs::read_dir(self.folder.join("releases"))? {
            let path = entry?.path();
            let Some(id) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".source")) else {
                continue;
            };
            if fs::read(&path)? == hash.as_bytes()
                && let Ok(index) = read_index(&path.with_file_name(format!("{id}.index")))
            {
                return Ok(Some((id.to_owned(), index)));
            }
        }
        Ok(None)
    }

    /// Saves the index of a release that was imported from a source with this hash. It replaces an earlier
    /// one of the same system and version. Returns its id.
    ///
    /// # Errors
    /// An error if a file cannot be written.
    pub fn save_release(&self, index: &CodeSystemIndex, hash: &str) -> io::Result<String> {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let id = release_id(index.url(), index.version());
        self.remove_source(&id)?;
        self.write_file(&self.release_file(&id, "index"), |out| index.save(out))?;
        self.write_file(&self.release_file(&id, "source"), |out| out.write_all(hash.as_bytes()))?;
        Ok(id)
    }

    /// All releases with their indexes, in the order of their ids.
    ///
    /// # Errors
    /// An error if the folder or an index cannot be read.
    pub fn saved_releases(&self) -> io::Result<Vec<SavedRelease>> {
        let mut ids: Vec<String> = self.local_releases()?.into_iter().map(|release| release.id).collect();
        ids.sort();
        let read = ids.iter().filter_map(|id| self.saved_release(id).transpose());
        read.collect()
    }

    /// A release with its index; `None` if there is none with this id.
    ///
    /// # Errors
    /// An error if the index cannot be read.
    pub fn saved_release(&self, id: &str) -> io::Result<Option<SavedRelease>> {
        let path = self.release_path(id);
        let modified = match fs::metadata(&path) {
            Ok(data) if fhir::is_id(id) => data.modified()?,
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let imported = modified.try_into().map_err(io::Error::other)?;
        Ok(Some(SavedRelease { id: id.to_owned(), imported, index: read_index(&path)? }))
    }

    /// Returns whether all nodes share a release.
    ///
    /// # Errors
    /// An error if the folder cannot be read.
    pub fn is_shared(&self, id: &str) -> io::Result<bool> {
        self.read_hash(id, "shared").map(|hash| hash.is_some())
    }

    /// Removes a release. The index goes first, so that an interrupted removal leaves none.
    ///
    /// # Errors
    /// An error if a file cannot be removed.
    pub fn remove_release(&self, id: &str) -> io::Result<()> {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        for end in ["index", "source", "shared"] {
            match fs::remove_file(self.release_file(id, end)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        sync_folder(&self.folder.join("releases"))
    }

    /// Returns whether a release of the same system and version is saved.
    pub fn has_release(&self, index: &CodeSystemIndex) -> bool {
        self.release_path(&release_id(index.url(), index.version())).exists()
    }

    fn release_file(&self, id: &str, end: &str) -> PathBuf {
        self.folder.join("releases").join(format!("{id}.{end}"))
    }

    fn remove_source(&self, id: &str) -> io::Result<()> {
        match fs::remove_file(self.release_file(id, "source")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => sync_folder(&self.folder.join("releases")),
        }
    }

    fn read_hash(&self, id: &str, end: &str) -> io::Result<Option<String>> {
        match fs::read_to_string(self.release_file(id, end)) {
            Ok(hash) => Ok(Some(hash)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The releases in the folder.
    ///
    /// # Errors
    /// An error if the folder cannot be read.
    pub fn local_releases(&self) -> io::Result<Vec<LocalRelease>> {
        let mut releases = Vec::new();
        for entry in fs::read_dir(self.folder.join("releases"))? {
            let name = entry?.file_name();
            let Some(id) = name.to_str().and_then(|name| name.strip_suffix(".index")) else { continue };
            let (source, shared) = (self.read_hash(id, "source")?, self.read_hash(id, "shared")?);
            releases.push(LocalRelease { id: id.to_owned(), source, shared });
        }
        Ok(releases)
    }

    /// The path of the index of a release.
    pub fn release_path(&self, id: &str) -> PathBuf {
        self.release_file(id, "index")
    }

    /// The path to which the index of a release is fetched before it is saved.
    pub fn fetched_path(&self, id: &str) -> PathBuf {
        self.release_file(id, "fetched.part")
    }

    /// Saves the fetched index of a release with the hash of its source. Returns `None`, and saves nothing,
    /// if the file of the release has changed since `release` was read.
    ///
    /// # Errors
    /// An error if the index is invalid or a file cannot be written.
    pub fn save_fetched(&self, release: &LocalRelease, source: &str) -> io::Result<Option<CodeSystemIndex>> {
        let (id, part) = (release.id.as_str(), self.fetched_path(&release.id));
        let index = read_index(&part);
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = self.read_hash(id, "source")? == release.source
            && (release.source.is_some() || !self.release_path(id).exists());
        if !is_same || index.is_err() {
            fs::remove_file(&part)?;
            return index.map(|_| None);
        }
        self.remove_source(id)?;
        fs::rename(&part, self.release_path(id))?;
        sync_folder(&self.folder.join("releases"))?;
        self.write_file(&self.release_file(id, "source"), |out| out.write_all(source.as_bytes()))?;
        self.write_shared(id, source)?;
        index.map(Some)
    }

    /// Notes the hash of the source that all nodes share now.
    ///
    /// # Errors
    /// An error if the file cannot be written.
    pub fn note_shared(&self, id: &str, source: &str) -> io::Result<()> {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        self.write_shared(id, source)
    }

    fn write_shared(&self, id: &str, source: &str) -> io::Result<()> {
        self.write_file(&self.release_file(id, "shared"), |out| out.write_all(source.as_bytes()))
    }

    /// The saved index of a version of a resource, if there is a readable one.
    pub fn of_resource(&self, id: &str, seq: Seq) -> Option<CodeSystemIndex> {
        // An index of an older format is built again, because it lacks what the resource still has.
        read_index(&self.resource_path(id, seq)).ok().filter(|index| !index.is_updated())
    }

    /// Saves the index of a version of a resource, unless a later one is saved, and removes those of earlier
    /// versions.
    ///
    /// # Errors
    /// An error if a file cannot be written or removed.
    pub fn save_resource(&self, id: &str, seq: Seq, index: &CodeSystemIndex) -> io::Result<()> {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        if self.saved_versions(id)?.into_iter().any(|saved| saved > seq) {
            return Ok(());
        }
        self.write_file(&self.resource_path(id, seq), |out| index.save(out))?;
        self.remove_before(id, seq)
    }

    /// Removes the indexes of the versions of a resource before this one, which deletes it.
    ///
    /// # Errors
    /// An error if a file cannot be removed.
    pub fn remove_resource(&self, id: &str, seq: Seq) -> io::Result<()> {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        self.remove_before(id, seq)
    }

    fn remove_before(&self, id: &str, seq: Seq) -> io::Result<()> {
        let mut earlier = self.saved_versions(id)?.into_iter().filter(|saved| *saved < seq);
        earlier.try_for_each(|saved| fs::remove_file(self.resource_path(id, saved)))
    }

    /// The versions of a resource that have an index.
    fn saved_versions(&self, id: &str) -> io::Result<Vec<Seq>> {
        let mut versions = Vec::new();
        for entry in fs::read_dir(self.folder.join("resources"))? {
            let name = entry?.file_name();
            let name = name.to_str().and_then(|name| name.strip_suffix(".index")?.rsplit_once('@'));
            let version = name.filter(|(of, _)| *of == id).and_then(|(_, seq)| seq.parse().ok());
            versions.extend(version.map(Seq));
        }
        Ok(versions)
    }

    fn resource_path(&self, id: &str, seq: Seq) -> PathBuf {
        self.folder.join("resources").join(format!("{id}@{seq}.index"))
    }

    fn write_file(
        &self,
        path: &Path,
        fill: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
    ) -> io::Result<()> {
        let part = path.with_extension("part");
        let file = File::create(&part)?;
        let length = {
            let mut out = BufWriter::with_capacity(1 << 20, &file);
            fill(&mut out).and_then(|()| out.flush()).and_then(|()| file.sync_all())
        };
        if let Err(error) = length.and_then(|()| fs::rename(&part, path)) {
            drop(fs::remove_file(&part));
            return Err(error);
        }
        sync_folder(path.parent().unwrap_or(&self.folder))
    }
}

fn read_index(path: &Path) -> io::Result<CodeSystemIndex> {
    CodeSystemIndex::read(BufReader::with_capacity(1 << 20, File::open(path)?))
}

/// A valid FHIR id from the URL and version of a code system, readable if it is short enough.
fn release_id(url: &str, version: Option<&str>) -> String {
    let version = version.unwrap_or_default();
    // Versions of SNOMED CT are URLs that begin with that of the system.
    let name = match version.strip_prefix(url) {
        Some(rest) => format!("{url}{rest}"),
        None => format!("{url}-{version}"),
    };
    let name = name.trim_start_matches("http://").trim_start_matches("https://");
    let mut id = String::with_capacity(name.len());
    for c in name.chars() {
        let c = if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
        if !(c == '-' && id.ends_with('-')) {
            id.push(c);
        }
    }
    let id = id.trim_matches('-');
    if id.len() <= LONGEST_ID {
        return id.to_owned();
    }
    let digest = Sha256::digest(name.as_bytes());
    let end: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{end}", &id[..LONGEST_ID - 1 - end.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_latest_version_of_a_resource_is_saved() {
        let data = tempfile::tempdir().unwrap();
        let indexes = SavedIndexes::open(data.path()).unwrap();
        let resource =
            br#"{"resourceType":"CodeSystem","url":"u","content":"complete","concept":[{"code":"a"}]}"#;
        let index = CodeSystemIndex::from_resource(resource).unwrap();
        let saved = |id: &str| indexes.saved_versions(id).unwrap();
        for (id, seq) in [("a", 8), ("b", 3), ("a", 9), ("a", 7)] {
            indexes.save_resource(id, Seq(seq), &index).unwrap();
        }
        assert_eq!((saved("a"), saved("b")), (vec![Seq(9)], vec![Seq(3)]));
        // The resource was created again after it had been deleted.
        indexes.remove_resource("a", Seq(5)).unwrap();
        assert!(indexes.of_resource("a", Seq(9)).is_some());
        indexes.remove_resource("a", Seq(10)).unwrap();
        assert_eq!((saved("a"), saved("b")), (vec![], vec![Seq(3)]));
    }

    #[test]
    fn ids_of_releases_are_ids() {
        let sct = "http://snomed.info/sct";
        let version = format!("{sct}/900000000000207008/version/20250101");
        assert_eq!(release_id(sct, Some(&version)), "snomed.info-sct-900000000000207008-version-20250101");
        assert_eq!(release_id("http://loinc.org", Some("2.80")), "loinc.org-2.80");
        let long = release_id(&format!("http://example.org/{}", "x".repeat(80)), None);
        assert_eq!(long.len(), LONGEST_ID);
    }
}
