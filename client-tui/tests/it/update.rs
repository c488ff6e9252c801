//! Tests of the update function: messages change the model and return effects.

use jiff::{SignedDuration, Timestamp};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use trefoil_tui::api::{Bearer, ExportStatus, FileProgress, KickOff, SubsumesQuery, ValidateCode};
use trefoil_tui::journey::Step;
use trefoil_tui::model::{Answer, ExportState, Model, Screen, SignInState};
use trefoil_tui::msg::{Message, RuntimeEffect};
use trefoil_tui::update::update;

use crate::support::{manifest, model, now, press, session, type_text};

fn later(seconds: i64) -> Timestamp {
    now() + SignedDuration::from_secs(seconds)
}

fn go_to(model: &mut Model) {
    let url = "https://t.example/oauth2/authorize".to_owned();
    update(model, Message::SignIn(Step::GoTo { url, browser: Ok(()) }));
}

#[test]
fn letters_are_keys_outside_and_text_inside_of_fields() {
    let mut model = model();
    press(&mut model, KeyCode::Char('2'));
    assert_eq!(model.screen, Screen::ValidateCode);
    press(&mut model, KeyCode::Tab);
    type_text(&mut model, "q2?");
    assert!(!model.quit && model.screen == Screen::ValidateCode);
    assert_eq!(model.validate.form.fields[0].text(), "https://t.example/ValueSet/aidsq2?");
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
    assert_eq!(press(&mut model, KeyCode::Enter), [RuntimeEffect::ValidateCode(asked, Bearer::Backend)]);
    assert_eq!(model.validate.answer, Answer::Waiting);
    press(&mut model, KeyCode::Char('3'));
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
    assert_eq!(press(&mut model, KeyCode::Enter), [RuntimeEffect::Subsumes(asked, Bearer::Backend)]);
}

#[test]
fn a_sign_in_waits_accepts_a_pasted_text_and_reads_userinfo() {
    let mut model = model();
    assert_eq!(press(&mut model, KeyCode::Enter), [RuntimeEffect::SignIn]);
    assert_eq!(press(&mut model, KeyCode::Enter), [], "one sign-in at a time");
    go_to(&mut model);
    assert_eq!(press(&mut model, KeyCode::Enter), [], "nothing was pasted");
    update(&mut model, Message::Paste("code=1&state=2\n".to_owned()));
    assert_eq!(press(&mut model, KeyCode::Enter), [RuntimeEffect::Pasted("code=1&state=2".to_owned())]);
    update(&mut model, Message::SignIn(Step::PasteRefused("not this one".to_owned())));
    assert_eq!(model.sign_in.paste_error.as_deref(), Some("not this one"));
    assert_eq!(update(&mut model, Message::SignedIn(Ok(session()))), [RuntimeEffect::Userinfo]);
    assert_eq!((model.bearer.clone(), model.typing), (Bearer::User, false));
    assert_eq!(press(&mut model, KeyCode::Char('o')), [RuntimeEffect::SignOut]);
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
fn the_token_is_switched_only_if_there_are_two() {
    let mut model = model();
    press(&mut model, KeyCode::Char('2'));
    press(&mut model, KeyCode::Char('t'));
    assert_eq!(model.bearer, Bearer::Backend);
    assert!(model.notice.is_some());
    update(&mut model, Message::SignedIn(Ok(session())));
    press(&mut model, KeyCode::Char('t'));
    assert_eq!(model.bearer, Bearer::Backend);
    press(&mut model, KeyCode::Char('t'));
    assert_eq!(model.bearer, Bearer::User);
}

/// Returns a model with a running export.
fn running() -> Model {
    let mut model = model();
    press(&mut model, KeyCode::Char('4'));
    let asked = KickOff { group: "g1".to_owned(), ..KickOff::default() };
    assert_eq!(press(&mut model, KeyCode::Enter), [RuntimeEffect::KickOff(asked)]);
    assert_eq!(update(&mut model, Message::KickedOff(Ok("https://t.example/j1".to_owned()))), [poll()]);
    model
}

fn poll() -> RuntimeEffect {
    RuntimeEffect::Poll { status_url: "https://t.example/j1".to_owned() }
}

#[test]
fn an_export_is_polled_at_the_time_that_the_server_requested() {
    let mut model = running();
    assert_eq!(update(&mut model, Message::Tick(later(1))), [], "one question at a time");
    let again = ExportStatus::Running { progress: Some("10%".to_owned()), retry_after_s: 7 };
    update(&mut model, Message::Polled(Ok(again)));
    assert_eq!(update(&mut model, Message::Tick(later(7))), []);
    assert_eq!(update(&mut model, Message::Tick(later(8))), [poll()]);
    // An answer without a progress text keeps the last text.
    update(&mut model, Message::Polled(Ok(ExportStatus::Running { progress: None, retry_after_s: 1 })));
    let ExportState::Running { progress, .. } = &model.export.state else {
        panic!("{:?}", model.export.state)
    };
    assert_eq!(progress.as_deref(), Some("10%"));
}

#[test]
fn a_complete_export_has_one_download_at_a_time_and_is_deleted_on_the_second_press() {
    let mut model = running();
    update(&mut model, Message::Polled(Ok(ExportStatus::Complete(manifest()))));
    let download = press(&mut model, KeyCode::Char('d'));
    assert_eq!(download, [RuntimeEffect::Download { manifest: manifest(), folder: "trefoil-export".into() }]);
    assert_eq!(press(&mut model, KeyCode::Char('d')), []);
    update(&mut model, Message::Piece(FileProgress { index: 2, bytes: 9, lines: 1, done: true }));
    // A message about a file of an older export.
    update(&mut model, Message::Piece(FileProgress { index: 7, bytes: 9, lines: 1, done: true }));
    assert_eq!(press(&mut model, KeyCode::Char('x')), []);
    press(&mut model, KeyCode::Down);
    assert_eq!(press(&mut model, KeyCode::Char('x')), [], "another key was pressed in between");
    let delete = RuntimeEffect::DeleteExport { status_url: "https://t.example/j1".to_owned() };
    assert_eq!(press(&mut model, KeyCode::Char('x')), [delete]);
    update(&mut model, Message::ExportDeleted(Ok(())));
    assert_eq!(model.export.state, ExportState::Deleted);
}

#[test]
fn an_outdated_poll_changes_nothing() {
    let mut model = running();
    update(&mut model, Message::ExportDeleted(Ok(())));
    update(&mut model, Message::Polled(Err("404".to_owned())));
    assert_eq!(model.export.state, ExportState::Deleted);
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
    assert_eq!(model.export.state, ExportState::Idle);
}
