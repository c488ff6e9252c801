//! GET {base}/oauth2/authorize (SPEC, authorize), and GET {base}/oauth2/resume, where our pages lead back to.
//!
//! Checks the request, then sends the browser on: to a page of ours, to an external provider, or with the
//! answer to the client. Once the redirect URI is established every fault goes there.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use http::StatusCode;
use identity::authorize::{ErrorCode, Refusal, Reply, Request};
use identity::interaction::{Interaction, LONGEST_QUERY, Step};
use identity::session::Session;
use identity::user::User;
use store::StoreError;

use super::federation;
use crate::http::extract::Call;
use crate::http::pages::{self, cookie};
use crate::http::problem;
use crate::http::reply::{self, Response};

/// Answers an authorization request.
pub async fn get(call: Call) -> Response {
    if call.query.len() > LONGEST_QUERY {
        let text = "The request of the application is too long. (It can be pushed: RFC 9126.)";
        return pages::error(StatusCode::URI_TOO_LONG, text);
    }
    match call.app.identity.check_authorization_request(&call.query, call.now).await {
        Ok(request) => {
            let interaction = Interaction::new(&request, call.now);
            carry_on(&call, request, interaction).await
        }
        Err(refusal) => refused(&refusal),
    }
}

/// GET {base}/oauth2/resume: a page of ours is done with its part.
pub async fn resume(call: Call) -> Response {
    let sealed = call.params().get("continue").unwrap_or_default().to_owned();
    match opened(&call, &sealed).await {
        Ok((request, interaction)) => carry_on(&call, request, interaction).await,
        Err(response) => response,
    }
}

/// The request in a sealed value, checked once more.
///
/// # Errors
/// The page or redirect that says why there is none.
pub async fn opened(call: &Call, sealed: &str) -> Result<(Request, Interaction), Response> {
    let browser = cookie::known_browser(call).unwrap_or_default();
    let Some(interaction) = call.app.identity.open_seal(sealed, browser, call.now) else {
        return Err(pages::error(
            StatusCode::BAD_REQUEST,
            "This sign-in was not begun in this browser, or took too long. Go back to the application and begin again.",
        ));
    };
    match call.app.identity.check_interaction(&interaction, call.now).await {
        Ok(request) => Ok((request, interaction)),
        Err(refusal) => Err(refused(&refusal)),
    }
}

/// The address of a page, with the sealed request.
fn page_address(call: &Call, page: &str, sealed: &str) -> String {
    // Its alphabet needs no encoding.
    format!("{}/{page}?continue={sealed}", call.app.base_url)
}

/// Who is signed in in this browser.
///
/// # Errors
/// The store's.
pub async fn signed_in(call: &Call) -> Result<Option<(Session, User)>, StoreError> {
    match cookie::session(call) {
        Some(value) => call.app.identity.session(value, call.now).await,
        None => Ok(None),
    }
}

/// Tells the client an error, by redirect.
pub fn refuse(to: &Reply, error: ErrorCode, description: Option<&str>) -> Response {
    found(&to.error(error, description))
}

fn refused(refusal: &Refusal) -> Response {
    match refusal {
        Refusal::Show(error) => problem::show(error),
        Refusal::Redirect { reply, error } => refuse(reply, *error, None),
    }
}

fn found(to: &str) -> Response {
    reply::no_store(reply::redirect(StatusCode::FOUND, to))
}

async fn carry_on(call: &Call, request: Request, interaction: Interaction) -> Response {
    let to = request.reply.clone();
    match AssertUnwindSafe(proceed(call, request, interaction)).catch_unwind().await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => {
            tracing::error!(%error, "authorize");
            refuse(&to, ErrorCode::ServerError, None)
        }
        Err(_) => {
            tracing::error!("authorize panicked");
            refuse(&to, ErrorCode::ServerError, None)
        }
    }
}

async fn proceed(call: &Call, request: Request, interaction: Interaction) -> Result<Response, StoreError> {
    let identity = &call.app.identity;
    let page = match identity.next_step(&request, &interaction, signed_in(call).await?, call.now).await? {
        Step::Grant(ready) => {
            return Ok(match identity.grant(&request, *ready, call.now).await? {
                Some(to) => found(&to),
                None => refuse(&request.reply, ErrorCode::InvalidRequest, None),
            });
        }
        Step::Refuse(error) => return Ok(refuse(&request.reply, error, None)),
        Step::SignIn => "sign-in",
        Step::ChoosePatient { .. } => "patient",
        Step::Consent { .. } => "consent",
    };
    let (browser, set_cookie) = cookie::browser(call);
    let sealed = identity.seal(&interaction, &browser);
    let mut to = page_address(call, page, &sealed);
    if page == "sign-in" {
        if let Some(name) = &request.identity_provider {
            return match call.app.settings().providers.iter().find(|known| known.provider.name == *name) {
                Some(provider) => {
                    let response =
                        federation::begin(call, provider, &browser, &sealed, None, request.provider_prompt())
                            .await?;
                    Ok(cookie::set(response, set_cookie))
                }
                None => Ok(refuse(&request.reply, ErrorCode::InvalidRequest, None)),
            };
        }
        if let Some(hint) = &request.login_hint {
            let pair =
                form_urlencoded::Serializer::new(String::new()).append_pair("login_hint", hint).finish();
            to = format!("{to}&{pair}");
        }
    }
    Ok(cookie::set(found(&to), set_cookie))
}
