//! Modifiers of ClaML, in a file of these tests with the shapes of ICD-10-GM.

use terminology::CodeSystemIndex;
use trefoil_terminology_import::import_release;

/// A category with a fourth and a fifth character, as the diabetes categories have; one with an explicit code
/// that a modifier also makes; and a block whose modifier a category excludes.
const CLASSES: &str = r#"
  <Modifier code="S04E10_4"><SubClass code=".0"/><SubClass code=".7"/></Modifier>
  <ModifierClass code=".0" modifier="S04E10_4"><SuperClass code="S04E10_4"/>
    <Rubric kind="preferred"><Label xml:lang="de">Mit Koma</Label></Rubric></ModifierClass>
  <ModifierClass code=".7" modifier="S04E10_4"><SuperClass code="S04E10_4"/>
    <Rubric kind="preferred"><Label xml:lang="de">Mit multiplen Komplikationen</Label></Rubric></ModifierClass>
  <ModifierClass code="1" modifier="S04E10_5"><SuperClass code="S04E10_5"/>
    <Meta name="excludeOnPrecedingModifier" value="S04E10_4 .7"/>
    <Rubric kind="preferred"><Label xml:lang="de">Als entgleist bezeichnet</Label></Rubric></ModifierClass>
  <ModifierClass code="2" modifier="S04E10_5"><SuperClass code="S04E10_5"/>
    <Meta name="excludeOnPrecedingModifier" value="S04E10_4 .0"/>
    <Rubric kind="preferred"><Label xml:lang="de">Nicht als entgleist bezeichnet</Label></Rubric></ModifierClass>
  <Class code="IV" kind="chapter"><SubClass code="E10-E14"/>
    <Rubric kind="preferred"><Label xml:lang="de">Stoffwechsel</Label></Rubric></Class>
  <Class code="E10-E14" kind="block"><SuperClass code="IV"/>
    <ModifiedBy code="S04E10_4"/><ModifiedBy code="S04E10_5"/>
    <Rubric kind="preferred"><Label xml:lang="de">Diabetes mellitus</Label></Rubric></Class>
  <Class code="E10" kind="category"><SuperClass code="E10-E14"/>
    <Rubric kind="preferred"><Label xml:lang="de">Diabetes mellitus, Typ 1</Label></Rubric></Class>
  <Class code="E11" kind="category"><SuperClass code="E10-E14"/>
    <ExcludeModifier code="S04E10_4"/><ExcludeModifier code="S04E10_5"/>
    <Rubric kind="preferred"><Label xml:lang="de">Diabetes mellitus, Typ 2</Label></Rubric></Class>
  <Class code="E12" kind="category"><SuperClass code="E10-E14"/><SubClass code="E12.0"/>
    <Rubric kind="preferred"><Label xml:lang="de">Diabetes mellitus durch Mangel</Label></Rubric></Class>
  <Class code="E12.0" kind="category"><SuperClass code="E12"/>
    <Rubric kind="preferred"><Label xml:lang="de">Eigener Text</Label></Rubric></Class>
  <Class code="E13" kind="category"><SuperClass code="E10-E14"/>
    <ExcludeModifier code="S04E10_5"/>
    <ModifiedBy code="S04E10_4" all="false"><ValidModifierClass code=".7"/></ModifiedBy>
    <Rubric kind="preferred"><Label xml:lang="de">Sonstiger Diabetes</Label></Rubric></Class>"#;

fn import(classes: &str) -> Result<CodeSystemIndex, String> {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        r#"<?xml version="1.0" encoding="UTF-8"?><ClaML version="2.0.0">
           <Title date="2026-01-01" name="ICD-10-GM" version="2026">Klassifikation</Title>{classes}</ClaML>"#
    );
    let path = folder.path().join("icd10gm2026syst_claml.xml");
    std::fs::write(&path, text).unwrap();
    import_release(&path, &mut |_| {}).map(|imported| imported.index).map_err(|error| error.to_string())
}

#[test]
fn modifiers_make_codes() {
    let index = import(CLASSES).unwrap();
    let display = |code: &str| {
        let terminology = terminology::Terminology::default();
        terminology
            .apply([terminology::TerminologyChange::Index { id: "icd".to_owned(), index: index.clone() }]);
        crate::support::validate_in_system(&terminology, "http://fhir.de/CodeSystem/bfarm/icd-10-gm", code)
    };
    for (code, expected) in [
        ("E10", "true [Diabetes mellitus, Typ 1]"),
        ("E10.0", "true [Diabetes mellitus, Typ 1: Mit Koma]"),
        ("E10.01", "true [Diabetes mellitus, Typ 1: Mit Koma: Als entgleist bezeichnet]"),
        (
            "E10.72",
            "true [Diabetes mellitus, Typ 1: Mit multiplen Komplikationen: Nicht als entgleist bezeichnet]",
        ),
        // The fifth character does not follow this fourth one.
        ("E10.02", "false"),
        ("E10.71", "false"),
        // Excluded by the category.
        ("E11.0", "false"),
        // The class of the file has its own text; the fifth character follows it.
        ("E12.0", "true [Eigener Text]"),
        ("E12.7", "false"),
        ("E12.01", "true [Eigener Text: Als entgleist bezeichnet]"),
        // Only some classes of the modifier, and no fifth character.
        ("E13.7", "true [Sonstiger Diabetes: Mit multiplen Komplikationen]"),
        ("E13.0", "false"),
        ("E13.72", "false"),
        // Chapters and blocks have no codes of their own.
        ("IV.0", "false"),
    ] {
        let response = display(code);
        assert!(response.starts_with(expected), "{code}: {response}");
    }
    for (above, below) in [("E10", "E10.0"), ("E10.0", "E10.01"), ("IV", "E10.72"), ("E10-E14", "E13.7")] {
        let relation = index.subsumes(above, below);
        assert_eq!(relation, Some(terminology::Subsumption::Subsumes), "{above} {below}");
    }
}

#[test]
fn an_unknown_modifier_is_reported() {
    let class = r#"<Class code="E10" kind="category"><ModifiedBy code="S99"/>
        <Rubric kind="preferred"><Label>Diabetes</Label></Rubric></Class>"#;
    let reason = import(class).unwrap_err();
    assert!(
        reason.contains("E10 is modified by S99, which has no ModifierClass in the file; copy it again"),
        "{reason}"
    );
}
