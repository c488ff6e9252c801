//! Updates of the export screen.

use std::path::{Path, PathBuf};

use crate::export::registry::RegisteredExport;
use crate::export::{ExportEvent, ExportJob};
use crate::model::{Activity, Confirmation, ExportRow, Model};
use crate::msg::{Answered, RuntimeEffect};

/// Adds the exports of earlier runs of the program to the table.
pub(super) fn on_exports(model: &mut Model, exports: Vec<RegisteredExport>) {
    for export in exports {
        if model.export.row(&export.folder).is_none() {
            model.export.rows.push(ExportRow::new(export.folder, export.job, Activity::None));
        }
    }
}

pub(super) fn on_progress(model: &mut Model, folder: &Path, event: ExportEvent) {
    if let Some(row) = model.export.row(folder).filter(|row| row.is_active()) {
        row.apply(event);
    }
}

pub(super) fn on_ended(model: &mut Model, folder: &Path, result: Answered<()>) {
    let Some(row) = model.export.row(folder) else { return };
    match result {
        Ok(()) => row.activity = Activity::Completed,
        Err(reason) => {
            model.notice = Some(format!("Error: {reason}"));
            row.activity = Activity::Stopped(reason);
        }
    }
}

pub(super) fn on_foreign_host(model: &mut Model, folder: &Path, host: String) {
    if let Some(row) = model.export.row(folder) {
        row.foreign_host = Some(host);
    }
}

pub(super) fn on_deleted(model: &mut Model, folder: &Path, result: Answered<ExportJob>) {
    match result {
        Ok(job) => {
            if let Some(row) = model.export.row(folder) {
                row.job = job;
            }
            model.notice = Some("The export was deleted on the server.".to_owned());
        }
        Err(reason) => model.notice = Some(format!("Error: {reason}")),
    }
}

/// Opens the form, or starts the export in it.
pub(super) fn send(model: &mut Model) -> Vec<RuntimeEffect> {
    if !model.export.form_open() {
        open_form(model);
        return Vec::new();
    }
    if model.about.read_only {
        model.notice = Some("Not possible: the client is read-only (--read-only).".to_owned());
        return Vec::new();
    }
    let parent = model.export.form.value("folder");
    let request = model.export.kick_off().and_then(|request| match parent.as_str() {
        "" => Err("enter the folder for the downloaded files".to_owned()),
        _ => Ok(request),
    });
    let request = match request {
        Ok(request) => request,
        Err(reason) => {
            model.notice = Some(format!("Error: {reason}"));
            return Vec::new();
        }
    };
    let job = ExportJob::new(&model.about.fhir_base, request, model.now);
    let folder = unused_folder(model, Path::new(&parent), &job);
    let row = ExportRow::new(folder.clone(), job.clone(), Activity::Active(None));
    model.export.rows.insert(0, row);
    model.export.selected = 0;
    model.export.scroll = 0;
    model.export.new_export = false;
    model.typing = false;
    vec![RuntimeEffect::StartExport { folder, job, bearer: model.export_bearer() }]
}

/// A folder that no other export in the table uses.
fn unused_folder(model: &mut Model, parent: &Path, job: &ExportJob) -> PathBuf {
    let name = job.folder_name();
    let mut folder = parent.join(&name);
    for number in 2.. {
        if model.export.row(&folder).is_none() {
            break;
        }
        folder = parent.join(format!("{name}-{number}"));
    }
    folder
}

pub(super) fn open_form(model: &mut Model) {
    model.export.new_export = true;
}

/// Closes the form if there are exports to show.
pub(super) fn close_form(model: &mut Model) {
    model.export.new_export = false;
}

/// Resumes the selected export. If it continues at another host, the user must confirm that, because the
/// token is sent there.
pub(super) fn resume(model: &mut Model, confirmed: Option<&Confirmation>) -> Vec<RuntimeEffect> {
    let bearer = model.export_bearer();
    let index = model.export.selected;
    let Some(row) = model.export.selected() else { return Vec::new() };
    let (folder, file_host) = (row.folder.clone(), row.foreign_host.clone());
    if let Some(host) = &file_host {
        let question = format!("The export continues at {host}. Send the token there?");
        if !model.confirms(confirmed, Confirmation::SendToken(host.clone()), &question) {
            return Vec::new();
        }
    }
    model.export.rows[index].activity = Activity::Active(None);
    model.export.rows[index].foreign_host = None;
    vec![RuntimeEffect::ResumeExport { folder, bearer, file_host }]
}

/// Cancels the selected export, or deletes it on the server, if the user confirms it.
pub(super) fn delete(model: &mut Model, confirmed: Option<&Confirmation>) -> Vec<RuntimeEffect> {
    let bearer = model.export_bearer();
    let index = model.export.selected;
    let Some(row) = model.export.selected() else { return Vec::new() };
    let folder = row.folder.clone();
    let is_active = row.is_active();
    let does = if is_active { "Cancel" } else { "Delete" };
    let question = format!("{does} the export on the server?");
    if !model.confirms(confirmed, Confirmation::DeleteExport(folder.clone()), &question) {
        return Vec::new();
    }
    if is_active {
        model.export.rows[index].activity = Activity::Stopped("cancelled".to_owned());
    }
    vec![RuntimeEffect::DeleteExport { folder, bearer }]
}

/// Chooses another level for the new export. `step` returns the new index for the present one and the last
/// one.
pub(super) fn choose(model: &mut Model, step: impl Fn(usize, usize) -> usize) {
    let choices = model.export_choices();
    let next = step(model.export.chosen(&choices), choices.len() - 1);
    if let Some(choice) = choices.get(next) {
        model.export.form.set("level", &choice.level);
    }
}

/// Moves the selection in the table.
pub(super) fn select(model: &mut Model, selected: usize) {
    model.export.selected = selected.min(model.export.rows.len().saturating_sub(1));
    model.export.scroll = 0;
}
