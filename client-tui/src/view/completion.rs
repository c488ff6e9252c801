//! The values for the focused field, as a list over the screen.

use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

use super::canvas::Canvas;
use super::parts::MARK;
use crate::model::Completion;

/// Maximum number of visible rows.
const ROWS: u16 = 8;
/// Maximum width of the values; explanations follow.
const VALUE_WIDTH: usize = 48;

/// Draws the list at the focused field: below it, or above it if there is more space.
pub(super) fn draw(completion: &Completion, canvas: &mut Canvas) {
    let Some(field) = canvas.focused_text() else { return };
    let all = canvas.area();
    let (below, above) = (all.height.saturating_sub(field.y + 1), field.y);
    let wished_rows = (completion.items.len() as u16).min(ROWS);
    let (height, y) = match below >= wished_rows || below >= above {
        true => (wished_rows.min(below), field.y + 1),
        false => (wished_rows.min(above), field.y - wished_rows.min(above)),
    };
    let x = field.x.saturating_sub(MARK.width() as u16);
    let width = completion.items.iter().map(|item| item.value.width()).max().unwrap_or(0).min(VALUE_WIDTH);
    let notes = completion.items.iter().map(|item| item.note.width()).max().unwrap_or(0);
    // The mark, the space between the columns, and a margin at the end.
    let columns = (2 * MARK.width() + width + notes + 1) as u16;
    let area = Rect { x, y, width: columns.min(all.width.saturating_sub(x)), height };
    let theme = canvas.theme;
    canvas.clear(area);
    canvas.list(completion.items.len(), completion.selected.unwrap_or(0), area, |index| {
        let item = &completion.items[index];
        let selected = completion.selected == Some(index);
        Line::from(vec![
            Span::styled(if selected { MARK } else { "  " }, theme.accent()),
            Span::styled(
                format!("{:<width$}  ", item.value),
                if selected { theme.accent() } else { Style::new() },
            ),
            Span::styled(item.note.as_str(), theme.quiet()),
        ])
    });
}
