//! Law: in whatever order files are imported, and in whatever form they have their versions, the newest
//! version of each resource is stored.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};
use store::{ResourceKey, Seq, Store, Versions as _};
use tempfile::TempDir;
use trefoil_resources::{ExpectedVersion, ImportCount, ImportOptions, Resources};

use crate::{import, now};

/// A version of a resource in the system from which files come: its id and its time.
type SourceVersion = (u8, i64);

/// The forms in which a file has versions.
#[derive(Debug, Clone, Copy)]
enum FileForm {
    Lines,
    Resource,
    Collection,
    Transaction,
    /// A transaction with an entry whose effect depends on a search.
    Conditional,
}

fn instant(time: i64) -> String {
    // Another offset and other digits are the same time.
    match time % 2 {
        0 => format!("2026-01-01T00:00:0{time}Z"),
        _ => format!("2026-01-01T01:00:0{time}.000000+01:00"),
    }
}

/// Each third version is a deletion, and the contents of the others repeat.
fn is_deletion((_, time): SourceVersion) -> bool {
    time % 3 == 0
}

fn content((_, time): SourceVersion) -> String {
    format!("c{}", time % 2)
}

fn resource(version: SourceVersion) -> Value {
    json!({
        "resourceType": "Basic", "id": format!("b{}", version.0), "meta": { "lastUpdated": instant(version.1) },
        "code": { "text": content(version) },
    })
}

fn write_files(folder: &Path, form: FileForm, versions: &[SourceVersion]) -> Vec<PathBuf> {
    let (deleted, stored): (Vec<SourceVersion>, Vec<SourceVersion>) =
        versions.iter().partition(|version| is_deletion(**version));
    fs::create_dir_all(folder).unwrap();
    let mut files = Vec::new();
    let mut write = |name: String, text: String| {
        fs::write(folder.join(&name), text).unwrap();
        files.push(folder.join(name));
    };
    let put = |version: SourceVersion| {
        let url = format!("Basic/b{}", version.0);
        json!({ "resource": resource(version), "request": { "method": "PUT", "url": url } })
    };
    let bundle =
        |kind: &str, entry: Vec<Value>| json!({ "resourceType": "Bundle", "type": kind, "entry": entry });
    // A transaction has each resource once.
    let transactions = |extra: &[Value]| -> Vec<String> {
        let entries = stored.iter().map(|version| [&[put(*version)], extra].concat());
        entries.map(|entry| bundle("transaction", entry).to_string()).collect()
    };
    match form {
        FileForm::Lines => {
            let lines = stored.iter().map(|version| resource(*version).to_string() + "\n");
            write("a.ndjson".to_owned(), lines.collect());
        }
        FileForm::Resource => {
            for (index, version) in stored.iter().enumerate() {
                write(format!("a{index}.json"), resource(*version).to_string());
            }
        }
        FileForm::Collection => {
            let entries = stored.iter().map(|version| json!({ "resource": resource(*version) }));
            write("a.json".to_owned(), bundle("collection", entries.collect()).to_string());
        }
        FileForm::Transaction => {
            for (index, text) in transactions(&[]).into_iter().enumerate() {
                write(format!("a{index}.json"), text);
            }
        }
        FileForm::Conditional => {
            let other = json!({
                "resource": { "resourceType": "Basic", "id": "other", "identifier": [{ "value": "o" }] },
                "request": { "method": "POST", "url": "Basic", "ifNoneExist": "identifier=o" },
            });
            for (index, text) in transactions(&[other]).into_iter().enumerate() {
                write(format!("a{index}.json"), text);
            }
        }
    }
    for (index, (id, time)) in deleted.into_iter().enumerate() {
        let entry = json!({ "request": { "method": "DELETE", "url": format!("Basic/b{id}") } });
        let mut deletion = bundle("transaction", vec![entry]);
        if let FileForm::Lines = form {
            // The deletions of an export have the time of its manifest.
            let folder = folder.join(format!("export-{index}"));
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("deleted.ndjson"), deletion.to_string()).unwrap();
            let manifest = json!({
                "transactionTime": instant(time), "output": [], "deleted": [{ "url": "deleted.ndjson" }],
            });
            fs::write(folder.join("manifest.json"), manifest.to_string()).unwrap();
            files.push(folder);
        } else {
            deletion["meta"] = json!({ "lastUpdated": instant(time) });
            fs::write(folder.join(format!("z{index}.json")), deletion.to_string()).unwrap();
            files.push(folder.join(format!("z{index}.json")));
        }
    }
    files
}

/// The time and content of each resource after these versions were imported in this order.
/// Nothing is remembered of the deletion of a resource that was not stored.
fn expected(versions: &[SourceVersion]) -> BTreeMap<u8, (i64, Option<String>)> {
    let mut newest: BTreeMap<u8, (i64, Option<String>)> = BTreeMap::new();
    for version in versions {
        let text = (!is_deletion(*version)).then(|| content(*version));
        match newest.get_mut(&version.0) {
            Some(newest) if version.1 >= newest.0 => *newest = (version.1, text),
            None if text.is_some() => drop(newest.insert(version.0, (version.1, text))),
            _ => {}
        }
    }
    newest
}

async fn check_stored(resources: &Resources, expected: &BTreeMap<u8, (i64, Option<String>)>) {
    for (id, (time, text)) in expected {
        let key = ResourceKey::new("Basic", format!("b{id}"));
        let version = resources.store().read(&key, Seq::LATEST).await.unwrap().unwrap();
        let body = version.body.map(|body| serde_json::from_slice::<Value>(&body).unwrap());
        let text_in_store = body.as_ref().map(|body| body["code"]["text"].as_str().unwrap());
        assert_eq!(text_in_store, text.as_deref(), "{key} at {time}");
        assert_eq!(version.source_time, Some(instant(*time).parse::<Timestamp>().unwrap()), "{key}");
        // The time is not served.
        let served = body.as_ref().and_then(|body| body["meta"]["lastUpdated"].as_str());
        assert!(served.is_none_or(|served| !served.starts_with("2026")), "{served:?}");
    }
}

async fn import_all(steps: &[(FileForm, Vec<SourceVersion>)], store: Store) -> Resources {
    let resources = Resources::new(store);
    let dir = TempDir::new().unwrap();
    for (index, (form, versions)) in steps.iter().enumerate() {
        let files = write_files(&dir.path().join(index.to_string()), *form, versions);
        let (report, _) = import(&resources, files, ImportOptions::default()).await;
        assert_eq!(report.bad, [], "{form:?} {versions:?}");
    }
    resources
}

fn steps() -> impl Strategy<Value = Vec<(FileForm, Vec<SourceVersion>)>> {
    let form = prop_oneof![
        Just(FileForm::Lines),
        Just(FileForm::Resource),
        Just(FileForm::Collection),
        Just(FileForm::Transaction),
        Just(FileForm::Conditional),
    ];
    let versions = proptest::collection::vec((0..2u8, 1..9i64), 0..4);
    proptest::collection::vec((form, versions), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn the_newest_version_of_all_files_is_stored(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let resources = runtime.block_on(import_all(&steps, Store::memory()));
        // The deletions of a step are imported after its other versions.
        let in_order = steps.iter().flat_map(|(_, versions)| {
            let (deleted, stored): (Vec<_>, Vec<_>) = versions.iter().partition(|version| is_deletion(**version));
            stored.into_iter().chain(deleted).collect::<Vec<SourceVersion>>()
        });
        let in_order: Vec<SourceVersion> = in_order.collect();
        runtime.block_on(check_stored(&resources, &expected(&in_order)));
    }
}

#[tokio::test]
async fn the_report_counts_older_versions_and_overwrite_takes_them() {
    let dir = TempDir::new().unwrap();
    let resources = Resources::new(Store::memory());
    let folder = |name: &str| dir.path().join(name);
    let monday = write_files(&folder("monday"), FileForm::Lines, &[(0, 1), (1, 1)]);
    let tuesday = write_files(&folder("tuesday"), FileForm::Lines, &[(0, 2), (0, 1), (1, 1)]);
    let overwrite = ImportOptions { overwrite: true, ..ImportOptions::default() };
    let count = ImportCount::default();
    for (files, options, counts) in [
        (&monday, ImportOptions::default(), ImportCount { created: 2, ..count }),
        (&tuesday, ImportOptions::default(), ImportCount { replaced: 1, outdated: 1, same: 1, ..count }),
        (&monday, ImportOptions::default(), ImportCount { outdated: 1, same: 1, ..count }),
        (&monday, overwrite, ImportCount { replaced: 1, same: 1, ..count }),
        (&tuesday, ImportOptions::default(), ImportCount { replaced: 1, outdated: 1, same: 1, ..count }),
    ] {
        let (report, _) = import(&resources, files.clone(), options).await;
        assert_eq!(report.resources["Basic"], counts);
    }
    check_stored(&resources, &expected(&[(0, 2), (1, 1)])).await;
}

#[tokio::test]
async fn a_version_without_a_source_time_is_replaced() {
    let dir = TempDir::new().unwrap();
    let resources = Resources::new(Store::memory());
    let files = write_files(&dir.path().join("a"), FileForm::Lines, &[(0, 2)]);
    import(&resources, files.clone(), ImportOptions::default()).await;
    let mut edited = resource((0, 8));
    edited["code"]["text"] = json!("written by a client");
    let body = edited.to_string();
    resources.update("Basic", "b0", body, ExpectedVersion::Anything, now()).await.unwrap();
    let (report, _) = import(&resources, files, ImportOptions::default()).await;
    assert_eq!(report.resources["Basic"], ImportCount { replaced: 1, ..ImportCount::default() });
    // A resource without an id or a time is stored as before.
    let path = dir.path().join("untimed.ndjson");
    fs::write(&path, "{\"resourceType\":\"Basic\",\"id\":\"b0\"}\n{\"resourceType\":\"Basic\"}\n").unwrap();
    let (report, _) = import(&resources, vec![path], ImportOptions::default()).await;
    assert_eq!(report.resources["Basic"], ImportCount { replaced: 1, created: 1, ..ImportCount::default() });
}
