//! Export into a folder by an operator, without a job. It contains the same resources in the same order as a
//! job would. It writes `Type.ndjson` for each type that has resources, `deleted.ndjson` if `_since` is
//! given, `error.ndjson` with what a reader must know about the members of a Group, and finally
//! `manifest.json`. A folder without a manifest contains an incomplete export.

use std::path::Path;

use fhir::{Json as _, OperationOutcome};
use jiff::Timestamp;
use serde_json::{Value, json};
use store::{ResourceKey, Store, StoreError, Versions as _};
use tokio::fs::File;
use tokio::io::AsyncWriteExt as _;

use crate::group::GroupError;
use crate::job::cursor::ExportCursor;
use crate::job::{Job, Lease};
use crate::plan::erased_since::check_erasures;
use crate::plan::export_plan::ExportPlan;
use crate::plan::joined_types::joined_since;
use crate::plan::membership::GroupReader;
use crate::read::delete_bundle;
use crate::read::selection::{Selection, SelectionError};
use crate::read::supporting_comparison::SupportingComparison;
use crate::request::exported_kinds;
use crate::request::kick_off::{self, KickOff, KickOffError};
use crate::request::parameters::{ParameterRules, check_parameters};
use crate::{ExportLevel, GuideVersion};

/// Reasons why an export into a folder fails.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// A command-line option is invalid.
    #[error("{flag}: {reason}")]
    Flag {
        /// The option as typed.
        flag: &'static str,
        /// Reason and remedy.
        reason: String,
    },
    /// The export request was rejected.
    #[error(transparent)]
    KickOff(KickOffError),
    /// The folder is not empty.
    #[error("{0} is not empty; choose a new folder")]
    NotEmpty(String),
    /// The selection failed, for example because exported resources refer to too many other resources.
    #[error("{0}")]
    Selection(String),
    /// A file could not be written.
    #[error("failed to write to the folder: {0}")]
    File(#[from] std::io::Error),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<KickOffError> for OperatorError {
    fn from(error: KickOffError) -> Self {
        // Operators type command-line options, so errors name the option instead of the parameter.
        match error {
            KickOffError::Parameter { name, reason } if name == "_type" => {
                Self::Flag { flag: "--type", reason }
            }
            KickOffError::Parameter { name, reason } if name == "_since" => {
                Self::Flag { flag: "--since", reason }
            }
            error => Self::KickOff(error),
        }
    }
}

impl From<SelectionError> for OperatorError {
    fn from(error: SelectionError) -> Self {
        match error {
            SelectionError::Store(error) => Self::Store(error),
            error => Self::Selection(error.to_string()),
        }
    }
}

/// The result of an export into a folder.
#[derive(Debug)]
pub struct FolderSummary {
    /// The number of resources of each type.
    pub resources: Vec<(String, u64)>,
    /// The number of deleted resources that `deleted.ndjson` lists.
    pub deleted: u64,
    /// The number of OperationOutcomes in `error.ndjson`.
    pub notes: u64,
}

/// Exports into the folder `out`, which must be new or empty, and reports the progress of each type.
///
/// # Errors
/// Returns [`OperatorError`]. Files written before the error are kept, without a manifest.
pub async fn export(
    store: &Store,
    fhir_base: &str,
    request: KickOff,
    out: &Path,
    now: Timestamp,
    mut progress: impl FnMut(&str, u64),
) -> Result<FolderSummary, OperatorError> {
    let rules = ParameterRules { fhir_base, guide: GuideVersion::V2, supporting: false, now };
    let parameters = check_parameters(&request, rules)?;
    let mut folder = tokio::fs::DirBuilder::new();
    // Exported data must be readable only by the owner of the folder.
    #[cfg(unix)]
    folder.mode(0o700);
    folder.recursive(true).create(out).await?;
    if tokio::fs::read_dir(out).await?.next_entry().await?.is_some() {
        return Err(OperatorError::NotEmpty(out.display().to_string()));
    }
    let snapshot = store.snapshot(now).await?;
    let kinds = exported_kinds::kinds(&request, &parameters, store.kinds(snapshot.seq).await?);
    let lease = Lease { owner: String::new(), attempt: 1, attempts_without_progress: 0, until: now };
    let KickOff { level, request_url, client_id, .. } = request;
    let (seq, time) = (snapshot.seq, snapshot.time);
    let id = String::new();
    let mut job =
        Job::new(id, client_id, level, parameters, kinds, GuideVersion::V2, request_url, seq, time, lease);
    job.joined_since = joined_since(store).await?;
    ExportPlan::choose_indexed_types(&mut job, store, fhir_base).await.map_err(unknown)?;
    let reading = GroupReader { fhir_base: fhir_base.to_owned(), nested_groups: false };
    check_erasures(&job, store, &reading).await?;
    let mut supporting = None;
    if let Some(comparison) =
        Box::pin(SupportingComparison::of(&job, store, &reading)).await.map_err(unknown)?
    {
        while !comparison.advance().await? {}
        supporting = Some(comparison.into_sets());
    }
    let plan = Box::pin(ExportPlan::of(&job, store, &reading, supporting));
    let criteria = plan.await.map_err(unknown)?;
    let mut files = Vec::new();
    for kind in &job.kinds {
        let mut file = Lines::new(out.join(format!("{kind}.ndjson")));
        let mut selection = Selection::from(store, &job, kind, &criteria, ExportCursor::default());
        while let Some(lines) = selection.next_lines().await? {
            // A page is empty while references to supporting resources are collected.
            if !lines.ends.is_empty() {
                file.add(&lines.text, lines.ends.len() as u64).await?;
                progress(kind, file.count);
            }
        }
        if file.finish().await? > 0 {
            files.push((kind.clone(), file.count));
        }
    }
    let mut notes = Lines::new(out.join("error.ndjson"));
    for issue in criteria.notes(&job) {
        notes.line(&OperationOutcome::from(issue).to_json()).await?;
    }
    let noted = notes.finish().await?;
    let (deleted, bundles) = match job.parameters.since {
        Some(_) => write_deleted(store, &job, &criteria, out).await?,
        None => (0, 0),
    };
    let entry = |(kind, count): &(String, u64)| json!({ "type": kind, "url": format!("{kind}.ndjson"), "count": count });
    let mut manifest = json!({
        "transactionTime": fhir::instant::format(job.transaction_time),
        "request": job.request_url,
        "requiresAccessToken": false,
        "output": files.iter().map(entry).collect::<Vec<Value>>(),
        "error": [],
    });
    if noted > 0 {
        manifest["error"] = json!([{ "type": "OperationOutcome", "url": "error.ndjson", "count": noted }]);
    }
    if bundles > 0 {
        manifest["deleted"] = json!([{ "type": "Bundle", "url": "deleted.ndjson", "count": bundles }]);
    }
    let mut file = Lines::new(out.join("manifest.json"));
    file.line(manifest.to_string().as_bytes()).await?;
    file.finish().await?;
    Ok(FolderSummary { resources: files, deleted, notes: noted })
}

fn unknown(error: GroupError) -> OperatorError {
    KickOffError::from(error).into()
}

/// Writes the deleted resources. Returns their number and that of the Bundles.
async fn write_deleted(
    store: &Store,
    job: &Job,
    criteria: &ExportPlan,
    out: &Path,
) -> Result<(u64, u64), OperatorError> {
    let mut deleted = 0;
    let mut file = Lines::new(out.join("deleted.ndjson"));
    let mut bundle = delete_bundle::DeleteBundle::default();
    for kind in &job.kinds {
        let mut selection = Selection::from(store, job, kind, criteria, ExportCursor::default()).of_deleted();
        while let Some(versions) = selection.next().await? {
            let keys = versions.into_iter().map(|version| version.key);
            for key in keys.filter(|key| !criteria.scope.lists(key)) {
                deleted += 1;
                bundle.add(&key);
                if bundle.is_full() {
                    file.line(&bundle.take()).await?;
                }
            }
        }
        for id in criteria.scope.listed(kind) {
            deleted += 1;
            bundle.add(&ResourceKey::new(kind, id));
            if bundle.is_full() {
                file.line(&bundle.take()).await?;
            }
        }
    }
    if !bundle.is_empty() {
        file.line(&bundle.take()).await?;
    }
    Ok((deleted, file.finish().await?))
}

/// A file of lines. It is created when its first line is written.
struct Lines {
    path: std::path::PathBuf,
    file: Option<File>,
    count: u64,
}

impl Lines {
    fn new(path: std::path::PathBuf) -> Self {
        Self { path, file: None, count: 0 }
    }

    async fn line(&mut self, line: &[u8]) -> std::io::Result<()> {
        self.add(&[line, b"\n"].concat(), 1).await
    }

    async fn add(&mut self, text: &[u8], count: u64) -> std::io::Result<()> {
        self.count += count;
        if text.is_empty() {
            return Ok(());
        }
        if self.file.is_none() {
            self.file = Some(File::create_new(&self.path).await?);
        }
        match &mut self.file {
            Some(file) => file.write_all(text).await,
            None => Ok(()),
        }
    }

    /// Syncs the file and returns the number of lines.
    async fn finish(&mut self) -> std::io::Result<u64> {
        if let Some(mut file) = self.file.take() {
            file.flush().await?;
            file.sync_all().await?;
        }
        Ok(self.count)
    }
}

/// An export request at system or Group level with access to all types.
pub fn request(group: Option<String>, since: Option<String>, types: Option<String>) -> KickOff {
    let parameters = [("_since", since), ("_type", types)];
    let parameters = parameters.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    KickOff {
        request_url: match &group {
            Some(id) => format!("Group/{id}/$export"),
            None => "$export".to_owned(),
        },
        level: group.map_or(ExportLevel::System, ExportLevel::Group),
        parameters: parameters.collect(),
        by: kick_off::KickOffMethod::Get,
        client_id: String::new(),
        types: kick_off::TypeAccess::All,
        groups: None,
        lenient: false,
    }
}
