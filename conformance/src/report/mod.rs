//! Listeners to a run. The runner does not depend on any of them.
//!
//! | module | contents |
//! |---|---|
//! | [`terminal`], [`live_line`] | one line per section, all failures with details; progress |
//! | [`json`] | one JSON object per line, for programs |
//! | [`causes`] | causes that several failures share |
//! | [`record`] | the record of a complete run, for the formats that are written at its end |
//! | [`junit`] | JUnit XML, for CI servers |
//! | [`html`] | one HTML page, for people |
//! | [`markdown`] | summary for the pages of CI jobs |
//! | [`badge`] | SVG for a README |
//! | [`findings`] | a page for each failed requirement, for the maker of the server |

pub mod badge;
pub mod causes;
pub mod findings;
pub mod html;
pub mod json;
pub mod junit;
pub mod live_line;
pub mod markdown;
pub mod record;
pub mod terminal;

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::run::RunListener;
use findings::Findings;
use json::JsonLines;
use record::{ReportAtEnd, ReportText};

/// Kinds of reports that are written at the end of a run.
const KINDS: [(&str, ReportText); 4] = [
    ("html", html::html),
    ("junit", junit::junit),
    ("markdown", markdown::markdown),
    ("badge", badge::badge),
];

/// Creates the files of reports, each of the form `KIND=FILE` or `findings=FOLDER`, and returns their
/// listeners.
///
/// # Errors
/// An error if a kind is not known, or if a file cannot be created.
pub fn to_files(reports: &[String]) -> Result<Vec<Box<dyn RunListener>>> {
    reports.iter().map(|report| to_file(report)).collect()
}

fn to_file(report: &str) -> Result<Box<dyn RunListener>> {
    let (kind, path) =
        report.split_once('=').with_context(|| format!("--report '{report}' must be KIND=FILE"))?;
    let text = KINDS.iter().find(|(name, _)| *name == kind).map(|(_, text)| *text);
    if kind == "findings" {
        return Ok(Box::new(Findings::new(Path::new(path))?));
    }
    if text.is_none() && kind != "json" {
        bail!("--report '{kind}' is not known; use {}", kinds());
    }
    let file = File::create(path).map(BufWriter::new).with_context(|| format!("failed to write {path}"))?;
    Ok(match text {
        Some(text) => Box::new(ReportAtEnd::new(file, text)),
        None => Box::new(JsonLines(file)),
    })
}

fn kinds() -> String {
    let names: Vec<_> = ["json", "findings"].into_iter().chain(KINDS.map(|(name, _)| name)).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_that_cannot_be_written_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let fault = |report: String| match to_files(&[report]) {
            Ok(_) => "no fault".to_owned(),
            Err(error) => format!("{error:#}"),
        };
        assert_eq!(fault(format!("json={}", path("a.jsonl"))), "no fault");
        assert_eq!(fault("html".to_owned()), "--report 'html' must be KIND=FILE");
        let kinds = "json, findings, html, junit, markdown, badge";
        assert_eq!(fault("pdf=a".to_owned()), format!("--report 'pdf' is not known; use {kinds}"));
        let missing = path("missing/a.html");
        assert!(fault(format!("html={missing}")).starts_with(&format!("failed to write {missing}: ")));
    }
}

#[cfg(test)]
pub(crate) mod trial {
    //! An invented run, for snapshots of the reports.

    use super::record::{ReportAtEnd, RunRecord};
    use crate::run::verdict::{CaseFailure, CaseOutcome, RunSummary, ShownExchange, Verdict};
    use crate::run::{self, RunEnd, RunListener};
    use crate::spec::Specification;
    use crate::spec::requirement::{Level, Requirement};

    const TABLE: &str = r#"
[[requirement]]
id = "spec/authorize/x"
level = "SHOULD"
actor = "authorization-server"
house = "docs/rules.md#authorize"
gist = "A state of <1000> characters & more is returned."

[[requirement]]
id = "spec/userinfo/x"
level = "MUST"
actor = "authorization-server"
standard = "https://standard.example/userinfo?version=1&part=2#x"
gist = "The response has the claim \"sub\"."
"#;

    fn outcome(id: &str, verdict: Verdict) -> CaseOutcome {
        let requirement = id.rsplit_once('/').map_or(id, |(requirement, _)| requirement);
        let covers = vec![requirement.to_owned()];
        CaseOutcome { id: id.to_owned(), covers, level: Level::Must, verdict, took_ms: 12 }
    }

    /// Sends the events of a run with one case of each verdict to a listener.
    pub fn emit(listener: &mut dyn RunListener) {
        let failure = CaseFailure {
            exchanges: vec![
                ShownExchange {
                    request: "curl -i 'https://localhost:1/oauth2/authorize?state=1'".to_owned(),
                    answer: "302 Found\nlocation: https://app.example/?code=***".to_owned(),
                },
                ShownExchange {
                    request: "curl -i -H 'authorization: Bearer ***' 'https://localhost:1/oauth2/userinfo'"
                        .to_owned(),
                    answer: "500 Internal Server Error\ncontent-type: text/plain\n\nout of <tea>".to_owned(),
                },
            ],
            differences: vec![
                "status: 500 instead of 200".to_owned(),
                "body.sub: nothing instead of $string".to_owned(),
            ],
        };
        let outcomes = [
            outcome("spec/authorize/x/a", Verdict::Pass),
            outcome("spec/authorize/x/b", Verdict::Gap { reason: "needs a second clock".to_owned() }),
            outcome("spec/userinfo/x/a", Verdict::Pass),
            outcome("spec/userinfo/x/b", Verdict::Fail(failure)),
            outcome("spec/userinfo/x/c", Verdict::Skip { reason: "the profile has no 'users.2'".to_owned() }),
            outcome(
                "spec/userinfo/x/d",
                Verdict::Inconclusive { reason: "given 'token': the sign-in ended at /login".to_owned() },
            ),
        ];
        let mut spec = Specification::default();
        spec.add("trial.toml", TABLE).unwrap();
        let mut summary = RunSummary::default();
        outcomes.iter().for_each(|outcome| summary.count(&outcome.verdict));
        let leftovers = vec!["https://localhost:1/fhir/Group/7: 403 Forbidden".to_owned()];
        let outcomes = outcomes.map(|mut outcome| {
            let is_tested = |requirement: &&Requirement| outcome.covers.contains(&requirement.id);
            outcome.level = spec.requirements.iter().find(is_tested).unwrap().level;
            outcome
        });
        let sections = run::sections(outcomes.iter().map(|outcome| outcome.id.as_str()));
        let record = RunRecord {
            suite: "1.2.3".to_owned(),
            target: "https://localhost:1".to_owned(),
            started: "2026-02-03T04:05:06Z".parse().unwrap(),
            seed: Some(7),
            requirements: spec.requirements,
            sections,
            outcomes: outcomes.into(),
            end: RunEnd { summary, interrupted: true, leftovers, took_ms: 65_432, ..RunEnd::default() },
        };
        record.replay(listener);
    }

    /// A report of the run that is written at its end.
    pub fn text(of: fn(&RunRecord) -> String) -> String {
        let mut text = Vec::new();
        emit(&mut ReportAtEnd::new(&mut text, of));
        String::from_utf8(text).unwrap()
    }
}
