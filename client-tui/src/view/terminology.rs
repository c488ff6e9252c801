//! The two screens of terminology operations: forms and answers.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::{ColorTheme, bearer_name, draw_form, draw_text, error_line};
use crate::form::Form;
use crate::model::{Answer, Model};

pub(super) fn draw_validate(model: &Model, theme: ColorTheme, frame: &mut Frame, area: Rect) {
    let code = &model.validate.about.0;
    let lines = match &model.validate.answer {
        Answer::Done(found) => {
            let mut lines = vec![if found.result {
                Line::styled(format!("Yes: {code} is in the value set (result = true)"), theme.good())
            } else {
                Line::styled(format!("No: {code} is not confirmed (result = false)"), theme.bad())
            }];
            for (name, text) in [("display", &found.display), ("message", &found.message)] {
                if let Some(text) = text {
                    lines.push(Line::raw(format!("  {name}  {text}")));
                }
            }
            lines
        }
        other => unanswered(other, "Is this code in that value set? Press Enter to ask.", theme),
    };
    draw(model, "POST ValueSet/$validate-code", &model.validate.form, lines, theme, frame, area);
}

pub(super) fn draw_subsumes(model: &Model, theme: ColorTheme, frame: &mut Frame, area: Rect) {
    let (a, b) = &model.subsumes.about;
    let lines = match &model.subsumes.answer {
        Answer::Done(found) => vec![
            Line::styled(format!("outcome = {}", found.outcome), theme.good()),
            Line::raw(format!("  {}", found.sentence(a, b))),
        ],
        other => unanswered(other, "Does code A subsume code B? Press Enter to ask.", theme),
    };
    draw(model, "GET CodeSystem/$subsumes", &model.subsumes.form, lines, theme, frame, area);
}

fn unanswered<'a, T>(answer: &Answer<T>, question: &'static str, theme: ColorTheme) -> Vec<Line<'a>> {
    vec![match answer {
        Answer::Waiting => Line::raw("Waiting for the response …"),
        Answer::Failed(reason) => error_line(reason, theme),
        Answer::None | Answer::Done(_) => Line::raw(question),
    }]
}

fn draw(
    model: &Model,
    operation: &'static str,
    form: &Form,
    answer: Vec<Line<'_>>,
    theme: ColorTheme,
    frame: &mut Frame,
    area: Rect,
) {
    let rest = draw_form(form, model.typing, theme, frame, area);
    let mut lines = vec![Line::styled(format!("{operation} as {}", bearer_name(model)), theme.quiet())];
    lines.push(Line::default());
    lines.extend(answer);
    draw_text(lines, frame, rest);
}
