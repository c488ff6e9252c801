//! The vocabularies of OMOP.

use terminology::{Terminology, TerminologyChange};
use trefoil_terminology_import::import_files;

use crate::support::lookup;

const URL: &str = "https://fhir-terminology.ohdsi.org";

/// Tables with tabs written as bars.
const TABLES: [(&str, &str); 4] = [
    ("CONCEPT.csv", "concept_id|concept_name|domain_id|vocabulary_id|concept_class_id|standard_concept|concept_code|valid_start_date|valid_end_date|invalid_reason
900|Plant disease|Condition|Garden|Clinical Finding|S|P0|19700101|20991231|
901|Mildew \"white\"|Condition|Garden|Clinical Finding|S|P1|19700101|20991231|
902|Mould|Condition|Allotment|Disease||M1|19700101|20991231|
903|Blight|Condition|Garden|Clinical Finding||P3|19700101|20200101|U
"),
    ("CONCEPT_RELATIONSHIP.csv", "concept_id_1|concept_id_2|relationship_id|valid_start_date|valid_end_date|invalid_reason
901|900|Is a|19700101|20991231|
900|901|Subsumes|19700101|20991231|
902|901|Maps to|19700101|20991231|
901|902|Mapped from|19700101|20991231|
901|901|Maps to|19700101|20991231|
903|900|Is a|19700101|20200101|D
902|12345|Maps to|19700101|20991231|
"),
    ("CONCEPT_SYNONYM.csv", "concept_id|concept_synonym_name|language_concept_id
901|Powdery mildew|4180186
"),
    ("VOCABULARY.csv", "vocabulary_id|vocabulary_name|vocabulary_reference|vocabulary_version|vocabulary_concept_id
Garden|Garden|none|1|1
None|OMOP Standardized Vocabularies|none|v5.0 31-AUG-26|44819096
"),
];

fn files(spoil: impl Fn(&str, &str) -> String) -> Vec<(String, Vec<u8>)> {
    let file =
        |(name, text): (&str, &str)| (name.to_owned(), spoil(name, text).replace('|', "\t").into_bytes());
    TABLES.into_iter().map(file).collect()
}

#[test]
fn concepts_have_the_hierarchy_and_the_maps_of_their_vocabularies() {
    let imported = import_files(files(|_, text| text.to_owned())).unwrap();
    assert_eq!((imported.format, imported.index.version()), ("OMOP vocabularies", Some("v5.0 31-AUG-26")));
    let terminology = Terminology::default();
    terminology.apply([TerminologyChange::Index { id: "omop".to_owned(), index: imported.index }]);
    let concept = lookup(&terminology, URL, "901");
    for expected in [
        "display=Mildew \"white\"",
        "Powdery mildew",
        "parent=900",
        "concept_code=P1",
        "standard_concept=S",
        "Mapped from=902",
    ] {
        assert!(concept.contains(expected), "{expected}: {concept}");
    }
    let concept = lookup(&terminology, URL, "902");
    assert!(concept.contains("Maps to=901") && !concept.contains("12345"), "{concept}");
    let concept = lookup(&terminology, URL, "903");
    assert!(concept.contains("inactive=true") && concept.contains("invalid_reason=U"), "{concept}");
    assert!(!concept.contains("parent="), "{concept}");
}

#[test]
fn a_fault_names_the_table_and_the_line() {
    #[track_caller]
    fn check(table: &str, spoil: impl Fn(&str) -> String, expected: &str) {
        let spoilt = |name: &str, text: &str| if name == table { spoil(text) } else { text.to_owned() };
        let error = import_files(files(spoilt)).unwrap_err().to_string();
        assert_eq!(error, expected);
    }
    check(
        "CONCEPT.csv",
        |text| format!("{text}901|Again|||||||| \n"),
        "CONCEPT.csv:6: concept 901 occurs twice",
    );
    check(
        "CONCEPT.csv",
        |text| text.replace("concept_code", "code"),
        "CONCEPT.csv:1: no column has the heading 'concept_code'",
    );
    check(
        "VOCABULARY.csv",
        |text| text.replace("None|", "Other|"),
        "VOCABULARY.csv: no version found: the vocabulary 'None' must state that of the release; download it again",
    );
    check(
        "CONCEPT_RELATIONSHIP.csv",
        |text| format!("{text}901|900|Is a\n"),
        "CONCEPT_RELATIONSHIP.csv:9: the line has 3 fields instead of 6; the file is truncated or corrupt, copy it again",
    );
}
