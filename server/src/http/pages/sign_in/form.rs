//! The page with the form for user name and password, and its POST.
//!
//! The form contains the destination of the browser (see [`super::destination`]), to which the response
//! redirects with 303; only that GET redirects to the client.

use http::{StatusCode, header};
use identity::audit::AuditEvent;
use identity::model::user::User;
use identity::sign_in::password::{self, MAX_PASSWORD_BYTES};
use identity::sign_in::session::SignInProof;
use maud::{Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::attempt::{PasswordResult, check_password, lockout_response};
use super::completion::complete_sign_in;
use super::destination::SignInDestination;
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::pages::frame::page_with_script;
use crate::http::pages::page_request::language;
use crate::http::pages::texts::{fill, phrase, t};
use crate::http::pages::{cookie, csrf};
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};
use crate::node::hashing::HashRequester;

/// The error that is shown after a failed attempt.
const WRONG: &str = "The user name or the password is wrong.";
/// Seconds after which the browser may retry if too many hashes are waiting.
const RETRY_AFTER_S: u64 = 5;

async fn render_form(
    context: &RequestContext,
    browser: &str,
    onward: &SignInDestination,
    username: &str,
    notice: Option<&str>,
) -> Markup {
    let app = &context.app;
    let client = match app.identity.authorization.verify_continuation(&onward.back, browser, context.now) {
        Some(interaction) => {
            app.identity.authorization.check_interaction(&interaction, context.now).await.ok()
        }
        None => None,
    };
    let client = client.map(|request| {
        crate::http::pages::page_request::use_locales(request.ui_locales.as_deref());
        request.client
    });
    let waiting = match &onward.link {
        Some(link) => app.identity.sign_in.pending_link(link, browser, context.now).await.ok().flatten(),
        None => None,
    };
    // A person who is about to link an account signs in here, not at another provider.
    let settings = app.settings();
    let providers = settings.providers.iter().filter(|_| waiting.is_none());
    let (described, invalid) = (notice.map(|_| "notice"), notice.map(|_| "true"));
    page_with_script(
        t("Sign in"),
        &html! {
            @if let Some(notice) = notice { p #notice .error role="alert" { (t(notice)) } }
            @if let Some(client) = &client { p.quiet { (phrase("to continue to {}", &[html! { strong { (client.name) } }])) } }
            @if let Some(text) = settings.brand.sign_in_text.in_language(language().tag()) { p { (text) } }
            @if let Some((provider, account)) = &waiting {
                p {
                    (phrase(
                        "Your {} account {} is not linked to an account here yet. To link it, sign in once with your account here.",
                        &[html! { strong { (provider) } }, html! { strong { (account) } }],
                    ))
                }
                p { a href=(SignInDestination { back: onward.back.clone(), link: None }.at("/sign-in")) { (t("Do not link it")) } }
            }
            form method="post" action="/sign-in" {
                (csrf::hidden_field(browser))
                (onward.fields())
                label for="username" { (t("User name")) }
                input #username name="username" autocomplete="username webauthn" autocapitalize="none" spellcheck="false"
                    maxlength="100" required value=(username) autofocus[username.is_empty()]
                    aria-describedby=[described] aria-invalid=[invalid];
                label for="password" { (t("Password")) }
                input #password name="password" type="password" autocomplete="current-password" maxlength=(MAX_PASSWORD_BYTES)
                    required autofocus[!username.is_empty()] aria-describedby=[described] aria-invalid=[invalid];
                label.check hidden data-shows="password" {
                    input type="checkbox" autocomplete="off";
                    (t("Show password"))
                }
                button type="submit" { (t("Sign in")) }
            }
            @if app.identity.sign_in.supports_passkeys() { (super::passkey_form::sign_in_form(browser, onward)) }
            details {
                summary { (t("Forgot password?")) }
                p { (t("If you have a passkey, choose it instead of the password. Otherwise the administrator of this server can set a new password for you.")) }
                p { a href=(onward.at("/recovery")) { (t("Use a recovery code")) } }
            }
            @for provider in providers {
                @let name = &provider.provider.name;
                @let path = format!("/sign-in/with/{}", utf8_percent_encode(name, NON_ALPHANUMERIC));
                p { a.button.second href=(onward.at(&path)) { (fill("Sign in with {}", &[name])) } }
            }
        },
    )
}

/// Shows the form.
pub async fn show_form(context: &RequestContext) -> Result<Response, Problem> {
    let params = context.params();
    let (browser, set_cookie) = cookie::browser(context);
    let onward = SignInDestination::read(&params);
    let hint = params.get("login_hint").unwrap_or_default();
    let response = reply::html(StatusCode::OK, render_form(context, &browser, &onward, hint, None).await);
    Ok(reply::no_store(cookie::set(response, set_cookie)))
}

/// Shows the form again with an error.
pub async fn show_error(
    context: &RequestContext,
    onward: &SignInDestination,
    username: &str,
    status: StatusCode,
    notice: &str,
) -> Response {
    let (browser, set_cookie) = cookie::browser(context);
    let response = reply::html(status, render_form(context, &browser, onward, username, Some(notice)).await);
    reply::no_store(cookie::set(response, set_cookie))
}

/// Processes the form.
pub async fn submit_form(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let form = csrf::read_form(context, body).await?;
    let (app, now) = (&context.app, context.now);
    let username = form.get("username").unwrap_or_default();
    let typed = form.get("password").unwrap_or_default().to_owned();
    let onward = SignInDestination::read(&form);
    let (user, result) = check_password(context, username, &typed).await?;
    let sub = user.as_ref().map(|user| user.sub.clone());
    match result {
        PasswordResult::Right => {}
        PasswordResult::Wrong => {
            app.identity
                .audit
                .record(AuditEvent::SignInFailed { sub, reason: "wrong user name or password" });
            return Ok(show_error(context, &onward, username, StatusCode::UNAUTHORIZED, WRONG).await);
        }
        PasswordResult::Locked(wait) => {
            app.identity.audit.record(AuditEvent::SignInFailed { sub, reason: "too many attempts" });
            let (text, with_header) = lockout_response(wait);
            return Ok(with_header(
                show_error(context, &onward, username, StatusCode::TOO_MANY_REQUESTS, &text).await,
            ));
        }
        PasswordResult::Busy => {
            let text = "Too many people are signing in at this moment. Please try again.";
            let response =
                show_error(context, &onward, username, StatusCode::SERVICE_UNAVAILABLE, text).await;
            return Ok(reply::with(response, header::RETRY_AFTER, &RETRY_AFTER_S.to_string()));
        }
    }
    let Some(user) = user else {
        return Ok(show_error(context, &onward, username, StatusCode::UNAUTHORIZED, WRONG).await);
    };
    let user = renew_hash(context, user, typed).await;
    if app.identity.sign_in.requires_passkey(&user.sub, now).await? {
        return Ok(super::passkey_form::ask_after_password(context, &user, &onward).await?);
    }
    Ok(complete_sign_in(context, &user, &SignInProof::password(), &onward).await?)
}

/// Hashes the password again if the parameters of the hash are outdated. A failure is ignored; the next
/// sign-in tries again.
async fn renew_hash(context: &RequestContext, user: User, password: String) -> User {
    let (app, before) = (&context.app, user.password.clone());
    if !before.as_deref().is_some_and(password::needs_rehash) {
        return user;
    }
    let random = app.clock.random.clone();
    let hash = move || password::hash_password(&password, &*random);
    let Some(phc) = app.capacity.hashing.run_in_turn(HashRequester::Known, hash).await else {
        return user;
    };
    let change = |user: &mut User| {
        if user.password == before {
            user.password = Some(phc.clone());
        }
    };
    app.identity.users.change_user(&user.username, context.now, change).await.unwrap_or(user)
}
