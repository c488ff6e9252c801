//! Versions and records as lines (see the [crate]).

use bytes::Bytes;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use store::{LedgerEntry, ResourceKey, Seq, Version};

/// The first line of a version.
#[derive(Serialize, Deserialize)]
struct VersionLine {
    seq: u64,
    #[serde(rename = "type")]
    kind: String,
    id: String,
    version: u64,
    updated_ms: i64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    compartments: Vec<String>,
    /// Source time in microseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source_us: Option<i64>,
    /// Length of the body. A tombstone has none, and an empty second line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<usize>,
}

/// The first line of a record.
#[derive(Serialize, Deserialize)]
struct RecordLine {
    key: String,
    revision: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
    bytes: usize,
}

/// A row of a backup.
pub(crate) trait Row: Sized {
    fn append(self, out: &mut Vec<u8>);
    fn read(rows: &mut RowReader) -> Result<Self, String>;
}

impl Row for Version {
    fn append(self, out: &mut Vec<u8>) {
        let bytes = self.body.as_ref().map(Bytes::len);
        let line = VersionLine {
            seq: self.seq.0,
            kind: self.key.kind,
            id: self.key.id,
            version: self.version,
            updated_ms: self.updated.as_millisecond(),
            compartments: self.compartments,
            source_us: self.source_time.map(Timestamp::as_microsecond),
            bytes,
        };
        append(out, &line, &self.body.unwrap_or_default());
    }

    fn read(rows: &mut RowReader) -> Result<Self, String> {
        let line: VersionLine = rows.line()?;
        let body = rows.content(line.bytes.unwrap_or_default())?;
        let updated = Timestamp::from_millisecond(line.updated_ms).map_err(|error| error.to_string())?;
        let source_time = line.source_us.map(Timestamp::from_microsecond).transpose();
        Ok(Self {
            key: ResourceKey { kind: line.kind, id: line.id },
            version: line.version,
            seq: Seq(line.seq),
            updated,
            compartments: line.compartments,
            source_time: source_time.map_err(|error| error.to_string())?,
            body: line.bytes.is_some().then_some(body),
        })
    }
}

impl Row for LedgerEntry {
    fn append(self, out: &mut Vec<u8>) {
        let Self { key, value, revision, expires } = self;
        append(out, &RecordLine { key, revision, expires, bytes: value.len() }, &value);
    }

    fn read(rows: &mut RowReader) -> Result<Self, String> {
        let RecordLine { key, revision, expires, bytes } = rows.line()?;
        Ok(Self { key, value: rows.content(bytes)?, revision, expires })
    }
}

fn append(out: &mut Vec<u8>, line: &impl Serialize, content: &[u8]) {
    serde_json::to_writer(&mut *out, line).expect("a line has string keys only");
    out.push(b'\n');
    out.extend_from_slice(content);
    out.push(b'\n');
}

/// Reads rows from a text.
pub(crate) struct RowReader {
    text: Bytes,
}

impl RowReader {
    pub fn new(text: Bytes) -> Self {
        Self { text }
    }

    /// The next row, or `None` at the end.
    ///
    /// # Errors
    /// Returns what is wrong with the text.
    pub fn next<R: Row>(&mut self) -> Result<Option<R>, String> {
        if self.text.is_empty() { Ok(None) } else { R::read(self).map(Some) }
    }

    fn line<T: DeserializeOwned>(&mut self) -> Result<T, String> {
        let end = self.text.iter().position(|&byte| byte == b'\n').ok_or("a line does not end")?;
        let line = self.text.split_to(end);
        let _feed = self.text.split_to(1);
        serde_json::from_slice(&line).map_err(|error| error.to_string())
    }

    fn content(&mut self, bytes: usize) -> Result<Bytes, String> {
        if self.text.len() <= bytes || self.text[bytes] != b'\n' {
            return Err("a content does not have the stated length".to_owned());
        }
        let content = self.text.split_to(bytes);
        let _feed = self.text.split_to(1);
        Ok(content)
    }
}
