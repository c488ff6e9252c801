//! POST {base}/console: an action, which is asked about first if it cannot be undone.

use http::StatusCode;
use maud::html;

use super::commands;
use super::forms::{AskedCommand, asked_command};
use super::visit::{ConsoleVisit, console_page};
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::pages::csrf;
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// Runs the command of a form, and shows its result.
pub async fn run_action(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let form = csrf::read_form(context, body).await?;
    let browser = context.cookies.browser.as_deref().unwrap_or_default().to_owned();
    let visit = ConsoleVisit::of(context, browser).await?;
    let arguments = asked_command(&form).map_err(|text| Problem::page(StatusCode::BAD_REQUEST, &text))?;
    let AskedCommand { command, action, label, fields, line } = arguments;
    if let Some(question) = command.question().filter(|_| form.get("confirmed").is_none()) {
        let content = html! {
            p { (question) }
            form method="post" action="/console" {
                (csrf::hidden_field(&visit.browser))
                input type="hidden" name="confirmed" value="yes";
                input type="hidden" name="action" value=(action);
                @for (name, value) in &fields { input type="hidden" name=(name) value=(value); }
                button type="submit" { (label) }
            }
            p { a href="/console" { "Back without a change" } }
        };
        return Ok(reply::no_store(reply::html(StatusCode::OK, console_page("Are you sure?", &content))));
    }
    let result = commands::run(&context.app, command).await;
    let (status, title) = match result.is_success {
        true => (StatusCode::OK, "Done"),
        false => (StatusCode::UNPROCESSABLE_ENTITY, "Not done"),
    };
    let class = if result.is_success { "done" } else { "error" };
    let content = html! {
        @for text in &result.lines { p class=(class) role="status" { (text) } }
        p { "The same on the command line:" }
        pre tabindex="0" { code { (line) } }
        p { a.button href="/console" { "Back to the console" } }
    };
    Ok(reply::no_store(reply::html(status, console_page(title, &content))))
}
