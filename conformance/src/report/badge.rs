//! Badge for a README, as SVG.

use maud::{PreEscaped, html};

use super::record::RunRecord;
use crate::run::verdict::RunSummary;

const LABEL: &str = "conformance";
/// Height of the badge, width of an average character of its font at 11 px, and the space beside a text, in
/// pixels.
const HEIGHT: usize = 20;
const CHARACTER: usize = 7;
const SPACE: usize = 6;

/// Colours with a contrast of at least 4.5 to white text.
const GREEN: &str = "#1d7a45";
const RED: &str = "#b3261e";
const YELLOW: &str = "#856404";

/// The badge.
pub fn badge(record: &RunRecord) -> String {
    let RunSummary { passed, failed, inconclusive, .. } = record.end.summary;
    let is_stopped = record.end.interrupted || record.end.lost.is_some();
    let (text, colour) = match (failed, inconclusive) {
        (1.., _) => (format!("{failed} failed"), RED),
        (_, 1..) => (format!("{inconclusive} inconclusive"), YELLOW),
        _ if is_stopped => ("incomplete".to_owned(), YELLOW),
        _ => (format!("{passed} passed"), GREEN),
    };
    let width = |text: &str| text.chars().count() * CHARACTER + 2 * SPACE;
    let (left, right) = (width(LABEL), width(&text));
    let name = format!("{LABEL}: {text}");
    let svg = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(left + right) height=(HEIGHT) role="img" aria-label=(name) {
            title { (name) }
            clipPath id="edge" { rect width=(left + right) height=(HEIGHT) rx="3" {} }
            g clip-path="url(#edge)" {
                rect width=(left) height=(HEIGHT) fill="#444" {}
                rect x=(left) width=(right) height=(HEIGHT) fill=(colour) {}
            }
            g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" {
                (label(left / 2, left - 2 * SPACE, LABEL))
                (label(left + right / 2, right - 2 * SPACE, &text))
            }
        }
    };
    svg.into_string() + "\n"
}

/// A text with this middle and width.
fn label(middle: usize, width: usize, text: &str) -> PreEscaped<String> {
    html! { text x=(middle) y="14" textLength=(width) { (text) } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::trial;

    #[test]
    fn the_badge_is_complete() {
        insta::assert_snapshot!(trial::text(badge));
    }

    #[test]
    fn the_badge_states_the_worst_verdict() {
        let of = |summary: RunSummary, interrupted: bool| {
            let mut record = RunRecord::default();
            (record.end.summary, record.end.interrupted) = (summary, interrupted);
            badge(&record)
        };
        let summary = RunSummary { passed: 12, gaps: 1, skipped: 4, ..RunSummary::default() };
        assert!(of(summary, false).contains(">12 passed<"));
        assert!(of(summary, true).contains(">incomplete<"));
        assert!(of(RunSummary { inconclusive: 2, ..summary }, false).contains(">2 inconclusive<"));
        assert!(of(RunSummary { failed: 3, inconclusive: 2, ..summary }, false).contains(">3 failed<"));
    }
}
