//! The command palette: all actions that match a text, with their names in the settings, or the reason if one
//! is not possible now, and earlier questions.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::canvas::Canvas;
use super::parts::{MARK, push_right};
use super::theme::Theme;
use crate::commands::{self, Command};
use crate::history::PastQuestion;
use crate::model::{Model, SearchList};

pub(super) fn draw(model: &Model, palette: &SearchList, canvas: &mut Canvas) {
    let list = canvas.search_popup("Commands", 76, 18, palette);
    let rows = commands::matching(model, palette.field.text());
    if rows.is_empty() {
        canvas.text(vec![Line::raw("No command contains this text.")], list);
        return;
    }
    let theme = canvas.theme;
    canvas.list(rows.len(), palette.selected, list, |index| {
        let selected = index == palette.selected;
        let mark = Span::styled(if selected { MARK } else { "  " }, theme.accent());
        let (row, place) = match &rows[index] {
            Command::Here(row) => (*row, String::new()),
            Command::On(screen, row) => (*row, format!("{}: ", screen.title())),
            Command::Question(question) => return question_line(question, mark, selected, theme),
        };
        // The state of another screen may allow the action after it is opened.
        let reason = commands::unavailable(model, row.action).filter(|_| place.is_empty());
        let style = match (&reason, selected) {
            (Some(_), _) => theme.quiet(),
            (None, true) => theme.accent(),
            (None, false) => Style::new(),
        };
        let mut line = Line::from(vec![
            mark,
            Span::styled(format!("{:<10} ", row.label()), theme.accent()),
            Span::styled(place, theme.quiet()),
            Span::styled(row.does, style),
        ]);
        match reason {
            Some(reason) => line.push_span(Span::styled(format!(" ({reason})"), theme.quiet())),
            None => push_right(&mut line, Span::styled(row.action.name(), theme.quiet()), list.width),
        }
        line
    });
}

fn question_line<'a>(question: &PastQuestion, mark: Span<'a>, selected: bool, theme: Theme) -> Line<'a> {
    let style = if selected { theme.accent() } else { Style::new() };
    Line::from(vec![
        mark,
        Span::styled(format!("{:<10} ", question.operation), theme.accent()),
        Span::styled(question.summary(), style),
        Span::styled(format!("  {}", question.answer), theme.quiet()),
    ])
}
