//! The screen of terminology operations: the operations, and form, question and answer of the visible one.

use jiff::Timestamp;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

use super::canvas::Canvas;
use super::compared::{self, Comparison};
use super::parts::{WAITING, clock, error_line, push_right, shorten_middle, waiting_line};
use super::theme::Theme;
use super::wrap::wrapped_rows;
use crate::api::{
    EXPANSION_PAGE, ExpandQuery, Expansion, LookupAnswer, LookupQuery, SubsumesAnswer, SubsumesQuery,
    ValidateCode, ValidationAnswer,
};
use crate::history::last_segment;
use crate::keys::Action;
use crate::model::answer::Answer;
use crate::model::{ClickTarget, Model, Operation, OperationState, Question};

pub(super) fn draw(model: &Model, canvas: &mut Canvas, area: Rect) {
    let [operations, _, rest] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(u16::from(area.height > 24)),
        Constraint::Min(0),
    ])
    .areas(area);
    canvas.draw(operation_line(model, canvas.theme), operations);
    match model.codes.operation {
        Operation::ValidateCode => draw_operation(model, &model.codes.validate, canvas, rest),
        Operation::Subsumes => draw_operation(model, &model.codes.subsumes, canvas, rest),
        Operation::Lookup => draw_operation(model, &model.codes.lookup, canvas, rest),
        Operation::Expand => draw_operation(model, &model.codes.expand, canvas, rest),
    }
}

fn operation_line(model: &Model, theme: Theme) -> Line<'static> {
    Line::from_iter(Operation::ALL.into_iter().map(|operation| {
        if operation == model.codes.operation {
            Span::styled(format!("›{} ", operation.name()), theme.accent())
        } else {
            Span::styled(format!(" {} ", operation.name()), theme.quiet())
        }
    }))
}

fn draw_operation<Q: ShownQuestion<A>, A>(
    model: &Model,
    state: &OperationState<Q, A>,
    canvas: &mut Canvas,
    area: Rect,
) {
    let theme = canvas.theme;
    let token = model.token_choice();
    // The form is shown until it was sent, and while it is edited.
    let sent_question = state.sent.as_ref().filter(|_| !model.typing && !state.is_stale(&token));
    let (question_area, answer_area) = match sent_question {
        Some(sent_question) => {
            let [line, rest] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
            let key = model.keys.label(Action::NextField);
            let edits = format!("{key} edits ");
            let space = usize::from(line.width).saturating_sub(edits.width() + 3);
            let described = shorten_middle(&sent_question.question.describe(), space);
            let mut question = Line::styled(format!(" {described}"), theme.strong());
            push_right(&mut question, Span::styled(edits, theme.quiet()), line.width);
            canvas.draw(question, line);
            canvas.regions.push((line, ClickTarget::Field(0)));
            (None, rest)
        }
        None => {
            let fields = state.form.fields.len() as u16;
            // Half of a low screen remains for the answer.
            let [above, below] = canvas.split(area, fields.min((area.height / 2).max(1)));
            (Some(above), below)
        }
    };
    let head = Line::styled(format!("{} as {}", Q::REQUEST, token.name), theme.quiet());
    let mut lines = Vec::new();
    if let Some(pane) = question_area {
        let form_area = canvas.pane("Question", model.typing, pane);
        if canvas.is_wide() {
            let rest = canvas.form(&state.form, model.typing, form_area);
            canvas.text(vec![head], rest);
        } else {
            canvas.form_rows(&state.form, model.typing, form_area);
            lines.extend([head, Line::default()]);
        }
    }
    let right = canvas.pane("Answer", !model.typing, answer_area);
    if let (Some(question), Some(other)) = (&state.sent, &state.other) {
        let here = (
            question.token.server.as_str(),
            answer_lines(&question.question, &question.answer, model.now, theme),
        );
        let there =
            (other.server.as_str(), answer_lines(&question.question, &other.answer, model.now, theme));
        let comparison = Comparison {
            answers: [here, there],
            is_complete: !question.answer.is_pending() && !other.answer.is_pending(),
            is_stale: state.is_stale(&token),
            command: state.sent_command(&model.about).unwrap_or_default(),
        };
        compared::draw(comparison, model.codes.scroll, canvas, right);
        return;
    }
    let Some(question) = &state.sent else {
        lines.push(Line::raw(Q::PROMPT));
        canvas.text(lines, right);
        return;
    };
    if state.is_stale(&token) {
        lines.push(Line::styled(
            "The form or the token has changed since this question. Press Enter to ask again.",
            theme.warning(),
        ));
    }
    lines.extend(answer_lines(&question.question, &question.answer, model.now, theme));
    let command = state.sent_command(&model.about).unwrap_or_default();
    let request =
        format!("{}  {} as {}", clock(question.sent_at, &model.about.zone), Q::REQUEST, question.token.name);
    let foot = [request, format!("$ {command}")];
    let height: usize = foot.iter().map(|line| wrapped_rows(line, right.width.into())).sum();
    let height = if right.height < 10 { 0 } else { height as u16 };
    let [answer, below] = Layout::vertical([Constraint::Min(0), Constraint::Length(height)]).areas(right);
    canvas.scrolled_text(lines, model.codes.scroll, answer);
    canvas.text(foot.map(|line| Line::styled(line, theme.quiet())).into(), below);
}

fn answer_lines<'a, Q: ShownQuestion<A>, A>(
    question: &Q,
    response: &'a Answer<A>,
    now: Timestamp,
    theme: Theme,
) -> Vec<Line<'a>> {
    match response {
        Answer::Done(response) => question.answer(response, theme),
        Answer::Failed(reason) => vec![error_line(reason, theme)],
        Answer::Waiting { since } => vec![waiting_line(WAITING, *since, now, theme)],
        Answer::None => Vec::new(),
    }
}

/// Draws the field of the other server over the screen.
pub(super) fn draw_other_server(model: &Model, canvas: &mut Canvas) {
    let area = canvas.popup("Compare with another server", 76, 7);
    let [field, _, text] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Min(0)]).areas(area);
    canvas.field(&model.codes.other_server, true, field);
    let hint = "Name of a profile, or the base address of a FHIR server that needs no token. Empty: only this server.";
    canvas.text(vec![Line::styled(hint, canvas.theme.quiet())], text);
}

/// A question that the screen can show with its answer.
trait ShownQuestion<A>: Question {
    const REQUEST: &'static str;
    /// Text before the first question.
    const PROMPT: &'static str;

    /// The question in a few words. The command below the answer has the whole URLs.
    fn describe(&self) -> String;

    fn answer<'a>(&self, answer_given: &'a A, theme: Theme) -> Vec<Line<'a>>;
}

impl ShownQuestion<ValidationAnswer> for ValidateCode {
    const REQUEST: &'static str = "POST $validate-code";
    const PROMPT: &'static str = "Is this code in that value set, or in its code system? Press Enter to ask.";

    fn describe(&self) -> String {
        let set = match (self.is_about_system(), self.id.is_empty()) {
            (true, _) => return format!("{}#{}", last_segment(&self.system), self.code),
            (_, true) => last_segment(&self.url),
            (_, false) => &self.id,
        };
        format!("{}#{} in {set}", last_segment(&self.system), self.code)
    }

    fn answer<'a>(&self, response: &'a ValidationAnswer, theme: Theme) -> Vec<Line<'a>> {
        let code = &self.code;
        let place = if self.is_about_system() { "a code of the code system" } else { "in the value set" };
        let mut lines = vec![if response.result {
            Line::styled(format!("Yes: {code} is {place} (result = true)"), theme.good())
        } else {
            Line::styled(format!("No: {code} is not confirmed (result = false)"), theme.bad())
        }];
        lines.extend(facts([
            ("display", &response.display),
            ("code", &response.code),
            ("system", &response.system),
            ("version", &response.version),
            ("message", &response.message),
        ]));
        for issue in &response.issues {
            let style = if issue.severity == "error" { theme.bad() } else { theme.warning() };
            lines.push(Line::styled(format!("  {}", issue.sentence()), style));
        }
        lines
    }
}

impl ShownQuestion<SubsumesAnswer> for SubsumesQuery {
    const REQUEST: &'static str = "GET CodeSystem/$subsumes";
    const PROMPT: &'static str = "Does code A subsume code B? Press Enter to ask.";

    fn describe(&self) -> String {
        let system = if self.id.is_empty() { last_segment(&self.system) } else { &self.id };
        format!("{} and {} in {system}", self.code_a, self.code_b)
    }

    fn answer<'a>(&self, response: &'a SubsumesAnswer, theme: Theme) -> Vec<Line<'a>> {
        vec![
            Line::styled(format!("outcome = {}", response.outcome), theme.good()),
            Line::raw(format!("  {}", response.sentence(&self.code_a, &self.code_b))),
        ]
    }
}

impl ShownQuestion<LookupAnswer> for LookupQuery {
    const REQUEST: &'static str = "GET CodeSystem/$lookup";
    const PROMPT: &'static str = "Press Enter to look up this code.";

    fn describe(&self) -> String {
        format!("{}#{}", last_segment(&self.system), self.code)
    }

    fn answer<'a>(&self, response: &'a LookupAnswer, theme: Theme) -> Vec<Line<'a>> {
        let title = response.display.as_deref().unwrap_or("(no display)");
        let mut lines = vec![Line::styled(title, theme.good())];
        lines.extend(facts([
            ("system", &response.name),
            ("version", &response.version),
            ("defined", &response.definition),
        ]));
        for designation in &response.designations {
            let language = designation.language.as_deref().unwrap_or("-");
            let usage = designation.r#use.as_ref().map(|usage| format!(" ({usage})")).unwrap_or_default();
            lines.push(Line::raw(format!("  {language:<8} {}{usage}", designation.value)));
        }
        for property in &response.properties {
            let description =
                property.description.as_ref().map(|text| format!("  {text}")).unwrap_or_default();
            lines.push(Line::from(vec![
                Span::styled(format!("  {:<16} ", property.code), theme.accent()),
                Span::raw(format!("{}{description}", property.value)),
            ]));
        }
        lines
    }
}

impl ShownQuestion<Expansion> for ExpandQuery {
    const REQUEST: &'static str = "GET ValueSet/$expand";
    const PROMPT: &'static str = "Press Enter to list the codes of this value set.";

    fn describe(&self) -> String {
        format!("codes of {}", last_segment(&self.url))
    }

    fn answer<'a>(&self, response: &'a Expansion, theme: Theme) -> Vec<Line<'a>> {
        let total = response.total.map_or_else(|| "an unknown number".to_owned(), |total| total.to_string());
        let mut lines =
            vec![Line::styled(format!("{} of {total} codes", response.codes.len()), theme.good())];
        let width = response.codes.iter().map(|code| code.code.len()).max().unwrap_or(0);
        let code_lines = response.codes.iter().map(|code| {
            let inactive = if code.inactive { " (inactive)" } else { "" };
            let display = code.display.as_deref().unwrap_or_default();
            Line::from(vec![
                Span::styled(format!("  {:<width$}  ", code.code), theme.accent()),
                Span::raw(format!("{display}{inactive}")),
            ])
        });
        lines.extend(code_lines);
        if response.codes.len() as u64 >= EXPANSION_PAGE {
            lines.push(Line::styled("  Set offset for the next page.", theme.quiet()));
        }
        lines
    }
}

/// A line for each fact that is known.
fn facts<'a, const N: usize>(
    facts: [(&'static str, &'a Option<String>); N],
) -> impl Iterator<Item = Line<'a>> {
    facts.into_iter().filter_map(|(name, text)| Some(Line::raw(format!("  {name:<8} {}", text.as_ref()?))))
}
