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
use identity::authorize::ErrorCode;
use identity::provider::{ExternalUser, Flow, ProviderFailure};
use store::StoreError;
use tokio::time::timeout;

use super::authorize::{self, refuse};
use crate::app::App;
use crate::config::ConfiguredProvider;
use crate::http::extract::Call;
use crate::http::pages::{self, cookie};
use crate::http::problem::{self, Dialect};
use crate::http::reply::{self, Response};

/// Largest answer of a provider that is read, in bytes.
const ANSWER_LIMIT: usize = 1 << 20;

/// Sends the browser to the provider. `back` is the sealed authorization request that it comes back to, or empty
/// for our own account page.
///
/// # Errors
/// The store's.
pub async fn begin(
    call: &Call,
    provider: &ConfiguredProvider,
    browser: &str,
    back: &str,
) -> Result<Response, StoreError> {
    let to = call.app.identity.begin_flow(&provider.provider, back, browser, call.now).await?;
    Ok(reply::no_store(reply::redirect(StatusCode::FOUND, &to)))
}

/// GET {base}/sign-in/with/{provider}: chosen on the sign-in page.
pub async fn start(call: Call) -> Response {
    let settings = call.app.settings();
    let Some(provider) = settings.providers.iter().find(|known| known.provider.name == call.args[0]) else {
        return pages::error(StatusCode::NOT_FOUND, "There is no such way to sign in here.");
    };
    let back = call.params().get("continue").unwrap_or_default().to_owned();
    let (browser, set_cookie) = cookie::browser(&call);
    match begin(&call, provider, &browser, &back).await {
        Ok(response) => cookie::set(response, set_cookie),
        Err(error) => problem::store(Dialect::Page, &error),
    }
}

/// GET {base}/oauth2/idpresponse: the provider sends the browser back.
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
    let request = match authorize::opened(&call, &flow.back).await {
        Ok((request, _)) => request,
        Err(response) => return response,
    };
    let settings = call.app.settings();
    let known = settings.providers.iter().find(|known| known.provider.name == flow.provider);
    let Some(provider) = known else { return refuse(&request.reply, ErrorCode::ServerError, None) };
    let outcome = match (params.get("error"), params.get("code")) {
        (Some("access_denied"), _) => Err(ProviderFailure::Denied),
        (None, Some(code)) => exchange(&call.app, provider, &flow, code, &call).await,
        _ => Err(ProviderFailure::Other("the provider answered with an error or without a code")),
    };
    let external = match outcome {
        Ok(external) => external,
        Err(failure) => {
            tracing::warn!(provider = flow.provider, ?failure, "federated sign-in failed");
            let reason = "the external provider refused or failed";
            call.app.identity.record(Event::SignInFailed { sub: None, reason });
            let (error, description) = provider.provider.describe(&failure);
            return refuse(&request.reply, error, description.as_deref());
        }
    };
    match sign_in(&call, provider, &external).await {
        Ok(Some(cookie)) => {
            let to = authorize::resume_address(&call, &flow.back);
            let response = reply::no_store(reply::redirect(StatusCode::FOUND, &to));
            cookie::set(response, Some(cookie::set_session(&call.app, &cookie)))
        }
        Ok(None) => {
            let reason = "nobody is linked to the external account";
            call.app.identity.record(Event::SignInFailed { sub: None, reason });
            refuse(&request.reply, ErrorCode::AccessDenied, None)
        }
        Err(error) => {
            tracing::error!(%error, "federated sign-in");
            refuse(&request.reply, ErrorCode::ServerError, None)
        }
    }
}

/// Begins a session for the linked user; makes one where the provider may. `None`: nobody is linked.
async fn sign_in(
    call: &Call,
    provider: &ConfiguredProvider,
    external: &ExternalUser,
) -> Result<Option<String>, identity::user::UserError> {
    let identity = &call.app.identity;
    let user = match identity.linked_user(external, call.now).await? {
        Some(user) => user,
        None if provider.provider.create_users => {
            identity.create_linked_user(&provider.provider, external, call.now).await?
        }
        None => return Ok(None),
    };
    let by = Some(provider.provider.name.clone());
    Ok(Some(identity.begin_session(&user, &[], by, cookie::session(call), call.now).await?))
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
    let callback = app.identity.callback_url();
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
