//! The menu of profiles with their servers.

use ratatui::layout::{Constraint, Layout};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::canvas::Canvas;
use super::parts::{MARK, error_line};
use crate::model::answer::Answer;
use crate::model::{Model, ProfileMenu, YES};

pub(super) fn draw(model: &Model, menu: &ProfileMenu, canvas: &mut Canvas) {
    let area = canvas.popup("Profiles", 76, 14);
    let [field, _, list, hint] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(2),
    ])
    .areas(area);
    canvas.field(&menu.list.field, true, field);
    let theme = canvas.theme;
    let profiles = menu.matching();
    match &menu.choices {
        Answer::None | Answer::Waiting { .. } => canvas.draw(Line::raw("reading …"), list),
        Answer::Failed(reason) => canvas.text(vec![error_line(reason, theme)], list),
        Answer::Done(all) if all.is_empty() => {
            canvas.text(vec![Line::raw("No profile is stored; 'trefoil-tui setup URL' stores one.")], list);
        }
        Answer::Done(_) if profiles.is_empty() => {
            canvas.text(vec![Line::raw("No profile matches this text.")], list);
        }
        Answer::Done(_) => canvas.list(profiles.len(), menu.list.selected, list, |index| {
            let choice = profiles[index];
            let selected = index == menu.list.selected;
            let style = if selected { theme.accent() } else { Style::new() };
            let name = choice.name.as_deref().unwrap_or("(command line)");
            let open = if choice.name == model.about.profile { "  (open)" } else { "" };
            Line::from(vec![
                Span::styled(if selected { MARK } else { "  " }, theme.accent()),
                Span::styled(format!("{name:<16} "), style),
                Span::styled(format!("{}{open}", choice.server), theme.quiet()),
            ])
        }),
    }
    let hint_line = match &menu.to_confirm {
        Some(pending) => {
            let text = format!("{} Press {YES} to change the profile.", pending.ends);
            Line::styled(text, theme.warning())
        }
        None => Line::styled("Enter opens the profile, and Esc closes the menu.", theme.quiet()),
    };
    canvas.text(vec![hint_line], hint);
}
