//! The manifest of a finished job (SPEC, bulk export status result; Bulk Data Access 2.0.0).

use serde_json::{Value, json};

use crate::job::Job;

/// Name of the file of OperationOutcomes, which the manifest lists under `error`.
pub const NOTES: &str = "OperationOutcome.notes.ndjson";

/// Writes the manifest; `files_base` is the address before `/{job}/{file}`.
pub fn write(job: &Job, files_base: &str) -> Vec<u8> {
    let (error, output): (Vec<_>, Vec<_>) = job.output.iter().partition(|file| file.name == NOTES);
    let entries = |files: Vec<&crate::job::OutputFile>| -> Vec<Value> {
        let entry = |file: &crate::job::OutputFile| json!({ "type": file.kind, "url": format!("{files_base}/{}/{}", job.id, file.name), "count": file.count });
        files.into_iter().map(entry).collect()
    };
    let manifest = json!({
        "transactionTime": fhir::instant::format(job.transaction_time),
        "request": job.request_url,
        "requiresAccessToken": true,
        "output": entries(output),
        "error": entries(error),
    });
    manifest.to_string().into_bytes()
}
