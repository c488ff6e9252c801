//! ICD-10-CM from its order file, its tabular list and both. The classification is small and made for these
//! tests.

use std::fs;
use std::path::{Path, PathBuf};

use fhir::Parameters;
use terminology::{
    CodeSystemIndex, OperationInput, OperationLevel, Subsumption, Terminology, TerminologyChange,
    TerminologyOperation,
};
use trefoil_terminology_import::{group_releases, import_files, import_release};

use crate::releases::zipped;
use crate::support::short;
use crate::support::{release_path, run};

const ICD: &str = "http://hl7.org/fhir/sid/icd-10-cm";
const ORDER: &str = "icd10cm_order_2025.txt";
const TABULAR: &str = "icd10cm_tabular_2025.xml";

/// Imports these files, given as pairs of name and content, and returns the index.
fn index(files: &[(&str, &str)]) -> Result<CodeSystemIndex, String> {
    let files = files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec()));
    import_files(files.collect()).map(|loaded| loaded.index).map_err(|error| error.to_string())
}

fn text(name: &str) -> String {
    fs::read_to_string(release_path("icd10cm-garden").join(name)).unwrap()
}

/// Returns display, designations and properties of a code from `$lookup`. The designation that repeats the
/// display is omitted.
fn lookup(terminology: &Terminology, code: &str) -> String {
    let query = Parameters::from_query(&format!("system={ICD}&code={code}"));
    let response = match run(
        terminology,
        TerminologyOperation::Lookup,
        OperationLevel::Type,
        OperationInput::from_query(&query),
    ) {
        Ok(response) => serde_json::to_value(&response).unwrap(),
        Err(error) => return short(Err(error)),
    };
    let mut actual = Vec::new();
    for parameter in response["parameter"].as_array().unwrap() {
        let part = |name: &str| {
            let parts = parameter["part"].as_array().into_iter().flatten();
            let part_of_name = parts.into_iter().find(|part| part["name"] == name);
            part_of_name.map(|part| part.as_object().unwrap().values().next_back().unwrap().to_string())
        };
        match parameter["name"].as_str().unwrap() {
            "display" => actual.push(parameter["valueString"].to_string()),
            "designation" => {
                let text = part("value").filter(|text| *text != actual[0]);
                actual.extend(text.map(|text| format!("or {text}")));
            }
            "property" => actual.push(format!("{}={}", part("code").unwrap(), part("value").unwrap())),
            _ => {}
        }
    }
    actual.sort();
    actual.join(" ").replace('"', "")
}

fn terminology(index: &CodeSystemIndex) -> Terminology {
    let terminology = Terminology::default();
    terminology.apply([TerminologyChange::Index { id: "icd".to_owned(), index: index.clone() }]);
    terminology
}

#[test]
fn the_order_file_the_tabular_list_and_both_can_be_imported() {
    let (order, tabular) = (text(ORDER), text(TABULAR));
    let of_order = index(&[(ORDER, &order)]).unwrap();
    let of_list = index(&[(TABULAR, &tabular)]).unwrap();
    let of_both = index(&[(ORDER, &order), (TABULAR, &tabular)]).unwrap();
    // The order file has seven codes. The tabular list adds a chapter and two sections.
    assert_eq!([&of_order, &of_list, &of_both].map(CodeSystemIndex::concepts), [7, 10, 10]);
    for index in [&of_order, &of_list, &of_both] {
        assert_eq!((index.url(), index.version()), (ICD, Some("2025")));
        assert_eq!(index.subsumes("Z99", "Z99.2XXA"), Some(Subsumption::Subsumes));
        assert_eq!(index.subsumes("Z99.2", "Z99.2XXD"), Some(Subsumption::Subsumes));
        assert_eq!(index.subsumes("Z99.1", "Z99.2XXD"), Some(Subsumption::NotSubsumed));
    }
    for index in [&of_list, &of_both] {
        assert_eq!(index.subsumes("21", "Z99.2XXA"), Some(Subsumption::Subsumes));
        assert_eq!(index.subsumes("Z98-Z99", "Z99.11"), Some(Subsumption::Subsumes));
        assert_eq!(index.subsumes("Z97-Z97", "Z97"), Some(Subsumption::Subsumes));
        assert_eq!(index.subsumes("Z97-Z97", "Z99"), Some(Subsumption::NotSubsumed));
    }

    let [order, list, both] = [of_order, of_list, of_both].map(|index| terminology(&index));
    for (code, of_order, of_list, of_both) in [
        (
            "21",
            "UnknownConcept",
            "Garden & yard (Z97-Z99) child=Z97-Z97 child=Z98-Z99 inactive=false notSelectable=true",
            "Garden & yard (Z97-Z99) child=Z97-Z97 child=Z98-Z99 inactive=false notSelectable=true",
        ),
        (
            "Z97",
            "Tools lost in a garden billable=true inactive=false or Lost tools",
            "Tools lost in a garden billable=true inactive=false parent=Z97-Z97 or Shears — mislaid or Spade under leaves",
            "Tools lost in a garden billable=true inactive=false parent=Z97-Z97 or Lost tools or Shears — mislaid \
             or Spade under leaves",
        ),
        (
            "Z99.2",
            "Stung by a rose billable=false child=Z99.2XXA child=Z99.2XXD inactive=false parent=Z99",
            "Stung by a rose billable=false child=Z99.2XXA child=Z99.2XXD inactive=false parent=Z99",
            "Stung by a rose billable=false child=Z99.2XXA child=Z99.2XXD inactive=false parent=Z99",
        ),
        (
            "Z99.2XXA",
            "Stung by a rose, first time billable=true inactive=false parent=Z99.2",
            "Stung by a rose, first time billable=true inactive=false parent=Z99.2",
            "Stung by a rose, first time billable=true inactive=false parent=Z99.2",
        ),
    ] {
        for (terminology, expected) in [(&order, of_order), (&list, of_list), (&both, of_both)] {
            let actual = lookup(terminology, code);
            assert!(
                actual == expected || expected == "UnknownConcept" && actual.starts_with(expected),
                "{actual}"
            );
        }
    }
}

#[test]
fn seventh_characters_come_from_the_nearest_category() {
    let tabular = r#"<ICD10CM.tabular><chapter><name>1</name><desc>One</desc><section id="A00-A09"><desc>Some</desc>
        <diag><name>A01</name><desc>Above</desc>
          <sevenChrDef><extension char="1">one</extension></sevenChrDef>
          <diag><name>A01.2</name><desc>Own</desc><sevenChrDef><extension char="9">nine</extension></sevenChrDef>
            <diag><name>A01.234</name><desc>Full</desc></diag></diag>
          <diag><name>A01.3</name><desc>None</desc></diag></diag>
        <diag><name>A02</name><desc>Alone</desc><sevenChrDef><extension char="B">b</extension></sevenChrDef></diag>
        <diag><name>A03</name><desc>Plain</desc></diag></section></chapter></ICD10CM.tabular>"#;
    let index = index(&[("icd10cm-tabular-April-2026.xml", tabular)]).unwrap();
    assert_eq!((index.version(), index.concepts()), (Some("2026"), 11));
    let terminology = terminology(&index);
    for (code, expected) in [
        ("A01.2349", "Full, nine billable=true"),
        ("A01.3XX1", "None, one billable=true"),
        ("A02.XXXB", "Alone, b billable=true"),
        ("A03", "Plain billable=true"),
        ("A01", "Above billable=false"),
    ] {
        let actual = lookup(&terminology, code);
        assert!(actual.starts_with(expected), "{code}: {actual}");
    }
}

#[test]
fn errors_name_file_and_line() {
    let (order, tabular) = (text(ORDER), text(TABULAR));
    let check = |files: &[(&str, &str)], expected: &str| {
        let error = index(files).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    };
    let spoilt = tabular.replace("<name>Z99.1</name>", "<name>Z97</name>");
    check(&[(TABULAR, &spoilt)], &format!("{TABULAR}:29: Z97 occurs twice"));
    let spoilt = tabular.replace("<name>Z99.1</name>", "");
    check(&[(TABULAR, &spoilt)], &format!("{TABULAR}:30: a desc precedes the name"));
    let spoilt = tabular.replace(" id=\"Z97\">\n      <desc", ">\n      <desc");
    check(&[(TABULAR, &spoilt)], &format!("{TABULAR}:13: a section has no id"));
    let spoilt = tabular.replace("</section>", "</chapter>");
    check(&[(TABULAR, &spoilt)], &format!("{TABULAR}:20: "));
    let (half, _) = tabular.split_at(tabular.find("</section>").unwrap());
    check(&[(TABULAR, half)], &format!("{TABULAR}:20: the file ends within 3 open elements; copy it again"));
    check(&[(TABULAR, "<ICD10CM.tabular/>")], &format!("{TABULAR}: this is not a tabular list"));
    let twice = format!("{order}{}\n", order.lines().last().unwrap());
    check(&[(ORDER, &twice), (TABULAR, &tabular)], &format!("{ORDER}:8: Z99.2XXD occurs twice"));
    check(
        &[("icd10cm_order_.txt", &order)],
        "icd10cm_order_.txt: the name of the file does not contain the year",
    );
    let other = "icd10cm_tabular_2024.xml";
    check(
        &[(ORDER, &order), (other, &tabular)],
        &format!("{other}: the file is from 2024, but {ORDER} is from 2025"),
    );
}

/// Copies each of the two files to a folder of its own.
fn apart(root: &Path) -> [PathBuf; 2] {
    [("codes", ORDER), ("tables", TABULAR)].map(|(folder, name)| {
        fs::create_dir(root.join(folder)).unwrap();
        fs::write(root.join(folder).join(name), text(name)).unwrap();
        root.join(folder)
    })
}

#[test]
fn two_files_in_two_folders_are_one_release() {
    let folder = tempfile::tempdir().unwrap();
    let [codes, tables] = apart(folder.path());
    let archive = zipped(&tables);
    let both = import_release(&release_path("icd10cm-garden"), &mut |_| {}).unwrap().index;
    for paths in [
        vec![codes.clone(), tables.clone()],
        vec![tables.clone(), codes.clone()],
        vec![codes.join(ORDER), tables.join(TABULAR)],
        vec![archive.path().to_owned(), release_path("plants.csv"), codes.clone()],
    ] {
        let [mut read, mut expected] = [Vec::new(), Vec::new()];
        let others = paths.len() - 2;
        let releases = group_releases(paths);
        assert_eq!(releases.len(), 1 + others);
        let icd = releases.iter().find(|release| release.path().starts_with(&codes)).unwrap();
        let mut bytes = 0;
        icd.import(&mut |step| bytes = step.bytes).unwrap().index.save(&mut read).unwrap();
        both.save(&mut expected).unwrap();
        assert_eq!(read, expected);
        assert!(bytes > text(ORDER).len() as u64, "{bytes}");
    }
}

#[test]
fn files_of_two_years_or_of_one_kind_are_separate_releases() {
    let folder = tempfile::tempdir().unwrap();
    let [codes, tables] = apart(folder.path());
    let next = folder.path().join("next");
    fs::create_dir(&next).unwrap();
    fs::write(next.join("icd10cm_tabular_2026.xml"), text(TABULAR)).unwrap();
    let versions = |paths: Vec<PathBuf>| {
        let loaded =
            group_releases(paths).into_iter().map(|release| release.import(&mut |_| {}).unwrap().index);
        let editions = loaded.map(|index| format!("{} {}", index.version().unwrap(), index.concepts()));
        editions.collect::<Vec<_>>()
    };
    assert_eq!(versions(vec![codes.clone(), next.clone()]), ["2025 7", "2026 10"]);
    assert_eq!(versions(vec![next, tables.clone(), codes.clone()]), ["2026 10", "2025 10"]);
    // With two order files, it is unknown which of them belongs to the tabular list. A folder that contains
    // both files needs no other file.
    let again = folder.path().join("again");
    fs::create_dir(&again).unwrap();
    fs::write(again.join("icd10cm-order-April-2025.txt"), text(ORDER)).unwrap();
    assert_eq!(versions(vec![codes, again, tables.clone()]), ["2025 7", "2025 7", "2025 10"]);
    assert_eq!(versions(vec![release_path("icd10cm-garden"), tables]), ["2025 10", "2025 10"]);
}
