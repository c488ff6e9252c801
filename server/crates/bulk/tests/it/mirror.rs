//! Tests of `trefoil export` and `trefoil import` together: a server that imports the full export of another
//! one, and then its increments, has the same resources.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use resources::{ImportOptions, Resources};
use serde_json::{Value, json};
use store::Store;
use trefoil_bulk::serve::operator;

use crate::support::{BASE, Setup, cases, in_database, wait};

#[derive(Debug, Clone)]
enum Write {
    Put { kind: usize, number: usize, value: u8 },
    Delete { kind: usize, number: usize },
}

const KINDS: [&str; 4] = ["Basic", "Binary", "Bundle", "Patient"];

const BUNDLE_TYPES: [&str; 4] = ["transaction", "batch", "collection", "document"];

fn write() -> impl Strategy<Value = Write> {
    let place = (0..KINDS.len(), 0_usize..5);
    prop_oneof![
        2 => (place.clone(), any::<u8>())
            .prop_map(|((kind, number), value)| Write::Put { kind, number, value }),
        1 => place.prop_map(|(kind, number)| Write::Delete { kind, number }),
    ]
}

/// A resource of a type. Bundles have requests, which an import must not apply.
fn resource(kind: &str, value: u8) -> Value {
    match kind {
        "Binary" => json!({ "contentType": "text/plain", "data": "SGVsbG8=", "language": value.to_string() }),
        "Bundle" => json!({
            "type": BUNDLE_TYPES[usize::from(value) % BUNDLE_TYPES.len()],
            "timestamp": format!("2026-01-31T08:00:00.{value:03}Z"),
            "entry": [{ "request": { "method": "DELETE", "url": format!("Patient/{}", value % 5) } }],
        }),
        _ => {
            json!({ "language": value.to_string(), "extension": [{ "url": "Binary/0", "valueDecimal": 1.50 }] })
        }
    }
}

/// All resources in the files of a folder, without version and time.
fn lines(folder: &Path) -> BTreeMap<String, Value> {
    let mut contents = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "ndjson") {
            continue;
        }
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let mut resource: Value = serde_json::from_str(line).unwrap();
            resource.as_object_mut().unwrap().remove("meta");
            contents.insert(format!("{}/{}", resource["resourceType"], resource["id"]), resource);
        }
    }
    contents
}

async fn export(setup: &Setup, store: &Store, out: &Path, since: Option<String>) -> String {
    setup.pass(Duration::from_millis(1));
    let request = operator::request(None, since, None);
    operator::export(store, BASE, request, out, setup.now(), |_, _| {}).await.unwrap();
    let manifest: Value = serde_json::from_slice(&std::fs::read(out.join("manifest.json")).unwrap()).unwrap();
    manifest["transactionTime"].as_str().unwrap().to_owned()
}

/// Mirrors a history of writes from a server to another one on `store`.
async fn mirror(rounds: &[Vec<Write>], original: Store, store: Store) {
    let (setup, mirror) = (Setup::on(original, |_| {}), Resources::at(store.clone(), BASE));
    let dir = tempfile::tempdir().unwrap();
    let (mut since, mut written) = (None, BTreeSet::new());
    for (number, round) in rounds.iter().enumerate() {
        for write in round {
            match *write {
                Write::Put { kind, number, value } => {
                    setup.put(KINDS[kind], &number.to_string(), resource(KINDS[kind], value)).await;
                    written.insert((KINDS[kind], number));
                }
                Write::Delete { kind, number } => {
                    setup.delete(KINDS[kind], &number.to_string()).await;
                    written.remove(&(KINDS[kind], number));
                }
            }
        }
        let out = dir.path().join(number.to_string());
        since = Some(export(&setup, &setup.store, &out, since).await);
        let new_id = || unreachable!("every exported resource has an id");
        let (options, never) = (ImportOptions::default(), std::future::pending());
        let report = mirror.import(vec![out], options, new_id, |_| {}, || setup.now(), never).await.unwrap();
        assert_eq!((report.bad_total, report.skipped_total), (0, 0), "{report:?}");
    }
    let (of_original, of_mirror) = (dir.path().join("original"), dir.path().join("mirror"));
    export(&setup, &setup.store, &of_original, None).await;
    export(&setup, &store, &of_mirror, None).await;
    assert_eq!(lines(&of_original), lines(&of_mirror));
    let names = written.into_iter().map(|(kind, number)| format!("\"{kind}\"/\"{number}\""));
    assert!(names.eq(lines(&of_mirror).into_keys()), "an export has exactly the resources that exist");
}

fn rounds() -> impl Strategy<Value = Vec<Vec<Write>>> {
    proptest::collection::vec(proptest::collection::vec(write(), 0..8), 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 50, ..ProptestConfig::with_cases(cases("memory", 200)) })]

    #[test]
    fn increments_that_are_imported_mirror_a_server(rounds in rounds()) {
        wait(mirror(&rounds, Store::memory(), Store::memory()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 50, ..ProptestConfig::with_cases(cases("file", 50)) })]

    #[test]
    fn increments_that_are_imported_mirror_a_server_on_files(rounds in rounds()) {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [original, copy] = [&dirs[0], &dirs[1]].map(|dir| Store::open(dir.path()).unwrap());
        wait(mirror(&rounds, original, copy));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20, ..ProptestConfig::with_cases(cases("postgres", 20)) })]

    #[test]
    fn increments_that_are_imported_mirror_a_server_in_a_database(rounds in rounds()) {
        wait(async {
            if let (Some(original), Some(copy)) = (in_database().await, in_database().await) {
                mirror(&rounds, original, copy).await;
            }
        });
    }
}
