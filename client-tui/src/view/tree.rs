//! The hierarchy browser: a concept between the columns of the concepts above and below it, or a path, and
//! the form of the question.

use jiff::Timestamp;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::canvas::Canvas;
use super::parts::{MARK, WAITING, clock, error_line, list_line, push_right, waiting_line};
use super::theme::Theme;
use super::wrap::wrapped_rows;
use crate::api::{ConceptLabel, HierarchyConcept, HierarchyPath, HierarchyQuery};
use crate::keys::Action;
use crate::model::answer::Answer;
use crate::model::{ClickTarget, Model, Question, SentQuestion, TreeContent};

/// Minimum width for three columns.
const COLUMNS_WIDTH: u16 = 72;

enum TreeRow<'a> {
    /// A concept that can be opened.
    Concept {
        branch: String,
        concept: &'a ConceptLabel,
    },
    Text(Line<'a>),
}

pub(super) fn draw(model: &Model, canvas: &mut Canvas, area: Rect) {
    let tree = &model.tree;
    let answered = match &tree.shown {
        TreeContent::Concept(sent) if !model.typing => match &sent.answer {
            Answer::Done(concept) => Some((sent, concept)),
            _ => None,
        },
        _ => None,
    };
    if let Some((sent, concept)) = answered {
        draw_concept(model, sent, concept, canvas, area);
        return;
    }
    let fields = tree.form.fields.len() as u16;
    let [left, right] = canvas.split(area, fields.min((area.height / 2).max(1)));
    let form_area = canvas.pane("Code system", model.typing, left);
    let theme = canvas.theme;
    if canvas.is_wide() {
        let rest = canvas.form(&tree.form, model.typing, form_area);
        canvas.text(vec![head(model, theme)], rest);
    } else {
        canvas.form_rows(&tree.form, model.typing, form_area);
    }
    let right = canvas.pane("Hierarchy", !model.typing, right);
    let (rows, facts) = match &tree.shown {
        TreeContent::Nothing => {
            let prompt = "Press Enter to show this code with the concepts above and below it.";
            (vec![TreeRow::Text(Line::raw(prompt))], Vec::new())
        }
        TreeContent::Concept(sent) => {
            (answer_rows(sent, model.now, theme, concept_rows), question(model, sent, theme))
        }
        TreeContent::Path(sent) => {
            (answer_rows(sent, model.now, theme, path_rows), question(model, sent, theme))
        }
    };
    // Both lines are wrapped.
    let height = (2 * facts.len() as u16).min(right.height / 3);
    let [list, facts_area] = Layout::vertical([Constraint::Min(0), Constraint::Length(height)]).areas(right);
    // An error is wrapped and can be scrolled, as on the other screens; concepts have one row each.
    match tree.error() {
        Some(reason) => canvas.scrolled_text(vec![error_line(reason, theme)], tree.scroll, list),
        None => draw_rows(&rows, tree.selected, canvas, list),
    }
    canvas.text(facts, facts_area);
}

/// Draws a concept between the concepts above and below it: in three columns, or as a tree if the terminal is
/// narrow.
fn draw_concept(
    model: &Model,
    sent_question: &SentQuestion<HierarchyQuery, HierarchyConcept>,
    concept: &HierarchyConcept,
    canvas: &mut Canvas,
    area: Rect,
) {
    let theme = canvas.theme;
    let facts = question(model, sent_question, theme);
    let height: usize = facts.iter().map(|line| wrapped_rows(&line.to_string(), area.width.into())).sum();
    let height = if area.height < 14 { 0 } else { height as u16 };
    let [line, columns, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(height)]).areas(area);
    let mut head = Line::styled(
        format!(" {}#{}", sent_question.question.system, sent_question.question.code),
        theme.strong(),
    );
    let key = model.keys.label(Action::NextField);
    push_right(&mut head, Span::styled(format!("{key} edits "), theme.quiet()), line.width);
    canvas.draw(head, line);
    canvas.regions.push((line, ClickTarget::Field(0)));
    canvas.text(facts, foot);
    if area.width < COLUMNS_WIDTH {
        draw_rows(&concept_rows(concept, theme), model.tree.selected, canvas, columns);
        return;
    }
    let [above, own, below] = Layout::horizontal([
        Constraint::Percentage(31),
        Constraint::Percentage(31),
        Constraint::Percentage(38),
    ])
    .areas(columns);
    let parents = concept.parents.len();
    let is_below = model.tree.selected >= parents;
    let title = |name: &str, count: usize| format!("{name} {count}");
    let above = canvas.pane(&title("Above", parents), !is_below, above);
    draw_neighbours(&concept.parents, 0, model.tree.selected, canvas, above);
    let own = canvas.pane("Concept", false, own);
    let mut lines = vec![
        Line::styled(concept.display.clone().unwrap_or_else(|| concept.code.clone()), theme.good()),
        Line::styled(concept.code.clone(), theme.accent()),
    ];
    let source = concept.name.iter().chain(&concept.version);
    lines.extend(source.map(|text| Line::styled(text.clone(), theme.quiet())));
    if let Some(definition) = &concept.definition {
        lines.extend([Line::default(), Line::raw(definition.clone())]);
    }
    canvas.text(lines, own);
    let below = canvas.pane(&title("Below", concept.children.len()), is_below, below);
    draw_neighbours(&concept.children, parents, model.tree.selected, canvas, below);
}

/// Draws concepts as a list. `first` is the number of the first one.
fn draw_neighbours(
    concepts: &[ConceptLabel],
    first: usize,
    selected: usize,
    canvas: &mut Canvas,
    area: Rect,
) {
    let theme = canvas.theme;
    if concepts.is_empty() {
        canvas.draw(Line::styled("none", theme.quiet()), area);
        return;
    }
    let rows = concepts.iter().enumerate().map(|(index, concept)| {
        let number = first + index;
        let name = concept.display.as_ref().unwrap_or(&concept.code).clone();
        (Some(number), list_line(name, concept.code.clone(), number == selected, area.width, theme))
    });
    canvas.numbered_rows(rows.collect(), selected, area);
}

fn head(model: &Model, theme: Theme) -> Line<'static> {
    let text = format!("GET CodeSystem/$lookup as {}", model.token_choice().name);
    Line::styled(text, theme.quiet())
}

/// Draws the rows around the selected concept. Texts have no number; they are not selected.
fn draw_rows(rows: &[TreeRow<'_>], selected: usize, canvas: &mut Canvas, area: Rect) {
    let theme = canvas.theme;
    let mut numbers = 0..;
    let numbered = rows.iter().map(|row| match row {
        TreeRow::Concept { branch, concept } => {
            let number = numbers.next();
            (number, concept_line(branch, concept, number == Some(selected), theme))
        }
        TreeRow::Text(line) => (None, line.clone()),
    });
    canvas.numbered_rows(numbered.collect(), selected, area);
}

fn concept_line<'a>(branch: &'a str, concept: &'a ConceptLabel, selected: bool, theme: Theme) -> Line<'a> {
    let style = if selected { theme.accent() } else { Style::new() };
    Line::from(vec![
        Span::styled(if selected { MARK } else { "  " }, theme.accent()),
        Span::styled(branch, theme.quiet()),
        Span::styled(concept.code.as_str(), theme.accent()),
        Span::styled(format!("  {}", concept.display.as_deref().unwrap_or_default()), style),
    ])
}

fn answer_rows<'a, Q, A>(
    question: &'a SentQuestion<Q, A>,
    now: Timestamp,
    theme: Theme,
    rows: impl FnOnce(&'a A, Theme) -> Vec<TreeRow<'a>>,
) -> Vec<TreeRow<'a>> {
    match &question.answer {
        Answer::Done(answer) => rows(answer, theme),
        Answer::Failed(reason) => vec![TreeRow::Text(error_line(reason, theme))],
        Answer::Waiting { since } => vec![TreeRow::Text(waiting_line(WAITING, *since, now, theme))],
        Answer::None => Vec::new(),
    }
}

fn concept_rows(parent_concept: &HierarchyConcept, theme: Theme) -> Vec<TreeRow<'_>> {
    let mut rows: Vec<_> = parent_concept
        .parents
        .iter()
        .map(|concept| TreeRow::Concept { branch: String::new(), concept })
        .collect();
    if parent_concept.parents.is_empty() {
        rows.push(TreeRow::Text(Line::styled("  (no concept above)", theme.quiet())));
    }
    rows.push(TreeRow::Text(Line::from(vec![
        Span::styled("  └─ ", theme.quiet()),
        Span::styled(parent_concept.code.as_str(), theme.good()),
        Span::styled(format!("  {}", parent_concept.display.as_deref().unwrap_or_default()), theme.good()),
    ])));
    let last = parent_concept.children.len().saturating_sub(1);
    rows.extend(parent_concept.children.iter().enumerate().map(|(index, concept)| {
        let branch = if index == last { "   └─ " } else { "   ├─ " };
        TreeRow::Concept { branch: branch.to_owned(), concept }
    }));
    if parent_concept.children.is_empty() {
        rows.push(TreeRow::Text(Line::styled("     (no concept below)", theme.quiet())));
    }
    if let Some(definition) = &parent_concept.definition {
        rows.push(TreeRow::Text(Line::default()));
        rows.push(TreeRow::Text(Line::raw(format!("  {definition}"))));
    }
    rows
}

fn path_rows(path: &HierarchyPath, theme: Theme) -> Vec<TreeRow<'_>> {
    let style = if path.chain.is_empty() { theme.warning() } else { theme.good() };
    let mut rows = vec![TreeRow::Text(Line::styled(path.sentence(), style))];
    rows.extend(path.chain.iter().enumerate().map(|(depth, concept)| {
        let branch = match depth {
            0 => String::new(),
            _ => format!("{}└─ ", "   ".repeat(depth - 1)),
        };
        TreeRow::Concept { branch, concept }
    }));
    rows
}

/// The question, its token and server, and the command that does the same.
fn question<Q: Question, A>(
    model: &Model,
    question_sent: &SentQuestion<Q, A>,
    theme: Theme,
) -> Vec<Line<'static>> {
    let command = model.about.command(Q::COMMAND, &question_sent.question.options());
    [
        format!(
            "{}  asked {} as {}",
            clock(question_sent.sent_at, &model.about.zone),
            question_sent.token.server,
            question_sent.token.name
        ),
        format!("$ {command}"),
    ]
    .map(|text| Line::styled(text, theme.quiet()))
    .into()
}
