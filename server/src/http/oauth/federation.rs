//! Federated sign-in: the calls to an external provider (SPEC, Errors; DESIGN, providers).
//!
//! Each call has a limit for the answer head and one for each silence in the body, a size limit, and
//! follows no redirect. What a provider sends never reaches the client; only SPEC's texts do.

use std::error::Error;
use std::io;
use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use http::StatusCode;
use identity::audit::Event;
use identity::authorize::{ErrorCode, Reply};
use identity::params::Params;
use identity::pending::PendingKind;
use identity::provider::{ExternalUser, Flow, LinkError, ProviderFailure};
use identity::session::Proof;
use identity::user::UserError;
use store::StoreError;
use tokio::time::timeout;

use super::authorize::{self, refuse};
use crate::app::App;
use crate::config::ConfiguredProvider;
use crate::http::extract::Call;
use crate::http::pages::sign_in::Onward;
use crate::http::pages::{self, cookie};
use crate::http::problem::{self, Dialect};
use crate::http::reply::{self, Response};

const PROVIDER_FAILED: &str = "The provider did not answer as it should. Please try again later.";

/// Largest answer of a provider that is read, in bytes.
const ANSWER_LIMIT: usize = 1 << 20;

/// Sends the browser to the provider. `back` is where it goes on afterwards (see [`pages::resume`]); `link_to` is
/// the session of a user who wants to link the account; `prompt` is what the provider is to show.
///
/// # Errors
/// The store's.
pub async fn begin(
    call: &Call,
    provider: &ConfiguredProvider,
    browser: &str,
    back: &str,
    link_to: Option<&str>,
    prompt: Option<&str>,
) -> Result<Response, StoreError> {
    let mut to = call.app.identity.begin_flow(&provider.provider, back, link_to, browser, call.now).await?;
    if let Some(prompt) = prompt {
        to.push_str("&prompt=");
        to.push_str(prompt);
    }
    // A form led here or a link did: 303 is right after both.
    let status = if link_to.is_some() { StatusCode::SEE_OTHER } else { StatusCode::FOUND };
    Ok(reply::no_store(reply::redirect(status, &to)))
}

/// GET {base}/sign-in/with/{provider}: chosen on the sign-in page.
pub async fn start(call: Call) -> Response {
    let settings = call.app.settings();
    let Some(provider) = settings.providers.iter().find(|known| known.provider.name == call.args[0]) else {
        return pages::error(StatusCode::NOT_FOUND, "There is no such way to sign in here.");
    };
    if let Err(error) = call.add_pending(PendingKind::ProviderSignIn, None) {
        return problem::pending(Dialect::Page, error);
    }
    let back = pages::resume::read(&call.params());
    let (browser, set_cookie) = cookie::browser(&call);
    let prompt = match pages::resume::is_request(&back) {
        true => authorize::opened(&call, &back).await.ok().and_then(|(request, _)| request.provider_prompt()),
        false => None,
    };
    match begin(&call, provider, &browser, &back, None, prompt).await {
        Ok(response) => cookie::set(response, set_cookie),
        Err(error) => problem::store(Dialect::Page, &error),
    }
}

/// GET {base}/oauth2/idpresponse/{provider}: the provider sends the browser back.
pub async fn callback(call: Call) -> Response {
    let params = call.params();
    let lost = || {
        pages::error(
            StatusCode::BAD_REQUEST,
            "This sign-in was not begun in this browser, or took too long. Go back to the application and begin again.",
        )
    };
    let (Some(state), Some(browser)) = (params.get("state"), cookie::known_browser(&call)) else {
        return lost();
    };
    let flow = match call.app.identity.take_flow(state, browser, call.now).await {
        Ok(Some(flow)) => flow,
        Ok(None) => return lost(),
        Err(error) => return problem::store(Dialect::Page, &error),
    };
    if flow.provider != call.args[0] {
        tracing::warn!(begun = flow.provider, answered = call.args[0], "a sign-in ended at another provider");
        return lost();
    }
    if flow.link_to.is_some() {
        return link(&call, &params, &flow).await;
    }
    // Errors go to the application that waits, where one does.
    let waiting = match pages::resume::is_request(&flow.back) {
        true => match authorize::opened(&call, &flow.back).await {
            Ok((request, _)) => Some(request.reply),
            Err(response) => return response,
        },
        false => None,
    };
    let settings = call.app.settings();
    let known = settings.providers.iter().find(|known| known.provider.name == flow.provider);
    let Some(provider) = known else { return failed(waiting.as_ref(), ErrorCode::ServerError, None) };
    let external = match outcome(&call, &params, provider, &flow).await {
        Ok(external) => external,
        Err(failure) => {
            let reason = "the external provider refused or failed";
            call.app.identity.record(Event::SignInFailed { sub: None, reason });
            let (error, description) = provider.provider.describe(&failure);
            return failed(waiting.as_ref(), error, description.as_deref());
        }
    };
    match sign_in(&call, provider, external, &flow, browser).await {
        Ok(response) => response,
        Err(error) => {
            tracing::error!(%error, "federated sign-in");
            failed(waiting.as_ref(), ErrorCode::ServerError, None)
        }
    }
}

/// Tells the application that waits, or whoever looks at the browser.
fn failed(waiting: Option<&Reply>, error: ErrorCode, description: Option<&str>) -> Response {
    match waiting {
        Some(reply) => refuse(reply, error, description),
        None => pages::error(StatusCode::BAD_GATEWAY, PROVIDER_FAILED),
    }
}

/// Who has signed in at the provider, or what failed.
async fn outcome(
    call: &Call,
    params: &Params,
    provider: &ConfiguredProvider,
    flow: &Flow,
) -> Result<ExternalUser, ProviderFailure> {
    let issuer = params.get("iss");
    let is_other = issuer.is_some_and(|issuer| issuer != provider.provider.issuer);
    let outcome = match (params.get("error"), params.get("code")) {
        _ if is_other => Err(ProviderFailure::Other("the response names another issuer (RFC 9207)")),
        (Some("access_denied"), _) => Err(ProviderFailure::Denied),
        (None, Some(code)) => exchange(&call.app, provider, flow, code, call).await,
        _ => Err(ProviderFailure::Other("the provider answered with an error or without a code")),
    };
    outcome.inspect_err(|failure| {
        tracing::warn!(provider = flow.provider, ?failure, "federated sign-in failed");
    })
}

/// Signs the linked user in. An account that is linked to nobody, and that the provider's switches do not
/// admit, waits for its owner to sign in here once.
async fn sign_in(
    call: &Call,
    provider: &ConfiguredProvider,
    external: ExternalUser,
    flow: &Flow,
    browser: &str,
) -> Result<Response, UserError> {
    let identity = &call.app.identity;
    let rules = &provider.provider;
    let user = match identity.linked_user(&external, call.now).await? {
        Some(user) => Some(user),
        None => identity.admit(rules, &external, call.now).await?,
    };
    let onward = Onward { back: flow.back.clone(), link: None };
    if let Some(user) = user {
        return Ok(pages::sign_in::complete(call, &user, &Proof::provider(&rules.name), &onward).await?);
    }
    let link = identity.keep_for_linking(&rules.name, external, browser, call.now).await?;
    let onward = Onward { link: Some(link), ..onward };
    let to = format!("{}{}", call.app.base_url, onward.at("/sign-in"));
    Ok(reply::no_store(reply::redirect(StatusCode::FOUND, &to)))
}

/// Links the account to the user who asked for it, in the session in which it was asked.
async fn link(call: &Call, params: &Params, flow: &Flow) -> Response {
    let identity = &call.app.identity;
    let session = match cookie::session(call) {
        Some(value) => identity.session(value, call.now).await,
        None => Ok(None),
    };
    let user = match session {
        Ok(Some((session, user))) if flow.link_to.as_ref() == Some(&session.sid) => user,
        Ok(_) => {
            let text = "You have signed out since you began to link this account. Sign in and begin again.";
            return pages::error(StatusCode::FORBIDDEN, text);
        }
        Err(error) => return problem::store(Dialect::Page, &error),
    };
    let settings = call.app.settings();
    let known = settings.providers.iter().find(|known| known.provider.name == flow.provider);
    let Some(provider) = known else {
        return pages::error(StatusCode::NOT_FOUND, "This provider is not offered here any more.");
    };
    let external = match outcome(call, params, provider, flow).await {
        Ok(external) => external,
        Err(ProviderFailure::Denied) => {
            return pages::error(StatusCode::FORBIDDEN, "You said no at the provider. Nothing was linked.");
        }
        Err(_) => {
            let text =
                "The provider did not answer as it should. Nothing was linked; please try again later.";
            return pages::error(StatusCode::BAD_GATEWAY, text);
        }
    };
    match identity.link(&user, &provider.provider.name, &external, call.now).await {
        Ok(()) => {
            let to = format!("{}/account?said=linked", call.app.base_url);
            reply::no_store(reply::redirect(StatusCode::SEE_OTHER, &to))
        }
        Err(LinkError::Store(error)) => problem::store(Dialect::Page, &error),
        Err(error @ (LinkError::Taken | LinkError::OnlyWay)) => {
            pages::error(StatusCode::CONFLICT, &pages::passkey::sentence(&error.to_string()))
        }
    }
}

/// Exchanges the code and judges the ID token.
async fn exchange(
    app: &App,
    provider: &ConfiguredProvider,
    flow: &Flow,
    code: &str,
    call: &Call,
) -> Result<ExternalUser, ProviderFailure> {
    let rules = &provider.provider;
    let callback = app.identity.callback_url(rules);
    let mut form = vec![
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", &callback),
        ("code_verifier", &flow.verifier),
    ];
    let mut request = app.http.post(&rules.token_endpoint).header("accept", "application/json");
    match &rules.client_secret {
        Some(secret) => {
            let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
            let pair = format!("{}:{}", encode(&rules.client_id), encode(secret));
            request = request.header("authorization", format!("Basic {}", STANDARD.encode(pair)));
        }
        None => form.push(("client_id", &rules.client_id)),
    }
    let answer = fetch(request.form(&form), provider.timeout, ProviderFailure::TokenTimeout).await?;
    let answer: serde_json::Value =
        serde_json::from_slice(&answer).map_err(|_| ProviderFailure::Other("the token answer is no JSON"))?;
    let id_token = answer["id_token"].as_str().ok_or(ProviderFailure::Other("there is no ID token"))?;
    let keys = fetch(app.http.get(&rules.jwks_uri), provider.timeout, ProviderFailure::KeySetTimeout).await?;
    let keys = serde_json::from_slice(&keys).map_err(|_| ProviderFailure::Other("the key set is no JSON"))?;
    flow.check_id_token(rules, id_token, &keys, call.now)
}

/// One call: the body of a 2xx answer, or what failed.
async fn fetch(
    request: reqwest::RequestBuilder,
    limit: Duration,
    on_timeout: ProviderFailure,
) -> Result<Bytes, ProviderFailure> {
    let mut response = match timeout(limit, request.send()).await {
        Err(_) => return Err(on_timeout),
        Ok(Err(error)) if error.is_timeout() => return Err(on_timeout),
        Ok(Err(error)) => return Err(classify(&error)),
        Ok(Ok(response)) => response,
    };
    let mut body = BytesMut::new();
    let read = async {
        loop {
            match timeout(limit, response.chunk()).await {
                Err(_) => return Err(ProviderFailure::Stalled),
                Ok(Err(error)) => return Err(classify(&error)),
                Ok(Ok(None)) => return Ok(()),
                Ok(Ok(Some(piece))) if body.len() + piece.len() > ANSWER_LIMIT => {
                    return Err(ProviderFailure::Other("the answer is too large"));
                }
                Ok(Ok(Some(piece))) => body.extend_from_slice(&piece),
            }
        }
    };
    let ended = read.await;
    let status = response.status();
    if status.is_success() {
        return ended.map(|()| body.freeze());
    }
    // The status is what counts; the body only may add a code.
    let code = serde_json::from_slice::<serde_json::Value>(&body)
        .ok()
        .and_then(|body| body["error"].as_str().map(str::to_owned))
        .filter(|code| {
            code.len() <= 64 && code.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
        });
    Err(ProviderFailure::Status { status: status.as_u16(), code })
}

/// What a failed call means. A refused connection, a name that is not found and TLS trouble come
/// before any exchange and are `Other`.
fn classify(error: &reqwest::Error) -> ProviderFailure {
    if error.is_connect() {
        return ProviderFailure::Other("no connection to the provider");
    }
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            match io.kind() {
                io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => {
                    return ProviderFailure::Reset;
                }
                io::ErrorKind::TimedOut => return ProviderFailure::Stalled,
                _ => {}
            }
        }
        if error
            .downcast_ref::<hyper::Error>()
            .is_some_and(|error| error.is_incomplete_message() || error.is_closed() || error.is_canceled())
        {
            return ProviderFailure::Reset;
        }
        cause = error.source();
    }
    ProviderFailure::Other("the call to the provider failed")
}
