//! Where the browser goes on after a sign-in: what the form's hidden field `continue` holds, and the
//! address of ours that it leads to. Everybody else treats it as opaque.
//!
//! It is a sealed authorization request (see [`identity::interaction`]), the code of a device, or nothing.

use identity::params::Params;

use crate::app::App;

/// What leads back to the page that asks about a device.
pub fn device(user_code: &str) -> String {
    form_urlencoded::Serializer::new(String::new()).append_pair("device", user_code).finish()
}

/// Is it a sealed authorization request?
pub fn is_request(back: &str) -> bool {
    !back.is_empty() && back.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// What was sent; nothing where it is none of these, whatever was typed there.
pub fn read(sent: &Params) -> String {
    let back = sent.get("continue").unwrap_or_default();
    if is_request(back) {
        return back.to_owned();
    }
    Params::parse(back.as_bytes()).get("device").map(device).unwrap_or_default()
}

/// The address to go on to: always one of ours.
pub fn address(app: &App, back: &str) -> String {
    let base = &app.base_url;
    if is_request(back) {
        return format!("{base}/oauth2/resume?continue={back}");
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
