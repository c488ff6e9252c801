//! The environment variables of the program. Only this module, and [`source`](super::source) for the
//! variables that a setting names, read the environment for settings.

use std::ffi::OsString;

use super::source::ConfigError;

/// Sets the log level.
pub const LOG: &str = "TREFOIL_LOG";
const DEMO_AHEAD: &str = "TREFOIL_DEMO_AHEAD_S";
const PASSWORD: &str = "PGPASSWORD";
const PASSWORD_FILE: &str = "PGPASSFILE";
/// The allocator keeps freed memory for so many milliseconds, which saves CPU time. It reads the variable
/// before `main`.
pub const PURGE_DELAY: &str = "MIMALLOC_PURGE_DELAY";
/// The proxies of outgoing requests, each in both spellings.
const PROXIES: [&str; 6] =
    ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];

/// The environment variables of `serve`, with their descriptions.
pub const ENVIRONMENT: [(&str, &str); 7] = [
    (LOG, "level of the log on standard error, such as debug or trefoil_server=debug [default: info]"),
    (
        DEMO_AHEAD,
        "seconds by which the clock of a demo server is set ahead, to show how tokens expire [default: 0]",
    ),
    (PASSWORD, "password of the database, if its URL contains none"),
    (
        PASSWORD_FILE,
        "file with passwords of databases (`host:port:database:user:password`), if no other is set",
    ),
    (
        "AWS_ACCESS_KEY_ID",
        "access key of the bucket of `[files]`, with AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; the other variables of \
         the AWS SDKs, such as AWS_REGION and AWS_WEB_IDENTITY_TOKEN_FILE, are read too",
    ),
    (
        PROXIES[0],
        "proxy of requests to providers and to keys of clients; HTTP_PROXY, ALL_PROXY and NO_PROXY are read too",
    ),
    (
        PURGE_DELAY,
        "milliseconds for which freed memory is kept; the server sets 0 itself if it has less than 1 GiB",
    ),
];

/// The password of the database.
pub(super) fn database_password() -> Option<String> {
    std::env::var(PASSWORD).ok()
}

/// The file with passwords of databases.
pub(super) fn database_password_file() -> Option<OsString> {
    std::env::var_os(PASSWORD_FILE)
}

/// The seconds by which the clock of a demo server is set ahead.
///
/// # Errors
/// [`ConfigError`] if the variable is no number.
pub(super) fn demo_ahead() -> Result<i64, ConfigError> {
    match std::env::var(DEMO_AHEAD) {
        Err(_) => Ok(0),
        Ok(text) => text.parse::<u32>().map(i64::from).map_err(|_| {
            ConfigError::Setting(format!("{DEMO_AHEAD} is '{text}'; it must be a number of seconds"))
        }),
    }
}

/// The proxies of outgoing requests, as the environment names them.
pub fn proxies() -> impl Iterator<Item = String> {
    PROXIES.into_iter().filter_map(|name| std::env::var(name).ok())
}

/// Whether the environment says how long the allocator keeps freed memory.
pub fn has_purge_delay() -> bool {
    std::env::var_os(PURGE_DELAY).is_some()
}
