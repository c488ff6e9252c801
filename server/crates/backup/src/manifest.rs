//! The manifest of a backup.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{Seq, StoreMoment};

use crate::BackupError;

/// Number of the format that this program writes.
const FORMAT: u32 = 1;

/// The description of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    format: u32,
    /// Version of the program that wrote the backup.
    pub program: String,
    /// Id of the backup: its time, so that the ids of a location sort by time.
    pub id: String,
    /// The moment that the backup contains.
    pub time: Timestamp,
    /// Id of the backup that contains the earlier versions; `None` for a full backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follows: Option<String>,
    /// Id of the store.
    pub store_id: String,
    /// Sequence number after which the log begins.
    pub after: u64,
    /// Sequence number of the moment.
    pub seq: u64,
    /// Greatest revision of a record.
    pub revision: u64,
    /// Earliest time of a later write, in milliseconds since 1970.
    pub floor_ms: i64,
    /// SHA-256 of the configuration file, to notice that another one belongs to the backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration_sha256: Option<String>,
    /// How far the audit log was written. It is not part of the backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditPosition>,
    /// The versions after `after` up to `seq`.
    pub log: Vec<Segment>,
    /// All records.
    pub ledger: Vec<Segment>,
    /// The files that belong to the store.
    pub files: Vec<AttachedFile>,
}

/// How far the audit log was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditPosition {
    /// Name of the newest file.
    pub file: String,
    /// Its length in bytes.
    pub bytes: u64,
}

/// An object with rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Path below the location.
    pub object: String,
    /// Length in bytes.
    pub bytes: u64,
    /// SHA-256 of the bytes, in hexadecimal digits.
    pub sha256: String,
    /// Number of rows.
    pub rows: u64,
}

/// A file that belongs to the store, whose content is `files/{sha256}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedFile {
    /// Name, such as `releases/loinc.org-2.80.index`.
    pub name: String,
    /// Length in bytes.
    pub bytes: u64,
    /// SHA-256 of the content, in hexadecimal digits.
    pub sha256: String,
    /// Time of its last change. A file with the same name, length and time is not read again.
    pub modified: Timestamp,
}

impl AttachedFile {
    /// Path of its content below the location.
    pub(crate) fn object(&self) -> String {
        format!("files/{}", self.sha256)
    }
}

impl Manifest {
    /// The manifest of a backup whose log begins after the sequence number of `follows`, without content yet.
    pub(crate) fn new(
        time: Timestamp,
        store_id: String,
        moment: StoreMoment,
        follows: Option<&Self>,
    ) -> Self {
        Self {
            format: FORMAT,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            id: time.strftime("%Y%m%dT%H%M%S%3fZ").to_string(),
            time,
            follows: follows.map(|follows| follows.id.clone()),
            store_id,
            after: follows.map_or(0, |follows| follows.seq),
            seq: moment.seq.0,
            revision: moment.revision,
            floor_ms: moment.floor_ms,
            configuration_sha256: None,
            audit: None,
            log: Vec::new(),
            ledger: Vec::new(),
            files: Vec::new(),
        }
    }

    /// `true` if an id could be that of a backup.
    pub(crate) fn is_id(id: &str) -> bool {
        id.len() == 19 && id.ends_with('Z') && id.starts_with(|first: char| first.is_ascii_digit())
    }

    /// Path of the manifest of a backup below the location.
    pub(crate) fn object(id: &str) -> String {
        format!("{id}/manifest.json")
    }

    /// Reads a manifest.
    pub(crate) fn read(object: &str, bytes: &[u8]) -> Result<Self, BackupError> {
        #[derive(Deserialize)]
        struct FormatNumber {
            format: u32,
        }
        let damaged = |error: serde_json::Error| BackupError::damaged(object, error.to_string());
        let FormatNumber { format } = serde_json::from_slice(bytes).map_err(damaged)?;
        if format != FORMAT {
            let newer =
                format!("{object} has format {format}, and this program knows {FORMAT}; use a newer trefoil");
            return Err(BackupError::Refused(newer));
        }
        serde_json::from_slice(bytes).map_err(damaged)
    }

    /// The state that a store has after all rows of the backup.
    pub fn moment(&self) -> StoreMoment {
        StoreMoment { seq: Seq(self.seq), revision: self.revision, floor_ms: self.floor_ms }
    }

    /// Number of versions in the log of this backup alone.
    pub fn versions(&self) -> u64 {
        self.log.iter().map(|segment| segment.rows).sum()
    }

    /// Number of records.
    pub fn records(&self) -> u64 {
        self.ledger.iter().map(|segment| segment.rows).sum()
    }

    /// Length of all objects of this backup in bytes, without the files that it shares with others.
    pub fn bytes(&self) -> u64 {
        self.log.iter().chain(&self.ledger).map(|segment| segment.bytes).sum()
    }
}
