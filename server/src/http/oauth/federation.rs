//! Federated sign-in: the requests to an external provider.
//!
//! Each request has a limit for the response head, one for each pause in the body, and a maximum size; redirects are
//! not followed. Nothing that a provider sends is passed on to the client.

use std::error::Error;
use std::io;
use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use http::StatusCode;
use identity::audit::AuditEvent;
use identity::authorize::request::AuthorizationReply;
use identity::directory::user_directory::UserError;
use identity::model::error_code::ErrorCode;
use identity::model::provider::{ExternalUser, ProviderFailure};
use identity::params::Params;
use identity::sign_in::pending_quota::PendingKind;
use identity::sign_in::provider_sign_in::ProviderSignIn;
use identity::sign_in::session::SignInProof;
use store::StoreError;
use tokio::time::timeout;

use super::authorize::{self, redirect_error};
use crate::config::ConfiguredProvider;
use crate::http::extract::RequestContext;
use crate::http::pages::sign_in::SignInDestination;
use crate::http::pages::{self, cookie};
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};
use crate::node::app::App;

const PROVIDER_FAILED: &str = "The provider did not respond correctly. Please try again later.";

/// Maximum size of a provider's response, in bytes.
const ANSWER_LIMIT: usize = 1 << 20;

/// Redirects the browser to the provider. `back` is the destination after the sign-in (see [`pages::resume`]);
/// `link_to` is the session of a user who links the account; `prompt` is the parameter of that name.
///
/// # Errors
/// Returns [`StoreError`] if the sign-in cannot be stored.
pub async fn redirect_to_provider(
    context: &RequestContext,
    provider: &ConfiguredProvider,
    browser: &str,
    back: &str,
    link_to: Option<&str>,
    prompt: Option<&str>,
) -> Result<Response, StoreError> {
    let mut to = context
        .app
        .identity
        .provider_sign_ins
        .begin_provider_sign_in(&provider.provider, back, link_to, browser, context.now)
        .await?;
    if let Some(prompt) = prompt {
        to.push_str("&prompt=");
        to.push_str(prompt);
    }
    // After a form, 303 turns the POST into a GET.
    let status = if link_to.is_some() { StatusCode::SEE_OTHER } else { StatusCode::FOUND };
    Ok(reply::no_store(reply::redirect(status, &to)))
}

/// GET {base}/sign-in/with/{provider}: starts a sign-in at a provider that was selected on the sign-in page.
pub async fn start_sign_in(context: &RequestContext, provider: String) -> Result<Response, Problem> {
    let settings = context.app.settings();
    let Some(provider) = settings.providers.iter().find(|known| known.provider.name == provider) else {
        return Err(Problem::page(StatusCode::NOT_FOUND, "This sign-in method is not available."));
    };
    context.add_pending(PendingKind::ProviderSignIn, None)?;
    let back = pages::resume::read_destination(&context.params());
    let (browser, set_cookie) = cookie::browser(context);
    let prompt = match pages::resume::is_request(&back) {
        true => authorize::open_continuation(context, &back)
            .await
            .ok()
            .and_then(|(request, _)| request.provider_prompt()),
        false => None,
    };
    let response = redirect_to_provider(context, provider, &browser, &back, None, prompt).await?;
    Ok(cookie::set(response, set_cookie))
}

/// GET {base}/oauth2/idpresponse/{provider}: the callback from the provider.
pub async fn provider_callback(context: &RequestContext, provider: String) -> Result<Response, Problem> {
    let params = context.params();
    let lost = || {
        Problem::page(
            StatusCode::BAD_REQUEST,
            "This sign-in was not started in this browser, or has expired. Return to the application and start again.",
        )
    };
    let (Some(state), Some(browser)) = (params.get("state"), cookie::known_browser(context)) else {
        return Err(lost());
    };
    let taken = context.app.identity.provider_sign_ins.take_provider_sign_in(state, browser, context.now);
    let flow = taken.await?.ok_or_else(lost)?;
    if flow.provider != provider {
        tracing::warn!(begun = flow.provider, answered = provider, "a sign-in ended at another provider");
        return Err(lost());
    }
    if flow.link_to.is_some() {
        return link_account(context, &params, &flow).await;
    }
    // If an application is waiting, errors are sent to it.
    let waiting = match pages::resume::is_request(&flow.back) {
        true => Some(authorize::open_continuation(context, &flow.back).await?.0.reply),
        false => None,
    };
    let settings = context.app.settings();
    let known = settings.providers.iter().find(|known| known.provider.name == flow.provider);
    let Some(provider) = known else {
        return Err(failure_problem(waiting.as_ref(), ErrorCode::ServerError, None));
    };
    let external = match external_user(context, &params, provider, &flow).await {
        Ok(external) => external,
        Err(failure) => {
            let reason = "the external provider refused or failed";
            context.app.identity.audit.record(AuditEvent::SignInFailed { sub: None, reason });
            let (error, description) = provider.provider.describe_failure(&failure);
            return Err(failure_problem(waiting.as_ref(), error, description.as_deref()));
        }
    };
    sign_in_external(context, provider, external, &flow, browser).await.map_err(|error| {
        tracing::error!(%error, "federated sign-in");
        failure_problem(waiting.as_ref(), ErrorCode::ServerError, None)
    })
}

/// Reports an error to the waiting application, or on a page if there is none.
fn failure_problem(
    waiting: Option<&AuthorizationReply>,
    error: ErrorCode,
    description: Option<&str>,
) -> Problem {
    match waiting {
        Some(reply) => redirect_error(reply, error, description).into(),
        None => Problem::page(StatusCode::BAD_GATEWAY, PROVIDER_FAILED),
    }
}

/// Returns the user who signed in at the provider.
async fn external_user(
    context: &RequestContext,
    params: &Params,
    provider: &ConfiguredProvider,
    flow: &ProviderSignIn,
) -> Result<ExternalUser, ProviderFailure> {
    let issuer = params.get("iss");
    let is_other = issuer.is_some_and(|issuer| issuer != provider.provider.issuer);
    let outcome = match (params.get("error"), params.get("code")) {
        _ if is_other => Err(ProviderFailure::Other("the response names another issuer (RFC 9207)")),
        (Some("access_denied"), _) => Err(ProviderFailure::Denied),
        (None, Some(code)) => exchange_code(&context.app, provider, flow, code, context).await,
        _ => Err(ProviderFailure::Other("the provider answered with an error or without a code")),
    };
    outcome.inspect_err(|failure| {
        tracing::warn!(provider = flow.provider, ?failure, "federated sign-in failed");
    })
}

/// Signs in the linked user. An account that is not linked, and that the settings of the provider do not admit, is
/// stored until its owner has signed in here once.
async fn sign_in_external(
    context: &RequestContext,
    provider: &ConfiguredProvider,
    external: ExternalUser,
    flow: &ProviderSignIn,
    browser: &str,
) -> Result<Response, UserError> {
    let identity = &context.app.identity;
    let rules = &provider.provider;
    let user = match identity.sign_in.linked_user(&external, context.now).await? {
        Some(user) => Some(user),
        None => identity.sign_in.admit_external_user(rules, &external, context.now).await?,
    };
    let onward = SignInDestination { back: flow.back.clone(), link: None };
    if let Some(user) = user {
        return Ok(pages::sign_in::complete_sign_in(
            context,
            &user,
            &SignInProof::provider(&rules.name),
            &onward,
        )
        .await?);
    }
    let link = identity.sign_in.store_pending_link(&rules.name, external, browser, context.now).await?;
    let onward = SignInDestination { link: Some(link), ..onward };
    let to = format!("{}{}", context.app.base_url, onward.at("/sign-in"));
    Ok(reply::no_store(reply::redirect(StatusCode::FOUND, &to)))
}

/// Links the account to the user who started the linking, in the same session.
async fn link_account(
    context: &RequestContext,
    params: &Params,
    flow: &ProviderSignIn,
) -> Result<Response, Problem> {
    let identity = &context.app.identity;
    let signed_in = authorize::signed_in(context).await?;
    let Some((_, user)) = signed_in.filter(|(session, _)| flow.link_to.as_ref() == Some(&session.sid)) else {
        let text = "You have signed out since you started to link this account. Sign in and start again.";
        return Err(Problem::page(StatusCode::FORBIDDEN, text));
    };
    let settings = context.app.settings();
    let known = settings.providers.iter().find(|known| known.provider.name == flow.provider);
    let Some(provider) = known else {
        return Err(Problem::page(StatusCode::NOT_FOUND, "This provider is no longer available."));
    };
    let external = match external_user(context, params, provider, flow).await {
        Ok(external) => external,
        Err(ProviderFailure::Denied) => {
            return Err(Problem::page(
                StatusCode::FORBIDDEN,
                "You denied access at the provider. No account was linked.",
            ));
        }
        Err(_) => {
            let text =
                "The provider did not respond correctly. No account was linked; please try again later.";
            return Err(Problem::page(StatusCode::BAD_GATEWAY, text));
        }
    };
    identity.sign_in.link_account(&user, &provider.provider.name, &external, context.now).await?;
    let to = format!("{}/account?notice=linked", context.app.base_url);
    Ok(reply::no_store(reply::redirect(StatusCode::SEE_OTHER, &to)))
}

/// Exchanges the code and validates the ID token.
async fn exchange_code(
    app: &App,
    provider: &ConfiguredProvider,
    flow: &ProviderSignIn,
    code: &str,
    context: &RequestContext,
) -> Result<ExternalUser, ProviderFailure> {
    let rules = &provider.provider;
    let callback = app.identity.provider_sign_ins.callback_url(rules);
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
    let answer = send_request(request.form(&form), provider.timeout, ProviderFailure::TokenTimeout).await?;
    let answer: serde_json::Value = serde_json::from_slice(&answer)
        .map_err(|_| ProviderFailure::Other("the token response is not JSON"))?;
    let id_token = answer["id_token"].as_str().ok_or(ProviderFailure::Other("there is no ID token"))?;
    let keys =
        send_request(app.http.get(&rules.jwks_uri), provider.timeout, ProviderFailure::KeySetTimeout).await?;
    let keys =
        serde_json::from_slice(&keys).map_err(|_| ProviderFailure::Other("the key set is not JSON"))?;
    flow.verify_id_token(rules, id_token, &keys, context.now)
}

/// Sends a request. Returns the body of a 2xx response.
async fn send_request(
    request: reqwest::RequestBuilder,
    limit: Duration,
    on_timeout: ProviderFailure,
) -> Result<Bytes, ProviderFailure> {
    let mut response = match timeout(limit, request.send()).await {
        Err(_) => return Err(on_timeout),
        Ok(Err(error)) if error.is_timeout() => return Err(on_timeout),
        Ok(Err(error)) => return Err(classify_error(&error)),
        Ok(Ok(response)) => response,
    };
    let mut body = BytesMut::new();
    let read = async {
        loop {
            match timeout(limit, response.chunk()).await {
                Err(_) => return Err(ProviderFailure::Stalled),
                Ok(Err(error)) => return Err(classify_error(&error)),
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
    // The error code of the body is added to the status if there is one.
    let code = serde_json::from_slice::<serde_json::Value>(&body)
        .ok()
        .and_then(|body| body["error"].as_str().map(str::to_owned))
        .filter(|code| {
            code.len() <= 64 && code.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
        });
    Err(ProviderFailure::Status { status: status.as_u16(), code })
}

/// Classifies a failed request. A refused connection, an unknown host name and a TLS failure precede any exchange and
/// are `Other`.
fn classify_error(error: &reqwest::Error) -> ProviderFailure {
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
