//! Law: a search in the order of an index returns what a search that reads and sorts everything returns,
//! whatever is written between its pages.

use std::collections::BTreeSet;

use proptest::prelude::*;
use store::Store;
use trefoil_resources::filter::TypeFilter;
use trefoil_resources::result::sort::SortKey;
use trefoil_resources::{CompartmentView, ExpectedVersion, ResourcePage, Resources, Restriction};

use crate::now;

const BASE: &str = "https://here.example/fhir/R4";

/// The dates of an Observation or of a Procedure: members of its JSON, or none.
fn dates() -> impl Strategy<Value = String> {
    let day = || prop::sample::select(vec!["2020-01-01", "2020-01-02", "2020-01-03"]);
    let time = || prop::sample::select(vec!["00:00:00Z", "12:00:00.250Z", "23:59:59+05:00"]);
    let instant = (day(), time()).prop_map(|(day, time)| format!("{day}T{time}"));
    let date = prop_oneof![
        day().prop_map(str::to_owned),
        prop::sample::select(vec!["2020", "2020-01"]).prop_map(str::to_owned),
        instant.clone(),
    ];
    let period = prop_oneof![
        (day(), day()).prop_map(|(start, end)| format!(r#"{{"start":"{start}","end":"{end}"}}"#)),
        day().prop_map(|start| format!(r#"{{"start":"{start}"}}"#)),
        day().prop_map(|end| format!(r#"{{"end":"{end}"}}"#)),
    ];
    let events = proptest::collection::vec(date.clone(), 1..4);
    prop_oneof![
        1 => Just(String::new()),
        3 => date.prop_map(|date| format!(r#","effectiveDateTime":"{date}""#)),
        1 => instant.prop_map(|instant| format!(r#","effectiveInstant":"{instant}""#)),
        1 => period.prop_map(|period| format!(r#","effectivePeriod":{period}"#)),
        1 => events.prop_map(|events| format!(r#","effectiveTiming":{{"event":{events:?}}}"#)),
    ]
}

/// A write: the number of the resource, its dates or a deletion, and whether it has the common code.
type Step = (u8, Option<String>, bool);

fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = (0..9u8, proptest::option::weighted(0.9, dates()), any::<bool>());
    proptest::collection::vec(step, 0..most)
}

fn body(id: &str, dates: &str, is_common: bool) -> String {
    let code = if is_common { "common" } else { "rare" };
    format!(
        r#"{{"resourceType":"Observation","id":"{id}","status":"final","code":{{"coding":[{{"code":"{code}"}}]}}{dates}}}"#
    )
}

async fn write(resources: &Resources, steps: &[Step]) {
    for (id, dates, is_common) in steps {
        let id = format!("r{id}");
        if let Some(dates) = dates {
            let body = body(&id, dates, *is_common);
            resources.update("Observation", &id, body, ExpectedVersion::Anything, now()).await.unwrap();
        } else {
            drop(resources.delete("Observation", &id, None, now()).await);
        }
    }
}

fn ids(page: &ResourcePage) -> impl Iterator<Item = String> {
    page.resources.iter().map(|resource| resource.id.clone())
}

/// All matches of a sorted search, by reading all.
async fn sorted(view: &CompartmentView<'_>, filter: Option<&TypeFilter>, keys: &[SortKey]) -> Vec<String> {
    let (page, _) = view.search_sorted("Observation", filter, keys, None, 10_000).await.unwrap();
    ids(&page).collect()
}

async fn check(store: Store, first: &[Step], between: &[Step], query: Option<&str>, count: usize) {
    let resources = Resources::at(store, BASE);
    write(&resources, first).await;
    let filter = query.map(|query| TypeFilter::read(&format!("Observation?{query}"), BASE, now()).unwrap());
    let filter = filter.as_ref();
    for sort in ["date", "-date", "_id", "-_id", "date,_id", "-date,-_id"] {
        let keys = SortKey::list("Observation", sort).unwrap();
        let view = resources.restricted_to(Restriction::None);
        let expected = sorted(&view, filter, &keys).await;
        // A period that ends before it starts is no date.
        let dated = ["date=ge0001-01-01"].into_iter().chain(query).collect::<Vec<_>>().join("&");
        let dated = TypeFilter::read(&format!("Observation?{dated}"), BASE, now()).unwrap();
        let dated = sorted(&view, Some(&dated), &keys).await;
        let undated: BTreeSet<_> = expected.iter().filter(|id| !dated.contains(id)).cloned().collect();
        let mut ids_so_far = Vec::new();
        let mut from = None::<String>;
        loop {
            let page = view.search_by_index("Observation", filter, &keys, from.as_deref(), count).await;
            let page = page.unwrap().expect("the index has this order");
            // No page is empty but a single one.
            assert!(!page.resources.is_empty() || from.is_none() && page.next.is_none(), "{sort}");
            ids_so_far.extend(ids(&page));
            from = page.next;
            if from.is_none() {
                break;
            }
            write(&resources, between).await;
        }
        // Resources without a date come last, in the order of the store.
        if sort.contains("date") {
            let rest = expected.len() - undated.len();
            assert_eq!(
                ids_so_far.split_off(rest.min(ids_so_far.len())).into_iter().collect::<BTreeSet<_>>(),
                undated,
                "{sort}"
            );
            assert_eq!(ids_so_far, expected[..rest], "{sort}");
        } else {
            assert_eq!(ids_so_far, expected, "{sort}");
        }
    }
}

fn run(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
}

/// Searches that no entry of the index limits.
fn search() -> impl Strategy<Value = Option<&'static str>> {
    prop::sample::select(vec![None, Some("code:not=rare"), Some("code:not=common&subject:missing=true")])
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn searches_by_index_return_all_matches_in_order(
        first in steps(20), between in steps(3), search in search(), count in 1..4usize,
    ) {
        run(check(Store::memory(), &first, &between, search, count));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(30) })]

    #[test]
    fn searches_by_index_return_all_matches_in_order_on_files(
        first in steps(20), between in steps(3), search in search(), count in 1..4usize,
    ) {
        let dir = tempfile::tempdir().unwrap();
        run(check(Store::open(dir.path()).unwrap(), &first, &between, search, count));
    }
}

/// Entries that a search passes over, and pages of a clause with many candidates.
#[tokio::test]
async fn a_clause_with_many_matches_is_read_in_the_order_of_the_dates() {
    let resources = Resources::at(Store::memory(), BASE);
    for number in 0..3_600 {
        let (hour, minute) = (number / 60 % 24, number % 60);
        let date =
            format!(r#","effectiveDateTime":"2020-01-{:02}T{hour:02}:{minute:02}:00Z""#, 1 + number / 1_440);
        let (id, is_common) = (format!("n{}", number * 7 % 3_600), number % 3 == 0);
        let body = body(&id, &date, is_common);
        resources.update("Observation", &id, body, ExpectedVersion::Anything, now()).await.unwrap();
    }
    let view = resources.restricted_to(Restriction::None);
    let filter = TypeFilter::read("Observation?code=common", BASE, now()).unwrap();
    for sort in ["date", "-date"] {
        let keys = SortKey::list("Observation", sort).unwrap();
        let expected = sorted(&view, Some(&filter), &keys).await;
        let (mut found, mut from, mut is_first) = (Vec::new(), None, true);
        while is_first || from.is_some() {
            let page = view.search_by_index("Observation", Some(&filter), &keys, from.as_deref(), 700).await;
            let page = page.unwrap().expect("the index has this order");
            assert!(page.resources.len() == 700 || page.next.is_none());
            found.extend(ids(&page));
            (from, is_first) = (page.next, false);
        }
        assert_eq!((found.len(), found), (1_200, expected));
    }
    // Few matches are read and sorted.
    let filter = TypeFilter::read("Observation?date=2020-01-03", BASE, now()).unwrap();
    let keys = SortKey::list("Observation", "-date").unwrap();
    assert_eq!(view.search_by_index("Observation", Some(&filter), &keys, None, 10).await.unwrap(), None);
}

#[tokio::test]
async fn more_dates_than_the_index_has_are_sorted_without_it() {
    let resources = Resources::at(Store::memory(), BASE);
    let events: Vec<String> =
        (0..65).map(|minute| format!("2020-01-01T{:02}:{:02}:00Z", minute / 60, minute % 60)).collect();
    let timing = format!(r#","effectiveTiming":{{"event":{events:?}}}"#);
    let body = body("many", &timing, true);
    resources.update("Observation", "many", body, ExpectedVersion::Anything, now()).await.unwrap();
    let view = resources.restricted_to(Restriction::None);
    let keys = SortKey::list("Observation", "date").unwrap();
    assert_eq!(view.search_by_index("Observation", None, &keys, None, 10).await.unwrap(), None);
    assert_eq!(sorted(&view, None, &keys).await, ["many"]);
}
