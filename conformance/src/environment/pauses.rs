//! Pauses between requests that wait for a server, or for time to pass on it.

use std::time::Duration;

use super::error::SetupError;
use crate::wire::exchange::Answer;

/// Time between two requests to a Trefoil server, and the maximum time of all pauses.
const POLL_PAUSE: Duration = Duration::from_millis(25);
const POLL_TIME: Duration = Duration::from_secs(10);
/// Time between two requests to another server that does not state one.
const USUAL_PAUSE: Duration = Duration::from_secs(1);

/// Waits until time has passed on a server whose clock the suite cannot set, at most `max_wait`.
///
/// # Errors
/// [`SetupError::Lacking`] if the run may not wait that long.
pub async fn let_time_pass(time: Duration, max_wait: Option<Duration>) -> Result<(), SetupError> {
    if max_wait.is_some_and(|max_wait| time > max_wait) {
        let reason = format!("waits for {} s, which --max-wait does not allow", time.as_secs());
        return Err(SetupError::Lacking(reason));
    }
    tokio::time::sleep(time).await;
    Ok(())
}

/// Pauses between the requests of one case. Another server states their length by `Retry-After` (RFC 9110
/// 10.2.3).
#[derive(Debug)]
pub struct Pauses {
    usual: Duration,
    honours_server: bool,
    remaining: Duration,
}

impl Pauses {
    /// Pauses between questions about a state, at most `max_wait` in all. A server that the suite did not
    /// start states their length, or the profile does.
    pub fn between_polls(max_wait: Option<Duration>, stated: Option<Duration>) -> Self {
        let Some(remaining) = max_wait else {
            return Self { usual: POLL_PAUSE, honours_server: false, remaining: POLL_TIME };
        };
        Self { usual: stated.unwrap_or(USUAL_PAUSE), honours_server: stated.is_none(), remaining }
    }

    /// Pauses after requests that the server refused because they were too many, at most `max_wait` in all.
    pub fn after_limits(max_wait: Duration) -> Self {
        Self { usual: USUAL_PAUSE, honours_server: true, remaining: max_wait }
    }

    /// Waits as long as the response asks for.
    ///
    /// # Errors
    /// [`SetupError::TooSlow`] if the time of all pauses is over.
    pub async fn wait(&mut self, response: &Answer) -> Result<(), SetupError> {
        let retry_after = response.header("retry-after").filter(|_| self.honours_server);
        let retry_after = retry_after.and_then(|value| value.trim().parse().ok()).map(Duration::from_secs);
        let pause = retry_after.unwrap_or(self.usual).max(POLL_PAUSE);
        let Some(remaining) = self.remaining.checked_sub(pause) else {
            let status = response.status.as_u16();
            return Err(SetupError::TooSlow(match retry_after {
                Some(pause) => format!(
                    "the server answered {status} with Retry-After: {}, which --max-wait does not allow",
                    pause.as_secs()
                ),
                None => {
                    format!("the status was still {status} when the time for waiting was over (--max-wait)")
                }
            }));
        };
        self.remaining = remaining;
        tokio::time::sleep(pause).await;
        Ok(())
    }
}
