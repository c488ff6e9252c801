//! The answer to a question, as long as it is awaited and after it.

use jiff::Timestamp;

/// State of a request and its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Answer<T> {
    #[default]
    None,
    Waiting {
        /// Time at which the request was sent.
        since: Timestamp,
    },
    Done(T),
    /// The request failed; the value is the message.
    Failed(String),
}

impl<T> Answer<T> {
    /// Returns whether there is neither an answer nor a failure.
    pub fn is_pending(&self) -> bool {
        matches!(self, Self::None | Self::Waiting { .. })
    }

    pub fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting { .. })
    }

    /// Ends the waiting, if the answer is awaited.
    pub fn cancel(&mut self) {
        if self.is_waiting() {
            *self = Self::Failed("cancelled before the server answered".to_owned());
        }
    }
}

impl<T> From<Result<T, String>> for Answer<T> {
    fn from(result: Result<T, String>) -> Self {
        match result {
            Ok(value) => Self::Done(value),
            Err(reason) => Self::Failed(reason),
        }
    }
}
