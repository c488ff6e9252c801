//! Exports: their folders and progress, their continuation and their end.

use std::path::{Path, PathBuf};

use ratatui::crossterm::event::KeyCode;
use trefoil_tui::api::Bearer;
use trefoil_tui::export::registry::RegisteredExport;
use trefoil_tui::export::{ExportEvent, ExportJob, ExportPhase, FileProgress, FileStatus};
use trefoil_tui::model::{Activity, Model};
use trefoil_tui::msg::{Message, RuntimeEffect};
use trefoil_tui::update::update;

use crate::support::{confirm, job, manifest, model, now, press, session, type_text, wait};

/// Starts an export with the form, and returns its folder and record.
fn start(model: &mut Model) -> (PathBuf, ExportJob) {
    let effects = press(model, KeyCode::Enter);
    let [RuntimeEffect::StartExport { folder, job, bearer: Bearer::Backend }] = &effects[..] else {
        panic!("{effects:?}")
    };
    (folder.clone(), job.clone())
}

/// Reports a record of the export in a folder.
fn record(model: &mut Model, folder: &Path, job: ExportJob) {
    let event = ExportEvent::Record(Box::new(job));
    update(model, Message::ExportProgress { folder: folder.to_owned(), event });
}

fn downloading(job: &ExportJob) -> ExportJob {
    let mut job = ExportJob { phase: ExportPhase::Downloading, ..job.clone() };
    job.add_page(&manifest());
    job
}

/// Returns a model with a complete export of two files.
pub fn complete() -> Model {
    let mut model = model();
    press(&mut model, KeyCode::Char('4'));
    let (folder, job) = start(&mut model);
    let job = ExportJob { phase: ExportPhase::Complete, ..downloading(&job) };
    record(&mut model, &folder, job);
    update(&mut model, Message::ExportEnded { folder, result: Ok(()) });
    model
}

#[test]
fn two_exports_have_separate_folders_and_progress() {
    let mut model = model();
    press(&mut model, KeyCode::Char('4'));
    let (first, first_job) = start(&mut model);
    assert_eq!(first_job, job());
    assert_eq!(first, PathBuf::from("trefoil-exports/20240501T120000Z-Group-g1"));
    press(&mut model, KeyCode::Char('n'));
    let (second, second_job) = start(&mut model);
    assert_ne!(first, second);
    record(&mut model, &first, downloading(&first_job));
    record(&mut model, &second, downloading(&second_job));
    let progress = FileProgress { bytes: 9, resources: 1, status: FileStatus::Done };
    let event = ExportEvent::File { index: 1, progress };
    update(&mut model, Message::ExportProgress { folder: first.clone(), event });
    let complete_files = |model: &mut Model, folder: &PathBuf| {
        let files = &model.export.row(folder).unwrap().files;
        files.iter().filter(|file| file.status == FileStatus::Done).count()
    };
    assert_eq!((complete_files(&mut model, &first), complete_files(&mut model, &second)), (1, 0));
}

#[test]
fn quitting_during_an_export_must_be_confirmed() {
    let mut model = model();
    press(&mut model, KeyCode::Char('4'));
    let (folder, _) = start(&mut model);
    press(&mut model, KeyCode::Char('q'));
    assert!(!model.quit);
    wait(&mut model);
    press(&mut model, KeyCode::Up);
    confirm(&mut model);
    assert!(!model.quit, "another key was pressed in between");
    press(&mut model, KeyCode::Char('q'));
    confirm(&mut model);
    assert!(model.quit);
    model.quit = false;
    update(&mut model, Message::ExportEnded { folder, result: Ok(()) });
    press(&mut model, KeyCode::Char('q'));
    assert!(model.quit);
}

#[test]
fn an_interrupted_export_of_an_earlier_run_is_resumed() {
    let mut model = model();
    let status_url = Some("https://t.example/j1".to_owned());
    let job = ExportJob { phase: ExportPhase::Running, status_url, ..job() };
    let folder = PathBuf::from("/e/1");
    update(&mut model, Message::Exports(vec![RegisteredExport { folder: folder.clone(), job }]));
    press(&mut model, KeyCode::Char('4'));
    let resume =
        [RuntimeEffect::ResumeExport { folder: folder.clone(), bearer: Bearer::Backend, file_host: None }];
    assert_eq!(press(&mut model, KeyCode::Char('r')), resume);
    assert_eq!(press(&mut model, KeyCode::Char('r')), [], "the export is active");
    update(&mut model, Message::ExportEnded { folder: folder.clone(), result: Err("gone".to_owned()) });
    assert_eq!(model.export.rows[0].activity, Activity::Stopped("gone".to_owned()));
    assert_eq!(press(&mut model, KeyCode::Char('r')), resume);
}

#[test]
fn the_end_of_an_export_must_be_confirmed() {
    let mut model = model();
    press(&mut model, KeyCode::Char('4'));
    let (folder, job) = start(&mut model);
    assert_eq!(press(&mut model, KeyCode::Char('x')), []);
    wait(&mut model);
    press(&mut model, KeyCode::Down);
    let delete = RuntimeEffect::DeleteExport { folder: folder.clone(), bearer: Bearer::Backend };
    assert!(!confirm(&mut model).contains(&delete), "another key was pressed in between");
    assert_eq!(press(&mut model, KeyCode::Char('x')), []);
    assert_eq!(confirm(&mut model), [delete]);
    // A late event of the task that was ended.
    record(&mut model, &folder, downloading(&job));
    assert_eq!(model.export.rows[0].job.phase, ExportPhase::Starting);
    let deleted = ExportJob { phase: ExportPhase::Deleted, ..job };
    update(&mut model, Message::ExportDeleted { folder, result: Ok(deleted) });
    assert_eq!(model.export.rows[0].job.phase, ExportPhase::Deleted);
    assert_eq!(press(&mut model, KeyCode::Char('x')), [], "the export is deleted already");
}

#[test]
fn a_progress_text_is_kept_until_the_next_one() {
    let mut model = model();
    press(&mut model, KeyCode::Char('4'));
    let (folder, job) = start(&mut model);
    record(&mut model, &folder, ExportJob { phase: ExportPhase::Running, ..job });
    for progress in [Some("10%".to_owned()), None] {
        let event = ExportEvent::Polled { progress, next_poll: now() };
        update(&mut model, Message::ExportProgress { folder: folder.clone(), event });
    }
    let Activity::Active(Some(waiting)) = &model.export.rows[0].activity else { panic!("{model:?}") };
    assert_eq!(waiting.progress.as_deref(), Some("10%"));
}

#[test]
fn an_invalid_since_is_not_sent() {
    let mut model = model();
    press(&mut model, KeyCode::Char('4'));
    for _ in 0..3 {
        press(&mut model, KeyCode::Tab);
    }
    type_text(&mut model, "yesterday");
    assert_eq!(press(&mut model, KeyCode::Enter), []);
    assert!(model.notice.as_deref().is_some_and(|notice| notice.starts_with("Error:")));
    assert!(model.export.rows.is_empty());
}

#[test]
fn a_read_only_client_changes_nothing_on_the_server() {
    let mut model = complete();
    model.about.read_only = true;
    for key in ['x', 'n'] {
        assert_eq!(press(&mut model, KeyCode::Char(key)), []);
        assert!(
            model.notice.as_deref().is_some_and(|notice| notice.contains("read-only")),
            "{:?}",
            model.notice
        );
    }
    update(&mut model, Message::SignedIn(Ok(session())));
    press(&mut model, KeyCode::Char('1'));
    for key in ['o', 'o', 'b', 'b'] {
        assert_eq!(press(&mut model, KeyCode::Char(key)), [], "tokens are not revoked");
    }
    press(&mut model, KeyCode::Char('4'));
    assert_eq!(press(&mut model, KeyCode::Enter), []);
    assert_eq!(press(&mut model, KeyCode::Enter), [], "the form is not sent");
    assert_eq!(model.export.rows.len(), 1);
}

#[test]
fn a_token_is_sent_to_another_host_only_if_the_user_confirms() {
    let mut model = model();
    let folder = PathBuf::from("/e/1");
    let job = ExportJob {
        phase: ExportPhase::Downloading,
        status_url: Some("https://t.example/j1".to_owned()),
        ..job()
    };
    update(&mut model, Message::Exports(vec![RegisteredExport { folder: folder.clone(), job }]));
    let host = "files.example".to_owned();
    update(&mut model, Message::ExportNeedsHost { folder: folder.clone(), host: host.clone() });
    press(&mut model, KeyCode::Char('4'));
    assert_eq!(press(&mut model, KeyCode::Char('r')), []);
    assert!(model.notice.as_deref().is_some_and(|notice| notice.contains("files.example")));
    let resumed = RuntimeEffect::ResumeExport { folder, bearer: Bearer::Backend, file_host: Some(host) };
    assert_eq!(confirm(&mut model), [resumed]);
}

#[test]
fn an_export_of_another_server_is_not_resumed() {
    let mut model = model();
    let status_url = Some("https://other.example/j1".to_owned());
    let job = ExportJob {
        phase: ExportPhase::Running,
        status_url,
        ..ExportJob::new("https://other.example/fhir", job().request, now())
    };
    update(&mut model, Message::Exports(vec![RegisteredExport { folder: "/e/1".into(), job }]));
    press(&mut model, KeyCode::Char('4'));
    for key in ['r', 'x'] {
        assert_eq!(press(&mut model, KeyCode::Char(key)), []);
        assert!(model.notice.as_deref().is_some_and(|notice| notice.contains("another server")));
    }
}
