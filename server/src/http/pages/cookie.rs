//! Sets and removes the cookies of this server (see [`crate::http::browser_cookies`]).

use http::header;

use super::language::Language;
use crate::http::browser_cookies::CookieNames;
use crate::http::extract::RequestContext;
use crate::http::reply::{self, Response};
use crate::node::app::App;

/// Lifetime of the cookies of devices and languages, in seconds.
const LIFE_S: u32 = 365 * 24 * 3600;

fn attributes(app: &App) -> &'static str {
    if app.address.is_https {
        "; Path=/; HttpOnly; SameSite=Lax; Secure"
    } else {
        "; Path=/; HttpOnly; SameSite=Lax"
    }
}

/// `Set-Cookie` for a new session.
pub fn set_session(app: &App, value: &str) -> String {
    format!("{}={value}{}", CookieNames::of(app.address.is_https).session, attributes(app))
}

/// `Set-Cookie` that removes the session.
pub fn clear_session(app: &App) -> String {
    format!("{}=; Max-Age=0{}", CookieNames::of(app.address.is_https).session, attributes(app))
}

/// The value of the browser cookie and, if the browser has none, the `Set-Cookie` of a new one.
pub fn browser(context: &RequestContext) -> (String, Option<String>) {
    if let Some(browser) = &context.cookies.browser {
        return (browser.clone(), None);
    }
    let value = context.app.clock.random.secret();
    let set = format!(
        "{}={value}{}",
        CookieNames::of(context.app.address.is_https).browser,
        attributes(&context.app)
    );
    (value, Some(set))
}

/// `Set-Cookie` for a device.
pub fn set_device(app: &App, value: &str) -> String {
    format!("{}={value}{}; Max-Age={LIFE_S}", CookieNames::of(app.address.is_https).device, attributes(app))
}

/// `Set-Cookie` for the language of the pages.
pub fn set_language(app: &App, language: Language) -> String {
    format!(
        "{}={}{}; Max-Age={LIFE_S}",
        CookieNames::of(app.address.is_https).language,
        language.tag(),
        attributes(app)
    )
}

/// Adds `Set-Cookie`.
#[must_use]
pub fn set(response: Response, cookie: Option<String>) -> Response {
    match cookie {
        Some(cookie) => reply::with(response, header::SET_COOKIE, &cookie),
        None => response,
    }
}
