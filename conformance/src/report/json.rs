//! Report for programs: one JSON object per line, written as soon as its event happens.
//!
//! The first line has `event` = `start`, each case has a line with `event` = `case` and the members of [`CaseOutcome`],
//! and the last line has `event` = `end` and the numbers. `--resume` and `compare` read this format.

use std::io::{BufRead, Write};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::run::verdict::CaseOutcome;
use crate::run::{RunEvent, RunListener};

/// Writes the report to `W`.
pub struct JsonLines<W>(pub W);

fn line(event: &RunEvent<'_>) -> Value {
    let with_kind = |kind: &str, value: Value| {
        let mut line = json!({ "event": kind });
        if let (Value::Object(line), Value::Object(members)) = (&mut line, value) {
            line.extend(members);
        }
        line
    };
    match event {
        RunEvent::Start(start) => json!({
            "event": "start",
            "suite": env!("CARGO_PKG_VERSION"),
            "target": start.target,
            "cases": start.cases,
            "seed": start.seed,
        }),
        RunEvent::Case(outcome) => with_kind("case", json!(outcome)),
        RunEvent::End(end) => {
            let mut line = with_kind("end", json!(end.summary));
            line["interrupted"] = end.interrupted.into();
            line["lost"] = json!(end.lost);
            line["leftovers"] = json!(end.leftovers);
            line
        }
    }
}

/// Reads the outcomes of a report. A last line that was cut off is ignored, so that a run can be resumed.
///
/// # Errors
/// Returns an error if the text cannot be read, or if another line is not part of a report.
pub fn outcomes(text: impl BufRead) -> Result<Vec<CaseOutcome>> {
    let mut found = Vec::new();
    let mut lines = (1..).zip(text.lines()).peekable();
    while let Some((number, line)) = lines.next() {
        let line = line?;
        let Ok(value) = serde_json::from_str::<Value>(&line) else {
            if lines.peek().is_none() {
                break;
            }
            anyhow::bail!("line {number} is not JSON");
        };
        if value["event"] == "case" {
            let outcome = serde_json::from_value(value);
            found.push(outcome.with_context(|| format!("line {number} is not the outcome of a case"))?);
        }
    }
    Ok(found)
}

impl<W: Write> RunListener for JsonLines<W> {
    fn hear(&mut self, event: &RunEvent<'_>) {
        // A report that cannot be written any more does not end the run.
        drop(writeln!(self.0, "{}", line(event)));
        drop(self.0.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_report_is_complete() {
        let mut text = Vec::new();
        crate::report::trial::tell(&mut JsonLines(&mut text));
        insta::assert_snapshot!(String::from_utf8(text).unwrap());
    }

    #[test]
    fn outcomes_are_read_back() {
        let mut text = Vec::new();
        crate::report::trial::tell(&mut JsonLines(&mut text));
        let read = outcomes(&text[..]).unwrap();
        let verdicts: Vec<_> = read.iter().map(|outcome| outcome.verdict.name()).collect();
        assert_eq!(verdicts, ["pass", "gap", "pass", "fail", "skip", "inconclusive"]);
        let mut cut = text.clone();
        cut.truncate(text.len() - 10);
        assert_eq!(outcomes(&cut[..]).unwrap().len(), 6);
        assert!(outcomes(&b"x\n{}\n"[..]).is_err());
    }
}
