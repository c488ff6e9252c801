//! The manifest of a finished job (SPEC, bulk export status result; Bulk Data Access 2.0.0).

use serde_json::{Value, json};

use crate::job::{Job, OutputFile, Section};

/// Writes the manifest; `files_base` is the address before `/{job}/{file}`.
pub fn write(job: &Job, files_base: &str) -> Vec<u8> {
    let entry = |file: &OutputFile| {
        let url = format!("{files_base}/{}/{}", job.id, file.name);
        json!({ "type": file.kind, "url": url, "count": file.count })
    };
    let list = |section| -> Value {
        job.files.iter().filter(|file| file.section == section).map(entry).collect::<Vec<_>>().into()
    };
    let mut manifest = json!({
        "transactionTime": fhir::instant::format(job.transaction_time),
        "request": job.request_url,
        "requiresAccessToken": true,
        "output": list(Section::Output),
        "error": list(Section::Error),
    });
    // Without _since there is nothing that a client could still have.
    if job.parameters.since.is_some() {
        manifest["deleted"] = list(Section::Deleted);
    }
    manifest.to_string().into_bytes()
}
