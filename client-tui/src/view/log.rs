//! The Requests screen: one line for each exchange, and the details of the selected one.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::{ColorTheme, MARK, clock};
use crate::api::RecordedExchange;
use crate::model::Model;

pub(super) fn draw(model: &Model, theme: ColorTheme, frame: &mut Frame, area: Rect) {
    let requests = &model.requests;
    if requests.exchanges.is_empty() {
        frame.render_widget(Line::raw("No requests yet. They are listed here, with masked secrets."), area);
        return;
    }
    if requests.detail {
        if let Some(exchange) = requests.exchanges.get(requests.selected) {
            let text = Paragraph::new(detail(exchange, theme)).wrap(Wrap { trim: false });
            frame.render_widget(text.scroll((requests.scroll, 0)), area);
        }
        return;
    }
    let [head, list] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    frame.render_widget(Line::styled("  time      took     status  request", theme.quiet()), head);
    let height = usize::from(list.height).max(1);
    let first = (requests.selected + 1).saturating_sub(height);
    let rows = requests.exchanges.iter().enumerate().skip(first).take(height);
    let rows: Vec<_> = rows.map(|(at, exchange)| row(exchange, at == requests.selected, theme)).collect();
    frame.render_widget(Paragraph::new(rows), list);
}

fn row(exchange: &RecordedExchange, marked: bool, theme: ColorTheme) -> Line<'_> {
    let (status, style) = match &exchange.outcome {
        Ok(answered) if answered.status < 400 => (answered.status.to_string(), theme.good()),
        Ok(answered) => (answered.status.to_string(), theme.bad()),
        Err(_) => ("Error".to_owned(), theme.bad()),
    };
    let mark = if marked { MARK } else { "  " };
    let place = url::Url::parse(&exchange.url).map_or_else(
        |_| exchange.url.clone(),
        |url| format!("{}{}", url.path(), url.query().map(|query| format!("?{query}")).unwrap_or_default()),
    );
    Line::from(vec![
        Span::styled(mark, theme.accent()),
        Span::raw(format!("{}  {:>5} ms ", clock(exchange.at), exchange.took_ms)),
        Span::styled(format!("{status:>6}  "), style),
        Span::styled(
            format!("{} {place}", exchange.method),
            if marked { theme.accent() } else { Style::new() },
        ),
    ])
}

fn detail<'a>(exchange: &'a RecordedExchange, theme: ColorTheme) -> Vec<Line<'a>> {
    let headers = |all: &'a [(String, String)], lines: &mut Vec<Line<'a>>| {
        lines.extend(all.iter().map(|(name, value)| Line::raw(format!("{name}: {value}"))));
    };
    let body = |text: &'a str, lines: &mut Vec<Line<'a>>| {
        if !text.is_empty() {
            lines.push(Line::default());
            lines.extend(text.lines().map(Line::raw));
        }
    };
    let mut lines = vec![Line::styled(format!("{} {}", exchange.method, exchange.url), theme.accent())];
    headers(&exchange.request_headers, &mut lines);
    body(exchange.request_body.as_deref().unwrap_or_default(), &mut lines);
    lines.push(Line::default());
    match &exchange.outcome {
        Err(reason) => lines.push(super::error_line(reason, theme)),
        Ok(answered) => {
            let style = if answered.status < 400 { theme.good() } else { theme.bad() };
            lines.push(Line::styled(format!("{} after {} ms", answered.status, exchange.took_ms), style));
            headers(&answered.headers, &mut lines);
            body(&answered.body, &mut lines);
        }
    }
    lines
}
