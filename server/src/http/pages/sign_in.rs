//! {base}/sign-in: sign-in by user name and password, and the completion of every sign-in.
//!
//! The form contains the destination of the browser (see [`resume`]), to which the response redirects with 303; only
//! that GET redirects to the client. The handlers for passkeys and recovery codes are in [`super::passkey`] and
//! [`super::recovery`].

use http::{StatusCode, header};
use identity::audit::AuditEvent;
use identity::model::user::User;
use identity::params::Params;
use identity::sign_in::linked_account::LinkError;
use identity::sign_in::password;
use identity::sign_in::session::{SessionOrigin, SignInProof};
use identity::sign_in::throttle::{AttemptResult, SignInAttempt};
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use store::StoreError;

use super::texts::{fill, phrase, t};
use super::{cookie, csrf, page_with_script, passkey, resume};
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};
use crate::node::app::App;
use crate::node::hashing::HashRequester;

/// The error that is shown after a failed attempt.
const WRONG: &str = "The user name or the password is wrong.";
/// Seconds after which the browser may retry if too many hashes are waiting.
const RETRY_AFTER_S: u64 = 5;

/// The values that the forms of a sign-in pass on.
pub struct SignInDestination {
    /// The destination of the browser, see [`resume`].
    pub back: String,
    /// The external account that is linked after the sign-in.
    pub link: Option<String>,
}

impl SignInDestination {
    /// Reads the values from a query or form.
    pub fn read(sent: &Params) -> Self {
        Self { back: resume::read_destination(sent), link: sent.get("link").map(str::to_owned) }
    }

    /// Returns the hidden fields.
    pub fn fields(&self) -> Markup {
        html! {
            input type="hidden" name="continue" value=(self.back);
            @if let Some(link) = &self.link { input type="hidden" name="link" value=(link); }
        }
    }

    /// Returns the path of a page with these values in its query.
    pub fn at(&self, path: &str) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("continue", &self.back);
        if let Some(link) = &self.link {
            query.append_pair("link", link);
        }
        format!("{path}?{}", query.finish())
    }
}

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
    let client = client.map(|request| request.client);
    let waiting = match &onward.link {
        Some(link) => app.identity.sign_in.pending_link(link, browser, context.now).await.ok().flatten(),
        None => None,
    };
    let settings = app.settings();
    let providers = settings.providers.iter().filter(|_| waiting.is_none());
    let (described, invalid) = (notice.map(|_| "notice"), notice.map(|_| "true"));
    page_with_script(
        t("Sign in"),
        &html! {
            @if let Some(notice) = notice { p #notice .error role="alert" { (t(notice)) } }
            @if let Some(client) = &client { p.quiet { (phrase("to continue to {}", &[html! { strong { (client.name) } }])) } }
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
                input #password name="password" type="password" autocomplete="current-password" maxlength="128"
                    required autofocus[!username.is_empty()] aria-describedby=[described] aria-invalid=[invalid];
                label.check hidden data-shows="password" {
                    input type="checkbox" autocomplete="off";
                    (t("Show password"))
                }
                button type="submit" { (t("Sign in")) }
            }
            @if app.identity.sign_in.supports_passkeys() { (passkey::sign_in_form(browser, onward)) }
            details {
                summary { (t("No password at hand?")) }
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

/// Counts an attempt for this user name from this browser. Returns the user and the attempt, or the time to wait.
///
/// # Errors
/// Returns [`StoreError`] if the attempt cannot be counted.
pub async fn begin_attempt(
    context: &RequestContext,
    username: &str,
) -> Result<(Option<User>, Result<SignInAttempt, SignedDuration>), StoreError> {
    let (address, device) = (super::address(context), cookie::device(context));
    count_attempt(&context.app, username, &address, device, context.now).await
}

async fn count_attempt(
    app: &App,
    username: &str,
    address: &str,
    device: Option<&str>,
    now: Timestamp,
) -> Result<(Option<User>, Result<SignInAttempt, SignedDuration>), StoreError> {
    let user = app.identity.users.active_user_by_name(username, now).await?;
    let limits = app.settings().throttle;
    let counted = app
        .identity
        .throttle
        .begin_sign_in_attempt(username, user.as_ref(), address, device, &limits, now)
        .await?;
    Ok((user, counted))
}

/// The result of checking a password.
pub enum PasswordResult {
    /// The password is correct.
    Right,
    /// The password is wrong, or the user is unknown.
    Wrong,
    /// Not checked, because there were too many attempts.
    Locked(SignedDuration),
    /// Not checked, because too many requests are waiting.
    Busy,
}

/// Counts an attempt and checks the password of a user. Returns the user, too.
///
/// The attempt is settled even if the client disconnects; otherwise it would stay open until it expires.
///
/// # Errors
/// Returns [`StoreError`] if the user cannot be read or the attempt not counted.
pub async fn check_password(
    context: &RequestContext,
    username: &str,
    typed: &str,
) -> Result<(Option<User>, PasswordResult), StoreError> {
    let (app, now) = (context.app.clone(), context.now);
    let (username, typed, address) = (username.to_owned(), typed.to_owned(), super::address(context));
    let device = cookie::device(context).map(str::to_owned);
    let task = async move {
        let (user, counted) = count_attempt(&app, &username, &address, device.as_deref(), now).await?;
        let attempt = match counted {
            Ok(attempt) => attempt,
            Err(wait) => return Ok((user, PasswordResult::Locked(wait))),
        };
        let requester =
            if attempt.is_from_known_device() { HashRequester::Known } else { HashRequester::Stranger };
        let phc = user.as_ref().and_then(|user| user.password.clone());
        let right = app
            .hashing
            .run_in_turn(requester, move || password::verify_password(&typed, phc.as_deref()))
            .await;
        let (outcome, result) = match right {
            Some(true) => (AttemptResult::Success, PasswordResult::Right),
            Some(false) => (AttemptResult::Failure, PasswordResult::Wrong),
            None => (AttemptResult::NotEvaluated, PasswordResult::Busy),
        };
        app.identity.throttle.settle_attempt(attempt, outcome, app.clock.now()).await?;
        Ok((user, result))
    };
    tokio::spawn(task).await.expect("checking a password does not panic")
}

/// Returns the text for a user with too many attempts, and a function that adds `Retry-After`.
pub fn lockout_response(wait: SignedDuration) -> (String, impl FnOnce(Response) -> Response) {
    let seconds = wait.as_secs() + 1;
    let text = match seconds {
        ..60 => fill("Too many attempts. Try again in {} s.", &[&seconds]),
        _ => fill("Too many attempts. Try again in {} min.", &[&((seconds + 59) / 60)]),
    };
    (text, move |response| reply::with(response, header::RETRY_AFTER, &seconds.to_string()))
}

/// Processes the form.
pub async fn submit_form(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let sent = csrf::read_form(context, body).await?;
    let (app, now) = (&context.app, context.now);
    let username = sent.get("username").unwrap_or_default();
    let typed = sent.get("password").unwrap_or_default().to_owned();
    let onward = SignInDestination::read(&sent);
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
        return Ok(passkey::ask_after_password(context, &user, &onward).await?);
    }
    Ok(complete_sign_in(context, &user, &SignInProof::password(), &onward).await?)
}

/// Hashes the password again if the parameters of the hash are outdated. A failure is ignored; the next sign-in tries
/// again.
async fn renew_hash(context: &RequestContext, user: User, password: String) -> User {
    let (app, before) = (&context.app, user.password.clone());
    if !before.as_deref().is_some_and(password::needs_rehash) {
        return user;
    }
    let random = app.clock.random.clone();
    let hash = move || password::hash_password(&password, &*random);
    let Some(phc) = app.hashing.run_in_turn(HashRequester::Known, hash).await else {
        return user;
    };
    let change = |user: &mut User| {
        if user.password == before {
            user.password = Some(phc.clone());
        }
    };
    app.identity.users.change_user(&user.username, context.now, change).await.unwrap_or(user)
}

/// Completes a sign-in: creates the session, links a pending external account, sets the cookies and redirects.
///
/// # Errors
/// Returns [`StoreError`] if the session or the link cannot be stored.
pub async fn complete_sign_in(
    context: &RequestContext,
    user: &User,
    proof: &SignInProof,
    onward: &SignInDestination,
) -> Result<Response, StoreError> {
    let (app, identity) = (&context.app, &context.app.identity);
    // The request time may be old, because the hash may have waited for its turn.
    let now = app.clock.now();
    let agent = context.header(header::USER_AGENT).unwrap_or_default().to_owned();
    let place = SessionOrigin { address: super::address(context), agent };
    let value = identity.sessions.begin_session(user, proof, place, cookie::session(context), now).await?;
    if let (Some(link), Some(browser)) = (&onward.link, cookie::known_browser(context)) {
        match identity.sign_in.link_pending_account(link, browser, user, now).await {
            Ok(()) => {}
            Err(LinkError::Store(error)) => return Err(error),
            Err(error) => tracing::warn!(%error, "an external account was not linked"),
        }
    }
    let status = if context.method == http::Method::GET { StatusCode::FOUND } else { StatusCode::SEE_OTHER };
    let response = reply::no_store(reply::redirect(status, &resume::destination_url(app, &onward.back)));
    let response = cookie::set(response, Some(cookie::set_session(app, &value)));
    let device = identity.throttle.device_cookie(user, cookie::device(context));
    Ok(cookie::set(response, Some(cookie::set_device(app, &device))))
}
