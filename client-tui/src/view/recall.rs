//! The list of earlier questions with their answers, and the details of the selected one.

use ratatui::layout::{Constraint, Layout};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::canvas::Canvas;
use super::parts::MARK;
use crate::history::PastQuestion;
use crate::model::{Model, SearchList, matching_questions};

pub(super) fn draw(model: &Model, recall: &SearchList, canvas: &mut Canvas) {
    let area = canvas.popup("Earlier questions", 110, 24);
    let [field, list, detail] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(area.height.min(12) / 3),
    ])
    .areas(area);
    canvas.field(&recall.field, true, field);
    let questions = matching_questions(model, recall.field.text());
    let Some(selected) = questions.get(recall.selected) else {
        canvas.text(vec![Line::raw("No question matches this text.")], list);
        return;
    };
    let theme = canvas.theme;
    canvas.list(questions.len(), recall.selected, list, |index| {
        let question = questions[index];
        let is_selected = index == recall.selected;
        let style = if question.answer.starts_with("Error") { theme.bad() } else { theme.quiet() };
        Line::from(vec![
            Span::styled(if is_selected { MARK } else { "  " }, theme.accent()),
            Span::styled(format!("{:<14}", question.operation), theme.accent()),
            Span::styled(question.summary(), if is_selected { theme.accent() } else { Style::new() }),
            Span::styled(format!("  {}", question.answer), style),
        ])
    });
    canvas.text(details(selected).map(|text| Line::styled(text, theme.quiet())).collect(), detail);
}

fn details(question: &PastQuestion) -> impl Iterator<Item = String> {
    let time = question.asked_at.strftime("%Y-%m-%d %H:%M UTC");
    let options: Vec<_> = question.options.iter().map(|(name, value)| format!("{name} {value}")).collect();
    [format!("{time}  {}", question.server), options.join(", "), question.answer.clone()].into_iter()
}
