//! Subcommands of exports.

use std::path::Path;

use command_line::text::{local_time, shell_word};
use jiff::Timestamp;
use serde_json::json;

use super::given_token::given;
use crate::api::{Api, ApiError, Bearer, ExportLevel, KickOff};
use crate::args::{CancelArgs, ExportArgs, ExportsArgs, TokenSource};
use crate::export::registry::RegisteredExport;
use crate::export::run::output_totals;
use crate::export::{
    ExportError, ExportEvent, ExportFolder, ExportJob, ExportPhase, ExportRegistry, ExportRun, FileStatus,
    run as export_run,
};
use crate::failure::CommandFailure;
use crate::output::Output;

pub(super) async fn export(api: &Api, args: ExportArgs) -> Result<(), CommandFailure> {
    if args.resume.is_none() && args.attach.is_none() {
        api.check_writable("starts an export")?;
    }
    if args.delete {
        api.check_writable("deletes the export with --delete")?;
    }
    let bearer = export_bearer(api, &args.token).await?;
    let output = Output { json: args.json };
    let watch = move |event| report_export(output, event);
    let run = match (&args.resume, &args.out) {
        (Some(folder), _) => ExportRun::resume(api, bearer.clone(), folder, watch)?,
        (None, Some(folder)) => {
            let registry = ExportRegistry::of_user()?;
            ExportRun::start(api, bearer.clone(), new_job(api, &args)?, folder, &registry, watch)?
        }
        (None, None) => {
            return Err(CommandFailure::Usage("--out DIR or --resume DIR is required".to_owned()));
        }
    };
    let folder = run.folder().to_owned();
    let (mut job, files) = match run.with_parallel_downloads(args.parallel).to_completion().await {
        Ok(complete) => complete,
        Err(error) => {
            // The command goes to the log before the error, so that a script that reads the last line still
            // sees the error.
            if ExportFolder::read(&folder).is_ok_and(|job| job.can_resume()) {
                let host = match &error {
                    ExportError::Api(ApiError::ForeignHost { host }) => Some(host.as_str()),
                    _ => None,
                };
                let command = resume_command(api, &folder, host);
                output.progress("resumable", json!({ "command": command }), || {
                    format!("Resume with: {command}")
                });
            }
            return Err(error.into());
        }
    };
    if args.delete {
        job = export_run::delete(api, &bearer, &folder).await?;
        output.progress("deleted", json!({}), || "the export was deleted on the server".to_owned());
    }
    let (resources, bytes) = output_totals(&job, &files);
    let each = job.files.iter().zip(&files).map(|(file, progress)| {
        json!({
            "list": file.list, "type": file.kind, "name": file.name,
            "resources": progress.resources, "bytes": progress.bytes,
        })
    });
    let summary = json!({
        "transactionTime": job.transaction_time,
        "status": job.status_url,
        "deleted": job.phase == ExportPhase::Deleted,
        "folder": folder,
        "resources": resources,
        "bytes": bytes,
        "files": each.collect::<Vec<_>>(),
    });
    output.result(&summary, || {
        format!("{resources} resources in {} files, {bytes} bytes, in {}", files.len(), folder.display())
    })
}

/// The command that resumes an export with the same profile, and allows a further host to receive the token.
fn resume_command(api: &Api, folder: &Path, host: Option<&str>) -> String {
    let options = api.profile().options.iter();
    let profile: String = options.map(|(name, value)| format!(" --{name} {}", shell_word(value))).collect();
    let hosts = api.profile().file_hosts.iter().map(String::as_str).chain(host);
    let hosts: String = hosts.map(|host| format!(" --file-host {}", shell_word(host))).collect();
    format!("trefoil-tui export --resume {}{profile}{hosts}", shell_word(folder))
}

/// The token for an export: the one on the command line, that of the backend client, that of the signed-in
/// user, or none.
async fn export_bearer(api: &Api, token: &TokenSource) -> Result<Bearer, CommandFailure> {
    match given(token)? {
        Some(bearer) => Ok(bearer),
        None if api.profile().backend.is_some() => Ok(Bearer::Backend),
        None if api.restore_session().await.is_some() => Ok(Bearer::User),
        None if api.profile().is_anonymous() => Ok(Bearer::Anonymous),
        None => Ok(Bearer::Backend),
    }
}

/// The record of the export that the command line describes.
fn new_job(api: &Api, args: &ExportArgs) -> Result<ExportJob, CommandFailure> {
    let base = &api.profile().fhir_base;
    if let Some(status_url) = &args.attach {
        return Ok(ExportJob::started_elsewhere(base, status_url, api.now()));
    }
    let request = KickOff {
        level: match &args.group {
            Some(id) => ExportLevel::Group(id.clone()),
            None if args.patients => ExportLevel::Patients,
            None => ExportLevel::System,
        },
        types: args.types.clone().unwrap_or_default(),
        since: args.since.as_deref().map_or(Ok(String::new()), instant_or_folder)?,
        until: args.until.clone().unwrap_or_default(),
        type_filter: args.type_filters.join(" "),
        elements: args.elements.clone().unwrap_or_default(),
        patients: args.patient_ids.clone().unwrap_or_default(),
        associated_data: args.associated_data.clone().unwrap_or_default(),
    };
    request.check().map_err(CommandFailure::Usage)?;
    Ok(ExportJob::new(base, request, api.now()))
}

/// The value of `--since`: an instant, or the folder of an earlier export, which is replaced by its time.
fn instant_or_folder(since: &str) -> Result<String, CommandFailure> {
    let folder = Path::new(since);
    if !folder.is_dir() {
        return match since.parse::<Timestamp>() {
            Ok(_) => Ok(since.to_owned()),
            Err(_) => Err(CommandFailure::Usage(format!(
                "'{since}' is not an instant, such as 2026-01-31T00:00:00Z, and no folder has this name; name an instant or the folder of an earlier export"
            ))),
        };
    }
    let job = ExportFolder::read(folder).map_err(ExportError::from)?;
    // Files that a `--delete` removed from the server are still here.
    let is_complete = job.phase == ExportPhase::Complete
        || job.phase == ExportPhase::Deleted
            && job.files.iter().all(|file| folder.join(&file.name).is_file());
    match job.transaction_time {
        Some(time) if is_complete => Ok(time),
        _ => Err(CommandFailure::Usage(format!(
            "the export in {} is not complete, so that a later one would miss resources; complete it with --resume {}",
            folder.display(),
            shell_word(folder)
        ))),
    }
}

/// Prints the progress of an export. Bytes on the way are not printed, only complete files.
fn report_export(output: Output, event: ExportEvent) {
    match event {
        ExportEvent::Record(job) => match &job.phase {
            ExportPhase::Running => {
                let status = job.status_url.as_deref().unwrap_or_default();
                output.progress("running", json!({ "status": status }), || {
                    format!("export started, its status is at {status}")
                });
            }
            ExportPhase::Downloading => {
                let (time, files) = (job.transaction_time.as_deref().unwrap_or_default(), job.files.len());
                output.progress("downloading", json!({ "transactionTime": time, "files": files }), || {
                    format!("complete as of {time}: {files} files")
                });
            }
            _ => {}
        },
        ExportEvent::Polled { progress, next_poll } => {
            output.progress("progress", json!({ "progress": progress, "nextPoll": next_poll }), || {
                format!(
                    "{}; next poll at {}",
                    progress.as_deref().unwrap_or("running"),
                    local_time(next_poll)
                )
            });
        }
        ExportEvent::Retrying { reason, next_attempt } => {
            output.progress("retrying", json!({ "message": reason, "nextAttempt": next_attempt }), || {
                format!("{reason}; next attempt at {}", local_time(next_attempt))
            });
        }
        ExportEvent::File { index, progress } => match &progress.status {
            FileStatus::Done => output.progress(
                "file",
                json!({ "index": index, "resources": progress.resources, "bytes": progress.bytes }),
                || format!("file {}: {} resources, {} bytes", index + 1, progress.resources, progress.bytes),
            ),
            FileStatus::Retrying(reason) | FileStatus::Failed(reason) => {
                output.progress("file-error", json!({ "index": index, "message": reason }), || {
                    format!("file {}: {reason}", index + 1)
                });
            }
            // A line for each piece would flood a log.
            FileStatus::Waiting | FileStatus::Downloading => {}
        },
    }
}

/// Lists the exports of this user.
///
/// # Errors
/// [`CommandFailure`] if the list cannot be printed.
pub fn exports(args: &ExportsArgs) -> Result<(), CommandFailure> {
    let exports = ExportRegistry::of_user()?.list();
    let row = |export: &RegisteredExport| {
        let job = &export.job;
        json!({
            "folder": export.folder, "scope": job.scope(), "server": job.fhir_base, "startedAt": job.started_at,
            "phase": job.phase, "state": export.state(), "status": job.status_url, "files": job.files.len(),
        })
    };
    Output { json: args.json }.result(&exports.iter().map(row).collect::<Vec<_>>(), || {
        if exports.is_empty() {
            return "no exports".to_owned();
        }
        let line = |export: &RegisteredExport| {
            let job = &export.job;
            format!(
                "{}  {:<12}  {:<24}  {}",
                local_time(job.started_at),
                export.state(),
                job.scope(),
                export.folder.display()
            )
        };
        exports.iter().map(line).collect::<Vec<_>>().join("\n")
    })
}

/// Cancels an export, or deletes a complete one on the server.
pub(super) async fn cancel(api: &Api, args: &CancelArgs) -> Result<(), CommandFailure> {
    api.check_writable("deletes an export")?;
    let bearer = export_bearer(api, &args.token).await?;
    let job = export_run::delete(api, &bearer, &args.folder).await?;
    let details = json!({ "status": job.status_url, "phase": job.phase });
    Output { json: args.json }.result(&details, || "the export was deleted on the server".to_owned())
}
