//! Examples: a terminology of fractures and its concept model.

use super::*;

/// A terminology of fractures: each line is code, display, parents, definition as groups of attribute and
/// value, and `=` if the definition is sufficient.
const FRACTURES: &str = "
138875005|SNOMED CT Concept|||
410662002|Concept model attribute|138875005||
363698007|Finding site|410662002||
116676008|Associated morphology|410662002||
272741003|Laterality|410662002||
1142139005|Count of base|410662002||
123037004|Body structure|138875005||
272673000|Bone structure|123037004||
71341001|Bone structure of femur|272673000||
72704001|Fracture|123037004||
182353008|Side|138875005||
7771000|Left|182353008||
64572001|Disease|138875005||
125605004|Fracture of bone|64572001|116676008=72704001,363698007=272673000|=
71620000|Fracture of femur|125605004|116676008=72704001,363698007=71341001|=
700372006|Set of fractures|138875005||
";

/// Rows of the reference sets of the concept model: reference set, member, then fields.
type ModelRow<'a> = (&'a str, &'a str, Vec<(&'a str, &'a str)>);

fn fractures() -> Terminology {
    fractures_with(&[])
}

/// The terminology of fractures with rows of reference sets.
fn fractures_with(model: &[ModelRow<'_>]) -> Terminology {
    let header = ResourceHeader {
        resource_type: "CodeSystem".to_owned(),
        url: Some(SNOMED_CT.to_owned()),
        version: Some("http://snomed.info/sct/900000000000207008/version/20260101".to_owned()),
        content: Some(ContentMode::Complete),
        case_sensitive: Some(true),
        hierarchy_meaning: Some(HierarchyMeaning::IsA),
        ..ResourceHeader::default()
    };
    let mut builder = IndexBuilder::new(&header).unwrap();
    let rows =
        || FRACTURES.lines().filter(|line| !line.is_empty()).map(|line| line.split('|').collect::<Vec<_>>());
    for row in rows() {
        let (number, _) = builder.add_concept(row[0]).unwrap();
        builder.set_display(number, row[1]).unwrap();
    }
    for row in rows() {
        let find = |code: &str| builder.find_concept(code).unwrap();
        let own = find(row[0]);
        let parent = (!row[2].is_empty()).then(|| find(row[2]));
        let pairs = row[3].split(',').filter_map(|pair| pair.split_once('='));
        let attributes: Vec<_> = pairs.map(|(name, value)| (find(name), find(value))).collect();
        parent.into_iter().for_each(|parent| builder.add_parent(own, parent));
        attributes.iter().for_each(|(name, value)| builder.add_attribute(own, 1, *name, *value));
        let is_defined = if row.get(4) == Some(&"=") { "true" } else { "false" };
        builder.add_property(own, "sufficientlyDefined", is_defined).unwrap();
        if row[0] == "71620000" {
            builder.add_subset_member("700372006", own).unwrap();
        }
    }
    for (set, member, fields) in model {
        let member = builder.find_concept(member).unwrap();
        let facts = MemberFacts { is_active: true, module: "", effective_time: "20260101" };
        builder.add_member_row(set, member, facts, fields.iter().copied()).unwrap();
    }
    let terminology = Terminology::default();
    let index = builder.finish().unwrap();
    terminology.apply([TerminologyChange::Index { id: "snomed".to_owned(), index }]);
    terminology
}

#[test]
fn an_attribute_refines_the_group_of_its_focus_concept() {
    let terminology = fractures();
    #[track_caller]
    fn check(terminology: &Terminology, a: &str, b: &str, expected: &str) {
        assert_eq!(subsumption(terminology, a, b), expected, "{a} and {b}");
    }
    let femur = "125605004|Fracture of bone|:363698007|Finding site|=71341001";
    check(&terminology, "71620000", femur, "equivalent");
    check(&terminology, "125605004", femur, "subsumes");
    let expression = "125605004:363698007=(71341001:272741003=7771000)";
    check(&terminology, expression, "71620000", "subsumed-by");
    check(&terminology, expression, femur, "subsumed-by");
    check(&terminology, "===64572001:{116676008=72704001,363698007=71341001}", "71620000", "equivalent");
    // Two groups do not say that the fracture is of the femur.
    check(&terminology, "64572001:{116676008=72704001},{363698007=71341001}", "71620000", "subsumes");
    check(&terminology, "<<<125605004:363698007=71341001", "71620000", "subsumed-by");
    check(
        &terminology,
        "<<<125605004:363698007=71341001",
        "<<< 125605004 |Fracture of bone| : 363698007=71341001",
        "equivalent",
    );
    check(&terminology, "64572001:272741003=TrUe", "64572001:272741003=true", "equivalent");
    check(&terminology, "64572001:1142139005=#2", "64572001:1142139005=#2.0", "equivalent");
    check(&terminology, "64572001:1142139005=#2", "64572001:1142139005=\"2\"", "not-subsumed");
    check(&terminology, "125605004+64572001", "125605004", "equivalent");
}

/// The answer to the validation of a code of SNOMED CT, in the code system or in a value set: in short, and
/// with the texts of all issues.
fn validation(terminology: &Terminology, value_set: Option<&str>, code: &str) -> (String, String) {
    let (operation, url) = match value_set {
        Some(url) => (TerminologyOperation::ValidateCode, url),
        None => (TerminologyOperation::ValidateCodeInSystem, SNOMED_CT),
    };
    let coding = json!({ "system": SNOMED_CT, "code": code, "display": "any display of the user" });
    let body = json!({ "resourceType": "Parameters", "parameter": [
        { "name": "coding", "valueCoding": coding }, { "name": "url", "valueUri": url }] });
    let response = ask(terminology, operation, &body);
    let issues = serde_json::to_string(&response).unwrap();
    (short(Ok(response)), issues)
}

#[test]
fn an_expression_is_validated_and_shown() {
    let terminology = fractures();
    let expression = "125605004:363698007=(71341001:272741003=7771000)";
    let normal_form = "125605004|Fracture of bone|:363698007|Finding site|=(71341001|Bone structure of femur|:\
        272741003|Laterality|=7771000|Left|)";
    let (valid, _) = validation(&terminology, None, expression);
    assert!(valid.starts_with(&format!("true [{normal_form}]")), "{valid}");
    #[track_caller]
    fn check(terminology: &Terminology, code: &str, reason: &str) {
        let (answer, issues) = validation(terminology, None, code);
        assert!(answer.starts_with("false") && issues.contains(reason), "{code}: {issues}");
    }
    check(
        &terminology,
        "125605004:363698007=",
        "expected the code of a concept, which has 6 to 18 digits at character 21",
    );
    check(&terminology, "125605004:363698007=999999", "the code system has no code '999999'");
    check(&terminology, "125605004:7771000=71341001", "'7771000' is not an attribute");
    check(
        &terminology,
        "125605004|Broken bone|:363698007=71341001",
        "'Broken bone' is not a term of 125605004",
    );
    check(&terminology, "125605004 and 71341001", "Unknown code");

    let set = |selector: &str| format!("{SNOMED_CT}?fhir_vs{selector}");
    for (selector, expected) in [
        ("", true),
        ("=isa/125605004", true),
        ("=isa/71620000", true),
        ("=isa/123037004", false),
        ("=refset/700372006", false),
        ("=ecl/< 71620000", true),
        ("=ecl/* : 363698007 = << 71341001", true),
        ("=ecl/^ 700372006", false),
        ("=ecl/* : { 363698007 = << 71341001 }", true),
        ("=ecl/* : { 363698007 = << 71341001, 116676008 = 72704001 }", true),
        ("=ecl/* : { 363698007 = << 71341001, 272741003 = * }", false),
    ] {
        let (answer, _) = validation(&terminology, Some(&set(selector)), expression);
        assert_eq!(answer.starts_with("true"), expected, "{selector}: {answer}");
    }
}

#[test]
fn a_lookup_shows_the_place_and_the_normal_form() {
    let body = json!({ "resourceType": "Parameters", "parameter": [
        { "name": "system", "valueUri": SNOMED_CT }, { "name": "code", "valueCode": "125605004:363698007=71341001" }] });
    let answer = serde_json::to_value(ask(&fractures(), TerminologyOperation::Lookup, &body)).unwrap();
    insta::assert_json_snapshot!(answer);

    // Of a concept, they are shown if they are asked for.
    let normal_forms = |properties: &[&str]| {
        let mut parameters = vec![
            json!({ "name": "system", "valueUri": SNOMED_CT }),
            json!({ "name": "code", "valueCode": "71620000" }),
        ];
        parameters.extend(properties.iter().map(|name| json!({ "name": "property", "valueCode": name })));
        let body = json!({ "resourceType": "Parameters", "parameter": parameters });
        let response = serde_json::to_value(ask(&fractures(), TerminologyOperation::Lookup, &body)).unwrap();
        let properties =
            response["parameter"].as_array().unwrap().iter().filter(|one| one["name"] == "property");
        let values =
            properties.filter(|one| one["part"][0]["valueCode"].as_str().unwrap().starts_with("normal"));
        values.map(|one| one["part"][1]["valueString"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        normal_forms(&["normalForm", "normalFormTerse"]),
        [
            "64572001|Disease|:{116676008|Associated morphology|=72704001|Fracture|,\
            363698007|Finding site|=71341001|Bone structure of femur|}",
            "64572001:{116676008=72704001,363698007=71341001}"
        ]
    );
    assert!(normal_forms(&["parent"]).is_empty() && normal_forms(&[]).is_empty());
}

#[test]
fn an_expansion_lists_expressions_that_are_listed_and_says_that_others_exist() {
    let terminology = fractures();
    let expand = |include: Json, more: Option<Json>| {
        let mut parameters =
            vec![json!({ "name": "valueSet", "resource": { "resourceType": "ValueSet", "url": "urn:set",
            "status": "active", "compose": { "include": [include] } } })];
        parameters.extend(more);
        let body: Parameters =
            serde_json::from_value(json!({ "resourceType": "Parameters", "parameter": parameters })).unwrap();
        let response =
            run_expand(&terminology, OperationLevel::Type, OperationInput::from_body(&body)).unwrap();
        let codes = response["expansion"]["contains"].as_array().into_iter().flatten();
        let codes: Vec<_> = codes.map(|one| one["code"].as_str().unwrap().to_owned()).collect();
        (codes, response["expansion"]["extension"][0]["valueBoolean"] == true)
    };
    let include = json!({ "system": SNOMED_CT, "concept": [
        { "code": "71620000" }, { "code": "64572001:363698007=71341001" }, { "code": "64572001:wrong" }] });
    let both = vec!["71620000".to_owned(), "64572001:363698007=71341001".to_owned()];
    let without = json!({ "name": "excludePostCoordinated", "valueBoolean": true });
    assert_eq!(expand(include.clone(), None), (both.clone(), false));
    assert_eq!(expand(include, Some(without.clone())), (both[..1].to_vec(), false));
    let filtered = |filters: &[[&str; 3]]| {
        let filters = filters
            .iter()
            .map(|[property, op, value]| json!({ "property": property, "op": op, "value": value }));
        json!({ "system": SNOMED_CT, "filter": filters.collect::<Vec<_>>() })
    };
    let is_a = ["concept", "is-a", "71620000"];
    assert_eq!(expand(filtered(&[is_a]), None), (both[..1].to_vec(), true));
    assert_eq!(expand(filtered(&[is_a]), Some(without)), (both[..1].to_vec(), false));
    assert_eq!(expand(filtered(&[is_a, ["expressions", "=", "false"]]), None), (both[..1].to_vec(), false));
    assert_eq!(expand(filtered(&[["concept", "in", "700372006"]]), None), (both[..1].to_vec(), false));
    for (constraint, is_open) in [
        ("<< 71620000", true),
        ("^ 700372006", false),
        ("71620000", false),
        ("<< 71620000 AND ^ 700372006", false),
    ] {
        assert_eq!(expand(filtered(&[["constraint", "=", constraint]]), None).1, is_open, "{constraint}");
    }
}

/// The rules of a small concept model: a disease has a site, which is a body structure, and a morphology.
fn concept_model() -> Vec<ModelRow<'static>> {
    const ALL: (&str, &str) = ("contentTypeId", "723596005");
    const PRECOORDINATED: (&str, &str) = ("contentTypeId", "723594008");
    const MANDATORY: (&str, &str) = ("ruleStrengthId", "723597001");
    let domain = |attribute, of| ("723561005", attribute, vec![("domainId", of), MANDATORY, ALL]);
    let range = |attribute, range, content| {
        ("723562003", attribute, vec![("rangeConstraint", range), MANDATORY, content])
    };
    vec![
        ("723560006", "64572001", vec![("domainConstraint", "<< 64572001 |Disease|")]),
        ("723560006", "123037004", vec![("domainConstraint", "<< 123037004")]),
        domain("363698007", "64572001"),
        domain("116676008", "64572001"),
        domain("272741003", "123037004"),
        range("363698007", "<< 123037004", ALL),
        // A rule for other content, and one about a concept that the edition does not have.
        range("363698007", "<< 182353008", PRECOORDINATED),
        range("116676008", "<< 49755003 |Morphologically abnormal structure|", ALL),
        range("272741003", "<< 182353008", ALL),
    ]
}

#[test]
fn the_concept_model_forbids_attributes_and_values() {
    const NOT_CHECKED: &str = "has not been checked against the SNOMED CT concept model";
    let terminology = fractures_with(&concept_model());
    let site_of_bone = "the concept model does not permit the value 7771000 |Left| for the attribute 363698007 \
        |Finding site|";
    let cases = [
        ("64572001:363698007=71341001", None),
        ("64572001:{363698007=(71341001:272741003=7771000),116676008=72704001}", None),
        ("64572001:363698007=7771000", Some(site_of_bone)),
        ("125605004:{363698007=(71341001:272741003=71341001)}", Some("does not permit the value 71341001")),
        (
            "64572001:363698007=(7771000+182353008)",
            Some("does not permit the value 7771000 |Left| + 182353008"),
        ),
        (
            "64572001:272741003=7771000",
            Some("does not permit the attribute 272741003 |Laterality| for 64572001"),
        ),
        // The model has no domain for this attribute.
        ("64572001:1142139005=#2", Some("does not permit the attribute 1142139005")),
    ];
    for set in [None, Some("http://snomed.info/sct?fhir_vs")] {
        for (code, forbidden) in cases {
            for (mode, severity) in [(ConceptModelMode::Warn, "warning"), (ConceptModelMode::Reject, "error")]
            {
                terminology.check_concept_model(mode);
                let (answer, issues) = validation(&terminology, set, code);
                let is_valid = forbidden.is_none() || mode == ConceptModelMode::Warn;
                assert_eq!(answer.starts_with("true"), is_valid, "{mode:?} {code}: {issues}");
                assert!(!issues.contains(NOT_CHECKED), "{code}: {issues}");
                match forbidden {
                    None => assert!(!issues.contains("concept model"), "{code}: {issues}"),
                    Some(text) => {
                        assert!(issues.contains(text) && issues.contains(severity), "{code}: {issues}");
                    }
                }
            }
            terminology.check_concept_model(ConceptModelMode::Off);
            let (answer, issues) = validation(&terminology, set, code);
            assert!(answer.starts_with("true") && issues.contains(NOT_CHECKED), "{code}: {issues}");
        }
    }
    // A concept is not checked, and an edition without the reference sets says that an expression was not.
    assert!(!validation(&terminology, None, "64572001").1.contains("concept model"));
    let (answer, issues) = validation(&fractures(), None, "64572001:363698007=7771000");
    assert!(answer.starts_with("true") && issues.contains(NOT_CHECKED), "{issues}");
}

#[test]
fn the_base_of_an_edition_is_known_without_a_new_import() {
    let dependency = |on, date| ("900000000000534007", on, vec![("targetEffectiveTime", date)]);
    let described = |rows: &[ModelRow<'_>], module: &str| {
        let header = ResourceHeader {
            resource_type: "CodeSystem".to_owned(),
            url: Some(SNOMED_CT.to_owned()),
            version: Some(format!("{SNOMED_CT}/{module}/version/20260501")),
            ..ResourceHeader::default()
        };
        let mut builder = IndexBuilder::new(&header).unwrap();
        for code in ["900000000000207008", "900000000000012004"] {
            builder.add_concept(code).unwrap();
        }
        for (set, member, fields) in rows {
            let member = builder.find_concept(member).unwrap();
            let facts = MemberFacts { is_active: true, module: "", effective_time: "" };
            builder.add_member_row(set, member, facts, fields.iter().copied()).unwrap();
        }
        let description = builder.finish().unwrap().description("x");
        description["extension"][0]["valueRelatedArtifact"]["resource"].as_str().map(str::to_owned)
    };
    let rows = [
        dependency("900000000000012004", "20990101"),
        dependency("900000000000207008", "20250701"),
        dependency("900000000000207008", "20260101"),
    ];
    let base = format!("{SNOMED_CT}|{SNOMED_CT}/900000000000207008/version/20260101");
    assert_eq!(described(&rows, "45991000052106"), Some(base));
    assert_eq!(described(&rows, "900000000000207008"), None);
    assert_eq!(described(&rows[..1], "45991000052106"), None);
}
