//! The request in which a page is rendered. It is task-local, so that each error page has its language and
//! brand, too.

use std::future::Future;
use std::sync::{Arc, OnceLock};

use http::header;

use super::language::Language;
use crate::config::settings::Settings;
use crate::http::extract::RequestContext;

/// The request in which a page is rendered.
#[derive(Clone)]
pub struct PageRequest {
    /// The language that the browser accepts.
    pub(super) language: Language,
    /// The language that the application asks for, once its request is read.
    pub(super) requested: Arc<OnceLock<Language>>,
    pub(super) request_id: Arc<str>,
    pub(super) settings: Arc<Settings>,
}

impl PageRequest {
    /// Returns what a page needs of a request.
    pub fn new(context: &RequestContext) -> Self {
        let accepted = context.header(header::ACCEPT_LANGUAGE).unwrap_or_default();
        Self {
            language: Language::negotiate(accepted),
            requested: Arc::default(),
            request_id: context.request_id.clone(),
            settings: context.app.settings(),
        }
    }
}

tokio::task_local! {
    pub(super) static REQUEST: PageRequest;
}

/// Runs a handler whose answer can be a page.
pub async fn with_request<F: Future>(request: PageRequest, handler: F) -> F::Output {
    REQUEST.scope(request, handler).await
}

/// The language of the page.
pub fn language() -> Language {
    let of_request = |request: &PageRequest| request.requested.get().copied().unwrap_or(request.language);
    REQUEST.try_with(of_request).unwrap_or_default()
}

/// Uses the language that an application asks for by `ui_locales` (OpenID Connect Core section 3.1.2.1), if
/// the pages have it.
pub fn use_locales(ui_locales: Option<&str>) {
    if let Some(language) = ui_locales.and_then(Language::of_locales) {
        let _ = REQUEST.try_with(|request| request.requested.set(language));
    }
}

/// The id of the request, or an empty text outside of a request.
pub fn request_id() -> String {
    REQUEST.try_with(|request| request.request_id.to_string()).unwrap_or_default()
}
