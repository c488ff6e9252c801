//! `ValueSet/$expand` and `CodeSystem/$lookup`.

use fhir::{Parameters, Value};
use serde_json::{Value as Json, json};
use trefoil_terminology::{OperationInput, OperationLevel, Terminology, TxError};

use crate::support::{garden, put, short, validate};

const NOW: &str = "2026-11-21T12:00:00.000Z";

/// Runs `$expand` by GET and returns JSON.
fn expand(terminology: &Terminology, level: OperationLevel<'_>, query: &str) -> Result<Json, TxError> {
    let query = Parameters::from_query(query);
    let answer = terminology.expand(level, OperationInput::from_query(&query), NOW)?;
    Ok(serde_json::from_str(answer.get()).expect("the server writes JSON"))
}

/// Returns the codes of an expansion in order, children in brackets after their parent, with the marks `!` (inactive),
/// `?` (abstract) and `=display`.
fn codes(contains: &Json) -> String {
    let item = |item: &Json| {
        let mark = |name, mark| if item[name] == true { mark } else { "" };
        let version = item["version"].as_str().map(|version| format!("@{version}")).unwrap_or_default();
        let below = match &item["contains"] {
            Json::Null => String::new(),
            below => format!("({})", codes(below)),
        };
        let code = item["code"].as_str().expect("a code");
        format!("{code}{version}{}{}{below}", mark("inactive", "!"), mark("abstract", "?"))
    };
    contains.as_array().map_or(String::new(), |list| list.iter().map(item).collect::<Vec<_>>().join(" "))
}

#[track_caller]
fn check(query: &str, expected: &str) {
    let actual = match expand(&garden(), OperationLevel::Type, &format!("url=http://garden.example/{query}"))
    {
        Ok(set) => format!("{}: {}", set["expansion"]["total"], codes(&set["expansion"]["contains"])),
        Err(error) => short(Err(error)),
    };
    assert_eq!(actual.trim_end(), expected, "{query}");
}

#[test]
fn designations_of_a_set_add_to_the_display_of_the_system() {
    let garden = garden();
    garden.apply([put(
        r#"{"resourceType":"ValueSet","id":"named","url":"http://garden.example/named","status":"active","compose":{"include":[
            {"system":"http://garden.example/plants","concept":[
            {"code":"apple","designation":[{"language":"de","value":"Apfel"}]},
            {"code":"pear","display":"Pear","designation":[{"language":"de","value":"Birne"}]}]}]}}"#,
    )]);
    for (language, apple, pear) in [
        ("", "Apple tree", "Pear"),
        ("&displayLanguage=de", "Apfel", "Birne"),
        ("&displayLanguage=en", "Apple tree", "Pear tree"),
        ("&displayLanguage=fr", "Apple tree", "Pear"),
    ] {
        let query = format!("url=http://garden.example/named{language}");
        let set = expand(&garden, OperationLevel::Type, &query).unwrap();
        let contains = &set["expansion"]["contains"];
        assert_eq!(
            (&contains[0]["display"], &contains[1]["display"]),
            (&json!(apple), &json!(pear)),
            "{query}"
        );
        for (code, display) in [("apple", apple), ("pear", pear)] {
            let query = format!("{query}&system=http://garden.example/plants&code={code}&display={display}");
            assert!(
                validate(&garden, OperationLevel::Type, &query).starts_with(&format!("true [{display}]")),
                "{query}"
            );
        }
    }
    let known =
        "url=http://garden.example/named&system=http://garden.example/plants&code=apple&display=Apfel";
    assert_eq!(validate(&garden, OperationLevel::Type, known), "true [Apple tree]");
}

#[test]
fn an_expansion_has_the_order_and_hierarchy_of_the_set() {
    check("trees", "4: tree(apple elm! pear)");
    check("trees&excludeNested=true", "4: tree apple elm! pear");
    check("in-use", "3: tree(apple pear)");
    check("trees&activeOnly=true", "3: tree(apple pear)");
    check("listed", "3: apple crop clay");
    check("both", "1: pear");
    check("everything", "8: plant? tree apple elm! pear crop Spade rake");
    check("expanded", "1: apple");
    check("weed-set", "1: nettle");
    check("old", "2: fern tree");
    check(
        "any-version",
        "10: rose@9.0.0 plant@1.0.0?(tree@1.0.0(apple@1.0.0 elm@1.0.0! pear@1.0.0) crop@1.0.0) stone@1.0.0 fern@0.9.0 tree@0.9.0",
    );
    check("all-plants", "7: plant?(tree(apple elm! pear) crop) stone");
}

#[test]
fn pages_and_filters_select_codes() {
    check("everything&count=3", "8: plant? tree apple");
    check("everything&offset=5&count=2", "8: crop Spade");
    check("everything&offset=7", "8: rake");
    check("everything&offset=8&count=5", "8:");
    check("everything&count=0", "8:");
    check("trees&filter=TR", "3: tree apple pear");
    check("trees&filter=tree%20app", "1: apple");
    check("trees&filter=apfel", "1: apple");
    check("trees&filter=ple", "0:");
    check("trees&filter=", "4: tree(apple elm! pear)");
    check("listed&filter=harv", "1: crop");
    check("everything&exclude-system=http://garden.example/plants", "2: Spade rake");
}

#[test]
fn value_sets_that_cannot_be_expanded_are_rejected() {
    check(
        "nowhere",
        "UnknownValueSet(invalid): A definition for the value Set 'http://garden.example/nowhere' could not be found",
    );
    check(
        "nowhere&activeOnly=true",
        "UnknownValueSet(not-found): A definition for the value Set 'http://garden.example/nowhere' could not be found",
    );
    check(
        "circle-1",
        "Unprocessable(processing): Cyclic reference detected when including http://garden.example/circle-1 via http://garden.example/circle-2 via http://garden.example/circle-1",
    );
    check(
        "no-value",
        "Unprocessable(invalid): The system http://garden.example/plants filter with property = concept, op = is-a has no value",
    );
    check(
        "no-version",
        "Unprocessable(not-found): A definition for CodeSystem 'http://garden.example/plants' version '7' could not be found, so the value set cannot be expanded. Valid versions: 0.9.0, 1.0.0 and 9.0.0",
    );
    check(
        "pots-set",
        "Unprocessable(not-found): A definition for CodeSystem 'http://garden.example/pots' could not be found, so the value set cannot be expanded",
    );
    check("trees&displayLanguage=-", "DisplayLanguage(processing): Invalid displayLanguage: '-'");
    check(
        "trees&count=-1",
        "Malformed(invalid): parameter 'count': it must be an integer that is not negative",
    );
    check(
        "trees&count=1&count=2",
        "Malformed(invalid): parameter 'count': it occurs more than once; send it once",
    );
    check("trees&useSupplement=urn:x", "Unprocessable(not-found): Required supplement not found: urn:x");
    check(
        "trees&check-system-version=http://garden.example/plants|2.x",
        "Unprocessable(not-found): A definition for CodeSystem 'http://garden.example/plants' version '2.x' could not be found, so the value set cannot be expanded. Valid versions: 0.9.0, 1.0.0 and 9.0.0",
    );
    check(
        "old&check-system-version=http://garden.example/plants|1.0.0",
        "Unprocessable(exception): The version '0.9.0' is not allowed for system 'http://garden.example/plants': required to be '1.0.0' by a version-check parameter",
    );
}

#[test]
fn displays_are_in_the_requested_languages() {
    for (query, display, designations) in [
        ("", json!("Apple tree"), json!(null)),
        ("&includeDesignations=true", json!("Apple tree"), json!([{"language":"de","value":"Apfelbaum"}])),
        ("&displayLanguage=de", json!("Apfelbaum"), json!(null)),
        (
            "&displayLanguage=de&includeDesignations=true",
            json!("Apfelbaum"),
            json!([{"language":"en","value":"Apple tree"}]),
        ),
        ("&displayLanguage=fr", json!("Apple tree"), json!(null)),
        ("&displayLanguage=fr,*;q=0", json!(null), json!(null)),
        (
            "&designation=urn:ietf:bcp:47|de",
            json!("Apple tree"),
            json!([{"language":"de","value":"Apfelbaum"}]),
        ),
        ("&designation=fr", json!("Apple tree"), json!(null)),
    ] {
        let query = format!("url=http://garden.example/trees&filter=apple{query}");
        let set = expand(&garden(), OperationLevel::Type, &query).unwrap();
        let item = &set["expansion"]["contains"][0];
        assert_eq!((&item["display"], &item["designation"]), (&display, &designations), "{query}");
    }
}

#[test]
fn the_expansion_names_the_resources_used() {
    let query = "activeOnly=true&property=height&count=2";
    let set = expand(&garden(), OperationLevel::Instance("in-use"), query).unwrap();
    assert_eq!(set["url"], "http://garden.example/in-use");
    assert_eq!(set["compose"], Json::Null);
    let expansion = &set["expansion"];
    assert_eq!(expansion["timestamp"], NOW);
    assert_eq!(expansion["offset"], 0);
    assert_eq!(
        expansion["parameter"],
        json!([
            {"name":"activeOnly","valueBoolean":true},
            {"name":"property","valueString":"height"},
            {"name":"count","valueInteger":2},
            {"name":"used-valueset","valueUri":"http://garden.example/trees|2"},
            {"name":"used-codesystem","valueUri":"http://garden.example/plants|1.0.0"},
        ])
    );
    let tree = &expansion["contains"][0]["extension"][0]["extension"];
    assert_eq!(tree, &json!([{"url":"code","valueCode":"height"},{"url":"value","valueInteger":20}]));
    let again = expand(&garden(), OperationLevel::Instance("in-use"), query).unwrap();
    assert_eq!(again, set);
    let other = expand(&garden(), OperationLevel::Instance("in-use"), "count=2").unwrap();
    assert_ne!(other["expansion"]["identifier"], expansion["identifier"]);
    let whole = expand(&garden(), OperationLevel::Instance("trees"), "includeDefinition=true").unwrap();
    assert_eq!(whole["compose"]["include"][0]["filter"][0]["op"], "is-a");
    let fragment = expand(&garden(), OperationLevel::Instance("weed-set"), "").unwrap();
    assert_eq!(fragment["expansion"]["extension"][0]["valueBoolean"], true);
}

#[test]
fn a_large_value_set_is_expanded_by_pages_only() {
    let terminology = Terminology::default();
    let concepts: Vec<_> =
        (0..10_001).map(|n| format!(r#"{{"code":"c{n}","display":"Code {n}"}}"#)).collect();
    let system = format!(
        r#"{{"resourceType":"CodeSystem","id":"many","url":"urn:many","valueSet":"urn:all","status":"active","content":"complete","concept":[{}]}}"#,
        concepts.join(",")
    );
    terminology.apply([put(&system)]);
    let error = expand(&terminology, OperationLevel::Type, "url=urn:all").unwrap_err();
    assert_eq!(
        short(Err(error)),
        "Unprocessable(too-costly): The value set 'urn:all' expansion has too many codes to display (>10000)"
    );
    let set = expand(&terminology, OperationLevel::Type, "url=urn:all&offset=9999&count=10").unwrap();
    assert_eq!(codes(&set["expansion"]["contains"]), "c9999 c10000");
    let set = expand(&terminology, OperationLevel::Type, "url=urn:all&filter=10000").unwrap();
    assert_eq!(codes(&set["expansion"]["contains"]), "c10000");
}

/// Runs `$lookup` by GET and returns `name value` of each parameter, with parts in brackets.
fn lookup(query: &str) -> String {
    fn write(list: &[fhir::Parameter]) -> String {
        let one = |p: &fhir::Parameter| match &p.value {
            Some(Value::Text(_, text)) => format!("{} {text}", p.name),
            Some(Value::Boolean(value)) => format!("{} {value}", p.name),
            Some(Value::Number(_, number)) => format!("{} {number}", p.name),
            _ => format!("{}({})", p.name, write(&p.part)),
        };
        list.iter().map(one).collect::<Vec<_>>().join("; ")
    }
    let query = Parameters::from_query(query);
    match garden().lookup(OperationInput::from_query(&query)) {
        Ok(answer) => write(&answer.parameter),
        Err(error) => short(Err(error)),
    }
}

#[test]
fn lookup_returns_hierarchy_and_properties() {
    const PLANTS: &str = "system=http://garden.example/plants";
    for (query, expected) in [
        (
            format!("{PLANTS}&code=apple"),
            "name http://garden.example/plants; version 1.0.0; code apple; system http://garden.example/plants; display Apple tree; abstract false; designation(language de; value Apfelbaum); property(code inactive; value false); property(code parent; value tree; description Tree)",
        ),
        (
            format!("{PLANTS}&code=apple&displayLanguage=de&property=lang.en"),
            "name http://garden.example/plants; version 1.0.0; code apple; system http://garden.example/plants; display Apfelbaum; abstract false; designation(language en; value Apple tree)",
        ),
        (
            format!("{PLANTS}&code=tree&property=height&property=parent"),
            "name http://garden.example/plants; version 1.0.0; code tree; system http://garden.example/plants; display Tree; abstract false; property(code parent; value plant; description Plant); property(code height; value 20)",
        ),
        (
            format!("{PLANTS}&code=fern&version=0.9.0"),
            "name http://garden.example/plants; version 0.9.0; code fern; system http://garden.example/plants; display Fern; abstract false; property(code inactive; value false)",
        ),
        (
            "system=http://garden.example/tools&code=SPADE".to_owned(),
            "name http://garden.example/tools; version 1; code Spade; system http://garden.example/tools; display Spade; abstract false; property(code inactive; value false)",
        ),
        (
            format!("{PLANTS}&code=fern"),
            "UnknownConcept(not-found): Unknown code 'fern' in the CodeSystem 'http://garden.example/plants' version '1.0.0'",
        ),
        (
            "system=urn:none&code=a".to_owned(),
            "UnknownCodeSystem(not-found): A definition for CodeSystem 'urn:none' could not be found, so the code cannot be validated",
        ),
        ("code=a".to_owned(), "Missing(required): parameter 'system' is needed beside 'code'"),
        (PLANTS.to_owned(), "Missing(required): parameter 'code' or 'coding' is missing"),
        (
            "system=http://garden.example/empty&code=a".to_owned(),
            "Unprocessable(not-supported): http://garden.example/empty has content not-present, so its codes cannot be compared",
        ),
    ] {
        assert_eq!(lookup(&query), expected, "{query}");
    }
}
