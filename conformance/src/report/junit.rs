//! Report for CI servers: JUnit XML with one `testsuite` per section, in the form of Jenkins' schema.

use std::fmt::Write as _;

use super::record::RunRecord;
use crate::run::verdict::{CaseOutcome, ShownExchange, Verdict};

/// The report.
pub fn junit(record: &RunRecord) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let (tests, summary) = (record.outcomes.len(), record.end.summary);
    let _ = writeln!(
        out,
        "<testsuites name=\"trefoil-conformance\" tests=\"{tests}\" failures=\"{}\" errors=\"{}\" time=\"{}\">",
        summary.failed,
        summary.inconclusive,
        seconds(record.end.took_ms)
    );
    for (section, _) in &record.sections {
        let cases: Vec<_> = record.outcomes.iter().filter(|outcome| outcome.section() == section).collect();
        if !cases.is_empty() {
            write_suite(&mut out, record, section, &cases);
        }
    }
    out.push_str("</testsuites>\n");
    out
}

fn write_suite(out: &mut String, record: &RunRecord, section: &str, cases: &[&CaseOutcome]) {
    let time = seconds(cases.iter().map(|case| case.took_ms).sum());
    let (name, counts) = (escaped(section), counts(cases));
    // The schema demands a time without fractions and without a zone.
    let timestamp = record.started.strftime("%Y-%m-%dT%H:%M:%S");
    let _ = writeln!(out, "  <testsuite name=\"{name}\" {counts} time=\"{time}\" timestamp=\"{timestamp}\">");
    out.push_str("    <properties>\n");
    let seed = record.seed.map(|seed| seed.to_string());
    let properties =
        [("target", Some(&record.target)), ("suite", Some(&record.suite)), ("seed", seed.as_ref())];
    for (name, value) in properties {
        if let Some(value) = value {
            let _ = writeln!(out, "      <property name=\"{name}\" value=\"{}\"/>", escaped(value));
        }
    }
    out.push_str("    </properties>\n");
    cases.iter().for_each(|case| write_case(out, &name, case));
    out.push_str("  </testsuite>\n");
}

/// The attributes with the numbers of cases.
fn counts(cases: &[&CaseOutcome]) -> String {
    let count = |names: &[&str]| cases.iter().filter(|case| names.contains(&case.verdict.name())).count();
    let (failed, errors) = (count(&["fail"]), count(&["inconclusive"]));
    let skipped = count(&["skip", "gap"]);
    format!("tests=\"{}\" failures=\"{failed}\" errors=\"{errors}\" skipped=\"{skipped}\"", cases.len())
}

fn seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

fn write_case(out: &mut String, section: &str, case: &CaseOutcome) {
    let (id, time) = (escaped(&case.id), seconds(case.took_ms));
    let _ = write!(out, "    <testcase classname=\"{section}\" name=\"{id}\" time=\"{time}\"");
    let (element, reason) = match &case.verdict {
        Verdict::Pass => {
            out.push_str("/>\n");
            return;
        }
        Verdict::Fail(failure) => {
            let message = escaped(&failure.differences.join("; "));
            let detail = escaped(&failure.differences.join("\n"));
            let texts = failure
                .exchanges
                .iter()
                .map(|ShownExchange { request, answer }| format!("{request}\n\n{answer}"));
            let exchanges = escaped(&texts.collect::<Vec<_>>().join("\n\n"));
            let _ = writeln!(
                out,
                ">\n      <failure message=\"{message}\" type=\"{}\">{detail}</failure>",
                case.level.keyword()
            );
            let _ = writeln!(out, "      <system-out>{exchanges}</system-out>\n    </testcase>");
            return;
        }
        Verdict::Inconclusive { reason } => ("error type=\"inconclusive\"", reason),
        Verdict::Gap { reason } | Verdict::Skip { reason } => ("skipped", reason),
    };
    let _ = writeln!(out, ">\n      <{element} message=\"{}\"/>\n    </testcase>", escaped(reason));
}

/// Escapes a text for XML, and omits characters that XML cannot contain.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use quick_xml::Reader;
    use quick_xml::events::{BytesStart, Event};

    use super::*;
    use crate::report::trial;

    /// Elements with their parents, and their attributes, as in Jenkins' `junit-10.xsd`. A `!` precedes a
    /// required one.
    const ELEMENTS: [(&str, &str, &str); 9] = [
        ("testsuites", "", "name tests failures errors time"),
        ("testsuite", "testsuites", "!name !tests !failures !errors skipped time timestamp"),
        ("properties", "testsuite", ""),
        ("property", "properties", "!name !value"),
        ("testcase", "testsuite", "!name classname time"),
        ("failure", "testcase", "type message"),
        ("error", "testcase", "type message"),
        ("skipped", "testcase", "type message"),
        ("system-out", "testcase", ""),
    ];

    fn check_element(element: &BytesStart<'_>, parent: &str) -> String {
        let name = element.name().as_ref().to_owned();
        let element_row = ELEMENTS.iter().find(|(element_row, ..)| *element_row == name);
        let (_, expected, attributes) = element_row.unwrap_or_else(|| panic!("{name} is not an element"));
        assert_eq!(parent, *expected, "parent of {name}");
        let names: BTreeSet<String> =
            element.attributes().map(|attribute| attribute.unwrap().key.as_ref().to_owned()).collect();
        let element_row: BTreeSet<_> =
            attributes.split(' ').map(|word| word.trim_start_matches('!')).collect();
        assert!(names.iter().all(|name| element_row.contains(name.as_str())), "{name}: {names:?}");
        let mut required = attributes.split(' ').filter_map(|word| word.strip_prefix('!'));
        assert!(required.all(|word| names.contains(word)), "{name}: {names:?}");
        name
    }

    #[test]
    fn the_junit_report_is_complete() {
        insta::assert_snapshot!(trial::text(junit));
    }

    #[test]
    fn the_junit_report_has_the_elements_of_the_schema() {
        let text = trial::text(junit);
        let mut reader = Reader::from_str(&text);
        let (mut path, mut names) = (vec![String::new()], BTreeSet::new());
        loop {
            match reader.read_event().unwrap() {
                Event::Start(element) => path.push(check_element(&element, path.last().unwrap())),
                Event::Empty(element) => drop(names.insert(check_element(&element, path.last().unwrap()))),
                Event::End(_) => drop(names.insert(path.pop().unwrap())),
                Event::Eof => break,
                _ => {}
            }
        }
        assert_eq!((path.len(), names.len()), (1, ELEMENTS.len()), "{path:?} {names:?}");
    }

    #[test]
    fn texts_are_escaped() {
        assert_eq!(escaped("<a b=\"&\">\u{1}\u{ffff}\n\u{e9}"), "&lt;a b=&quot;&amp;&quot;&gt;\n\u{e9}");
    }
}
