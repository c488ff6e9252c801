//! MedDRA.

use terminology::{Terminology, TerminologyChange};
use trefoil_terminology_import::import_files;

use crate::support::{lookup, subsumes};

const URL: &str = "https://www.meddra.org";

const TABLES: [(&str, &str); 9] = [
    ("meddra_release.asc", "27.1$German$$\n"),
    ("soc.asc", "100$Erkrankungen des Gartens$Gart$$$$$$$$\n101$Untersuchungen$Unt$$$$$$$$\n"),
    ("hlgt.asc", "200$Blattkrankheiten$$$$$$$$\n"),
    ("hlt.asc", "300$Mehltau$$$$$$$$\n"),
    ("pt.asc", "400$Echter Mehltau$$100$$$$$$$$\n"),
    (
        "llt.asc",
        "400$Echter Mehltau$400$$$$$$$Y$$\n500$Mehltau der Rose$400$$$$$$$Y$$\n501$Weißer Rost$400$$$$$$$N$$\n",
    ),
    ("soc_hlgt.asc", "100$200$\n101$200$\n"),
    ("hlgt_hlt.asc", "200$300$\n"),
    ("hlt_pt.asc", "300$400$\n"),
];

fn import(spoil: impl Fn(&str, &str) -> String) -> Result<Terminology, String> {
    // The tables of some languages are in Windows-1252.
    let bytes = |text: String| text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
    let file = |(name, text): (&str, &str)| (format!("MedAscii/{name}"), bytes(spoil(name, text)));
    let files = TABLES.into_iter().map(file).collect();
    let imported = import_files(files).map_err(|error| error.to_string())?;
    let terminology = Terminology::default();
    terminology.apply([TerminologyChange::Index { id: "meddra".to_owned(), index: imported.index }]);
    Ok(terminology)
}

#[test]
fn terms_of_five_levels_are_one_hierarchy() {
    let terminology = import(|_, text| text.to_owned()).unwrap();
    let concept = lookup(&terminology, URL, "501");
    for expected in ["version=27.1", "display=Weißer Rost", "parent=400", "inactive=true", "level=LLT"] {
        assert!(concept.contains(expected), "{expected}: {concept}");
    }
    let concept = lookup(&terminology, URL, "400");
    for expected in ["level=PT", "primarySOC=100", "parent=300", "child=500"] {
        assert!(concept.contains(expected), "{expected}: {concept}");
    }
    for class in ["100", "101"] {
        assert_eq!(subsumes(&terminology, URL, class, "500"), "subsumes", "{class}");
    }
}

#[test]
fn a_fault_names_the_table_and_the_line() {
    #[track_caller]
    fn check(table: &str, from: &str, to: &str, expected: &str) {
        let spoil = |name: &str, text: &str| match name == table {
            true => text.replacen(from, to, 1),
            false => text.to_owned(),
        };
        assert_eq!(import(spoil).map(drop).unwrap_err(), format!("MedAscii/{table}:{expected}"));
    }
    check("llt.asc", "$400$$$$$$$N$$", "$499$$$$$$$N$$", "3: the preferred term 499 does not exist");
    check("hlt.asc", "300", "200", "1: the code 200 occurs twice");
    check("soc_hlgt.asc", "101$200", "102$200", "2: 102 or 200 is not a term");
    check(
        "llt.asc",
        "$N$$",
        "",
        "3: the line has 9 fields instead of 10; the file is truncated or corrupt, copy it again",
    );
}
