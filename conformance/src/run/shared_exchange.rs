//! Exchanges that several cases of a run share: cases that send the same request from the same preconditions
//! compare one response with their own expectations, so that each requirement keeps its own verdict.

use std::collections::HashMap;

use http::StatusCode;
use tokio::sync::OnceCell;

use super::sending::Exchanged;
use super::verdict::Verdict;
use crate::environment::preconditions::CaseContext;
use crate::spec::case::{Case, Step};
use crate::spec::permits::Permit;
use crate::wire::exchange::SentRequest;

/// An exchange that the first of its cases makes, or the verdict on all of them if it cannot be made.
pub(super) type ExchangeCell = OnceCell<Result<SharedExchange, Verdict>>;

/// The exchanges that several cases of a run share, by the preconditions and the request.
#[derive(Default)]
pub struct SharedExchanges(HashMap<String, ExchangeCell>);

/// A request and its response, with the state of the case that has sent it.
pub(super) struct SharedExchange {
    /// State after the request.
    pub context: CaseContext,
    /// The request.
    pub request: SentRequest,
    /// The responses.
    pub exchanged: Exchanged,
}

impl SharedExchanges {
    /// The exchanges that at least two of these cases share.
    pub fn among<'a>(cases: impl IntoIterator<Item = &'a Case>) -> Self {
        let mut counts = HashMap::<String, usize>::new();
        for key in cases.into_iter().filter_map(key) {
            *counts.entry(key).or_default() += 1;
        }
        counts.retain(|_, count| *count > 1);
        Self(counts.into_keys().map(|key| (key, ExchangeCell::new())).collect())
    }

    /// The exchange of a case; `None` if the case shares it with no other.
    pub(super) fn of(&self, case: &Case) -> Option<&ExchangeCell> {
        self.0.get(&key(case)?)
    }
}

/// The preconditions and the request of a case that can share its exchange.
fn key(case: &Case) -> Option<String> {
    shareable(case).map(|step| format!("{:?} {:?}", case.given, step.request))
}

/// Choices of a server that the suite follows with further requests.
const FOLLOWED: [Permit; 4] =
    [Permit::ErrorPage, Permit::Redirect, Permit::SignInElsewhere, Permit::SignOutPage];

/// The only step of a case whose exchange depends on nothing else in the case; `None` if there is more to it.
fn shareable(case: &Case) -> Option<&Step> {
    let [step] = &case.steps[..] else { return None };
    let request = &step.request;
    let is_repeated = request.times != 1 || request.each.is_some();
    let has_page =
        step.expect.page.is_some() || step.house.as_ref().is_some_and(|house| house.page.is_some());
    let limit = StatusCode::TOO_MANY_REQUESTS.as_u16();
    let expects_limit = step.expect.status.as_ref().is_some_and(|status| status.matches(limit));
    let is_followed = step.permits.iter().any(|permit| FOLLOWED.contains(permit));
    (!is_repeated && !has_page && !expects_limit && !is_followed).then_some(step)
}
