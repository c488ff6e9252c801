//! The viewer of downloaded files.

use ratatui::crossterm::event::KeyCode;
use trefoil_tui::model::{ResourceDetail, Screen, ViewerPage};
use trefoil_tui::msg::{FoundResource, Message, RuntimeEffect};
use trefoil_tui::ndjson::resource::Summary;
use trefoil_tui::update::update;

use super::export::complete;
use crate::support::{press, type_text};

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
