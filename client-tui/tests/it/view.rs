//! Snapshots of the screens at two sizes, and rendering at sizes that are too small for any screen.

use jiff::SignedDuration;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;
use serde_json::json;
use trefoil_tui::api::{
    Answered, Download, ExportStatus, FileProgress, RecordedExchange, SavedFile, SubsumesAnswer,
    ValidationAnswer,
};
use trefoil_tui::journey::Step;
use trefoil_tui::keys;
use trefoil_tui::model::{Model, Screen};
use trefoil_tui::msg::Message;
use trefoil_tui::update::update;
use trefoil_tui::view::view;

use crate::support::{manifest, model, now, press, session};

fn picture(model: &Model, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view(model, frame)).unwrap();
    terminal.backend().to_string()
}

/// Compares a screen with its snapshots at both sizes.
#[track_caller]
fn check(name: &str, model: &Model) {
    insta::assert_snapshot!(format!("{name}_80x24"), picture(model, 80, 24));
    insta::assert_snapshot!(format!("{name}_120x40"), picture(model, 120, 40));
}

fn waiting() -> Model {
    let mut model = model();
    press(&mut model, KeyCode::Enter);
    let query = "response_type=code&client_id=native&state=s&code_challenge=c&code_challenge_method=S256";
    let url = format!(
        "https://t.example/oauth2/authorize?{query}&redirect_uri=http%3A%2F%2Flocalhost%3A1%2Fcallback"
    );
    update(
        &mut model,
        Message::SignIn(Step::GoTo { url, browser: Err("'xdg-open' cannot be started".to_owned()) }),
    );
    press(&mut model, KeyCode::Tab);
    update(&mut model, Message::Paste("http://localhost:1/callback?code=c&state=other".to_owned()));
    let refused = "the response does not belong to this sign-in: its state differs".to_owned();
    update(&mut model, Message::SignIn(Step::PasteRefused(refused)));
    model
}

fn signed_in() -> Model {
    let mut model = model();
    update(&mut model, Message::SignedIn(Ok(session())));
    let claims =
        json!({ "sub": "s1", "name": "Willow Reed", "email": "w@t.example", "email_verified": true });
    update(&mut model, Message::Userinfo(Ok(claims.as_object().unwrap().clone())));
    model
}

fn validated(answer: Result<ValidationAnswer, String>) -> Model {
    let mut model = model();
    press(&mut model, KeyCode::Char('2'));
    press(&mut model, KeyCode::Tab);
    press(&mut model, KeyCode::Enter);
    update(&mut model, Message::Validated(answer));
    model
}

fn subsumed() -> Model {
    let mut model = model();
    press(&mut model, KeyCode::Char('3'));
    press(&mut model, KeyCode::Enter);
    update(&mut model, Message::SubsumesAnswer(Ok(SubsumesAnswer { outcome: "subsumes".to_owned() })));
    model
}

fn exporting() -> Model {
    let mut model = model();
    press(&mut model, KeyCode::Char('4'));
    press(&mut model, KeyCode::Enter);
    update(&mut model, Message::KickedOff(Ok("https://t.example/fhir/R4/bulk/j1".to_owned())));
    let progress = Some("40% (6 of 15 types)".to_owned());
    update(&mut model, Message::Polled(Ok(ExportStatus::Running { progress, retry_after_s: 5 })));
    update(&mut model, Message::Tick(now() + SignedDuration::from_secs(2)));
    model
}

fn exported() -> Model {
    let mut model = model();
    press(&mut model, KeyCode::Char('4'));
    press(&mut model, KeyCode::Enter);
    update(&mut model, Message::KickedOff(Ok("https://t.example/fhir/R4/bulk/j1".to_owned())));
    update(&mut model, Message::Polled(Ok(ExportStatus::Complete(manifest()))));
    press(&mut model, KeyCode::Char('d'));
    update(&mut model, Message::Piece(FileProgress { index: 0, bytes: 4096, lines: 31, done: false }));
    update(&mut model, Message::Piece(FileProgress { index: 1, bytes: 2813, lines: 5, done: true }));
    model
}

fn exchange(method: &str, path: &str, status: Result<u16, &str>) -> RecordedExchange {
    let answered = |status| Answered {
        status,
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: "{\n  \"access_token\": \"•••\"\n}".to_owned(),
    };
    RecordedExchange {
        at: now(),
        method: method.to_owned(),
        url: format!("https://t.example{path}"),
        request_headers: vec![("authorization".to_owned(), "Bearer •••".to_owned())],
        request_body: (method == "POST").then(|| "code=•••".to_owned()),
        outcome: status.map(answered).map_err(str::to_owned),
        took_ms: 12,
    }
}

fn requests() -> Model {
    let mut model = model();
    update(&mut model, Message::Exchanged(exchange("GET", "/.well-known/openid-configuration", Ok(200))));
    update(&mut model, Message::Exchanged(exchange("POST", "/oauth2/token", Ok(200))));
    update(&mut model, Message::Exchanged(exchange("GET", "/fhir/R4/CodeSystem/$subsumes?codeA=a", Ok(404))));
    update(&mut model, Message::Exchanged(exchange("GET", "/oauth2/userinfo", Err("connection refused"))));
    press(&mut model, KeyCode::Char('5'));
    press(&mut model, KeyCode::Down);
    press(&mut model, KeyCode::Down);
    model
}

fn request() -> Model {
    let mut model = requests();
    press(&mut model, KeyCode::Enter);
    model
}

fn help() -> Model {
    let mut model = model();
    press(&mut model, KeyCode::Char('?'));
    model
}

fn all() -> Vec<(&'static str, Model)> {
    let found = ValidationAnswer {
        result: false,
        display: Some("Cane".to_owned()),
        message: Some("Wrong Display Name 'Foo' for aids#cane".to_owned()),
    };
    let missing = "400 Bad Request from https://t.example/fhir/R4/ValueSet/$validate-code: a definition for the value Set could not be found";
    vec![
        ("start", model()),
        ("sign_in_waiting", waiting()),
        ("signed_in", signed_in()),
        ("validate_code", validated(Ok(found))),
        ("validate_code_refused", validated(Err(missing.to_owned()))),
        ("subsumes", subsumed()),
        ("export_running", exporting()),
        ("export_complete", exported()),
        ("requests", requests()),
        ("request", request()),
        ("help", help()),
    ]
}

#[test]
fn every_screen_matches_its_snapshots() {
    for (name, model) in all() {
        check(name, &model);
    }
}

#[test]
fn screens_can_be_drawn_at_any_size() {
    for (_, model) in all() {
        for (width, height) in
            [(1, 1), (2, 1), (1, 24), (80, 1), (5, 5), (13, 7), (79, 3), (80, 9), (300, 100)]
        {
            assert!(!picture(&model, width, height).is_empty());
        }
    }
}

#[test]
fn the_footer_fits_in_80_columns() {
    for screen in Screen::ALL {
        for typing in [false, true] {
            let rows = keys::footer(screen, typing);
            let width: usize =
                rows.map(|row| row.label.len() + row.footer.unwrap_or_default().len() + 3).sum();
            assert!(width <= 80, "{screen:?} typing {typing}: {width}");
        }
    }
}

#[test]
fn a_finished_download_shows_its_folder() {
    let mut model = exported();
    let file =
        SavedFile { kind: "Patient".to_owned(), name: "Patient.ndjson".to_owned(), resources: 5, bytes: 9 };
    let saved = Download { folder: "out".into(), files: vec![file], bytes: 9, resources: 5 };
    update(&mut model, Message::Downloaded(Ok(saved)));
    assert!(picture(&model, 80, 24).contains("Saved 5 resources, 9 bytes and manifest.json in out"));
}
