//! The frame of every page: the name, logo and colours of `[pages]`, the language, and the scripts. They
//! belong to the request in which a page is rendered, and are task-local, so that each error page has them, too.

use std::future::Future;
use std::sync::Arc;

use http::header;
use maud::{DOCTYPE, Markup, html};

use super::texts::Language;
use crate::config::settings::Settings;
use crate::http::extract::RequestContext;

/// The request in which a page is rendered.
#[derive(Clone)]
pub struct PageRequest {
    language: Language,
    request_id: Arc<str>,
    settings: Arc<Settings>,
}

impl PageRequest {
    /// Returns what a page needs of a request.
    pub fn new(context: &RequestContext) -> Self {
        let accepted = context.header(header::ACCEPT_LANGUAGE).unwrap_or_default();
        Self {
            language: Language::negotiate(accepted),
            request_id: context.request_id.clone(),
            settings: context.app.settings(),
        }
    }
}

tokio::task_local! {
    static REQUEST: PageRequest;
}

/// Runs a handler whose answer can be a page.
pub async fn with_request<F: Future>(request: PageRequest, handler: F) -> F::Output {
    REQUEST.scope(request, handler).await
}

/// Returns the language of the page.
pub fn language() -> Language {
    REQUEST.try_with(|request| request.language).unwrap_or_default()
}

/// Returns the id of the request, or an empty text outside of a request.
pub fn request_id() -> String {
    REQUEST.try_with(|request| request.request_id.to_string()).unwrap_or_default()
}

/// Returns a page. All pages have the script `page.js`; `script` is a further one.
pub fn frame(title: &str, content: &Markup, script: Option<&str>) -> Markup {
    let settings = REQUEST.try_with(|request| request.settings.clone()).unwrap_or_default();
    let brand = &settings.brand;
    html! {
        (DOCTYPE)
        html lang=(language().tag()) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · " (brand.name) }
                link rel="icon" href=(if brand.logo.is_some() { "/logo" } else { "data:," });
                link rel="stylesheet" href="/style.css";
                script src="/page.js" defer {}
                @if let Some(script) = script { script src=(script) defer {} }
            }
            body {
                header {
                    a.brand href="/" {
                        @if brand.logo.is_some() { img.logo src="/logo" alt=""; }
                        @else { span.mark aria-hidden="true" { "☘" } }
                        (brand.name)
                    }
                }
                main {
                    h1 { (title) }
                    (content)
                }
            }
        }
    }
}
