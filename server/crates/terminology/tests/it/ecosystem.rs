//! Additions of HL7's terminology ecosystem to `$validate-code`, and `CodeSystem/$validate-code`, including variants
//! that HL7's suite does not cover.

use fhir::Parameters;
use trefoil_terminology::{OperationInput, OperationLevel, Terminology};

use crate::support::{PLANTS, body, garden, put, validate, validate_body, validate_in_system};

/// Returns the answer to a body with these items, as JSON.
fn answer(terminology: &Terminology, parameters: &str) -> serde_json::Value {
    let body = body(parameters);
    let answer =
        terminology.validate_code(OperationLevel::Type, OperationInput::from_body(&body)).expect("an answer");
    serde_json::to_value(&answer).expect("these types serialise to JSON")
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
fn issues(answer: &serde_json::Value) -> Vec<(String, String)> {
    let parameters = answer["parameter"].as_array().into_iter().flatten();
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
fn said_beside_issues(answer: &serde_json::Value) -> Vec<&serde_json::Value> {
    let of_the_form = ["issues", "message", "codeableConcept"];
    let parameters = answer["parameter"].as_array().into_iter().flatten();
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
        sets.split(' ').flat_map(|set| systems.into_iter().map(move |asked| (set, asked)))
    {
        for more in &more {
            let url = format!(r#"{{"name":"url","valueUri":"http://garden.example/{set}"}}"#);
            let [by_code, coding, concept] = forms(system, version, code).map(|(place, subject)| {
                let answer = answer(&garden, &format!("{url},{subject}{more}"));
                let own =
                    |text: &str| text.contains("in the value set") || text.contains("for the value set");
                let issues: Vec<_> = issues(&answer)
                    .into_iter()
                    .filter(|(text, _)| !own(text))
                    .map(|(text, path)| {
                        let member = path.strip_prefix(place).unwrap_or(&path).trim_start_matches('.');
                        (text, if member == "code" { String::new() } else { member.to_owned() })
                    })
                    .collect();
                (answer, issues)
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
fn plain_answers_have_location_and_expression() {
    let garden = garden();
    let plain = answer(
        &garden,
        r#"{"name":"url","valueUri":"http://garden.example/trees"},
           {"name":"coding","valueCoding":{"system":"http://garden.example/plants","code":"nothing"}}"#,
    );
    let issue = &plain["parameter"].as_array().unwrap().iter().find(|p| p["name"] == "issues").unwrap()["resource"]
        ["issue"][0];
    assert_eq!(issue["location"], issue["expression"]);
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
    // For each form, in the order of `forms`, and for a coding with a display: whether there is a location.
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
        let shown = coding.replace(r#""code":"#, r#""display":"Something","code":"#);
        for (subject, expected) in [by_code, coding, concept, shown].iter().zip(expected) {
            let answer = answer(
                &garden,
                &format!(
                    r#"{{"name":"url","valueUri":"http://garden.example/{set}"}},{{"name":"uuid","valueString":"u"}},
                       {{"name":"abstract","valueBoolean":false}},{subject}"#
                ),
            );
            let found = answer.to_string().contains(r#""location""#);
            assert_eq!(found, expected, "{set} {subject}: {answer}");
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
        let answer = answer(&garden, &format!("{url},{subject}"));
        assert_eq!(answer.to_string().contains(r#""location""#), expected, "{subject}: {answer}");
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
        let answer = answer(&garden, &format!("{url},{subject}"));
        let at = format!("{place}.system");
        let told = (expected.to_owned(), at.trim_start_matches('.').to_owned());
        assert!(issues(&answer).contains(&told), "{answer}");
        let names = |p: &serde_json::Value| p["name"] == "x-unknown-system" && p["valueCanonical"] == "shed";
        let is_missing = answer["parameter"].as_array().unwrap().iter().any(names);
        assert_eq!(is_missing, expected == unknown, "{answer}");
    }
}

#[test]
fn an_unknown_import_is_a_negative_answer_in_the_ecosystem() {
    let garden = garden();
    let coding =
        r#"{"name":"coding","valueCoding":{"system":"http://garden.example/plants","code":"apple"}}"#;
    let url = r#"{"name":"url","valueUri":"http://garden.example/dangling"}"#;
    assert!(validate_body(&garden, &[coding, url].join(",")).starts_with("UnknownValueSet(invalid)"));
    let uuid = r#"{"name":"uuid","valueString":"u"}"#;
    assert_eq!(
        validate_body(&garden, &[coding, url, uuid].join(",")),
        "false [A definition for the value Set 'http://garden.example/nowhere|3' could not be found]"
    );
}

#[test]
fn an_unknown_pinned_version_of_a_value_set_is_named() {
    let garden = garden();
    garden.apply([put(
        r#"{"resourceType":"ValueSet","id":"wood","url":"http://garden.example/wood","status":"active",
            "compose":{"include":[{"valueSet":["http://garden.example/trees"]}]}}"#,
    )]);
    let request = |set: &str, version: &str| {
        validate_body(
            &garden,
            &format!(
                r#"{{"name":"url","valueUri":"http://garden.example/{set}"}},
                   {{"name":"default-valueset-version","valueCanonical":"http://garden.example/trees|{version}"}},
                   {{"name":"coding","valueCoding":{{"system":"{PLANTS}","code":"apple"}}}}"#
            ),
        )
    };
    assert_eq!(request("wood", "2"), "true [Apple tree]");
    assert_eq!(request("trees", "2"), "true [Apple tree]");
    let unknown = "A definition for the value Set 'http://garden.example/trees|3' could not be found";
    assert_eq!(request("wood", "3"), format!("false [{unknown}]"));
    assert_eq!(request("trees", "3"), format!("UnknownValueSet(not-found): {unknown}"));
}

#[test]
fn a_set_that_keeps_versions_apart_excludes_in_one_version_only() {
    let garden = garden();
    let set = |id: &str, extension: &str| {
        put(&format!(
            r#"{{"resourceType":"ValueSet","id":"{id}","url":"http://garden.example/{id}","status":"active",
                "compose":{{{extension}"include":[{{"system":"{PLANTS}","version":"1.0.0"}}],
                "exclude":[{{"system":"{PLANTS}","version":"0.9.0"}}]}}}}"#
        ))
    };
    let extension = |value: &str| {
        format!(
            r#""extension":[{{"url":"http://hl7.org/fhir/StructureDefinition/valueset-expansion-parameter",
                "extension":[{{"url":"name","valueCode":"versionsMatch"}},{{"url":"value",{value}}}]}}],"#
        )
    };
    garden.apply([
        set("silent", ""),
        set("merged", &extension(r#""valueString":"true""#)),
        set("apart", &extension(r#""valueString":"false""#)),
    ]);
    for (set, expected) in [("silent", "false [Tree]"), ("merged", "false [Tree]"), ("apart", "true [Tree]")]
    {
        let query = format!("url=http://garden.example/{set}&system={PLANTS}&code=tree");
        let answer = validate(&garden, OperationLevel::Type, &query);
        assert!(answer.starts_with(expected), "{set}: {answer}");
    }
}

#[test]
fn a_supplement_extends_the_version_that_it_names() {
    let garden = garden();
    garden.apply([put(
        r#"{"resourceType":"CodeSystem","id":"words","url":"urn:words","status":"active","content":"supplement",
            "supplements":"http://garden.example/plants|0.9.0","concept":[{"code":"tree",
            "designation":[{"language":"de","value":"Baum"}]}]}"#,
    )]);
    for (set, expected) in [("old", "true [Old tree]"), ("trees", "false [Tree]")] {
        let query = format!(
            "url=http://garden.example/{set}&system={PLANTS}&code=tree&display=Baum&useSupplement=urn:words"
        );
        let answer = validate(&garden, OperationLevel::Type, &query);
        assert!(answer.starts_with(expected), "{set}: {answer}");
    }
}

#[test]
fn a_system_may_include_its_version() {
    let garden = garden();
    for (system, version) in [
        (format!("{PLANTS}|0.9.0"), ""),
        (PLANTS.to_owned(), "&systemVersion=0.9.0"),
        (format!("{PLANTS}|1.0.0"), "&systemVersion=0.9.0"),
    ] {
        let query = format!("url=http://garden.example/everything&system={system}{version}&code=tree");
        let answer = validate(&garden, OperationLevel::Type, &query);
        assert!(answer.ends_with("is different to the one in the value ('0.9.0')]"), "{query}: {answer}");
    }
}

#[test]
fn contained_value_sets_are_found_by_their_id() {
    let garden = garden();
    let coding =
        |code: &str| format!(r#"{{"name":"coding","valueCoding":{{"system":"{PLANTS}","code":"{code}"}}}}"#);
    let set = |imports: &str| {
        format!(
            r##"{{"name":"valueSet","resource":{{"resourceType":"ValueSet","status":"active","contained":[
            {{"resourceType":"ValueSet","id":"a","status":"active","compose":{{"include":[{{"system":"{PLANTS}","concept":[{{"code":"apple"}},{{"code":"pear"}}]}}]}}}},
            {{"resourceType":"ValueSet","id":"b","status":"active","compose":{{"include":[{{"valueSet":["#a"]}}],"exclude":[{{"system":"{PLANTS}","concept":[{{"code":"pear"}}]}}]}}}},
            {{"resourceType":"Basic","id":"c"}}],
            "compose":{{"include":[{{"valueSet":[{imports}]}}]}}}}}}"##
        )
    };
    for (imports, code, expected) in [
        (r##""#a""##, "pear", "true [Pear tree]"),
        (r##""#b""##, "apple", "true [Apple tree]"),
        (r##""#b""##, "pear", "false [Pear tree]"),
        (r##""#a","http://garden.example/crops""##, "apple", "false [Apple tree]"),
        (r##""#a","http://garden.example/crops""##, "pear", "true [Pear tree]"),
        (r##""#c""##, "pear", "UnknownValueSet(invalid): A definition for the value Set '#c' could not"),
    ] {
        let answer = validate_body(&garden, &format!("{},{}", coding(code), set(imports)));
        assert!(answer.starts_with(expected), "{imports} {code}: {answer}");
    }
    let of = |url: &str| {
        format!(r##"{},{},{{"name":"url","valueUri":"{url}"}}"##, coding("pear"), set(r##""#b""##))
    };
    assert_eq!(validate_body(&garden, &of("#a")), "true [Pear tree]");
    assert_eq!(validate_body(&garden, &of("#b")).split(" [").next(), Some("false"));
    assert!(validate_body(&garden, &of("#none")).starts_with("UnknownValueSet(invalid)"));
    let nested = r#"{"name":"valueSet","resource":{"resourceType":"ValueSet","contained":[{"resourceType":"ValueSet","id":"a","contained":[{"resourceType":"ValueSet","id":"b"}]}]}}"#;
    assert!(validate_body(&garden, &format!("{},{nested}", coding("pear"))).contains("dom-2"));
}

#[test]
fn a_day_selects_versions_that_are_not_named() {
    let terminology = Terminology::default();
    let system = |version: &str, date: &str, code: &str| {
        put(&format!(
            r#"{{"resourceType":"CodeSystem","id":"s{version}","url":"urn:s","version":"{version}","date":"{date}","status":"active","content":"complete","concept":[{{"code":"{code}"}}]}}"#
        ))
    };
    let set = |id: &str, locked: &str| {
        put(&format!(
            r#"{{"resourceType":"ValueSet","id":"{id}","url":"urn:{id}","status":"active","compose":{{{locked}"include":[{{"system":"urn:s"}}]}}}}"#
        ))
    };
    terminology.apply([
        system("1", "2024-05", "old"),
        system("2", "2026-01-31T10:00:00Z", "new"),
        set("any", ""),
        set("locked", r#""lockedDate":"2025-01-01","#),
        set("early", r#""lockedDate":"2020-01-01","#),
    ]);
    for (query, expected) in [
        ("url=urn:any&code=new", "true"),
        ("url=urn:any&code=old", "false"),
        ("url=urn:any&code=old&date=2025-06", "true"),
        ("url=urn:any&code=new&date=2026-01-31", "true"),
        ("url=urn:any&code=new&date=2026-01-31T12:00:00Z", "true"),
        ("url=urn:locked&code=old", "true"),
        ("url=urn:locked&code=old&date=2026-06-01", "true"),
        ("url=urn:locked&code=new", "false"),
        ("url=urn:early&code=old", "false [A definition for CodeSystem 'urn:s' could not be found"),
        ("url=urn:any&code=old&date=soon", "Malformed(invalid): parameter 'date': 'soon' is not a date"),
    ] {
        let answer = validate(&terminology, OperationLevel::Type, &format!("{query}&system=urn:s"));
        assert!(answer.starts_with(expected), "{query}: {answer}");
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
        let answer = answer(
            &terminology,
            &format!(
                r#"{{"name":"url","valueUri":"urn:vs-{set}"}},{{"name":"coding","valueCoding":{{"system":"urn:{system}","code":"a"}}}}"#
            ),
        );
        let texts: Vec<_> =
            issues(&answer).into_iter().map(|(text, _)| text.replace("Reference to ", "")).collect();
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
        let answer = terminology
            .validate_code(OperationLevel::Type, OperationInput::from_query(&query).accept_language(header))
            .unwrap();
        let result = answer.get("result").unwrap().value == Some(fhir::Value::Boolean(true));
        (result, answer.text("message").unwrap_or_default().to_owned())
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

#[test]
fn a_code_system_validates_codes_by_the_same_rules() {
    let garden = garden();
    let url = format!("url={PLANTS}");
    for (query, expected) in [
        (format!("{url}&code=apple"), "true [Apple tree]"),
        (format!("system={PLANTS}&code=apple"), "true [Apple tree]"),
        (format!("{url}&version=0.9.0&code=fern"), "true [Fern]"),
        (format!("{url}|0.9.0&code=fern"), "true [Fern]"),
        (format!("{url}&version=0.x.x&code=fern"), "true [Fern]"),
        (format!("{url}&code=apple&display=Apfelbaum"), "true [Apple tree]"),
        (format!("{url}&code=apple&display=Apfelbaum&displayLanguage=de"), "true [Apfelbaum]"),
        (format!("{url}&code=apple&display=Plum"), "false [Apple tree] [Wrong Display Name 'Plum'"),
        (
            format!("{url}&code=apple&display=Plum&lenient-display-validation=true"),
            "true [Apple tree] [Wrong",
        ),
        (format!("{url}&code=plant"), "true [Plant]"),
        (
            format!("{url}&code=plant&abstract=false"),
            "false [Plant] [Code 'http://garden.example/plants#plant' is abstract",
        ),
        (format!("{url}&code=elm"), "true [Elm] [The concept 'elm' has a status of retired and inactive"),
        (
            format!("{url}&code=oak"),
            "false [Unknown code 'oak' in the CodeSystem 'http://garden.example/plants' version '1.0.0']",
        ),
        (
            format!("{url}&version=7&code=apple"),
            "false [A definition for CodeSystem 'http://garden.example/plants' version '7' could not be found",
        ),
        ("url=http://garden.example/tools&code=RAKE".into(), "true [Rake]"),
        ("url=http://garden.example/weeds&code=thistle".into(), "true"),
        (
            "url=http://garden.example/pots&code=clay".into(),
            "false [A definition for CodeSystem 'http://garden.example/pots' could not",
        ),
        (
            "url=http://garden.example/empty&code=x".into(),
            "false [A definition for CodeSystem 'http://garden.example/empty' could not",
        ),
        (
            "url=http://garden.example/trees&code=x".into(),
            "false [The Coding references a value set, not a code system",
        ),
        ("url=plants&code=x".into(), "false [A definition for CodeSystem 'plants' could not be found"),
        ("code=apple".into(), "Missing(required): parameter 'url' is needed"),
        (url.clone(), "NothingToValidate(required): Unable to find code to validate"),
    ] {
        let answer = validate_in_system(&garden, OperationLevel::Type, &query);
        assert!(answer.starts_with(expected), "{query}: {answer}");
    }
    let at = |id, query: &str| validate_in_system(&garden, OperationLevel::Instance(id), query);
    assert_eq!(at("plants", "code=apple"), "true [Apple tree]");
    assert_eq!(at("plants-0", "code=fern"), "true [Fern]");
    assert!(at("plants", "code=fern").starts_with("false"));
    assert!(at("nothing", "code=fern").starts_with("UnknownInstance"));
    assert!(at("plants", "url=http://garden.example/tools&code=rake").starts_with("Malformed(invalid)"));
}

#[test]
fn a_code_system_in_the_request_must_match_the_codings() {
    let garden = garden();
    let request = |parameters: &str| {
        let body = body(parameters);
        crate::support::short(
            garden.validate_code_in_system(OperationLevel::Type, OperationInput::from_body(&body)),
        )
    };
    let pots = r#"{"name":"codeSystem","resource":{"resourceType":"CodeSystem","url":"http://garden.example/pots","status":"active","content":"complete","concept":[{"code":"clay","display":"Clay"}]}}"#;
    let coding = |system: &str, code: &str| {
        format!(r#"{{"name":"coding","valueCoding":{{"system":"{system}","code":"{code}"}}}}"#)
    };
    let clay = coding("http://garden.example/pots", "clay");
    assert_eq!(request(&format!("{pots},{clay}")), "true [Clay]");
    assert!(request(&clay).starts_with("false [A definition for CodeSystem"));
    assert!(request(&format!("{pots},{}", coding(PLANTS, "apple"))).starts_with("Malformed(invalid)"));
    assert_eq!(request(&coding(PLANTS, "apple")), "true [Apple tree]");
    assert!(
        request(r#"{"name":"coding","valueCoding":{"code":"apple"}}"#)
            .starts_with("false [Coding has no system")
    );
    let concept = |codings: &str| {
        format!(
            r#"{{"name":"url","valueUri":"{PLANTS}"}},{{"name":"codeableConcept","valueCodeableConcept":{{"coding":[{codings}]}}}}"#
        )
    };
    let other = r#"{"system":"http://nobody.example/","code":"x"}"#;
    let apple = format!(r#"{{"system":"{PLANTS}","code":"apple"}}"#);
    let oak = format!(r#"{{"system":"{PLANTS}","code":"oak"}}"#);
    assert_eq!(request(&concept(&format!("{other},{apple}"))), "true [Apple tree]");
    assert!(request(&concept(&format!("{other},{oak}"))).starts_with("false [Unknown code 'oak'"));
    assert!(request(&concept(other)).starts_with("false [None of the codings is of the code system"));
}

#[test]
fn a_batch_answers_each_item_separately() {
    let garden = garden();
    let item = |parameters: &str| {
        format!(
            r#"{{"name":"validation","resource":{{"resourceType":"Parameters","parameter":[{parameters}]}}}}"#
        )
    };
    let coding = |code: &str, display: &str| {
        format!(
            r#"{{"name":"coding","valueCoding":{{"system":"{PLANTS}","code":"{code}","display":"{display}"}}}}"#
        )
    };
    let shared = r#"{"name":"url","valueUri":"http://garden.example/trees"},{"name":"lenient-display-validation","valueBoolean":"true"}"#;
    let items = [
        item(&coding("apple", "Plum")),
        item(&format!(
            r#"{},{{"name":"lenient-display-validation","valueBoolean":false}}"#,
            coding("apple", "Plum")
        )),
        item(&format!(
            r#"{},{{"name":"url","valueUri":"http://garden.example/crops"}}"#,
            coding("apple", "Apple tree")
        )),
        item(r#"{"name":"codingX","valueCode":"x"}"#),
        item(&format!(r#"{},{{"name":"url","valueUri":"http://garden.example/none"}}"#, coding("apple", ""))),
        r#"{"name":"validation","resource":{"resourceType":"Patient"}}"#.to_owned(),
    ];
    let body = body(&format!("{shared},{}", items.join(",")));
    let answer = garden.batch_validate_code(OperationInput::from_body(&body)).unwrap();
    let answer = serde_json::to_value(&answer).unwrap();
    let told: Vec<_> = answer["parameter"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| match &one["resource"]["issue"] {
            serde_json::Value::Null => one["resource"]["parameter"][0]["valueBoolean"].to_string(),
            issues => issues[0]["code"].to_string(),
        })
        .collect();
    assert_eq!(told, ["true", "false", "false", r#""invalid""#, r#""not-found""#, r#""invalid""#]);
    let empty = crate::support::body(shared);
    assert!(garden.batch_validate_code(OperationInput::from_body(&empty)).is_err());
}

#[test]
fn a_context_without_a_binding_is_rejected_unless_url_is_present() {
    let garden = garden();
    let coded = format!(
        "system={PLANTS}&code=apple&context=http://hl7.org/fhir/StructureDefinition/Observation%23code"
    );
    assert!(
        validate(&garden, OperationLevel::Type, &coded)
            .starts_with("Malformed(invalid): parameter 'context'")
    );
    assert_eq!(
        validate(&garden, OperationLevel::Type, &format!("{coded}&url=http://garden.example/trees")),
        "true [Apple tree]"
    );
}
