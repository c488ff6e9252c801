//! The request in which a page is rendered. It is task-local, so that each error page has its language and
//! brand, too.

use std::future::Future;
use std::sync::{Arc, OnceLock};

use http::header;
use identity::model::client::Client;

use super::language::Language;
use crate::config::settings::Settings;
use crate::http::extract::RequestContext;

/// The request in which a page is rendered.
#[derive(Clone)]
pub struct PageRequest {
    /// The language that the browser accepts.
    pub(super) language: Language,
    /// The language that the user has chosen, or that the application asks for, once its request is read.
    pub(super) requested: Arc<OnceLock<Language>>,
    pub(super) request_id: Arc<str>,
    pub(super) settings: Arc<Settings>,
    /// Whether the page can be loaded again at its address, as after a link.
    pub(super) is_get: bool,
    /// The application to which a person can return from an error.
    way_back: Arc<OnceLock<WayBack>>,
}

/// An application, with the address at which a person finds it.
#[derive(Clone)]
#[expect(missing_docs, reason = "the names say it")]
pub struct WayBack {
    pub name: String,
    pub address: String,
}

impl PageRequest {
    /// Returns what a page needs of a request.
    pub fn new(context: &RequestContext) -> Self {
        let languages = context.header(header::ACCEPT_LANGUAGE).unwrap_or_default();
        let requested = OnceLock::new();
        // The choice of the user takes precedence over that of the application.
        if let Some(language) = context.cookies.language.as_deref().and_then(Language::with_tag) {
            let _ = requested.set(language);
        }
        Self {
            language: Language::negotiate(languages),
            requested: Arc::new(requested),
            request_id: context.request_id.clone(),
            settings: context.app.settings(),
            is_get: context.method == http::Method::GET,
            way_back: Arc::default(),
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

/// Remembers the application of the request, so that an error page links to it.
pub fn set_way_back(client: &Client) {
    if let Some(address) = client.web_origin() {
        let way_back = WayBack { name: client.name.clone(), address };
        let _ = REQUEST.try_with(|request| request.way_back.set(way_back));
    }
}

/// The application to which a person can return.
pub fn way_back() -> Option<WayBack> {
    REQUEST.try_with(|request| request.way_back.get().cloned()).ok().flatten()
}

/// The id of the request, or an empty text outside of a request.
pub fn request_id() -> String {
    REQUEST.try_with(|request| request.request_id.to_string()).unwrap_or_default()
}
