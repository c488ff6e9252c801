//! GET {base}/oauth2/authorize, and GET {base}/oauth2/resume, to which our pages return.
//!
//! Checks the request and redirects the browser: to one of our pages, to an external provider, or to the
//! client with the response. Once the redirect URI is validated, every error is sent there.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use http::StatusCode;
use identity::authorize::authorization_service::MAX_QUERY_BYTES;
use identity::authorize::interaction::{GrantDecision, InteractionState, NextStep};
use identity::authorize::refusal::Refusal;
use identity::authorize::request::AuthorizationRequest;
use identity::model::error_code::ErrorCode;
use identity::sign_in::large_request_quota::LargeRequestLimit;
use identity::sign_in::provider_sign_in::ProviderSignInStart;
use store::StoreError;

use super::authorization_answer::{answer_response, redirect_error, redirect_found};
use super::continuation::{open_continuation, request_problem};
use super::federation::{self, RedirectError};
use crate::http::extract::RequestContext;
use crate::http::pages::browser_session::signed_in;
use crate::http::pages::cookie;
use crate::http::problem::Problem;
use crate::http::problem::log_store_error;
use crate::http::reply::Response;

/// Maximum length of a `login_hint` that is passed to the sign-in page, in bytes.
const MAX_HINT_BYTES: usize = 256;

/// Answers an authorization request.
pub async fn authorize(context: &RequestContext) -> Result<Response, Problem> {
    if context.query.len() > MAX_QUERY_BYTES {
        let text = "The request of the application is too long. (The application can push it: RFC 9126.)";
        return Err(Problem::page(StatusCode::URI_TOO_LONG, text));
    }
    let outcome =
        context.app.identity.authorization.check_authorization_request(&context.query, context.now).await;
    let request = match outcome {
        Ok(request) => request,
        Err(error) => return Err(request_problem(context, error).await),
    };
    let interaction = InteractionState::new(&request, context.now);
    Ok(continue_request(context, request, interaction).await)
}

/// GET {base}/oauth2/resume: continues an authorization request after one of our pages.
pub async fn resume_request(context: &RequestContext) -> Result<Response, Problem> {
    let continuation = context.params().get("continue").unwrap_or_default().to_owned();
    let (request, interaction) = open_continuation(context, &continuation).await?;
    Ok(continue_request(context, request, interaction).await)
}

/// The URL of a page with a continuation.
fn page_address(context: &RequestContext, page: &str, continuation: &str) -> String {
    // The alphabet of a continuation needs no percent-encoding.
    format!("{}/{page}?continue={continuation}", context.app.address.base_url)
}

async fn continue_request(
    context: &RequestContext,
    request: AuthorizationRequest,
    interaction: InteractionState,
) -> Response {
    let to = request.reply.clone();
    match AssertUnwindSafe(take_next_step(context, request, interaction)).catch_unwind().await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => {
            log_store_error(&error, "authorize");
            redirect_error(&to, ErrorCode::from(&error), None)
        }
        Err(_) => {
            tracing::error!("authorize panicked");
            redirect_error(&to, ErrorCode::ServerError, None)
        }
    }
}

/// Logs the requested scopes that this user cannot grant (decision 17). The client learns of them by `scope`
/// in the answer of the token endpoint.
fn log_dropped_scopes(context: &RequestContext, request: &AuthorizationRequest, decision: &GrantDecision) {
    let dropped = decision.dropped_scopes(request);
    if dropped.is_empty() {
        return;
    }
    let reason = "scopes were not granted, because allowed_scopes of the user lack them";
    let refusal = Refusal::new(ErrorCode::InvalidScope, reason)
        .with_value(Some(&dropped.to_string()))
        .mended_by(format!("trefoil user change NAME --allowed-scopes, for the user {}", decision.sub()));
    context.app.logs.refusals.record_dropped(&request.client.client_id, &refusal, context.now);
}

/// Logs that a large request travels in the address, because too many wait for their users.
fn log_large_request(client_id: &str, limit: LargeRequestLimit) {
    let limit = match limit {
        LargeRequestLimit::OfNetwork => "4 MiB of one network",
        LargeRequestLimit::OfAll => "64 MiB of all networks",
    };
    tracing::warn!(
        client_id,
        limit,
        "a large authorization request stays in the address, because requests of this size wait for their users: a proxy \
         that limits response heads to 4 KiB answers it with 502"
    );
}

/// Removes the record of a large request. A record that stays ends by itself.
async fn end_interaction(context: &RequestContext, interaction: &InteractionState) {
    let authorization = &context.app.identity.authorization;
    if let Err(error) = authorization.remove_large_request(interaction, context.now).await {
        log_store_error(&error, "remove the record of a request");
    }
}

async fn take_next_step(
    context: &RequestContext,
    request: AuthorizationRequest,
    interaction: InteractionState,
) -> Result<Response, StoreError> {
    let identity = &context.app.identity;
    let page = match identity
        .authorization
        .next_step(&request, &interaction, signed_in(context).await?, context.now)
        .await?
    {
        NextStep::Grant(ready) => {
            log_dropped_scopes(context, &request, &ready);
            let grant = identity.authorization.grant_request(&request, *ready, context.now).await?;
            end_interaction(context, &interaction).await;
            return Ok(match grant {
                Some(response) => answer_response(response),
                None => redirect_error(&request.reply, ErrorCode::InvalidRequest, None),
            });
        }
        NextStep::Reject(refusal) => {
            context.app.logs.refusals.record(&request.client.client_id, &refusal, context.now);
            end_interaction(context, &interaction).await;
            return Ok(redirect_error(&request.reply, refusal.error, None));
        }
        NextStep::SignIn => "sign-in",
        NextStep::ChoosePatient { .. } => "patient",
        NextStep::Consent { .. } => "consent",
    };
    // The continuation is bound to the browser, which may have no cookie yet.
    let (browser, set_cookie) = cookie::browser(context);
    let address = context.address_text();
    let interaction_result =
        identity.authorization.store_large_request(interaction, &browser, &address, context.now).await;
    let (interaction, exceeded_limit) = interaction_result?;
    if let Some(limit) = exceeded_limit {
        log_large_request(&request.client.client_id, limit);
    }
    let continuation = identity.authorization.sign_continuation(&interaction, &browser);
    let mut to = page_address(context, page, &continuation);
    if page == "sign-in" {
        if let Some(name) = &request.identity_provider {
            let settings = context.app.settings();
            let configured = settings.providers.iter().find(|configured| configured.provider.name == *name);
            let Some(provider) = configured else {
                return Ok(redirect_error(&request.reply, ErrorCode::InvalidRequest, None));
            };
            let start = ProviderSignInStart {
                back: &continuation,
                browser: &browser,
                freshness: request.required_freshness(),
                link_to: None,
            };
            return match federation::redirect_to_provider(context, provider, start).await {
                Ok(response) => Ok(cookie::set(response, set_cookie)),
                Err(RedirectError::Discovery) => {
                    Ok(redirect_error(&request.reply, ErrorCode::ServerError, None))
                }
                Err(RedirectError::Store(error)) => Err(error),
            };
        }
        // A longer one is no user name, and would make the response head too large for proxies.
        if let Some(hint) = request.login_hint.as_ref().filter(|hint| hint.len() <= MAX_HINT_BYTES) {
            let pair =
                form_urlencoded::Serializer::new(String::new()).append_pair("login_hint", hint).finish();
            to = format!("{to}&{pair}");
        }
    }
    Ok(cookie::set(redirect_found(&to), set_cookie))
}
