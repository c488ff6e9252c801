//! The Home screen: what is asked, what is shown, and what its keys do.

use ratatui::crossterm::event::KeyCode;
use serde_json::json;
use trefoil_tui::api::{
    Api, Bearer, ConceptLabel, ConceptPlace, ContentKind, ContentList, ExpandedCode, ServerSummary,
};
use trefoil_tui::model::{HomeRow, Model, Operation, Screen};
use trefoil_tui::msg::{CodeQuestion, HomeAnswer, Message, RuntimeEffect, TreeQuestion};
use trefoil_tui::update::update;
use wiremock::matchers::{method, path, query_param};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::{api, new_model, press, session};

const AIDS: &str = "https://t.example/CodeSystem/aids";

/// The answers of a server to the questions of the Home screen.
async fn lists(api: &Api) -> Vec<(ContentKind, ContentList)> {
    let mut lists = Vec::new();
    for kind in ContentKind::ALL {
        lists.push((kind, api.contents(kind, &Bearer::Anonymous).await.unwrap()));
    }
    lists
}

fn bundle(resources: &[serde_json::Value]) -> ResponseTemplate {
    let entries: Vec<_> = resources.iter().map(|resource| json!({ "resource": resource })).collect();
    ResponseTemplate::new(200).set_body_json(json!({ "resourceType": "Bundle", "entry": entries }))
}

async fn server() -> MockServer {
    let server = MockServer::start().await;
    let groups = [json!({ "resourceType": "Group", "id": "g1", "name": "Walking circle", "quantity": 5 })];
    let systems = [
        json!({ "resourceType": "CodeSystem", "id": "s", "url": AIDS, "title": "Care aids", "count": 62,
                "content": "complete" }),
        json!({ "resourceType": "CodeSystem", "id": "t", "url": "https://t.example/CodeSystem/terms", "name": "Terms",
                "content": "supplement" }),
        json!({ "resourceType": "OperationOutcome" }),
    ];
    let sets = [json!({ "resourceType": "ValueSet", "id": "v", "url": "https://t.example/ValueSet/aids",
                        "title": "Aids in use", "version": "1.0" })];
    for (kind, elements, resources) in [
        ("Group", "name,quantity", &groups[..]),
        ("CodeSystem", "url,name,title,version,content,count", &systems[..]),
        ("ValueSet", "url,name,title,version", &sets[..]),
    ] {
        let matched = Mock::given(method("GET")).and(path(format!("/fhir/R4/{kind}")));
        let matched = matched.and(query_param("_elements", elements)).and(query_param("_count", "50"));
        matched.respond_with(bundle(resources)).mount(&server).await;
    }
    server
}

/// The Home screen after the answers of the server.
pub async fn home() -> Model {
    let server = server().await;
    let mut model = new_model();
    update(&mut model, Message::Restored(None));
    for (kind, list) in lists(&api(&server.uri())).await {
        update(&mut model, Message::Home(1, HomeAnswer::List(kind, Ok(list))));
    }
    let summary = ServerSummary {
        software: "Trefoil 1.0.0".to_owned(),
        fhir_version: "4.0.1".to_owned(),
        clock_skew_s: Some(1),
        certificate_ends_at: Some("2027-11-30T00:00:00Z".parse().unwrap()),
    };
    update(&mut model, Message::Home(1, HomeAnswer::Summary(Ok(summary))));
    model
}

/// The Home screen after a search for `cane`.
pub async fn searched() -> Model {
    let mut model = home().await;
    press(&mut model, KeyCode::Char('/'));
    let mut id = 0;
    for letter in "cane".chars() {
        let effects = press(&mut model, KeyCode::Char(letter));
        let [RuntimeEffect::SearchSystems { id: sent, text, systems, .. }] = &effects[..] else {
            panic!("{effects:?}");
        };
        assert_eq!(systems, &[AIDS], "a supplement has no concepts of its own");
        assert!("cane".starts_with(text.as_str()));
        id = *sent;
    }
    let code = |code: &str, display: &str| ExpandedCode {
        system: Some(AIDS.to_owned()),
        code: code.to_owned(),
        display: Some(display.to_owned()),
        inactive: false,
    };
    let codes = vec![code("white-cane", "White cane"), code("cane", "Cane")];
    let late = HomeAnswer::Found(AIDS.to_owned(), Ok(codes[..1].to_vec()));
    assert_eq!(update(&mut model, Message::Home(id - 1, late)), [], "an answer to an earlier text");
    let results = HomeAnswer::Found(AIDS.to_owned(), Ok(codes));
    let effects = update(&mut model, Message::Home(id, results));
    let [RuntimeEffect::Place(id, query, _)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(query.code, "cane", "the display that is the text comes first");
    let label =
        |code: &str, display: &str| ConceptLabel { code: code.to_owned(), display: Some(display.to_owned()) };
    let place = ConceptPlace {
        ancestors: vec![label("aid", "Aid"), label("walking-stick", "Walking stick")],
        other_parents: 1,
        children: vec![label("quad-cane", "Four-footed cane")],
        definition: None,
    };
    update(&mut model, Message::Home(*id, HomeAnswer::Place(Ok(place))));
    model
}

#[tokio::test]
async fn the_screens_match_their_snapshots() {
    crate::view::check("home", &home().await);
    crate::view::check("home_search", &searched().await);
    let mut error_model = new_model();
    error_model.about.backend_id = None;
    update(&mut error_model, Message::Restored(None));
    let reason = "send an access token as 'Authorization: Bearer TOKEN' (401 Unauthorized)".to_owned();
    for kind in ContentKind::ALL {
        update(&mut error_model, Message::Home(1, HomeAnswer::List(kind, Err(reason.clone()))));
    }
    crate::view::check("home_refused", &error_model);
}

#[tokio::test]
async fn a_code_is_validated_with_eight_keys_and_without_a_url() {
    let mut model = searched().await;
    assert_eq!(press(&mut model, KeyCode::Esc), []);
    let effects = press(&mut model, KeyCode::Char('v'));
    let [RuntimeEffect::Code(_, CodeQuestion::ValidateCode(asked), _)] = &effects[..] else {
        panic!("{effects:?}");
    };
    assert_eq!((asked.system.as_str(), asked.code.as_str(), asked.url.as_str()), (AIDS, "cane", ""));
    assert_eq!((model.screen, model.codes.operation), (Screen::Codes, Operation::ValidateCode));
}

#[tokio::test]
async fn a_group_is_exported_with_two_keys() {
    let mut model = home().await;
    press(&mut model, KeyCode::Enter);
    assert_eq!(model.screen, Screen::Export);
    let effects = press(&mut model, KeyCode::Enter);
    assert!(matches!(&effects[..], [RuntimeEffect::StartExport { job, .. }] if job.scope() == "Group/g1"));
}

#[tokio::test]
async fn the_level_of_an_export_is_chosen_from_a_list() {
    let mut model = home().await;
    press(&mut model, KeyCode::Char('4'));
    let levels: Vec<_> = model.export_choices().into_iter().map(|choice| choice.level).collect();
    assert_eq!(levels, ["Group/g1", "Patient", ""]);
    for (key, level) in [
        (KeyCode::Down, "Patient"),
        (KeyCode::Down, ""),
        (KeyCode::Down, ""),
        (KeyCode::Up, "Patient"),
        (KeyCode::Up, "Group/g1"),
    ] {
        press(&mut model, key);
        assert_eq!(model.export.form.value("level"), level);
    }
    model.export.form.set("level", "Group/entered");
    let choices = model.export_choices();
    assert_eq!((choices[0].level.as_str(), model.export.chosen(&choices)), ("Group/entered", 0));
    crate::view::check("export_choices", &model);
    // The fields appear while one of them is edited.
    press(&mut model, KeyCode::Tab);
    crate::view::check("export_form", &model);
}

#[tokio::test]
async fn a_concept_is_looked_up_compared_and_opened_in_its_tree() {
    let mut model = searched().await;
    assert!(matches!(
        &press(&mut model, KeyCode::Enter)[..],
        [RuntimeEffect::Code(_, CodeQuestion::Lookup(asked), _)] if asked.code == "cane"
    ));
    let mut model = searched().await;
    press(&mut model, KeyCode::Esc);
    press(&mut model, KeyCode::Char('u'));
    press(&mut model, KeyCode::Down);
    let effects = press(&mut model, KeyCode::Char('u'));
    let [RuntimeEffect::Code(_, CodeQuestion::Subsumes(asked), _)] = &effects[..] else {
        panic!("{effects:?}");
    };
    assert_eq!((asked.code_a.as_str(), asked.code_b.as_str()), ("cane", "white-cane"));
    let mut model = searched().await;
    press(&mut model, KeyCode::Esc);
    assert!(matches!(
        &press(&mut model, KeyCode::Char('g'))[..],
        [RuntimeEffect::Tree(_, TreeQuestion::Concept(query), _)] if query.code == "cane"
    ));
    assert_eq!(model.screen, Screen::Tree);
    let mut model = searched().await;
    press(&mut model, KeyCode::Esc);
    press(&mut model, KeyCode::Char('d'));
    assert!(model.codes.naming_other && model.codes.lookup.form.value("code") == "cane");
}

#[tokio::test]
async fn a_code_system_limits_the_search_and_a_value_set_is_expanded() {
    let mut model = home().await;
    press(&mut model, KeyCode::Down);
    let effects = press(&mut model, KeyCode::Enter);
    assert!(matches!(
        &effects[..],
        [RuntimeEffect::SearchSystems { text, systems, .. }] if text.is_empty() && systems == &[AIDS]
    ));
    press(&mut model, KeyCode::Char('/'));
    type_text_of_search(&mut model, "xyz");
    press(&mut model, KeyCode::Esc);
    press(&mut model, KeyCode::Esc);
    assert!(model.home.scope.is_some() && model.home.text().is_empty(), "the text leaves first");
    press(&mut model, KeyCode::Esc);
    press(&mut model, KeyCode::Esc);
    assert!(model.home.scope.is_none());
    for _ in 0..9 {
        press(&mut model, KeyCode::Down);
    }
    assert!(matches!(
        &press(&mut model, KeyCode::Enter)[..],
        [RuntimeEffect::Code(_, CodeQuestion::Expand(asked), _)] if asked.url == "https://t.example/ValueSet/aids"
    ));
}

#[tokio::test]
async fn resources_beyond_an_incomplete_list_are_found_by_their_titles() {
    let mut model = home().await;
    let server = MockServer::start().await;
    let titled = Mock::given(method("GET")).and(path("/fhir/R4/ValueSet"));
    let set = json!({ "resourceType": "ValueSet", "id": "w", "url": "https://t.example/ValueSet/walk",
                      "title": "Walking aids" });
    let other = json!({ "resourceType": "ValueSet", "id": "x", "url": "https://t.example/ValueSet/x" });
    titled
        .and(query_param("title:contains", "walk"))
        .respond_with(bundle(&[set, other]))
        .mount(&server)
        .await;
    let api = api(&server.uri());
    let list = api.contents_with_title(ContentKind::ValueSets, "walk", &Bearer::Anonymous).await.unwrap();
    let first = ContentList { has_more: true, ..ContentList::default() };
    update(&mut model, Message::Home(1, HomeAnswer::List(ContentKind::ValueSets, Ok(first))));
    press(&mut model, KeyCode::Char('/'));
    type_text_of_search(&mut model, "wal");
    let effects = press(&mut model, KeyCode::Char('k'));
    let [RuntimeEffect::SearchSystems { id, kinds, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(kinds, &[ContentKind::ValueSets], "the other lists are complete");
    update(&mut model, Message::Home(*id, HomeAnswer::Titled(ContentKind::ValueSets, Ok(list))));
    let titles: Vec<_> = model.home.rows().iter().map(HomeRow::text).collect();
    let has_title = |text: &str| titles.iter().any(|title| title.contains(text));
    assert!(has_title("Walking aids") && has_title("Walking circle"), "{titles:?}");
    assert!(!has_title("ValueSet/x"), "a server may ignore a search parameter: {titles:?}");
}

#[tokio::test]
async fn fields_are_completed_from_the_lists_of_the_server() {
    let mut model = home().await;
    press(&mut model, KeyCode::Char('2'));
    press(&mut model, KeyCode::Tab);
    model.form().unwrap().focused().set("aids");
    press(&mut model, KeyCode::Down);
    let values = |model: &Model| format!("{:?}", model.completion());
    assert!(values(&model).contains("https://t.example/ValueSet/aids"), "{}", values(&model));
    press(&mut model, KeyCode::Esc);
    press(&mut model, KeyCode::Esc);
    press(&mut model, KeyCode::Char('o'));
    press(&mut model, KeyCode::Tab);
    model.form().unwrap().focused().set("care");
    press(&mut model, KeyCode::Down);
    assert!(values(&model).contains(AIDS), "found by its title: {}", values(&model));
}

fn type_text_of_search(model: &mut Model, text: &str) {
    for letter in text.chars() {
        press(model, KeyCode::Char(letter));
    }
}

#[test]
fn keys_of_a_concept_say_that_none_is_selected() {
    for key in ['v', 'u', 'g', 'd'] {
        let mut model = new_model();
        assert_eq!(press(&mut model, KeyCode::Char(key)), []);
        assert_eq!(model.notice.as_deref(), Some("Not possible: no concept is selected."), "{key}");
    }
}

#[test]
fn before_the_sign_in_no_token_is_sent() {
    let mut model = new_model();
    model.about.backend_id = None;
    model.bearer = Bearer::User;
    let search_of = |effects: Vec<RuntimeEffect>| {
        effects.into_iter().find_map(|effect| match effect {
            RuntimeEffect::Contents { bearer, groups_bearer, .. } if bearer == groups_bearer => Some(bearer),
            _ => None,
        })
    };
    assert_eq!(search_of(update(&mut model, Message::Restored(None))), Some(Bearer::Anonymous));
    assert_eq!(model.token_choice().bearer, Bearer::Anonymous, "questions are sent like those of Home");
    press(&mut model, KeyCode::Char('4'));
    assert!(matches!(
        &press(&mut model, KeyCode::Enter)[..],
        [RuntimeEffect::StartExport { bearer: Bearer::Anonymous, .. }]
    ));
    press(&mut model, KeyCode::Char('0'));
    assert!(matches!(press(&mut model, KeyCode::Char('s'))[..], [RuntimeEffect::SignIn(_)]));
    assert_eq!(search_of(update(&mut model, Message::SignedIn(Ok(session())))), Some(Bearer::User));
}

#[tokio::test]
async fn code_systems_without_resources_are_those_that_are_announced() {
    let server = MockServer::start().await;
    let announced = json!({ "resourceType": "TerminologyCapabilities", "codeSystem": [
        { "uri": "http://snomed.info/sct", "version": [{ "code": "http://snomed.info/sct/900000000000207008" }] },
        { "uri": "http://loinc.org" },
    ] });
    Mock::given(path("/fhir/R4/metadata"))
        .and(query_param("mode", "terminology"))
        .respond_with(ResponseTemplate::new(200).set_body_json(announced))
        .mount(&server)
        .await;
    let list = api(&server.uri()).contents(ContentKind::CodeSystems, &Bearer::Anonymous).await.unwrap();
    let titles: Vec<_> = list.entries.iter().map(|entry| entry.title.as_str()).collect();
    assert_eq!(titles, ["loinc.org", "sct"]);
    assert!(list.entries.iter().all(|entry| entry.is_searchable()));
    let groups = api(&server.uri()).contents(ContentKind::Groups, &Bearer::Anonymous).await;
    assert!(groups.unwrap_err().to_string().contains("404"), "the reason is shown");
}

#[test]
fn a_text_that_was_typed_early_is_searched_when_the_code_systems_are_known() {
    let mut model = new_model();
    update(&mut model, Message::Restored(None));
    press(&mut model, KeyCode::Char('/'));
    type_text_of_search(&mut model, "c");
    let list = ContentList::default();
    let effects = update(&mut model, Message::Home(1, HomeAnswer::List(ContentKind::CodeSystems, Ok(list))));
    assert!(matches!(&effects[..], [RuntimeEffect::SearchSystems { text, .. }] if text == "c"));
}
