//! Cookies: the session, the browser before any sign-in, and the device in which a user has signed in before (see
//! `identity::sign_in::throttle`).
//!
//! The prefix `__Host-` binds them to this host and to HTTPS. With `--insecure-http` it is left out, because browsers
//! would reject it.

use http::header;

use crate::http::extract::RequestContext;
use crate::http::reply::{self, Response};
use crate::node::app::App;

/// Lifetime of the device cookie, in seconds.
const DEVICE_LIFE_S: u32 = 365 * 24 * 3600;

fn names(app: &App) -> (&'static str, &'static str) {
    if app.is_https { ("__Host-trefoil", "__Host-trefoil-browser") } else { ("trefoil", "trefoil-browser") }
}

fn device_name(app: &App) -> &'static str {
    if app.is_https { "__Host-trefoil-device" } else { "trefoil-device" }
}

fn attributes(app: &App) -> &'static str {
    if app.is_https { "; Path=/; HttpOnly; SameSite=Lax; Secure" } else { "; Path=/; HttpOnly; SameSite=Lax" }
}

/// Returns the value of the session cookie.
pub fn session(context: &RequestContext) -> Option<&str> {
    context.cookie(names(&context.app).0)
}

/// Returns `Set-Cookie` for a new session.
pub fn set_session(app: &App, value: &str) -> String {
    format!("{}={value}{}", names(app).0, attributes(app))
}

/// Returns `Set-Cookie` that removes the session.
pub fn clear_session(app: &App) -> String {
    format!("{}=; Max-Age=0{}", names(app).0, attributes(app))
}

/// Returns the value of the browser cookie.
pub fn known_browser(context: &RequestContext) -> Option<&str> {
    context.cookie(names(&context.app).1).filter(|value| value.len() == 43)
}

/// Returns the value of the browser cookie and, if the browser has none, the `Set-Cookie` of a new one.
pub fn browser(context: &RequestContext) -> (String, Option<String>) {
    if let Some(known) = known_browser(context) {
        return (known.to_owned(), None);
    }
    let value = context.app.clock.random.secret();
    let set = format!("{}={value}{}", names(&context.app).1, attributes(&context.app));
    (value, Some(set))
}

/// Returns the value of the device cookie.
pub fn device(context: &RequestContext) -> Option<&str> {
    context.cookie(device_name(&context.app))
}

/// Returns `Set-Cookie` for a device.
pub fn set_device(app: &App, value: &str) -> String {
    format!("{}={value}{}; Max-Age={DEVICE_LIFE_S}", device_name(app), attributes(app))
}

/// Adds `Set-Cookie`.
#[must_use]
pub fn set(response: Response, cookie: Option<String>) -> Response {
    match cookie {
        Some(cookie) => reply::with(response, header::SET_COOKIE, &cookie),
        None => response,
    }
}
