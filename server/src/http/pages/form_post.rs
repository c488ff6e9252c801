//! The page that sends the answer to an authorization request by POST (OAuth 2.0 Form Post Response Mode). A
//! script sends the form; without scripts, the user presses the button.

use http::{StatusCode, header};
use maud::html;

use super::frame::frame;
use super::texts::t;
use crate::http::extract::RequestContext;
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// The page with the form. Its URL contains no part of the answer, and it is not stored.
pub fn show_form(to: &str, fields: &[(String, String)]) -> Response {
    let content = html! {
        form #answer method="post" action=(to) {
            @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
            button type="submit" { (t("Continue")) }
        }
    };
    reply::no_store(reply::html(
        StatusCode::OK,
        frame(t("Back to the application"), &content, Some("/form-post.js")),
    ))
}

/// GET {base}/form-post.js
pub async fn form_post_script(_: &RequestContext) -> Result<Response, Problem> {
    let script = "document.getElementById(\"answer\").submit();\n";
    let response = reply::body(StatusCode::OK, "text/javascript;charset=utf-8", script);
    Ok(reply::with(response, header::CACHE_CONTROL, "public, max-age=3600"))
}
