//! Tests with the terminology package of FHIR R4. It is read from the folder `data` in the folder of
//! TREFOIL_SHARED, or in `shared` next to the workspace. Without the package, the tests print that they are
//! left out, and end.

use std::io::Read;
use std::path::PathBuf;
use std::time::Instant;

use trefoil_terminology::{
    OperationInput, OperationLevel, Terminology, TerminologyChange, TerminologyOperation,
};

use crate::support::{run, subsumes, validate};

/// Returns the path of a file or folder of the data, which may not exist.
fn data(name: &str) -> PathBuf {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../../shared");
    std::env::var_os("TREFOIL_SHARED").map_or_else(beside, PathBuf::from).join("data").join(name)
}

/// Returns every CodeSystem and ValueSet of the package.
fn package() -> Option<Vec<TerminologyChange>> {
    let path = data("hl7.fhir.r4.terminology-4.0.1.tgz");
    let Ok(file) = std::fs::File::open(&path) else {
        println!("left out: {} does not exist", path.display());
        return None;
    };
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(file));
    let mut changes = Vec::new();
    for entry in archive.entries().expect("the package is a tar archive") {
        let mut entry = entry.expect("the archive is complete");
        let path = entry.path().expect("the entry has a valid path");
        let Some(name) = path.file_name().map(|name| name.to_string_lossy().into_owned()) else { continue };
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).expect("the archive is complete");
        let parts = name.strip_suffix(".json").and_then(|name| name.split_once('-'));
        if let Some((kind, id)) = parts
            && let Some(kind @ ("CodeSystem" | "ValueSet")) = fhir::resource_type(kind)
        {
            changes.push(TerminologyChange::Put { kind, id: id.to_owned(), bytes: bytes.into() });
        }
    }
    Some(changes)
}

#[test]
fn the_package_of_r4_loads_and_answers() {
    let Some(changes) = package() else { return };
    let value_sets: Vec<(String, Vec<u8>)> = changes
        .iter()
        .filter_map(|change| match change {
            TerminologyChange::Put { kind: "ValueSet", id, bytes } => Some((id.clone(), bytes.to_vec())),
            _ => None,
        })
        .collect();
    let terminology = Terminology::default();
    let start = Instant::now();
    terminology.apply(changes);
    println!(
        "{} resources applied: {:?}",
        value_sets.len() + terminology.code_system_count(),
        start.elapsed()
    );
    assert_eq!((terminology.code_system_count(), terminology.value_set_count()), (1063, 1317));

    let status =
        "url=http://hl7.org/fhir/ValueSet/observation-status&system=http://hl7.org/fhir/observation-status";
    assert_eq!(validate(&terminology, OperationLevel::Type, &format!("{status}&code=final")), "true [Final]");
    assert!(
        validate(&terminology, OperationLevel::Type, &format!("{status}&code=finalized"))
            .starts_with("false")
    );
    let encounter = "url=http://terminology.hl7.org/ValueSet/v3-ActEncounterCode&system=http://terminology.hl7.org/CodeSystem/v3-ActCode&code=AMB";
    assert!(validate(&terminology, OperationLevel::Type, encounter).starts_with("true [ambulatory]"));
    for (a, b, expected) in [
        ("SIB", "ITWINBRO", "subsumes"),
        ("WIFE", "SIGOTHR", "subsumed-by"),
        ("INLAW", "INLAW", "equivalent"),
        ("BRO", "VET", "not-subsumed"),
    ] {
        let query = format!("codeA={a}&codeB={b}");
        assert_eq!(subsumes(&terminology, OperationLevel::Instance("v3-RoleCode"), &query), expected);
        let query = format!("{query}&system=http://terminology.hl7.org/CodeSystem/v3-RoleCode");
        assert_eq!(subsumes(&terminology, OperationLevel::Type, &query), expected);
    }

    // Validates three codes against each value set: one that it lists, one of another system and one without
    // a system.
    let (start, mut answers) = (Instant::now(), std::collections::BTreeMap::<String, usize>::new());
    for (id, bytes) in &value_sets {
        let set: serde_json::Value = serde_json::from_slice(bytes).unwrap();
        let include = &set["compose"]["include"][0];
        let system = include["system"].as_str().unwrap_or("http://hl7.org/fhir/observation-status");
        let first_code = include["concept"][0]["code"].as_str();
        for code in first_code.into_iter().chain(["final", "_", "A"]) {
            let response =
                validate(&terminology, OperationLevel::Instance(id), &format!("system={system}&code={code}"));
            let kind = response.split([' ', ':']).next().unwrap_or_default();
            *answers.entry(kind.to_owned()).or_default() += 1;
            assert!(Some(code) != first_code || kind == "true", "{id} lists {code}: {response}");
            assert!(
                !response.starts_with("Missing") && !response.starts_with("Malformed"),
                "{id}: {response}"
            );
        }
    }
    println!("{} value sets tested: {:?}, answers {answers:?}", value_sets.len(), start.elapsed());
    for problem in terminology.problems() {
        println!("{problem:?}");
    }
}

/// Number of codings from records that are validated.
const CODINGS: usize = 10_000;

/// Returns all codings in a folder of NDJSON files, at any depth.
fn codings(folder: &std::path::Path) -> Option<Vec<fhir::Coding>> {
    fn walk(value: &serde_json::Value, out: &mut Vec<fhir::Coding>) {
        match value {
            serde_json::Value::Array(items) => items.iter().for_each(|item| walk(item, out)),
            serde_json::Value::Object(members) => {
                if members.contains_key("system") && members.contains_key("code") {
                    out.extend(serde_json::from_value(value.clone()));
                }
                members.values().for_each(|member| walk(member, out));
            }
            _ => {}
        }
    }
    let Ok(files) = std::fs::read_dir(folder) else {
        println!("left out: {} does not exist", folder.display());
        return None;
    };
    let mut paths: Vec<_> = files.map(|file| file.expect("the folder can be read").path()).collect();
    paths.sort();
    let mut out = Vec::new();
    for path in paths {
        let mut text = String::new();
        let file = std::fs::File::open(path).expect("the listed file can be opened");
        flate2::read::MultiGzDecoder::new(file)
            .read_to_string(&mut text)
            .expect("the file is gzip-compressed UTF-8");
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            walk(&serde_json::from_str(line).expect("each line is JSON"), &mut out);
        }
    }
    Some(out)
}

/// Validates codings of real records, each against a value set with its code system, or against an arbitrary
/// value set if there is none. Each answer is a result, or an error of the value set.
#[test]
fn ten_thousand_codings_of_records_are_validated() {
    let (Some(changes), Some(codings)) = (package(), codings(&data("synthea-10"))) else { return };
    let mut sets: std::collections::HashMap<String, Vec<String>> = std::collections::HashMap::new();
    let mut all = Vec::new();
    for change in &changes {
        if let TerminologyChange::Put { kind: "ValueSet", bytes, .. } = change {
            let set: serde_json::Value = serde_json::from_slice(bytes).unwrap();
            let url = set["url"].as_str().unwrap().to_owned();
            for include in set["compose"]["include"].as_array().into_iter().flatten() {
                if let Some(system) = include["system"].as_str() {
                    sets.entry(system.to_owned()).or_default().push(url.clone());
                }
            }
            all.push(url);
        }
    }
    let terminology = Terminology::default();
    terminology.apply(changes);
    let (start, mut answers) = (Instant::now(), std::collections::BTreeMap::<&str, usize>::new());
    assert!(!codings.is_empty());
    for (at, coding) in codings.iter().cycle().take(CODINGS).enumerate() {
        let fitting = coding.system.as_ref().and_then(|system| sets.get(system)).unwrap_or(&all);
        let mut body = fhir::Parameters::new();
        body.push_uri("url", &fitting[at % fitting.len()]);
        body.push("coding", fhir::Value::Coding(coding.clone()));
        let kind = match run(
            &terminology,
            TerminologyOperation::ValidateCode,
            OperationLevel::Type,
            OperationInput::from_body(&body),
        ) {
            Ok(response) if response.get("result").unwrap().value == Some(fhir::Value::Boolean(true)) => {
                "true"
            }
            Ok(_) => "false",
            Err(error) => {
                let text = error.to_string();
                assert!(!text.contains("cannot be used: "), "a resource of the package is broken: {text}");
                "refused"
            }
        };
        *answers.entry(kind).or_default() += 1;
    }
    println!("{CODINGS} of {} codings validated: {:?}, answers {answers:?}", codings.len(), start.elapsed());
    assert!(answers["true"] > CODINGS / 20, "{answers:?}");
}
