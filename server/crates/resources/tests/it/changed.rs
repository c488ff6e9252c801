//! Law: a search by the change feed returns what a search of all resources returns, in the order of their
//! last changes, whatever is written between its pages.

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use store::Store;
use trefoil_resources::filter::TypeFilter;
use trefoil_resources::result::sort::SortKey;
use trefoil_resources::{ChangeOrder, ExpectedVersion, Resources, Restriction};

use crate::now;

const BASE: &str = "https://here.example/fhir/R4";

/// A write after some milliseconds: of a resource of two types, with a code or as a deletion.
type Step = (i64, bool, u8, Option<bool>);

fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let code = proptest::option::weighted(0.8, any::<bool>());
    proptest::collection::vec((0..3i64, proptest::bool::weighted(0.8), 0..6u8, code), 0..most)
}

/// Parameters of a search: prefixes and times of `_lastUpdated` in milliseconds, as alternatives, and a code.
type Search = (Vec<Vec<(&'static str, i64)>>, Option<bool>);

fn search() -> impl Strategy<Value = Search> {
    let prefix = prop::sample::select(vec!["", "ne", "gt", "lt", "ge", "le", "sa", "eb", "ap"]);
    let alternatives = proptest::collection::vec((prefix, 0..20i64), 1..3);
    (proptest::collection::vec(alternatives, 0..3), proptest::option::of(any::<bool>()))
}

fn at(milliseconds: i64) -> Timestamp {
    now() + SignedDuration::from_millis(milliseconds)
}

fn query((bounds, code): &Search) -> String {
    let value = |(prefix, time): &(&str, i64)| format!("{prefix}{:.3}", at(*time));
    let bound = |values: &Vec<(&str, i64)>| {
        format!("_lastUpdated={}", values.iter().map(value).collect::<Vec<_>>().join(","))
    };
    let code = code.map(|code| format!("code={code}"));
    bounds.iter().map(bound).chain(code).collect::<Vec<_>>().join("&")
}

struct History {
    resources: Resources,
    time: i64,
    count: u64,
    /// The type, id, number and body of each stored resource, in the order of their last changes.
    live: Vec<(&'static str, String, u64, String)>,
}

impl History {
    async fn write(&mut self, steps: &[Step]) {
        for (pause, is_basic, id, code) in steps {
            self.time += pause;
            self.count += 1;
            let (kind, id) = (if *is_basic { "Basic" } else { "Flag" }, format!("r{id}"));
            let place = self.live.iter().position(|(other, known, ..)| *other == kind && *known == id);
            let expect = ExpectedVersion::Anything;
            if place.is_some() || code.is_some() {
                place.map(|place| self.live.remove(place));
            }
            if let Some(code) = code {
                let body = format!(
                    r#"{{"resourceType":"{kind}","id":"{id}","code":{{"coding":[{{"code":"{code}"}}]}}}}"#
                );
                self.resources.update(kind, &id, body, expect, at(self.time)).await.unwrap();
                let resource = self.resources.read(kind, &id).await.unwrap();
                let body = String::from_utf8(resource.bytes.to_vec()).unwrap();
                self.live.push((kind, id, self.count, body));
            } else {
                drop(self.resources.delete(kind, &id, None, at(self.time)).await);
            }
        }
    }
}

async fn check(store: Store, first: &[Step], between: &[Step], search: &Search, count: usize) {
    let mut history = History { resources: Resources::at(store, BASE), time: 0, count: 0, live: Vec::new() };
    history.write(first).await;
    let query = query(search);
    let filter = (!query.is_empty())
        .then(|| TypeFilter::read(&format!("Basic?{query}"), BASE, at(history.time)).unwrap());
    // Without an order, only a search with a lower bound is read by changes.
    let view = history.resources.restricted_to(Restriction::None);
    let unordered = view.search_by_change("Basic", filter.as_ref(), None, None, 1).await.unwrap();
    let has_lower_bound = filter.as_ref().is_some_and(|filter| filter.updated_range().after.is_some());
    assert_eq!(unordered.is_some(), has_lower_bound, "{query}");
    for sort in ["_lastUpdated", "-_lastUpdated"] {
        let order = SortKey::change_order(&SortKey::list("Basic", sort).unwrap());
        let is_met = |(kind, _, _, body): &&(&str, String, u64, String)| {
            *kind == "Basic" && filter.as_ref().is_none_or(|filter| filter.is_met(body.as_bytes()))
        };
        let mut expected: Vec<String> =
            history.live.iter().filter(is_met).map(|(_, id, ..)| id.clone()).collect();
        if order == Some(ChangeOrder::NewestFirst) {
            expected.reverse();
        }
        let mut ids = Vec::new();
        let mut from = None::<String>;
        loop {
            let view = history.resources.restricted_to(Restriction::None);
            let page = view.search_by_change("Basic", filter.as_ref(), order, from.as_deref(), count).await;
            let page = page.unwrap().expect("a small store is read by its changes");
            // No page is empty but a single one.
            assert!(!page.resources.is_empty() || from.is_none() && page.next.is_none(), "{query}");
            ids.extend(page.resources.into_iter().map(|resource| resource.id));
            from = page.next;
            if from.is_none() {
                break;
            }
            history.write(between).await;
        }
        assert_eq!(ids, expected, "{sort} {query}");
    }
}

fn run(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn searches_by_change_return_all_matches_in_order(
        first in steps(20), between in steps(3), search in search(), count in 1..4usize,
    ) {
        run(check(Store::memory(), &first, &between, &search, count));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(30) })]

    #[test]
    fn searches_by_change_return_all_matches_in_order_on_files(
        first in steps(20), between in steps(3), search in search(), count in 1..4usize,
    ) {
        let dir = tempfile::tempdir().unwrap();
        run(check(Store::open(dir.path()).unwrap(), &first, &between, &search, count));
    }
}
