//! Report for programs: one JSON object per line, for the events `start`, `case` and `end`.

use std::io::Write;

use serde_json::{Value, json};

use crate::run::{RunEvent, RunListener, Verdict};

/// Writes the report to `W`.
pub struct JsonLines<W>(pub W);

fn line(event: &RunEvent<'_>) -> Value {
    match event {
        RunEvent::Start { target, cases } => json!({ "event": "start", "target": target, "cases": cases }),
        RunEvent::Case(outcome) => {
            let mut line = json!({
                "event": "case",
                "id": outcome.id,
                "covers": outcome.covers,
                "took_ms": u64::try_from(outcome.took.as_millis()).unwrap_or(u64::MAX),
            });
            match &outcome.verdict {
                Verdict::Pass => line["verdict"] = "pass".into(),
                Verdict::Fail(failure) => {
                    line["verdict"] = "fail".into();
                    line["step"] = failure.step.into();
                    line["request"] = failure.request.as_str().into();
                    line["answer"] = failure.answer.as_str().into();
                    line["differences"] = json!(failure.differences);
                }
                Verdict::Gap(reason) | Verdict::Skip(reason) => {
                    let is_gap = matches!(outcome.verdict, Verdict::Gap(_));
                    line["verdict"] = if is_gap { "gap" } else { "skip" }.into();
                    line["reason"] = reason.as_str().into();
                }
            }
            line
        }
        RunEvent::End(summary) => json!({
            "event": "end",
            "passed": summary.passed,
            "failed": summary.failed,
            "gaps": summary.gaps,
            "skipped": summary.skipped,
        }),
    }
}

impl<W: Write> RunListener for JsonLines<W> {
    fn hear(&mut self, event: &RunEvent<'_>) {
        drop(writeln!(self.0, "{}", line(event)));
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
}
