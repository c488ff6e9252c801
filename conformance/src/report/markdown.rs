//! Summary for the pages of CI jobs, in GitHub Flavored Markdown.

use std::fmt::Write as _;

use super::causes::{SharedCause, shared_causes};
use super::record::RunRecord;

/// Maximum number of failures, because the page of a CI job has a limited size, and of characters of a
/// difference.
const FAILURES: usize = 200;
const CHARACTERS: usize = 300;

/// The summary.
pub fn markdown(record: &RunRecord) -> String {
    let mut out = format!("## Conformance of {}\n\n**{}**\n\n", cell(&record.target), record.end.summary);
    let (started, seconds) =
        (record.started.strftime("%Y-%m-%d %H:%M UTC"), record.end.took_ms.div_ceil(1000));
    let seed = record.seed.map(|seed| format!(", seed {seed}")).unwrap_or_default();
    let _ = writeln!(out, "{started}, {seconds} s, suite {}{seed}", record.suite);
    if let Some(remark) = record.remark() {
        let _ = writeln!(out, "\n> {}", cell(&remark));
    }
    write_failures(&mut out, record);
    for (verdict, title) in [("inconclusive", "Inconclusive"), ("gap", "Known gaps"), ("skip", "Skipped")] {
        let reasons = record.reasons(verdict);
        if reasons.is_empty() {
            continue;
        }
        let _ = writeln!(out, "\n<details><summary>{title}</summary>\n\n| cases | reason |\n|---:|---|");
        for (reason, count) in reasons {
            let _ = writeln!(out, "| {count} | {} |", cell(reason));
        }
        out.push_str("\n</details>\n");
    }
    out
}

fn write_failures(out: &mut String, record: &RunRecord) {
    let causes = shared_causes(record);
    if !causes.is_empty() {
        out.push_str("\n### Probably one cause\n\n| cases | endpoint | difference |\n|---:|---|---|\n");
    }
    for SharedCause { address, difference, cases } in causes {
        let _ = writeln!(out, "| {} | {} | {} |", cases.len(), cell(address), cell(&difference));
    }
    let mut failures = record.failures().peekable();
    if failures.peek().is_some() {
        out.push_str("\n### Failures\n\n| case | requirement | difference |\n|---|---|---|\n");
    }
    for (outcome, failure) in failures.by_ref().take(FAILURES) {
        let requirements = record.requirements_of(outcome).map(|requirement| {
            let (level, gist) = (requirement.level.keyword(), cell(&requirement.gist));
            match &requirement.standard {
                Some(url) => format!("{level}: {gist} ([clause](<{url}>))"),
                None => format!("{level}, house rule: {gist}"),
            }
        });
        let requirements = requirements.collect::<Vec<_>>().join("<br>");
        let differences: Vec<_> = failure.differences.iter().map(|difference| cell(difference)).collect();
        let _ = writeln!(out, "| {} | {requirements} | {} |", cell(&outcome.id), differences.join("<br>"));
    }
    let more = failures.count();
    if more > 0 {
        let _ = writeln!(out, "\n{more} more failures are in the other reports.");
    }
}

/// The text as the cell of a table: one line, without the meaning of any character.
fn cell(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().take(CHARACTERS) {
        match c {
            '\\' | '`' | '*' | '_' | '|' | '[' | ']' | '#' | '~' | '$' | '@' => out.extend(['\\', c]),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    if text.chars().nth(CHARACTERS).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::trial;

    #[test]
    fn the_markdown_summary_is_complete() {
        insta::assert_snapshot!(trial::text(markdown));
    }

    #[test]
    fn cells_have_no_markup() {
        assert_eq!(cell("a|b\n<c> `d`"), "a\\|b &lt;c&gt; \\`d\\`");
        assert_eq!(cell(&"x".repeat(CHARACTERS + 1)).chars().count(), CHARACTERS + 1);
    }
}
