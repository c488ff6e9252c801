//! Report for programs: one JSON object per line, written as soon as its event happens.
//!
//! `conformance/docs/reports.md` describes the lines. The commands `report` and `compare` and `--resume` read
//! this format.

use std::io::{BufRead, Write};

use anyhow::{Context as _, Result, bail};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::record::RunRecord;
use crate::run::verdict::{CaseOutcome, RunSummary};
use crate::run::{RunEnd, RunEvent, RunListener};
use crate::spec::requirement::Requirement;

/// Writes the report to `W`.
pub struct JsonLines<W>(pub W);

#[derive(Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Line {
    Start(StartLine),
    Case(CaseOutcome),
    End(EndLine),
}

#[derive(Serialize, Deserialize)]
struct StartLine {
    suite: String,
    target: String,
    started: Timestamp,
    seed: Option<u64>,
    cases: usize,
    /// Number of cases by name of the section, in the order of the run.
    sections: Map<String, Value>,
    requirements: Vec<Requirement>,
}

#[derive(Serialize, Deserialize)]
struct EndLine {
    #[serde(flatten)]
    summary: RunSummary,
    interrupted: bool,
    lost: Option<String>,
    leftovers: Vec<String>,
    took_ms: u64,
}

fn line(event: &RunEvent<'_>) -> Line {
    match event {
        RunEvent::Start(start) => Line::Start(StartLine {
            suite: start.suite.to_owned(),
            target: start.target.to_owned(),
            started: start.started,
            seed: start.seed,
            cases: start.cases(),
            sections: start.sections.iter().map(|(name, cases)| (name.clone(), (*cases).into())).collect(),
            requirements: start.requirements.iter().copied().cloned().collect(),
        }),
        RunEvent::Case(outcome) => Line::Case((*outcome).clone()),
        RunEvent::End(end) => Line::End(EndLine {
            summary: end.summary,
            interrupted: end.interrupted,
            lost: end.lost.clone(),
            leftovers: end.leftovers.clone(),
            took_ms: end.took_ms,
        }),
    }
}

/// Reads a report. A run whose report has no last line, or whose last line was cut off, was interrupted.
///
/// # Errors
/// An error if the text cannot be read, or if another line is not part of a report.
pub fn read(text: impl BufRead) -> Result<RunRecord> {
    let mut record =
        RunRecord { end: RunEnd { interrupted: true, ..RunEnd::default() }, ..RunRecord::default() };
    let mut is_started = false;
    let mut lines = (1..).zip(text.lines()).peekable();
    while let Some((number, line)) = lines.next() {
        let line = match serde_json::from_str(&line?) {
            Ok(line) => line,
            // A run that was killed leaves half a line at its end; the cases before it are complete.
            Err(error) if error.is_eof() && is_started && lines.peek().is_none() => break,
            Err(error) => {
                return Err(error).with_context(|| format!("line {number} is not part of a report"));
            }
        };
        match line {
            Line::Start(start) => {
                is_started = true;
                let sections = start.sections.into_iter();
                let sections = sections.map(|(name, cases)| {
                    let cases = cases.as_u64().and_then(|cases| usize::try_from(cases).ok());
                    Ok((name, cases.with_context(|| format!("line {number}: a section is not a number"))?))
                });
                record.sections = sections.collect::<Result<_>>()?;
                (record.suite, record.target) = (start.suite, start.target);
                (record.started, record.seed) = (start.started, start.seed);
                record.requirements = start.requirements;
            }
            Line::Case(outcome) => {
                record.end.summary.count(&outcome.verdict);
                record.outcomes.push(outcome);
            }
            Line::End(EndLine { summary, interrupted, lost, leftovers, took_ms }) => {
                record.end =
                    RunEnd { summary, interrupted, lost, leftovers, took_ms, skip_reasons: Vec::new() };
            }
        }
    }
    if !is_started {
        bail!("it is not a JSON report of a run");
    }
    Ok(record)
}

impl<W: Write> RunListener for JsonLines<W> {
    fn on_event(&mut self, event: &RunEvent<'_>) {
        // A report that cannot be written any more does not end the run.
        drop(serde_json::to_writer(&mut self.0, &line(event)).map(|()| self.0.write_all(b"\n")));
        drop(self.0.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::trial;

    #[test]
    fn the_json_report_is_complete() {
        let mut text = Vec::new();
        trial::emit(&mut JsonLines(&mut text));
        insta::assert_snapshot!(String::from_utf8(text).unwrap());
    }

    #[test]
    fn a_report_is_read_back() {
        let mut text = Vec::new();
        trial::emit(&mut JsonLines(&mut text));
        let mut again = Vec::new();
        read(&text[..]).unwrap().replay(&mut JsonLines(&mut again));
        assert_eq!(text, again);
        let cut = read(&text[..text.len() - 10]).unwrap();
        assert_eq!((cut.outcomes.len(), cut.end.interrupted), (6, true));
        assert_eq!(cut.end.summary, read(&text[..]).unwrap().end.summary);
        for wrong in [&b"x\n{}\n"[..], b"", b"{}", b"{\"event\":\"start\"}"] {
            assert!(read(wrong).is_err());
        }
    }

    const SCHEMA: &str = include_str!("../../docs/report.schema.json");

    /// Returns whether a value fits a schema. Only the keywords that the schema of the report uses are known.
    fn fits(value: &Value, schema: &Value, whole: &Value) -> bool {
        let member = |name: &str| value.get(name);
        schema.as_object().unwrap().iter().all(|(keyword, rule)| match keyword.as_str() {
            "$schema" | "$defs" | "title" => true,
            "$ref" => {
                fits(value, whole.pointer(rule.as_str().unwrap().trim_start_matches('#')).unwrap(), whole)
            }
            "oneOf" => rule.as_array().unwrap().iter().filter(|rule| fits(value, rule, whole)).count() == 1,
            "const" => value == rule,
            "enum" => rule.as_array().unwrap().contains(value),
            "type" => match rule {
                Value::Array(types) => types.iter().any(|name| is_of_type(value, name)),
                name => is_of_type(value, name),
            },
            "format" => match rule.as_str().unwrap() {
                "uri" => url::Url::parse(value.as_str().unwrap()).is_ok(),
                "date-time" => value.as_str().unwrap().parse::<Timestamp>().is_ok(),
                other => panic!("unknown format {other}"),
            },
            "minLength" => value.as_str().is_some_and(|text| text.len() as u64 >= rule.as_u64().unwrap()),
            "minimum" => value.is_null() || value.as_u64() >= rule.as_u64(),
            "minItems" => value.as_array().is_some_and(|items| items.len() as u64 >= rule.as_u64().unwrap()),
            "items" => value.as_array().is_some_and(|items| items.iter().all(|item| fits(item, rule, whole))),
            "required" => {
                rule.as_array().unwrap().iter().all(|name| member(name.as_str().unwrap()).is_some())
            }
            "properties" => rule
                .as_object()
                .unwrap()
                .iter()
                .all(|(name, rule)| member(name).is_none_or(|value| fits(value, rule, whole))),
            "additionalProperties" => value.as_object().is_some_and(|members| {
                let properties = schema.get("properties");
                let mut others = members
                    .iter()
                    .filter(|(name, _)| properties.is_none_or(|properties| properties.get(name).is_none()));
                others.all(|(_, value)| *rule != false && fits(value, rule, whole))
            }),
            other => panic!("unknown keyword {other}"),
        })
    }

    fn is_of_type(value: &Value, name: &Value) -> bool {
        match name.as_str().unwrap() {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "integer" => value.is_u64() || value.is_i64(),
            "boolean" => value.is_boolean(),
            "null" => value.is_null(),
            other => panic!("unknown type {other}"),
        }
    }

    #[test]
    fn all_lines_fit_the_schema() {
        let schema: Value = serde_json::from_str(SCHEMA).unwrap();
        let mut text = Vec::new();
        trial::emit(&mut JsonLines(&mut text));
        for line in String::from_utf8(text).unwrap().lines() {
            let value: Value = serde_json::from_str(line).unwrap();
            assert!(fits(&value, &schema, &schema), "{line}");
            // All members are required, and no others are known.
            for name in value.as_object().unwrap().keys() {
                let mut less = value.clone();
                less.as_object_mut().unwrap().remove(name);
                assert!(!fits(&less, &schema, &schema), "{line} without {name}");
            }
            let mut more = value.clone();
            more["another"] = 1.into();
            assert!(!fits(&more, &schema, &schema), "{line} with another member");
        }
    }
}
