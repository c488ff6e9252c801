//! Runs one case: sets up its preconditions, sends its requests and compares the responses.

use std::time::Instant;

use jiff::Timestamp;
use serde_json::Value;

use super::matcher::Difference;
use super::sending::{Exchanged, send_step};
use super::shared_exchange::{ExchangeCell, SharedExchange, SharedExchanges};
use super::step_check::{self, CheckError, SeenParts};
use super::verdict::{CaseFailure, CaseOutcome, ShownExchange, Verdict, weigh};
use crate::environment::leftovers::deletion_of_export;
use crate::environment::preconditions::{self, CaseContext};
use crate::environment::{SetupError, TestEnvironment};
use crate::spec::Specification;
use crate::spec::case::{Case, Step};
use crate::wire::build::{BuildError, build_request};
use crate::wire::exchange::{self, SentRequest};
use crate::wire::variables::{ANSWERED_AT, UnknownVariable};

/// Maximum number of repetitions of a request on a server that the suite did not start: more would use up
/// what the server grants to one client.
const MAX_REPEATS_ELSEWHERE: usize = 25;

/// Runs one case. `gap` is the reason why it is known to fail; `exchanges` are those that cases of the run
/// share.
pub async fn outcome(
    environment: &TestEnvironment,
    spec: &Specification,
    case: &Case,
    gap: Option<&str>,
    exchanges: &SharedExchanges,
) -> CaseOutcome {
    let started = Instant::now();
    let tried = match environment.lost() {
        Some(reason) => Err(Verdict::Inconclusive { reason }),
        None => match exchanges.of(case) {
            Some(exchange) => try_shared(environment, case, exchange).await,
            None => try_case(environment, case).await,
        },
    };
    CaseOutcome {
        id: case.id.clone(),
        covers: case.covers.clone(),
        level: spec.level_of(case),
        // All texts are masked at the end, because a step may reveal a secret that an earlier exchange
        // contains.
        verdict: weigh(tried, gap).map_texts(|text| environment.target.secrets.mask(text)),
        took_ms: super::verdict::milliseconds_since(started),
    }
}

/// Compares the response of an exchange that several cases share, and sends its request before if no other
/// case has done it.
async fn try_shared(
    environment: &TestEnvironment,
    case: &Case,
    exchange: &ExchangeCell,
) -> Result<(), Verdict> {
    let step = &case.steps[0];
    let shared = exchange.get_or_init(|| share(environment, case)).await;
    let SharedExchange { context, request, exchanged } = shared.as_ref().map_err(Clone::clone)?;
    if let Some(verdict) = step_check::untested(environment, context, step, &exchanged.answer) {
        return Err(verdict);
    }
    let mut context = context.for_another_case();
    let texts = exchange_texts(request, exchanged);
    let exchanged = exchanged.clone();
    let differences =
        compare(environment, &mut context, step, request, exchanged, &mut SeenParts::new()).await?;
    match differences.is_empty() {
        true => Ok(()),
        false => Err(Verdict::Fail(CaseFailure { exchanges: vec![texts], differences })),
    }
}

/// Sets up the preconditions of a case and sends its only request, for this case and others.
async fn share(environment: &TestEnvironment, case: &Case) -> Result<SharedExchange, Verdict> {
    in_turn(environment, case, async |context| {
        set_up(environment, context, case).await?;
        let step = &case.steps[0];
        let request =
            build_request(&step.request, &context.vars).map_err(|error| not_built(environment, error))?;
        match send_step(environment, context, step, &request).await {
            Ok(exchanged) => {
                context.vars.set(ANSWERED_AT, Timestamp::now().as_millisecond());
                context.deletions.extend(deletion_of_export(&request, &exchanged.answer));
                Ok(SharedExchange { context: context.for_another_case(), request, exchanged })
            }
            Err(error) => {
                let differences = vec![not_answered(environment, context, error).await?];
                let exchanges =
                    vec![ShownExchange { request: exchange::curl(&request), answer: String::new() }];
                Err(Verdict::Fail(CaseFailure { exchanges, differences }))
            }
        }
    })
    .await
}

/// Runs the steps of a case.
async fn try_case(environment: &TestEnvironment, case: &Case) -> Result<(), Verdict> {
    in_turn(environment, case, async |context| try_steps(environment, context, case).await).await
}

/// Does the work of a case. On a server that is not ours, cases that start exports take turns, and each
/// deletes its exports at its end, because servers limit how many run at once.
async fn in_turn<T>(
    environment: &TestEnvironment,
    case: &Case,
    work: impl AsyncFnOnce(&mut CaseContext) -> Result<T, Verdict>,
) -> Result<T, Verdict> {
    let mut context = CaseContext::new(environment);
    let starts_export = case.steps.iter().any(|step| step.request.to.ends_with("$export"));
    if !starts_export || !environment.target.treatment.is_shared {
        return work(&mut context).await;
    }
    let _turn = environment.shared.exports.lock().await;
    let tried = work(&mut context).await;
    for deletion in std::mem::take(&mut context.deletions) {
        // The end of the run reports what cannot be deleted.
        drop(environment.target.send(&deletion, &mut context.cookies).await);
    }
    tried
}

async fn try_steps(
    environment: &TestEnvironment,
    context: &mut CaseContext,
    case: &Case,
) -> Result<(), Verdict> {
    set_up(environment, context, case).await?;
    let mut failed: Option<CaseFailure> = None;
    let mut exchanges = Vec::new();
    for (number, step) in (1..).zip(&case.steps) {
        if step.only_house && !context.target(environment).treatment.house_rules {
            continue;
        }
        let differences = try_step(environment, context, step, &mut exchanges).await?;
        if differences.is_empty() {
            continue;
        }
        match &mut failed {
            // The failures of the other independent steps are added to that of the first.
            Some(failure) => {
                let differences = differences.into_iter().map(|text| format!("step {number}: {text}"));
                failure.differences.extend(differences);
            }
            None => failed = Some(CaseFailure { exchanges: exchanges.clone(), differences }),
        }
        if !case.independent {
            break;
        }
    }
    failed.map_or(Ok(()), |failure| Err(Verdict::Fail(failure)))
}

/// Sets up the preconditions of a case.
async fn set_up(
    environment: &TestEnvironment,
    context: &mut CaseContext,
    case: &Case,
) -> Result<(), Verdict> {
    for precondition in &case.given {
        let ready = preconditions::set_up(environment, precondition, context).await;
        if let Err(error) = ready {
            return Err(not_set_up(environment, precondition, error).await);
        }
    }
    context.set_cookies(&environment.target);
    Ok(())
}

/// Sends the request of a step as often as the row says, and compares each response. Returns the differences
/// of the first response that has any, and adds its exchange to `exchanges`.
async fn try_step(
    environment: &TestEnvironment,
    context: &mut CaseContext,
    step: &Step,
    exchanges: &mut Vec<ShownExchange>,
) -> Result<Vec<Difference>, Verdict> {
    let mut seen_parts = SeenParts::new();
    let items = items(environment, context, step)?;
    let most = if context.is_own_server(environment) { usize::MAX } else { MAX_REPEATS_ELSEWHERE };
    let times = items.as_ref().map_or(step.request.times.min(most), Vec::len);
    for round in 0..times {
        if let Some(items) = &items {
            context.vars.set("item", items[round].clone());
        }
        // A report shows the last round of a repeated request only.
        if round > 0 {
            exchanges.pop();
        }
        let request =
            build_request(&step.request, &context.vars).map_err(|error| not_built(environment, error))?;
        let exchanged = match send_step(environment, context, step, &request).await {
            Ok(exchanged) => exchanged,
            Err(error) => {
                let difference = not_answered(environment, context, error).await?;
                exchanges.push(ShownExchange { request: exchange::curl(&request), answer: String::new() });
                return Ok(vec![difference]);
            }
        };
        context.deletions.extend(deletion_of_export(&request, &exchanged.answer));
        if let Some(verdict) = step_check::untested(environment, context, step, &exchanged.answer) {
            return Err(verdict);
        }
        exchanges.push(exchange_texts(&request, &exchanged));
        let differences = compare(environment, context, step, &request, exchanged, &mut seen_parts).await?;
        if !differences.is_empty() {
            return Ok(differences);
        }
    }
    Ok(Vec::new())
}

/// The texts of an exchange for reports.
fn exchange_texts(request: &SentRequest, exchanged: &Exchanged) -> ShownExchange {
    ShownExchange { request: exchange::curl(request), answer: exchange::shown(&exchanged.answer) }
}

async fn compare<'a>(
    environment: &TestEnvironment,
    context: &mut CaseContext,
    step: &'a Step,
    request: &SentRequest,
    exchanged: Exchanged,
    seen_parts: &mut SeenParts<'a>,
) -> Result<Vec<Difference>, Verdict> {
    let compared = step_check::differences(environment, context, step, request, exchanged, seen_parts).await;
    compared.map_err(|error| match error {
        CheckError::Ended(verdict) => verdict,
        CheckError::Variable(error) => not_built(environment, error.into()),
    })
}

/// The items for which a step is repeated, if it names a list.
fn items(
    environment: &TestEnvironment,
    context: &CaseContext,
    step: &Step,
) -> Result<Option<Vec<Value>>, Verdict> {
    let Some(list) = &step.request.each else { return Ok(None) };
    // Without an item, nothing would be compared.
    let items = context.vars.get(list).and_then(Value::as_array).filter(|items| !items.is_empty());
    match items {
        Some(items) => Ok(Some(items.clone())),
        None => Err(not_built(environment, UnknownVariable(list.clone()).into())),
    }
}

/// The difference for a request without a response, or the verdict if the case is not tested for this reason.
async fn not_answered(
    environment: &TestEnvironment,
    context: &CaseContext,
    error: SetupError,
) -> Result<Difference, Verdict> {
    match error {
        // A server of another maker may ask for any pause; the case is not tested if the run ends before.
        SetupError::TooSlow(reason) if !context.is_own_server(environment) => {
            Err(Verdict::Inconclusive { reason })
        }
        SetupError::Lacking(reason) if !context.is_own_server(environment) => Err(Verdict::Skip { reason }),
        error => match environment.find_lost(&error).await {
            Some(reason) => Err(Verdict::Inconclusive { reason }),
            None => Ok(error.to_string()),
        },
    }
}

/// The verdict on a case whose precondition was not set up. Another case reports what failed there, so this
/// case only states it.
async fn not_set_up(environment: &TestEnvironment, precondition: &str, error: SetupError) -> Verdict {
    match error {
        SetupError::Lacking(reason) => Verdict::Skip { reason },
        SetupError::Variable(error) if !environment.target.treatment.house_rules => lacking(&error),
        error => {
            let reason = match environment.find_lost(&error).await {
                Some(reason) => reason,
                None => format!("given '{precondition}': {error}"),
            };
            Verdict::Inconclusive { reason }
        }
    }
}

/// The verdict on a case whose request or expectation cannot be filled in.
fn not_built(environment: &TestEnvironment, error: BuildError) -> Verdict {
    match error {
        BuildError::Variable(error) if !environment.target.treatment.house_rules => lacking(&error),
        BuildError::Destination(error) if !environment.target.treatment.house_rules => {
            Verdict::Skip { reason: error.to_string() }
        }
        error => Verdict::Fail(CaseFailure::before(error.to_string())),
    }
}

fn lacking(error: &UnknownVariable) -> Verdict {
    Verdict::Skip { reason: format!("the profile has no '{}'", error.0) }
}
