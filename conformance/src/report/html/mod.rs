//! Report for people: one HTML page without external resources. It shows the numbers, the failures with all
//! exchanges, and a matrix of requirements and cases that can be filtered. Without its script the page shows
//! everything.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest as _, Sha256};

use crate::report::causes::shared_causes;
use crate::report::record::RunRecord;
use crate::run::verdict::{CaseFailure, CaseOutcome, ShownExchange, Verdict};
use crate::spec::requirement::Requirement;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// Verdicts in the order of the page, with their names in words and the signs that stand for them beside the
/// colour.
pub(crate) const VERDICTS: [(&str, &str, &str); 5] = [
    ("fail", "failed", "✕"),
    ("inconclusive", "inconclusive", "?"),
    ("gap", "known gap", "!"),
    ("pass", "passed", "✓"),
    ("skip", "skipped", "–"),
];

/// The page.
pub fn html(record: &RunRecord) -> String {
    let head = html! {
        p.kind { "Conformance report" }
        h1 { (record.target) }
        (facts(record))
    };
    let main = html! {
        (summary(record))
        (failures(record))
        (reasons(record))
        (matrix(record))
    };
    frame(&format!("Conformance of {}", record.target), &head, &main)
}

/// A page with style and script.
pub(crate) fn frame(title: &str, head: &Markup, main: &Markup) -> String {
    // A policy that the page states about itself: the responses that it shows can neither load nor run
    // anything.
    let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
    let policy = format!(
        "default-src 'none'; style-src {}; script-src {}; base-uri 'none'; form-action 'none'",
        hash(STYLE),
        hash(SCRIPT)
    );
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header { (head) }
                main { (main) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string() + "\n"
}

fn facts(record: &RunRecord) -> Markup {
    let seconds = record.end.took_ms / 1000;
    html! {
        dl.facts {
            div { dt { "Started" } dd { (record.started.strftime("%Y-%m-%d %H:%M:%S UTC")) } }
            div { dt { "Duration" } dd { (seconds / 60) " min " (seconds % 60) " s" } }
            div { dt { "Suite" } dd { (record.suite) } }
            @if let Some(seed) = record.seed { div { dt { "Seed" } dd { (seed) } } }
        }
        @if let Some(remark) = record.remark() { p.remark { (remark) } }
        @if !record.end.leftovers.is_empty() {
            p.remark { "These resources were created and could not be deleted:" }
            ul { @for leftover in &record.end.leftovers { li { code { (leftover) } } } }
        }
    }
}

/// The number of outcomes of each verdict, in the order of the page.
pub(crate) fn counts<'a>(outcomes: impl Iterator<Item = &'a CaseOutcome>) -> [usize; VERDICTS.len()] {
    outcomes.fold([0; VERDICTS.len()], |mut counts, outcome| {
        counts[place(&outcome.verdict)] += 1;
        counts
    })
}

/// The place of a verdict in the order of the page.
pub(crate) fn place(verdict: &Verdict) -> usize {
    VERDICTS.iter().position(|(name, ..)| *name == verdict.name()).unwrap_or_default()
}

fn summary(record: &RunRecord) -> Markup {
    let all = counts(record.outcomes.iter());
    let mut specifications: Vec<&str> = record.outcomes.iter().map(CaseOutcome::specification).collect();
    specifications.sort_unstable();
    specifications.dedup();
    html! {
        section aria-labelledby="summary" {
            h2 id="summary" { "Summary" }
            ul.totals {
                @for ((name, words, sign), count) in VERDICTS.iter().zip(all) {
                    li class=(name) { strong { (count) } " " span { span.sign aria-hidden="true" { (sign) } " " (words) } }
                }
            }
            (bar(&all))
            h3 { "By specification" }
            ul.parts {
                @for name in specifications {
                    @let counts = counts(record.outcomes.iter().filter(|outcome| outcome.specification() == name));
                    @let ran: usize = counts[..4].iter().sum();
                    li {
                        code { (name) }
                        (bar(&counts))
                        span.count { @if ran > 0 { (counts[3]) "/" (ran) } @else { "skipped" } }
                    }
                }
            }
        }
    }
}

/// A bar with a part for each verdict. The numbers are beside it as text.
fn bar(counts: &[usize]) -> Markup {
    let total = counts.iter().sum::<usize>().max(1);
    let percent = |count: usize| format!("{:.2}", 100.0 * count as f64 / total as f64);
    let parts = VERDICTS.iter().zip(counts).enumerate().filter(|(_, (_, count))| **count > 0);
    html! {
        svg.bar viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true" {
            @for (place, ((name, ..), count)) in parts {
                rect class=(name) x=(percent(counts[..place].iter().sum())) width=(percent(*count)) height="1" {}
            }
        }
    }
}

fn failures(record: &RunRecord) -> Markup {
    html! {
        section aria-labelledby="failures" {
            h2 id="failures" { "Failures" }
            @if record.failures().next().is_none() { p { "No case failed." } }
            @let causes = shared_causes(record);
            @if !causes.is_empty() {
                h3 { "Probably one cause" }
                ul.reasons {
                    @for cause in &causes {
                        li {
                            strong { (cause.cases.len()) } " " code { (cause.address) } ": " (cause.difference)
                            " (" a href={ "#" (cause.cases[0]) } { (cause.cases[0]) } " and others)"
                        }
                    }
                }
                h3 { "Each case" }
            }
            @for (outcome, failure) in record.failures() {
                (failure_details(record, outcome, failure))
            }
        }
    }
}

fn failure_details(record: &RunRecord, outcome: &CaseOutcome, failure: &CaseFailure) -> Markup {
    html! {
        details.failure id=(outcome.id) {
            summary { code { (outcome.id) } " " span.first { (failure.differences.first().map_or("", String::as_str)) } }
            @for requirement in record.requirements_of(outcome) {
                p { (tags(requirement)) " " (requirement.gist) " " (source(requirement)) }
            }
            ul.differences { @for difference in &failure.differences { li { (difference) } } }
            @for (number, exchange) in (1..).zip(&failure.exchanges) {
                (exchange_details(number, failure.exchanges.len(), exchange))
            }
        }
    }
}

pub(crate) fn exchange_details(number: usize, of: usize, exchange: &ShownExchange) -> Markup {
    html! {
        h3 { "Step " (number) @if number == of { " (failed)" } }
        div.command {
            pre tabindex="0" { code { (exchange.request) } }
            button type="button" data-copy hidden { "Copy as curl" }
        }
        @if exchange.answer.is_empty() { p { "The server sent no response." } }
        @else { pre tabindex="0" { code { (exchange.answer) } } }
    }
}

fn reasons(record: &RunRecord) -> Markup {
    html! {
        @for (verdict, title) in [("inconclusive", "Inconclusive, by reason"), ("gap", "Known gaps, by reason"), ("skip", "Skipped, by reason")] {
            @let reasons = record.reasons(verdict);
            @if !reasons.is_empty() {
                section {
                    h2 { (title) }
                    ul.reasons { @for (reason, count) in reasons { li { strong { (count) } " " (reason) } } }
                }
            }
        }
    }
}

/// The matrix: a row for each requirement, with a mark for each of its cases.
fn matrix(record: &RunRecord) -> Markup {
    let mut cases: BTreeMap<&str, Vec<&CaseOutcome>> = BTreeMap::new();
    for outcome in &record.outcomes {
        for id in &outcome.covers {
            cases.entry(id).or_default().push(outcome);
        }
    }
    let mut specifications: Vec<&str> = record.requirements.iter().map(Requirement::specification).collect();
    specifications.sort_unstable();
    specifications.dedup();
    html! {
        section aria-labelledby="matrix" {
            h2 id="matrix" { "Requirements and cases" }
            form.filters hidden {
                label { "Text" input type="search" name="text" autocomplete="off"; }
                (choice("Verdict", "verdict", VERDICTS.iter().map(|(name, words, _)| (*name, *words))))
                (choice("Level", "level", ["MUST", "SHOULD", "MAY"].map(|level| (level, level)).into_iter()))
                (choice("Source", "kind", [("standard", "standard"), ("house", "house rule")].into_iter()))
                (choice("Specification", "specification", specifications.into_iter().map(|name| (name, name))))
                output {}
            }
            table {
                thead { tr { th scope="col" { "Requirement" } th scope="col" { "Cases" } } }
                tbody {
                    @for requirement in &record.requirements {
                        @if let Some(cases) = cases.get(requirement.id.as_str()) {
                            (matrix_row(requirement, cases))
                        }
                    }
                }
            }
        }
    }
}

fn choice<'a>(label: &str, name: &str, options: impl Iterator<Item = (&'a str, &'a str)>) -> Markup {
    html! {
        label { (label)
            select name=(name) autocomplete="off" {
                option value="" { "all" }
                @for (value, words) in options { option value=(value) { (words) } }
            }
        }
    }
}

fn matrix_row(requirement: &Requirement, cases: &[&CaseOutcome]) -> Markup {
    html! {
        tr data-level=(requirement.level.keyword()) data-kind=(requirement.kind()) data-specification=(requirement.specification()) {
            td { code { (requirement.id) } " " (tags(requirement)) br; (requirement.gist) " " (source(requirement)) }
            td { ul.cases { @for case in cases { (case_mark(requirement, case)) } } }
        }
    }
}

/// The mark of a case: a link to its failure, or the sign of its verdict with the name of the case.
fn case_mark(requirement: &Requirement, case: &CaseOutcome) -> Markup {
    let (verdict, words, sign) = VERDICTS[place(&case.verdict)];
    let name =
        case.id.strip_prefix(&requirement.id).map_or(case.id.as_str(), |name| name.trim_start_matches('/'));
    html! {
        li class=(verdict) {
            span.sign role="img" aria-label=(words) { (sign) } " "
            @if verdict == "fail" { a href={ "#" (case.id) } { (name) } } @else { (name) }
        }
    }
}

pub(crate) fn tags(requirement: &Requirement) -> Markup {
    let kind = if requirement.standard.is_some() { "standard" } else { "house rule" };
    html! { span.tag { (requirement.level.keyword()) } " " span.tag { (kind) } }
}

pub(crate) fn source(requirement: &Requirement) -> Markup {
    html! {
        @match &requirement.standard {
            Some(url) => { a href=(url) rel="noreferrer" { "clause" } }
            None => { span.source { (requirement.source()) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use scraper::{Html, Selector};

    use super::*;
    use crate::report::trial;

    /// The page of the invented run. The server's tests check its accessibility in a browser.
    const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/example-report.html");

    #[test]
    fn the_page_is_the_documented_example() {
        let text = trial::text(html);
        if std::env::var_os("TREFOIL_UPDATE_DOCS").is_some() {
            std::fs::write(EXAMPLE, &text).unwrap();
        }
        let example = std::fs::read_to_string(EXAMPLE).unwrap();
        assert!(text == example, "set TREFOIL_UPDATE_DOCS=1 to write {EXAMPLE}");
    }

    #[test]
    fn the_page_loads_and_runs_nothing_else() {
        let text = trial::text(html);
        let page = Html::parse_document(&text);
        let all = Selector::parse("*").unwrap();
        let mut ids = std::collections::BTreeSet::new();
        for element in page.select(&all) {
            for (name, value) in element.value().attrs() {
                assert!(!name.starts_with("on") && name != "src" && name != "style", "{name}={value}");
                assert!(name != "id" || ids.insert(value), "id {value} occurs twice");
                let is_link = name == "href" && element.value().name() == "a";
                assert!(
                    name != "href" || is_link && (value.starts_with('#') || value.starts_with("https:")),
                    "{value}"
                );
            }
        }
        assert!(!STYLE.contains("url(") && !STYLE.contains("@import"));
        for name in ["link", "img", "iframe", "object", "base"] {
            assert!(!text.contains(&format!("<{name} ")), "{name}");
        }
        assert_eq!(text.matches("<script>").count(), 1);
    }
}
