//! The answers of two servers to one question, with marks at the lines that differ.

use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};

use super::canvas::Canvas;
use super::theme::Theme;

/// Minimum width of an area whose halves are beside each other.
const BESIDE: u16 = 60;
/// Height of the explanation below the answers.
const NOTE: u16 = 3;

pub(super) struct Comparison<'a> {
    /// Names of the servers, and the lines of their answers.
    pub answers: [(&'a str, Vec<Line<'a>>); 2],
    pub is_complete: bool,
    /// Whether the form or the token has changed since the question.
    pub is_stale: bool,
    /// Command that sends the same question.
    pub command: String,
}

/// Draws two answers. The lines are compared if both answers are complete.
pub(super) fn draw(comparison: Comparison<'_>, scroll: u16, canvas: &mut Canvas, area: Rect) {
    let Comparison { answers, is_complete, is_stale, command } = comparison;
    let theme = canvas.theme;
    let note_height = if area.height >= 4 * NOTE { NOTE } else { 0 };
    let [area, note_area] =
        Layout::vertical([Constraint::Min(0), Constraint::Length(note_height)]).areas(area);
    let halves = [Constraint::Fill(1), Constraint::Fill(1)];
    let areas: [Rect; 2] = match area.width >= BESIDE {
        true => Layout::horizontal(halves).spacing(2).areas(area),
        false => Layout::vertical(halves).areas(area),
    };
    let (names, mut lines) = {
        let [here, other] = answers;
        ([here.0, other.0], [here.1, other.1])
    };
    let count = if is_complete { mark_differences(&mut lines, theme) } else { 0 };
    for ((name, lines), area) in names.into_iter().zip(lines).zip(areas) {
        let (note, style) = match is_stale {
            true => ("before the change: ", theme.warning()),
            false => ("", theme.accent()),
        };
        let [head, text] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
        canvas.draw(Line::styled(format!("{note}{name}"), style), head);
        canvas.scrolled_text(lines, scroll, text);
    }
    let verdict = match (is_complete, count) {
        (false, _) => Line::default(),
        (true, 0) => Line::styled("The answers are the same.", theme.good()),
        (true, count) => Line::styled(format!("! marks {count} lines that differ."), theme.warning()),
    };
    canvas.text(vec![verdict, Line::styled(format!("$ {command}"), theme.quiet())], note_area);
}

/// Marks the lines that the other answer does not have, and returns their number.
fn mark_differences(answers: &mut [Vec<Line<'_>>; 2], theme: Theme) -> usize {
    let texts = answers.each_ref().map(|lines| lines.iter().map(Line::to_string).collect::<Vec<_>>());
    let mut count = 0;
    for (lines, other) in answers.iter_mut().zip([&texts[1], &texts[0]]) {
        for line in lines {
            let differs = !other.contains(&line.to_string());
            count += usize::from(differs);
            let mark = if differs { Span::styled("! ", theme.warning()) } else { Span::raw("  ") };
            line.spans.insert(0, mark);
        }
    }
    count
}
