//! Questions about codes: when one is sent, which answer is shown, and what is copied.

use ratatui::crossterm::event::KeyCode;
use trefoil_tui::api::{Bearer, SubsumesAnswer, SubsumesQuery, ValidateCode, ValidationAnswer};
use trefoil_tui::model::answer::Answer;
use trefoil_tui::model::{Model, Operation, Screen};
use trefoil_tui::msg::{Answered, CodeAnswer, CodeQuestion, Message, RuntimeEffect};
use trefoil_tui::update::update;

use crate::support::{model, press, session, type_text};

#[test]
fn requests_contain_the_values_of_the_forms() {
    let mut model = model();
    press(&mut model, KeyCode::Char('2'));
    let query = ValidateCode {
        url: "https://t.example/ValueSet/aids".to_owned(),
        system: "https://t.example/CodeSystem/aids".to_owned(),
        code: "cane".to_owned(),
        ..ValidateCode::default()
    };
    assert_eq!(
        press(&mut model, KeyCode::Enter),
        [RuntimeEffect::Code(1, CodeQuestion::ValidateCode(query), Bearer::Backend)]
    );
    assert!(model.codes.validate.sent.as_ref().unwrap().answer.is_waiting());
    press(&mut model, KeyCode::Char('o'));
    press(&mut model, KeyCode::BackTab);
    for _ in 0..4 {
        press(&mut model, KeyCode::Tab);
    }
    type_text(&mut model, "x ");
    let question = SubsumesQuery {
        system: "https://t.example/CodeSystem/aids".to_owned(),
        code_a: "aid".to_owned(),
        code_b: "canex".to_owned(),
        ..SubsumesQuery::default()
    };
    assert_eq!(
        press(&mut model, KeyCode::Enter),
        [RuntimeEffect::Code(1, CodeQuestion::Subsumes(question), Bearer::Backend)]
    );
}

/// Returns the message of an answer to `$validate-code`.
pub fn validated(id: u64, result: Answered<ValidationAnswer>) -> Message {
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
    let validation = ValidationAnswer { result: true, ..ValidationAnswer::default() };
    update(&mut model, validated(2, Ok(validation.clone())));
    update(&mut model, validated(1, Err("later".to_owned())));
    assert_eq!(model.codes.validate.sent.as_ref().unwrap().answer, Answer::Done(validation));
}

#[test]
fn an_answer_is_stale_after_the_form_or_the_token_changed() {
    let mut model = model();
    update(&mut model, Message::SignedIn(Ok(session())));
    press(&mut model, KeyCode::Char('2'));
    press(&mut model, KeyCode::Char('o'));
    press(&mut model, KeyCode::Enter);
    let subsumption = SubsumesAnswer { outcome: "subsumes".to_owned() };
    let result = Ok(CodeAnswer::Subsumes(subsumption));
    update(&mut model, Message::Code { id: 1, operation: Operation::Subsumes, result });
    let is_stale = |model: &Model| model.codes.subsumes.is_stale(&model.token_choice());
    assert!(!is_stale(&model));
    press(&mut model, KeyCode::Char('t'));
    assert!(is_stale(&model), "the answer was asked for with another token");
    press(&mut model, KeyCode::Char('t'));
    let question = model.codes.subsumes.sent.clone().unwrap();
    assert_eq!((question.token.bearer, question.token.server.as_str()), (Bearer::User, "https://t.example"));
    press(&mut model, KeyCode::Char('t'));
    assert!(!is_stale(&model));
    press(&mut model, KeyCode::Tab);
    type_text(&mut model, "x");
    assert!(is_stale(&model));
    press(&mut model, KeyCode::Backspace);
    assert!(!is_stale(&model));
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

#[test]
fn what_waits_shows_its_seconds_and_ends_with_esc() {
    let mut model = model();
    press(&mut model, KeyCode::Char('2'));
    let effects = press(&mut model, KeyCode::Enter);
    assert!(matches!(effects[..], [RuntimeEffect::Code(..)]), "{effects:?}");
    assert_eq!(press(&mut model, KeyCode::Enter), [], "a question is sent once");
    assert!(model.notice.as_deref().is_some_and(|notice| notice.contains("Esc cancels it")));
    assert!(model.is_moving());
    assert_eq!(press(&mut model, KeyCode::Esc), [RuntimeEffect::CancelRequests(Screen::Codes)]);
    assert!(!model.is_moving());
    let question = model.codes.validate.sent.as_ref().unwrap();
    assert_eq!(question.answer, Answer::Failed("cancelled before the server answered".to_owned()));
    assert_eq!(press(&mut model, KeyCode::Enter).len(), 1, "it can be sent again");
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
