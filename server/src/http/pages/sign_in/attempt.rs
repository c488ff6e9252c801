//! Attempts to guess a password: each is counted before it is checked.

use http::header;
use identity::model::user::User;
use identity::sign_in::password::{self, PasswordError};
use identity::sign_in::throttle::{AttemptResult, SignInAttempt};
use jiff::{SignedDuration, Timestamp};
use store::StoreError;

use crate::http::extract::RequestContext;
use crate::http::pages::texts::fill;
use crate::http::reply;
use crate::http::reply::Response;
use crate::node::app::App;
use crate::node::hashing::{HashRequester, PasswordToHash};

/// Counts an attempt for this user name from this browser. Returns the user and the attempt, or the time to
/// wait.
///
/// # Errors
/// [`StoreError`] if the attempt cannot be counted.
pub async fn begin_attempt(
    context: &RequestContext,
    username: &str,
) -> Result<(Option<User>, Result<SignInAttempt, SignedDuration>), StoreError> {
    let (address, device) = (context.address_text(), context.cookies.device.as_deref());
    count_attempt(&context.app, username, &address, device, context.now).await
}

pub(super) async fn count_attempt(
    app: &App,
    username: &str,
    address: &str,
    device: Option<&str>,
    now: Timestamp,
) -> Result<(Option<User>, Result<SignInAttempt, SignedDuration>), StoreError> {
    let user = app.identity.users.active_user_by_name(username, now).await?;
    let limits = app.settings().throttle;
    let count = app
        .identity
        .throttle
        .begin_sign_in_attempt(username, user.as_ref(), address, device, &limits, now)
        .await?;
    Ok((user, count))
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
/// [`StoreError`] if the user cannot be read or the attempt not counted.
pub async fn check_password(
    context: &RequestContext,
    username: &str,
    typed: &str,
) -> Result<(Option<User>, PasswordResult), StoreError> {
    let (app, now) = (context.app.clone(), context.now);
    let (username, typed, address) = (username.to_owned(), typed.to_owned(), context.address_text());
    let device = context.cookies.device.as_deref().map(str::to_owned);
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
            .capacity
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

/// Checks and hashes a new password of a user. Returns `None` if too many requests wait for a hash.
pub async fn hash_new_password(
    context: &RequestContext,
    username: &str,
    plain: &str,
) -> Option<Result<String, PasswordError>> {
    let app = &context.app;
    let password = PasswordToHash {
        plain: plain.to_owned(),
        username: username.to_owned(),
        service: app.address.base_url.clone(),
        policy: app.settings().passwords,
    };
    let random = app.clock.random.clone();
    app.capacity.hashing.run_in_turn(HashRequester::Known, move || password.hash(&*random)).await
}

/// The text for a user with too many attempts, and a function that adds `Retry-After`.
pub fn lockout_response(wait: SignedDuration) -> (String, impl FnOnce(Response) -> Response) {
    let seconds = wait.as_secs() + 1;
    let text = match seconds {
        ..60 => fill("Too many attempts. Try again in {} s.", &[&seconds]),
        _ => fill("Too many attempts. Try again in {} min.", &[&((seconds + 59) / 60)]),
    };
    (text, move |response| reply::with(response, header::RETRY_AFTER, &seconds.to_string()))
}
