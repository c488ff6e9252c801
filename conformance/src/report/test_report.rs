//! Report as a FHIR R4 TestReport: a test for each case, with an operation for each request and an assertion.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::record::RunRecord;
use crate::run::verdict::{CaseOutcome, Verdict};

/// The resource.
pub fn test_report(record: &RunRecord) -> String {
    let took = SignedDuration::from_millis(i64::try_from(record.end.took_ms).unwrap_or(i64::MAX));
    let issued = record.started.saturating_add(took).unwrap_or(record.started);
    let summary = &record.end.summary;
    let is_stopped = record.end.interrupted || record.end.lost.is_some();
    let result = match () {
        () if summary.failed > 0 => "fail",
        () if is_stopped || summary.inconclusive > 0 => "pending",
        () => "pass",
    };
    let mut report = json!({
        "resourceType": "TestReport",
        "name": format!("Conformance of {}", record.target),
        "status": if is_stopped { "stopped" } else { "completed" },
        "testScript": { "display": format!("trefoil-conformance {}", record.suite) },
        "result": result,
        "tester": "trefoil-conformance",
        "issued": issued.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        "participant": [{ "type": "server", "uri": record.target }],
    });
    let ran = summary.count_of_all() - summary.skipped;
    if let Some(score) = (summary.passed * 100).checked_div(ran) {
        report["score"] = score.into();
    }
    if !record.outcomes.is_empty() {
        report["test"] = record.outcomes.iter().map(|outcome| test(record, outcome)).collect();
    }
    format!("{report:#}\n")
}

fn test(record: &RunRecord, outcome: &CaseOutcome) -> Value {
    let gists: Vec<_> =
        record.requirements_of(outcome).map(|requirement| requirement.gist.as_str()).collect();
    let mut test = json!({ "name": outcome.id, "action": actions(record, outcome) });
    if !gists.is_empty() {
        test["description"] = text(&gists.join(" ")).into();
    }
    test
}

/// The actions of a case. The last one has the verdict, and the clause of the first requirement that has one.
fn actions(record: &RunRecord, outcome: &CaseOutcome) -> Vec<Value> {
    let mut actions = Vec::new();
    let mut assert = json!({});
    match &outcome.verdict {
        Verdict::Pass => assert["result"] = "pass".into(),
        Verdict::Fail(failure) => {
            for exchange in &failure.exchanges {
                let result = if exchange.answer.is_empty() { "error" } else { "pass" };
                let message = text(&format!("{}\n\n{}", exchange.request, exchange.answer));
                actions.push(json!({ "operation": { "result": result, "message": message } }));
            }
            assert["result"] = "fail".into();
            assert["message"] = text(&failure.differences.join("\n")).into();
        }
        Verdict::Gap { reason } => {
            assert["result"] = "warning".into();
            assert["message"] = text(&format!("known failure: {reason}")).into();
        }
        Verdict::Skip { reason } => {
            assert["result"] = "skip".into();
            assert["message"] = text(reason).into();
        }
        Verdict::Inconclusive { reason } => {
            assert["result"] = "error".into();
            assert["message"] = text(reason).into();
        }
    }
    let clause = record.requirements_of(outcome).find_map(|requirement| requirement.standard.as_deref());
    if let Some(url) = clause {
        assert["detail"] = url.into();
    }
    actions.push(json!({ "assert": assert }));
    actions
}

/// The text as FHIR allows it: not empty, and without control characters.
fn text(text: &str) -> String {
    let allowed = |c: &char| !c.is_control() || matches!(c, '\t' | '\r' | '\n');
    let text: String = text.trim().chars().filter(allowed).collect();
    if text.is_empty() { "no text".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::trial;

    #[test]
    fn the_test_report_is_complete() {
        insta::assert_snapshot!(trial::text(test_report));
    }

    /// Checks the cardinalities and required bindings of <https://hl7.org/fhir/R4/testreport.html>.
    #[test]
    fn the_test_report_follows_its_definition() {
        let report: Value = serde_json::from_str(&trial::text(test_report)).unwrap();
        let is_one_of = |value: &Value, codes: &[&str]| codes.contains(&value.as_str().unwrap());
        assert!(is_one_of(
            &report["status"],
            &["completed", "in-progress", "waiting", "stopped", "entered-in-error"]
        ));
        assert!(is_one_of(&report["result"], &["pass", "fail", "pending"]));
        assert!(report["testScript"].is_object());
        assert!(report["score"].as_u64().unwrap() <= 100);
        let tests = report["test"].as_array().unwrap();
        assert_eq!(tests.len(), 6);
        for action in tests.iter().flat_map(|test| test["action"].as_array().unwrap()) {
            let members = action.as_object().unwrap();
            assert_eq!(members.len(), 1, "{action}");
            let (name, content) = members.iter().next().unwrap();
            assert!(["operation", "assert"].contains(&name.as_str()));
            assert!(is_one_of(&content["result"], &["pass", "skip", "fail", "warning", "error"]));
            assert!(content.get("message").is_none_or(|message| !message.as_str().unwrap().is_empty()));
        }
    }
}
