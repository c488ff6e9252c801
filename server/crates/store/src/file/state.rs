//! The state file of a store, which describes the minimum content of the engine's folder.
//!
//! The engine treats a missing journal as a new one and a missing table as an empty one. Therefore the writer
//! records at each checkpoint how far the journal was written and which files exist; this record is compared
//! with the folder when the store is opened. A checkpoint is taken when the store becomes idle, after at most
//! 512 MiB of writes, and at a clean stop. The loss of any write before the checkpoint is detected:
//!
//! - The journal of the checkpoint must begin with the bytes that it had at the checkpoint. If the engine has
//!   removed the journal since then, its content is in the tables.
//! - Each table contains the number of the checkpoint, which one batch wrote into all tables. A table that
//!   lost its files, or whose writes were only in a missing journal, has an older number or none.
//! - The version file of each table is compared with the checksum that the engine recorded and does not
//!   check.
//! - A file of a table never changes: its length and the checksum of its first and last bytes are compared.
//!   The engine verifies the blocks between them when it reads them.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use fjall::AbstractTree as _;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::failure::{ACCEPT_DAMAGE, of_folder, other_format};
use super::journal::JournalPosition;
use super::keys::StoreTable;
use super::tables::StoreTables;
use crate::StoreError;
use crate::plan::StoreCounters;

const NAME: &str = "state";
/// Format number of the store: the state file, the engine's folder, keys and values.
const FORMAT: u32 = 2;
/// Number of bytes at each end of a table file that the checksum covers.
const END: usize = 32 << 10;

/// The recorded minimum content of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoreState {
    pub format: u32,
    /// Id of the store: a random number in hexadecimal digits, generated when the store is created.
    pub id: String,
    /// Number of the checkpoint; 0 before the first one.
    pub checkpoint: u64,
    /// `true` if the checkpoint was the last operation before a clean stop.
    pub is_clean: bool,
    pub counters: StoreCounters,
    pub journal: Option<JournalPosition>,
    pub tables: Vec<String>,
    /// Files that the tables consist of.
    pub files: Vec<TableFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TableFile {
    /// Path relative to the engine's folder.
    path: String,
    length: u64,
    /// XXH3 of the first and last bytes of the file.
    sum: u64,
}

/// The format of a store in a folder, compared with the one that this program reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FolderFormat {
    /// Number of the format of the store.
    pub found: u32,
    /// Number of the format of this program.
    pub needed: u32,
}

/// The format of the store in a folder; `None` if there is no store.
///
/// # Errors
/// Returns [`StoreError::Engine`] if the file cannot be read, and [`StoreError::Corrupt`] if it is no state
/// file.
pub(super) fn folder_format(dir: &Path) -> Result<Option<FolderFormat>, StoreError> {
    #[derive(Deserialize)]
    struct Numbered {
        format: u32,
    }
    let path = dir.join(NAME);
    let bytes = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes.map_err(of_folder("read the state of the store", dir))?,
    };
    let json = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let numbered: Numbered = serde_json::from_slice(json)
        .map_err(|error| StoreError::Corrupt { what: format!("{}: {error}", path.display()) })?;
    Ok(Some(FolderFormat { found: numbered.format, needed: FORMAT }))
}

impl StoreState {
    /// The state of a store before its creation.
    pub fn new() -> Result<Self, StoreError> {
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(super::failure::engine("make the id of the store"))?;
        Ok(Self {
            format: FORMAT,
            id: id.iter().map(|byte| format!("{byte:02x}")).collect(),
            checkpoint: 0,
            is_clean: false,
            counters: StoreCounters::default(),
            journal: None,
            tables: Vec::new(),
            files: Vec::new(),
        })
    }

    /// Reads the state file. Returns `None` if the file does not exist.
    ///
    /// # Errors
    /// Returns [`StoreError::Corrupt`] if the file was modified, and [`StoreError::Engine`] if it has another
    /// format.
    pub fn read(dir: &Path) -> Result<Option<Self>, StoreError> {
        let path = dir.join(NAME);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(of_folder("read the state of the store", dir))?,
        };
        let not_written =
            || damaged(dir, &format!("the file {} does not match its checksum", path.display()));
        let text = str::from_utf8(&bytes).map_err(|_| not_written())?;
        let (json, sum) = text.split_once('\n').ok_or_else(not_written)?;
        if sum != checksum_line(json) {
            return Err(not_written());
        }
        let state: Self = serde_json::from_str(json).map_err(|error| StoreError::Corrupt {
            what: format!("{}: {error}; use the program that wrote it", path.display()),
        })?;
        if state.format != FORMAT {
            return Err(other_format(&format!("{} has", path.display()), state.format, FORMAT));
        }
        Ok(Some(state))
    }

    /// Writes the state file durably and atomically.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        let json =
            serde_json::to_string(self).expect("a state has string keys only, so it serializes to JSON");
        let part = dir.join("state.part");
        let mut file = File::create(&part)?;
        write!(file, "{json}\n{}", checksum_line(&json))?;
        file.sync_all()?;
        fs::rename(&part, dir.join(NAME))?;
        File::open(dir)?.sync_all()
    }

    /// Checks the engine's folder `db` before the engine opens it.
    ///
    /// # Errors
    /// Returns [`StoreError::Corrupt`] with the missing or damaged file.
    pub fn check(&self, dir: &Path, db: &Path) -> Result<(), StoreError> {
        if self.checkpoint == 0 {
            return Ok(());
        }
        for file in ["version", "lock"] {
            require(dir, &db.join(file))?;
        }
        for table in &self.tables {
            check_version(dir, &db.join("keyspaces").join(table))?;
        }
        for file in &self.files {
            let path = db.join(&file.path);
            // The engine may have removed a file after the checkpoint. It refuses to start without a file
            // that it still needs.
            if path.exists() && TableFile::of(db, &file.path).ok().as_ref() != Some(file) {
                return Err(damaged(
                    dir,
                    &format!("the file {} does not match its checksum", path.display()),
                ));
            }
        }
        Ok(())
    }
}

fn checksum_line(json: &str) -> String {
    format!("{:032x}\n", xxh3_128(json.as_bytes()))
}

/// Checks that a file of the engine exists and is not empty. The engine's lock file may be empty.
fn require(dir: &Path, path: &Path) -> Result<(), StoreError> {
    match fs::metadata(path) {
        Ok(metadata_of_file) if metadata_of_file.len() > 0 || path.ends_with("lock") => Ok(()),
        Ok(_) => Err(damaged(dir, &format!("the file {} is empty", path.display()))),
        Err(error) => Err(damaged(dir, &format!("the file {} cannot be read: {error}", path.display()))),
    }
}

/// Verifies the checksum of a table's version file. The file `current` contains the number of the version,
/// the XXH3 of the version file, and a zero byte.
fn check_version(dir: &Path, table: &Path) -> Result<(), StoreError> {
    let current = table.join("current");
    require(dir, &current)?;
    let wrong =
        |path: &Path| damaged(dir, &format!("the file {} does not match its checksum", path.display()));
    let bytes = fs::read(&current).ok().and_then(|bytes| <[u8; 25]>::try_from(bytes).ok());
    let bytes = bytes.ok_or_else(|| wrong(&current))?;
    let (number, rest) = bytes.split_first_chunk::<8>().expect("the length was checked to be 25 bytes");
    let (sum, kind) = rest.split_first_chunk::<16>().expect("17 of the 25 bytes are left");
    let version = table.join(format!("v{}", u64::from_le_bytes(*number)));
    require(dir, &version)?;
    match fs::read(&version) {
        Ok(bytes) if kind == [0] && xxh3_128(&bytes) == u128::from_le_bytes(*sum) => Ok(()),
        _ => Err(damaged(
            dir,
            &format!("the files {} and {} do not belong together", current.display(), version.display()),
        )),
    }
}

/// An error that names the defect and the remedy.
pub(super) fn damaged(dir: &Path, what: &str) -> StoreError {
    let accept = dir.join(ACCEPT_DAMAGE);
    StoreError::Corrupt {
        what: format!(
            "{what}; stop the server and restore a backup of the folder, or continue with the remaining data: create the empty \
             file {} and start again",
            accept.display()
        ),
    }
}

impl TableFile {
    fn of(db: &Path, path: &str) -> io::Result<Self> {
        let mut file = File::open(db.join(path))?;
        let length = file.metadata()?.len();
        let (mut end, mut hasher) = (Vec::new(), Xxh3::new());
        (&mut file).take(END as u64).read_to_end(&mut end)?;
        hasher.update(&end);
        file.seek(SeekFrom::Start(length.saturating_sub(END as u64)))?;
        end.clear();
        file.take(END as u64).read_to_end(&mut end)?;
        hasher.update(&end);
        Ok(Self { path: path.to_owned(), length, sum: hasher.digest() })
    }
}

/// A cache of the table files. Each file is read once, because table files do not change.
#[derive(Default)]
pub(super) struct TableFiles(HashMap<String, TableFile>);

impl TableFiles {
    /// The table folders, and the files that the tables currently consist of.
    pub fn list(&mut self, db: &Path, tables: &StoreTables) -> io::Result<(Vec<String>, Vec<TableFile>)> {
        // The folder of the engine's own table, which changes only when a table is created.
        let mut paths: Vec<_> =
            names(&db.join("keyspaces/0/tables"))?.into_iter().map(|name| ("0".to_owned(), name)).collect();
        let mut folders = vec!["0".to_owned()];
        for table in StoreTable::ALL.map(|table| tables.of(table)) {
            let folder = table.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
            let version = table.tree.current_version();
            // Files that the version does not list may still be incomplete.
            paths.extend(version.iter_tables().map(|file| (folder.clone(), file.id().to_string())));
            folders.push(folder);
        }
        let (mut by_path, mut files) = (HashMap::new(), Vec::new());
        for (folder, name) in paths {
            let path = format!("keyspaces/{folder}/tables/{name}");
            let file = match self.0.remove(&path) {
                Some(file) => file,
                None => match TableFile::of(db, &path) {
                    // The engine has merged the file with others and removed it.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    file => file?,
                },
            };
            files.push(file.clone());
            by_path.insert(path, file);
        }
        self.0 = by_path;
        files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok((folders, files))
    }
}

/// The names of the entries in a folder of the engine that are numbers.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    let names = entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).collect())
}
