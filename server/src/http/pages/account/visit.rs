//! The signed-in user who visits the page, and the forms that they send.

use http::StatusCode;
use identity::model::user::User;
use identity::params::Params;
use identity::sign_in::session::Session;
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};
use store::StoreError;

use crate::http::extract::{RequestBody, RequestContext};
use crate::http::pages::browser_session::signed_in;
use crate::http::pages::csrf;
use crate::http::pages::error_page;
use crate::http::pages::frame::page;
use crate::http::pages::page_request::language;
use crate::http::pages::texts::{fill, t};
use crate::http::problem::Problem;
use crate::http::reply;
use crate::http::reply::Response;

/// Maximum age of a sign-in for a change that adds a sign-in method.
pub(super) const MAX_SIGN_IN_AGE: SignedDuration = SignedDuration::from_mins(15);

/// The signed-in user, the session and the browser.
pub(super) struct AccountVisit {
    pub(super) session: Session,
    pub(super) user: User,
    pub(super) browser: String,
    /// The provider that keeps own sign-in methods from the user, if one does.
    pub(super) only_provider: Option<String>,
}

impl AccountVisit {
    /// The visit of a signed-in user.
    ///
    /// # Errors
    /// [`StoreError`] if the linked accounts of the user cannot be read.
    pub(super) async fn new(
        context: &RequestContext,
        (session, user): (Session, User),
        browser: String,
    ) -> Result<Self, StoreError> {
        let only_provider = context.app.identity.sign_in.only_provider(&user.sub, context.now).await?;
        Ok(Self { session, user, browser, only_provider })
    }

    /// Why the user has no own sign-in methods, if their provider keeps them from having any.
    pub(super) fn without_own_methods(&self) -> Option<String> {
        let provider = self.only_provider.as_ref()?;
        let text =
            "You sign in with {}. This account has no password, passkeys or recovery codes of its own.";
        Some(fill(text, &[provider]))
    }

    /// Checks that the user may have own sign-in methods.
    pub(super) fn check_own_methods(&self) -> Result<(), Problem> {
        match self.without_own_methods() {
            None => Ok(()),
            Some(text) => Err(reply::no_store(error_page::error(StatusCode::FORBIDDEN, &text)).into()),
        }
    }

    /// A form of this page: a button and its fields.
    pub(super) fn button(
        &self,
        action: &str,
        fields: &[(&str, &str)],
        label: &str,
        described: Option<&str>,
    ) -> Markup {
        html! {
            form method="post" action=(action) {
                (csrf::hidden_field(&self.browser))
                @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
                button.second type="submit" aria-label=[described] { (label) }
            }
        }
    }
}

/// A day and a time.
pub(super) fn date_time(moment: Timestamp) -> Markup {
    html! { time datetime=(moment) { (language().date_time(moment)) } }
}

pub(super) fn to_sign_in(context: &RequestContext) -> Response {
    reply::no_store(reply::redirect(
        StatusCode::SEE_OTHER,
        &format!("{}/sign-in", context.app.address.base_url),
    ))
}

/// Reads a form of this page from a signed-in user.
pub(super) async fn read_form(
    context: &RequestContext,
    body: &mut RequestBody,
) -> Result<(AccountVisit, Params), Problem> {
    let form = csrf::read_form(context, body).await?;
    let browser = context.cookies.browser.as_deref().unwrap_or_default().to_owned();
    match signed_in(context).await? {
        Some(signed_in) => Ok((AccountVisit::new(context, signed_in, browser).await?, form)),
        None => Err(to_sign_in(context).into()),
    }
}

/// Reads a form that adds an own sign-in method, from a user who may have one and who signed in recently.
pub(super) async fn read_method_form(
    context: &RequestContext,
    body: &mut RequestBody,
) -> Result<(AccountVisit, Params), Problem> {
    let (visit, form) = read_form(context, body).await?;
    visit.check_own_methods()?;
    check_fresh(context, &visit)?;
    Ok((visit, form))
}

/// Reads a form of this page from a user who signed in recently.
pub(super) async fn read_fresh_form(
    context: &RequestContext,
    body: &mut RequestBody,
) -> Result<(AccountVisit, Params), Problem> {
    let (visit, form) = read_form(context, body).await?;
    check_fresh(context, &visit)?;
    Ok((visit, form))
}

/// Checks that the sign-in is recent enough for a change that adds a sign-in method.
pub(super) fn check_fresh(context: &RequestContext, visit: &AccountVisit) -> Result<(), Problem> {
    if visit.session.is_authenticated_within(MAX_SIGN_IN_AGE, context.now) {
        return Ok(());
    }
    let hint = form_urlencoded::Serializer::new(String::new())
        .append_pair("login_hint", &visit.user.username)
        .finish();
    let content = html! {
        p { (t("Sign in again for this change: it adds a way to sign in to your account, and your sign-in is more than 15 minutes old.")) }
        p { a.button href=(format!("/sign-in?{hint}")) { (t("Sign in again")) } }
        p { a href="/account" { (t("Back to your account")) } }
    };
    let page = page(t("Sign in again"), &content);
    Err(reply::no_store(reply::html(StatusCode::FORBIDDEN, page)).into())
}

/// Redirects to the page with a confirmation.
pub(super) fn redirect_done(context: &RequestContext, notice: &str) -> Response {
    let to = format!("{}/account?notice={notice}", context.app.address.base_url);
    reply::no_store(reply::redirect(StatusCode::SEE_OTHER, &to))
}
