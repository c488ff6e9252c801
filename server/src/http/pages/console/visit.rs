//! The administrator who visits the console.

use http::StatusCode;
use identity::model::user::User;
use jiff::SignedDuration;
use maud::{Markup, html};
use serde_json::Value;

use super::forms;
use crate::http::extract::RequestContext;
use crate::http::pages::browser_session::signed_in;
use crate::http::pages::frame::page;
use crate::http::pages::resume;
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};
use crate::records::audit::{self, AuditActor};

/// Maximum age of the sign-in of an administrator.
const MAX_SIGN_IN_AGE: SignedDuration = SignedDuration::from_mins(15);

/// An administrator and the browser.
pub(super) struct ConsoleVisit {
    pub user: User,
    pub browser: String,
}

impl ConsoleVisit {
    /// The visit of an administrator who has signed in recently.
    ///
    /// # Errors
    /// The sign-in page for others, and an error page for a user who is not an administrator.
    pub async fn of(context: &RequestContext, browser: String) -> Result<Self, Problem> {
        let Some((session, user)) = signed_in(context).await? else {
            let to = format!("{}/sign-in?{}", context.app.address.base_url, sign_in_query(None));
            return Err(reply::no_store(reply::redirect(StatusCode::SEE_OTHER, &to)).into());
        };
        if !user.administrator {
            let text =
                "only administrators may use the console. Ask one of them if you need something from it.";
            return Err(Problem::page(StatusCode::FORBIDDEN, text));
        }
        if !session.is_authenticated_within(MAX_SIGN_IN_AGE, context.now) {
            return Err(ask_for_sign_in(&user).into());
        }
        audit::set_actor(AuditActor::User(user.sub.clone()));
        Ok(Self { user, browser })
    }

    /// The form of a command for an entry of a record.
    pub fn entry_form(&self, action: &str, path: &[&str]) -> Markup {
        let rows = forms::commands(Some("user"), path.len()).filter(|row| forms::action(row) == action);
        forms::forms(rows, &self.browser, path, &Value::Null)
    }

    /// The forms of all commands of a group for the record that these values of a path name.
    pub fn forms(&self, group: Option<&'static str>, path: &[&str], record: &Value) -> Markup {
        forms::forms(forms::commands(group, path.len()), &self.browser, path, record)
    }
}

/// A page of the console. Its texts are in English for all languages, as those of the command line.
pub(super) fn console_page(title: &str, content: &Markup) -> Markup {
    page(title, &html! { div lang="en" { (content) } })
}

fn sign_in_query(name: Option<&str>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("continue", &resume::console_destination());
    query.extend_pairs(name.map(|name| ("login_hint", name)));
    query.finish()
}

/// Asks an administrator whose sign-in is too old.
fn ask_for_sign_in(user: &User) -> Response {
    let content = html! {
        p { "The console needs a recent sign-in, and yours is more than 15 minutes old." }
        p { a.button href=(format!("/sign-in?{}", sign_in_query(Some(&user.username)))) { "Sign in again" } }
        p { a href="/account" { "To your account" } }
    };
    reply::no_store(reply::html(StatusCode::FORBIDDEN, console_page("Sign in again", &content)))
}
