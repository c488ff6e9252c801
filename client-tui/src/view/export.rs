//! The export screen: the form of a new export, or the table of exports with the files of the selected one.

use jiff::tz::TimeZone;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Gauge, Paragraph, Sparkline};
use unicode_width::UnicodeWidthStr as _;

use super::canvas::Canvas;
use super::parts::{MARK, error_line, list_line, shorten_middle, size};
use super::theme::Theme;
use super::wrap::wrapped_rows;
use crate::api::percent;
use crate::export::{ExportFile, ExportPhase, FileList, FileProgress, FileStatus};
use crate::keys::{Action, KeyTable};
use crate::model::{Activity, ExportRow, Model, SAMPLES_OF_A_SECOND, TransferRate, Waiting};

/// Maximum number of rows of the table of exports, if the files are below it.
const TABLE_ROWS: u16 = 6;
/// Width of the number of resources and of the state of a file.
const FILE_COLUMNS: u16 = 36;

pub(super) fn draw(model: &Model, canvas: &mut Canvas, area: Rect) {
    if model.export.form_open() {
        let area = canvas.pane("New export", true, area);
        draw_new(model, canvas, area);
        return;
    }
    let rows = (model.export.rows.len() as u16).min(TABLE_ROWS).min(area.height / 3).max(1);
    let [table, detail] = canvas.split(area, rows);
    let table = canvas.pane("Exports", true, table);
    let theme = canvas.theme;
    let state_width = if table.width < 60 { 0 } else { 26 };
    canvas.list(model.export.rows.len(), model.export.selected, table, |index| {
        let row = &model.export.rows[index];
        let is_selected = index == model.export.selected;
        table_row(row, state(row, model.keys, theme), is_selected, state_width, &model.about.zone, theme)
    });
    let detail = canvas.pane("Files", false, detail);
    if let Some(row) = model.export.selected() {
        draw_selected(model, row, canvas, detail);
    }
}

/// Draws the choices for a new export, or the form while it is edited.
fn draw_new(model: &Model, canvas: &mut Canvas, area: Rect) {
    let theme = canvas.theme;
    let token = match &model.about.backend_id {
        Some(id) => format!("with the token of the backend client {id}"),
        None => {
            "with the token of the signed-in user; --backend-client and --backend-key set a client".to_owned()
        }
    };
    let mut lines = Vec::new();
    let rest = if model.typing {
        canvas.form(&model.export.form, true, area)
    } else {
        let choices = model.export_choices();
        let selected = model.export.chosen(&choices);
        let height = (choices.len() as u16 + 1).min(area.height.saturating_sub(6).max(1));
        let [list, rest] = Layout::vertical([Constraint::Length(height), Constraint::Min(0)]).areas(area);
        canvas.list(choices.len(), selected, list, |index| {
            let choice = &choices[index];
            let members = choice.members.map(|count| format!("{count} members  ")).unwrap_or_default();
            let note = format!("{members}{}", choice.level);
            list_line(choice.title.clone(), note, index == selected, list.width, theme)
        });
        let folder = model.export.form.value("folder");
        let limits = model.export.limits();
        let limit_text = if limits.is_empty() { String::new() } else { format!(", {}", limits.join(", ")) };
        let what = choices.get(selected).map(|choice| choice.title.as_str()).unwrap_or_default();
        lines
            .push(Line::styled(format!("{what}{limit_text}, into a new folder in {folder}"), theme.strong()));
        let key = model.keys.label(Action::NextField);
        lines.push(Line::styled(format!("{key} limits types, dates, elements or patients."), theme.quiet()));
        rest
    };
    lines.push(Line::raw("Press Enter to start the export. The files are downloaded when it is complete."));
    lines.push(Line::styled(format!("The export is started {token}."), theme.quiet()));
    if !model.export.rows.is_empty() {
        lines.push(Line::styled("Press Esc to return to the list of exports.", theme.quiet()));
    }
    canvas.text(lines, rest);
}

fn table_row(
    row: &ExportRow,
    (state, style): (String, Style),
    selected: bool,
    state_width: usize,
    zone: &TimeZone,
    theme: Theme,
) -> Line<'static> {
    let started = row.job.started_at.to_zoned(zone.clone()).strftime("%m-%d %H:%M");
    Line::from(vec![
        Span::styled(if selected { MARK } else { "  " }, theme.accent()),
        Span::styled(format!("{started}  "), if selected { theme.accent() } else { Style::new() }),
        Span::styled(format!("{state:<state_width$}  "), style),
        Span::raw(row.job.scope()),
    ])
}

/// The state of an export in a few words.
fn state(row: &ExportRow, keys: &KeyTable, theme: Theme) -> (String, Style) {
    let complete = row.files.iter().filter(|file| file.status == FileStatus::Done).count();
    let text = match (&row.job.phase, &row.activity) {
        (ExportPhase::Complete, _) => return ("complete".to_owned(), theme.good()),
        (ExportPhase::Failed(_), _) => return ("failed on the server".to_owned(), theme.bad()),
        (ExportPhase::Deleted, _) => return ("deleted on the server".to_owned(), theme.quiet()),
        (_, Activity::Stopped(_) | Activity::None) if row.can_resume() => {
            return (format!("interrupted; {} resumes", keys.label(Action::ResumeExport)), theme.bad());
        }
        (_, Activity::Stopped(_) | Activity::None) => return ("not started".to_owned(), theme.bad()),
        (ExportPhase::Starting, _) => "starting".to_owned(),
        (ExportPhase::Running, _) => "running on the server".to_owned(),
        (ExportPhase::Downloading, _) => format!("downloading, {complete} of {} files", row.files.len()),
    };
    (text, theme.accent())
}

fn draw_selected(model: &Model, row: &ExportRow, canvas: &mut Canvas, area: Rect) {
    let theme = canvas.theme;
    let mut lines = Vec::new();
    match (&row.job.phase, &row.activity) {
        (ExportPhase::Failed(reason), _) | (_, Activity::Stopped(reason)) => {
            lines.push(error_line(reason, theme));
        }
        (ExportPhase::Running, Activity::Active(Some(waiting))) => {
            draw_waiting(model, row, waiting, canvas, area);
            return;
        }
        _ => {}
    }
    if row.job.phase == ExportPhase::Complete {
        lines.push(complete_line(row, theme));
    }
    if let Some(time) = &row.job.transaction_time {
        let total: Option<u64> = output_files(row).map(|(file, _)| file.count).sum();
        let resources = total.map(|count| format!(", {count} resources")).unwrap_or_default();
        let files = match row.job.files.len() {
            1 => "1 file".to_owned(),
            count => format!("{count} files"),
        };
        lines.push(Line::raw(format!("{files}{resources}, as of {}", as_of(time, &model.about.zone))));
    }
    let is_downloading = row.is_active() && row.job.phase == ExportPhase::Downloading;
    let end = [row.folder.display().to_string(), format!("$ {}", row.command(&model.about))];
    let rows_of = |text: &str| wrapped_rows(text, area.width.into()) as u16;
    let height = lines.iter().map(|line| rows_of(&line.to_string())).sum::<u16>().min(area.height);
    let end_height = if area.height < height + 8 { 0 } else { end.iter().map(|line| rows_of(line)).sum() };
    let graph_height = if row.rates.is_empty() || area.height < 12 { 0 } else { 3 };
    let [head, total, graph, list, foot] = Layout::vertical([
        Constraint::Length(height),
        Constraint::Length(u16::from(is_downloading)),
        Constraint::Length(graph_height),
        Constraint::Min(0),
        Constraint::Length(end_height),
    ])
    .areas(area);
    canvas.text(lines, head);
    if is_downloading {
        draw_total(row, canvas, total);
    }
    if graph_height > 0 {
        draw_throughput(row, is_downloading, canvas, graph);
    }
    draw_files(row, model.export.scroll, canvas, list);
    canvas.text(end.map(|text| Line::styled(text, theme.quiet())).into(), foot);
}

/// Draws how much of a download is here, and the time left.
fn draw_total(row: &ExportRow, canvas: &mut Canvas, area: Rect) {
    let (here, total) = row.resources();
    let of = total.map(|total| format!(" of {total}")).unwrap_or_default();
    let time_left =
        row.seconds_left().map(|seconds| format!(" · {} left", duration(seconds))).unwrap_or_default();
    let gauge = Gauge::default()
        .gauge_style(canvas.theme.accent())
        .percent(row.percent().unwrap_or(0) as u16)
        .label(format!("{here}{of} resources{time_left}"))
        .use_unicode(true);
    canvas.draw(gauge, area);
}

/// A number of seconds in the largest unit that fits.
fn duration(seconds: u64) -> String {
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3_600),
    }
}

/// Draws the progress of an export that the server is running.
fn draw_waiting(model: &Model, row: &ExportRow, waiting: &Waiting, canvas: &mut Canvas, area: Rect) {
    let theme = canvas.theme;
    let seconds = |a: jiff::Timestamp, b: jiff::Timestamp| (a.as_second() - b.as_second()).max(0);
    let text = waiting.progress.as_deref().unwrap_or("no progress reported yet");
    let gauge = Gauge::default()
        .gauge_style(theme.accent())
        .percent(waiting.progress.as_deref().and_then(percent).unwrap_or(0).min(100))
        .label(text.to_owned())
        .use_unicode(true);
    canvas.draw(gauge, Rect { height: area.height.min(1), ..area });
    let running = seconds(model.now, row.job.started_at);
    let next = seconds(waiting.until, model.now);
    let mut lines = vec![Line::raw(format!("Running for {running} s; next poll in {next} s"))];
    if let Some(error) = &waiting.error {
        lines.push(error_line(&format!("{error}; the request is sent again"), theme));
    }
    lines.push(Line::styled(row.job.status_url.clone().unwrap_or_default(), theme.quiet()));
    lines.push(Line::styled(row.folder.display().to_string(), theme.quiet()));
    canvas.text(lines, below(area, 2));
}

/// Draws the bytes per second of the last samples, the newest on the right, and the rates of the last second.
fn draw_throughput(row: &ExportRow, is_downloading: bool, canvas: &mut Canvas, area: Rect) {
    let theme = canvas.theme;
    let [text, graph] = Layout::horizontal([Constraint::Length(40), Constraint::Min(0)]).areas(area);
    let (now, mean) = (row.mean_rate(SAMPLES_OF_A_SECOND), row.mean_rate(row.rates.len()));
    let line = |rate: TransferRate, name: &str| {
        Line::raw(format!("{:>8}/s {:>8} resources/s  {name}", size(rate.bytes), rate.resources))
    };
    let mut lines = vec![line(mean, "mean")];
    if is_downloading {
        lines.insert(0, line(now, "now"));
    }
    canvas.text(lines, text);
    let newest = row.rates.iter().rev().take(usize::from(graph.width)).rev().map(|rate| rate.bytes);
    canvas.draw(Sparkline::default().data(newest.collect::<Vec<_>>()).style(theme.accent()), graph);
}

fn complete_line(row: &ExportRow, theme: Theme) -> Line<'static> {
    if row.job.files.is_empty() {
        return Line::raw("There was nothing to export.");
    }
    if row.activity != Activity::Completed {
        return Line::styled("All files are saved.", theme.good());
    }
    let sum = |value: fn(&FileProgress) -> u64| output_files(row).map(|(_, file)| value(file)).sum::<u64>();
    let (resources, bytes) = (sum(|file| file.resources), sum(|file| file.bytes));
    let has_counts = row.job.files.iter().all(|file| file.list != FileList::Output || file.count.is_some());
    let verdict = if has_counts { "; the counts match the manifest" } else { "" };
    Line::styled(format!("Saved {resources} resources, {}{verdict}", size(bytes)), theme.good())
}

fn output_files(row: &ExportRow) -> impl Iterator<Item = (&ExportFile, &FileProgress)> {
    row.job.files.iter().zip(&row.files).filter(|(file, _)| file.list == FileList::Output)
}

fn draw_files(row: &ExportRow, scroll: usize, canvas: &mut Canvas, area: Rect) {
    let theme = canvas.theme;
    let height = usize::from(area.height);
    let first = scroll.min(row.files.len().saturating_sub(height));
    let files = row.job.files.iter().zip(&row.files).skip(first).take(height);
    let longest = row.job.files.iter().map(|file| file.name.width()).max().unwrap_or(0);
    let name_width = longest.min(usize::from(area.width.saturating_sub(FILE_COLUMNS))).max(12);
    let mut lines: Vec<_> =
        files.map(|(file, progress)| file_line(file, progress, name_width, theme)).collect();
    if first + height < row.files.len() && height > 0 {
        let more = row.files.len() - first - height + 1;
        lines[height - 1] = Line::styled(format!("  … {more} more; PgDn scrolls"), theme.quiet());
    }
    canvas.draw(Paragraph::new(lines), area);
}

fn file_line(file: &ExportFile, progress: &FileProgress, name_width: usize, theme: Theme) -> Line<'static> {
    let count = file.count.map(|count| count.to_string()).unwrap_or_default();
    let (state, style) = match &progress.status {
        FileStatus::Waiting => (String::new(), Style::new()),
        FileStatus::Downloading => {
            let progress_text = match file.count.filter(|count| *count > 0) {
                Some(count) => bar(progress.resources, count),
                None => format!("{} resources so far", progress.resources),
            };
            (format!("{progress_text}  {}", size(progress.bytes)), theme.accent())
        }
        FileStatus::Retrying(reason) => (format!("retrying: {reason}"), theme.bad()),
        FileStatus::Done => (format!("saved, {}", size(progress.bytes)), Style::new()),
        FileStatus::Failed(reason) => (format!("Error: {reason}"), theme.bad()),
    };
    let name = shorten_middle(&file.name, name_width);
    Line::from(vec![Span::raw(format!("  {name:<name_width$} {count:>9}  ")), Span::styled(state, style)])
}

/// A bar of ten characters for a part of a whole, with its percentage.
fn bar(part: u64, whole: u64) -> String {
    let percent = (part * 100 / whole).min(100);
    let full_cells = (percent / 10) as usize;
    format!("{}{} {percent:>3} %", "█".repeat(full_cells), "▁".repeat(10 - full_cells))
}

/// Shortens the time of a snapshot to seconds.
fn as_of(time: &str, zone: &TimeZone) -> String {
    let format =
        |time: jiff::Timestamp| time.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S").to_string();
    time.parse().map_or_else(|_| time.to_owned(), format)
}

fn below(area: Rect, lines: u16) -> Rect {
    let lines = lines.min(area.height);
    Rect { y: area.y + lines, height: area.height - lines, ..area }
}
