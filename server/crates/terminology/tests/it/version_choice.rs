//! The choice of a version among several stored ones: what the operator prefers, what the request contains,
//! the cost of a resource in a request, and the reason in the log.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fhir::Parameters;
use trefoil_terminology::{
    OperationInput, OperationLevel, PreferredVersions, Terminology, TerminologyOperation,
};

use crate::support::{body, put, run, short, validate_in_system};

const TABLE: &str = "http://garden.example/table";

/// Returns a code system of one code.
fn table(id: &str, version: &str, date: &str, code: &str) -> String {
    format!(
        r#"{{"resourceType":"CodeSystem","id":"{id}","url":"{TABLE}","version":"{version}","date":"{date}",
            "status":"active","content":"complete","concept":[{{"code":"{code}"}}]}}"#
    )
}

/// Returns the code systems of HL7 that differ in the scheme of their versions.
fn tables() -> Terminology {
    let terminology = Terminology::default();
    let systems = [table("a", "2018-08-12", "2018-08-12", "old"), table("b", "4.0.0", "2023-11-01", "new")];
    terminology.apply(systems.iter().map(|json| put(json)));
    terminology
}

fn is_valid(terminology: &Terminology, code: &str) -> bool {
    let query = format!("url={TABLE}&code={code}");
    validate_in_system(terminology, OperationLevel::Type, &query).starts_with("true")
}

#[test]
fn an_operator_can_prefer_a_version() {
    let terminology = tables();
    assert!(is_valid(&terminology, "new") && !is_valid(&terminology, "old"));
    assert_eq!(
        terminology.code_systems_by_url()[TABLE],
        [Some("4.0.0".to_owned()), Some("2018-08-12".to_owned())]
    );
    let mut preferred = PreferredVersions::default();
    assert!(preferred.add(&format!("{TABLE}|2018-08-12")) && !preferred.add(TABLE) && !preferred.add("|1"));
    terminology.prefer_versions(preferred.clone());
    assert!(is_valid(&terminology, "old") && !is_valid(&terminology, "new"));
    assert_eq!(
        terminology.code_systems_by_url()[TABLE],
        [Some("2018-08-12".to_owned()), Some("4.0.0".to_owned())]
    );
    // A resource of the request takes precedence, and a version that is not stored has no effect.
    let request = body(&format!(
        r#"{{"name":"url","valueUri":"{TABLE}"}},{{"name":"code","valueCode":"sent"}},
           {{"name":"tx-resource","resource":{}}}"#,
        table("c", "1.0.0", "2001", "sent")
    ));
    let response = run(
        &terminology,
        TerminologyOperation::ValidateCodeInSystem,
        OperationLevel::Type,
        OperationInput::from_body(&request),
    );
    assert!(short(response).starts_with("true"));
    assert!(preferred.add(&format!("{TABLE}|9.x")));
    terminology.prefer_versions(preferred);
    assert!(is_valid(&terminology, "new"));
}

#[test]
fn resources_of_r4_and_versions_in_use_come_first() {
    #[track_caller]
    fn check(url: &str, versions: &[(&str, &str)], expected: &str) {
        // The order in which they are stored has no influence.
        for reversed in [false, true] {
            let terminology = Terminology::default();
            let mut order: Vec<_> = versions.iter().enumerate().collect();
            if reversed {
                order.reverse();
            }
            terminology.apply(order.into_iter().map(|(index, (version, status))| {
                put(&format!(
                    r#"{{"resourceType":"CodeSystem","id":"s{index}","url":"{url}","version":"{version}",
                        "status":"{status}","content":"complete","concept":[{{"code":"c"}}]}}"#
                ))
            }));
            let choice = terminology.code_systems_by_url()[url][0].clone();
            assert_eq!(choice.as_deref(), Some(expected), "{url} {versions:?}");
        }
    }
    let of_fhir = "http://hl7.org/fhir/encounter-status";
    check(of_fhir, &[("4.0.1", "draft"), ("5.0.0", "active"), ("4.3.0", "active")], "4.0.1");
    check(of_fhir, &[("4.0.0", "active"), ("4.0.1", "active"), ("6.0.0-ballot2", "active")], "4.0.1");
    check(of_fhir, &[("5.0.0", "active"), ("4.3.0", "active")], "5.0.0");
    check("http://hl7.org/fhir/us/core/CodeSystem/x", &[("4.0.0", "active"), ("5.0.1", "active")], "5.0.1");
    check("http://hl7.org/fhir/sid/x", &[("4.0.0", "active"), ("2025", "active")], "4.0.0");
    check("http://terminology.hl7.org/CodeSystem/x", &[("4.0.0", "active"), ("5.0.0", "active")], "5.0.0");
    check(TABLE, &[("1.0.0", "active"), ("2.0.0", "retired")], "1.0.0");
    check(TABLE, &[("1.0.0", "draft"), ("2.0.0-ballot", "active")], "1.0.0");
    check(TABLE, &[("1.0.0", "retired"), ("2.0.0", "retired")], "2.0.0");
}

#[test]
fn an_operator_can_prefer_the_versions_of_a_prefix() {
    let mut preferred = PreferredVersions::default();
    assert!(preferred.add("http://garden.example/*|2018-08-12"));
    let terminology = tables();
    terminology.prefer_versions(preferred.clone());
    assert!(is_valid(&terminology, "old"));
    assert!(preferred.add("http://garden.example/t*|4.x"));
    terminology.prefer_versions(preferred.clone());
    assert!(is_valid(&terminology, "new"), "the longest prefix decides");
    assert!(preferred.add(&format!("{TABLE}|2018-08-12")));
    terminology.prefer_versions(preferred);
    assert!(is_valid(&terminology, "old"), "the URL itself precedes prefixes");
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn the_reason_for_a_choice_is_logged() {
    let (lines, terminology) = (Lines::default(), tables());
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        // A test beside this one, without a subscriber, may just write this event for the first time. It
        // then switches the event off for the whole process, and a new computation switches it on.
        for _ in 0..1_000 {
            if !lines.0.lock().unwrap().is_empty() {
                break;
            }
            tracing::callsite::rebuild_interest_cache();
            assert!(is_valid(&terminology, "new"));
        }
    });
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    for part in [TABLE, "version=\"4.0.0\"", "its date is later, and the versions have different schemes"] {
        assert!(text.contains(part), "{text}");
    }
}

/// Returns the shortest time of a request with an unseen `tx-resource`, and of one for an implicit value set.
fn shortest(count: usize) -> [Duration; 2] {
    let terminology = Terminology::default();
    let json = |n: usize| {
        put(&format!(
            r#"{{"resourceType":"CodeSystem","id":"s{n}","url":"http://garden.example/{n}","status":"active",
                "content":"complete","valueSet":"http://garden.example/all-{n}"}}"#
        ))
    };
    terminology.apply((0..count).map(json));
    let ask = |parameters: &Parameters| {
        let started = Instant::now();
        drop(run(
            &terminology,
            TerminologyOperation::ValidateCode,
            OperationLevel::Type,
            OperationInput::from_body(parameters),
        ));
        started.elapsed()
    };
    let request_with = |n: usize| {
        body(&format!(
            r#"{{"name":"url","valueUri":"http://garden.example/0"}},{{"name":"code","valueCode":"c{n}"}},
               {{"name":"system","valueUri":"{TABLE}"}},{{"name":"tx-resource","resource":{}}}"#,
            table("c", "1.0.0", "2001", &format!("c{n}"))
        ))
    };
    let implicit = |n: usize| {
        body(&format!(
            r#"{{"name":"url","valueUri":"http://snomed.info/sct?fhir_vs=isa/{n}"}},{{"name":"code","valueCode":"{n}"}},
               {{"name":"system","valueUri":"http://snomed.info/sct"}}"#
        ))
    };
    [
        (0..100).map(|n| ask(&request_with(n))).min().unwrap(),
        (0..100).map(|n| ask(&implicit(n))).min().unwrap(),
    ]
}

#[test]
fn the_cost_of_a_request_does_not_depend_on_the_number_of_stored_resources() {
    let (few, many) = (shortest(10), shortest(20_000));
    println!("10 code systems: {few:?}, 20,000: {many:?}");
    for (few, many) in few.into_iter().zip(many) {
        assert!(
            many < 4 * few + Duration::from_micros(20),
            "{few:?} with 10 code systems, {many:?} with 20,000"
        );
    }
}
