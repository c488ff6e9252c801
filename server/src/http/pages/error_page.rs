//! The page of an error.

use http::StatusCode;
use maud::html;

use super::frame::page;
use super::page_request::{request_id, way_back};
use super::texts::{fill, t};
use crate::http::reply::{self, Response};

/// An error page.
pub fn error(status: StatusCode, text: &str) -> Response {
    detailed_error(status, text, &[])
}

/// An error page with details for the developers of the application.
pub fn detailed_error(status: StatusCode, text: &str, details: &[(&str, &str)]) -> Response {
    let title = match status.as_u16() {
        404 => t("Not found"),
        405 => t("Not supported"),
        500.. => t("Something went wrong"),
        _ => t("This request cannot be answered"),
    };
    let mut letters = t(text).chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    let content = html! {
        p.error role="alert" { (first) (letters.as_str()) }
        @match way_back() {
            Some(application) => p { a.button href=(application.address) { (fill("Back to {}", &[&application.name])) } },
            None => p { a.button.second href="/" { (t("To the start page")) } },
        }
        details {
            summary { (t("Details for developers")) }
            dl {
                dt { (t("Status")) } dd { (status.as_u16()) }
                @for (name, value) in details {
                    dt { (t(name)) } dd { @if value.is_empty() { (t("not sent")) } @else { code { (value) } } }
                }
                dt { (t("Request")) } dd { code { (request_id()) } }
            }
        }
    };
    reply::no_store(reply::html(status, page(title, &content)))
}
