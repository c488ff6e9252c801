//! Output as Apache Parquet: one row for each resource, in the same order as NDJSON.
//!
//! | column | type | content |
//! |---|---|---|
//! | `resourceType` | string | |
//! | `id` | string, optional | null for lines that are not stored resources: Bundles of deletes, OperationOutcomes, headers |
//! | `versionId` | string, optional | `meta.versionId` |
//! | `lastUpdated` | timestamp, milliseconds, UTC, optional | `meta.lastUpdated` |
//! | `json` | JSON (a byte array in UTF-8) | the resource, byte for byte the line of NDJSON |
//!
//! A row group ends before the resource that would make its JSON exceed a limit. The same resources therefore
//! result in the same bytes. Columns are compressed with Snappy.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use resources::json::Text;
use serde::Deserialize;
use store::blocking::run_blocking;

use crate::abort_on_drop::until_ended;
use crate::files::write_error::WriteError;

const SCHEMA: &str = "message resource {
    required binary resourceType (STRING);
    optional binary id (STRING);
    optional binary versionId (STRING);
    optional int64 lastUpdated (TIMESTAMP(MILLIS,true));
    required binary json (JSON);
}";

/// Maximum length of the JSON of a row group in bytes, unless a single resource is longer.
const GROUP: usize = 8 << 20;

type ParquetFile = SerializedFileWriter<Vec<u8>>;

/// The resources of one row group, concatenated.
#[derive(Default)]
struct RowGroup {
    text: BytesMut,
    /// End of each row's JSON as an offset in `text`.
    ends: Vec<usize>,
}

/// Writer of the rows of a file.
#[derive(Default)]
pub(crate) struct ParquetRows {
    /// `None` until the first row group is written.
    file: Option<ParquetFile>,
    full: VecDeque<RowGroup>,
    last: RowGroup,
}

impl ParquetRows {
    pub fn add(&mut self, json: &[u8]) {
        if !self.last.ends.is_empty() && self.last.text.len() + json.len() > GROUP {
            self.full.push_back(std::mem::take(&mut self.last));
        }
        self.last.text.extend_from_slice(json);
        self.last.ends.push(self.last.text.len());
    }

    /// Writes the next full row group, if there is one, and returns its bytes.
    pub async fn next_group(&mut self) -> Result<Option<Vec<u8>>, WriteError> {
        let Some(group) = self.full.pop_front() else { return Ok(None) };
        let (file, bytes) = write(self.file.take(), group).await?;
        self.file = Some(file);
        Ok(Some(bytes))
    }

    /// Writes the last row group and the footer, and returns their bytes. Must be called when no full row
    /// group is left.
    pub async fn end(mut self) -> Result<Vec<u8>, WriteError> {
        let (mut file, mut bytes) = write(self.file.take(), self.last).await?;
        file.finish().map_err(failed)?;
        bytes.extend(taken(&mut file)?);
        Ok(bytes)
    }
}

/// Writes a row group outside of the async threads. Returns the writer and the new bytes.
async fn write(file: Option<ParquetFile>, group: RowGroup) -> Result<(ParquetFile, Vec<u8>), WriteError> {
    let written = run_blocking(move || {
        let mut file = file.map_or_else(begin, Ok)?;
        group.write(&mut file)?;
        Ok(file)
    });
    let mut file = until_ended(written).await.map_err(failed)?;
    let bytes = taken(&mut file)?;
    Ok((file, bytes))
}

fn begin() -> Result<ParquetFile, ParquetError> {
    let json = ColumnPath::from("json");
    let properties = WriterProperties::builder()
        .set_created_by("Trefoil".to_owned())
        .set_compression(Compression::SNAPPY)
        .set_dictionary_enabled(false)
        .set_column_dictionary_enabled(ColumnPath::from("resourceType"), true)
        .set_column_statistics_enabled(json, EnabledStatistics::None)
        .build();
    ParquetFile::new(Vec::new(), Arc::new(parse_message_type(SCHEMA)?), Arc::new(properties))
}

/// The bytes written since the last call.
fn taken(file: &mut ParquetFile) -> Result<Vec<u8>, WriteError> {
    file.flush().map_err(|error| failed(error.into()))?;
    Ok(std::mem::take(file.inner_mut()))
}

fn failed(error: ParquetError) -> WriteError {
    WriteError::Files(object_store::Error::Generic { store: "Parquet", source: Box::new(error) })
}

/// The members of a resource that have their own column.
#[derive(Deserialize)]
struct RowHead<'a> {
    #[serde(borrow, rename = "resourceType")]
    kind: Text<'a>,
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    meta: Option<RowMeta<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RowMeta<'a> {
    #[serde(borrow)]
    version_id: Option<Text<'a>>,
    #[serde(borrow)]
    last_updated: Option<Text<'a>>,
}

impl RowGroup {
    fn write(self, file: &mut ParquetFile) -> Result<(), ParquetError> {
        let text: Bytes = self.text.freeze();
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let rows: Vec<Bytes> = starts.zip(&self.ends).map(|(start, end)| text.slice(start..*end)).collect();
        let head =
            |row| serde_json::from_slice::<RowHead<'_>>(row).map_err(|e| ParquetError::External(e.into()));
        let heads: Vec<RowHead<'_>> = rows.iter().map(|row| head(row)).collect::<Result<_, _>>()?;
        let meta =
            |head: &RowHead<'_>, of: fn(&RowMeta<'_>) -> Option<String>| head.meta.as_ref().and_then(of);
        let version = |meta: &RowMeta<'_>| meta.version_id.as_deref().map(str::to_owned);
        let updated = |meta: &RowMeta<'_>| meta.last_updated.as_deref().map(str::to_owned);

        let kinds: Vec<_> = heads.iter().map(|head| Some(head.kind.to_string())).collect();
        let ids: Vec<_> = heads.iter().map(|head| head.id.as_deref().map(str::to_owned)).collect();
        let versions: Vec<_> = heads.iter().map(|head| meta(head, version)).collect();
        let millis = |text: String| fhir::instant::parse(&text).ok().map(|time| time.as_millisecond());
        let times: Vec<_> = heads.iter().map(|head| meta(head, updated).and_then(millis)).collect();

        let mut group = file.next_row_group()?;
        for (time, column) in [kinds, ids, versions].into_iter().enumerate() {
            let values: Vec<_> = column.iter().flatten().map(|text| ByteArray::from(text.as_str())).collect();
            let levels = (time > 0).then(|| levels(&column));
            let mut writer = group.next_column()?.ok_or_else(too_few)?;
            writer.typed::<ByteArrayType>().write_batch(&values, levels.as_deref(), None)?;
            writer.close()?;
        }
        let values: Vec<i64> = times.iter().copied().flatten().collect();
        let mut writer = group.next_column()?.ok_or_else(too_few)?;
        writer.typed::<Int64Type>().write_batch(&values, Some(&levels(&times)), None)?;
        writer.close()?;
        let values: Vec<_> = rows.into_iter().map(ByteArray::from).collect();
        let mut writer = group.next_column()?.ok_or_else(too_few)?;
        writer.typed::<ByteArrayType>().write_batch(&values, None, None)?;
        writer.close()?;
        group.close()?;
        Ok(())
    }
}

/// The definition level of each row: 1 for a value, 0 for null.
fn levels<T>(column: &[Option<T>]) -> Vec<i16> {
    column.iter().map(|value| i16::from(value.is_some())).collect()
}

fn too_few() -> ParquetError {
    ParquetError::General("the schema has fewer columns than are written".to_owned())
}
