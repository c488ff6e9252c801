//! The help screen: the table of key bindings.

use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::canvas::Canvas;
use super::parts::push_right;
use crate::keys::{KeyRow, When};
use crate::model::{Model, Screen};

pub(super) fn draw(model: &Model, canvas: &mut Canvas, area: Rect) {
    let theme = canvas.theme;
    let area = canvas.pane("Keys", true, area);
    let mut lines =
        vec![Line::raw("Up and Down scroll. Settings can change the keys of the actions at the right.")];
    let mut section = |title: &str, rows: &mut dyn Iterator<Item = &'static KeyRow>| {
        lines.push(Line::default());
        lines.push(Line::styled(title.to_owned(), theme.accent()));
        lines.extend(rows.map(|row| {
            let label = Span::styled(format!("  {:<10} ", row.label()), theme.accent());
            let mut line = Line::from_iter([label, Span::raw(row.does)]);
            if !row.action.is_fixed() {
                push_right(&mut line, Span::styled(row.action.name(), theme.quiet()), area.width);
            }
            line
        }));
    };
    let rows = model.keys.rows();
    for (title, when) in [
        ("Everywhere; characters only outside of fields", When::Always),
        ("Outside of fields", When::Browsing),
        ("In a field", When::Typing),
    ] {
        section(title, &mut rows.iter().filter(|row| row.screens.is_empty() && row.when == when));
    }
    for screen in Screen::EVERY {
        let mut rows = rows.iter().filter(|row| row.screens.contains(&screen)).peekable();
        if rows.peek().is_some() {
            section(screen.title(), &mut rows);
        }
    }
    let last = (lines.len() as u16).saturating_sub(area.height);
    canvas.draw(Paragraph::new(lines).scroll((model.help_scroll.min(last), 0)), area);
}
