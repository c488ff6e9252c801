//! Tests of the update function: messages change the model and return effects. This module tests what all
//! screens have in common: keys, palette, notices, panes and lists.

mod codes;
mod export;
pub mod home;
mod requests;
mod sign_in;
mod viewer;

use jiff::SignedDuration;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use trefoil_tui::api::ValidationAnswer;
use trefoil_tui::model::{ClickTarget, Model, Operation, Screen};
use trefoil_tui::msg::{Message, RuntimeEffect};
use trefoil_tui::update::update;

use self::codes::validated;
use self::requests::{answered, exchange};
use crate::support::{model, now, press, session, type_text, wait};
use crate::view::picture;

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
fn enter_leaves_the_form() {
    let mut model = model();
    press(&mut model, KeyCode::Char('2'));
    press(&mut model, KeyCode::Tab);
    press(&mut model, KeyCode::Enter);
    press(&mut model, KeyCode::Char('5'));
    assert_eq!(model.screen, Screen::Requests, "a digit selects a screen after Enter");
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
    assert_eq!(model.notice.as_deref(), Some("Not possible: no request was sent."));
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
    wait(&mut model);
    press(&mut model, KeyCode::Char('5'));
    assert!(model.notice.is_none());
}

#[test]
fn the_palette_has_other_screens_and_earlier_questions() {
    let mut model = model();
    press(&mut model, KeyCode::Char('2'));
    press(&mut model, KeyCode::Enter);
    let response = ValidationAnswer { result: true, ..ValidationAnswer::default() };
    update(&mut model, validated(1, Ok(response)));
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
fn help_begins_with_the_screen_before_and_is_searched() {
    let mut model = model();
    press(&mut model, KeyCode::Char('5'));
    press(&mut model, KeyCode::Char('?'));
    let position = |model: &Model, text: &str| picture(model, 120, 40).find(text);
    assert!(position(&model, "copy as a curl command") < position(&model, "Everywhere"));
    press(&mut model, KeyCode::Char('/'));
    type_text(&mut model, "export resume");
    let screen = picture(&model, 120, 40);
    assert!(screen.contains("resume the selected export") && !screen.contains("copy as a curl"), "{screen}");
    press(&mut model, KeyCode::Esc);
    press(&mut model, KeyCode::Esc);
    assert!(position(&model, "copy as a curl command").is_some(), "Esc removes the words first");
    press(&mut model, KeyCode::Esc);
    assert_eq!(model.screen, Screen::Requests);
}

#[test]
fn the_keys_of_vim_go_to_the_ends_of_a_list() {
    let mut model = model();
    press(&mut model, KeyCode::Char('5'));
    for id in 0..40 {
        update(&mut model, Message::Exchanged(exchange(id, answered(200))));
    }
    press(&mut model, KeyCode::Char('g'));
    assert_eq!(model.requests.selected, 0);
    let control = |model: &mut Model, letter| {
        update(model, Message::Key(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL)));
        model.requests.selected
    };
    assert_eq!([control(&mut model, 'd'), control(&mut model, 'd'), control(&mut model, 'u')], [10, 20, 10]);
    press(&mut model, KeyCode::Char('G'));
    assert_eq!(model.requests.selected, 39);
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
