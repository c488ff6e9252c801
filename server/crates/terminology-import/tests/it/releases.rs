//! Imports of releases in the file layouts of their publishers, and ECL on them. The releases are small and
//! made for these tests; they are in `fixtures/releases`. `conformance/specs/releases.toml` contains requests
//! to the imported code systems.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use fhir::Parameters;
use terminology::{OperationInput, OperationLevel, Terminology, TerminologyChange, TerminologyOperation};
use trefoil_terminology_import::{
    StatedRelease, group_releases_as, import_files, import_release, is_release,
};

use crate::support::{import_all, release_path, run, run_expand, short, validate_code};

const SCT: &str = "http://snomed.info/sct";

/// Checks which concepts of the garden satisfy a constraint, by the last digits of their codes.
#[track_caller]
fn check(terminology: &Terminology, constraint: &str, expected: &str) {
    let plants = ["110003", "111004", "112006", "113001", "114007", "101006", "106001", "104003", "010003"];
    let set = format!("{SCT}?fhir_vs=ecl/{constraint}");
    let is_in = |code: &&str| match validate_code(terminology, &set, SCT, &format!("700{code}"), "") {
        answer if answer.starts_with("true") => true,
        answer if answer.starts_with("false") => false,
        other => panic!("{constraint}: {other}"),
    };
    let codes_in: Vec<_> = plants.into_iter().filter(is_in).map(|code| &code[..3]).collect();
    assert_eq!(codes_in.join(" "), expected, "{constraint}");
    // `$expand` computes sets for the parts of the constraint, and must return the same concepts.
    let body = serde_json::json!({ "resourceType": "Parameters", "parameter": [{ "name": "url", "valueUri": set }] });
    let body = Parameters::from_json(body.to_string().as_bytes()).unwrap();
    let expanded = run_expand(terminology, OperationLevel::Type, OperationInput::from_body(&body)).unwrap();
    let codes = expanded.to_string();
    let is_in_system = |code: &&str| codes.contains(&format!("\"700{code}\""));
    let names: Vec<_> = plants.into_iter().filter(is_in_system).map(|code| &code[..3]).collect();
    assert_eq!(names.join(" "), expected, "$expand of {constraint}");
}

#[test]
fn constraints_select_their_concepts() {
    let garden = import_all(&["SnomedCT_GardenInternationalRF2_20250101T120000Z"]);
    for (constraint, expected) in [
        ("*", "110 111 112 113 114 101 106 104 010"),
        ("700112006", "112"),
        ("700112006 |Water lily (garden)|", "112"),
        ("< 700110003", "112 113"),
        ("<< 700110003 /* flowers */", "110 112 113"),
        ("<! 700101006", "110 111 114"),
        ("<<! 700101006", "110 111 114 101"),
        ("> 700112006", "110 111 101"),
        (">> 700112006", "110 111 112 101"),
        (">! 700112006", "110 111"),
        (">>! 700112006", "110 111 112"),
        ("^ 700010003", "112 114"),
        ("^ 700011004", ""),
        ("^ *", "112 113 114"),
        ("<< 700110003 AND << 700111004", "112"),
        ("<< 700110003, << 700111004", "112"),
        ("<< 700110003 OR << 700111004", "110 111 112 113"),
        ("<< 700101006 MINUS << 700110003", "111 114 101"),
        ("(< 700110003) MINUS (^ 700010003)", "113"),
        ("< (700110003 OR 700111004)", "112 113"),
        ("<! (^ 700010003 OR 700101006)", "110 111 114"),
        (">! (^ 700010003)", "110 111 101"),
        ("> (^ 700010003)", "110 111 101"),
        ("<< 700101006 : 700002005 = 700104003", "111 112 113"),
        ("<< 700101006 : 700002005 |Growing place| = << 700102004", "111 112 113"),
        ("* : << 700001001 = 700106001", "112 113"),
        ("* : * = 700106001", "112 113"),
        ("<< 700101006 : 700002005 = 700104003, 700003000 = 700107005", "113"),
        ("<< 700101006 : { 700002005 = 700104003, 700003000 = 700107005 }", ""),
        ("<< 700101006 : { 700002005 = 700104003, 700003000 = 700106001 }", "112 113"),
        ("<< 700101006 : 700003000 = 700107005 OR 700002005 = 700104003", "111 112 113"),
        ("<< 700101006 : (700003000 = 700107005 OR 700004006 = #0.2)", "112 113"),
        ("<< 700110003 : 700002005 != 700104003", "113"),
        ("<< 700101006 : [0..0] 700002005 = *", "110 114 101"),
        ("<< 700101006 : [2..*] 700002005 = *", "113"),
        ("<< 700101006 : [2..*] { 700002005 = * }", "113"),
        ("<< 700101006 : [1..1] 700002005 = *", "111 112"),
        ("* : 700004006 >= #0.2", "112 113"),
        ("* : 700004006 > #0.2", "113"),
        ("* : 700004006 < #1", "112"),
        ("* : R 700002005 = 700111004", "104"),
        ("700113001 . 700003000", "106"),
        ("(< 700110003) . 700002005", "104"),
    ] {
        check(&garden, constraint, expected);
        // Percent-encodes the constraint, as in a FHIR URL.
        let encoded: String = constraint.bytes().map(|byte| format!("%{byte:02X}")).collect();
        check(&garden, &encoded, expected);
    }
}

#[test]
fn a_row_of_another_width_is_reported_with_its_line() {
    let text = "# url: urn:x\ncode,display,parent\na,A,\nb,B,a\n\"c,C,\n";
    let error = import_files(vec![("herbs.csv".to_owned(), text.as_bytes().to_vec())]).unwrap_err();
    let expected = "herbs.csv:5: the quote that begins in this line is not closed; close it, or write two quotes for one in the text";
    assert_eq!(error.to_string(), expected);
    let text = text.replace('"', "");
    let text = text.replace("b,B,a", "b,B");
    let error = import_files(vec![("herbs.csv".to_owned(), text.into_bytes())]).unwrap_err();
    assert_eq!(error.to_string(), "herbs.csv:4: the row has 2 fields, the heading 3; is a quote not closed?");
}

#[test]
fn a_csv_file_that_loses_data_is_rejected_with_its_line() {
    for (rows, expected) in [
        // The quote would take the rest of the file as one text.
        ("a,\"A\nb,B\nc,C\n", "herbs.csv:4: the quote that begins in this line is not closed"),
        // A quote in two rows, which close each other.
        ("a,\"A,\nb,\"B,\n", "herbs.csv:4: the quote that begins in this line is not closed"),
        ("a,A,x\n", "herbs.csv:4: the parent 'x' is not a code of the file"),
        ("a,A,b\nb,B,\nc,C,\"a|d\"\n", "herbs.csv:6: the parent 'd' is not a code of the file"),
        ("a,A,\na,B,\n", "herbs.csv:5: the code 'a' occurs twice"),
        ("a,A,\nA,B,\n", "herbs.csv:5: 'A' differs from another code by case only"),
    ] {
        let heading = if rows.contains("\"A\n") { "code,display" } else { "code,display,parent" };
        let text = format!("# url: urn:x\n# caseSensitive: false\n{heading}\n{rows}");
        let error = import_files(vec![("herbs.csv".to_owned(), text.into_bytes())]).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    // Two codes that differ by case are two concepts of a code system that distinguishes case.
    let text = "# url: urn:x\ncode,display\na,\"A, quoted\"\nA,\"B \"\"b\"\"\"\n";
    import_files(vec![("herbs.csv".to_owned(), text.as_bytes().to_vec())]).unwrap();
}

#[test]
fn a_csv_file_must_name_its_code_system() {
    let herbs = import_all(&["plants.csv"]);
    let (set, system) = ("http://garden.example/all-herbs", "http://garden.example/herbs");
    assert!(validate_code(&herbs, set, system, "thyme", "").starts_with("true [Thyme, common]"));
    assert!(
        validate_code(&herbs, set, system, "mint", "&display=Minze&displayLanguage=de")
            .starts_with("true [Minze]")
    );
    assert!(validate_code(&herbs, set, system, "herb", "&abstract=false").starts_with("false"));
    let query = Parameters::from_query(&format!("system={system}&codeA=mint&codeB=lemon-thyme"));
    assert_eq!(
        short(run(
            &herbs,
            TerminologyOperation::Subsumes,
            OperationLevel::Type,
            OperationInput::from_query(&query)
        )),
        "subsumes"
    );
}

/// Returns a zip archive of a folder.
pub fn zipped(folder: &Path) -> tempfile::NamedTempFile {
    fn add(root: &Path, at: &Path, zip: &mut zip::ZipWriter<&fs::File>) {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                add(root, &path, zip);
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap();
                zip.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
                zip.write_all(&fs::read(&path).unwrap()).unwrap();
            }
        }
    }
    let file = tempfile::NamedTempFile::with_suffix(".zip").unwrap();
    let mut zip = zip::ZipWriter::new(file.as_file());
    add(folder, folder, &mut zip);
    zip.finish().unwrap();
    file
}

#[test]
fn an_archive_has_the_same_index_as_a_folder() {
    let folder = release_path("SnomedCT_GardenEditionRF2_20250301T120000Z");
    let archive = zipped(&folder);
    assert!(is_release(archive.path()) && is_release(&folder));
    let [mut a, mut b] = [Vec::new(), Vec::new()];
    import_release(&folder, &mut |_| {}).unwrap().index.save(&mut a).unwrap();
    import_release(archive.path(), &mut |_| {}).unwrap().index.save(&mut b).unwrap();
    assert_eq!(a, b);
    assert!(!is_release(Path::new(env!("CARGO_MANIFEST_DIR"))));
    // A truncated archive is reported as an error, and is not treated as a file of another kind.
    let whole = fs::read(archive.path()).unwrap();
    let torn = tempfile::NamedTempFile::with_suffix(".zip").unwrap();
    fs::write(torn.path(), &whole[..whole.len() / 2]).unwrap();
    assert!(is_release(torn.path()));
    let error = import_release(torn.path(), &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("the zip archive cannot be read") && error.contains("copy it again"), "{error}");
}

/// Returns the error of a copy of the release with one changed file.
fn spoilt(file: &str, change: impl FnOnce(String) -> String) -> String {
    let copy = tempfile::tempdir().unwrap();
    let from = release_path("SnomedCT_GardenInternationalRF2_20250101T120000Z");
    for part in ["Snapshot/Terminology", "Snapshot/Refset/Language", "Snapshot/Refset/Content"] {
        fs::create_dir_all(copy.path().join(part)).unwrap();
        for entry in fs::read_dir(from.join(part)).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, copy.path().join(part).join(path.file_name().unwrap())).unwrap();
        }
    }
    let path = copy.path().join(file);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, change(text)).unwrap();
    import_release(copy.path(), &mut |_| {}).unwrap_err().to_string()
}

#[test]
fn errors_in_a_release_name_file_and_line() {
    let concepts = "Snapshot/Terminology/sct2_Concept_Snapshot_INT_20250101.txt";
    let relationships = "Snapshot/Terminology/sct2_Relationship_Snapshot_INT_20250101.txt";
    let error = spoilt(concepts, |text| text.replacen("\t1\t", "\t2\t", 1));
    assert_eq!(error, format!("{concepts}:2: active is '2', not 0 or 1"));
    let error = spoilt(concepts, |text| text + "138875005\t20250101\n");
    assert_eq!(
        error,
        format!(
            "{concepts}:26: the line has 2 fields instead of 5; the file is truncated or corrupt, copy it again"
        )
    );
    let error = spoilt(concepts, |text| text.clone() + text.lines().last().unwrap());
    assert_eq!(error, format!("{concepts}:26: concept 700012005 occurs twice"));
    let error = spoilt(relationships, |text| text.replacen("\t138875005\t0", "\t1388\t0", 1));
    assert_eq!(error, format!("{relationships}:2: the destination 1388 is not a concept of this edition"));
    let error = spoilt(relationships, |text| text.replacen("\t138875005\t0", "\t700112006\t0", 20));
    assert!(error.contains("the hierarchy has a cycle: "), "{error}");
    let descriptions = "Snapshot/Terminology/sct2_Description_Snapshot-en_INT_20250101.txt";
    let error = spoilt(descriptions, |text| text.lines().take(1).collect());
    assert!(error.contains("the release has no active descriptions"), "{error}");
    let error = spoilt(relationships, |text| text.replacen("700", "7\u{0}0", 1));
    assert!(error.starts_with(relationships), "{error}");
}

#[test]
fn a_stated_edition_and_version_take_precedence_over_the_files() {
    let stated = |edition: Option<&str>, version: Option<&str>| StatedRelease {
        edition: edition.map(str::to_owned),
        version: version.map(str::to_owned),
        ..StatedRelease::default()
    };
    let path = || release_path("SnomedCT_GardenInternationalRF2_20250101T120000Z");
    let version_of = |stated: &StatedRelease| {
        let release = group_releases_as(vec![path()], stated).remove(0);
        let index = release.import(&mut |_| {}).unwrap().index;
        (index.version().unwrap().to_owned(), release.content_hash(&mut |_| {}).unwrap())
    };
    let (plain, plain_hash) = version_of(&stated(None, None));
    assert_eq!(plain, "http://snomed.info/sct/900000000000207008/version/20250101");
    let (other, other_hash) = version_of(&stated(Some("731000124108"), Some("20260301")));
    assert_eq!(other, "http://snomed.info/sct/731000124108/version/20260301");
    assert_ne!(plain_hash, other_hash, "the release is imported again under the stated version");
    let (trial, trial_hash) = version_of(&StatedRelease { is_unpublished: true, ..StatedRelease::default() });
    assert_eq!(trial, "http://snomed.info/xsct/900000000000207008/version/20250101");
    assert_ne!(plain_hash, trial_hash, "the release is imported again as an unpublished one");
    let loinc = group_releases_as(vec![release_path("Loinc_0.1")], &stated(None, Some("20260301"))).remove(0);
    let error = loinc.import(&mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("--version applies to SNOMED CT RF2 and the NDC directory only"), "{error}");
}

#[test]
fn a_release_that_is_not_published_is_no_draft() {
    let stated = StatedRelease { is_unpublished: true, ..StatedRelease::default() };
    let path = release_path("SnomedCT_GardenInternationalRF2_20250101T120000Z");
    let index = group_releases_as(vec![path], &stated).remove(0).import(&mut |_| {}).unwrap().index;
    let terminology = Terminology::default();
    terminology.apply([TerminologyChange::Index { id: "trial".to_owned(), index }]);
    let set = format!("url={SCT}?fhir_vs");
    let query = Parameters::from_query(&set);
    let expansion =
        run_expand(&terminology, OperationLevel::Type, OperationInput::from_query(&query)).unwrap();
    let used = expansion["expansion"]["parameter"].to_string();
    assert!(used.contains("/xsct/") && !used.contains("draft"), "{used}");
    let code = expansion["expansion"]["contains"][0]["code"].as_str().unwrap();
    let query = Parameters::from_query(&format!("{set}&system={SCT}&code={code}"));
    let input = OperationInput::from_query(&query);
    let response =
        run(&terminology, TerminologyOperation::ValidateCode, OperationLevel::Type, input).unwrap();
    let response = format!("{response:?}");
    assert!(response.contains("/xsct/") && !response.contains("draft"), "{response}");
}
