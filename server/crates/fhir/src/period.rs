//! The data type Period of FHIR R4.

use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use serde::Deserialize;

use crate::instant::parse_partial;
use crate::text::Text;

/// A time period with optional bounds (FHIR R4, data types, Period).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Period<'a> {
    /// The period begins at the start of this date or time.
    #[serde(borrow)]
    pub start: Option<Text<'a>>,
    /// The period includes the whole year, month or day of this date or time.
    #[serde(borrow)]
    pub end: Option<Text<'a>>,
}

impl Period<'_> {
    /// The time at which the period begins, or `None` if it has no start.
    ///
    /// # Errors
    /// The text of a start that is not a date or time.
    pub fn begins_at(&self) -> Result<Option<Timestamp>, &str> {
        self.start.as_deref().map(|start| parse_partial(start).map_err(|_| start)).transpose()
    }

    /// The time at which the period is over, or `None` if it has no end.
    ///
    /// # Errors
    /// The text of an end that is not a date or time.
    pub fn ends_at(&self) -> Result<Option<Timestamp>, &str> {
        self.end.as_deref().map(|end| time_after(end).ok_or(end)).transpose()
    }

    /// Returns whether the period contains a time. A period with a bound that cannot be read contains none.
    pub fn contains(&self, time: Timestamp) -> bool {
        let (Ok(begins), Ok(ends)) = (self.begins_at(), self.ends_at()) else { return false };
        begins.is_none_or(|begins| begins <= time) && ends.is_none_or(|ends| time < ends)
    }
}

/// The time at which a date or time is over. A year, month or day lasts until the next one begins.
fn time_after(end: &str) -> Option<Timestamp> {
    let first = parse_partial(end).ok()?;
    let span = match end.len() {
        4 => Span::new().years(1),
        7 => Span::new().months(1),
        10 => Span::new().days(1),
        _ => Span::new(),
    };
    Some(first.to_zoned(TimeZone::UTC).checked_add(span).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_contains_the_times_between_its_bounds() {
        #[track_caller]
        fn check(period: &str, time: &str, expected: bool) {
            let parsed: Period<'_> = serde_json::from_str(period).unwrap();
            assert_eq!(parsed.contains(time.parse().unwrap()), expected, "{period} at {time}");
        }
        check("{}", "2026-01-31T12:00:00Z", true);
        check(r#"{"start":"2026-02"}"#, "2026-01-31T23:59:59Z", false);
        check(r#"{"start":"2026-02"}"#, "2026-02-01T00:00:00Z", true);
        check(r#"{"end":"2026-01-31"}"#, "2026-01-31T23:59:59Z", true);
        check(r#"{"end":"2026-01-31"}"#, "2026-02-01T00:00:00Z", false);
        check(r#"{"end":"2026-01-31T12:00:00Z"}"#, "2026-01-31T12:00:00Z", false);
        check(r#"{"end":"soon"}"#, "2026-01-31T12:00:00Z", false);
        check(r#"{"start":"soon"}"#, "2026-01-31T12:00:00Z", false);
    }

    #[test]
    fn a_period_includes_the_whole_year_month_or_day_of_its_end() {
        for (end, over) in [
            ("2025", "2026-01-01T00:00:00Z"),
            ("2024", "2025-01-01T00:00:00Z"),
            ("2026-02", "2026-03-01T00:00:00Z"),
            ("2026-02-28", "2026-03-01T00:00:00Z"),
            ("2026-02-28T10:00:00+01:00", "2026-02-28T09:00:00Z"),
        ] {
            assert_eq!(time_after(end), Some(crate::instant::parse(over).unwrap()), "{end}");
        }
        assert_eq!(time_after("soon"), None);
    }
}
