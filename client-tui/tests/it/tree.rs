//! Tests of the hierarchy browser: updates of the model, and requests to mock servers.

use ratatui::crossterm::event::KeyCode;
use serde_json::{Value, json};
use trefoil_tui::api::{
    Bearer, ConceptLabel, ConceptSearch, ExpandedCode, HierarchyConcept, HierarchyPath, HierarchyQuery,
    PathQuery,
};
use trefoil_tui::model::{Model, Screen, TreeContent};
use trefoil_tui::msg::{Message, RuntimeEffect, TreeAnswer, TreeQuestion};
use trefoil_tui::update::update;
use wiremock::matchers::{body_json, method, path, query_param};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::{api, model, press};
use crate::view::picture;

const AIDS: &str = "https://t.example/CodeSystem/aids";

fn label(code: &str, display: &str) -> ConceptLabel {
    ConceptLabel { code: code.to_owned(), display: Some(display.to_owned()) }
}

fn cane() -> HierarchyConcept {
    HierarchyConcept {
        code: "cane".to_owned(),
        display: Some("Cane".to_owned()),
        definition: Some("A stick for walking".to_owned()),
        parents: vec![label("stick", "Stick")],
        children: vec![label("folding-cane", "Folding cane"), label("quad-cane", "Cane with four feet")],
        ..HierarchyConcept::default()
    }
}

fn query(code: &str) -> HierarchyQuery {
    HierarchyQuery { system: AIDS.to_owned(), code: code.to_owned(), ..HierarchyQuery::default() }
}

/// Returns the id of a question for a concept, and checks its code.
#[track_caller]
fn asked(effects: &[RuntimeEffect], code: &str) -> u64 {
    match effects {
        [RuntimeEffect::Tree(id, TreeQuestion::Concept(asked), Bearer::Backend)] => {
            assert_eq!(*asked, query(code));
            *id
        }
        effects => panic!("{effects:?}"),
    }
}

/// Returns a model that shows a concept.
pub fn shown() -> Model {
    let mut model = model();
    press(&mut model, KeyCode::Char('3'));
    let id = asked(&press(&mut model, KeyCode::Enter), "cane");
    update(&mut model, Message::Tree(id, TreeAnswer::Concept(Ok(cane()))));
    model
}

/// A text of a server changes neither the order of others nor the terminal.
#[test]
fn control_characters_are_not_drawn() {
    let mut model = model();
    press(&mut model, KeyCode::Char('3'));
    let id = asked(&press(&mut model, KeyCode::Enter), "cane");
    let text = "a\u{202e}evil\u{2066} \u{1b}[2J\u{200b} \u{feff}b a\u{200d}b שלום";
    let children = vec![label("quad\u{202e}cane", text)];
    let concept = HierarchyConcept { display: Some(text.to_owned()), children, ..cane() };
    update(&mut model, Message::Tree(id, TreeAnswer::Concept(Ok(concept))));
    let picture = picture(&model, 80, 24);
    assert!(picture.contains("evil") && picture.contains("שלום"), "{picture}");
    let control = |c: char| c != '\n' && command_line::text::is_unprintable(c);
    assert!(!picture.contains(control), "{picture:?}");
}

/// Returns a model that shows the concepts with a text that is being typed.
pub fn searched() -> Model {
    let mut model = shown();
    press(&mut model, KeyCode::Tab);
    press(&mut model, KeyCode::Tab);
    press(&mut model, KeyCode::Tab);
    let effects = press(&mut model, KeyCode::Char('s'));
    let [RuntimeEffect::Tree(id, TreeQuestion::Search(search), _)] = &effects[..] else {
        panic!("{effects:?}")
    };
    let expected =
        ConceptSearch { system: AIDS.to_owned(), text: "canes".to_owned(), ..ConceptSearch::default() };
    assert_eq!(*search, expected);
    let code = |code: &str, display: &str| ExpandedCode {
        code: code.to_owned(),
        display: Some(display.to_owned()),
        ..ExpandedCode::default()
    };
    let codes = vec![code("cane-seat", "Cane seat"), code("quad-cane", "Cane with four feet")];
    update(&mut model, Message::Tree(*id, TreeAnswer::Search(Ok(codes))));
    press(&mut model, KeyCode::Down);
    press(&mut model, KeyCode::Down);
    model
}

/// Returns a model that shows the path between two codes.
pub fn path_shown() -> Model {
    let mut model = model();
    press(&mut model, KeyCode::Char('2'));
    press(&mut model, KeyCode::Char('o'));
    let effects = press(&mut model, KeyCode::Char('g'));
    assert_eq!(model.screen, Screen::Tree);
    let [RuntimeEffect::Tree(id, TreeQuestion::Path(asked), Bearer::Backend)] = &effects[..] else {
        panic!("{effects:?}")
    };
    let expected = PathQuery {
        system: AIDS.to_owned(),
        code_a: "aid".to_owned(),
        code_b: "cane".to_owned(),
        ..PathQuery::default()
    };
    assert_eq!(*asked, expected);
    let path = HierarchyPath {
        outcome: "subsumes".to_owned(),
        chain: vec![label("aid", "Aid"), label("stick", "Stick"), label("cane", "Cane")],
        lookups: 2,
        limit_reached: false,
    };
    update(&mut model, Message::Tree(*id, TreeAnswer::Path(Ok(path))));
    model
}

#[test]
fn neighbours_are_opened_and_the_history_leads_back() {
    let mut model = shown();
    assert_eq!(model.tree.selected, 1, "the first child is selected");
    press(&mut model, KeyCode::Down);
    let id = asked(&press(&mut model, KeyCode::Enter), "quad-cane");
    assert_eq!(model.tree.form.value("code"), "quad-cane");
    update(&mut model, Message::Tree(id - 1, TreeAnswer::Concept(Ok(cane()))));
    let TreeContent::Concept(sent) = &model.tree.shown else { panic!("{:?}", model.tree.shown) };
    assert!(sent.answer.is_waiting(), "a late answer to an earlier question is dropped");
    asked(&press(&mut model, KeyCode::Backspace), "cane");
    assert_eq!(press(&mut model, KeyCode::Backspace), []);
    assert_eq!(model.notice.as_deref(), Some("Not possible: no concept was shown before."));
}

#[test]
fn h_and_l_walk_up_and_down() {
    let mut model = shown();
    let id = asked(&press(&mut model, KeyCode::Char('l')), "folding-cane");
    let leaf = HierarchyConcept { parents: vec![label("cane", "Cane")], ..HierarchyConcept::default() };
    update(&mut model, Message::Tree(id, TreeAnswer::Concept(Ok(leaf))));
    assert_eq!(press(&mut model, KeyCode::Char('l')), []);
    assert_eq!(model.notice.as_deref(), Some("Not possible: the concept has no concept below it."));
    let id = asked(&press(&mut model, KeyCode::Char('h')), "cane");
    update(&mut model, Message::Tree(id, TreeAnswer::Concept(Ok(cane()))));
    press(&mut model, KeyCode::Down);
    asked(&press(&mut model, KeyCode::Char('l')), "quad-cane");
}

#[test]
fn a_code_of_the_forms_is_opened_in_the_tree() {
    let mut model = model();
    press(&mut model, KeyCode::Char('2'));
    asked(&press(&mut model, KeyCode::Char('g')), "cane");
    assert_eq!(model.screen, Screen::Tree);
    press(&mut model, KeyCode::Char('2'));
    press(&mut model, KeyCode::Char('O'));
    assert_eq!(press(&mut model, KeyCode::Char('g')), [], "a value set is not a code");
}

#[test]
fn a_concept_that_was_found_by_text_is_opened() {
    let mut model = searched();
    asked(&press(&mut model, KeyCode::Enter), "quad-cane");
    assert!(model.completion().is_none() && !model.typing);
}

#[test]
fn a_late_search_is_dropped_and_esc_closes_the_list() {
    let mut model = searched();
    press(&mut model, KeyCode::Esc);
    assert!(model.completion().is_none() && model.typing, "only the list is closed");
    press(&mut model, KeyCode::Char('x'));
    update(&mut model, Message::Tree(1, TreeAnswer::Search(Ok(vec![ExpandedCode::default()]))));
    assert!(model.completion().is_none());
    press(&mut model, KeyCode::Esc);
    assert!(!model.typing);
}

#[test]
fn the_path_is_asked_for_in_its_field_and_its_concepts_are_opened() {
    let mut model = path_shown();
    press(&mut model, KeyCode::Down);
    asked(&press(&mut model, KeyCode::Enter), "stick");
    press(&mut model, KeyCode::BackTab);
    press(&mut model, KeyCode::BackTab);
    assert_eq!(model.tree.form.focused().name, "path to");
    let effects = press(&mut model, KeyCode::Enter);
    let [RuntimeEffect::Tree(_, TreeQuestion::Path(asked), _)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((asked.code_a.as_str(), asked.code_b.as_str()), ("stick", "cane"));
    let command = format!("trefoil-tui path --system {AIDS} --code-a stick --code-b cane");
    assert_eq!(press(&mut model, KeyCode::Char('y')), [RuntimeEffect::Copy(command)]);
}

#[test]
fn the_other_code_of_a_path_is_searched_for_by_text_too() {
    let mut model = shown();
    press(&mut model, KeyCode::Tab);
    press(&mut model, KeyCode::BackTab);
    let effects = press(&mut model, KeyCode::Char('a'));
    let [RuntimeEffect::Tree(id, TreeQuestion::Search(search), _)] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(search.text, "a");
    let aid = ExpandedCode { code: "aid".to_owned(), ..ExpandedCode::default() };
    update(&mut model, Message::Tree(*id, TreeAnswer::Search(Ok(vec![aid]))));
    press(&mut model, KeyCode::Down);
    let effects = press(&mut model, KeyCode::Enter);
    let [RuntimeEffect::Tree(_, TreeQuestion::Path(asked), _)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((asked.code_a.as_str(), asked.code_b.as_str()), ("cane", "aid"));
}

fn neighbour(kind: &str, code: &str) -> Value {
    json!({ "name": "property", "part": [
        { "name": "code", "valueCode": kind },
        { "name": "value", "valueCode": code },
        { "name": "description", "valueString": code.to_uppercase() },
    ]})
}

/// Answers `$lookup` of a code with these neighbours.
async fn concept(server: &MockServer, code: &str, neighbours: &[(&str, &str)]) {
    let mut parameters = vec![json!({ "name": "display", "valueString": code.to_uppercase() })];
    parameters.extend(neighbours.iter().map(|(kind, code)| neighbour(kind, code)));
    Mock::given(method("GET"))
        .and(path("/fhir/R4/CodeSystem/$lookup"))
        .and(query_param("system", "s"))
        .and(query_param("code", code))
        .and(query_param("property", "parent"))
        .respond_with(
            ResponseTemplate::new(200)
                .set_body_json(json!({ "resourceType": "Parameters", "parameter": parameters })),
        )
        .expect(1)
        .mount(server)
        .await;
}

#[tokio::test]
async fn neighbours_are_read_from_properties() {
    let server = MockServer::start().await;
    concept(&server, "c", &[("parent", "b"), ("inactive", "x"), ("child", "d"), ("child", "e")]).await;
    let query = HierarchyQuery { system: "s".into(), code: "c".into(), ..HierarchyQuery::default() };
    let concept = api(&server.uri()).concept(&query, &Bearer::Anonymous).await.unwrap();
    assert_eq!((concept.parents, concept.display.as_deref()), (vec![label("b", "B")], Some("C")));
    assert_eq!(concept.children, [label("d", "D"), label("e", "E")]);
}

#[tokio::test]
async fn concepts_are_searched_in_an_inline_value_set() {
    let server = MockServer::start().await;
    let parameters = json!({ "resourceType": "Parameters", "parameter": [
        { "name": "valueSet", "resource": {
            "resourceType": "ValueSet", "status": "active",
            "compose": { "include": [{ "system": "s", "version": "1" }] },
        }},
        { "name": "filter", "valueString": "st" },
        { "name": "count", "valueInteger": 20 },
    ]});
    let expansion = json!({ "resourceType": "ValueSet", "expansion": { "contains": [{ "code": "stick" }] } });
    Mock::given(method("POST"))
        .and(path("/fhir/R4/ValueSet/$expand"))
        .and(body_json(parameters))
        .respond_with(ResponseTemplate::new(200).set_body_json(expansion))
        .expect(1)
        .mount(&server)
        .await;
    let search = ConceptSearch { system: "s".into(), version: "1".into(), text: "st".into() };
    let codes = api(&server.uri()).search_concepts(&search, &Bearer::Anonymous).await.unwrap();
    assert_eq!(codes.len(), 1);
}

async fn outcome(server: &MockServer, outcome: &str) {
    let outcome_body = json!({ "parameter": [{ "name": "outcome", "valueCode": outcome }] });
    Mock::given(path("/fhir/R4/CodeSystem/$subsumes"))
        .respond_with(ResponseTemplate::new(200).set_body_json(outcome_body))
        .mount(server)
        .await;
}

#[tokio::test]
async fn the_path_follows_the_parents_from_the_lower_code() {
    let server = MockServer::start().await;
    outcome(&server, "subsumed-by").await;
    concept(&server, "d", &[("parent", "b"), ("parent", "c")]).await;
    concept(&server, "b", &[]).await;
    concept(&server, "c", &[("parent", "a"), ("child", "d")]).await;
    let query =
        PathQuery { system: "s".into(), code_a: "d".into(), code_b: "a".into(), ..PathQuery::default() };
    let path = api(&server.uri()).hierarchy_path(&query, &Bearer::Anonymous).await.unwrap();
    assert_eq!(path.chain, [label("a", "A"), label("c", "C"), label("d", "D")]);
    assert_eq!((path.lookups, path.limit_reached), (3, false));
}

#[tokio::test]
async fn codes_without_subsumption_have_no_path() {
    let server = MockServer::start().await;
    outcome(&server, "not-subsumed").await;
    let path = api(&server.uri()).hierarchy_path(&PathQuery::default(), &Bearer::Anonymous).await.unwrap();
    assert_eq!((path.chain.len(), path.sentence()), (0, "not-subsumed; there is no path".to_owned()));
}

/// An answer that failed with a message of many lines.
pub fn failed() -> Model {
    let mut model = model();
    press(&mut model, KeyCode::Char('3'));
    let id = asked(&press(&mut model, KeyCode::Enter), "cane");
    let reason = (1..=200).map(|number| format!("word{number}")).collect::<Vec<_>>().join(" ");
    update(&mut model, Message::Tree(id, TreeAnswer::Concept(Err(reason))));
    model
}

#[test]
fn a_long_error_is_wrapped_and_scrolled() {
    let mut model = failed();
    let first = picture(&model, 80, 24);
    assert!(first.contains("word1 ") && !first.contains("word200"), "{first}");
    for _ in 0..20 {
        press(&mut model, KeyCode::Down);
    }
    let last = picture(&model, 80, 24);
    assert!(last.contains("word200"), "{last}");
}
