//! The administrator who visits the console.

use http::StatusCode;
use identity::model::user::User;
use jiff::SignedDuration;
use maud::{Markup, html};

use super::action_table::ConsoleAction;
use crate::http::extract::RequestContext;
use crate::http::pages::browser_session::signed_in;
use crate::http::pages::frame::page;
use crate::http::pages::{csrf, resume};
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
            let text = "Only administrators may use the console. `trefoil user change NAME --administrator` makes a user one.";
            return Err(Problem::page(StatusCode::FORBIDDEN, text));
        }
        if !session.is_authenticated_within(MAX_SIGN_IN_AGE, context.now) {
            return Err(ask_for_sign_in(&user).into());
        }
        audit::set_actor(AuditActor::User(user.sub.clone()));
        Ok(Self { user, browser })
    }

    /// The form of an action with fixed fields: a button.
    pub fn button(&self, action: &ConsoleAction, fields: &[(&str, &str)], described: &str) -> Markup {
        html! {
            form method="post" action="/console" {
                (csrf::hidden_field(&self.browser))
                input type="hidden" name="action" value=(action.name);
                @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
                button.second type="submit" aria-label=(format!("{} {described}", action.label)) { (action.label) }
            }
        }
    }

    /// The form of an action with fields that the administrator fills in: name, label and type of each.
    pub fn form(
        &self,
        action: &ConsoleAction,
        fixed: &[(&str, &str)],
        fields: &[(&str, &str, &str)],
    ) -> Markup {
        html! {
            details {
                summary { (action.label) }
                form method="post" action="/console" {
                    (csrf::hidden_field(&self.browser))
                    input type="hidden" name="action" value=(action.name);
                    @for (name, value) in fixed { input type="hidden" name=(name) value=(value); }
                    @for (name, label, kind) in fields {
                        @let id = format!("{}-{name}", action.name);
                        @if *kind == "checkbox" {
                            label.check for=(id) { input id=(id) type="checkbox" name=(name) value="yes" autocomplete="off"; (label) }
                        } @else {
                            label for=(id) { (label) }
                            input id=(id) type=(kind) name=(name) autocomplete="off";
                        }
                    }
                    button type="submit" { (action.label) }
                }
            }
        }
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
