//! The two screens of terminology operations: form, question and answer.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::{ColorTheme, clock, draw_form, draw_text, error_line};
use crate::api::{SubsumesAnswer, SubsumesQuery, ValidateCode, ValidationAnswer};
use crate::model::{Answer, Model, Question, TerminologyScreen};

pub(super) fn draw_validate(model: &Model, theme: ColorTheme, frame: &mut Frame, area: Rect) {
    let screen = Screen {
        operation: "POST ValueSet/$validate-code",
        prompt: "Is this code in that value set? Press Enter to ask.",
        describe: |question: &ValidateCode| {
            let set = if question.id.is_empty() { &question.url } else { &question.id };
            format!("{}#{} in {set}", question.system, question.code)
        },
        answer: validation_lines,
    };
    screen.draw(model, &model.validate, theme, frame, area);
}

pub(super) fn draw_subsumes(model: &Model, theme: ColorTheme, frame: &mut Frame, area: Rect) {
    let screen = Screen {
        operation: "GET CodeSystem/$subsumes",
        prompt: "Does code A subsume code B? Press Enter to ask.",
        describe: |question: &SubsumesQuery| {
            let system = if question.id.is_empty() { &question.system } else { &question.id };
            format!("{} and {} in {system}", question.code_a, question.code_b)
        },
        answer: subsumes_lines,
    };
    screen.draw(model, &model.subsumes, theme, frame, area);
}

fn validation_lines<'a>(
    question: &ValidateCode,
    found: &'a ValidationAnswer,
    theme: ColorTheme,
) -> Vec<Line<'a>> {
    let code = &question.code;
    let mut lines = vec![if found.result {
        Line::styled(format!("Yes: {code} is in the value set (result = true)"), theme.good())
    } else {
        Line::styled(format!("No: {code} is not confirmed (result = false)"), theme.bad())
    }];
    let texts = [
        ("display", &found.display),
        ("code", &found.code),
        ("system", &found.system),
        ("version", &found.version),
        ("message", &found.message),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            lines.push(Line::raw(format!("  {name:<8} {text}")));
        }
    }
    for issue in &found.issues {
        let style = if issue.severity == "error" { theme.bad() } else { theme.accent() };
        lines.push(Line::styled(format!("  {}", issue.sentence()), style));
    }
    lines
}

fn subsumes_lines<'a>(
    question: &SubsumesQuery,
    found: &'a SubsumesAnswer,
    theme: ColorTheme,
) -> Vec<Line<'a>> {
    vec![
        Line::styled(format!("outcome = {}", found.outcome), theme.good()),
        Line::raw(format!("  {}", found.sentence(&question.code_a, &question.code_b))),
    ]
}

/// Texts of one screen.
struct Screen<Q, A> {
    /// Method and operation.
    operation: &'static str,
    /// Text before the first question.
    prompt: &'static str,
    /// Returns the question in a few words.
    describe: fn(&Q) -> String,
    /// Returns the answer.
    answer: for<'a> fn(&Q, &'a A, ColorTheme) -> Vec<Line<'a>>,
}

impl<Q: Question, A> Screen<Q, A> {
    fn draw(
        &self,
        model: &Model,
        state: &TerminologyScreen<Q, A>,
        theme: ColorTheme,
        frame: &mut Frame,
        area: Rect,
    ) {
        let rest = draw_form(&state.form, model.typing, theme, frame, area);
        let token = model.token_choice();
        let mut lines = vec![
            Line::styled(format!("{} as {}", self.operation, token.name), theme.quiet()),
            Line::default(),
        ];
        let Some(sent) = &state.sent else {
            lines.push(Line::raw(self.prompt));
            draw_text(lines, frame, rest);
            return;
        };
        if state.is_stale(&token) {
            lines.push(Line::styled(
                "The form or the token has changed since this question. Press Enter to ask again.",
                theme.stale(),
            ));
        }
        match &sent.answer {
            Answer::Done(found) => lines.extend((self.answer)(&sent.question, found, theme)),
            Answer::Failed(reason) => lines.push(error_line(reason, theme)),
            Answer::Waiting | Answer::None => lines.push(Line::raw("Waiting for the response …")),
        }
        lines.push(Line::default());
        lines.push(Line::styled(
            format!("{} UTC  {}", clock(sent.sent_at), (self.describe)(&sent.question)),
            theme.quiet(),
        ));
        lines
            .push(Line::styled(format!("asked {} as {}", sent.token.server, sent.token.name), theme.quiet()));
        draw_text(lines, frame, rest);
    }
}
