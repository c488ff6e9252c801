//! Additions of HL7's terminology ecosystem to `$validate-code` that need many requests or several stored
//! resources. `conformance/specs/ecosystem.toml` contains the other requests.

use fhir::Parameters;
use trefoil_terminology::{OperationInput, OperationLevel, Terminology, TerminologyOperation};

use crate::support::{PLANTS, body, garden, put, run};

/// Returns the answer to a body with these items, as JSON.
fn answer(terminology: &Terminology, parameters: &str) -> serde_json::Value {
    let body = body(parameters);
    let response = run(
        terminology,
        TerminologyOperation::ValidateCode,
        OperationLevel::Type,
        OperationInput::from_body(&body),
    )
    .expect("the request is valid");
    serde_json::to_value(&response).expect("these types serialise to JSON")
}

/// Returns a coding in each of its three forms. The answer must not depend on the form.
fn forms(system: &str, version: Option<&str>, code: &str) -> [(&'static str, String); 3] {
    let member = version.map(|version| format!(r#","version":"{version}""#)).unwrap_or_default();
    let parameter = version
        .map(|version| format!(r#",{{"name":"systemVersion","valueString":"{version}"}}"#))
        .unwrap_or_default();
    let coding = format!(r#"{{"system":"{system}","code":"{code}"{member}}}"#);
    [
        (
            "",
            format!(
                r#"{{"name":"code","valueCode":"{code}"}},{{"name":"system","valueUri":"{system}"}}{parameter}"#
            ),
        ),
        ("Coding", format!(r#"{{"name":"coding","valueCoding":{coding}}}"#)),
        (
            "CodeableConcept.coding[0]",
            format!(r#"{{"name":"codeableConcept","valueCodeableConcept":{{"coding":[{coding}]}}}}"#),
        ),
    ]
}

/// Returns the texts and paths of the issues.
fn issues(response: &serde_json::Value) -> Vec<(String, String)> {
    let parameters = response["parameter"].as_array().into_iter().flatten();
    let outcome = parameters.filter(|p| p["name"] == "issues").map(|p| &p["resource"]["issue"]);
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let mut out: Vec<_> = outcome
        .filter_map(|issues| issues.as_array())
        .flatten()
        .map(|issue| (text(&issue["details"]["text"]), text(&issue["expression"][0])))
        .collect();
    out.sort();
    out
}

/// Returns the parameters of an answer that do not depend on the form, without issues.
fn said_beside_issues(response: &serde_json::Value) -> Vec<&serde_json::Value> {
    let of_the_form = ["issues", "message", "codeableConcept"];
    let parameters = response["parameter"].as_array().into_iter().flatten();
    parameters.filter(|p| !of_the_form.iter().any(|name| p["name"] == *name)).collect()
}

#[test]
fn the_three_forms_have_equal_answers() {
    let garden = garden();
    let sets = "trees everything old any-version no-version in-use weed-set all-plants listed pots-set";
    let systems = [
        (PLANTS, None, "apple"),
        (PLANTS, None, "elm"),
        (PLANTS, None, "nothing"),
        (PLANTS, Some("1.0.0"), "apple"),
        (PLANTS, Some("0.9.0"), "tree"),
        (PLANTS, Some("7"), "apple"),
        ("http://garden.example/tools", None, "RAKE"),
        ("http://garden.example/weeds", None, "thistle"),
        ("http://garden.example/pots", None, "clay"),
        ("http://nobody.example/", None, "x"),
        ("http://nobody.example/", Some("1"), "x"),
    ];
    let pin = |name: &str| format!(r#",{{"name":"{name}","valueCanonical":"{PLANTS}|0.9.x"}}"#);
    let mut more = ["system-version", "check-system-version", "force-system-version"].map(pin).to_vec();
    more.push(String::new());
    more.push(r#",{"name":"uuid","valueString":"u"}"#.to_owned());
    more.push(r#",{"name":"abstract","valueBoolean":false}"#.to_owned());
    for (set, (system, version, code)) in
        sets.split(' ').flat_map(|set| systems.into_iter().map(move |system| (set, system)))
    {
        for more in &more {
            let url = format!(r#"{{"name":"url","valueUri":"http://garden.example/{set}"}}"#);
            let [by_code, coding, concept] = forms(system, version, code).map(|(place, subject)| {
                let response = answer(&garden, &format!("{url},{subject}{more}"));
                let own =
                    |text: &str| text.contains("in the value set") || text.contains("for the value set");
                let issues: Vec<_> = issues(&response)
                    .into_iter()
                    .filter(|(text, _)| !own(text))
                    .map(|(text, path)| {
                        let member = path.strip_prefix(place).unwrap_or(&path).trim_start_matches('.');
                        (text, if member == "code" { String::new() } else { member.to_owned() })
                    })
                    .collect();
                (response, issues)
            });
            let about = format!("{set} {system} {version:?} {code} {more}");
            assert_eq!(by_code.1, coding.1, "{about}");
            assert_eq!(by_code.1, concept.1, "{about}");
            let [by_code, coding, concept] = [&by_code.0, &coding.0, &concept.0].map(said_beside_issues);
            assert_eq!(by_code, coding, "{about}");
            // The answer to a concept without a valid coding has fewer parameters.
            let count = if concept[0]["valueBoolean"] == true { concept.len() } else { 1 };
            assert_eq!(by_code[..count], concept[..count], "{about}");
        }
    }
}

#[test]
fn the_kind_of_issue_decides_on_location_in_the_ecosystem() {
    let garden = garden();
    garden.apply([put(
        r#"{"resourceType":"CodeSystem","id":"stones","url":"urn:stones","status":"active","content":"complete",
            "concept":[{"code":"any","property":[{"code":"notSelectable","valueBoolean":true}]}]}"#,
    ), put(
        r#"{"resourceType":"ValueSet","id":"ground","url":"http://garden.example/ground","status":"active",
            "compose":{"include":[{"system":"urn:stones"}]}}"#,
    )]);
    let tools = "http://garden.example/tools";
    let nobody = "http://nobody.example/";
    // The expected values state whether the answer has a `location`: for each form in the order of `forms`,
    // and for a coding with a display.
    for (set, system, code, expected) in [
        ("everything", tools, "hammer", [false, true, false, false]),
        ("trees", tools, "rake", [false, true, false, false]),
        ("trees", nobody, "x", [true, true, true, true]),
        ("everything", PLANTS, "hammer", [false, false, false, false]),
        ("trees", PLANTS, "stone", [false, false, false, false]),
        ("ground", "urn:stones", "any", [false, false, false, false]),
        ("in-use", PLANTS, "elm", [false, false, false, false]),
        ("no-version", PLANTS, "apple", [true, true, true, true]),
        ("weed-set", "http://garden.example/weeds", "thistle", [true, true, true, true]),
        ("everything", tools, "RAKE", [true, true, true, true]),
    ] {
        let [by_code, coding, concept] = forms(system, None, code).map(|(_, subject)| subject);
        let with_display = coding.replace(r#""code":"#, r#""display":"Something","code":"#);
        for (subject, expected) in [by_code, coding, concept, with_display].iter().zip(expected) {
            let response = answer(
                &garden,
                &format!(
                    r#"{{"name":"url","valueUri":"http://garden.example/{set}"}},{{"name":"uuid","valueString":"u"}},
                       {{"name":"abstract","valueBoolean":false}},{subject}"#
                ),
            );
            let has_location = response.to_string().contains(r#""location""#);
            assert_eq!(has_location, expected, "{set} {subject}: {response}");
        }
    }
    for (subject, expected) in [
        (r#"{"name":"code","valueCode":"oak"},{"name":"inferSystem","valueBoolean":true}"#, true),
        (
            r#"{"name":"code","valueCode":"pear"},{"name":"system","valueUri":"http://garden.example/plants"},{"name":"display","valueString":"Plum"}"#,
            false,
        ),
        (
            r#"{"name":"code","valueCode":"rake"},{"name":"system","valueUri":"http://garden.example/tools"},{"name":"display","valueString":"Hoe"}"#,
            true,
        ),
    ] {
        let url = r#"{"name":"url","valueUri":"http://garden.example/everything"},{"name":"uuid","valueString":"u"}"#;
        let response = answer(&garden, &format!("{url},{subject}"));
        assert_eq!(response.to_string().contains(r#""location""#), expected, "{subject}: {response}");
    }
}

#[test]
fn only_a_coding_requires_an_absolute_system() {
    let garden = garden();
    let must = "Coding.system must be an absolute reference, not a local reference";
    let unknown = "A definition for CodeSystem 'shed' could not be found, so the code cannot be validated";
    for ((place, subject), expected) in forms("shed", None, "x").iter().zip([unknown, must, must]) {
        let url =
            r#"{"name":"url","valueUri":"http://garden.example/trees"},{"name":"uuid","valueString":"u"}"#;
        let response = answer(&garden, &format!("{url},{subject}"));
        let at = format!("{place}.system");
        let issue = (expected.to_owned(), at.trim_start_matches('.').to_owned());
        assert!(issues(&response).contains(&issue), "{response}");
        let names = |p: &serde_json::Value| p["name"] == "x-unknown-system" && p["valueCanonical"] == "shed";
        let is_missing = response["parameter"].as_array().unwrap().iter().any(names);
        assert_eq!(is_missing, expected == unknown, "{response}");
    }
}

#[test]
fn resources_not_meant_for_use_are_reported() {
    let terminology = Terminology::default();
    let status = |status: &str| {
        format!(
            r#""extension":[{{"url":"http://hl7.org/fhir/StructureDefinition/structuredefinition-standards-status","valueCode":"{status}"}}],"#
        )
    };
    let system = |id: &str, more: &str| {
        put(&format!(
            r#"{{"resourceType":"CodeSystem","id":"{id}","url":"urn:{id}","version":"1",{more},"content":"complete","concept":[{{"code":"a"}}]}}"#
        ))
    };
    let set = |id: &str, more: &str, include: &str| {
        put(&format!(
            r#"{{"resourceType":"ValueSet","id":"{id}","url":"urn:vs-{id}",{more},"compose":{{"include":[{include}]}}}}"#
        ))
    };
    let of = |system: &str| format!(r#"{{"system":"urn:{system}"}}"#);
    terminology.apply([
        system("draft", r#""status":"draft""#),
        system("gone", &format!(r#"{}"status":"active""#, status("withdrawn"))),
        system("retired", r#""status":"retired""#),
        system("trial", r#""status":"active","experimental":true"#),
        set("on-draft", r#""status":"active""#, &of("draft")),
        set("draft-on-draft", r#""status":"draft""#, &of("draft")),
        set("on-gone", &format!(r#"{}"status":"active""#, status("withdrawn")), &of("gone")),
        set("on-retired", r#""status":"active""#, &of("retired")),
        set("on-trial", r#""status":"active""#, &of("trial")),
        set("trial-on-trial", r#""status":"active","experimental":true"#, &of("trial")),
        set("import", r#""status":"active""#, r#"{"valueSet":["urn:vs-on-gone"]}"#),
    ]);
    for (set, system, expected) in [
        ("on-draft", "draft", "draft CodeSystem urn:draft|1"),
        ("draft-on-draft", "draft", ""),
        ("on-gone", "gone", "withdrawn CodeSystem urn:gone|1, withdrawn ValueSet urn:vs-on-gone"),
        ("on-retired", "retired", "retired CodeSystem urn:retired|1"),
        ("on-trial", "trial", "experimental CodeSystem urn:trial|1"),
        ("trial-on-trial", "trial", ""),
        ("import", "gone", "withdrawn CodeSystem urn:gone|1, withdrawn ValueSet urn:vs-on-gone"),
    ] {
        let response = answer(
            &terminology,
            &format!(
                r#"{{"name":"url","valueUri":"urn:vs-{set}"}},{{"name":"coding","valueCoding":{{"system":"urn:{system}","code":"a"}}}}"#
            ),
        );
        let texts: Vec<_> =
            issues(&response).into_iter().map(|(text, _)| text.replace("Reference to ", "")).collect();
        assert_eq!(texts.join(", "), expected, "{set}");
    }
}

#[test]
fn languages_are_from_request_value_set_and_header() {
    let terminology = Terminology::default();
    let parameter = |language: &str| {
        format!(
            r#""extension":[{{"url":"http://hl7.org/fhir/StructureDefinition/valueset-expansion-parameter","extension":[{{"url":"name","valueString":"displayLanguage"}},{{"url":"value","valueCode":"{language}"}}]}}],"#
        )
    };
    let set = |id: &str, own: &str, fixed: &str| {
        put(&format!(
            r#"{{"resourceType":"ValueSet","id":"{id}","url":"urn:{id}","status":"active"{own},"compose":{{{fixed}"include":[{{"system":"urn:s"}}]}}}}"#
        ))
    };
    terminology.apply([
        put(
            r#"{"resourceType":"CodeSystem","id":"s","url":"urn:s","status":"active","content":"complete","language":"en",
            "concept":[{"code":"a","display":"Apple","designation":[{"language":"de-CH","value":"Apfel"},
            {"language":"de","use":{"system":"urn:uses","code":"old"},"value":"Paradiesapfel"}]}]}"#,
        ),
        set("plain", "", ""),
        set("own", r#","language":"de""#, ""),
        set("fixed", r#","language":"en""#, &parameter("de")),
    ]);
    let request = |set: &str, display: &str, languages: &str, header: Option<&str>| {
        let languages =
            if languages.is_empty() { String::new() } else { format!("&displayLanguage={languages}") };
        let query = Parameters::from_query(&format!(
            "url=urn:{set}&system=urn:s&code=a&display={display}{languages}"
        ));
        let response = run(
            &terminology,
            TerminologyOperation::ValidateCode,
            OperationLevel::Type,
            OperationInput::from_query(&query).accept_language(header),
        )
        .unwrap();
        let result = response.get("result").unwrap().value == Some(fhir::Value::Boolean(true));
        (result, response.text("message").unwrap_or_default().to_owned())
    };
    for (set, display, languages, header, expected) in [
        ("plain", "Apple", "", None, true),
        ("plain", "apple", "", None, true),
        ("plain", "Apfel", "", None, true),
        ("plain", "Paradiesapfel", "", None, true),
        ("plain", "Apple", "de", None, false),
        ("plain", "Apfel", "de-AT", None, true),
        ("plain", "Apple", "de,*;q=0.1", None, true),
        ("plain", "Apple", "fr", None, true),
        ("plain", "Apple", "fr,*;q=0", None, false),
        ("plain", "Apple", "", Some("de"), false),
        ("plain", "Apple", "en", Some("de"), true),
        ("own", "Apple", "", None, false),
        ("own", "Apple", "", Some("en"), true),
        ("fixed", "Apple", "", Some("en"), false),
        ("fixed", "Apple", "en", None, true),
    ] {
        let (result, message) = request(set, display, languages, header);
        assert_eq!(result, expected, "{set} {display} '{languages}' {header:?}: {message}");
    }
    assert_eq!(
        request("plain", "Pear", "de, en;q=0.5", None).1,
        "Wrong Display Name 'Pear' for urn:s#a. Valid display is one of 2 choices: 'Apple' (en) or 'Apfel' (de-CH) (for the language(s) 'de, en; q=0.5')"
    );
}
