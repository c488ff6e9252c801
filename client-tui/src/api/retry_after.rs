//! The delay that a server requests with `Retry-After`.

use super::Answer;

/// The delay in `Retry-After` in seconds, if there is one. The header contains seconds or an HTTP date (RFC
/// 9110 10.2.3).
pub(super) fn retry_after_s(response: &Answer) -> Option<i64> {
    let text = response.header("retry-after").unwrap_or_default().trim();
    let date = || {
        let retry_time = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
        Some(retry_time.as_second() - response.received_at.as_second())
    };
    let seconds: i64 = text.parse().ok().or_else(date)?;
    Some(seconds.clamp(1, LONGEST_POLL_S))
}

/// Maximum time between two polls, in seconds, even if the server requests a longer one.
pub(super) const LONGEST_POLL_S: i64 = 3600;
