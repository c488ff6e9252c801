//! The search in the visible list: a field, and the rows that match.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::canvas::Canvas;
use super::parts::{MARK, shorten_middle};
use crate::model::{Model, SearchList};

pub(super) fn draw(model: &Model, search: &SearchList, canvas: &mut Canvas) {
    let list = canvas.search_popup("Find in this list", 110, 20, search);
    let rows = model.matching_rows(search.field.text());
    if rows.is_empty() {
        canvas.text(vec![Line::raw("No row matches this text.")], list);
        return;
    }
    let theme = canvas.theme;
    canvas.list(rows.len(), search.selected, list, |index| {
        let is_selected = index == search.selected;
        let style = if is_selected { theme.accent() } else { Style::new() };
        let text = shorten_middle(&rows[index].1, usize::from(list.width.saturating_sub(2)));
        Line::from(vec![
            Span::styled(if is_selected { MARK } else { "  " }, theme.accent()),
            Span::styled(text, style),
        ])
    });
}
