//! Parts that several screens draw: error lines, times, and texts at the right edge.

use ratatui::text::{Line, Span};

use super::theme::Theme;

/// Adds a text at the right end of a line, if there is space for it.
pub(super) fn push_right<'a>(line: &mut Line<'a>, text: Span<'a>, width: u16) {
    if let Some(space) =
        usize::from(width).checked_sub(line.width() + text.width()).filter(|space| *space > 1)
    {
        line.extend([Span::raw(" ".repeat(space)), text]);
    }
}

pub(super) fn error_line<'a>(reason: &str, theme: Theme) -> Line<'a> {
    Line::styled(format!("Error: {reason}"), theme.bad())
}

/// A time of day in the time zone of the user.
pub(super) fn clock(time: jiff::Timestamp, zone: &jiff::tz::TimeZone) -> String {
    time.to_zoned(zone.clone()).strftime("%H:%M:%S").to_string()
}
