//! When a failed request is sent again.

use std::time::Duration;

use crate::api::{Api, ApiError, Bearer};

/// Maximum number of consecutive attempts without progress. With the delays below, that is about eight
/// minutes.
const MAX_ATTEMPTS: u32 = 12;
/// Maximum delay if the server does not request a longer one.
const MAX_DELAY: Duration = Duration::from_secs(60);

/// Counts the consecutive failures of one request.
#[derive(Debug, Default)]
pub(crate) struct RetryCounter {
    failures: u32,
    /// Whether a rejected token was replaced since the last progress.
    token_replaced: bool,
}

impl RetryCounter {
    /// The delay before the next attempt, or `None` if the failure is final. A rejected token of the backend
    /// client is replaced once without a delay.
    pub(crate) async fn next_delay(
        &mut self,
        error: &ApiError,
        api: &Api,
        bearer: Option<&Bearer>,
    ) -> Option<Duration> {
        if !self.token_replaced && api.discard_rejected_token(error, bearer).await {
            self.token_replaced = true;
            return Some(Duration::ZERO);
        }
        self.backoff(error)
    }

    /// The delay, which doubles with each failure and is at least the `Retry-After` of the server.
    fn backoff(&mut self, error: &ApiError) -> Option<Duration> {
        self.failures += 1;
        if !error.is_transient() || self.failures >= MAX_ATTEMPTS {
            return None;
        }
        let doubled = Duration::from_secs(1 << (self.failures - 1).min(16)).min(MAX_DELAY);
        Some(doubled.max(error.retry_after().unwrap_or_default()))
    }

    /// Forgets the failures after progress.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost() -> ApiError {
        ApiError::Unreachable { url: "https://t.example".to_owned(), reason: "reset".to_owned() }
    }

    #[test]
    fn delays_double_up_to_a_minute_and_attempts_are_limited() {
        let mut counter = RetryCounter::default();
        let delays: Vec<_> = std::iter::from_fn(|| counter.backoff(&lost())).map(|d| d.as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60]);
        counter.reset();
        assert_eq!(counter.backoff(&lost()), Some(Duration::from_secs(1)));
    }

    #[test]
    fn a_final_error_is_not_retried() {
        assert_eq!(RetryCounter::default().backoff(&ApiError::NotSignedIn), None);
    }
}
