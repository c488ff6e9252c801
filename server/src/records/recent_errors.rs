//! The last errors of the log, for `trefoil status` and the console.

use std::fmt::{self, Write as _};

use jiff::Timestamp;
use serde::Serialize;
use tracing::field::{Field, Visit};
use tracing::{Event, Level};
use tracing_subscriber::{Layer, layer};

use super::newest::Newest;

/// Number of errors that are kept.
const KEPT: usize = 5;

/// A line of the log about an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecentError {
    /// Time of the line.
    pub time: Timestamp,
    /// Message and fields.
    pub text: String,
}

/// The last errors of this process.
pub static RECENT_ERRORS: Newest<RecentError> = Newest::new(KEPT);

/// Keeps the errors that the log gets.
pub(super) struct KeepErrors;

impl<S: tracing::Subscriber> Layer<S> for KeepErrors {
    fn on_event(&self, event: &Event<'_>, _: layer::Context<'_, S>) {
        if *event.metadata().level() != Level::ERROR {
            return;
        }
        let mut text = EventText::default();
        event.record(&mut text);
        RECENT_ERRORS.add(RecentError { time: Timestamp::now(), text: text.message + &text.fields });
    }
}

#[derive(Default)]
struct EventText {
    message: String,
    fields: String,
}

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a text does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, ", {name}: {value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn the_last_errors_are_kept() {
        tracing::subscriber::with_default(tracing_subscriber::registry().with(KeepErrors), || {
            tracing::warn!("only a warning");
            for number in 0..KEPT + 2 {
                tracing::error!(number, reason = "the disk is full", "the file was not written");
            }
        });
        let recent = RECENT_ERRORS.list();
        assert_eq!(recent.len(), KEPT);
        let newest = format!("the file was not written, number: {}, reason: the disk is full", KEPT + 1);
        assert_eq!(recent[0].text, newest);
    }
}
