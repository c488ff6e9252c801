//! Sends the request of a step: as an application, or as a browser with a person who fills in the pages of
//! the server.

use std::borrow::Cow;

use http::StatusCode;

use crate::environment::preconditions::CaseContext;
use crate::environment::target::redirect_uris;
use crate::environment::{SetupError, TestEnvironment};
use crate::environment::{applications, browser};
use crate::spec::case::Step;
use crate::spec::permits::Permit;
use crate::wire::exchange::{Answer, SentRequest};
use crate::wire::random::random_text;

/// Statuses for which a request is repeated.
#[derive(Debug, Clone, Copy)]
pub struct RepeatedStatus {
    /// Status of a response that is not complete yet.
    pub poll: Option<u16>,
    /// Whether the row expects 429, so that it is a result.
    pub expects_limit: bool,
}

/// Responses to the request of a step.
#[derive(Clone)]
pub struct Exchanged {
    /// The last response.
    pub answer: Answer,
    /// The first response after which the request was repeated.
    pub pending: Option<Answer>,
}

/// Sends the request of a step. If the row permits it, the pages between the request and its end are filled
/// in, as a person would do.
pub(super) async fn send_step(
    environment: &TestEnvironment,
    context: &mut CaseContext,
    step: &Step,
    sent_request: &SentRequest,
) -> Result<Exchanged, SetupError> {
    let permits = context.target(environment).treatment.permits(step);
    if permits.contains(&Permit::SignOutPage) {
        let redirect_uri = |(name, value): (Cow<'_, str>, Cow<'_, str>)| {
            (name == "post_logout_redirect_uri").then(|| value.into_owned())
        };
        let uris: Vec<String> = sent_request.url.query_pairs().find_map(redirect_uri).into_iter().collect();
        let response =
            browser::sign_out(&environment.target, &mut context.cookies, sent_request, &uris).await?;
        return Ok(Exchanged { answer: response, pending: None });
    }
    let is_authorization = step.request.to.split('?').next() == Some("authorize");
    if is_authorization && permits.contains(&Permit::Redirect) {
        let response = authorize(environment, context, step, sent_request).await?;
        return Ok(Exchanged { answer: response, pending: None });
    }
    let status = step.expect.status.as_ref();
    let expects_limit = status.is_some_and(|status| status.matches(StatusCode::TOO_MANY_REQUESTS.as_u16()));
    let repeated = RepeatedStatus { poll: step.request.poll, expects_limit };
    if is_browser_request(step) {
        return exchange(environment, context, sent_request, repeated).await;
    }
    // An application does not have the cookies of the browser.
    let cookies = std::mem::take(&mut context.cookies);
    let exchanged = exchange(environment, context, sent_request, repeated).await;
    context.cookies = cookies;
    exchanged
}

/// Sends an authorization request, and fills in the pages until the redirect to the client.
async fn authorize(
    environment: &TestEnvironment,
    context: &mut CaseContext,
    step: &Step,
    sent_request: &SentRequest,
) -> Result<Answer, SetupError> {
    let person = applications::person(&context.vars, "user").ok();
    let redirect_uris = redirect_uris(context.target(environment), &sent_request.url);
    let is_silent = step.request.query.get("prompt").is_some_and(|prompt| prompt == "none");
    let (target, cookies) = (&environment.target, &mut context.cookies);
    if !is_silent {
        let pages = browser::to_client(target, cookies, person.as_ref(), sent_request, &redirect_uris);
        return Ok(pages.await?.last);
    }
    let is_refused =
        step.expect.location.as_ref().is_some_and(|location| location.params.contains_key("error"))
            || step.expect.body_contains.iter().any(|part| part.contains("error"));
    if !is_refused {
        // The user has consented before. A server may refuse a nonce that it has seen.
        let mut earlier = sent_request.clone();
        let pairs = sent_request.url.query_pairs().filter(|(name, _)| name != "prompt" && name != "nonce");
        earlier.url.query_pairs_mut().clear().extend_pairs(pairs).append_pair("nonce", &random_text());
        browser::to_client(target, cookies, person.as_ref(), &earlier, &redirect_uris).await?;
    }
    let response = browser::silently(target, cookies, sent_request, &redirect_uris).await?;
    // A server may ask for the consent again each time (OpenID Connect Core 1.0, 3.1.2.1).
    if !is_refused && browser::asks_for_consent(&response) {
        let reason = "the server asks for a consent each time, so that prompt=none cannot succeed";
        return Err(SetupError::Lacking(reason.to_owned()));
    }
    Ok(response)
}

/// Returns whether a browser sends the request of a step, and not an application.
fn is_browser_request(step: &Step) -> bool {
    let to = step.request.to.split(['?', '/']).next().unwrap_or_default();
    !["token", "userinfo", "introspect", "revoke", "par", "device_authorization", "fhir"].contains(&to)
}

/// Sends a request with the cookies of the case, and stores the cookies of the response. Repeats the request
/// while the response has the status `poll`.
///
/// # Errors
/// [`SetupError`] if there is no response, or if the status is still `poll` after the last repetition.
pub async fn exchange(
    environment: &TestEnvironment,
    context: &mut CaseContext,
    request: &SentRequest,
    RepeatedStatus { poll, expects_limit }: RepeatedStatus,
) -> Result<Exchanged, SetupError> {
    let target = context.own.as_ref().map_or(&environment.target, |own| &own.1);
    let mut pauses = target.poll_pauses();
    let mut pending = None;
    loop {
        let response = match expects_limit {
            true => target.send_once(request, &mut context.cookies).await?,
            false => target.send(request, &mut context.cookies).await?,
        };
        if Some(response.status.as_u16()) != poll {
            return Ok(Exchanged { answer: response, pending });
        }
        pauses.wait(&response).await?;
        pending.get_or_insert(response);
    }
}
