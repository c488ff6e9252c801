//! Cookies: the session's, one that names the browser before anybody is signed in, and one that says of a
//! browser that a user has signed in there before (see `identity::throttle`).
//!
//! `__Host-` ties them to this host and to HTTPS; over `--insecure-http` they lose the prefix, which
//! browsers would refuse.

use http::header;

use crate::app::App;
use crate::http::extract::Call;
use crate::http::reply::{self, Response};

/// How long a browser is known again.
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

/// Value of the session cookie.
pub fn session(call: &Call) -> Option<&str> {
    call.cookie(names(&call.app).0)
}

/// `Set-Cookie` of a new session.
pub fn set_session(app: &App, value: &str) -> String {
    format!("{}={value}{}", names(app).0, attributes(app))
}

/// `Set-Cookie` that takes the session away.
pub fn clear_session(app: &App) -> String {
    format!("{}=; Max-Age=0{}", names(app).0, attributes(app))
}

/// The browser's value, where it has one.
pub fn known_browser(call: &Call) -> Option<&str> {
    call.cookie(names(&call.app).1).filter(|value| value.len() == 43)
}

/// The browser's value, and the `Set-Cookie` that gives it one where it has none.
pub fn browser(call: &Call) -> (String, Option<String>) {
    if let Some(known) = known_browser(call) {
        return (known.to_owned(), None);
    }
    let value = call.app.clock.random.secret();
    let set = format!("{}={value}{}", names(&call.app).1, attributes(&call.app));
    (value, Some(set))
}

/// Value of the device cookie.
pub fn device(call: &Call) -> Option<&str> {
    call.cookie(device_name(&call.app))
}

/// `Set-Cookie` of the device cookie.
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
