//! The export screen: form, progress and files of an export.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Modifier;
use ratatui::text::Line;
use ratatui::widgets::{Gauge, Paragraph};

use super::{ColorTheme, clock, draw_form, draw_text, error_line};
use crate::api::{ExportManifest, FileProgress, percent};
use crate::model::{Answer, ExportState, Model};

pub(super) fn draw(model: &Model, theme: ColorTheme, frame: &mut Frame, area: Rect) {
    let rest = draw_form(&model.export.form, model.typing, theme, frame, area);
    let backend = model.about.backend_id.as_deref().unwrap_or("none; use --backend-client and --backend-key");
    match &model.export.state {
        ExportState::Idle => {
            let lines = vec![
                Line::styled(format!("Backend client: {backend}"), theme.quiet()),
                Line::default(),
                Line::raw("Press Enter to start. Exports use the token of the backend client."),
            ];
            draw_text(lines, frame, rest);
        }
        ExportState::Starting => draw_text(vec![Line::raw("Starting …")], frame, rest),
        ExportState::Deleted => {
            draw_text(vec![Line::raw("The export was deleted on the server.")], frame, rest)
        }
        ExportState::Failed(reason) => draw_text(vec![error_line(reason, theme)], frame, rest),
        ExportState::Running { status_url, since, progress, next_poll } => {
            let elapsed = (model.now.as_second() - since.as_second()).max(0);
            let text = progress.as_deref().unwrap_or("no progress reported yet");
            let next = match next_poll {
                Some(at) => format!("next poll in {} s", (at.as_second() - model.now.as_second()).max(0)),
                None => "polling now".to_owned(),
            };
            draw_progress(progress.as_deref().and_then(percent).unwrap_or(0), text, theme, frame, rest);
            let lines = vec![
                Line::raw(format!("Running for {elapsed} s; {next}")),
                Line::styled(status_url.as_str(), theme.quiet()),
            ];
            draw_text(lines, frame, below(rest, 2));
        }
        ExportState::Complete { manifest, pieces, download, .. } => {
            draw_complete(model, manifest, pieces, download, theme, frame, rest);
        }
    }
}

/// Draws a progress bar with the percentage and the progress text of the server.
fn draw_progress(percent: u16, label: &str, theme: ColorTheme, frame: &mut Frame, area: Rect) {
    let line = Rect { height: area.height.min(1), ..area };
    let gauge = Gauge::default()
        .gauge_style(theme.accent())
        .percent(percent.min(100))
        .label(label.to_owned())
        .use_unicode(true);
    frame.render_widget(gauge, line);
}

fn draw_complete(
    model: &Model,
    manifest: &ExportManifest,
    pieces: &[Option<FileProgress>],
    download: &Answer<crate::api::Download>,
    theme: ColorTheme,
    frame: &mut Frame,
    area: Rect,
) {
    let done = pieces.iter().flatten().filter(|piece| piece.done).count();
    let [head, list] = Layout::vertical([Constraint::Length(3), Constraint::Min(0)]).areas(area);
    let known: Option<u64> = manifest.output.iter().map(|file| file.count).sum();
    let resources = known.map(|count| format!(", {count} resources")).unwrap_or_default();
    let taken = manifest.transaction_time.parse().map_or_else(|_| manifest.transaction_time.clone(), clock);
    let mut lines = vec![Line::styled(
        format!("Complete: {} files{resources}, as of {taken} UTC", pieces.len()),
        theme.good(),
    )];
    lines.push(match download {
        Answer::None if pieces.is_empty() => Line::raw("There was nothing to export."),
        Answer::None => Line::raw("Press d to download the files, x to delete them on the server."),
        Answer::Waiting => Line::raw(format!("Downloading: {done} of {} files are complete", pieces.len())),
        Answer::Failed(reason) => error_line(reason, theme),
        Answer::Done(saved) => Line::styled(
            format!(
                "Saved {} resources, {} bytes and manifest.json in {}",
                saved.resources,
                saved.bytes,
                saved.folder.display()
            ),
            theme.good(),
        ),
    });
    frame.render_widget(Paragraph::new(lines), head);
    let height = usize::from(list.height);
    let first = model.export.scroll.min(pieces.len().saturating_sub(height));
    let files = manifest.output.iter().chain(&manifest.error).zip(pieces);
    let mut rows: Vec<_> = files
        .skip(first)
        .take(height)
        .map(|(file, piece)| {
            let count = file.count.map(|count| count.to_string()).unwrap_or_default();
            let state = match piece {
                None => String::new(),
                Some(piece) if piece.done => format!("saved, {} bytes", piece.bytes),
                Some(piece) => format!("{} lines so far", piece.lines),
            };
            Line::raw(format!("  {:<24} {count:>9}  {state}", file.kind))
        })
        .collect();
    if first + height < pieces.len() && height > 0 {
        let more = pieces.len() - first - height + 1;
        rows[height - 1] = Line::styled(format!("  … {more} more; Down scrolls"), Modifier::DIM);
    }
    frame.render_widget(Paragraph::new(rows), list);
}

fn below(area: Rect, lines: u16) -> Rect {
    let lines = lines.min(area.height);
    Rect { y: area.y + lines, height: area.height - lines, ..area }
}
