//! The answer to an authorization request: a redirect or a form by POST, through the browser.

use http::{StatusCode, header};
use identity::authorize::reply::{AuthorizationAnswer, AuthorizationReply};
use identity::model::error_code::ErrorCode;

use crate::http::reply::Response;
use crate::http::{pages, reply};

/// Sends an error to the client, through the browser.
pub fn redirect_error(to: &AuthorizationReply, error: ErrorCode, description: Option<&str>) -> Response {
    let response = answer_response(to.error_answer(error, description));
    match error {
        // For programs that follow the redirect themselves.
        ErrorCode::TemporarilyUnavailable => reply::with_static(response, header::RETRY_AFTER, "5"),
        _ => response,
    }
}

/// The response that makes the browser deliver an answer to the client.
pub(super) fn answer_response(response: AuthorizationAnswer) -> Response {
    match response {
        AuthorizationAnswer::Redirect(to) => redirect_found(&to),
        AuthorizationAnswer::Form { to, fields } => pages::form_post::show_form(&to, &fields),
    }
}

pub(super) fn redirect_found(to: &str) -> Response {
    reply::no_store(reply::redirect(StatusCode::FOUND, to))
}
