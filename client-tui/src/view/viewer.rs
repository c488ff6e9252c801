//! The viewer of exported files: the files, the lines of one file, and one resource.

use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::canvas::Canvas;
use super::json::json_line;
use super::parts::{MARK, error_line};
use super::theme::Theme;
use crate::model::{ClickTarget, CodeCheck, Model, ResourceDetail, Viewer};

pub(super) fn draw(model: &Model, canvas: &mut Canvas, area: Rect) {
    let Some(viewer) = &model.export.viewer else { return };
    let [head, filter, body] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Min(0)]).areas(area);
    draw_head(viewer, canvas, head);
    canvas.form_rows(&viewer.filter, model.typing, filter);
    match &viewer.detail {
        Some(detail) if canvas.is_wide() => {
            let [list, text] = canvas.split(body, 0);
            let list = canvas.pane("Lines", false, list);
            draw_list(viewer, canvas, list);
            let text = canvas.pane("Resource", true, text);
            draw_detail(detail, canvas, text);
        }
        Some(detail) => draw_detail(detail, canvas, body),
        None => {
            let body = canvas.pane("Lines", true, body);
            draw_list(viewer, canvas, body);
        }
    }
}

fn draw_head(viewer: &Viewer, canvas: &mut Canvas, area: Rect) {
    let Some(file) = viewer.files.get(viewer.file) else { return };
    let theme = canvas.theme;
    let lines = match viewer.lines {
        None => "reading …".to_owned(),
        Some(0) => "no lines".to_owned(),
        Some(lines) => format!("line {} of {lines}", viewer.selected + 1),
    };
    let place = format!("  file {} of {}, {lines}", viewer.file + 1, viewer.files.len());
    canvas.draw(
        Line::from(vec![Span::styled(file.name.clone(), theme.accent()), Span::styled(place, theme.quiet())]),
        area,
    );
}

/// Draws the rows around the selected line.
fn draw_list(viewer: &Viewer, canvas: &mut Canvas, area: Rect) {
    let theme = canvas.theme;
    let half = u64::from(area.height) / 2;
    let last_top = viewer.lines.unwrap_or(0).saturating_sub(u64::from(area.height));
    let top = viewer.selected.saturating_sub(half).min(last_top);
    let id_width = viewer.page.rows.iter().map(|row| row.id.chars().count()).max().unwrap_or(0).min(36);
    for (position, line_area) in (top..).zip(area.rows()) {
        let Some(index) = position.checked_sub(viewer.page.first) else { continue };
        let Some(row) = viewer.page.rows.get(index as usize) else { break };
        let selected = position == viewer.selected;
        let style = if selected { theme.accent() } else { Style::new() };
        canvas.draw(
            Line::from(vec![
                Span::styled(if selected { MARK } else { "  " }, theme.accent()),
                Span::styled(format!("{:<id_width$.36}  ", row.id), style),
                Span::raw(row.text.as_str()),
            ]),
            line_area,
        );
        canvas.regions.push((line_area, ClickTarget::Row(index as usize)));
    }
}

fn draw_detail(detail: &ResourceDetail, canvas: &mut Canvas, area: Rect) {
    let theme = canvas.theme;
    let mut lines = Vec::new();
    if let Some(reference) = detail.references.get(detail.selected_reference) {
        lines.push(Line::from(vec![
            Span::styled(
                format!("reference {} of {}  ", detail.selected_reference + 1, detail.references.len()),
                theme.quiet(),
            ),
            Span::styled(reference.as_str(), theme.accent()),
        ]));
    }
    match &detail.codes {
        None => {}
        Some(Err(reason)) => lines.push(error_line(reason, theme)),
        Some(Ok(codes)) if codes.is_empty() => {
            lines.push(Line::styled(
                "no element with a required value set that this program knows",
                theme.quiet(),
            ));
        }
        Some(Ok(codes)) => lines.extend(codes.iter().map(|code| code_line(code, theme))),
    }
    if detail.selection.is_some() {
        lines.push(Line::styled("the part that the filter selects", theme.quiet()));
    }
    if !lines.is_empty() {
        lines.push(Line::default());
    }
    let text = detail.selection.as_ref().unwrap_or(&detail.text);
    lines.extend(text.lines().map(|line| json_line(line, theme)));
    canvas.scrolled_text(lines, detail.scroll, area);
}

fn code_line(check: &CodeCheck, theme: Theme) -> Line<'_> {
    let set = check.value_set.rsplit('/').next().unwrap_or_default();
    let (result, style) = match &check.result {
        Ok(true) => (format!("in {set}"), theme.good()),
        Ok(false) => (format!("NOT in {set}"), theme.bad()),
        Err(reason) => (format!("unknown: {reason}"), theme.warning()),
    };
    Line::from(vec![Span::raw(format!("{} {}  ", check.path, check.code)), Span::styled(result, style)])
}
