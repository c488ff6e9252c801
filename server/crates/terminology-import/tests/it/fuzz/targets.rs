//! Fuzz targets of this crate; the tests and cargo-fuzz share them. A target must not panic, run for a second
//! or take a GiB of memory for any input.

use crate::support::run;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use fhir::Parameters;
use terminology::{OperationInput, OperationLevel, Terminology, TerminologyChange, TerminologyOperation};
use trefoil_terminology_import::{import_files, import_release};

/// Returns the folder of the valid inputs of a target.
pub fn seed_folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR").trim_end_matches("/fuzz")).join("fuzz/seeds").join(target)
}

/// Imports a small RF2 release in which the text replaces one file: the file with the same first line, if
/// there is any.
pub fn rf2(text: &[u8]) {
    static FILES: LazyLock<Vec<(String, Vec<u8>)>> = LazyLock::new(|| {
        let folder = fs::read_dir(seed_folder("rf2")).expect("the folder of seeds is part of the repository");
        let mut paths: Vec<PathBuf> =
            folder.map(|entry| entry.expect("the folder of seeds can be read").path()).collect();
        paths.sort();
        let name = |path: &Path| {
            path.file_name().expect("the path of a seed has a file name").to_string_lossy().into_owned()
        };
        paths.iter().map(|path| (name(path), fs::read(path).expect("the seed can be read"))).collect()
    });
    let first_line = |text: &[u8]| text.split_inclusive(|byte| *byte == b'\n').next().map(<[u8]>::to_vec);
    let mut release = FILES.clone();
    let line = first_line(text);
    let alike: Vec<usize> = (0..release.len()).filter(|at| first_line(&release[*at].1) == line).collect();
    let all = (0..release.len()).collect();
    let among = if alike.is_empty() { all } else { alike };
    release[among[text.len() % among.len()]].1 = text.to_vec();
    drop(import_files(release));
}

/// Imports a code system as CSV.
pub fn csv(text: &[u8]) {
    drop(import_files(vec![("plants.csv".to_owned(), text.to_vec())]));
}

/// Evaluates a text as an expression constraint and as the regular expression of a filter. The target is here
/// because it needs an imported release.
pub fn constraints(text: &[u8]) {
    static SNOMED_CT: LazyLock<Terminology> = LazyLock::new(|| {
        let files = "../../../fixtures/releases/SnomedCT_GardenInternationalRF2_20250101T120000Z";
        let release = seed_folder("").join("../..").join(files);
        let terminology = Terminology::default();
        let index = import_release(&release, &mut |_| {}).expect("the fixture is valid").index;
        terminology.apply([TerminologyChange::Index { id: "garden".to_owned(), index }]);
        terminology
    });
    let text = String::from_utf8_lossy(text);
    for (property, op) in [("constraint", "="), ("code", "regex")] {
        let set = serde_json::json!({ "resourceType": "Parameters", "parameter": [
            { "name": "valueSet", "resource": { "resourceType": "ValueSet", "url": "urn:x", "compose": {
                "include": [{ "system": "http://snomed.info/sct",
                    "filter": [{ "property": property, "op": op, "value": text }] }] } } },
            { "name": "coding", "valueCoding": { "system": "http://snomed.info/sct", "code": "700112006" } } ] });
        let parameters =
            Parameters::from_json(set.to_string().as_bytes()).expect("the target builds valid Parameters");
        drop(run(
            &SNOMED_CT,
            TerminologyOperation::ValidateCode,
            OperationLevel::Type,
            OperationInput::from_body(&parameters),
        ));
    }
}
