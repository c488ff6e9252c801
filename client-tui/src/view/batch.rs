//! The batch view: the file, the progress, and a table of results.

use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Gauge;

use super::canvas::Canvas;
use super::parts::{MARK, error_line};
use super::theme::Theme;
use crate::batch::{BatchResult, BatchVerdict};
use crate::model::{BatchState, BatchView, Model};

pub(super) fn draw(model: &Model, canvas: &mut Canvas, area: Rect) {
    let batch = &model.batch;
    // The form, and two lines of progress.
    let fields = batch.form.fields.len() as u16;
    let [left, right] = canvas.split(area, (fields + 2).min((area.height / 2).max(1)));
    let pane = canvas.pane("Batch", model.typing, left);
    let progress = if canvas.is_wide() {
        canvas.form(&batch.form, model.typing, pane)
    } else {
        let [form, progress] =
            Layout::vertical([Constraint::Min(0), Constraint::Length(2.min(pane.height / 2))]).areas(pane);
        canvas.form_rows(&batch.form, model.typing, form);
        progress
    };
    draw_progress(batch, canvas, progress);
    let title = if batch.only_failures { "Results that are not valid" } else { "Results" };
    let right = canvas.pane(title, !model.typing, right);
    draw_results(batch, canvas, right);
}

fn draw_progress(batch: &BatchView, canvas: &mut Canvas, area: Rect) {
    let theme = canvas.theme;
    let line = match &batch.state {
        BatchState::None => Line::raw("Press Enter to validate each code of the file."),
        BatchState::Running | BatchState::Done => Line::raw(batch.summary.sentence()),
        BatchState::Stopped => {
            Line::styled(format!("Stopped. {}", batch.summary.sentence()), theme.warning())
        }
        BatchState::Failed(reason) => error_line(reason, theme),
    };
    if matches!(batch.state, BatchState::None | BatchState::Failed(_)) {
        canvas.text(vec![line], area);
        return;
    }
    let percent = (batch.summary.total * 100).checked_div(batch.rows).unwrap_or(0).min(100);
    let gauge = Gauge::default()
        .gauge_style(theme.accent())
        .percent(percent as u16)
        .label(format!("{} of {}", batch.summary.total, batch.rows))
        .use_unicode(true);
    canvas.draw(gauge, Rect { height: area.height.min(1), ..area });
    let below = Rect { y: area.y + area.height.min(1), height: area.height.saturating_sub(1), ..area };
    canvas.text(vec![line], below);
}

fn draw_results(batch: &BatchView, canvas: &mut Canvas, area: Rect) {
    let theme = canvas.theme;
    let [head, list, detail] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(area.height.min(12) / 4),
    ])
    .areas(area);
    let count = batch.visible_count();
    if count == 0 {
        let text = if batch.only_failures { "No row is invalid so far." } else { "" };
        canvas.text(vec![Line::styled(text, theme.quiet())], head);
        return;
    }
    // Only the rows around the selected one are drawn.
    let first = (batch.selected + 1).saturating_sub(usize::from(list.height));
    let rows: Vec<_> = batch.visible().skip(first).take(usize::from(list.height).max(1)).collect();
    let width = rows.iter().map(|row| row.code.chars().count()).max().unwrap_or(0).max(4);
    canvas.draw(
        Line::styled(format!("     row  result   {:<width$}  explanation", "code"), theme.quiet()),
        head,
    );
    for ((at, row), place) in (first..).zip(&rows).zip(list.rows()) {
        canvas.draw(result_line(row, at == batch.selected, width, theme), place);
        canvas.clickable_row(place, at);
    }
    if let Some(row) = rows.get(batch.selected - first) {
        let text = format!("{}#{} in {}: {}", row.system, row.code, row.url, row.explanation());
        canvas.text(vec![Line::styled(text, theme.quiet())], detail);
    }
}

fn result_line(row: &BatchResult, selected: bool, width: usize, theme: Theme) -> Line<'_> {
    let style = match row.verdict() {
        BatchVerdict::Valid => theme.good(),
        BatchVerdict::Invalid | BatchVerdict::Failed => theme.bad(),
    };
    Line::from(vec![
        Span::styled(if selected { MARK } else { "  " }, theme.accent()),
        Span::styled(format!("{:>6}  ", row.row), theme.quiet()),
        Span::styled(format!("{:<7}  ", row.verdict().word()), style),
        Span::styled(format!("{:<width$}  ", row.code), if selected { theme.accent() } else { Style::new() }),
        Span::raw(row.explanation()),
    ])
}
