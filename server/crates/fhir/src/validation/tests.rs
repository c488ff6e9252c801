//! Regular resources, and one of each kind of defect.

use crate::IdLength;
use insta::assert_snapshot;
use serde_json::{Value, json};

use super::*;

/// The defects of a resource, each in a line: `!` for an unreadable one, path, code and text.
fn defects(resource: &Value) -> String {
    let kind = resource["resourceType"].as_str().unwrap();
    let issues = validate(kind, resource.to_string().as_bytes(), IdLength::R4);
    assert_eq!(issues.total(), issues.described.len());
    let line = |defect: &ElementDefect| {
        let mark = if defect.is_unreadable { "! " } else { "" };
        format!("{mark}{} ({}): {}\n", defect.expression, defect.code.code(), defect.text)
    };
    issues.described.iter().map(line).collect()
}

#[test]
fn a_regular_resource_has_no_defect() {
    let patient = json!({
        "resourceType": "Patient",
        "id": "p",
        "meta": {"profile": ["http://x.example/p|1"], "versionId": "1", "lastUpdated": "2026-01-31T08:00:00Z"},
        "text": {"status": "generated", "div": "<div xmlns=\"http://www.w3.org/1999/xhtml\">\n\"A\"</div>"},
        "contained": [
            {"id": "o", "name": "late type", "resourceType": "Organization"},
            {"resourceType": "Parameters", "parameter": [{"name": "a", "valueDecimal": 1.50}]},
        ],
        "extension": [{"url": "http://x.example/a", "valueAge": {"value": 3, "unit": "a"}}],
        "name": [{"given": ["A", null], "_given": [null, {"extension": [{"url": "urn:x", "valueBoolean": true}]}]}],
        "_birthDate": {"id": "b"},
        "deceasedDateTime": "2026",
        "_deceasedDateTime": {"id": "d"},
        "multipleBirthInteger": 2,
        "contact": [{"name": {"text": "B"}}],
        "managingOrganization": {"reference": "#o"},
    });
    assert_eq!(defects(&patient), "");
    // A mandatory primitive element may have only an extension, such as the reason of its absence.
    let absent = json!({"extension": [{"url": "http://x.example/absent", "valueCode": "unknown"}]});
    let observation = json!({"resourceType": "Observation", "_status": absent, "code": {"text": "c"}});
    assert_eq!(defects(&observation), "");
    let recursive = json!({
        "resourceType": "Questionnaire", "status": "draft",
        "item": [{"linkId": "1", "type": "group", "item": [{"linkId": "1.1", "type": "display"}]}],
    });
    assert_eq!(defects(&recursive), "");
}

#[test]
fn what_no_reader_can_represent_is_unreadable() {
    assert_snapshot!(defects(&json!({
        "resourceType": "Observation",
        "status": 12,
        "code": "c",
        "subject": 1,
        "encounter": true,
        "effectiveDateTime": "2026-02-30T08:00:00Z",
        "issued": "yesterday",
        "valueQuantity": {"value": "1.5", "unit": ["mg", ["x"]]},
        "note": [[{"text": "n"}], {"text": {"x": 1}}],
        "component": [{"code": {"text": "c"}, "valueInteger": 1.5}, {"code": {"text": "c"}, "valueBoolean": "true"}],
        "contained": [{"resourceType": "Pony"}, {"id": "x"}, {"resourceType": 1}, 2],
    })), @r"
    ! Observation.status (structure): a number is here instead of a string
    ! Observation.code (structure): a string is here instead of an object
    ! Observation.subject (structure): a number is here instead of an object
    ! Observation.encounter (structure): a boolean is here instead of an object
    ! Observation.effective (value): '2026-02-30T08:00:00Z' is not a date, or a time such as 2026-01-31T08:00:00+01:00
    ! Observation.issued (value): 'yesterday' is not an instant such as 2026-01-31T08:00:00+01:00
    ! Observation.value.value (structure): a string is here instead of a number
    Observation.value.unit (structure): the element does not repeat, so that its value must not be an array
    ! Observation.value.unit[1] (structure): an array is here instead of a string
    ! Observation.note[0] (structure): an array is within an array
    ! Observation.note[1].text (structure): an object is here instead of a string
    ! Observation.component[0].value (value): '1.5' is not a whole number from -2147483648 to 2147483647, without exponent
    ! Observation.component[1].value (structure): a string is here instead of a boolean
    ! Observation.contained[0] (structure): 'Pony' is not a resource type of FHIR R4
    ! Observation.contained[1] (structure): 'resourceType' is missing or not a string
    ! Observation.contained[2] (structure): 'resourceType' is missing or not a string
    ! Observation.contained[3] (structure): a number is here instead of a resource
    ");
}

#[test]
fn what_readers_represent_is_irregular() {
    assert_snapshot!(defects(&json!({
        "resourceType": "Patient",
        "nickname": "Al",
        "_name": {},
        "active": [true],
        "name": {"given": "A", "use": "", "period": {}},
        "telecom": [],
        "gender": null,
        "address": [null, {"line": [null, "x", null], "_line": [null, {"id": "y"}, {"id": "z"}], "city": []}],
        "deceasedBoolean": true,
        "deceasedDateTime": "2026-01-31T08:00:00",
        "link": [{"type": "see  also"}],
        "contained": {"resourceType": "Organization", "birthDate": "1980"},
    })), @r"
    Patient (structure): FHIR R4 has no element 'nickname' here
    Patient (structure): FHIR R4 has no element '_name' here
    Patient.active (structure): the element does not repeat, so that its value must not be an array
    Patient.name (structure): the element repeats, so that its value must be an array
    Patient.name.given (structure): the element repeats, so that its value must be an array
    Patient.name.use (structure): the string is empty; leave the element out
    Patient.name.period (structure): the object is empty; leave the element out
    Patient.telecom (structure): the array is empty; leave the element out
    Patient.gender (structure): the value is null; leave the element out
    Patient.address[0] (structure): the value is null; leave the element out
    Patient.address[1].city (structure): the element does not repeat, so that its value must not be an array
    Patient.address[1].city (structure): the array is empty; leave the element out
    Patient.address[1].line[0] (structure): the value is null; leave the element out
    Patient.address[1].line[2] (structure): the value is null; leave the element out
    Patient.deceased (structure): the element has a value as 'deceasedBoolean' and one as 'deceasedDateTime'
    Patient.deceased (value): '2026-01-31T08:00:00' is not a time with seconds and a zone, such as 2026-01-31T08:00:00+01:00
    Patient.link[0].type (value): 'see  also' is not a code without whitespace, except single spaces between words
    Patient.link[0].other (required): the element is mandatory, but missing
    Patient.contained (structure): the element repeats, so that its value must be an array
    Patient.contained (structure): FHIR R4 has no element 'birthDate' here
    ");
}

#[test]
fn many_defects_are_counted_and_some_are_described() {
    let names = vec![json!({"given": []}); 80];
    let telecoms = vec![json!({"rank": "1"}); 70];
    let patient = json!({"resourceType": "Patient", "name": names, "telecom": telecoms});
    let issues = validate("Patient", patient.to_string().as_bytes(), IdLength::R4);
    assert_eq!((issues.irregular, issues.unreadable, issues.described.len()), (80, 70, 100));
    let last = issues.described.last().unwrap();
    assert_eq!((&*last.expression, last.is_unreadable), ("Patient.telecom[49].rank", true));
}

#[test]
fn a_number_beyond_all_readers_ends_the_validation_only_where_an_object_belongs() {
    let decimal =
        r#"{"resourceType":"Observation","status":"final","code":{},"valueQuantity":{"value":1E999}}"#;
    let issues = validate("Observation", decimal.as_bytes(), IdLength::R4);
    assert_eq!((issues.irregular, issues.unreadable), (1, 0), "{issues:?}");
    let object = r#"{"resourceType":"Observation","status":"final","code":1E999}"#;
    let issues = validate("Observation", object.as_bytes(), IdLength::R4);
    assert_eq!(issues.unreadable, 1, "{issues:?}");
}
