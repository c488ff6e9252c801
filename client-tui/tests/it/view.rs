//! Snapshots of the screens at two sizes, and rendering at sizes that are too small for any screen.

use jiff::SignedDuration;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use serde_json::json;
use trefoil_tui::api::{
    ConceptProperty, Designation, DevicePrompt, ExpandedCode, Expansion, Introspection, LookupAnswer,
    RecordedExchange, RecordedResponse, SignatureStatus, SubsumesAnswer, TokenContent, TokenInspection,
    TokenKind, ValidationAnswer, ValidationIssue,
};
use trefoil_tui::display::ColourScheme;
use trefoil_tui::export::{ExportEvent, ExportJob, ExportPhase, FileProgress, FileStatus};
use trefoil_tui::journey::Step;
use trefoil_tui::model::{ClickTarget, CodeCheck, Model, Operation, ResourceDetail, Screen, ViewerPage};
use trefoil_tui::msg::{CodeAnswer, Message};
use trefoil_tui::ndjson::resource::Summary;
use trefoil_tui::update::update;
use trefoil_tui::view::view;

use crate::support::{job, manifest, model, now, press, session, type_text};
use crate::{batch, compare, history, profiles, tree};

pub fn picture(model: &Model, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| drop(view(model, frame))).unwrap();
    terminal.backend().to_string()
}

/// Compares a screen with its snapshots at all sizes.
#[track_caller]
pub fn check(name: &str, model: &Model) {
    for (width, height) in [(40, 12), (80, 24), (120, 40), (200, 50)] {
        insta::assert_snapshot!(format!("{name}_{width}x{height}"), picture(model, width, height));
    }
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
    let reason = "the response does not belong to this sign-in: its state differs".to_owned();
    update(&mut model, Message::SignIn(Step::PasteRefused(reason)));
    model
}

fn on_a_device() -> Model {
    let mut model = model();
    press(&mut model, KeyCode::Char('v'));
    let prompt = DevicePrompt {
        user_code: "WDJB-MJHT".to_owned(),
        address: "https://t.example/device".to_owned(),
        complete_address: Some("https://t.example/device?user_code=WDJB-MJHT".to_owned()),
        expires_at: now() + SignedDuration::from_secs(599),
    };
    update(&mut model, Message::SignIn(Step::Device(prompt)));
    model
}

fn without_client() -> Model {
    let mut model = model();
    model.about.client_id = None;
    assert_eq!(press(&mut model, KeyCode::Enter), [], "no client can sign in");
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

fn inspected() -> Model {
    let mut model = signed_in();
    press(&mut model, KeyCode::Char('i'));
    let object = |value: serde_json::Value| value.as_object().unwrap().clone();
    let content = TokenContent {
        header: object(json!({ "alg": "ES256", "kid": "k1", "typ": "at+jwt" })),
        claims: object(json!({
            "iss": "https://t.example", "sub": "s1", "exp": now().as_second() + 90, "scope": "openid user/ValueSet.rs",
        })),
    };
    let inspection = TokenInspection {
        kind: TokenKind::UserAccess,
        content: Some(content),
        signature: SignatureStatus::Valid,
        introspection: Some(Introspection::Active {
            client: "backend".to_owned(),
            members: object(json!({ "sub": "s1", "username": "willow" })),
        }),
        requested_scope: Some("openid user/ValueSet.rs user/Secret.rs".to_owned()),
    };
    update(&mut model, Message::Inspected(TokenKind::UserAccess, Ok(inspection)));
    model
}

fn validated(response: Result<ValidationAnswer, String>) -> Model {
    let mut model = model();
    press(&mut model, KeyCode::Char('2'));
    press(&mut model, KeyCode::Tab);
    press(&mut model, KeyCode::Enter);
    let result = response.map(CodeAnswer::ValidateCode);
    update(&mut model, Message::Code { id: 1, operation: Operation::ValidateCode, result });
    model
}

/// A question that waits for two seconds.
fn asked() -> Model {
    let mut model = model();
    press(&mut model, KeyCode::Char('2'));
    press(&mut model, KeyCode::Enter);
    update(&mut model, Message::Tick(now() + SignedDuration::from_millis(2_250)));
    press(&mut model, KeyCode::Enter);
    model
}

fn with_jump_labels() -> Model {
    let mut model = subsumed();
    update(&mut model, Message::Key(KeyEvent::new(KeyCode::Char('o'), KeyModifiers::CONTROL)));
    model
}

fn subsumed() -> Model {
    let mut model = model();
    press(&mut model, KeyCode::Char('2'));
    press(&mut model, KeyCode::Char('o'));
    press(&mut model, KeyCode::Enter);
    let result = Ok(CodeAnswer::Subsumes(SubsumesAnswer { outcome: "subsumes".to_owned() }));
    update(&mut model, Message::Code { id: 1, operation: Operation::Subsumes, result });
    model
}

fn looked_up() -> Model {
    let mut model = model();
    press(&mut model, KeyCode::Char('2'));
    press(&mut model, KeyCode::Char('O'));
    press(&mut model, KeyCode::Char('O'));
    press(&mut model, KeyCode::Enter);
    let property = |code: &str, value: &str, description: Option<&str>| ConceptProperty {
        code: code.to_owned(),
        value: value.to_owned(),
        description: description.map(str::to_owned),
    };
    let concept = LookupAnswer {
        name: Some("Care aids".to_owned()),
        version: Some("1.0.0".to_owned()),
        display: Some("Cane".to_owned()),
        definition: Some("A stick for walking".to_owned()),
        designations: vec![Designation {
            language: Some("de".to_owned()),
            r#use: None,
            value: "Gehstock".to_owned(),
        }],
        properties: vec![
            property("parent", "walking-aid", Some("Walking aid")),
            property("inactive", "false", None),
        ],
    };
    let result = Ok(CodeAnswer::Lookup(concept));
    update(&mut model, Message::Code { id: 1, operation: Operation::Lookup, result });
    model
}

fn expanded() -> Model {
    let mut model = model();
    press(&mut model, KeyCode::Char('2'));
    press(&mut model, KeyCode::Char('O'));
    press(&mut model, KeyCode::Enter);
    let code = |code: &str, display: &str, inactive| ExpandedCode {
        system: Some("https://t.example/CodeSystem/aids".to_owned()),
        code: code.to_owned(),
        display: Some(display.to_owned()),
        inactive,
    };
    let codes = vec![code("cane", "Cane", false), code("crutch-old", "Wooden crutch", true)];
    let result = Ok(CodeAnswer::Expand(Expansion { total: Some(2), codes }));
    update(&mut model, Message::Code { id: 1, operation: Operation::Expand, result });
    model
}

fn with_palette() -> Model {
    let mut model = requests();
    press(&mut model, KeyCode::Char(':'));
    type_text(&mut model, "c");
    model
}

/// Returns a model in which the form has changed since the question.
fn stale() -> Model {
    let mut model = subsumed();
    press(&mut model, KeyCode::Tab);
    type_text(&mut model, "/other");
    model
}

fn report(model: &mut Model, event: ExportEvent) {
    let folder = model.export.rows[0].folder.clone();
    update(model, Message::ExportProgress { folder, event });
}

fn exporting() -> Model {
    let mut model = model();
    press(&mut model, KeyCode::Char('4'));
    press(&mut model, KeyCode::Enter);
    let status_url = Some("https://t.example/fhir/R4/bulk/j1".to_owned());
    let running = ExportJob { phase: ExportPhase::Running, status_url, ..job() };
    report(&mut model, ExportEvent::Record(Box::new(running)));
    let progress = Some("40% (6 of 15 types)".to_owned());
    let next_poll = now() + SignedDuration::from_secs(5);
    report(&mut model, ExportEvent::Polled { progress, next_poll });
    update(&mut model, Message::Tick(now() + SignedDuration::from_secs(2)));
    model
}

fn downloading() -> Model {
    let mut model = exporting();
    let mut job = ExportJob { phase: ExportPhase::Downloading, ..job() };
    job.add_page(&manifest());
    report(&mut model, ExportEvent::Record(Box::new(job)));
    let reset = "connection reset by peer".to_owned();
    let files = [
        FileProgress { bytes: 4096, resources: 31, status: FileStatus::Downloading },
        FileProgress { bytes: 2813, resources: 5, status: FileStatus::Done },
        FileProgress { bytes: 0, resources: 0, status: FileStatus::Retrying(reset) },
    ];
    for (index, progress) in files.into_iter().enumerate() {
        report(&mut model, ExportEvent::File { index, progress });
    }
    update(&mut model, Message::Tick(now() + SignedDuration::from_secs(3)));
    for (seconds, bytes) in [(4, 900_000), (5, 2_500_000), (6, 2_900_000)] {
        let progress = FileProgress { bytes, resources: 31, status: FileStatus::Downloading };
        report(&mut model, ExportEvent::File { index: 0, progress });
        update(&mut model, Message::Tick(now() + SignedDuration::from_secs(seconds)));
    }
    model
}

fn exported() -> Model {
    let mut model = downloading();
    for (index, resources) in [240, 5, 1].into_iter().enumerate() {
        let progress = FileProgress { bytes: 100 * resources, resources, status: FileStatus::Done };
        report(&mut model, ExportEvent::File { index, progress });
    }
    let complete = ExportJob { phase: ExportPhase::Complete, ..model.export.rows[0].job.clone() };
    report(&mut model, ExportEvent::Record(Box::new(complete)));
    let folder = model.export.rows[0].folder.clone();
    update(&mut model, Message::ExportEnded { folder, result: Ok(()) });
    model
}

fn viewing() -> Model {
    let mut model = exported();
    press(&mut model, KeyCode::Char('v'));
    let path = model.export.viewer.as_ref().unwrap().files[0].path.clone();
    let row = |id: &str, text: &str| Summary { id: id.to_owned(), text: text.to_owned() };
    let rows = vec![
        row("o1", "2024-05-01  final  Body height"),
        row("o2", "2024-05-01  final  Body weight"),
        row("", "Error: not JSON: expected value at line 1 column 1"),
    ];
    let result = Ok((240, ViewerPage { first: 0, rows }));
    update(&mut model, Message::FilePage { path, filter: String::new(), result });
    press(&mut model, KeyCode::Down);
    model
}

fn viewing_a_resource() -> Model {
    let mut model = viewing();
    press(&mut model, KeyCode::Enter);
    let check = |code: &str, result| CodeCheck {
        path: "Observation.status".to_owned(),
        code: code.to_owned(),
        value_set: "http://hl7.org/fhir/ValueSet/observation-status",
        result,
    };
    let detail = ResourceDetail {
        text: "{\n  \"resourceType\": \"Observation\",\n  \"status\": \"finl\",\n  \"value\": 1.5\n}"
            .to_owned(),
        selection: None,
        references: vec!["Patient/p1".to_owned(), "Encounter/e1".to_owned()],
        selected_reference: 1,
        codes: Some(Ok(vec![check("finl", Ok(false)), check("final", Ok(true))])),
        scroll: 0,
    };
    update(&mut model, Message::Resource(Ok(detail)));
    model
}

fn exchange(id: u64, method: &str, path: &str, status: Result<u16, &str>) -> RecordedExchange {
    let answered = |status| RecordedResponse {
        status,
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: "{\n  \"access_token\": \"•••\"\n}".to_owned(),
    };
    RecordedExchange {
        id,
        at: now(),
        method: method.to_owned(),
        url: format!("https://t.example{path}"),
        request_headers: vec![("authorization".to_owned(), "Bearer •••".to_owned())],
        request_body: (method == "POST").then(|| "code=•••".to_owned()),
        truncated: false,
        outcome: Some(status.map(answered).map_err(str::to_owned)),
        took_ms: 12,
        headers_ms: Some(9),
    }
}

fn requests() -> Model {
    let mut model = model();
    update(&mut model, Message::Exchanged(exchange(1, "GET", "/.well-known/openid-configuration", Ok(200))));
    update(&mut model, Message::Exchanged(exchange(2, "POST", "/oauth2/token", Ok(200))));
    update(
        &mut model,
        Message::Exchanged(exchange(3, "GET", "/fhir/R4/CodeSystem/$subsumes?codeA=a", Ok(404))),
    );
    update(&mut model, Message::Exchanged(exchange(4, "GET", "/oauth2/userinfo", Err("connection refused"))));
    let pending = exchange(5, "GET", "/fhir/R4/metadata", Ok(200));
    update(&mut model, Message::Exchanged(RecordedExchange { outcome: None, ..pending }));
    press(&mut model, KeyCode::Char('5'));
    press(&mut model, KeyCode::Down);
    press(&mut model, KeyCode::Down);
    press(&mut model, KeyCode::Down);
    model
}

fn request() -> Model {
    let mut model = requests();
    press(&mut model, KeyCode::Enter);
    model
}

fn zoomed() -> Model {
    let mut model = looked_up();
    press(&mut model, KeyCode::Char('z'));
    model
}

/// A screen after a request with parameters and a response of some length.
fn with_last_request(mut model: Model) -> Model {
    let path = "/fhir/R4/CodeSystem/$lookup?system=https://t.example/CodeSystem/aids&code=cane";
    let parameter = |n: usize| json!({ "name": format!("property {n}"), "valueString": "a light stick" });
    let parameters = json!({
        "resourceType": "Parameters",
        "parameter": (0..12).map(parameter).collect::<Vec<_>>(),
    });
    let body = format!("{parameters:#}");
    let Some(Ok(response)) = exchange(1, "GET", path, Ok(200)).outcome else { unreachable!() };
    let outcome = Some(Ok(RecordedResponse { body, ..response }));
    update(&mut model, Message::Exchanged(RecordedExchange { outcome, ..exchange(1, "GET", path, Ok(200)) }));
    model
}

fn last_request() -> Model {
    with_last_request(looked_up())
}

fn selected_by_path() -> Model {
    let mut model = requests();
    press(&mut model, KeyCode::Char('/'));
    type_text(&mut model, "$.access_token");
    model
}

fn help() -> Model {
    let mut model = model();
    press(&mut model, KeyCode::Char('?'));
    model
}

fn all() -> Vec<(&'static str, Model)> {
    let validation = ValidationAnswer {
        result: false,
        display: Some("Cane".to_owned()),
        message: Some("Wrong Display Name 'Foo' for aids#cane".to_owned()),
        issues: vec![ValidationIssue {
            severity: "error".to_owned(),
            code: "invalid".to_owned(),
            detail: Some("invalid-display".to_owned()),
            text: "Wrong Display Name 'Foo' for aids#cane".to_owned(),
            expression: vec!["display".to_owned()],
        }],
        ..ValidationAnswer::default()
    };
    let missing = "400 Bad Request from https://t.example/fhir/R4/ValueSet/$validate-code: a definition for the value Set could not be found";
    vec![
        ("start", model()),
        ("sign_in_waiting", waiting()),
        ("sign_in_on_a_device", on_a_device()),
        ("signed_in", signed_in()),
        ("token", inspected()),
        ("validate_code", validated(Ok(validation))),
        ("validate_code_refused", validated(Err(missing.to_owned()))),
        ("asked", asked()),
        ("jump", with_jump_labels()),
        ("subsumes", subsumed()),
        ("subsumes_stale", stale()),
        ("lookup", looked_up()),
        ("expand", expanded()),
        ("tree", tree::shown()),
        ("tree_search", tree::searched()),
        ("tree_path", tree::path_shown()),
        ("batch", batch::validated()),
        ("batch_failures", batch::only_failures()),
        ("compare", compare::compared()),
        ("compare_server", compare::naming()),
        ("completion", history::completed()),
        ("recall", history::recalled()),
        ("palette", with_palette()),
        ("sign_in_without_client", without_client()),
        ("profiles", profiles::opened_menu()),
        ("export_running", exporting()),
        ("export_downloading", downloading()),
        ("export_complete", exported()),
        ("files", viewing()),
        ("resource", viewing_a_resource()),
        ("requests", requests()),
        ("request", request()),
        ("request_path", selected_by_path()),
        ("zoomed", zoomed()),
        ("last_request", last_request()),
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
fn at_least_half_of_the_rows_of_a_large_terminal_have_content() {
    for (name, model) in [
        ("home", model()),
        ("signed in", signed_in()),
        ("codes", looked_up()),
        ("tree", tree::shown()),
        ("export", exported()),
    ] {
        let text = picture(&with_last_request(model), 200, 60);
        let rows = text
            .lines()
            .filter(|row| row.contains(|c: char| c.is_alphanumeric() || "{}[]".contains(c)))
            .count();
        assert!(rows >= 30, "{rows} rows of {name}:\n{text}");
    }
}

#[test]
fn a_server_without_tls_has_no_certificate() {
    let mut plain = model();
    assert!(picture(&plain, 120, 40).contains("development certificate"));
    plain.about.base_url = "http://localhost:8080".to_owned();
    let text = picture(&plain, 120, 40);
    assert!(!text.contains("development certificate") && text.contains("without TLS"), "{text}");
}

#[test]
fn screens_can_be_drawn_at_any_size() {
    for (_, model) in all() {
        for (width, height) in
            [(1, 1), (2, 24), (1, 24), (80, 1), (5, 5), (40, 12), (79, 13), (80, 9), (300, 100)]
        {
            assert!(!picture(&model, width, height).is_empty());
        }
    }
}

/// Presses many keys in many states and sizes. The keys are reproducible.
#[test]
fn no_sequence_of_keys_panics() {
    const KEYS: usize = 100_000;
    let mut random = fastrand::Rng::with_seed(17);
    let mut states = all();
    let mut model = model();
    for at in 0..KEYS {
        if at % 500 == 0 {
            model = states[random.usize(..states.len())].1.clone();
        }
        let code = match random.u8(..12) {
            0 => KeyCode::Enter,
            1 => KeyCode::Esc,
            2 => KeyCode::Tab,
            3 => KeyCode::BackTab,
            4 => KeyCode::Backspace,
            5 => *random.choice(&[KeyCode::Home, KeyCode::End]).unwrap(),
            6 => *random.choice(&[KeyCode::Left, KeyCode::Right]).unwrap(),
            7 => *random.choice(&[KeyCode::Up, KeyCode::Down, KeyCode::PageUp, KeyCode::PageDown]).unwrap(),
            8 => KeyCode::F(random.u8(1..=12)),
            9 => KeyCode::Char(random.char('1'..='9')),
            10 => KeyCode::Char(*random.choice(&['漢', 'é', '\u{301}', '🦀']).unwrap()),
            _ => KeyCode::Char(random.char(' '..='~')),
        };
        press(&mut model, code);
        model.quit = false;
        // Drawing takes far longer than an update.
        if at % 25 == 0 {
            picture(&model, random.u16(1..=200), random.u16(1..=60));
        }
    }
    states.clear();
}

#[test]
fn the_cursor_is_after_wide_characters() {
    let mut model = model();
    press(&mut model, KeyCode::Char('2'));
    press(&mut model, KeyCode::Tab);
    press(&mut model, KeyCode::Tab);
    type_text(&mut model, "漢字e\u{301}");
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    terminal.draw(|frame| drop(view(&model, frame))).unwrap();
    // The value begins in column 16; the characters have the widths 2, 2, 1 and 0.
    terminal.backend_mut().assert_cursor_position((16 + 5, 5));
    for _ in 0..50 {
        type_text(&mut model, "漢");
    }
    terminal.draw(|frame| drop(view(&model, frame))).unwrap();
    // The field has 62 columns: 30 characters of width 2 before the cursor.
    terminal.backend_mut().assert_cursor_position((16 + 60, 5));
}

#[test]
fn tabs_fields_and_rows_are_regions_for_clicks() {
    let regions = |model: &Model| {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        let mut regions = Vec::new();
        terminal.draw(|frame| regions = view(model, frame)).unwrap();
        regions
    };
    let has = |model: &Model, target| regions(model).iter().any(|(_, found)| *found == target);
    assert!(has(&model(), ClickTarget::Tab(Screen::Codes)));
    assert!(has(&looked_up(), ClickTarget::Field(0)), "the line of the question opens its form");
    assert!(has(&requests(), ClickTarget::Row(3)));
    assert!(has(&exported(), ClickTarget::Row(0)));
}

#[test]
fn ascii_mode_draws_only_ascii() {
    for (_, mut model) in all() {
        model.about.display.ascii = true;
        for (width, height) in [(80, 24), (120, 40)] {
            let text = picture(&model, width, height);
            assert!(text.is_ascii(), "{text}");
        }
    }
}

#[test]
fn no_colours_are_drawn_without_colours() {
    for (_, mut model) in all() {
        model.about.display.colours = ColourScheme::None;
        let mut terminal = Terminal::new(TestBackend::new(120, 40)).unwrap();
        terminal.draw(|frame| drop(view(&model, frame))).unwrap();
        let cells = &terminal.backend().buffer().content;
        assert!(cells.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    }
}
