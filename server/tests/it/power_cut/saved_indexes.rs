//! Power cuts while indexes of code systems are saved: in every state in which a power cut may leave the data
//! folder, each acknowledged release is loaded, a hash never belongs to another release, and an index of a
//! resource is complete or missing, so that it is built again.
//!
//! The recorded process is this test binary, which runs [`indexes_are_recorded`].

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;
use store::Seq;
use terminology::{CodeSystemIndex, TerminologyChange};
use trefoil_power_cut::{Exploration, NameRule, Recording, explore, mark, recorded_folder};
use trefoil_server::node::data_folder::make_data_folder;
use trefoil_server::node::saved_indexes::SavedIndexes;

const TEST: &str = "power_cut::saved_indexes::indexes_are_recorded";
/// Number of states that the ordinary tests check, and for each planted fault.
const STATES: usize = 2_000;
const STATES_WITH_FAULT: usize = 1_000;

/// The releases in the order in which they are saved: system, and number of concepts, which is also the hash.
/// A release replaces the one before it of the same system.
const RELEASES: [(&str, usize); 5] = [("a", 40), ("b", 700), ("a", 900), ("b", 50), ("a", 20)];
/// The versions of the resource whose indexes are saved after the releases.
const VERSIONS: [(u64, usize); 2] = [(5, 300), (9, 500)];
const RESOURCE: &str = "large";

fn index(system: &str, concepts: usize) -> CodeSystemIndex {
    let concept =
        |number: usize| json!({ "code": format!("c{number}"), "display": format!("concept {number}") });
    let concepts: Vec<_> = (0..concepts).map(concept).collect();
    let resource = json!({
        "resourceType": "CodeSystem", "url": format!("http://example.org/{system}"), "version": "1",
        "status": "active", "content": "complete", "concept": concepts,
    });
    CodeSystemIndex::from_resource(resource.to_string().as_bytes()).unwrap()
}

/// If this process is recorded: saves all indexes and marks each of them. Otherwise: does so without a
/// recording.
#[test]
fn indexes_are_recorded() {
    let Some(root) = recorded_folder() else {
        let dir = tempfile::TempDir::new().unwrap();
        let mut saved = Vec::new();
        save_all(dir.path(), |number| saved.push(number.to_string()));
        let marks: Vec<&str> = saved.iter().map(String::as_str).collect();
        return check(dir.path(), &marks).unwrap();
    };
    save_all(&root, |number| mark(&number.to_string()));
}

fn save_all(root: &Path, mut acknowledged: impl FnMut(usize)) {
    let data = root.join("data");
    make_data_folder(&data).unwrap();
    let indexes = SavedIndexes::open(&data).unwrap();
    for (number, (system, concepts)) in RELEASES.into_iter().enumerate() {
        indexes.save_release(&index(system, concepts), &concepts.to_string()).unwrap();
        acknowledged(number + 1);
    }
    for (number, (seq, concepts)) in VERSIONS.into_iter().enumerate() {
        indexes.save_resource(RESOURCE, Seq(seq), &index("resource", concepts)).unwrap();
        acknowledged(RELEASES.len() + number + 1);
    }
}

/// Opens the saved indexes in a data folder after a power cut. The last mark is the number of acknowledged
/// indexes; the next one may be there.
fn check(root: &Path, marks: &[&str]) -> Result<(), String> {
    let acknowledged = marks.last().map_or(0, |mark| mark.parse::<usize>().unwrap());
    let data = root.join("data");
    make_data_folder(&data).unwrap();
    let indexes = SavedIndexes::open(&data).map_err(|error| error.to_string())?;
    indexes.remove_partial().map_err(|error| error.to_string())?;

    let mut releases = BTreeMap::new();
    for change in indexes.releases().map_err(|error| error.to_string())? {
        let TerminologyChange::Index { index, .. } = change else { panic!("a release is an index") };
        releases.insert(index.url().to_owned(), index.concepts());
    }
    for system in ["a", "b"] {
        let of = |until: usize| {
            let saved = RELEASES[..until.min(RELEASES.len())].iter().rfind(|(name, _)| *name == system);
            saved.map(|(_, concepts)| *concepts)
        };
        let there = releases.get(&format!("http://example.org/{system}")).copied();
        if there != of(acknowledged) && there != of(acknowledged + 1) {
            return Err(format!(
                "{acknowledged} indexes were acknowledged; release {system} has {there:?} concepts"
            ));
        }
        // An import of the same source is skipped only if this source is loaded.
        for (_, concepts) in RELEASES.iter().filter(|(name, _)| *name == system) {
            let release = indexes.release_of(&concepts.to_string()).map_err(|error| error.to_string())?;
            if release.as_ref().is_some_and(|(_, index)| index.concepts() != *concepts) {
                return Err(format!("release {system} has the hash of another source"));
            }
            if release.is_none()
                && of(acknowledged) == Some(*concepts)
                && of(acknowledged + 1) == of(acknowledged)
            {
                return Err(format!("release {system} has lost its hash"));
            }
        }
    }
    for (seq, concepts) in VERSIONS {
        let saved = indexes.of_resource(RESOURCE, Seq(seq));
        if saved.is_some_and(|index| index.concepts() != concepts) {
            return Err(format!("the index of version {seq} is that of another version"));
        }
    }
    if acknowledged == RELEASES.len() + VERSIONS.len() && indexes.of_resource(RESOURCE, Seq(9)).is_none() {
        return Err("the index of the resource is lost".to_owned());
    }
    Ok(())
}

/// Selects fsyncs by the path that is synced.
type PathFilter = fn(&str) -> bool;

#[test]
fn acknowledged_releases_survive_a_power_cut() {
    let Some(recording) = Recording::of_test(TEST, 1).unwrap() else { return };
    let report = explore(&recording, Exploration::of(NameRule::Strict, STATES), check);
    report.expect_no_failure(&recording, "power_cut::saved_indexes::acknowledged");

    let kinds: [(&str, PathFilter); 3] = [
        ("indexes", |path| path.ends_with(".part")),
        ("the names of releases", |path| path.ends_with("/releases")),
        ("the names of folders", |path| path.is_empty() || path == "data" || path == "data/terminology"),
    ];
    for (what, is_dropped) in kinds {
        let (faulty, dropped) = recording.without_syncs(is_dropped);
        let report = explore(&faulty, Exploration::of_fault(NameRule::Strict, STATES_WITH_FAULT), check);
        println!("without {dropped} fsyncs of {what}: {} failures", report.failures.len());
        assert!(!report.failures.is_empty(), "the check passes without the fsyncs of {what}");
    }
}
