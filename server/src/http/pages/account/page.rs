//! The whole page: a notice and the sections.

use http::StatusCode;
use maud::html;

use super::sections::all_sections;
use super::visit::AccountVisit;
use crate::http::extract::RequestContext;
use crate::http::pages::csrf;
use crate::http::pages::frame::page_with_script;
use crate::http::pages::texts::{phrase, t};
use crate::http::problem::Problem;
use crate::http::reply;
use crate::http::reply::Response;

pub(super) enum AccountNotice<'a> {
    Done(&'a str),
    /// The error, and the field that it is about.
    Wrong(&'a str, Option<&'a str>),
}

pub(super) async fn render_account(
    context: &RequestContext,
    visit: &AccountVisit,
    status: StatusCode,
    notice: Option<AccountNotice<'_>>,
) -> Result<Response, Problem> {
    let field = match notice {
        Some(AccountNotice::Wrong(_, field)) => field,
        Some(AccountNotice::Done(_)) | None => None,
    };
    let sections = all_sections(context, visit, field).await?;
    let name = visit.user.claims.name.as_deref().unwrap_or(&visit.user.username);
    let content = html! {
        @match notice {
            Some(AccountNotice::Done(text)) => p.done role="status" { (text) },
            Some(AccountNotice::Wrong(text, _)) => p #notice .error role="alert" { (t(text)) },
            None => {},
        }
        p { (phrase("Signed in as {} ({}).", &[html! { strong { (name) } }, html! { (visit.user.username) }])) }
        @if visit.user.administrator { p { a href="/console" { (t("Console of this server")) } } }
        form method="post" action="/sign-out" {
            (csrf::hidden_field(&visit.browser))
            button.second type="submit" { (t("Sign out of this browser")) }
        }
        @for section in sections { section { (section) } }
    };
    Ok(reply::no_store(reply::html(status, page_with_script(t("Your account"), &content))))
}

/// Shows the page again with an error.
pub(super) async fn show_error(
    context: &RequestContext,
    visit: &AccountVisit,
    status: StatusCode,
    text: &str,
) -> Result<Response, Problem> {
    render_account(context, visit, status, Some(AccountNotice::Wrong(text, None))).await
}
