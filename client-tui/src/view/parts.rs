//! Parts that several screens draw: error lines, waiting lines, times, and texts of a limited width.

use jiff::Timestamp;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr;

use super::theme::Theme;
use crate::clock::TICK_MS;

/// Mark before the selected or focused element.
pub(super) const MARK: &str = "› ";
/// Symbols of the moving mark beside everything that waits.
const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// Adds a text at the right end of a line, if there is space for it.
pub(super) fn push_right<'a>(line: &mut Line<'a>, text: Span<'a>, width: u16) {
    if let Some(space) =
        usize::from(width).checked_sub(line.width() + text.width()).filter(|space| *space > 1)
    {
        line.extend([Span::raw(" ".repeat(space)), text]);
    }
}

/// A row of a list: its mark and name, and a note at the right end if there is space for it.
pub(super) fn list_line(
    name: String,
    note: String,
    is_selected: bool,
    width: u16,
    theme: Theme,
) -> Line<'static> {
    let style = if is_selected { theme.accent() } else { Style::new() };
    let mark = Span::styled(if is_selected { MARK } else { "  " }, theme.accent());
    let mut line = Line::from(vec![mark, Span::styled(name, style)]);
    push_right(&mut line, Span::styled(note, theme.quiet()), width);
    line
}

pub(super) fn error_line<'a>(reason: &str, theme: Theme) -> Line<'a> {
    Line::styled(format!("Error: {reason}"), theme.bad())
}

/// A time of day in the time zone of the user.
pub(super) fn clock(time: jiff::Timestamp, zone: &jiff::tz::TimeZone) -> String {
    time.to_zoned(zone.clone()).strftime("%H:%M:%S").to_string()
}

/// Text of [`waiting_line`] for a request to the server.
pub(super) const WAITING: &str = "Waiting for the response";

/// A line for a request that waits: a moving mark, the time so far, and the key that ends it.
pub(super) fn waiting_line(text: &str, since: Timestamp, now: Timestamp, theme: Theme) -> Line<'static> {
    let waited_ms = (now.as_millisecond() - since.as_millisecond()).max(0);
    let frame = SPINNER[(waited_ms / TICK_MS) as usize % SPINNER.len()];
    Line::from(vec![
        Span::styled(format!("{frame} "), theme.accent()),
        Span::raw(format!("{text} … {} s", waited_ms / 1_000)),
        Span::styled("; Esc cancels", theme.quiet()),
    ])
}

/// A number of bytes in the largest unit that fits.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// Shortens a text to a number of columns in its middle, because names of files and addresses differ most at
/// their ends.
pub(super) fn shorten_middle(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    if columns == 0 {
        return String::new();
    }
    let clusters: Vec<_> = text.graphemes(true).collect();
    // The end gets the larger part: it holds the name of the file or the last part of an address.
    let end_columns = (columns - 1) * 2 / 3;
    let (mut start, mut end, mut start_width, mut end_width) = (0, clusters.len(), 0, 0);
    while end > start && end_width + clusters[end - 1].width() <= end_columns {
        end -= 1;
        end_width += clusters[end].width();
    }
    while start < end && start_width + clusters[start].width() + end_width < columns {
        start_width += clusters[start].width();
        start += 1;
    }
    format!("{}…{}", clusters[..start].concat(), clusters[end..].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_shortened_in_its_middle() {
        assert_eq!(shorten_middle("bulk/7f1c/Provenance.0001.ndjson", 24), "bulk/7f1…nce.0001.ndjson");
        assert_eq!(shorten_middle("Patient", 7), "Patient");
        assert_eq!(shorten_middle("Patient", 3), "P…t");
        assert_eq!(shorten_middle("Patient", 1), "…");
        assert_eq!(shorten_middle("Patient", 0), "");
    }

    #[test]
    fn a_shortened_text_has_at_most_the_columns() {
        for text in ["日本語のファイル名.ndjson", "e\u{301}e\u{301}e\u{301}e\u{301}", "👩‍⚕️👩‍⚕️👩‍⚕️👩‍⚕️"]
        {
            for columns in 0..20 {
                assert!(shorten_middle(text, columns).width() <= columns.max(text.width().min(columns)));
            }
        }
    }
}
