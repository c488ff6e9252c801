//! The outcome of a delivery.

use std::fmt::Display;
use std::time::Duration;

/// The answer of a destination that has the events.
#[derive(Default)]
pub(super) struct Delivered {
    /// Number of events that it does not keep, and why.
    pub rejected: Option<(u64, String)>,
}

/// Why events were not delivered.
pub(super) enum DeliveryError {
    /// The destination cannot be reached or does not work. It may ask for a pause.
    Failed { reason: String, pause: Option<Duration> },
    /// The destination refuses these events, or so many.
    Refused(String),
}

impl DeliveryError {
    /// A failure without a wish for a pause.
    pub fn failed(reason: impl Display) -> Self {
        Self::Failed { reason: format!("{reason:#}"), pause: None }
    }
}
