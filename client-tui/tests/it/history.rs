//! Tests of the completion of fields and of the list of earlier questions.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use trefoil_tui::api::ValidationAnswer;
use trefoil_tui::history::PastQuestion;
use trefoil_tui::model::{Model, Operation, Screen};
use trefoil_tui::msg::{CodeAnswer, Message, RuntimeEffect};
use trefoil_tui::update::update;

use crate::support::{model, now, press, type_text};

const AIDS: &str = "https://t.example/CodeSystem/aids";

fn past(operation: &str, options: &[(&str, &str)], summary: &str) -> PastQuestion {
    PastQuestion::new(now(), "https://t.example", operation, options, summary)
}

fn with_history() -> Model {
    let mut model = model();
    let questions = vec![
        past("lookup", &[("system", AIDS), ("code", "wheelchair")], "Wheelchair"),
        past(
            "validate-code",
            &[("url", "https://t.example/ValueSet/aids"), ("system", AIDS), ("code", "cane")],
            "true",
        ),
        past(
            "subsumes",
            &[("system", "http://loinc.org"), ("code-a", "LP1"), ("code-b", "4-1")],
            "Error: timeout",
        ),
        past("path", &[("system", AIDS), ("code-a", "aid"), ("code-b", "cane")], "subsumes, 3 concepts"),
    ];
    update(&mut model, Message::History(Ok(questions)));
    press(&mut model, KeyCode::Char('2'));
    model
}

/// Returns a model with an open list of codes.
pub fn completed() -> Model {
    let mut model = with_history();
    for _ in 0..4 {
        press(&mut model, KeyCode::Tab);
    }
    press(&mut model, KeyCode::Down);
    model
}

/// Returns a model with the open list of earlier questions.
pub fn recalled() -> Model {
    let mut model = with_history();
    press(&mut model, KeyCode::Char('r'));
    press(&mut model, KeyCode::Down);
    model
}

#[track_caller]
fn check_values(model: &Model, expected: &[&str]) {
    let values: Vec<_> =
        model.completion().iter().flat_map(|list| &list.items).map(|item| item.value.as_str()).collect();
    assert_eq!(values, expected);
}

#[test]
fn codes_of_the_code_system_complete_the_field() {
    let mut model = completed();
    check_values(&model, &["wheelchair", "cane", "aid"]);
    press(&mut model, KeyCode::Down);
    press(&mut model, KeyCode::Up);
    assert_eq!(
        press(&mut model, KeyCode::Enter),
        [],
        "the value is moved into the field, and nothing is sent"
    );
    assert_eq!((model.codes.validate.form.value("code").as_str(), model.typing), ("wheelchair", true));
    assert!(matches!(press(&mut model, KeyCode::Enter)[..], [RuntimeEffect::Code(..)]));
}

#[test]
fn the_list_follows_the_text() {
    let mut model = completed();
    update(&mut model, Message::Key(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL)));
    type_text(&mut model, "wlc");
    check_values(&model, &["wheelchair"]);
    press(&mut model, KeyCode::Esc);
    assert!(model.completion().is_none() && model.typing);
    type_text(&mut model, "x");
    assert!(model.completion().is_none());
    press(&mut model, KeyCode::Down);
    assert_eq!(
        model.notice.as_deref(),
        Some("No earlier question and no list of the server has a matching value.")
    );
    press(&mut model, KeyCode::BackTab);
    update(&mut model, Message::Key(KeyEvent::new(KeyCode::Char('n'), KeyModifiers::CONTROL)));
    check_values(&model, &[AIDS, "http://loinc.org"]);
}

#[test]
fn an_earlier_question_is_found_and_its_form_restored() {
    let mut model = recalled();
    type_text(&mut model, "loinc");
    press(&mut model, KeyCode::Enter);
    assert_eq!((model.codes.operation, model.screen), (Operation::Subsumes, Screen::Codes));
    let form = &model.codes.subsumes.form;
    let values = ["system", "id", "codeA", "codeB"].map(|name| form.value(name));
    assert_eq!(values, ["http://loinc.org", "", "LP1", "4-1"]);
    press(&mut model, KeyCode::Char('r'));
    type_text(&mut model, "path");
    press(&mut model, KeyCode::Enter);
    let form = &model.tree.form;
    assert_eq!(model.screen, Screen::Tree);
    assert_eq!(["code", "path to"].map(|name| form.value(name)), ["aid", "cane"]);
    press(&mut model, KeyCode::Char('r'));
    press(&mut model, KeyCode::Esc);
    assert!(model.overlay.is_none());
}

#[test]
fn an_answer_is_added_to_the_history() {
    let mut model = model();
    press(&mut model, KeyCode::Char('2'));
    assert_eq!(press(&mut model, KeyCode::Char('r')), []);
    assert_eq!(model.notice.as_deref(), Some("Not possible: no question was sent."));
    press(&mut model, KeyCode::Enter);
    let validation =
        ValidationAnswer { message: Some("not there".to_owned()), ..ValidationAnswer::default() };
    let summary = |id| Message::Code {
        id,
        operation: Operation::ValidateCode,
        result: Ok(CodeAnswer::ValidateCode(validation.clone())),
    };
    assert_eq!(update(&mut model, summary(7)), [], "the answer to another question");
    let options =
        [("url", "https://t.example/ValueSet/aids"), ("system", AIDS), ("code", "cane"), ("display", "")];
    let expected = past("validate-code", &options, "false: not there");
    assert_eq!(update(&mut model, summary(1)), [RuntimeEffect::AddToHistory(expected.clone())]);
    assert_eq!(model.history, [expected]);
}
