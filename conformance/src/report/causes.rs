//! Causes that several failures probably share: the same difference in answers of the same endpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

use super::record::RunRecord;
use crate::run::verdict::{CaseFailure, CaseOutcome};

/// Number of failures from which they count as one cause.
const FEWEST: usize = 3;

/// Long texts and numbers, such as tokens and times, which differ from case to case.
static VARYING: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#""[^"]{40,}"|[A-Za-z0-9_.~-]{24,}|[0-9]{6,}"#).expect("a valid expression")
});

/// A difference that several failures have in common.
#[derive(Debug, PartialEq, Eq)]
pub struct SharedCause<'a> {
    /// Address of the endpoint, without its query.
    pub address: &'a str,
    /// The difference. What varies is shown as `…`.
    pub difference: String,
    /// The ids of the cases, in the order of the run.
    pub cases: Vec<&'a str>,
}

/// The causes that several failures share, those of most failures first. Each failure counts once.
pub fn shared_causes(record: &RunRecord) -> Vec<SharedCause<'_>> {
    let mut open: Vec<(&CaseOutcome, BTreeSet<(&str, String)>)> =
        record.failures().map(|(outcome, failure)| (outcome, signs(failure))).collect();
    let mut causes = Vec::new();
    loop {
        let mut counts = BTreeMap::<&(&str, String), usize>::new();
        open.iter().flat_map(|(_, signs)| signs).for_each(|sign| *counts.entry(sign).or_default() += 1);
        let most = counts.into_iter().filter(|(_, count)| *count >= FEWEST).max_by_key(|(_, count)| *count);
        let Some(((address, difference), _)) = most.map(|(sign, count)| (sign.clone(), count)) else {
            return causes;
        };
        let sign = (address, difference);
        let (same, others): (Vec<_>, Vec<_>) = open.into_iter().partition(|(_, signs)| signs.contains(&sign));
        open = others;
        let cases = same.iter().map(|(outcome, _)| outcome.id.as_str()).collect();
        causes.push(SharedCause { address: sign.0, difference: sign.1, cases });
    }
}

/// The differences of a failure, each with the address to which its last request was sent.
fn signs(failure: &CaseFailure) -> BTreeSet<(&str, String)> {
    let request = failure.exchanges.last().map(|exchange| exchange.request.as_str()).unwrap_or_default();
    let address =
        request.rsplit('\'').nth(1).unwrap_or_default().split(['?', '#']).next().unwrap_or_default();
    // An answer with an unexpected status lacks the error for the same reason.
    let has_status = failure.differences.iter().any(|difference| difference.starts_with("status: "));
    let follows = |difference: &&String| has_status && difference.starts_with("body.error: nothing ");
    let differences = failure.differences.iter().filter(|difference| !follows(difference));
    differences.map(|difference| (address, VARYING.replace_all(difference, "…").into_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::verdict::{ShownExchange, Verdict};
    use crate::spec::requirement::Level;

    const NO_ERROR: &str = "body.error: nothing instead of \"invalid_grant\"";

    #[test]
    fn failures_with_one_difference_at_one_endpoint_have_one_cause() {
        let failed = |id: &str, address: &str, differences: &[&str]| {
            let request = format!("curl -i '{address}?code=1'");
            let exchanges = vec![ShownExchange { request, answer: String::new() }];
            let differences = differences.iter().map(|text| (*text).to_owned()).collect();
            let verdict = Verdict::Fail(CaseFailure { exchanges, differences });
            CaseOutcome { id: id.to_owned(), covers: Vec::new(), level: Level::Must, verdict, took_ms: 1 }
        };
        let outcomes = vec![
            failed(
                "a/1",
                "https://a/token",
                &["status: 403 instead of 400", "body.exp: 1700000001 instead of 1"],
            ),
            failed("a/2", "https://a/token", &["status: 403 instead of 400"]),
            failed("a/3", "https://a/other", &["status: 403 instead of 400"]),
            failed("a/4", "https://a/token", &["body.exp: 1700000002 instead of 1"]),
            failed("a/5", "https://a/token", &["body.exp: 1700000003 instead of 1"]),
            failed("b/1", "https://a/token", &["status: 200 instead of 400", NO_ERROR]),
            failed("b/2", "https://a/token", &["status: 200 instead of 401", NO_ERROR]),
            failed("b/3", "https://a/token", &["status: 204 instead of 400", NO_ERROR]),
        ];
        let record = RunRecord { outcomes, ..RunRecord::default() };
        let cause = SharedCause {
            address: "https://a/token",
            difference: "body.exp: … instead of 1".to_owned(),
            cases: vec!["a/1", "a/4", "a/5"],
        };
        assert_eq!(shared_causes(&record), [cause]);
    }
}
