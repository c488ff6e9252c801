//! The last request and its response below a screen, if the terminal is high: the reader sees the messages of
//! the protocol behind each result.

use std::borrow::Cow;

use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;
use url::{Url, form_urlencoded};

use super::canvas::Canvas;
use super::json::json_line;
use super::parts::error_line;
use super::requests::{header_lines, request_line, status_line};
use super::theme::Theme;
use crate::api::RecordedExchange;
use crate::exact_json;
use crate::model::{Model, Screen};

/// Minimum height of a screen and the pane together, in rows.
const MIN_HEIGHT: u16 = 30;
/// Minimum height on Home, whose lists may be long.
const MIN_HEIGHT_HOME: u16 = 44;
/// Minimum height of the screen above the pane.
const SCREEN_HEIGHT: u16 = 20;

/// Draws the pane at the lower end of an area, if the screen has space for it. Returns the area above it.
pub(super) fn draw(model: &Model, canvas: &mut Canvas, area: Rect) -> Rect {
    let least = match model.screen {
        Screen::Home => MIN_HEIGHT_HOME,
        Screen::Codes if model.batch.open => return area,
        Screen::SignIn | Screen::Codes | Screen::Tree | Screen::Export => MIN_HEIGHT,
        Screen::Requests | Screen::Files | Screen::Help => return area,
    };
    if area.height < least || model.zoomed {
        return area;
    }
    let Some(exchange) = model.requests.exchanges.iter().find(|exchange| has_content(exchange)) else {
        return area;
    };
    let height = (area.height * 2 / 5).max(SCREEN_HEIGHT);
    let [above, below] = Layout::vertical([Constraint::Length(height), Constraint::Min(0)]).areas(area);
    let [left, right] = match canvas.is_wide() {
        true => Layout::horizontal([Constraint::Percentage(42), Constraint::Min(0)]).areas(below),
        false => Layout::vertical([Constraint::Percentage(42), Constraint::Min(0)]).areas(below),
    };
    let request_area = canvas.pane("Last request", false, left);
    let theme = canvas.theme;
    let mut lines = vec![Line::styled(request_line(exchange, model), theme.strong())];
    lines.extend(query_lines(exchange, theme));
    lines.extend(exchange.request_body.as_deref().map(|body| body_lines(body, theme)).unwrap_or_default());
    lines.push(Line::default());
    lines.extend(header_lines(&exchange.request_headers, theme));
    canvas.text(lines, request_area);
    let right = canvas.pane("Response", false, right);
    let lines = match &exchange.outcome {
        None => vec![Line::raw("Waiting for the response …")],
        Some(Err(reason)) => vec![error_line(reason, theme)],
        Some(Ok(response)) => {
            let body = response.body.lines().map(|line| json_line(line, theme));
            std::iter::once(status_line(exchange, response.status, theme)).chain(body).collect()
        }
    };
    canvas.text(lines, right);
    above
}

/// Whether an exchange has more to show than its status: downloads and polls are left out.
fn has_content(exchange: &RecordedExchange) -> bool {
    match &exchange.outcome {
        Some(Ok(response)) => !response.body.is_empty(),
        Some(Err(_)) | None => true,
    }
}

/// The lines of the body of a request: JSON, or the fields of a form.
fn body_lines(body: &str, theme: Theme) -> Vec<Line<'static>> {
    match exact_json::parse(body) {
        Ok(json) => {
            let lines = exact_json::text(&json);
            lines.lines().map(|line| owned(json_line(line, theme))).collect()
        }
        Err(_) => pairs(form_urlencoded::parse(body.as_bytes()), theme),
    }
}

/// The parameters of the address of a request.
fn query_lines(exchange: &RecordedExchange, theme: Theme) -> Vec<Line<'static>> {
    Url::parse(&exchange.url).map(|url| pairs(url.query_pairs(), theme)).unwrap_or_default()
}

fn pairs<'a>(all: impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)>, theme: Theme) -> Vec<Line<'static>> {
    let all: Vec<_> = all.collect();
    let width = all.iter().map(|(name, _)| name.width()).max().unwrap_or_default();
    let line = |(name, value): (Cow<'_, str>, Cow<'_, str>)| {
        let name = Span::styled(format!("{name:<width$}  "), theme.json_name());
        Line::from(vec![name, Span::raw(value.into_owned())])
    };
    all.into_iter().map(line).collect()
}

fn owned(line: Line<'_>) -> Line<'static> {
    let spans = line.spans.into_iter().map(|span| Span::styled(span.content.into_owned(), span.style));
    Line::from_iter(spans).style(line.style)
}
