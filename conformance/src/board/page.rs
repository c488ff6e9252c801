//! The page of a board, with a column for each server.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::BoardColumn;
use crate::report::html::{VERDICTS, counts, exchange_details, frame, place, source, tags};
use crate::run::verdict::{CaseFailure, CaseOutcome, Verdict};
use crate::spec::requirement::Requirement;

/// The page.
pub fn page(columns: &[BoardColumn], time: jiff::Timestamp) -> String {
    let head = html! {
        p.kind { "Conformance board" }
        h1 { (columns.len()) " servers" }
        dl.facts {
            div { dt { "Finished" } dd { (time.strftime("%Y-%m-%d %H:%M:%S UTC")) } }
            div { dt { "Suite" } dd { (env!("CARGO_PKG_VERSION")) } }
        }
    };
    let main = html! {
        (servers(columns))
        (matrix(columns))
        @for (number, column) in columns.iter().enumerate() { (findings(number, column)) }
    };
    frame("Conformance board", &head, &main)
}

fn servers(columns: &[BoardColumn]) -> Markup {
    html! {
        section aria-labelledby="servers" {
            h2 id="servers" { "Servers" }
            p { "Rows about one server's own rules, and rows that a server cannot run, are skipped: see the documents of "
                "the suite. A failure that was judged by hand has its cause beside it." }
            table.servers {
                thead { tr {
                    th scope="col" { "Server" }
                    @for (_, words, _) in VERDICTS { th scope="col" { (words) } }
                    th scope="col" { "judged" }
                } }
                tbody { @for (number, column) in columns.iter().enumerate() {
                    tr {
                        th scope="row" { a href={ "#server-" (number) } { (column.name) } }
                        @match &column.record {
                            Ok(record) => {
                                @let all = counts(record.outcomes.iter());
                                @for ((name, words, _), count) in VERDICTS.iter().zip(all) {
                                    td class=(name) data-label=(words) { (count) }
                                }
                                td data-label="judged" { (judged_failures(column)) "/" (all[0]) }
                            }
                            Err(error) => { td colspan="6" { "not tested: " (error) } }
                        }
                    }
                } }
            }
        }
    }
}

/// The number of failures with a judged cause.
fn judged_failures(column: &BoardColumn) -> usize {
    let failures = column.record.iter().flat_map(|record| record.failures());
    failures.filter(|(outcome, _)| column.judged.contains_key(&outcome.id)).count()
}

/// The requirements that a server was asked about, with the worst verdict of each server.
fn matrix(columns: &[BoardColumn]) -> Markup {
    let mut requirements: BTreeMap<&str, &Requirement> = BTreeMap::new();
    let mut cells: BTreeMap<&str, BTreeMap<usize, Vec<&CaseOutcome>>> = BTreeMap::new();
    for (number, column) in columns.iter().enumerate() {
        let Ok(record) = &column.record else { continue };
        requirements.extend(record.requirements.iter().map(|one| (one.id.as_str(), one)));
        for outcome in record.outcomes.iter().filter(|outcome| outcome.verdict.name() != "skip") {
            for id in &outcome.covers {
                cells.entry(id).or_default().entry(number).or_default().push(outcome);
            }
        }
    }
    html! {
        section aria-labelledby="matrix" {
            h2 id="matrix" { "Requirements" }
            table.board {
                thead { tr {
                    th scope="col" { "Requirement" }
                    @for column in columns { th scope="col" { (column.name) } }
                } }
                tbody { @for (id, of_servers) in &cells {
                    @if let Some(requirement) = requirements.get(id) {
                        tr {
                            td { code { (id) } " " (tags(requirement)) br; (requirement.gist) " " (source(requirement)) }
                            @for (number, column) in columns.iter().enumerate() {
                                td data-label=(column.name) { (cell(number, of_servers.get(&number))) }
                            }
                        }
                    }
                } }
            }
        }
    }
}

/// The worst verdict of the cases, and for a failure a link to its first case.
fn cell(server: usize, outcomes: Option<&Vec<&CaseOutcome>>) -> Markup {
    let worst = outcomes.into_iter().flatten().min_by_key(|outcome| place(&outcome.verdict));
    let Some(worst) = worst else { return html! { span.skip { "–" } } };
    let (name, words, sign) = VERDICTS[place(&worst.verdict)];
    html! {
        span class=(name) {
            span.sign aria-hidden="true" { (sign) } " "
            @match worst.verdict {
                Verdict::Fail(_) => { a href={ "#" (anchor(server, &worst.id)) } { (words) } }
                _ => { (words) }
            }
        }
    }
}

fn anchor(server: usize, case: &str) -> String {
    format!("server-{server}-{case}")
}

/// The failures of a server: requests, judged cause, and since when it fails.
fn findings(number: usize, column: &BoardColumn) -> Markup {
    html! {
        section aria-labelledby={ "server-" (number) } {
            h2 id={ "server-" (number) } { (column.name) }
            @match &column.record {
                Err(error) => { p.remark { "It could not be tested: " (error) } }
                Ok(record) => {
                    p { "Tested at " code { (record.target) } " on " (record.started.strftime("%Y-%m-%d %H:%M UTC")) "." }
                    @if let Some(remark) = record.remark() { p.remark { (remark) } }
                    @if record.failures().next().is_none() { p { "No case failed." } }
                    @for (outcome, failure) in record.failures() { (finding(number, column, outcome, failure)) }
                }
            }
        }
    }
}

fn finding(number: usize, column: &BoardColumn, outcome: &CaseOutcome, failure: &CaseFailure) -> Markup {
    let requirements = column.record.iter().flat_map(|record| record.requirements_of(outcome));
    html! {
        details.failure id=(anchor(number, &outcome.id)) {
            summary { code { (outcome.id) } " " span.first { (failure.differences.first().map_or("", String::as_str)) } }
            @for requirement in requirements { p { (tags(requirement)) " " (requirement.gist) " " (source(requirement)) } }
            @match column.judged.get(&outcome.id) {
                Some(cause) => { p { strong { "Judged: " } (cause) } }
                None => { p { "Not judged yet." } }
            }
            @if let Some(since) = column.since.get(&outcome.id) {
                p { "Fails since " (since.strftime("%Y-%m-%d %H:%M UTC")) "." }
            }
            ul.differences { @for difference in &failure.differences { li { (difference) } } }
            @for (step, exchange) in (1..).zip(&failure.exchanges) {
                (exchange_details(step, failure.exchanges.len(), exchange))
            }
        }
    }
}
