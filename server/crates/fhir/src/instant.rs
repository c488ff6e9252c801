//! Instants in the format of FHIR: RFC 3339 in UTC with milliseconds.

use jiff::{Timestamp, civil};

/// Formats an instant as `2026-11-21T08:00:00.000Z`: always UTC, always three decimals, 24 bytes.
///
/// ```
/// let t = jiff::Timestamp::from_millisecond(1_700_000_000_007).unwrap();
/// assert_eq!(trefoil_fhir::instant::format(t), "2023-11-14T22:13:20.007Z");
/// ```
pub fn format(time: Timestamp) -> String {
    format!("{time:.3}")
}

/// Parses a FHIR `instant`: date, time with seconds, and a zone (`Z` or `±hh:mm`).
///
/// A space instead of `+` is accepted, because an unencoded plus sign in a query string is decoded as a
/// space.
///
/// # Errors
/// Returns a text that describes the expected format.
pub fn parse(text: &str) -> Result<Timestamp, String> {
    let wrong = || {
        format!("'{text}' is not an instant such as 2026-01-31T08:00:00Z or 2026-01-31T08:00:00.000+01:00")
    };
    let text = text.replace(' ', "+");
    let zone = text.get(19..).ok_or_else(wrong)?;
    let has_zone =
        zone.ends_with('Z') || (zone.len() >= 6 && matches!(zone.as_bytes()[zone.len() - 6], b'+' | b'-'));
    // jiff accepts more than FHIR: a lower-case `t`, spaces and missing seconds.
    let shape = text.as_bytes();
    if !has_zone || shape[10] != b'T' || shape[13] != b':' || shape[16] != b':' {
        return Err(wrong());
    }
    text.parse().map_err(|_| wrong())
}

/// Parses a FHIR `date`, `dateTime` or `instant` and returns the start of its period in UTC.
///
/// # Errors
/// Returns a text that describes the expected format.
pub fn parse_partial(text: &str) -> Result<Timestamp, String> {
    let wrong = || format!("'{text}' is not a date such as 2026, 2026-01, 2026-01-31 or an instant");
    let number = |s: &str| s.parse::<i16>().map_err(|_| wrong());
    let date = match text.split('-').collect::<Vec<_>>()[..] {
        [year] if year.len() == 4 => civil::Date::new(number(year)?, 1, 1),
        [year, month] if year.len() == 4 && month.len() == 2 => {
            civil::Date::new(number(year)?, number(month)? as i8, 1)
        }
        [year, month, day] if year.len() == 4 && month.len() == 2 && day.len() == 2 => {
            civil::Date::new(number(year)?, number(month)? as i8, number(day)? as i8)
        }
        _ => return parse(text),
    };
    let date = date.map_err(|_| wrong())?;
    jiff::tz::TimeZone::UTC.to_timestamp(date.at(0, 0, 0, 0)).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formatted_instant_parses_to_the_same_instant() {
        for ms in [0, 1, 999, 1_700_000_000_123, 4_102_444_800_000] {
            let time = Timestamp::from_millisecond(ms).unwrap();
            let text = format(time);
            assert_eq!(text.len(), 24);
            assert_eq!(parse(&text), Ok(time));
        }
    }

    #[test]
    fn a_zone_is_required_and_a_space_is_read_as_a_plus() {
        let utc = parse("2026-01-31T07:00:00Z").unwrap();
        assert_eq!(parse("2026-01-31T08:00:00+01:00"), Ok(utc));
        assert_eq!(parse("2026-01-31T08:00:00 01:00"), Ok(utc));
        for bad in
            ["", "2026", "2026-01-31", "2026-01-31T08:00:00", "2026-13-31T08:00:00Z", "yesterday and later"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn partial_dates_are_parsed_as_the_start_of_their_period() {
        let first = parse("2026-01-01T00:00:00Z").unwrap();
        for text in ["2026", "2026-01", "2026-01-01"] {
            assert_eq!(parse_partial(text), Ok(first));
        }
        assert!(parse_partial("26-01").is_err());
    }
}
