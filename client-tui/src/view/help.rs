//! The help screen: the table of key bindings, first those of the screen that was visible before.

use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::canvas::Canvas;
use super::parts::push_right;
use super::theme::Theme;
use crate::keys::{KeyRow, When};
use crate::model::{Model, Screen};

/// Minimum width of a column of keys.
const COLUMN: u16 = 78;

pub(super) fn draw(model: &Model, canvas: &mut Canvas, area: Rect) {
    let theme = canvas.theme;
    let area = canvas.pane("Keys", true, area);
    let is_searching = model.typing || !model.help.text().is_empty();
    let [line, table] =
        Layout::vertical([Constraint::Length(1 + u16::from(area.height > 8)), Constraint::Min(0)])
            .areas(area);
    if is_searching {
        canvas.form_rows(&model.help.search, model.typing, Rect { height: 1, ..line });
    } else {
        let text =
            "/ searches, Up and Down scroll. Settings can change the keys of the actions at the right.";
        canvas.draw(Line::styled(text, theme.quiet()), Rect { height: 1, ..line });
    }
    let columns = (table.width / COLUMN).max(1);
    let width = table.width / columns;
    let lines = lines(model, width, theme);
    let cells = usize::from(table.height) * usize::from(columns);
    let first = usize::from(model.help.scroll).min(lines.len().saturating_sub(cells));
    let parts = lines[first..].chunks(usize::from(table.height).max(1));
    for (column, part) in (0..columns).zip(parts) {
        let place = Rect { x: table.x + column * width, width: width.saturating_sub(2), ..table };
        canvas.draw(Paragraph::new(part.to_vec()), place);
    }
    let last_column = Rect { x: table.x + (columns - 1) * width, width, ..table };
    canvas.scroll_marks(first, (lines.len() + usize::from(table.height)).saturating_sub(cells), last_column);
}

/// The keys that match the search, with a heading for each screen.
fn lines(model: &Model, width: u16, theme: Theme) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut section = |title: &str, rows: &mut dyn Iterator<Item = &'static KeyRow>| {
        let mut rows = rows.filter(|row| model.help.matches(row)).peekable();
        if rows.peek().is_none() {
            return;
        }
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        lines.push(Line::styled(title.to_owned(), theme.accent()));
        lines.extend(rows.map(|row| {
            let label = Span::styled(format!("  {:<10} ", row.label()), theme.accent());
            let mut line = Line::from_iter([label, Span::raw(row.does)]);
            if !row.action.is_fixed() {
                push_right(
                    &mut line,
                    Span::styled(row.action.name(), theme.quiet()),
                    width.saturating_sub(2),
                );
            }
            line
        }));
    };
    let rows = model.keys.rows();
    let of = |screen: Screen| rows.iter().filter(move |row| row.screens.contains(&screen));
    section(model.before_help.title(), &mut of(model.before_help));
    for (title, when) in [
        ("Everywhere; characters only outside of fields", When::Always),
        ("Outside of fields", When::Browsing),
        ("In a field", When::Typing),
    ] {
        section(title, &mut rows.iter().filter(|row| row.screens.is_empty() && row.when == when));
    }
    for screen in Screen::EVERY.into_iter().filter(|screen| *screen != model.before_help) {
        section(screen.title(), &mut of(screen));
    }
    lines
}
