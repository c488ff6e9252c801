//! {base}/patient: the user chooses the patient for whom an application is launched (SMART App Launch 2.2,
//! `launch/patient`). Only Patients that the user may access are listed and accepted.

use http::StatusCode;
use identity::authorize::interaction::{InteractionState, NextStep};
use identity::authorize::request::AuthorizationRequest;
use identity::model::user::User;
use maud::{Markup, html};

use super::frame::page;
use super::patient_search::{NamedPatient, PatientPage, find_patients, read_patient};
use super::texts::{fill, phrase, t};
use super::{cookie, csrf, resume};
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::oauth::continuation::open_continuation;
use crate::http::pages::browser_session::signed_in;
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// The user who must choose a patient. Any other step is left to the authorization endpoint.
async fn choosing_user(
    context: &RequestContext,
    continuation: &str,
) -> Result<(AuthorizationRequest, InteractionState, User), Problem> {
    let (request, interaction) = open_continuation(context, continuation).await?;
    let signed_in = signed_in(context).await?;
    let step =
        context.app.identity.authorization.next_step(&request, &interaction, signed_in, context.now).await?;
    match step {
        NextStep::ChoosePatient { user } => Ok((request, interaction, user)),
        _ => Err(resume_request(context, continuation).into()),
    }
}

fn resume_request(context: &RequestContext, continuation: &str) -> Response {
    reply::no_store(reply::redirect(
        StatusCode::SEE_OTHER,
        &resume::destination_url(&context.app, continuation),
    ))
}

/// Shows the list.
pub async fn show_patients(context: &RequestContext) -> Result<Response, Problem> {
    let params = context.params();
    let continuation = params.get("continue").unwrap_or_default();
    let (request, _, user) = choosing_user(context, continuation).await?;
    let text = params.get("name").unwrap_or_default().trim();
    let patient_page = find_patients(context, &user, text, params.get("after")).await?;
    let (browser, set_cookie) = cookie::browser(context);
    let content = render_list(&request.client.name, continuation, text, &patient_page, &browser);
    let response = reply::html(StatusCode::OK, page(t("Choose a patient"), &content));
    Ok(reply::no_store(cookie::set(response, set_cookie)))
}

fn render_list(
    client: &str,
    continuation: &str,
    text: &str,
    patient_page: &PatientPage,
    browser: &str,
) -> Markup {
    html! {
        p { (phrase("{} works with one patient. Choose whose records it opens.", &[html! { strong { (client) } }])) }
        form method="get" action="/patient" {
            input type="hidden" name="continue" value=(continuation);
            label for="name" { (t("Name, record number, birth date or id")) }
            input #name name="name" type="search" autocomplete="off" maxlength="100" value=(text);
            button.second type="submit" { (t("Search")) }
        }
        form method="post" action="/patient" {
            (csrf::hidden_field(browser))
            input type="hidden" name="continue" value=(continuation);
            @if patient_page.patients.is_empty() {
                p role="status" {
                    @if patient_page.next.is_some() { (t("The search is not finished.")) }
                    @else { (t("No patient with this name was found.")) }
                }
            }
            ul.choices {
                @for patient in &patient_page.patients {
                    li { button.second type="submit" name="patient" value=(patient.id) { (description(patient)) } }
                }
            }
            button.second type="submit" name="answer" value="deny" { (t("Cancel")) }
        }
        @if let Some(next) = &patient_page.next {
            @let query = form_urlencoded::Serializer::new(String::new())
                .append_pair("continue", continuation).append_pair("name", text).append_pair("after", next).finish();
            p { a href=(format!("/patient?{query}")) { (t("More patients")) } }
        }
    }
}

fn description(patient: &NamedPatient) -> Markup {
    html! {
        (patient.name)
        span.quiet {
            @if !patient.birth_date.is_empty() { (fill("born {}", &[&patient.birth_date])) " · " }
            (patient.id)
        }
    }
}

/// Processes the choice.
pub async fn submit_choice(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let form = csrf::read_form(context, body).await?;
    let continuation = form.get("continue").unwrap_or_default();
    let (_, interaction, user) = choosing_user(context, continuation).await?;
    let identity = &context.app.identity;
    let browser = context.cookies.browser.as_deref().unwrap_or_default();
    if form.get("answer") == Some("deny") {
        let continuation = identity.authorization.sign_continuation(&interaction.denied(), browser);
        return Ok(resume_request(context, &continuation));
    }
    let choice = match form.get("patient") {
        Some(id) => read_patient(context, &user, id).await?,
        None => None,
    };
    let Some(patient) = choice else {
        let text = "This patient does not exist, or you do not have access.";
        return Err(Problem::page(StatusCode::BAD_REQUEST, text));
    };
    let answered = interaction.with_patient(&user, &patient.id);
    Ok(resume_request(context, &identity.authorization.sign_continuation(&answered, browser)))
}
