//! The manifest of a backup.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{Seq, StoreMoment};

use crate::{BackupError, BackupKey};

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
    /// Ids of the earlier stores whose place the store takes, the last one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub continues: Vec<String>,
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
    /// Id of the key with which the backup is encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_id: Option<String>,
    /// How far the audit log was written. It is not part of the backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditPosition>,
    /// The versions after `after` up to `seq`.
    pub log: Vec<Segment>,
    /// All records.
    pub ledger: Vec<Segment>,
    /// The files that belong to the store.
    pub files: Vec<AttachedFile>,
    /// Tag of the key over the manifest without this member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
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
    pub(crate) fn object(&self, is_sealed: bool) -> String {
        let end = if is_sealed { ".sealed" } else { "" };
        format!("files/{}{end}", self.sha256)
    }
}

impl Manifest {
    /// The manifest of a backup whose log begins after the sequence number of `follows`, without content yet.
    /// The id of a backup that is made at a time.
    pub fn id_at(time: Timestamp) -> String {
        time.strftime("%Y%m%dT%H%M%S%3fZ").to_string()
    }

    pub(crate) fn new(
        time: Timestamp,
        store_id: String,
        moment: StoreMoment,
        follows: Option<&Self>,
    ) -> Self {
        Self {
            format: FORMAT,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            id: Self::id_at(time),
            time,
            follows: follows.map(|follows| follows.id.clone()),
            store_id,
            continues: Vec::new(),
            after: follows.map_or(0, |follows| follows.seq),
            seq: moment.seq.0,
            revision: moment.revision,
            floor_ms: moment.floor_ms,
            configuration_sha256: None,
            key_id: None,
            audit: None,
            log: Vec::new(),
            ledger: Vec::new(),
            files: Vec::new(),
            tag: None,
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

    /// The text of the manifest, with the tag of the key if there is one.
    pub(crate) fn text(mut self, key: Option<&BackupKey>) -> Vec<u8> {
        self.tag = key.map(|key| key.tag(&self.tagged_text()));
        serde_json::to_vec_pretty(&self).expect("a manifest has string keys only")
    }

    fn tagged_text(&self) -> Vec<u8> {
        serde_json::to_vec(&Self { tag: None, ..self.clone() }).expect("a manifest has string keys only")
    }

    /// Checks that the backup is encrypted with this key, or not at all if there is none.
    pub(crate) fn check_key(&self, key: Option<&BackupKey>) -> Result<(), BackupError> {
        let text = match (&self.key_id, key) {
            (None, None) => return Ok(()),
            (Some(id), Some(key)) if id == key.id() => {
                return match self.tag.as_ref().is_some_and(|tag| key.is_tag(tag, &self.tagged_text())) {
                    true => Ok(()),
                    false => {
                        Err(BackupError::damaged(Self::object(&self.id), "its tag is not that of the key"))
                    }
                };
            }
            (Some(id), None) => {
                format!("the backup {} is encrypted with the key {id}; name its file", self.id)
            }
            (Some(id), Some(key)) => {
                format!(
                    "the backup {} is encrypted with the key {id}, and the given one is {}",
                    self.id,
                    key.id()
                )
            }
            (None, Some(_)) => {
                format!(
                    "the backup {} is not encrypted, so that it could be anyone's; restore it without a key",
                    self.id
                )
            }
        };
        Err(BackupError::Refused(text))
    }

    /// The state that a store has after all rows of the backup.
    pub fn moment(&self) -> StoreMoment {
        StoreMoment { seq: Seq(self.seq), revision: self.revision, floor_ms: self.floor_ms }
    }

    /// `full`, or the backup that this one follows.
    pub fn kind(&self) -> String {
        self.follows.as_ref().map_or("full".to_owned(), |follows| format!("follows {follows}"))
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
