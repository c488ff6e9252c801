//! The generated data of the benchmark, and the names of what is in them.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use trefoil_fixtures::polyhierarchy::Polyhierarchy;
use trefoil_fixtures::rf2_release;

pub(super) const SNOMED_CT: &str = "http://snomed.info/sct";
pub(super) const LOINC: &str = "http://loinc.org";
pub(super) const RXNORM: &str = "http://www.nlm.nih.gov/research/umls/rxnorm";
pub(super) const MAP: &str = "http://tx20.example/map";
pub(super) const LOINC_CODES: u32 = 100_000;
pub(super) const RXNORM_CODES: u32 = 120_000;
pub(super) const VALUE_SETS: u32 = 600;
/// Number of values of the property CLASS of LOINC.
pub(super) const CLASSES: u32 = 200;
/// Each of this number of consecutive drugs has the first of them as its ingredient.
pub(super) const DRUGS: u32 = 40;

pub(super) fn value_set_url(number: u32) -> String {
    format!("http://tx20.example/ValueSet/{number}")
}

pub(super) fn loinc_code(number: u32) -> String {
    format!("{}-{}", number + 1_000, number % 10)
}

pub(super) fn loinc_display(number: u32) -> String {
    format!(
        "{} [{}] in {}",
        rf2_release::term(number),
        rf2_release::word(number % 300),
        rf2_release::word(number % 50)
    )
}

pub(super) fn rxnorm_code(number: u32) -> String {
    (number * 17 + 100_003).to_string()
}

/// Generates the data, and imports them into a data folder.
pub(super) fn import(hierarchy: &Polyhierarchy, data: &Path) {
    let folder = tempfile::tempdir().expect("a temporary folder can be created");
    rf2_release::write(hierarchy, &folder.path().join("rf2")).expect("the release can be written");
    let resources = folder.path().join("resources");
    std::fs::create_dir(&resources).expect("the new folder can be created");
    let columns = "CLASS,STATUS,SCALE_TYP,COMPONENT,SYSTEM";
    let (loinc, rxnorm) = (folder.path().join("tests.csv"), folder.path().join("drugs.csv"));
    write_csv(&loinc, LOINC, columns, (0..LOINC_CODES).map(loinc_row));
    write_csv(&rxnorm, RXNORM, "TTY,tradename_of", (0..RXNORM_CODES).map(rxnorm_row));
    std::fs::write(resources.join("map.json"), concept_map().to_string()).expect("the file can be written");
    let sets = File::create(resources.join("sets.ndjson")).expect("the file can be created");
    let mut sets = BufWriter::new(sets);
    for number in 0..VALUE_SETS {
        writeln!(sets, "{}", value_set(number)).expect("the file can be written");
    }
    sets.flush().expect("the file can be written");
    let root = std::fs::read_dir(folder.path().join("rf2")).expect("the release is there").next();
    let release = root.expect("the release is there").expect("the release can be read").path();
    for source in [release, loinc, rxnorm, resources] {
        let mut import = Command::new(env!("CARGO_BIN_EXE_trefoil"));
        let imported = import.args(["import", "--data"]).arg(data).arg(source).stdout(Stdio::null()).status();
        assert!(imported.expect("the import can be started").success(), "the import failed");
    }
}

/// Writes a code system as CSV, which is imported as a release: its resource has no concepts.
fn write_csv(path: &Path, url: &str, columns: &str, rows: impl Iterator<Item = String>) {
    let mut file = BufWriter::new(File::create(path).expect("the file can be created"));
    let head = format!("# url: {url}\n# version: 2026\n# name: TX20\ncode,display,{columns}");
    for line in std::iter::once(head).chain(rows) {
        writeln!(file, "{line}").expect("the file can be written");
    }
    file.flush().expect("the file can be written");
}

fn loinc_row(number: u32) -> String {
    let state = if number.is_multiple_of(9) { "DEPRECATED" } else { "ACTIVE" };
    let scale = ["Qn", "Ord", "Nom", "Nar"][number as usize % 4];
    let (code, display, class) = (loinc_code(number), loinc_display(number), number % CLASSES);
    let (component, system) = (rf2_release::term(number), rf2_release::word(number % 50));
    format!("{code},{display},CLASS-{class},{state},{scale},{component},{system}")
}

fn rxnorm_row(number: u32) -> String {
    let kind = ["SCD", "SBD", "IN", "BN"][number as usize % 4];
    let (code, ingredient) = (rxnorm_code(number), rxnorm_code(number / DRUGS * DRUGS));
    let (term, strength) = (rf2_release::term(number), number % 500 + 1);
    format!("{code},{term} {strength} MG Oral Tablet,{kind},{ingredient}")
}

fn value_set(number: u32) -> Value {
    let concept = |at: u32| json!({ "code": rxnorm_code((number * 200 + at * 7) % RXNORM_CODES) });
    let concepts: Vec<_> = (0..100).map(concept).collect();
    json!({ "resourceType": "ValueSet", "id": format!("tx20-{number}"), "url": value_set_url(number),
        "version": "1", "status": "active", "compose": { "include": [{ "system": RXNORM, "concept": concepts }] } })
}

fn concept_map() -> Value {
    let element = |number: u32| json!({ "code": rxnorm_code(number), "target": [{ "code": loinc_code(number / 2), "equivalence": "equivalent" }] });
    let elements: Vec<_> = (0..20_000).map(element).collect();
    json!({ "resourceType": "ConceptMap", "id": "tx20-map", "url": MAP, "status": "active",
        "group": [{ "source": RXNORM, "target": LOINC, "element": elements }] })
}
