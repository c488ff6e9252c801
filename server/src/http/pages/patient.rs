//! {base}/patient: the user chooses the patient that an application is launched for (SMART App Launch 2.2,
//! `launch/patient`). Only Patients that the user may see are listed, and only those are taken.

use http::StatusCode;
use identity::authorize::Request;
use identity::interaction::{Interaction, Step};
use identity::user::User;
use maud::{Markup, html};
use serde::Deserialize;
use store::{Limit, Scan, StoreError, Versions as _};

use super::{cookie, csrf, page, resume};
use crate::http::extract::Call;
use crate::http::oauth::authorize;
use crate::http::problem::{self, Dialect};
use crate::http::reply::{self, Response};

/// Patients on a page.
const PAGE: usize = 20;
/// Patients that one search looks at; the next page goes on from there.
const LOOKED_AT: usize = 5_000;

/// What is shown of a Patient.
struct Row {
    id: String,
    name: String,
    birth_date: String,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Patient {
    name: Vec<Name>,
    birth_date: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Name {
    text: Option<String>,
    given: Vec<String>,
    family: String,
}

impl Row {
    fn of(id: String, body: &[u8]) -> Self {
        let patient: Patient = serde_json::from_slice(body).unwrap_or_default();
        let name = patient.name.first().map(|name| match &name.text {
            Some(text) => text.clone(),
            None => format!("{} {}", name.given.join(" "), name.family).trim().to_owned(),
        });
        Self { name: name.unwrap_or_else(|| id.clone()), id, birth_date: patient.birth_date }
    }

    fn fits(&self, wanted: &str) -> bool {
        self.id == wanted || self.name.to_lowercase().contains(&wanted.to_lowercase())
    }
}

/// Patients after an id, and the id to go on from where there are more.
async fn rows(
    call: &Call,
    user: &User,
    wanted: &str,
    after: Option<String>,
) -> Result<(Vec<Row>, Option<String>), StoreError> {
    let (mut found, mut looked_at, mut after) = (Vec::new(), 0, after);
    loop {
        let scan = Scan::at(call.app.store.last_seq()).after(after.as_deref());
        let scan = scan.limit(Limit { count: PAGE, ..Limit::default() });
        let page = call.app.store.scan_kind("Patient", scan).await?;
        looked_at += page.versions.len();
        for version in page.versions {
            if let Some(body) = version.body.filter(|_| user.may_see_patient(&version.key.id)) {
                let row = Row::of(version.key.id, &body);
                if wanted.is_empty() || row.fits(wanted) {
                    found.push(row);
                }
            }
        }
        after = page.next;
        if after.is_none() || found.len() >= PAGE || looked_at >= LOOKED_AT {
            return Ok((found, after));
        }
    }
}

/// The user who has to choose now; anything else is for the authorization endpoint.
async fn chooser(call: &Call, sealed: &str) -> Result<(Request, Interaction, User), Response> {
    let (request, interaction) = authorize::opened(call, sealed).await?;
    let failed = |error| problem::store(Dialect::Page, &error);
    let signed_in = authorize::signed_in(call).await.map_err(failed)?;
    let step = call.app.identity.next_step(&request, &interaction, signed_in, call.now).await;
    match step.map_err(failed)? {
        Step::ChoosePatient { user } => Ok((request, interaction, user)),
        _ => Err(go_on(call, sealed)),
    }
}

fn go_on(call: &Call, sealed: &str) -> Response {
    reply::no_store(reply::redirect(StatusCode::SEE_OTHER, &resume::address(&call.app, sealed)))
}

/// Shows the list.
pub async fn get(call: Call) -> Response {
    let params = call.params();
    let sealed = params.get("continue").unwrap_or_default();
    let (request, _, user) = match chooser(&call, sealed).await {
        Ok(chooser) => chooser,
        Err(response) => return response,
    };
    let wanted = params.get("name").unwrap_or_default().trim();
    let (rows, next) = match rows(&call, &user, wanted, params.get("after").map(str::to_owned)).await {
        Ok(found) => found,
        Err(error) => return problem::store(Dialect::Page, &error),
    };
    let (browser, set_cookie) = cookie::browser(&call);
    let content = content(&request.client.name, sealed, wanted, &rows, next.as_deref(), &browser);
    reply::no_store(cookie::set(reply::html(StatusCode::OK, page("Choose a patient", &content)), set_cookie))
}

fn content(
    client: &str,
    sealed: &str,
    wanted: &str,
    rows: &[Row],
    next: Option<&str>,
    browser: &str,
) -> Markup {
    html! {
        p { strong { (client) } " works with one patient. Whose records shall it open?" }
        form method="get" action="/patient" {
            input type="hidden" name="continue" value=(sealed);
            label for="name" { "Name or id" }
            input #name name="name" type="search" autocomplete="off" maxlength="100" value=(wanted);
            button.second type="submit" { "Search" }
        }
        form method="post" action="/patient" {
            (csrf::field(browser))
            input type="hidden" name="continue" value=(sealed);
            @if rows.is_empty() { p role="status" { "No patient of that name is among these." } }
            ul.choices {
                @for row in rows {
                    li {
                        button.second type="submit" name="patient" value=(row.id) {
                            (row.name)
                            span.quiet { @if !row.birth_date.is_empty() { "born " (row.birth_date) " · " } (row.id) }
                        }
                    }
                }
            }
            button.second type="submit" name="answer" value="deny" { "Cancel" }
        }
        @if let Some(next) = next {
            @let query = form_urlencoded::Serializer::new(String::new())
                .append_pair("continue", sealed).append_pair("name", wanted).append_pair("after", next).finish();
            p { a href=(format!("/patient?{query}")) { "More patients" } }
        }
    }
}

/// Takes the choice.
pub async fn post(mut call: Call) -> Response {
    let sent = match csrf::form(&mut call).await {
        Ok(sent) => sent,
        Err(response) => return response,
    };
    let sealed = sent.get("continue").unwrap_or_default();
    let (_, interaction, user) = match chooser(&call, sealed).await {
        Ok(chooser) => chooser,
        Err(response) => return response,
    };
    let identity = &call.app.identity;
    let browser = cookie::known_browser(&call).unwrap_or_default();
    if sent.get("answer") == Some("deny") {
        return go_on(&call, &identity.seal(&interaction.denied(), browser));
    }
    let chosen = sent.get("patient").filter(|id| fhir::is_id(id) && user.may_see_patient(id));
    let exists = match chosen {
        Some(id) => call.app.resources.read("Patient", id).await.is_ok(),
        None => false,
    };
    match chosen.filter(|_| exists) {
        Some(id) => go_on(&call, &identity.seal(&interaction.with_patient(&user, id), browser)),
        None => super::error(StatusCode::BAD_REQUEST, "There is no such patient that you may see."),
    }
}
