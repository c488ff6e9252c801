//! {base}/sign-in: user name and password, and how every sign-in ends.
//!
//! The form carries where the browser goes on to, see [`resume`], and the answer goes there with 303; only
//! that GET sends the browser to the client. A passkey or a recovery code signs in at [`super::passkey`] and
//! [`super::recovery`].

use http::{StatusCode, header};
use identity::audit::Event;
use identity::params::Params;
use identity::password;
use identity::provider::LinkError;
use identity::session::{Place, Proof};
use identity::throttle::{Attempt, Outcome};
use identity::user::User;
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use store::StoreError;

use super::{cookie, csrf, page_with_script, passkey, resume};
use crate::app::App;
use crate::hashing::Requester;
use crate::http::extract::Call;
use crate::http::problem::{self, Dialect};
use crate::http::reply::{self, Response};

/// What the page says above the form after an attempt.
const WRONG: &str = "The user name or the password is wrong.";
/// After how many seconds somebody may come again who found too many others waiting.
const BUSY_S: u64 = 5;

/// What the forms of a sign-in carry on.
pub struct Onward {
    /// Where the browser goes on to, see [`resume`].
    pub back: String,
    /// The external account that waits to be linked.
    pub link: Option<String>,
}

impl Onward {
    /// From a query or form.
    pub fn read(sent: &Params) -> Self {
        Self { back: resume::read(sent), link: sent.get("link").map(str::to_owned) }
    }

    /// The hidden fields.
    pub fn fields(&self) -> Markup {
        html! {
            input type="hidden" name="continue" value=(self.back);
            @if let Some(link) = &self.link { input type="hidden" name="link" value=(link); }
        }
    }

    /// A page of ours that takes these fields in its query.
    pub fn at(&self, path: &str) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("continue", &self.back);
        if let Some(link) = &self.link {
            query.append_pair("link", link);
        }
        format!("{path}?{}", query.finish())
    }
}

async fn form(call: &Call, browser: &str, onward: &Onward, username: &str, said: Option<&str>) -> Markup {
    let app = &call.app;
    let client = match app.identity.open_seal(&onward.back, browser, call.now) {
        Some(interaction) => app.identity.check_interaction(&interaction, call.now).await.ok(),
        None => None,
    };
    let client = client.map(|request| request.client);
    let waiting = match &onward.link {
        Some(link) => app.identity.kept_for_linking(link, browser, call.now).await.ok().flatten(),
        None => None,
    };
    let settings = app.settings();
    let providers = settings.providers.iter().filter(|_| waiting.is_none());
    let (described, invalid) = (said.map(|_| "said"), said.map(|_| "true"));
    page_with_script(
        "Sign in",
        &html! {
            @if let Some(said) = said { p #said .error role="alert" { (said) } }
            @if let Some(client) = &client { p.quiet { "to continue to " strong { (client.name) } } }
            @if let Some((provider, account)) = &waiting {
                p { "Your " strong { (provider) } " account " strong { (account) } " is not linked to anybody here yet. "
                    "Sign in once with the account that you have here, and it will be." }
                p { a href=(Onward { back: onward.back.clone(), link: None }.at("/sign-in")) { "Do not link it" } }
            }
            form method="post" action="/sign-in" {
                (csrf::field(browser))
                (onward.fields())
                label for="username" { "User name" }
                input #username name="username" autocomplete="username webauthn" autocapitalize="none" spellcheck="false"
                    maxlength="100" required value=(username) autofocus[username.is_empty()]
                    aria-describedby=[described] aria-invalid=[invalid];
                label for="password" { "Password" }
                input #password name="password" type="password" autocomplete="current-password" maxlength="128"
                    required autofocus[!username.is_empty()] aria-describedby=[described] aria-invalid=[invalid];
                button type="submit" { "Sign in" }
            }
            @if app.identity.has_passkeys() { (passkey::sign_in_form(browser, onward)) }
            p { a href=(onward.at("/recovery")) { "Use a recovery code" } }
            @for provider in providers {
                @let name = &provider.provider.name;
                @let path = format!("/sign-in/with/{}", utf8_percent_encode(name, NON_ALPHANUMERIC));
                p { a.button.second href=(onward.at(&path)) { "Sign in with " (name) } }
            }
        },
    )
}

/// Shows the form.
pub async fn get(call: Call) -> Response {
    let params = call.params();
    let (browser, set_cookie) = cookie::browser(&call);
    let onward = Onward::read(&params);
    let hint = params.get("login_hint").unwrap_or_default();
    let response = reply::html(StatusCode::OK, form(&call, &browser, &onward, hint, None).await);
    reply::no_store(cookie::set(response, set_cookie))
}

/// The form once more, with a word about the attempt.
pub async fn again(call: &Call, onward: &Onward, username: &str, status: StatusCode, said: &str) -> Response {
    let (browser, set_cookie) = cookie::browser(call);
    let response = reply::html(status, form(call, &browser, onward, username, Some(said)).await);
    reply::no_store(cookie::set(response, set_cookie))
}

/// An attempt of this name from this browser: noted, or how long to wait; and whose name it is.
///
/// # Errors
/// The store's.
pub async fn attempt(
    call: &Call,
    username: &str,
) -> Result<(Option<User>, Result<Attempt, SignedDuration>), StoreError> {
    let (address, device) = (super::address(call), cookie::device(call));
    count_attempt(&call.app, username, &address, device, call.now).await
}

async fn count_attempt(
    app: &App,
    username: &str,
    address: &str,
    device: Option<&str>,
    now: Timestamp,
) -> Result<(Option<User>, Result<Attempt, SignedDuration>), StoreError> {
    let user = app.identity.user_for_sign_in(username, now).await?;
    let limits = app.settings().throttle;
    let counted =
        app.identity.attempt_sign_in(username, user.as_ref(), address, device, &limits, now).await?;
    Ok((user, counted))
}

/// What came of a password.
pub enum PasswordResult {
    /// It is the user's.
    Right,
    /// It is not, or the user is unknown.
    Wrong,
    /// It was not checked: too many attempts.
    Locked(SignedDuration),
    /// It was not checked: too many others wait.
    Busy,
}

/// Checks the password that was typed for this name, as a counted attempt; and whose name it is.
///
/// The attempt is settled also if the client leaves meanwhile: otherwise it would keep its place until it expires.
///
/// # Errors
/// The store's.
pub async fn check_password(
    call: &Call,
    username: &str,
    typed: &str,
) -> Result<(Option<User>, PasswordResult), StoreError> {
    let (app, now) = (call.app.clone(), call.now);
    let (username, typed, address) = (username.to_owned(), typed.to_owned(), super::address(call));
    let device = cookie::device(call).map(str::to_owned);
    let task = async move {
        let (user, counted) = count_attempt(&app, &username, &address, device.as_deref(), now).await?;
        let attempt = match counted {
            Ok(attempt) => attempt,
            Err(wait) => return Ok((user, PasswordResult::Locked(wait))),
        };
        let requester = if attempt.is_from_known_device() { Requester::Known } else { Requester::Stranger };
        let phc = user.as_ref().and_then(|user| user.password.clone());
        let right = app.hashing.in_turn(requester, move || password::verify(&typed, phc.as_deref())).await;
        let (outcome, result) = match right {
            Some(true) => (Outcome::Right, PasswordResult::Right),
            Some(false) => (Outcome::Wrong, PasswordResult::Wrong),
            None => (Outcome::Unseen, PasswordResult::Busy),
        };
        app.identity.settle(attempt, outcome, app.clock.now()).await?;
        Ok((user, result))
    };
    tokio::spawn(task).await.expect("checking a password does not panic")
}

/// What is said to somebody who tries too often, and the header that says it to programs.
pub fn too_often(wait: SignedDuration) -> (String, impl FnOnce(Response) -> Response) {
    let seconds = wait.as_secs() + 1;
    let text = match seconds {
        ..60 => format!("Too many attempts. Try again in {seconds} s."),
        _ => format!("Too many attempts. Try again in {} min.", (seconds + 59) / 60),
    };
    (text, move |response| reply::with(response, header::RETRY_AFTER, &seconds.to_string()))
}

/// Checks what was typed.
pub async fn post(mut call: Call) -> Response {
    let sent = match csrf::form(&mut call).await {
        Ok(sent) => sent,
        Err(response) => return response,
    };
    check(&call, &sent).await.unwrap_or_else(|error| problem::store(Dialect::Page, &error))
}

async fn check(call: &Call, sent: &Params) -> Result<Response, StoreError> {
    let (app, now) = (&call.app, call.now);
    let username = sent.get("username").unwrap_or_default();
    let typed = sent.get("password").unwrap_or_default().to_owned();
    let onward = Onward::read(sent);
    let (user, result) = check_password(call, username, &typed).await?;
    let sub = user.as_ref().map(|user| user.sub.clone());
    match result {
        PasswordResult::Right => {}
        PasswordResult::Wrong => {
            app.identity.record(Event::SignInFailed { sub, reason: "wrong user name or password" });
            return Ok(again(call, &onward, username, StatusCode::UNAUTHORIZED, WRONG).await);
        }
        PasswordResult::Locked(wait) => {
            app.identity.record(Event::SignInFailed { sub, reason: "too many attempts" });
            let (text, with_header) = too_often(wait);
            return Ok(with_header(
                again(call, &onward, username, StatusCode::TOO_MANY_REQUESTS, &text).await,
            ));
        }
        PasswordResult::Busy => {
            let text = "Too many people are signing in at this moment. Please try again.";
            let response = again(call, &onward, username, StatusCode::SERVICE_UNAVAILABLE, text).await;
            return Ok(reply::with(response, header::RETRY_AFTER, &BUSY_S.to_string()));
        }
    }
    let Some(user) = user else {
        return Ok(again(call, &onward, username, StatusCode::UNAUTHORIZED, WRONG).await);
    };
    let user = renew_hash(call, user, typed).await;
    if app.identity.needs_passkey(&user.sub, now).await? {
        return Ok(passkey::after_password(call, &user, &onward).await);
    }
    complete(call, &user, &Proof::password(), &onward).await
}

/// Hashes the password anew where today's parameters are others. What fails is tried again next time.
async fn renew_hash(call: &Call, user: User, password: String) -> User {
    let (app, before) = (&call.app, user.password.clone());
    if !before.as_deref().is_some_and(password::is_outdated) {
        return user;
    }
    let random = app.clock.random.clone();
    let hash = move || password::hash(&password, &*random);
    let Some(phc) = app.hashing.in_turn(Requester::Known, hash).await else {
        return user;
    };
    let change = |user: &mut User| {
        if user.password == before {
            user.password = Some(phc.clone());
        }
    };
    app.identity.change_user(&user.username, call.now, change).await.unwrap_or(user)
}

/// How every sign-in ends: a new session, what waits to be linked, the cookies, and on.
///
/// # Errors
/// The store's.
pub async fn complete(
    call: &Call,
    user: &User,
    proof: &Proof,
    onward: &Onward,
) -> Result<Response, StoreError> {
    let (app, identity) = (&call.app, &call.app.identity);
    // The clock is asked again: hashing may have waited for its turn.
    let now = app.clock.now();
    let agent = call.header(header::USER_AGENT).unwrap_or_default().to_owned();
    let place = Place { address: super::address(call), agent };
    let value = identity.begin_session(user, proof, place, cookie::session(call), now).await?;
    if let (Some(link), Some(browser)) = (&onward.link, cookie::known_browser(call)) {
        match identity.link_kept(link, browser, user, now).await {
            Ok(()) => {}
            Err(LinkError::Store(error)) => return Err(error),
            Err(error) => tracing::warn!(%error, "an external account was not linked"),
        }
    }
    let status = if call.method == http::Method::GET { StatusCode::FOUND } else { StatusCode::SEE_OTHER };
    let response = reply::no_store(reply::redirect(status, &resume::address(app, &onward.back)));
    let response = cookie::set(response, Some(cookie::set_session(app, &value)));
    let device = identity.device_cookie(user, cookie::device(call));
    Ok(cookie::set(response, Some(cookie::set_device(app, &device))))
}
