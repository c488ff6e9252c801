//! Compares the responses to a step with its expectations.

use http::StatusCode;
use serde_json::{Value, json};

use super::matcher::{self, Difference};
use super::response_check::{self, Comparison, check_response};
use super::sending::Exchanged;
use super::verdict::Verdict;
use crate::environment::browser;
use crate::environment::preconditions::CaseContext;
use crate::environment::target::redirect_uris;
use crate::environment::{SetupError, TestEnvironment};
use crate::spec::case::Step;
use crate::spec::expectation::{ErrorDialect, PageKind};
use crate::spec::permits::Permit;
use crate::spec::request::Body;
use crate::wire::answer_part;
use crate::wire::exchange::{Answer, SentRequest};
use crate::wire::jose;
use crate::wire::variables::{UnknownVariable, Variables};

/// The parts of earlier responses to the same step, by source.
pub(super) type SeenParts<'a> = Vec<(&'a str, Value)>;

/// Reasons why a comparison ends a case.
pub(super) enum CheckError {
    /// The case ends with this verdict.
    Ended(Verdict),
    /// The expectation cannot be filled in.
    Variable(UnknownVariable),
}

impl From<UnknownVariable> for CheckError {
    fn from(error: UnknownVariable) -> Self {
        Self::Variable(error)
    }
}

/// The verdict that ends a case whose response says that the server does not do what the case tests.
pub(super) fn untested(
    environment: &TestEnvironment,
    context: &CaseContext,
    step: &Step,
    response: &Answer,
) -> Option<Verdict> {
    let treatment = context.target(environment).treatment;
    if treatment.house_rules {
        return None;
    }
    let lacks = |part: &&String| answer_part::find_part(response, part).is_none();
    if let Some(part) = step.needs.as_ref().filter(lacks) {
        return Some(Verdict::Skip { reason: format!("the server sends no {part}") });
    }
    let keeps_token = treatment.permits(step).contains(&Permit::KeepToken);
    if keeps_token && response.json().is_some_and(|json| json["error"] == "unsupported_token_type") {
        return Some(Verdict::Skip { reason: "the server does not revoke tokens of this type".to_owned() });
    }
    step.expect.jwt.keys().find_map(|source| {
        let token = answer_part::find_part(response, source);
        let alg = token.as_ref().and_then(Value::as_str).and_then(jose::unknown_algorithm)?;
        let reason = format!("{source}: the suite cannot verify signatures with {alg}");
        Some(Verdict::Inconclusive { reason })
    })
}

/// Compares the responses to a step, and the page to which they lead. Returns the differences.
pub(super) async fn differences<'a>(
    environment: &TestEnvironment,
    context: &mut CaseContext,
    step: &'a Step,
    request: &SentRequest,
    Exchanged { answer, pending }: Exchanged,
    seen_parts: &mut SeenParts<'a>,
) -> Result<Vec<Difference>, CheckError> {
    let target = context.target(environment);
    let (keys, treatment) = (target.addresses.keys.clone(), target.treatment);
    let permits = treatment.permits(step);
    let leads_to_page = permits.contains(&Permit::ErrorPage) && answer.status.is_redirection();
    if step.expect.expects_error_page() && leads_to_page {
        let page = check_page(environment, context, request, answer, (PageKind::Error, permits)).await;
        return Ok(page.err().into_iter().collect());
    }
    let mut differences = check_step(step, &answer, &mut context.vars, &keys, treatment.house_rules)?;
    if let Some(pending) = pending {
        let expected = &step.expect.pending_headers;
        response_check::check_headers(expected, &pending, &context.vars, permits, &mut differences)?;
    }
    check_distinct(step, &answer, seen_parts, &mut differences);
    check_expected_page(environment, context, step, request, answer, &mut differences).await?;
    if step.expect.hidden_cookie && context.cookies.are_readable() {
        differences.push("scripts can read every cookie: none has HttpOnly".to_owned());
    }
    if step.expect.password_sent_once && context.cookies.sent_password_twice {
        let text = "a form with a password is answered with 307 or 308, so that the browser sends it on";
        differences.push(text.to_owned());
    }
    Ok(differences)
}

/// Checks that parts differ from those of earlier responses to the same step.
fn check_distinct<'a>(
    step: &'a Step,
    response: &Answer,
    seen_parts: &mut SeenParts<'a>,
    differences: &mut Vec<Difference>,
) {
    for source in &step.expect.distinct {
        match answer_part::find_part(response, source).map(|value| (source.as_str(), value)) {
            Some(part) if seen_parts.contains(&part) => {
                differences.push(format!("{source}: {} was in an earlier response", part.1));
            }
            Some(part) => seen_parts.push(part),
            None => differences.push(format!("{source}: the answer does not have it")),
        }
    }
}

/// Checks the page to which a response leads, if the step expects one.
async fn check_expected_page(
    environment: &TestEnvironment,
    context: &mut CaseContext,
    step: &Step,
    request: &SentRequest,
    response: Answer,
    differences: &mut Vec<Difference>,
) -> Result<(), CheckError> {
    let Some(expected) = step.expect.page else { return Ok(()) };
    let permits = context.target(environment).treatment.permits(step);
    let is_about_page = step.expect.unframed || !step.expect.page_headers.is_empty();
    match check_page(environment, context, request, response, (expected, permits)).await {
        Ok(page) => {
            let framing = step.expect.unframed.then(|| response_check::check_framing(&page));
            differences.extend(framing.flatten());
            let headers = &step.expect.page_headers;
            response_check::check_headers(headers, &page, &context.vars, permits, differences)?;
        }
        // Another row reports a missing page.
        Err(difference) if is_about_page && !context.is_own_server(environment) => {
            let reason = format!("the server shows no page: {difference}");
            return Err(CheckError::Ended(Verdict::Skip { reason }));
        }
        Err(difference) => differences.push(difference),
    }
    Ok(())
}

/// Follows the redirects of a response within the server, and compares the page to which they lead. Returns
/// the page.
async fn check_page(
    environment: &TestEnvironment,
    context: &mut CaseContext,
    request: &SentRequest,
    response: Answer,
    (expected, permits): (PageKind, &[Permit]),
) -> Result<Answer, Difference> {
    let target = context.own.as_ref().map_or(&environment.target, |own| &own.1);
    let redirect_uris = redirect_uris(target, &request.url);
    let elsewhere = permits.contains(&Permit::SignInElsewhere);
    match browser::page_behind(target, &mut context.cookies, request, response, &redirect_uris).await {
        Ok((kind, page)) if kind == expected => Ok(page),
        Ok((PageKind::Error, page)) if expected == PageKind::Refusal => Ok(page),
        Ok((PageKind::Scripted, page)) if expected != PageKind::Refusal => Ok(page),
        Ok((PageKind::Refusal, page)) if elsewhere => Ok(page),
        // The consent page may come first, but the server must require the sign-in before it answers the
        // client.
        Ok((PageKind::Consent, page)) if elsewhere => {
            match browser::to_client(target, &mut context.cookies, None, request, &redirect_uris).await {
                Ok(arrival) if !arrival.is_refused() => {
                    Err("the request leads to a consent page and to the client, without a sign-in".to_owned())
                }
                _ => Ok(page),
            }
        }
        Ok((kind, _)) => Err(format!("the request leads to {kind} instead of {expected}")),
        Err(error) => Err(page_error(&error, expected)),
    }
}

fn page_error(error: &SetupError, expected: PageKind) -> Difference {
    format!("the request does not lead to {expected}: {error}")
}

/// Compares a response with the expectation of its step, and sets the variables that the step captures.
/// Returns the differences. `keys` is the server's published key set; `house` is true if the rules of Trefoil
/// apply too, and nothing is left to the server.
///
/// # Errors
/// [`UnknownVariable`] if the expectation contains an unknown variable.
pub fn check_step(
    step: &Step,
    response: &Answer,
    vars: &mut Variables,
    keys: &Value,
    house: bool,
) -> Result<Vec<Difference>, UnknownVariable> {
    let (mut captured, mut missing) = (Variables::default(), Vec::new());
    for (name, source) in &step.capture {
        match answer_part::find_part(response, source) {
            Some(value) => captured.set(name, value),
            None => missing.push(format!("capture {name}: the answer has no {source}")),
        }
    }
    // The expectation can refer to a part that this step captures, unless the part replaces a variable.
    let mut variables = captured.clone();
    variables.extend_from(vars);
    let permits: &[Permit] = if house { &[] } else { &step.permits };
    if permits.contains(&Permit::NarrowerScope) && has_narrower_scope(step, response) {
        return Ok(missing);
    }
    let comparison = Comparison { vars: &variables, keys, permits };
    let mut differences = check_response(&step.expect, response, &comparison)?;
    if house {
        if let Some(more) = &step.house {
            differences.extend(check_response(more, response, &comparison)?);
        }
        check_details(step, response, &variables, &mut differences)?;
    }
    differences.append(&mut missing);
    vars.extend_from(&captured);
    Ok(differences)
}

/// Checks the rule of Trefoil that each issue of an error has a text.
fn check_details(
    step: &Step,
    response: &Answer,
    vars: &Variables,
    out: &mut Vec<Difference>,
) -> Result<(), UnknownVariable> {
    let is_fhir_error = [Some(&step.expect), step.house.as_ref()]
        .into_iter()
        .flatten()
        .any(|part| part.dialect == Some(ErrorDialect::Fhir));
    if !is_fhir_error {
        return Ok(());
    }
    let issue = json!({ "details": { "text": "$regex:.+" } });
    matcher::json("body", &json!({ "issue": { "$each": issue } }), response.json().as_ref(), vars, out)
}

/// Returns whether a token endpoint ignores a part of the requested scope instead of refusing it, and states
/// what it grants.
fn has_narrower_scope(step: &Step, answer: &Answer) -> bool {
    let (Body::Form(form), Some(response)) = (&step.request.body, answer.json()) else { return false };
    let words = response["scope"].as_str().map(|scope| scope.split(' ').collect::<Vec<_>>());
    let requested = form.get("scope").map(|scope| scope.split(' '));
    let is_narrower = requested
        .zip(words)
        .is_some_and(|(mut requested, words)| requested.any(|word| !words.contains(&word)));
    answer.status == StatusCode::OK && is_narrower
}
