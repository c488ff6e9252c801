//! {base}/consent: the user is asked whether an application gets what it asks for (OpenID Connect Core
//! 3.1.2.4).

use http::StatusCode;
use identity::authorize::Request;
use identity::interaction::{Interaction, Step};
use identity::scope::Scopes;
use identity::user::User;
use maud::html;

use super::{cookie, csrf, page, resume, scopes as words};
use crate::http::extract::Call;
use crate::http::oauth::authorize;
use crate::http::problem::{self, Dialect};
use crate::http::reply::{self, Response};

/// What the user is asked about.
struct Question {
    request: Request,
    interaction: Interaction,
    user: User,
    scopes: Scopes,
    patient: Option<String>,
}

/// The question that this request leads to now; anything else is for the authorization endpoint.
async fn question(call: &Call, sealed: &str) -> Result<Question, Response> {
    let (request, interaction) = authorize::opened(call, sealed).await?;
    let failed = |error| problem::store(Dialect::Page, &error);
    let signed_in = authorize::signed_in(call).await.map_err(failed)?;
    let step = call.app.identity.next_step(&request, &interaction, signed_in, call.now).await;
    match step.map_err(failed)? {
        Step::Consent { user, scopes, patient } => {
            Ok(Question { request, interaction, user, scopes, patient })
        }
        _ => Err(go_on(call, sealed)),
    }
}

fn go_on(call: &Call, sealed: &str) -> Response {
    reply::no_store(reply::redirect(StatusCode::SEE_OTHER, &resume::address(&call.app, sealed)))
}

/// Asks.
pub async fn get(call: Call) -> Response {
    let sealed = call.params().get("continue").unwrap_or_default().to_owned();
    let Question { request, user, scopes, patient, .. } = match question(&call, &sealed).await {
        Ok(question) => question,
        Err(response) => return response,
    };
    let (browser, set_cookie) = cookie::browser(&call);
    let name = user.claims.name.as_deref().unwrap_or(&user.username);
    let client = &request.client.name;
    let content = html! {
        p { strong { (client) } " asks to:" }
        (words::list(&call, &scopes))
        @if let Some(patient) = &patient { p { "Patient: " strong { (patient) } } }
        @if request.needs_interaction() {
            p { "This application runs on your own device. Allow it only if you have just opened it there." }
        }
        p.quiet { "You are signed in as " (name) ". You can take this back at any time on your account page." }
        form method="post" action="/consent" {
            (csrf::field(&browser))
            input type="hidden" name="continue" value=(sealed);
            // What was shown is what is allowed.
            input type="hidden" name="scope" value=(scopes);
            button type="submit" name="answer" value="allow" { "Allow" }
            button.second type="submit" name="answer" value="deny" { "Do not allow" }
        }
    };
    let title = format!("Allow {client}?");
    reply::no_store(cookie::set(reply::html(StatusCode::OK, page(&title, &content)), set_cookie))
}

/// Takes the answer.
pub async fn post(mut call: Call) -> Response {
    let sent = match csrf::form(&mut call).await {
        Ok(sent) => sent,
        Err(response) => return response,
    };
    let sealed = sent.get("continue").unwrap_or_default();
    let Question { request, interaction, user, scopes, .. } = match question(&call, sealed).await {
        Ok(question) => question,
        Err(response) => return response,
    };
    let identity = &call.app.identity;
    match sent.get("answer") {
        Some("allow") if sent.get("scope") == Some(&scopes.to_string()) => {
            match identity.allow(&user.sub, &request.client, &scopes, call.now).await {
                Ok(()) => {
                    let browser = cookie::known_browser(&call).unwrap_or_default();
                    go_on(&call, &identity.seal(&interaction.allowed(&user, &scopes), browser))
                }
                Err(error) => problem::store(Dialect::Page, &error),
            }
        }
        Some("deny") => {
            let browser = cookie::known_browser(&call).unwrap_or_default();
            go_on(&call, &identity.seal(&interaction.denied(), browser))
        }
        // Something else was shown than what would be allowed now: it is shown again.
        _ => go_on(&call, sealed),
    }
}
