//! The help screen: the table of key bindings.

use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::canvas::Canvas;
use crate::keys::{self, KeyRow, When};
use crate::model::{Model, Screen};

pub(super) fn draw(model: &Model, canvas: &mut Canvas, area: Rect) {
    let theme = canvas.theme;
    let mut lines = vec![Line::raw("Tokens stay in memory and are never shown. Up and Down scroll.")];
    let mut section = |title: String, rows: &mut dyn Iterator<Item = &'static KeyRow>| {
        lines.push(Line::default());
        lines.push(Line::styled(title, theme.accent()));
        lines.extend(rows.map(|row| {
            Line::from_iter([
                Span::styled(format!("  {:<10}", row.label), theme.accent()),
                Span::raw(row.does),
            ])
        }));
    };
    let place = |row: &&KeyRow, when: When| row.screens.is_empty() && row.when == when;
    section("Everywhere".to_owned(), &mut keys::TABLE.iter().filter(|row| place(row, When::Always)));
    section("Outside of fields".to_owned(), &mut keys::TABLE.iter().filter(|row| place(row, When::Browsing)));
    section("In a field".to_owned(), &mut keys::TABLE.iter().filter(|row| place(row, When::Typing)));
    for screen in Screen::ALL {
        let mut rows = keys::TABLE.iter().filter(|row| row.screens.contains(&screen)).peekable();
        if rows.peek().is_some() {
            section(screen.title().to_owned(), &mut rows);
        }
    }
    let area = canvas.pane("Keys", true, area);
    let last = (lines.len() as u16).saturating_sub(area.height);
    canvas.draw(Paragraph::new(lines).scroll((model.help_scroll.min(last), 0)), area);
}
