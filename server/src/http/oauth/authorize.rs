//! GET {base}/oauth2/authorize (SPEC, authorize).
//!
//! Checks the request, then sends the browser on: to the sign-in page, to an external provider, or
//! with the answer to the client. Once the redirect URI is established every fault goes there.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use http::StatusCode;
use identity::authorize::{ErrorCode, Prompt, Refusal, Reply, Request};
use identity::params::Params;
use identity::session::Session;
use store::StoreError;

use super::federation;
use crate::http::extract::Call;
use crate::http::pages::cookie;
use crate::http::problem;
use crate::http::reply::{self, Response};

/// Answers an authorization request.
pub async fn get(call: Call) -> Response {
    let request = match call.app.identity.check_authorization_request(&call.query, call.now).await {
        Ok(request) => request,
        Err(Refusal::Show(error)) => return problem::show(&error),
        Err(Refusal::Redirect { reply, error }) => return refuse(&reply, error, None),
    };
    let to = request.reply.clone();
    match AssertUnwindSafe(proceed(&call, request)).catch_unwind().await {
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

/// Tells the client an error, by redirect.
pub fn refuse(to: &Reply, error: ErrorCode, description: Option<&str>) -> Response {
    found(&to.error(error, description))
}

fn found(to: &str) -> Response {
    reply::no_store(reply::redirect(StatusCode::FOUND, to))
}

async fn proceed(call: &Call, request: Request) -> Result<Response, StoreError> {
    let (app, now) = (&call.app, call.now);
    let signed_in = match cookie::session(call) {
        Some(value) => app.identity.session(value, now).await?,
        None => None,
    };
    let fits = |session: &Session| {
        let fresh = request.max_age.is_none_or(|max| now.as_second() - session.auth_time.as_second() <= max);
        let same = request.identity_provider.is_none() || session.provider == request.identity_provider;
        fresh && same && request.prompt != Prompt::Login
    };
    if let Some((session, user)) = signed_in.filter(|(session, _)| fits(session)) {
        return match app.identity.grantable(&request, &user) {
            Some(scopes) => Ok(found(&app.identity.grant(&request, scopes, &session, now).await?)),
            None => Ok(refuse(&request.reply, ErrorCode::AccessDenied, None)),
        };
    }
    if request.prompt == Prompt::None {
        return Ok(refuse(&request.reply, ErrorCode::LoginRequired, None));
    }
    // The way back: the same request, but what was asked of this sign-in is then done.
    let back = Params::parse(call.query.as_bytes()).without(&["prompt", "max_age"]);
    match &request.identity_provider {
        Some(name) => match app.providers.iter().find(|known| known.provider.name == *name) {
            Some(provider) => federation::begin(call, provider, &back).await,
            None => Ok(refuse(&request.reply, ErrorCode::InvalidRequest, None)),
        },
        None => {
            let mut query = form_urlencoded::Serializer::new(String::new());
            query.append_pair("continue", &back);
            if let Some(hint) = &request.login_hint {
                query.append_pair("login_hint", hint);
            }
            Ok(found(&format!("{}/sign-in?{}", app.base_url, query.finish())))
        }
    }
}
