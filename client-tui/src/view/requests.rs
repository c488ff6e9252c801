//! The Requests screen: one line for each exchange, and the details of the selected one.

use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

use super::canvas::Canvas;
use super::json::json_line;
use super::parts::{MARK, clock, error_line, push_right, shorten_middle, size};
use super::theme::Theme;
use crate::api::RecordedExchange;
use crate::json_path;
use crate::model::Model;

/// Minimum width for the columns of size and time.
const ALL_COLUMNS: u16 = 60;

pub(super) fn draw(model: &Model, canvas: &mut Canvas, area: Rect) {
    let requests = &model.requests;
    if requests.exchanges.is_empty() {
        let text = "No requests yet. They are listed here, with masked secrets.";
        let list = canvas.pane("Requests", true, area);
        canvas.draw(Line::raw(text), list);
        return;
    }
    if canvas.is_wide() {
        let [list, detail] = canvas.split_list(area, requests.detail);
        let list = canvas.pane("Requests", !requests.detail, list);
        draw_list(model, canvas, list);
        let detail = canvas.pane("Request and response", requests.detail, detail);
        draw_detail(model, canvas, detail);
    } else if requests.detail {
        let detail = canvas.pane("Request and response", true, area);
        draw_detail(model, canvas, detail);
    } else {
        let list = canvas.pane("Requests", true, area);
        draw_list(model, canvas, list);
    }
}

fn draw_list(model: &Model, canvas: &mut Canvas, area: Rect) {
    let requests = &model.requests;
    let [head, list] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let theme = canvas.theme;
    let mut names = Line::styled("  status  request", theme.quiet());
    let columns = if list.width < ALL_COLUMNS { "     took" } else { "    size      took  time    " };
    push_right(&mut names, Span::styled(columns, theme.quiet()), list.width);
    canvas.draw(names, head);
    canvas.list(requests.exchanges.len(), requests.selected, list, |index| {
        row(&requests.exchanges[index], index == requests.selected, list.width, model, theme)
    });
}

fn draw_detail(model: &Model, canvas: &mut Canvas, area: Rect) {
    let requests = &model.requests;
    let Some(exchange) = requests.exchanges.get(requests.selected) else { return };
    let path = requests.filter.value("JSONPath");
    let mut text = area;
    if model.typing || !path.is_empty() {
        text = canvas.form(&requests.filter, model.typing, area);
    }
    let selected = match &exchange.outcome {
        Some(Ok(answered)) if !path.is_empty() => Some(json_path::select(&answered.body, &path)),
        _ => None,
    };
    let lines = match &selected {
        None => detail(exchange, canvas.theme),
        Some(Ok(text)) => text.lines().map(|line| json_line(line, canvas.theme)).collect(),
        Some(Err(reason)) => vec![error_line(reason, canvas.theme)],
    };
    canvas.scrolled_text(lines, requests.scroll, text);
}

fn row<'a>(
    exchange: &'a RecordedExchange,
    marked: bool,
    width: u16,
    model: &Model,
    theme: Theme,
) -> Line<'a> {
    let (status, style) = match &exchange.outcome {
        None => ("…".to_owned(), theme.warning()),
        Some(Ok(answered)) if answered.status < 400 => (answered.status.to_string(), theme.good()),
        Some(Ok(answered)) => (answered.status.to_string(), theme.bad()),
        Some(Err(_)) => ("Error".to_owned(), theme.bad()),
    };
    let waited_ms = (model.now.as_millisecond() - exchange.at.as_millisecond()).max(0) as u64;
    let took_ms = if exchange.outcome.is_some() { exchange.took_ms } else { waited_ms };
    let bytes = match &exchange.outcome {
        Some(Ok(answered)) if !answered.body.is_empty() => size(answered.body.len() as u64),
        _ => String::new(),
    };
    let facts = match width < ALL_COLUMNS {
        true => format!("{took_ms:>6} ms"),
        false => format!("{bytes:>8} {took_ms:>6} ms  {}", clock(exchange.at, &model.about.zone)),
    };
    let space = usize::from(width).saturating_sub(facts.width() + 12);
    let request = format!("{} {}", exchange.method, below_base(exchange, model));
    let mut line = Line::from(vec![
        Span::styled(if marked { MARK } else { "  " }, theme.accent()),
        Span::styled(format!("{status:>6}  "), style),
        Span::styled(shorten_middle(&request, space), if marked { theme.accent() } else { Style::new() }),
    ]);
    push_right(&mut line, Span::styled(facts, theme.quiet()), width);
    line
}

/// The address without the base address of FHIR, or else without that of the server.
fn below_base<'a>(exchange: &'a RecordedExchange, model: &Model) -> &'a str {
    let bases = [&model.about.fhir_base, &model.about.base_url];
    let below = bases.into_iter().find_map(|base| exchange.url.strip_prefix(base.as_str()));
    below.map_or(exchange.url.as_str(), |path| path.strip_prefix('/').unwrap_or(path))
}

/// The method and the path of a request, without its parameters.
pub(super) fn request_line(exchange: &RecordedExchange, model: &Model) -> String {
    let path = below_base(exchange, model);
    format!("{} {}", exchange.method, path.split('?').next().unwrap_or_default())
}

/// The status of a response, and how long it took.
pub(super) fn status_line<'a>(exchange: &RecordedExchange, status: u16, theme: Theme) -> Line<'a> {
    let style = if status < 400 { theme.good() } else { theme.bad() };
    let parts = exchange.headers_ms.map(|headers_ms| {
        let body_ms = exchange.took_ms.saturating_sub(headers_ms);
        Span::styled(format!(" (headers {headers_ms}, body {body_ms})"), theme.quiet())
    });
    let mut line = Line::styled(format!("{status} after {} ms", exchange.took_ms), style);
    line.extend(parts);
    line
}

/// A line for each header.
pub(super) fn header_lines(headers: &[(String, String)], theme: Theme) -> impl Iterator<Item = Line<'_>> {
    headers.iter().map(move |(name, value)| {
        Line::from(vec![Span::styled(format!("{name}: "), theme.quiet()), Span::raw(value.as_str())])
    })
}

fn detail(exchange: &RecordedExchange, theme: Theme) -> Vec<Line<'_>> {
    fn body<'a>(text: &'a str, theme: Theme, lines: &mut Vec<Line<'a>>) {
        if !text.is_empty() {
            lines.push(Line::default());
            lines.extend(text.lines().map(|line| json_line(line, theme)));
        }
    }
    let mut lines = vec![Line::styled(format!("{} {}", exchange.method, exchange.url), theme.accent())];
    lines.extend(header_lines(&exchange.request_headers, theme));
    body(exchange.request_body.as_deref().unwrap_or_default(), theme, &mut lines);
    lines.push(Line::default());
    match &exchange.outcome {
        None => lines.push(Line::raw("Waiting for the response …")),
        Some(Err(reason)) => lines.push(error_line(reason, theme)),
        Some(Ok(answered)) => {
            lines.push(status_line(exchange, answered.status, theme));
            lines.extend(header_lines(&answered.headers, theme));
            body(&answered.body, theme, &mut lines);
        }
    }
    lines
}
