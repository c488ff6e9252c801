//! {base}/account: the page on which users manage their account. It is a list of sections, each with its
//! forms.
//!
//! | module | contents |
//! |---|---|
//! | [`sessions`] | the end of sessions |
//! | [`passkeys`] | changes of passkeys and recovery codes |
//! | [`password`] | a new password |
//! | [`apps`] | withdrawal of consents |
//! | [`links`] | links to accounts at external providers |
//! | `visit` | the user who visits the page, and the forms that they send |
//! | `page`, `sections` | what the page shows |
//!
//! A change that adds a sign-in method requires a recent sign-in.

pub mod apps;
pub mod links;
mod page;
pub mod passkeys;
pub mod password;
mod sections;
pub mod sessions;
mod visit;

use http::StatusCode;

use self::page::{AccountNotice, render_account};
use self::visit::{AccountVisit, to_sign_in};
use super::cookie;
use super::texts::t;
use crate::http::extract::RequestContext;
use crate::http::pages::browser_session::signed_in;
use crate::http::problem::Problem;
use crate::http::reply::Response;

/// Shows the page.
pub async fn show_account(context: &RequestContext) -> Result<Response, Problem> {
    let params = context.params();
    let notice = params.get("notice").and_then(confirmation);
    let Some(signed_in) = signed_in(context).await? else { return Ok(to_sign_in(context)) };
    let (browser, set_cookie) = cookie::browser(context);
    let visit = AccountVisit::new(context, signed_in, browser).await?;
    let response = render_account(context, &visit, StatusCode::OK, notice.map(AccountNotice::Done)).await?;
    Ok(cookie::set(response, set_cookie))
}

/// The confirmation that the page shows after a change.
fn confirmation(key: &str) -> Option<&'static str> {
    Some(match key {
        "ended" => t("The session was ended. Apps signed in from it are signed out too."),
        "others" => t("All other sessions were ended. Apps signed in from them are signed out too."),
        "passkey" => t("The passkey was added. You can sign in with it from now on."),
        "removed" => t("The passkey was removed and no longer signs you in."),
        "password" => t("The password was changed. All other sessions and apps are signed out."),
        "linked" => t("The account was linked. You can sign in with it from now on."),
        "withdrawn" => t("Permission withdrawn. The application is signed out and must ask again."),
        "unlinked" => t("The link was removed."),
        "saved" => t("Saved."),
        _ => return None,
    })
}
