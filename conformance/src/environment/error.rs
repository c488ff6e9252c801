//! The error of a setup.

use crate::wire::variables::UnknownVariable;

/// Reasons why a precondition was not set up or a request has no response.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The target lacks something that the case needs, so the case is skipped.
    #[error("{0}")]
    Lacking(String),
    /// The target did not behave as expected.
    #[error("{0}")]
    Failed(String),
    /// The target did not finish within the time that the run waits.
    #[error("{0}")]
    TooSlow(String),
    /// The response is missing or incomplete.
    #[error("no answer: {0}")]
    NoAnswer(String),
    /// The profile lacks a member that every profile has.
    #[error(transparent)]
    Variable(#[from] UnknownVariable),
}
