//! The section about the password, and its change.

use http::{StatusCode, header};
use identity::directory::user_directory::{ChangeUserError, OtherMethods};
use identity::params::Params;
use identity::sign_in::session::{SessionOrigin, SignInProof};

use super::page::{AccountNotice, render_account, show_error};
use super::visit::{AccountVisit, read_form, redirect_done};
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::pages::cookie;
use crate::http::pages::sign_in::attempt::PasswordResult;
use crate::http::pages::sign_in::attempt::lockout_response;
use crate::http::pages::sign_in::attempt::{check_password, hash_new_password};
use crate::http::pages::texts::as_sentence;
use crate::http::pages::texts::t;
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// POST {base}/account/password
pub async fn change_password(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let (visit, form) = read_form(context, body).await?;
    visit.check_own_methods()?;
    // If the password alone does not suffice for a sign-in, it does not suffice here either.
    let is_required = context.app.identity.sign_in.requires_passkey(&visit.user.sub, context.now).await?;
    if visit.user.password.is_none() || is_required {
        super::visit::check_fresh(context, &visit)?;
    }
    if visit.user.password.is_none() {
        return set_password(context, &visit, &form).await;
    }
    // The old password could be guessed here as at sign-in, so the attempt is counted in the same way.
    let current = form.get("current").unwrap_or_default();
    let (_, result) = check_password(context, &visit.user.username, current).await?;
    match result {
        PasswordResult::Right => {}
        PasswordResult::Wrong => {
            let notice = AccountNotice::Wrong(t("The current password is wrong."), Some("current"));
            return render_account(context, &visit, StatusCode::UNAUTHORIZED, Some(notice)).await;
        }
        PasswordResult::Locked(wait) => {
            let (text, with_header) = lockout_response(wait);
            return Ok(with_header(show_error(context, &visit, StatusCode::TOO_MANY_REQUESTS, &text).await?));
        }
        PasswordResult::Busy => return busy_page(context, &visit).await,
    }
    set_password(context, &visit, &form).await
}

async fn busy_page(context: &RequestContext, visit: &AccountVisit) -> Result<Response, Problem> {
    let text = t("Too many people are signing in at this moment. Please try again.");
    let response = show_error(context, visit, StatusCode::SERVICE_UNAVAILABLE, text).await?;
    Ok(reply::with(response, header::RETRY_AFTER, "5"))
}

/// Sets the new password, ends all sessions and tokens, and begins a new session in this browser. On request,
/// the other sign-in methods are removed.
async fn set_password(
    context: &RequestContext,
    visit: &AccountVisit,
    form: &Params,
) -> Result<Response, Problem> {
    let (app, username) = (&context.app, &visit.user.username);
    let plain = form.get("new").unwrap_or_default();
    let phc = match hash_new_password(context, username, plain).await {
        Some(Ok(phc)) => phc,
        Some(Err(error)) => {
            let text = as_sentence(&error.to_string());
            return render_account(
                context,
                visit,
                StatusCode::BAD_REQUEST,
                Some(AccountNotice::Wrong(&text, Some("new"))),
            )
            .await;
        }
        None => return busy_page(context, visit).await,
    };
    let others = match form.get("remove") {
        Some("methods") => OtherMethods::RemoveAdded,
        _ => OtherMethods::Keep,
    };
    let now = app.clock.now();
    let sub = &visit.user.sub;
    let changed_elsewhere = t("The password was changed elsewhere.");
    // The revision ensures that the checked password is replaced, and not one set meanwhile.
    let revision = match app.identity.users.versioned_user(sub, now).await? {
        Some(entry) if entry.user.password == visit.user.password => entry.revision,
        _ => return show_error(context, visit, StatusCode::CONFLICT, changed_elsewhere).await,
    };
    let user = match app.identity.users.reset_password(sub, Some(revision), &phc, others, now).await {
        Ok(entry) => entry.user,
        Err(ChangeUserError::Unknown | ChangeUserError::Stale) => {
            return show_error(context, visit, StatusCode::CONFLICT, changed_elsewhere).await;
        }
        Err(error) => return Err(error.into()),
    };
    let agent = context.header(header::USER_AGENT).unwrap_or_default().to_owned();
    let origin = SessionOrigin { address: context.address_text(), agent };
    let proof = SignInProof::from_session(&visit.session);
    let replaced = context.cookies.session.as_deref();
    let session = app.identity.sessions.begin_session(&user, &proof, origin, replaced, now).await?;
    let response = redirect_done(context, "password");
    let response = cookie::set(response, Some(cookie::set_session(app, &session)));
    let device = app.identity.throttle.device_cookie(&user, None);
    Ok(cookie::set(response, Some(cookie::set_device(app, &device))))
}
