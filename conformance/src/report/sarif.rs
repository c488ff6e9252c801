//! Report in SARIF 2.1.0, for tools that collect findings: a rule for each requirement, a result for each
//! failure.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::record::RunRecord;
use crate::run::verdict::{CaseFailure, CaseOutcome};
use crate::spec::requirement::{Level, Requirement};

/// The report.
pub fn sarif(record: &RunRecord) -> String {
    let results: Vec<_> =
        record.failures().map(|(outcome, failure)| result(record, outcome, failure)).collect();
    let took = SignedDuration::from_millis(i64::try_from(record.end.took_ms).unwrap_or(i64::MAX));
    let ended = record.started.saturating_add(took).unwrap_or(record.started);
    let time = "%Y-%m-%dT%H:%M:%S.%3fZ";
    let is_complete = !record.end.interrupted && record.end.lost.is_none();
    let report = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "trefoil-conformance",
                "semanticVersion": record.suite,
                "rules": record.requirements.iter().map(rule).collect::<Vec<_>>(),
            } },
            "invocations": [{
                "executionSuccessful": is_complete,
                "startTimeUtc": record.started.strftime(time).to_string(),
                "endTimeUtc": ended.strftime(time).to_string(),
            }],
            "results": results,
            "properties": { "target": record.target, "seed": record.seed, "summary": record.end.summary },
        }],
    });
    format!("{report:#}\n")
}

fn rule(requirement: &Requirement) -> Value {
    let mut rule = json!({
        "id": requirement.id,
        "shortDescription": { "text": requirement.gist },
        "help": { "text": format!("{}: {}", requirement.level.keyword(), requirement.source()) },
        "defaultConfiguration": { "level": level(requirement.level) },
        "properties": { "tags": [requirement.kind(), requirement.level.keyword(), requirement.specification()] },
    });
    if let Some(url) = &requirement.standard {
        rule["helpUri"] = url.as_str().into();
    }
    rule
}

fn level(level: Level) -> &'static str {
    match level {
        Level::Must => "error",
        Level::Should => "warning",
        Level::May => "note",
    }
}

/// The result of a failed case. Its rule is the first requirement that the case tests.
fn result(record: &RunRecord, outcome: &CaseOutcome, failure: &CaseFailure) -> Value {
    let rules = record.requirements.iter().map(|requirement| &requirement.id);
    let index = outcome.covers.first().and_then(|id| rules.clone().position(|rule| rule == id));
    let mut result = json!({
        "ruleId": outcome.covers.first().unwrap_or(&outcome.id),
        "level": level(outcome.level),
        "message": { "text": failure.differences.join("\n") },
        "locations": [{
            "physicalLocation": { "artifactLocation": { "uri": record.target } },
            "logicalLocations": [{ "fullyQualifiedName": outcome.id }],
        }],
        "partialFingerprints": { "case/v1": outcome.id },
        "properties": { "covers": outcome.covers, "exchanges": failure.exchanges },
    });
    if let Some(index) = index {
        result["ruleIndex"] = index.into();
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::trial;

    #[test]
    fn the_sarif_report_is_complete() {
        insta::assert_snapshot!(trial::text(sarif));
    }

    #[test]
    fn the_sarif_report_has_the_required_members() {
        let report: Value = serde_json::from_str(&trial::text(sarif)).unwrap();
        assert_eq!(report["version"], "2.1.0");
        let run = &report["runs"][0];
        assert!(run["tool"]["driver"]["name"].is_string());
        assert!(run["invocations"][0]["executionSuccessful"].is_boolean());
        let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
        let results = run["results"].as_array().unwrap();
        assert_eq!((rules.len(), results.len()), (2, 1));
        for result in results {
            let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
            assert_eq!(result["ruleId"], rules[index]["id"]);
            assert!(["none", "note", "warning", "error"].contains(&result["level"].as_str().unwrap()));
            assert!(!result["message"]["text"].as_str().unwrap().is_empty());
        }
        for rule in rules.iter().filter(|rule| rule.get("helpUri").is_some()) {
            assert!(url::Url::parse(rule["helpUri"].as_str().unwrap()).is_ok());
        }
    }
}
