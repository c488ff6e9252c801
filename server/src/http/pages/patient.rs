//! {base}/patient: the user chooses the patient for whom an application is launched (SMART App Launch 2.2,
//! `launch/patient`). Only Patients that the user may access are listed and accepted.

use http::StatusCode;
use identity::authorize::interaction::{InteractionState, NextStep};
use identity::authorize::request::AuthorizationRequest;
use identity::model::user::User;
use maud::{Markup, html};
use serde::Deserialize;
use store::{PageLimit, ScanOptions, StoreError, Versions as _};

use super::frame::page;
use super::texts::{fill, phrase, t};
use super::{cookie, csrf, resume};
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::oauth::continuation::open_continuation;
use crate::http::pages::browser_session::signed_in;
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// Number of Patients on a page.
const PAGE: usize = 20;
/// Maximum number of Patients that are read for one page.
const MAX_SCANNED: usize = 5_000;

struct PatientRow {
    id: String,
    name: String,
    birth_date: String,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct PatientSummary {
    name: Vec<HumanName>,
    birth_date: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct HumanName {
    text: Option<String>,
    given: Vec<String>,
    family: String,
}

impl PatientRow {
    fn from_json(id: String, body: &[u8]) -> Self {
        let patient: PatientSummary = serde_json::from_slice(body).unwrap_or_default();
        let name = patient.name.first().map(|name| match &name.text {
            Some(text) => text.clone(),
            None => format!("{} {}", name.given.join(" "), name.family).trim().to_owned(),
        });
        Self { name: name.unwrap_or_else(|| id.clone()), id, birth_date: patient.birth_date }
    }

    fn matches(&self, name_part: &str) -> bool {
        self.id == name_part || self.name.to_lowercase().contains(&name_part.to_lowercase())
    }
}

/// Returns Patients after an id, and the id after which the next page begins.
async fn find_patients(
    context: &RequestContext,
    user: &User,
    name_part: &str,
    after: Option<String>,
) -> Result<(Vec<PatientRow>, Option<String>), StoreError> {
    let (mut patients, mut scanned, mut after) = (Vec::new(), 0, after);
    loop {
        let scan = ScanOptions::at(context.app.store.last_seq().await?).after(after.as_deref());
        let scan = scan.limit(PageLimit { count: PAGE, ..PageLimit::default() });
        let page = context.app.store.scan_kind("Patient", scan).await?;
        scanned += page.versions.len();
        for version in page.versions {
            if let Some(body) = version.body.filter(|_| user.may_see_patient(&version.key.id)) {
                let row = PatientRow::from_json(version.key.id, &body);
                if name_part.is_empty() || row.matches(name_part) {
                    patients.push(row);
                }
            }
        }
        after = page.next;
        if after.is_none() || patients.len() >= PAGE || scanned >= MAX_SCANNED {
            return Ok((patients, after));
        }
    }
}

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
    let name_part = params.get("name").unwrap_or_default().trim();
    let (rows, next) =
        find_patients(context, &user, name_part, params.get("after").map(str::to_owned)).await?;
    let (browser, set_cookie) = cookie::browser(context);
    let content =
        render_list(&request.client.name, continuation, name_part, &rows, next.as_deref(), &browser);
    let response = reply::html(StatusCode::OK, page(t("Choose a patient"), &content));
    Ok(reply::no_store(cookie::set(response, set_cookie)))
}

fn render_list(
    client: &str,
    continuation: &str,
    name_part: &str,
    rows: &[PatientRow],
    next: Option<&str>,
    browser: &str,
) -> Markup {
    html! {
        p { (phrase("{} works with one patient. Choose whose records it opens.", &[html! { strong { (client) } }])) }
        form method="get" action="/patient" {
            input type="hidden" name="continue" value=(continuation);
            label for="name" { (t("Name or id")) }
            input #name name="name" type="search" autocomplete="off" maxlength="100" value=(name_part);
            button.second type="submit" { (t("Search")) }
        }
        form method="post" action="/patient" {
            (csrf::hidden_field(browser))
            input type="hidden" name="continue" value=(continuation);
            @if rows.is_empty() { p role="status" { (t("No patient with this name was found.")) } }
            ul.choices {
                @for row in rows {
                    li {
                        button.second type="submit" name="patient" value=(row.id) {
                            (row.name)
                            span.quiet { @if !row.birth_date.is_empty() { (fill("born {}", &[&row.birth_date])) " · " } (row.id) }
                        }
                    }
                }
            }
            button.second type="submit" name="answer" value="deny" { (t("Cancel")) }
        }
        @if let Some(next) = next {
            @let query = form_urlencoded::Serializer::new(String::new())
                .append_pair("continue", continuation).append_pair("name", name_part).append_pair("after", next).finish();
            p { a href=(format!("/patient?{query}")) { (t("More patients")) } }
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
    let chosen = form.get("patient").filter(|id| fhir::is_id(id) && user.may_see_patient(id));
    let exists = match chosen {
        Some(id) => context.app.resources.read("Patient", id).await.is_ok(),
        None => false,
    };
    let Some(id) = chosen.filter(|_| exists) else {
        let text = "This patient does not exist, or you do not have access.";
        return Err(Problem::page(StatusCode::BAD_REQUEST, text));
    };
    let answered = interaction.with_patient(&user, id);
    Ok(resume_request(context, &identity.authorization.sign_continuation(&answered, browser)))
}
