//! The user's password.

use http::{StatusCode, header};
use identity::directory::{ChangeError, OtherMethods};
use identity::params::Params;
use identity::password::{self, LONGEST, PasswordError};
use identity::session::{Place, Proof};
use maud::{Markup, html};

use super::{Said, Visit, begin, done, render, wrong};
use crate::hashing::Requester;
use crate::http::extract::Call;
use crate::http::pages::sign_in::PasswordResult;
use crate::http::pages::{address, cookie, csrf, passkey, sign_in};
use crate::http::problem::{self, Dialect};
use crate::http::reply::{self, Response};

/// The section.
pub(super) fn section(visit: &Visit, min_length: usize, wrong: Option<&str>) -> Markup {
    let has_one = visit.user.password.is_some();
    let described = |field: &str| (wrong == Some(field)).then_some("said");
    let of_new = if wrong == Some("new") { "said password-hint" } else { "password-hint" };
    html! {
        h2 { "Password" }
        form method="post" action="/account/password" {
            (csrf::field(&visit.browser))
            // For password managers, which keep it with the new password.
            input type="text" name="username" value=(visit.user.username) autocomplete="username" hidden;
            @if has_one {
                label for="current" { "Password now" }
                input #current name="current" type="password" autocomplete="current-password" maxlength=(LONGEST) required
                    aria-describedby=[described("current")] aria-invalid=[described("current").map(|_| "true")];
            }
            label for="new" { "New password" }
            input #new name="new" type="password" autocomplete="new-password" minlength=(min_length) maxlength=(LONGEST)
                required aria-describedby=(of_new) aria-invalid=[described("new").map(|_| "true")];
            p #password-hint .quiet { "At least " (min_length) " characters; a few words in a row are good. "
                "All other sessions and apps are signed out by the change." }
            label.check {
                input type="checkbox" name="remove" value="methods" autocomplete="off";
                "Also remove my passkeys, recovery codes and linked accounts. Do this if somebody else may have used my account."
            }
            button.second type="submit" { @if has_one { "Change the password" } @else { "Set a password" } }
        }
    }
}

/// POST {base}/account/password
pub async fn change(mut call: Call) -> Response {
    let (visit, sent) = match begin(&mut call).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    // Where the password alone does not sign in, it does not do here either.
    let alone = match call.app.identity.needs_passkey(&visit.user.sub, call.now).await {
        Ok(asked) => visit.user.password.is_some() && !asked,
        Err(error) => return problem::store(Dialect::Page, &error),
    };
    if !alone && let Err(response) = super::is_fresh(&call, &visit) {
        return response;
    }
    if visit.user.password.is_none() {
        return set(&call, &visit, &sent).await;
    }
    // The old password can be guessed here as well as at sign-in, so it is counted as there.
    let current = sent.get("current").unwrap_or_default();
    match sign_in::check_password(&call, &visit.user.username, current).await {
        Ok((_, PasswordResult::Right)) => {}
        Ok((_, PasswordResult::Wrong)) => {
            let said = Said::Wrong("The password now is another one.", Some("current"));
            return render(&call, &visit, StatusCode::UNAUTHORIZED, Some(said)).await;
        }
        Ok((_, PasswordResult::Locked(wait))) => {
            let (text, with_header) = sign_in::too_often(wait);
            return with_header(wrong(&call, &visit, StatusCode::TOO_MANY_REQUESTS, &text).await);
        }
        Ok((_, PasswordResult::Busy)) => return busy(&call, &visit).await,
        Err(error) => return problem::store(Dialect::Page, &error),
    }
    set(&call, &visit, &sent).await
}

async fn busy(call: &Call, visit: &Visit) -> Response {
    let text = "Too many people are signing in at this moment. Please try again.";
    let response = wrong(call, visit, StatusCode::SERVICE_UNAVAILABLE, text).await;
    reply::with(response, header::RETRY_AFTER, "5")
}

/// Sets the new password, ends all sessions and tokens, and begins a new session here. If the user asks for it, the other
/// ways to sign in are removed.
async fn set(call: &Call, visit: &Visit, sent: &Params) -> Response {
    let (app, username) = (&call.app, &visit.user.username);
    let new = sent.get("new").unwrap_or_default();
    let (password, random) = (new.to_owned(), app.clock.random.clone());
    let (policy, service, name) = (app.settings().passwords, app.base_url.clone(), username.clone());
    let hash = move || {
        policy.check(&password, &name, &service)?;
        Ok(password::hash(&password, &*random))
    };
    let hashed: Option<Result<String, PasswordError>> = app.hashing.in_turn(Requester::Known, hash).await;
    let phc = match hashed {
        Some(Ok(phc)) => phc,
        Some(Err(error)) => {
            let text = passkey::sentence(&error.to_string());
            return render(call, visit, StatusCode::BAD_REQUEST, Some(Said::Wrong(&text, Some("new")))).await;
        }
        None => return busy(call, visit).await,
    };
    let others = match sent.get("remove") {
        Some("methods") => OtherMethods::Remove,
        _ => OtherMethods::Keep,
    };
    let now = app.clock.now();
    let sub = &visit.user.sub;
    let changed_elsewhere = "The password was changed elsewhere.";
    // Only over the password that was checked: another change may have come between.
    let revision = match app.identity.user_entry(sub, now).await {
        Ok(Some(entry)) if entry.user.password == visit.user.password => entry.revision,
        Ok(_) => return wrong(call, visit, StatusCode::CONFLICT, changed_elsewhere).await,
        Err(error) => return problem::store(Dialect::Page, &error),
    };
    let user = match app.identity.reset_password(sub, Some(revision), &phc, others, now).await {
        Ok(entry) => entry.user,
        Err(ChangeError::Unknown | ChangeError::Stale) => {
            return wrong(call, visit, StatusCode::CONFLICT, changed_elsewhere).await;
        }
        Err(ChangeError::User(error)) => return problem::user(&error),
        Err(ChangeError::Store(error)) => return problem::store(Dialect::Page, &error),
    };
    let agent = call.header(header::USER_AGENT).unwrap_or_default().to_owned();
    let place = Place { address: address(call), agent };
    let begun = app
        .identity
        .begin_session(&user, &Proof::of(&visit.session), place, cookie::session(call), now)
        .await;
    match begun {
        Ok(value) => {
            let response = cookie::set(done(call, "password"), Some(cookie::set_session(app, &value)));
            let device = app.identity.device_cookie(&user, None);
            cookie::set(response, Some(cookie::set_device(app, &device)))
        }
        Err(error) => problem::store(Dialect::Page, &error),
    }
}
