//! The section about the password, and its change.

use http::{StatusCode, header};
use identity::directory::user_directory::{ChangeUserError, OtherMethods};
use identity::params::Params;
use identity::sign_in::password::{self, MAX_PASSWORD_BYTES, PasswordError};
use identity::sign_in::session::{SessionOrigin, SignInProof};
use maud::{Markup, html};

use super::{AccountNotice, AccountVisit, read_form, redirect_done, render_account, show_error};
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::pages::sign_in::PasswordResult;
use crate::http::pages::texts::{fill, t};
use crate::http::pages::{address, cookie, csrf, passkey, sign_in};
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};
use crate::node::hashing::HashRequester;

/// Returns the section.
pub(super) fn section(visit: &AccountVisit, min_length: usize, wrong: Option<&str>) -> Markup {
    let has_one = visit.user.password.is_some();
    let described = |field: &str| (wrong == Some(field)).then_some("notice");
    let of_new = if wrong == Some("new") { "notice password-hint" } else { "password-hint" };
    html! {
        h2 { (t("Password")) }
        form method="post" action="/account/password" {
            (csrf::hidden_field(&visit.browser))
            // Password managers store the user name with the new password.
            input type="text" name="username" value=(visit.user.username) autocomplete="username" hidden;
            @if has_one {
                label for="current" { (t("Current password")) }
                input #current name="current" type="password" autocomplete="current-password" maxlength=(MAX_PASSWORD_BYTES) required
                    aria-describedby=[described("current")] aria-invalid=[described("current").map(|_| "true")];
            }
            label for="new" { (t("New password")) }
            input #new name="new" type="password" autocomplete="new-password" minlength=(min_length) maxlength=(MAX_PASSWORD_BYTES)
                required aria-describedby=(of_new) aria-invalid=[described("new").map(|_| "true")];
            p #password-hint .quiet { (fill("At least {} characters; several unrelated words are a good choice. All other sessions and apps are signed out by the change.", &[&min_length])) }
            label.check {
                input type="checkbox" name="remove" value="methods" autocomplete="off";
                (t("Also remove my passkeys, recovery codes and linked accounts. Choose this if someone else may have used your account."))
            }
            button.second type="submit" { @if has_one { (t("Change the password")) } @else { (t("Set a password")) } }
        }
    }
}

/// POST {base}/account/password
pub async fn change_password(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let (visit, sent) = read_form(context, body).await?;
    // If the password alone does not suffice for a sign-in, it does not suffice here either.
    let is_required = context.app.identity.sign_in.requires_passkey(&visit.user.sub, context.now).await?;
    if visit.user.password.is_none() || is_required {
        super::check_fresh(context, &visit)?;
    }
    if visit.user.password.is_none() {
        return set_password(context, &visit, &sent).await;
    }
    // The old password could be guessed here as at sign-in, so the attempt is counted in the same way.
    let current = sent.get("current").unwrap_or_default();
    let (_, result) = sign_in::check_password(context, &visit.user.username, current).await?;
    match result {
        PasswordResult::Right => {}
        PasswordResult::Wrong => {
            let notice = AccountNotice::Wrong(t("The current password is wrong."), Some("current"));
            return render_account(context, &visit, StatusCode::UNAUTHORIZED, Some(notice)).await;
        }
        PasswordResult::Locked(wait) => {
            let (text, with_header) = sign_in::lockout_response(wait);
            return Ok(with_header(show_error(context, &visit, StatusCode::TOO_MANY_REQUESTS, &text).await?));
        }
        PasswordResult::Busy => return busy_page(context, &visit).await,
    }
    set_password(context, &visit, &sent).await
}

async fn busy_page(context: &RequestContext, visit: &AccountVisit) -> Result<Response, Problem> {
    let text = t("Too many people are signing in at this moment. Please try again.");
    let response = show_error(context, visit, StatusCode::SERVICE_UNAVAILABLE, text).await?;
    Ok(reply::with(response, header::RETRY_AFTER, "5"))
}

/// Sets the new password, ends all sessions and tokens, and begins a new session in this browser. On request, the
/// other sign-in methods are removed.
async fn set_password(
    context: &RequestContext,
    visit: &AccountVisit,
    sent: &Params,
) -> Result<Response, Problem> {
    let (app, username) = (&context.app, &visit.user.username);
    let new = sent.get("new").unwrap_or_default();
    let (password, random) = (new.to_owned(), app.clock.random.clone());
    let (policy, service, name) = (app.settings().passwords, app.base_url.clone(), username.clone());
    let hash = move || {
        policy.check_password(&password, &name, &service)?;
        Ok(password::hash_password(&password, &*random))
    };
    let hashed: Option<Result<String, PasswordError>> =
        app.hashing.run_in_turn(HashRequester::Known, hash).await;
    let phc = match hashed {
        Some(Ok(phc)) => phc,
        Some(Err(error)) => {
            let text = passkey::as_sentence(&error.to_string());
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
    let others = match sent.get("remove") {
        Some("methods") => OtherMethods::Remove,
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
    let place = SessionOrigin { address: address(context), agent };
    let proof = SignInProof::from_session(&visit.session);
    let replaced = cookie::session(context);
    let session = app.identity.sessions.begin_session(&user, &proof, place, replaced, now).await?;
    let response = redirect_done(context, "password");
    let response = cookie::set(response, Some(cookie::set_session(app, &session)));
    let device = app.identity.throttle.device_cookie(&user, None);
    Ok(cookie::set(response, Some(cookie::set_device(app, &device))))
}
