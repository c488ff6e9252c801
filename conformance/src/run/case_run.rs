//! Runs one case: sets up its preconditions, sends its requests and compares the responses.

use std::borrow::Cow;
use std::time::Instant;

use http::StatusCode;
use serde_json::Value;

use super::matcher::Difference;
use super::response_check;
use super::verdict::{CaseFailure, CaseOutcome, ShownExchange, Verdict, weigh};
use crate::environment::leftovers::deletion_of_export;
use crate::environment::preconditions::{self, CaseContext};
use crate::environment::{SetupError, TestEnvironment};
use crate::environment::{applications, browser};
use crate::spec::Specification;
use crate::spec::case::{Case, Step};
use crate::spec::expectation::{ExpectedStatus, PageKind};
use crate::spec::request::Body;
use crate::wire::answer_part;
use crate::wire::build::{BuildError, build_request};
use crate::wire::exchange::{self, Answer, SentRequest};
use crate::wire::jose;
use crate::wire::random::random_text;
use crate::wire::variables::{UnknownVariable, Variables};

/// Maximum number of repetitions of a request on a server that the suite did not start: more would use up
/// what the server grants to one client.
const MAX_REPEATS_ELSEWHERE: usize = 25;

/// Runs one case. `gap` is the reason why it is known to fail.
pub async fn outcome(
    world: &TestEnvironment,
    spec: &Specification,
    case: &Case,
    gap: Option<&str>,
) -> CaseOutcome {
    let started = Instant::now();
    let tried = match world.lost() {
        Some(reason) => Err(Verdict::Inconclusive { reason }),
        None => try_case(world, case).await,
    };
    CaseOutcome {
        id: case.id.clone(),
        covers: case.covers.clone(),
        level: spec.level_of(case),
        // All texts are masked at the end, because a step may reveal a secret that an earlier exchange
        // contains.
        verdict: weigh(tried, gap).map_texts(|text| world.target.secrets.mask(text)),
        took_ms: super::verdict::milliseconds_since(started),
    }
}

/// Runs the steps of a case. On a server that is not ours, cases that start exports take turns, and each
/// deletes its exports at its end, because servers limit how many run at once.
async fn try_case(world: &TestEnvironment, case: &Case) -> Result<(), Verdict> {
    let mut scene = CaseContext::new(world);
    let starts_export = case.steps.iter().any(|step| step.request.to.ends_with("$export"));
    if !starts_export || world.target.is_trefoil() {
        return try_steps(world, &mut scene, case).await;
    }
    let _turn = world.shared.exports.lock().await;
    let tried = try_steps(world, &mut scene, case).await;
    for deletion in std::mem::take(&mut scene.deletions) {
        // The end of the run reports what cannot be deleted.
        drop(world.target.send(&deletion, &mut scene.cookies).await);
    }
    tried
}

async fn try_steps(world: &TestEnvironment, scene: &mut CaseContext, case: &Case) -> Result<(), Verdict> {
    for given in &case.given {
        let ready = preconditions::set_up(world, given, scene).await;
        if let Err(error) = ready {
            return Err(not_set_up(world, given, error).await);
        }
    }
    scene.set_cookies(&world.target);
    let mut failed: Option<CaseFailure> = None;
    let mut exchanges = Vec::new();
    for (number, step) in (1..).zip(&case.steps) {
        if step.only_house && !scene.target(world).is_trefoil() {
            continue;
        }
        let differences = try_step(world, scene, step, &mut exchanges).await?;
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

/// Sends the request of a step as often as the row says, and compares each response. Returns the differences
/// of the first response that has any, and adds its exchange to `exchanges`.
async fn try_step(
    world: &TestEnvironment,
    scene: &mut CaseContext,
    step: &Step,
    exchanges: &mut Vec<ShownExchange>,
) -> Result<Vec<Difference>, Verdict> {
    let mut seen: Vec<(&str, Value)> = Vec::new();
    let is_own = scene.is_own_server(world);
    let items = match &step.request.each {
        Some(list) => {
            // Without an item, nothing would be compared.
            let items = scene.vars.get(list).and_then(Value::as_array).filter(|items| !items.is_empty());
            let items = items.cloned();
            Some(items.ok_or_else(|| not_built(world, UnknownVariable(list.clone()).into()))?)
        }
        None => None,
    };
    let times = if is_own { step.request.times } else { step.request.times.min(MAX_REPEATS_ELSEWHERE) };
    let times = items.as_ref().map_or(times, Vec::len);
    for round in 0..times {
        if let Some(items) = &items {
            scene.vars.set("item", items[round].clone());
        }
        // A report shows the last round of a repeated request only.
        if round > 0 {
            exchanges.pop();
        }
        let sent_request =
            build_request(&step.request, &scene.vars).map_err(|error| not_built(world, error))?;
        let (answered, pending) = match step_answer(world, scene, step, &sent_request).await {
            Ok(answer) => answer,
            // A server of another maker may ask for any pause; the case is not tested if the run ends before.
            Err(SetupError::TooSlow(reason)) if !is_own => {
                return Err(Verdict::Inconclusive { reason });
            }
            Err(SetupError::Lacking(reason)) if !is_own => return Err(Verdict::Skip { reason }),
            Err(error) => {
                if let Some(reason) = world.find_lost(&error).await {
                    return Err(Verdict::Inconclusive { reason });
                }
                exchanges
                    .push(ShownExchange { request: exchange::curl(&sent_request), answer: String::new() });
                return Ok(vec![error.to_string()]);
            }
        };
        scene.deletions.extend(deletion_of_export(&sent_request, &answered));
        if let Some(part) =
            step.needs.as_ref().filter(|part| answer_part::find_part(&answered, part).is_none())
            && !scene.target(world).is_trefoil()
        {
            return Err(Verdict::Skip { reason: format!("the server sends no {part}") });
        }
        // A server need not revoke access tokens (RFC 7009 2.2.1).
        if !scene.target(world).is_trefoil()
            && answered.json().is_some_and(|json| json["error"] == "unsupported_token_type")
        {
            return Err(Verdict::Skip {
                reason: "the server does not revoke tokens of this type".to_owned(),
            });
        }
        for source in step.expect.jwt.keys().filter(|_| !scene.target(world).is_trefoil()) {
            let token = answer_part::find_part(&answered, source);
            if let Some(alg) = token.as_ref().and_then(Value::as_str).and_then(jose::unknown_algorithm) {
                let reason = format!("{source}: the suite cannot verify signatures with {alg}");
                return Err(Verdict::Inconclusive { reason });
            }
        }
        let target = scene.target(world);
        let (keys, is_trefoil) = (target.addresses.keys.clone(), target.is_trefoil());
        exchanges.push(ShownExchange {
            request: exchange::curl(&sent_request),
            answer: exchange::shown(&answered),
        });
        if step.expects_error_page() && answered.status.is_redirection() && !is_trefoil {
            match check_page(world, scene, &sent_request, answered, PageKind::Error).await {
                Ok(_) => continue,
                Err(difference) => return Ok(vec![difference]),
            }
        }
        let mut differences = check_step(step, &answered, &mut scene.vars, &keys, is_trefoil)
            .map_err(|error| not_built(world, error.into()))?;
        if let Some(pending) = pending {
            let expected = &step.expect.pending_headers;
            response_check::check_headers(expected, &pending, &scene.vars, &mut differences)
                .map_err(|error| not_built(world, error.into()))?;
        }
        for source in &step.expect.distinct {
            match answer_part::find_part(&answered, source).map(|value| (source.as_str(), value)) {
                Some(part) if seen.contains(&part) => {
                    differences.push(format!("{source}: {} was in an earlier response", part.1));
                }
                Some(part) => seen.push(part),
                None => differences.push(format!("{source}: the answer does not have it")),
            }
        }
        if let Some(expected) = step.expect.page {
            let is_about_page = step.expect.unframed || !step.expect.page_headers.is_empty();
            match check_page(world, scene, &sent_request, answered, expected).await {
                Ok(page) => {
                    let framing = step.expect.unframed.then(|| response_check::check_framing(&page));
                    differences.extend(framing.flatten());
                    let headers = &step.expect.page_headers;
                    response_check::check_headers(headers, &page, &scene.vars, &mut differences)
                        .map_err(|error| not_built(world, error.into()))?;
                }
                // Another row reports a missing page.
                Err(difference) if is_about_page && !is_own => {
                    return Err(Verdict::Skip { reason: format!("there is no page: {difference}") });
                }
                Err(difference) => differences.push(difference),
            }
        }
        if step.expect.hidden_cookie && scene.cookies.are_readable() {
            differences.push("scripts can read every cookie: none has HttpOnly".to_owned());
        }
        if step.expect.password_sent_once && scene.cookies.sent_password_twice {
            let text = "a form with a password is answered with 307 or 308, so that the browser sends it on";
            differences.push(text.to_owned());
        }
        if !differences.is_empty() {
            return Ok(differences);
        }
    }
    Ok(Vec::new())
}

/// The verdict on a case whose precondition was not set up. Another case reports what failed there, so this
/// case only states it.
async fn not_set_up(world: &TestEnvironment, given: &str, error: SetupError) -> Verdict {
    match error {
        SetupError::Lacking(reason) => Verdict::Skip { reason },
        SetupError::Variable(error) if !world.target.is_trefoil() => lacking(&error),
        error => {
            let reason = match world.find_lost(&error).await {
                Some(reason) => reason,
                None => format!("given '{given}': {error}"),
            };
            Verdict::Inconclusive { reason }
        }
    }
}

/// The verdict on a case whose request or expectation cannot be filled in.
fn not_built(world: &TestEnvironment, error: BuildError) -> Verdict {
    match error {
        BuildError::Variable(error) if !world.target.is_trefoil() => lacking(&error),
        BuildError::Destination(error) if !world.target.is_trefoil() => {
            Verdict::Skip { reason: error.to_string() }
        }
        error => Verdict::Fail(CaseFailure::before(error.to_string())),
    }
}

fn lacking(error: &UnknownVariable) -> Verdict {
    Verdict::Skip { reason: format!("the profile has no '{}'", error.0) }
}

/// Sends the request of a step. On another server the pages between an authorization request and its redirect
/// to the client are filled in, as a person would do, if the row expects this redirect.
async fn step_answer(
    world: &TestEnvironment,
    scene: &mut CaseContext,
    step: &Step,
    sent_request: &SentRequest,
) -> Result<(Answer, Option<Answer>), SetupError> {
    let target = scene.target(world);
    let status = step.expect.status.as_ref();
    let expects_limit = status.is_some_and(|status| status.matches(StatusCode::TOO_MANY_REQUESTS.as_u16()));
    let expects_redirect = step.expect.location.is_some()
        || step.expect.status.as_ref().is_some_and(|status| status.matches(StatusCode::FOUND.as_u16()));
    let expects_redirect =
        expects_redirect || step.request.query.get("response_mode").is_some_and(|mode| mode == "form_post");
    if !target.is_trefoil() && asks_for_sign_out(step) {
        let named = |(name, value): (Cow<'_, str>, Cow<'_, str>)| {
            (name == "post_logout_redirect_uri").then(|| value.into_owned())
        };
        let uris: Vec<String> = sent_request.url.query_pairs().find_map(named).into_iter().collect();
        return Ok((browser::sign_out(&world.target, &mut scene.cookies, sent_request, &uris).await?, None));
    }
    let is_authorization = step.request.to.split('?').next() == Some("authorize");
    if target.is_trefoil() || !is_authorization || !expects_redirect {
        let repeated = RepeatedStatus { poll: step.request.poll, expects_limit };
        if is_browser_request(step) {
            return exchange(world, scene, sent_request, repeated).await;
        }
        // An application does not have the cookies of the browser.
        let cookies = std::mem::take(&mut scene.cookies);
        let exchanged = exchange(world, scene, sent_request, repeated).await;
        scene.cookies = cookies;
        return exchanged;
    }
    let person = applications::person(&scene.vars, "user").ok();
    let redirect_uris = crate::environment::target::redirect_uris(target, &sent_request.url);
    let is_refused =
        step.expect.location.as_ref().is_some_and(|location| location.params.contains_key("error"))
            || step.expect.body_contains.iter().any(|part| part.contains("error"));
    let is_silent = step.request.query.get("prompt").is_some_and(|prompt| prompt == "none");
    if is_silent && !is_refused {
        // The user has consented before. A server may refuse a nonce that it has seen.
        let mut earlier = sent_request.clone();
        let pairs = sent_request.url.query_pairs().filter(|(name, _)| name != "prompt" && name != "nonce");
        earlier.url.query_pairs_mut().clear().extend_pairs(pairs).append_pair("nonce", &random_text());
        browser::to_client(&world.target, &mut scene.cookies, person.as_ref(), &earlier, &redirect_uris)
            .await?;
    }
    if is_silent {
        let answer =
            browser::silently(&world.target, &mut scene.cookies, sent_request, &redirect_uris).await?;
        // A server may ask for the consent again each time (OpenID Connect Core 1.0, 3.1.2.1).
        if !is_refused && browser::asks_for_consent(&answer) {
            let reason = "the server asks for a consent each time, so that prompt=none cannot succeed";
            return Err(SetupError::Lacking(reason.to_owned()));
        }
        return Ok((answer, None));
    }
    let pages =
        browser::to_client(&world.target, &mut scene.cookies, person.as_ref(), sent_request, &redirect_uris);
    Ok((pages.await?.last, None))
}

/// Returns whether a browser sends the request of a step, and not an application.
fn is_browser_request(step: &Step) -> bool {
    let to = step.request.to.split(['?', '/']).next().unwrap_or_default();
    !["token", "userinfo", "introspect", "revoke", "par", "device_authorization", "fhir"].contains(&to)
}

/// Returns whether a step signs out the user with a valid hint and to a registered address, if it names one.
fn asks_for_sign_out(step: &Step) -> bool {
    let query = &step.request.query;
    let has_hint = query.get("id_token_hint").is_some_and(|hint| hint == "$id_token");
    let address = query.get("post_logout_redirect_uri");
    step.request.to == "logout"
        && has_hint
        && address.is_none_or(|address| address == "$public.post_logout_redirect_uris.0")
}

/// Follows the redirects of a response within the server, and compares the page to which they lead. Returns
/// the page.
async fn check_page(
    world: &TestEnvironment,
    scene: &mut CaseContext,
    request: &SentRequest,
    answer: Answer,
    expected: PageKind,
) -> Result<Answer, Difference> {
    let target = scene.own.as_ref().map_or(&world.target, |own| &own.1);
    let redirect_uris = crate::environment::target::redirect_uris(target, &request.url);
    match browser::page_behind(target, &mut scene.cookies, request, answer, &redirect_uris).await {
        Ok((kind, page)) if kind == expected => Ok(page),
        Ok((PageKind::Error, page)) if expected == PageKind::Refusal => Ok(page),
        Ok((PageKind::Scripted, page)) if expected != PageKind::Refusal => Ok(page),
        // A server that cannot sign in the user again returns an error (OpenID Connect Core 1.0, 3.1.2.1).
        Ok((PageKind::Refusal, page)) if expected == PageKind::SignIn && !target.is_trefoil() => Ok(page),
        // A server may show the consent page first. It must require the sign-in before it answers the client.
        Ok((PageKind::Consent, page)) if expected == PageKind::SignIn && !target.is_trefoil() => {
            match browser::to_client(target, &mut scene.cookies, None, request, &redirect_uris).await {
                Ok(arrival) if !arrival.is_refused() => {
                    Err("the request leads to a consent page and to the client, without a sign-in".to_owned())
                }
                _ => Ok(page),
            }
        }
        Ok((kind, _)) => Err(format!("the request leads to {kind} instead of {expected}")),
        Err(error) => Err(format!("the request does not lead to {expected}: {error}")),
    }
}

/// Returns whether 400 is as good as the expected 401 for `invalid_client`: the client has sent no
/// `Authorization` (RFC 6749 5.2). RFC 7662 2.3 demands 401 of introspection.
fn may_refuse_with_400(step: &Step) -> bool {
    let expects_401 = step.expect.status.as_ref().is_some_and(|status| status.matches(401));
    let error = step.expect.json.as_ref().and_then(|json| json["error"].as_str());
    let is_refused = error.is_some_and(|error| error.contains("invalid_client"));
    let has_header = step.request.headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"));
    expects_401 && is_refused && !has_header && step.request.to != "introspect"
}

/// Returns whether a token endpoint ignores a part of the requested scope instead of refusing it, and states
/// what it grants (RFC 6749 3.3).
fn ignores_scope(step: &Step, answer: &Answer) -> bool {
    let is_refused = step.expect.json.as_ref().is_some_and(|json| json["error"] == "invalid_scope");
    let (Body::Form(form), Some(granted)) = (&step.request.body, answer.json()) else { return false };
    let granted = granted["scope"].as_str().map(|scope| scope.split(' ').collect::<Vec<_>>());
    let wanted = form.get("scope").map(|scope| scope.split(' '));
    let is_narrowed =
        wanted.zip(granted).is_some_and(|(mut wanted, granted)| wanted.any(|word| !granted.contains(&word)));
    is_refused && answer.status == StatusCode::OK && is_narrowed
}

/// Compares a response with the expectation of its step, and sets the variables that the step captures.
/// Returns the differences. `keys` is the server's published key set; `house` is true if the rules of Trefoil
/// apply too.
///
/// # Errors
/// [`UnknownVariable`] if the expectation contains an unknown variable.
pub fn check_step(
    step: &Step,
    answer: &Answer,
    vars: &mut Variables,
    keys: &Value,
    house: bool,
) -> Result<Vec<Difference>, UnknownVariable> {
    let (mut captured, mut missing) = (Variables::default(), Vec::new());
    for (name, source) in &step.capture {
        match answer_part::find_part(answer, source) {
            Some(value) => captured.set(name, value),
            None => missing.push(format!("capture {name}: the answer has no {source}")),
        }
    }
    // The expectation can refer to a part that this step captures, unless the part replaces a variable.
    let mut variables = captured.clone();
    variables.extend_from(vars);
    if !house && ignores_scope(step, answer) {
        return Ok(missing);
    }
    let mut expected = Cow::Borrowed(&step.expect);
    if !house && may_refuse_with_400(step) {
        expected.to_mut().status = Some(ExpectedStatus::OneOf(vec![400, 401]));
    }
    let mut differences = response_check::check_response(&expected, answer, &variables, keys, house)?;
    if house && let Some(more) = &step.house {
        differences.extend(response_check::check_response(more, answer, &variables, keys, house)?);
    }
    differences.append(&mut missing);
    vars.extend_from(&captured);
    Ok(differences)
}

/// Statuses for which a request is repeated.
#[derive(Debug, Clone, Copy)]
pub struct RepeatedStatus {
    /// Status of a response that is not complete yet.
    pub poll: Option<u16>,
    /// Whether the row expects 429, so that it is a result.
    pub expects_limit: bool,
}

/// Sends a request with the cookies of the case, and stores the cookies of the response. Repeats the request
/// while the response has the status `poll`. Returns the last response, and the first one with this status.
///
/// # Errors
/// [`SetupError`] if there is no response, or if the status is still `poll` after the last repetition.
pub async fn exchange(
    world: &TestEnvironment,
    scene: &mut CaseContext,
    request: &SentRequest,
    RepeatedStatus { poll, expects_limit }: RepeatedStatus,
) -> Result<(Answer, Option<Answer>), SetupError> {
    let target = scene.own.as_ref().map_or(&world.target, |own| &own.1);
    let mut pauses = target.poll_pauses();
    let mut pending = None;
    loop {
        let answer = match expects_limit {
            true => target.send_once(request, &mut scene.cookies).await?,
            false => target.send(request, &mut scene.cookies).await?,
        };
        if Some(answer.status.as_u16()) != poll {
            return Ok((answer, pending));
        }
        pauses.wait(&answer).await?;
        pending.get_or_insert(answer);
    }
}
