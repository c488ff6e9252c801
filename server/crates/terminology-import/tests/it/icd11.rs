//! A linearization of ICD-11.

use terminology::{Terminology, TerminologyChange};
use trefoil_terminology_import::import_files;

use crate::support::lookup;

const URL: &str = "http://id.who.int/icd/release/11/mms";

/// A table in the form of 2025, with tabs written as bars.
const TABLE: &str = "\u{feff}Foundation URI|Linearization URI|Code|BlockId|TitleEN|Title|ClassKind|DepthInKind|IsResidual|ChapterNo|BrowserLink|isLeaf|Primary tabulation|CodingNote|Parent
http://id.who.int/icd/entity/1|http://id.who.int/icd/release/11/2025-01/mms/1|||Garden diseases|Gartenkrankheiten|chapter|1|False|01|browser|False|False||
http://id.who.int/icd/entity/2|http://id.who.int/icd/release/11/2025-01/mms/2||BlockL1-1A0|- Of leaves|- Der Blätter|block|1|False|01|browser|False|False||
http://id.who.int/icd/entity/3|http://id.who.int/icd/release/11/2025-01/mms/3|1A00||- - Mildew|- - Mehltau|category|1|False|01|browser|False|True|Not of roses.|
http://id.who.int/icd/entity/4|http://id.who.int/icd/release/11/2025-01/mms/4|1A00.0||- - - Downy mildew|- - - Falscher Mehltau|category|2|False|01|browser|True|True||
|http://id.who.int/icd/release/11/2025-01/mms/3/other|1A00.Y||- - - Other mildew|- - - Anderer Mehltau|category|2|True|01|browser|True|True||
http://id.who.int/icd/entity/5|http://id.who.int/icd/release/11/2025-01/mms/5|1B00||- Blight|- Fäule|category|1|False|01|browser|True|True||
";
/// A table in the form before 2022.
const OLD: &str = "Foundation URI|Linearization (release) URI|Code|BlockId|Title|ClassKind|DepthInKind|IsResidual|ChapterNo|Version:2021 May 03 - 21:30 UTC
http://id.who.int/icd/entity/1|http://id.who.int/icd/release/11/mms/1|||\"Garden diseases\"|chapter|1|False|01|
http://id.who.int/icd/entity/3|http://id.who.int/icd/release/11/mms/3|1A00||\"- Mildew, \"\"white\"\"\"|category|1|False|01|
";

fn import(name: &str, table: &str) -> Result<Terminology, String> {
    let files = vec![(name.to_owned(), table.replace('|', "\t").into_bytes())];
    let imported = import_files(files).map_err(|error| error.to_string())?;
    let terminology = Terminology::default();
    terminology.apply([TerminologyChange::Index { id: "icd11".to_owned(), index: imported.index }]);
    Ok(terminology)
}

#[test]
fn titles_languages_and_the_hierarchy_are_read() {
    let terminology = import("SimpleTabulation-ICD-11-MMS-de.txt", TABLE).unwrap();
    let concept = lookup(&terminology, URL, "1A00.0");
    for expected in ["version=2025-01", "display=Falscher Mehltau", "parent=1A00", "en=Downy mildew"] {
        assert!(concept.contains(expected), "{expected}: {concept}");
    }
    let concept = lookup(&terminology, URL, "1A00");
    for expected in ["parent=BlockL1-1A0", "child=1A00.0", "child=1A00.Y", "codingNote=Not of roses."] {
        assert!(concept.contains(expected), "{expected}: {concept}");
    }
    assert!(lookup(&terminology, URL, "1B00").contains("parent=01"));
    // Chapters and blocks cannot be used for coding.
    for (code, is_abstract) in [("01", true), ("BlockL1-1A0", true), ("1A00", false), ("1A00.Y", false)] {
        let concept = lookup(&terminology, URL, code);
        assert!(concept.contains(&format!("abstract={is_abstract}")), "{concept}");
    }
}

#[test]
fn older_tables_state_their_release_in_a_heading() {
    let terminology = import("LinearizationMiniOutput-MMS-en.txt", OLD).unwrap();
    let concept = lookup(&terminology, URL, "1A00");
    for expected in ["version=2021-05", "display=Mildew, \"white\""] {
        assert!(concept.contains(expected), "{expected}: {concept}");
    }
    assert!(concept.contains("parent=01"), "{concept}");
}

#[test]
fn a_fault_names_the_line() {
    #[track_caller]
    fn check(spoil: impl Fn(&str) -> String, expected: &str) {
        let error = import("SimpleTabulation-ICD-11-MMS-de.txt", &spoil(TABLE)).map(drop).unwrap_err();
        assert_eq!(error, format!("SimpleTabulation-ICD-11-MMS-de.txt:{expected}"));
    }
    check(|table| table.replace("1B00", "1A00"), "7: the code 1A00 occurs twice");
    check(
        |table| table.replace("|- Fäule", "|- - - - - Fäule"),
        "7: 1B00 has 5 dashes, more than one above those of the row before it",
    );
    check(
        |table| table.replace("|1B00|", "||").replace("|01|", "||"),
        "2: the row has no code, block and chapter",
    );
    check(
        |table| table.replace("/release/11/", "/entity/"),
        "2: no column has the URI of an entity of a release, with /icd/release/11/ in it",
    );
    check(|table| table.replace("|Code|", "|Kode|"), "1: no column has the heading 'Code'");
}
