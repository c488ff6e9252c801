//! {base}/consent: asks the user for consent to the requested scopes (OpenID Connect Core section 3.1.2.4).

use http::StatusCode;
use identity::authorize::interaction::{InteractionState, NextStep};
use identity::authorize::request::AuthorizationRequest;
use identity::model::scope::Scopes;
use identity::model::user::User;
use maud::html;

use super::frame::page;
use super::patient_search::{NamedPatient, read_patient};
use super::texts::{fill, phrase, t};
use super::{cookie, csrf, resume, scopes as words};
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::oauth::continuation::open_continuation;
use crate::http::pages::browser_session::signed_in;
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// The request that needs the consent of the user.
struct ConsentQuestion {
    request: AuthorizationRequest,
    interaction: InteractionState,
    user: User,
    scopes: Scopes,
    /// The requested scopes that the user cannot grant.
    dropped: Scopes,
    patient: Option<String>,
}

/// The question that this request leads to now. Any other step is left to the authorization endpoint.
async fn read_question(context: &RequestContext, continuation: &str) -> Result<ConsentQuestion, Problem> {
    let (request, interaction) = open_continuation(context, continuation).await?;
    let signed_in = signed_in(context).await?;
    let step =
        context.app.identity.authorization.next_step(&request, &interaction, signed_in, context.now).await?;
    match step {
        NextStep::Consent { user, scopes, dropped, patient } => {
            Ok(ConsentQuestion { request, interaction, user, scopes, dropped, patient })
        }
        _ => Err(resume_request(context, continuation).into()),
    }
}

fn resume_request(context: &RequestContext, continuation: &str) -> Response {
    reply::no_store(reply::redirect(
        StatusCode::SEE_OTHER,
        &resume::destination_url(&context.app, continuation),
    ))
}

/// The path of the sign-in page for another user, from which the browser returns to this request.
fn switch_account(continuation: &str) -> String {
    super::sign_in::destination::SignInDestination { back: continuation.to_owned(), link: None }
        .at("/sign-in")
}

/// Shows the question.
pub async fn show_question(context: &RequestContext) -> Result<Response, Problem> {
    let continuation = context.params().get("continue").unwrap_or_default().to_owned();
    let ConsentQuestion { request, user, scopes, dropped, patient, .. } =
        read_question(context, &continuation).await?;
    let patient = match &patient {
        Some(id) => {
            let patient = read_patient(context, &user, id).await?;
            Some(patient.unwrap_or_else(|| NamedPatient::unknown(id)))
        }
        None => None,
    };
    let (browser, set_cookie) = cookie::browser(context);
    let name = user.claims.name.as_deref().unwrap_or(&user.username);
    let client = &request.client.name;
    let content = html! {
        p { (phrase("{} asks to:", &[html! { strong { (client) } }])) }
        (words::list(context, &scopes))
        @if let Some(patient) = &patient {
            p {
                (phrase("Patient: {}", &[html! { strong { (patient.name) } }]))
                @if !patient.birth_date.is_empty() { ", " (fill("born {}", &[&patient.birth_date])) }
            }
        }
        @match request.reply.to.host() {
            Some(host) => p { (phrase("The answer goes to {}.", &[html! { strong { (host) } }])) },
            None => p { (t("The answer goes to a program on your own device.")) },
        }
        @if request.needs_interaction() {
            p { (t("This application runs on your own device. Allow it only if you have just opened it there.")) }
        }
        @if request.reply.to.host().is_none() && !dropped.is_empty() {
            p.quiet { (phrase("For the developer: this account cannot grant {}.", &[html! { code { (dropped) } }])) }
        }
        p.quiet {
            (phrase("You are signed in as {}.", &[html! { strong { (name) } }])) br;
            a href=(switch_account(&continuation)) { (t("Not you? Switch account")) }
        }
        p.quiet {
            @let account = html! { a href="/account" { (t("your account page")) } };
            (phrase("You can withdraw this at any time on {}.", &[account]))
        }
        form method="post" action="/consent" {
            (csrf::hidden_field(&browser))
            input type="hidden" name="continue" value=(continuation);
            // Only the scopes that were shown are granted.
            input type="hidden" name="scope" value=(scopes);
            button type="submit" name="answer" value="allow" { (t("Allow")) }
            button.second type="submit" name="answer" value="deny" { (t("Do not allow")) }
        }
    };
    let title = fill("Allow {}?", &[client]);
    let response = reply::html(StatusCode::OK, page(&title, &content));
    Ok(reply::no_store(cookie::set(response, set_cookie)))
}

/// Handles the submitted form: stores the decision of the user and resumes the authorization request.
pub async fn submit_answer(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let form = csrf::read_form(context, body).await?;
    let continuation = form.get("continue").unwrap_or_default();
    let ConsentQuestion { request, interaction, user, scopes, .. } =
        read_question(context, continuation).await?;
    let identity = &context.app.identity;
    let answered = match form.get("answer") {
        Some("allow") if form.get("scope") == Some(&scopes.to_string()) => {
            identity.consents.allow_scopes(&user.sub, &request.client, &scopes, context.now).await?;
            interaction.allowed(&user, &scopes)
        }
        Some("deny") => interaction.denied(),
        // The scopes changed since they were shown: the page is shown again.
        _ => return Ok(resume_request(context, continuation)),
    };
    let browser = context.cookies.browser.as_deref().unwrap_or_default();
    let continuation = identity.authorization.sign_continuation(&answered, browser);
    Ok(resume_request(context, &continuation))
}
