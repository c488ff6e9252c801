//! The destination of the browser after a sign-in, from the hidden form field `continue`. All other modules
//! treat it as opaque.
//!
//! It is a signed authorization request (see [`identity::authorize::interaction`]), the code of a device, the
//! console, or empty.

use identity::params::Params;

use crate::node::app::App;

/// The value for the page that asks about a device.
pub fn device_destination(user_code: &str) -> String {
    form_urlencoded::Serializer::new(String::new()).append_pair("device", user_code).finish()
}

/// The value for the console.
pub fn console_destination() -> String {
    "console=yes".to_owned()
}

/// Returns whether this is a signed authorization request.
pub fn is_request(back: &str) -> bool {
    !back.is_empty() && back.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// Returns whether this is the account page or the console.
pub fn is_own_page(back: &str) -> bool {
    back.is_empty() || back == console_destination()
}

/// The value that was sent; empty if it is not valid.
pub fn read_destination(form: &Params) -> String {
    let back = form.get("continue").unwrap_or_default();
    if is_request(back) {
        return back.to_owned();
    }
    let params = Params::parse(back.as_bytes());
    if params.get("console").is_some() {
        return console_destination();
    }
    params.get("device").map(device_destination).unwrap_or_default()
}

/// The URL of the destination, which is always on this server.
pub fn destination_url(app: &App, back: &str) -> String {
    let base = &app.address.base_url;
    if is_request(back) {
        return format!("{base}/oauth2/resume?continue={back}");
    }
    if back == console_destination() {
        return format!("{base}/console");
    }
    match Params::parse(back.as_bytes()).get("device") {
        Some(code) => {
            let query =
                form_urlencoded::Serializer::new(String::new()).append_pair("user_code", code).finish();
            format!("{base}/device?{query}")
        }
        None => format!("{base}/account"),
    }
}
