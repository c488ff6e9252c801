//! Saved indexes of code systems, in `DIR/terminology`: those of releases, which have no other source here, and those
//! of large CodeSystem resources, which a restart then need not compile again.
//!
//! | path | what lies there |
//! |---|---|
//! | `releases/ID.index` | a release that was imported |
//! | `releases/ID.source` | the hash of what it was made from, so that it is not made again |
//! | `resources/ID@SEQ.index` | a stored CodeSystem, by the sequence number of its version |
//!
//! A file is written under another name (`….part`) and renamed, so that it is there whole or not at all. A hash goes
//! before its index is replaced and comes after: a killed process leaves an index without one, never with a wrong one.

use std::fs::{self, DirBuilder, File};
use std::io::{self, BufReader, BufWriter, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest as _, Sha256};
use store::Seq;
use terminology::{Change, Index};

/// CodeSystem resources from this size on are compiled when they come in and their indexes saved, in bytes.
pub const LARGE: usize = 1 << 20;
/// Longest id that FHIR allows.
const LONGEST_ID: usize = 64;

/// The folder.
#[derive(Debug, Clone)]
pub struct Indexes {
    folder: PathBuf,
}

impl Indexes {
    /// Opens the folder of a data folder, and makes it where it is missing.
    ///
    /// # Errors
    /// The file system's.
    pub fn open(data: &Path) -> io::Result<Self> {
        let folder = data.join("terminology");
        for part in ["releases", "resources"] {
            DirBuilder::new().recursive(true).mode(0o700).create(folder.join(part))?;
        }
        Ok(Self { folder })
    }

    /// The releases, as changes of the terminology. One that cannot be read is told in the log and left out.
    ///
    /// # Errors
    /// The file system's.
    pub fn releases(&self) -> io::Result<Vec<Change>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.folder.join("releases"))? {
            let path = entry?.path();
            let Some(id) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".index")) else {
                continue;
            };
            match read(&path) {
                Ok(index) => found.push(Change::Index { id: id.to_owned(), index }),
                Err(error) => tracing::error!(
                    %error, path = %path.display(),
                    "a code system cannot be used; import its release again"
                ),
            }
        }
        Ok(found)
    }

    /// Removes what a killed process left half written. Only for who holds the store's lock, before anything is written.
    ///
    /// # Errors
    /// The file system's.
    pub fn sweep(&self) -> io::Result<()> {
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

    /// The release that was made from content of this hash, with its id; `None` where there is none that can be read.
    ///
    /// # Errors
    /// The file system's.
    pub fn release_of(&self, hash: &str) -> io::Result<Option<(String, Index)>> {
        for entry in fs::read_dir(self.folder.join("releases"))? {
            let path = entry?.path();
            let Some(id) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".source")) else {
                continue;
            };
            if fs::read(&path)? == hash.as_bytes()
                && let Ok(index) = read(&path.with_file_name(format!("{id}.index")))
            {
                return Ok(Some((id.to_owned(), index)));
            }
        }
        Ok(None)
    }

    /// Keeps the index of a release that was made from content of this hash, in the place of an earlier one of the same
    /// system and version.
    ///
    /// # Errors
    /// The file system's.
    pub fn keep_release(&self, index: &Index, hash: &str) -> io::Result<String> {
        // Of two imports at once, an index and its hash must be of the same one.
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let id = release_id(index.url(), index.version());
        let file = |end: &str| self.folder.join("releases").join(format!("{id}.{end}"));
        match fs::remove_file(file("source")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.write(&file("index"), |out| index.save(out))?;
        self.write(&file("source"), |out| out.write_all(hash.as_bytes()))?;
        Ok(id)
    }

    /// The saved index of a version of a resource, where there is one that can be read.
    pub fn of_resource(&self, id: &str, seq: Seq) -> Option<Index> {
        read(&self.resource(id, seq)).ok()
    }

    /// Keeps the index of a version of a resource and forgets those of earlier ones.
    ///
    /// # Errors
    /// The file system's.
    pub fn keep_resource(&self, id: &str, seq: Seq, index: &Index) -> io::Result<()> {
        self.forget_resource(id)?;
        self.write(&self.resource(id, seq), |out| index.save(out))
    }

    /// Forgets the indexes of a resource.
    ///
    /// # Errors
    /// The file system's.
    pub fn forget_resource(&self, id: &str) -> io::Result<()> {
        for entry in fs::read_dir(self.folder.join("resources"))? {
            let entry = entry?;
            let name = entry.file_name();
            if name.to_str().and_then(|name| name.rsplit_once('@')).is_some_and(|(of, _)| of == id) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    fn resource(&self, id: &str, seq: Seq) -> PathBuf {
        self.folder.join("resources").join(format!("{id}@{seq}.index"))
    }

    fn write(
        &self,
        path: &Path,
        fill: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
    ) -> io::Result<()> {
        let part = path.with_extension("part");
        let file = File::create(&part)?;
        let written = {
            let mut out = BufWriter::with_capacity(1 << 20, &file);
            fill(&mut out).and_then(|()| out.flush()).and_then(|()| file.sync_all())
        };
        if let Err(error) = written.and_then(|()| fs::rename(&part, path)) {
            drop(fs::remove_file(&part));
            return Err(error);
        }
        File::open(path.parent().unwrap_or(&self.folder))?.sync_all()
    }
}

fn read(path: &Path) -> io::Result<Index> {
    Index::read(BufReader::with_capacity(1 << 20, File::open(path)?))
}

/// An id as FHIR allows it, from the address and version of a code system: readable where that is short enough.
fn release_id(url: &str, version: Option<&str>) -> String {
    let version = version.unwrap_or_default();
    // SNOMED CT's versions are addresses that hold the system's own.
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
    fn ids_of_releases_are_ids() {
        let sct = "http://snomed.info/sct";
        let version = format!("{sct}/900000000000207008/version/20250101");
        assert_eq!(release_id(sct, Some(&version)), "snomed.info-sct-900000000000207008-version-20250101");
        assert_eq!(release_id("http://loinc.org", Some("2.80")), "loinc.org-2.80");
        let long = release_id(&format!("http://example.org/{}", "x".repeat(80)), None);
        assert_eq!(long.len(), LONGEST_ID);
    }
}
