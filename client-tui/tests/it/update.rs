//! Tests of the update function: messages change the model and return effects.

use std::path::{Path, PathBuf};

use jiff::SignedDuration;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use trefoil_tui::api::{
    Bearer, RecordedExchange, RecordedResponse, SignedInSession, SubsumesAnswer, SubsumesQuery, TokenKind,
    ValidateCode, ValidationAnswer,
};
use trefoil_tui::export::registry::RegisteredExport;
use trefoil_tui::export::{ExportEvent, ExportJob, ExportPhase, FileProgress, FileStatus};
use trefoil_tui::journey::Step;
use trefoil_tui::model::answer::Answer;
use trefoil_tui::model::{
    Activity, ClickTarget, Model, Operation, ResourceDetail, Screen, SignInState, ViewerPage,
};
use trefoil_tui::msg::{Answered, CodeAnswer, CodeQuestion, FoundResource, Message, RuntimeEffect};
use trefoil_tui::ndjson::resource::Summary;
use trefoil_tui::sign_in_method::SignInMethod;
use trefoil_tui::update::update;

use crate::support::{job, manifest, model, now, press, session, type_text};

fn go_to(model: &mut Model) {
    let url = "https://t.example/oauth2/authorize".to_owned();
    update(model, Message::SignIn(Step::GoTo { url, browser: Ok(()) }));
}

#[test]
fn letters_are_keys_outside_and_text_inside_of_fields() {
    let mut model = model();
    press(&mut model, KeyCode::Char('2'));
    assert_eq!(model.screen, Screen::Codes);
    press(&mut model, KeyCode::Tab);
    type_text(&mut model, "q2?");
    assert!(!model.quit && model.screen == Screen::Codes);
    assert_eq!(model.codes.validate.form.fields[0].text(), "https://t.example/ValueSet/aidsq2?");
    press(&mut model, KeyCode::Esc);
    press(&mut model, KeyCode::Char('q'));
    assert!(model.quit);
}

#[test]
fn ctrl_c_quits_in_a_field_too() {
    let mut model = model();
    press(&mut model, KeyCode::Char('4'));
    press(&mut model, KeyCode::Tab);
    update(&mut model, Message::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    assert!(model.quit);
}

#[test]
fn requests_contain_the_values_of_the_forms() {
    let mut model = model();
    press(&mut model, KeyCode::Char('2'));
    let asked = ValidateCode {
        url: "https://t.example/ValueSet/aids".to_owned(),
        system: "https://t.example/CodeSystem/aids".to_owned(),
        code: "cane".to_owned(),
        ..ValidateCode::default()
    };
    assert_eq!(
        press(&mut model, KeyCode::Enter),
        [RuntimeEffect::Code(1, CodeQuestion::ValidateCode(asked), Bearer::Backend)]
    );
    assert!(model.codes.validate.sent.as_ref().unwrap().answer.is_waiting());
    press(&mut model, KeyCode::Char('o'));
    press(&mut model, KeyCode::BackTab);
    for _ in 0..4 {
        press(&mut model, KeyCode::Tab);
    }
    type_text(&mut model, "x ");
    let asked = SubsumesQuery {
        system: "https://t.example/CodeSystem/aids".to_owned(),
        code_a: "aid".to_owned(),
        code_b: "canex".to_owned(),
        ..SubsumesQuery::default()
    };
    assert_eq!(
        press(&mut model, KeyCode::Enter),
        [RuntimeEffect::Code(1, CodeQuestion::Subsumes(asked), Bearer::Backend)]
    );
}

#[test]
fn a_sign_in_waits_accepts_a_pasted_text_and_reads_userinfo() {
    let mut model = model();
    assert_eq!(press(&mut model, KeyCode::Enter), [RuntimeEffect::SignIn(SignInMethod::Browser)]);
    assert_eq!(press(&mut model, KeyCode::Enter), [], "one sign-in at a time");
    go_to(&mut model);
    assert_eq!(press(&mut model, KeyCode::Enter), [], "nothing was pasted");
    update(&mut model, Message::Paste("code=1&state=2\n".to_owned()));
    assert_eq!(press(&mut model, KeyCode::Enter), [RuntimeEffect::Pasted("code=1&state=2".to_owned())]);
    update(&mut model, Message::SignIn(Step::PasteRefused("not this one".to_owned())));
    assert_eq!(model.sign_in.paste_error.as_deref(), Some("not this one"));
    assert_eq!(update(&mut model, Message::SignedIn(Ok(session()))), [RuntimeEffect::Userinfo]);
    assert_eq!((model.bearer.clone(), model.typing), (Bearer::User, false));
    assert_eq!(press(&mut model, KeyCode::Char('o')), [], "it must be confirmed");
    assert_eq!(press(&mut model, KeyCode::Char('b')), [], "by the same key");
    assert_eq!(press(&mut model, KeyCode::Char('o')), []);
    assert_eq!(press(&mut model, KeyCode::Char('o')), [RuntimeEffect::SignOut { browser: false }]);
    assert_eq!((model.sign_in.state, model.bearer), (SignInState::Out, Bearer::Backend));
}

#[test]
fn esc_cancels_a_sign_in() {
    let mut model = model();
    press(&mut model, KeyCode::Enter);
    assert_eq!(press(&mut model, KeyCode::Char('c')), [], "there is no address yet");
    go_to(&mut model);
    let copy = RuntimeEffect::Copy("https://t.example/oauth2/authorize".to_owned());
    assert_eq!(press(&mut model, KeyCode::Char('c')), [copy]);
    assert_eq!(press(&mut model, KeyCode::Esc), [RuntimeEffect::CancelSignIn]);
    assert_eq!(model.sign_in.state, SignInState::Out);
}

#[test]
fn the_token_is_switched_among_those_that_exist() {
    let mut model = model();
    press(&mut model, KeyCode::Char('2'));
    let next = |model: &mut Model| {
        press(model, KeyCode::Char('t'));
        model.bearer.clone()
    };
    assert_eq!([next(&mut model), next(&mut model)], [Bearer::Anonymous, Bearer::Backend]);
    update(&mut model, Message::SignedIn(Ok(session())));
    assert_eq!(model.bearer, Bearer::User);
    assert_eq!([next(&mut model), next(&mut model)], [Bearer::Anonymous, Bearer::Backend]);
    assert_eq!(next(&mut model), Bearer::User);
}

#[test]
fn a_session_of_an_earlier_run_is_continued() {
    let mut model = model();
    assert_eq!(update(&mut model, Message::Restored(None)), []);
    assert_eq!(update(&mut model, Message::Restored(Some(session()))), [RuntimeEffect::Userinfo]);
    assert_eq!(model.sign_in.state, SignInState::In(session()));
    assert_eq!(model.bearer, Bearer::Backend, "the token for requests is not switched");
    let renewed = SignedInSession { expires_at: "2024-05-01T15:00:00Z".parse().unwrap(), ..session() };
    update(&mut model, Message::Session(Some(renewed.clone())));
    assert_eq!(model.sign_in.state, SignInState::In(renewed));
}

/// Returns the message of an answer to `$validate-code`.
fn validated(id: u64, result: Answered<ValidationAnswer>) -> Message {
    Message::Code { id, operation: Operation::ValidateCode, result: result.map(CodeAnswer::ValidateCode) }
}

#[test]
fn a_late_answer_to_an_earlier_question_is_dropped() {
    let mut model = model();
    press(&mut model, KeyCode::Char('2'));
    press(&mut model, KeyCode::Enter);
    press(&mut model, KeyCode::Tab);
    type_text(&mut model, "x");
    press(&mut model, KeyCode::Enter);
    update(&mut model, validated(1, Err("late".to_owned())));
    assert!(model.codes.validate.sent.as_ref().unwrap().answer.is_waiting());
    let found = ValidationAnswer { result: true, ..ValidationAnswer::default() };
    update(&mut model, validated(2, Ok(found.clone())));
    update(&mut model, validated(1, Err("later".to_owned())));
    assert_eq!(model.codes.validate.sent.as_ref().unwrap().answer, Answer::Done(found));
}

#[test]
fn an_answer_is_stale_after_the_form_or_the_token_changed() {
    let mut model = model();
    update(&mut model, Message::SignedIn(Ok(session())));
    press(&mut model, KeyCode::Char('2'));
    press(&mut model, KeyCode::Char('o'));
    press(&mut model, KeyCode::Enter);
    let found = SubsumesAnswer { outcome: "subsumes".to_owned() };
    let result = Ok(CodeAnswer::Subsumes(found));
    update(&mut model, Message::Code { id: 1, operation: Operation::Subsumes, result });
    let is_stale = |model: &Model| model.codes.subsumes.is_stale(&model.token_choice());
    assert!(!is_stale(&model));
    press(&mut model, KeyCode::Char('t'));
    assert!(is_stale(&model), "the answer was asked for with another token");
    press(&mut model, KeyCode::Char('t'));
    let sent = model.codes.subsumes.sent.clone().unwrap();
    assert_eq!((sent.token.bearer, sent.token.server.as_str()), (Bearer::User, "https://t.example"));
    press(&mut model, KeyCode::Char('t'));
    assert!(!is_stale(&model));
    press(&mut model, KeyCode::Tab);
    type_text(&mut model, "x");
    assert!(is_stale(&model));
    press(&mut model, KeyCode::Backspace);
    assert!(!is_stale(&model));
}

#[test]
fn enter_leaves_the_form() {
    let mut model = model();
    press(&mut model, KeyCode::Char('2'));
    press(&mut model, KeyCode::Tab);
    press(&mut model, KeyCode::Enter);
    press(&mut model, KeyCode::Char('5'));
    assert_eq!(model.screen, Screen::Requests, "a digit selects a screen after Enter");
}

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
    let done = |model: &mut Model, folder: &PathBuf| {
        let files = &model.export.row(folder).unwrap().files;
        files.iter().filter(|file| file.status == FileStatus::Done).count()
    };
    assert_eq!((done(&mut model, &first), done(&mut model, &second)), (1, 0));
}

#[test]
fn quitting_during_an_export_needs_a_second_press() {
    let mut model = model();
    press(&mut model, KeyCode::Char('4'));
    let (folder, _) = start(&mut model);
    press(&mut model, KeyCode::Char('q'));
    assert!(!model.quit);
    press(&mut model, KeyCode::Up);
    press(&mut model, KeyCode::Char('q'));
    assert!(!model.quit, "another key was pressed in between");
    press(&mut model, KeyCode::Char('q'));
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
fn an_export_is_cancelled_on_the_second_press() {
    let mut model = model();
    press(&mut model, KeyCode::Char('4'));
    let (folder, job) = start(&mut model);
    assert_eq!(press(&mut model, KeyCode::Char('x')), []);
    press(&mut model, KeyCode::Down);
    assert_eq!(press(&mut model, KeyCode::Char('x')), [], "another key was pressed in between");
    let delete = RuntimeEffect::DeleteExport { folder: folder.clone(), bearer: Bearer::Backend };
    assert_eq!(press(&mut model, KeyCode::Char('x')), [delete]);
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
fn the_palette_finds_and_runs_commands() {
    let mut model = model();
    press(&mut model, KeyCode::Char(':'));
    type_text(&mut model, "export userinfo");
    press(&mut model, KeyCode::Enter);
    assert!(model.overlay.is_none());
    assert_eq!(model.screen, Screen::SignIn, "no command of this screen matches");
    press(&mut model, KeyCode::Char(':'));
    type_text(&mut model, "requ");
    press(&mut model, KeyCode::Enter);
    assert_eq!(model.screen, Screen::Requests);
    press(&mut model, KeyCode::Char(':'));
    type_text(&mut model, "curl");
    press(&mut model, KeyCode::Enter);
    assert_eq!(model.notice.as_deref(), Some("Not possible: there are no requests."));
    press(&mut model, KeyCode::Char(':'));
    press(&mut model, KeyCode::Esc);
    press(&mut model, KeyCode::Char('q'));
    assert!(model.quit);
}

#[test]
fn an_impossible_action_says_why() {
    let mut model = model();
    assert_eq!(press(&mut model, KeyCode::Char('o')), []);
    assert_eq!(model.notice.as_deref(), Some("Not possible: no user is signed in."));
}

#[test]
fn a_click_selects() {
    let mut model = model();
    update(&mut model, Message::Click(ClickTarget::Tab(Screen::Codes)));
    update(&mut model, Message::Click(ClickTarget::Field(3)));
    type_text(&mut model, "x");
    assert_eq!(model.codes.validate.form.value("code"), "canex");
    assert_eq!(press(&mut model, KeyCode::Esc), []);
    assert_eq!(press(&mut model, KeyCode::Char('m')), [RuntimeEffect::CaptureMouse(true)]);
}

#[test]
fn the_command_of_a_question_is_copied() {
    let mut model = model();
    press(&mut model, KeyCode::Char('2'));
    assert_eq!(press(&mut model, KeyCode::Char('y')), [], "nothing was sent");
    press(&mut model, KeyCode::Enter);
    let command = "trefoil-tui validate-code --url https://t.example/ValueSet/aids \
        --system https://t.example/CodeSystem/aids --code cane";
    assert_eq!(press(&mut model, KeyCode::Char('y')), [RuntimeEffect::Copy(command.to_owned())]);
}

fn exchange(id: u64, outcome: Option<Result<RecordedResponse, String>>) -> RecordedExchange {
    RecordedExchange {
        id,
        at: now(),
        method: "GET".to_owned(),
        url: "https://t.example/fhir/R4/metadata?a=b".to_owned(),
        request_headers: vec![
            ("accept".to_owned(), "x/y".to_owned()),
            ("authorization".to_owned(), "Bearer •••".to_owned()),
        ],
        request_body: None,
        truncated: false,
        outcome,
        took_ms: 3,
    }
}

fn answered(status: u16) -> Option<Result<RecordedResponse, String>> {
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    Some(Ok(RecordedResponse { status, headers, body: "{}".to_owned() }))
}

#[test]
fn a_request_is_listed_while_it_is_in_flight() {
    let mut model = model();
    update(&mut model, Message::Exchanged(exchange(1, None)));
    update(&mut model, Message::Exchanged(exchange(2, None)));
    update(&mut model, Message::Exchanged(exchange(1, answered(200))));
    let listed: Vec<_> =
        model.requests.exchanges.iter().map(|exchange| (exchange.id, exchange.outcome.is_some())).collect();
    assert_eq!(listed, [(2, false), (1, true)]);
}

#[test]
fn a_request_is_sent_again_or_edited() {
    let mut model = model();
    update(&mut model, Message::Exchanged(exchange(1, answered(200))));
    press(&mut model, KeyCode::Char('5'));
    let effects = press(&mut model, KeyCode::Char('p'));
    let [RuntimeEffect::SendRaw(request, Bearer::Backend)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(request.url.as_str(), "https://t.example/fhir/R4/metadata?a=b");
    assert_eq!(request.headers["authorization"], "Bearer $TOKEN");
    let effects = press(&mut model, KeyCode::Char('e'));
    let [RuntimeEffect::EditRequest(text)] = &effects[..] else { panic!("{effects:?}") };
    let effects = update(&mut model, Message::Edited(Ok(Some(text.replace("a=b", "a=c")))));
    let [RuntimeEffect::SendRaw(request, _)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(request.url.query(), Some("a=c"));
    assert_eq!(update(&mut model, Message::Edited(Ok(Some("nonsense".to_owned())))), []);
    assert!(model.notice.as_deref().is_some_and(|notice| notice.starts_with("Error:")));
    assert_eq!(update(&mut model, Message::Edited(Ok(None))), [], "the editor was left without writing");
    assert!(model.notice.as_deref().is_some_and(|notice| notice.contains("Nothing was sent")));
    for (id, method) in [(2, "POST"), (3, "DELETE")] {
        let changing = RecordedExchange { method: method.to_owned(), ..exchange(id, answered(200)) };
        update(&mut model, Message::Exchanged(changing));
        model.requests.selected = 0;
        assert_eq!(press(&mut model, KeyCode::Char('p')), [], "{method} must be confirmed");
        assert_eq!(press(&mut model, KeyCode::Down), []);
        assert_eq!(press(&mut model, KeyCode::Up), []);
        assert_eq!(press(&mut model, KeyCode::Char('p')), [], "another key withdraws the question");
        let effects = press(&mut model, KeyCode::Char('p'));
        assert!(matches!(&effects[..], [RuntimeEffect::SendRaw(..)]), "{effects:?}");
    }
    let mut secret = exchange(4, answered(200));
    secret.request_body = Some("code=•••".to_owned());
    update(&mut model, Message::Exchanged(secret));
    assert_eq!(press(&mut model, KeyCode::Char('p')), []);
    assert!(model.notice.as_deref().is_some_and(|notice| notice.contains("masked")), "{:?}", model.notice);
}

#[test]
fn a_path_is_typed_and_left_with_enter() {
    let mut model = model();
    press(&mut model, KeyCode::Char('5'));
    assert_eq!(press(&mut model, KeyCode::Char('/')), []);
    assert!(!model.typing, "there are no requests");
    update(&mut model, Message::Exchanged(exchange(1, answered(200))));
    press(&mut model, KeyCode::Char('/'));
    type_text(&mut model, "$.q");
    press(&mut model, KeyCode::Enter);
    assert!(!model.typing && model.requests.detail);
    assert_eq!(model.requests.filter.value("JSONPath"), "$.q");
}

#[test]
fn requests_are_saved_as_an_http_archive() {
    let mut model = model();
    update(&mut model, Message::Exchanged(exchange(1, answered(404))));
    update(&mut model, Message::Exchanged(exchange(2, None)));
    press(&mut model, KeyCode::Char('5'));
    let effects = press(&mut model, KeyCode::Char('s'));
    let [RuntimeEffect::Save { path, content }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(path.to_str(), Some("trefoil-requests-20240501T120000Z.har"));
    let archive: serde_json::Value = serde_json::from_str(content).unwrap();
    let entries = archive["log"]["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 1, "an exchange without a response is left out");
    assert_eq!(entries[0]["response"]["status"], 404);
    assert_eq!(entries[0]["request"]["queryString"][0]["value"], "b");
    assert!(content.contains("Bearer •••"));
}

#[test]
fn the_inspector_shows_one_token_after_the_other() {
    let mut model = model();
    let inspect = |model: &mut Model| match &press(model, KeyCode::Char('i'))[..] {
        [RuntimeEffect::Inspect(kind)] => *kind,
        effects => panic!("{effects:?}"),
    };
    assert_eq!(inspect(&mut model), TokenKind::BackendAccess);
    update(&mut model, Message::SignedIn(Ok(session())));
    let shown = [inspect(&mut model), inspect(&mut model), inspect(&mut model)];
    assert_eq!(shown, [TokenKind::UserAccess, TokenKind::Id, TokenKind::BackendAccess]);
    update(&mut model, Message::Inspected(TokenKind::Id, Err("late".to_owned())));
    assert!(model.sign_in.inspector.as_ref().unwrap().answer.is_waiting(), "another token is shown");
    update(&mut model, Message::Inspected(TokenKind::BackendAccess, Err("refused".to_owned())));
    press(&mut model, KeyCode::Esc);
    assert!(model.sign_in.inspector.is_none() && model.is_signed_in());
}

/// Returns a model with a complete export of two files.
fn complete() -> Model {
    let mut model = model();
    press(&mut model, KeyCode::Char('4'));
    let (folder, job) = start(&mut model);
    let job = ExportJob { phase: ExportPhase::Complete, ..downloading(&job) };
    record(&mut model, &folder, job);
    update(&mut model, Message::ExportEnded { folder, result: Ok(()) });
    model
}

#[test]
fn the_viewer_reads_only_the_part_that_it_shows() {
    let mut model = complete();
    let effects = press(&mut model, KeyCode::Char('v'));
    let [RuntimeEffect::ReadPage { path, first: 0, .. }] = &effects[..] else { panic!("{effects:?}") };
    let (path, filter) = (path.clone(), String::new());
    let page = |first: u64| {
        let rows = (first..first + 200).map(|n| Summary { id: n.to_string(), text: String::new() }).collect();
        Ok((1_000_000, ViewerPage { first, rows }))
    };
    update(&mut model, Message::FilePage { path: path.clone(), filter: filter.clone(), result: page(0) });
    for _ in 0..100 {
        assert_eq!(press(&mut model, KeyCode::Down), [], "the page contains the next lines");
        if model.export.viewer.as_ref().unwrap().selected == 100 {
            break;
        }
    }
    let effects = press(&mut model, KeyCode::End);
    let [RuntimeEffect::ReadPage { first, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((*first, model.export.viewer.as_ref().unwrap().selected), (999_899, 999_999));
    // A page of another filter is late.
    let late = Message::FilePage { path, filter: "x".to_owned(), result: page(5) };
    update(&mut model, late);
    assert_eq!(model.export.viewer.as_ref().unwrap().page.first, 0);
    press(&mut model, KeyCode::Esc);
    assert!(model.screen == Screen::Export && model.export.viewer.is_none());
}

#[test]
fn a_filter_is_applied_by_enter() {
    let mut model = complete();
    press(&mut model, KeyCode::Char('v'));
    press(&mut model, KeyCode::Char('/'));
    type_text(&mut model, "q2");
    let effects = press(&mut model, KeyCode::Enter);
    let [RuntimeEffect::ReadPage { filter, first: 0, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(filter, "q2");
    let effects = press(&mut model, KeyCode::Tab);
    let [RuntimeEffect::ReadPage { path, filter, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert!(path.ends_with("Patient.ndjson") && filter.is_empty(), "{path:?} {filter}");
}

#[test]
fn a_jsonpath_is_checked_before_it_is_applied() {
    let mut model = complete();
    press(&mut model, KeyCode::Char('v'));
    press(&mut model, KeyCode::Char('/'));
    type_text(&mut model, "$.a[");
    assert_eq!(press(&mut model, KeyCode::Enter), []);
    assert!(model.typing && model.notice.as_deref().is_some_and(|notice| notice.contains("not a JSONPath")));
    type_text(&mut model, "0]");
    let effects = press(&mut model, KeyCode::Enter);
    assert!(
        matches!(&effects[..], [RuntimeEffect::ReadPage { filter, .. }] if filter == "$.a[0]"),
        "{effects:?}"
    );
}

#[test]
fn references_of_a_resource_are_followed() {
    let mut model = complete();
    press(&mut model, KeyCode::Char('v'));
    let detail = ResourceDetail {
        text: "{}".to_owned(),
        selection: None,
        references: vec!["Encounter/e1".to_owned(), "Patient/p1".to_owned()],
        selected_reference: 0,
        codes: None,
        scroll: 0,
    };
    update(&mut model, Message::Resource(Ok(detail)));
    press(&mut model, KeyCode::Char('f'));
    let effects = press(&mut model, KeyCode::Char('g'));
    let [RuntimeEffect::FindResource { reference, files }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((reference.as_str(), files.len()), ("Patient/p1", 3));
    let effects = update(&mut model, Message::FoundResource(Ok(FoundResource { file: 1, line: 4 })));
    assert!(
        matches!(&effects[..], [RuntimeEffect::ReadPage { .. }, RuntimeEffect::ReadResource { at: 4, .. }]),
        "{effects:?}"
    );
    assert_eq!(press(&mut model, KeyCode::Char('c')), [], "no resource is shown yet");
}

#[test]
fn the_demo_password_is_copied_but_not_shown() {
    let mut model = model();
    assert_eq!(press(&mut model, KeyCode::Char('p')), [RuntimeEffect::CopyDemoPassword]);
    model.about.demo_user = None;
    assert_eq!(press(&mut model, KeyCode::Char('p')), []);
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
fn without_a_token_there_is_nothing_to_inspect() {
    let mut model = model();
    model.about.backend_id = None;
    assert_eq!(press(&mut model, KeyCode::Char('i')), []);
    assert!(model.sign_in.inspector.is_none() && model.notice.is_some());
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
    assert_eq!(press(&mut model, KeyCode::Char('r')), [resumed]);
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

#[test]
fn the_pager_shows_the_body_or_its_selected_part() {
    let mut model = model();
    press(&mut model, KeyCode::Char('5'));
    assert_eq!(press(&mut model, KeyCode::Char('v')), [], "there is no exchange");
    let response =
        RecordedResponse { status: 200, headers: Vec::new(), body: "{\n  \"a\": [1, 2]\n}".to_owned() };
    update(&mut model, Message::Exchanged(exchange(1, Some(Ok(response.clone())))));
    assert_eq!(press(&mut model, KeyCode::Char('v')), [RuntimeEffect::OpenPager(response.body)]);
    press(&mut model, KeyCode::Char('/'));
    type_text(&mut model, "$.a[1]");
    press(&mut model, KeyCode::Enter);
    assert_eq!(press(&mut model, KeyCode::Char('v')), [RuntimeEffect::OpenPager("2".to_owned())]);

    let mut model = complete();
    press(&mut model, KeyCode::Char('v'));
    assert_eq!(press(&mut model, KeyCode::Char('v')), [], "no resource is shown");
}

#[test]
fn what_waits_shows_its_seconds_and_ends_with_esc() {
    let mut model = model();
    press(&mut model, KeyCode::Char('2'));
    let asked = press(&mut model, KeyCode::Enter);
    assert!(matches!(asked[..], [RuntimeEffect::Code(..)]), "{asked:?}");
    assert_eq!(press(&mut model, KeyCode::Enter), [], "a question is sent once");
    assert!(model.notice.as_deref().is_some_and(|notice| notice.contains("Esc cancels it")));
    assert!(model.is_moving());
    assert_eq!(press(&mut model, KeyCode::Esc), [RuntimeEffect::CancelRequests(Screen::Codes)]);
    assert!(!model.is_moving());
    let sent = model.codes.validate.sent.as_ref().unwrap();
    assert_eq!(sent.answer, Answer::Failed("cancelled before the server answered".to_owned()));
    assert_eq!(press(&mut model, KeyCode::Enter).len(), 1, "it can be sent again");
}

#[test]
fn notices_leave_by_themselves_but_errors_and_questions_stay() {
    let after = |model: &mut Model, seconds: i64| {
        for second in 0..=seconds {
            update(model, Message::Tick(now() + SignedDuration::from_secs(second)));
        }
        model.notice.is_some()
    };
    let mut model = model();
    update(&mut model, Message::Saved(Ok("Saved a file.".to_owned())));
    assert!(after(&mut model, 5));
    assert!(!after(&mut model, 6));
    update(&mut model, Message::Saved(Err("the disk is full".to_owned())));
    assert!(after(&mut model, 60));
    update(&mut model, Message::SignedIn(Ok(session())));
    press(&mut model, KeyCode::Char('o'));
    assert!(after(&mut model, 60), "{:?}", model.notice);
    press(&mut model, KeyCode::Char('5'));
    assert!(model.notice.is_none());
}

#[test]
fn the_palette_has_other_screens_and_earlier_questions() {
    let mut model = model();
    press(&mut model, KeyCode::Char('2'));
    press(&mut model, KeyCode::Enter);
    let answer = ValidationAnswer { result: true, ..ValidationAnswer::default() };
    update(&mut model, validated(1, Ok(answer)));
    press(&mut model, KeyCode::Char('1'));
    let choose = |model: &mut Model, text: &str| {
        press(model, KeyCode::Char(':'));
        type_text(model, text);
        press(model, KeyCode::Enter)
    };
    choose(&mut model, "validate cane");
    assert_eq!((model.screen, model.codes.operation), (Screen::Codes, Operation::ValidateCode));
    press(&mut model, KeyCode::Char('1'));
    choose(&mut model, "file of codes");
    assert!(model.screen == Screen::Codes && model.batch.open, "the command of another screen");
}

#[test]
fn the_size_of_the_panes_is_limited() {
    let mut model = model();
    for (key, limit) in [('>', 12), ('<', -12)] {
        for _ in 0..40 {
            press(&mut model, KeyCode::Char(key));
        }
        assert_eq!(model.pane_steps, limit);
    }
}

#[test]
fn a_question_is_copied_as_parameters() {
    let mut model = model();
    press(&mut model, KeyCode::Char('2'));
    press(&mut model, KeyCode::Char('Y'));
    assert_eq!(model.notice.as_deref(), Some("Not possible: no question was sent."));
    press(&mut model, KeyCode::Enter);
    let effects = press(&mut model, KeyCode::Char('Y'));
    let [RuntimeEffect::Copy(text)] = &effects[..] else { panic!("{effects:?}") };
    let copied: serde_json::Value = serde_json::from_str(text).unwrap();
    let expected = serde_json::json!({ "resourceType": "Parameters", "parameter": [
        { "name": "url", "valueUri": "https://t.example/ValueSet/aids" },
        { "name": "system", "valueUri": "https://t.example/CodeSystem/aids" },
        { "name": "code", "valueCode": "cane" },
    ]});
    assert_eq!(copied, expected);
}

#[test]
fn only_an_inspected_token_is_copied() {
    let mut model = model();
    assert_eq!(press(&mut model, KeyCode::Char('y')), []);
    assert_eq!(model.notice.as_deref(), Some("Not possible: no token is inspected."));
    press(&mut model, KeyCode::Char('i'));
    let copied = press(&mut model, KeyCode::Char('y'));
    assert_eq!(copied, [RuntimeEffect::CopyToken(TokenKind::BackendAccess)]);
}

#[test]
fn a_row_of_a_list_is_found_by_its_text() {
    let mut model = model();
    press(&mut model, KeyCode::Char('5'));
    let find = |model: &mut Model| {
        update(model, Message::Key(KeyEvent::new(KeyCode::Char('f'), KeyModifiers::CONTROL)))
    };
    find(&mut model);
    assert_eq!(model.notice.as_deref(), Some("Not possible: the screen shows no list."));
    for (id, path) in [(1, "oauth2/token"), (2, "fhir/R4/metadata"), (3, "oauth2/userinfo")] {
        let mut exchange = exchange(id, answered(200));
        exchange.url = format!("https://t.example/{path}");
        update(&mut model, Message::Exchanged(exchange));
    }
    find(&mut model);
    type_text(&mut model, "metad");
    press(&mut model, KeyCode::Enter);
    let selected = &model.requests.exchanges[model.requests.selected];
    assert!(selected.url.ends_with("metadata") && model.overlay.is_none(), "{}", selected.url);
    update(&mut model, Message::Exchanged(exchange(9, None)));
    let selected = &model.requests.exchanges[model.requests.selected];
    assert!(selected.url.ends_with("metadata"), "a new row does not change the selection");
}
