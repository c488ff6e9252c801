//! The list of requests: sending them again, saving them, and showing a part of a body.

use ratatui::crossterm::event::KeyCode;
use trefoil_tui::api::{Bearer, RecordedExchange, RecordedResponse};
use trefoil_tui::msg::{Message, RuntimeEffect};
use trefoil_tui::update::update;

use super::export::complete;
use crate::support::{confirm, model, now, press, type_text, wait};

pub fn exchange(id: u64, outcome: Option<Result<RecordedResponse, String>>) -> RecordedExchange {
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
        headers_ms: None,
    }
}

pub fn answered(status: u16) -> Option<Result<RecordedResponse, String>> {
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    Some(Ok(RecordedResponse { status, headers, body: "{}".to_owned() }))
}

#[test]
fn a_request_is_listed_while_it_is_in_flight() {
    let mut model = model();
    update(&mut model, Message::Exchanged(exchange(1, None)));
    update(&mut model, Message::Exchanged(exchange(2, None)));
    update(&mut model, Message::Exchanged(exchange(1, answered(200))));
    let rows: Vec<_> =
        model.requests.exchanges.iter().map(|exchange| (exchange.id, exchange.outcome.is_some())).collect();
    assert_eq!(rows, [(2, false), (1, true)]);
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
        wait(&mut model);
        assert_eq!(press(&mut model, KeyCode::Down), []);
        assert_eq!(press(&mut model, KeyCode::Up), []);
        assert_eq!(confirm(&mut model), [], "another key withdraws the question");
        assert_eq!(press(&mut model, KeyCode::Char('p')), []);
        let effects = confirm(&mut model);
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
    assert!(!model.typing, "no request was sent");
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
