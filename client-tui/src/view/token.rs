//! The token inspector: header and claims with their meaning, signature, scopes.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use serde_json::Value;

use super::canvas::Canvas;
use super::parts::{error_line, waiting_line};
use super::theme::Theme;
use crate::api::{Introspection, SignatureStatus, TokenInspection, meaning, scope_meaning};
use crate::keys::Action;
use crate::model::answer::Answer;
use crate::model::{Inspector, Model};

pub(super) fn draw(model: &Model, inspector: &Inspector, canvas: &mut Canvas, area: Rect) {
    let area = canvas.pane("Token", true, area);
    let key = model.keys.label(Action::InspectToken);
    let title = format!("{} ({key} shows the next token, Esc closes)", inspector.kind.title());
    let mut lines = vec![Line::styled(title, canvas.theme.accent()), Line::default()];
    match &inspector.answer {
        Answer::None => {}
        Answer::Waiting { since } => {
            lines.push(waiting_line("Reading the token", *since, model.now, canvas.theme));
        }
        Answer::Failed(reason) => lines.push(error_line(reason, canvas.theme)),
        Answer::Done(token) => lines.extend(token_lines(token, model.now, &model.about.zone, canvas.theme)),
    }
    canvas.scrolled_text(lines, inspector.scroll, area);
}

fn token_lines<'a>(
    token: &'a TokenInspection,
    now: Timestamp,
    zone: &TimeZone,
    theme: Theme,
) -> Vec<Line<'a>> {
    let mut lines = vec![match &token.signature {
        SignatureStatus::Valid => {
            Line::styled("signature  valid: it matches a key of the server", theme.good())
        }
        SignatureStatus::Invalid(reason) => {
            Line::styled(format!("signature  INVALID: {reason}"), theme.bad())
        }
        SignatureStatus::Unknown(reason) => {
            Line::styled(format!("signature  not checked: {reason}"), theme.warning())
        }
    }];
    let introspection = token.introspection.as_ref();
    lines.extend(introspection.map(|introspection| {
        let style = match introspection {
            Introspection::Active { .. } => theme.good(),
            Introspection::Inactive { .. } => theme.bad(),
            Introspection::NotAsked { .. } | Introspection::Unavailable { .. } => theme.quiet(),
        };
        Line::styled(format!("server     {}", introspection.sentence()), style)
    }));
    let claims = token.content.as_ref().map(|content| &content.claims);
    let more: Vec<_> =
        introspection.into_iter().flat_map(|introspection| introspection.members_beside(claims)).collect();
    let mut sections = Vec::new();
    if let Some(content) = &token.content {
        sections.extend([
            ("Header", content.header.iter().collect()),
            ("Claims", content.claims.iter().collect()),
        ]);
    }
    if !more.is_empty() {
        sections.push(("Only in the answer of the server", more));
    }
    if let Some(exp) = claims.and_then(|claims| claims.get("exp")).and_then(Value::as_i64) {
        lines.push(countdown(exp - now.as_second(), theme));
    }
    for (title, members) in sections {
        lines.push(Line::default());
        lines.push(Line::styled(title, theme.accent()));
        // Scopes have a list of their own, with their meaning.
        for (name, value) in members.into_iter().filter(|(name, _)| *name != "scope") {
            lines.push(Line::from(vec![
                Span::raw(format!("  {name:<18} {}  ", value_text(name, value, zone))),
                Span::styled(meaning(name), theme.quiet()),
            ]));
        }
    }
    lines.extend(scope_lines(token, theme));
    lines
}

fn countdown(left_s: i64, theme: Theme) -> Line<'static> {
    if left_s <= 0 {
        return Line::styled(format!("expired    {} s ago", -left_s), theme.bad());
    }
    Line::raw(format!("expires    in {} min {:02} s", left_s / 60, left_s % 60))
}

/// Formats a value. Times are shown in the time zone of the user.
fn value_text(name: &str, value: &Value, zone: &TimeZone) -> String {
    let is_time = matches!(name, "exp" | "iat" | "nbf" | "auth_time");
    let time = value.as_i64().filter(|_| is_time).and_then(|seconds| Timestamp::from_second(seconds).ok());
    match (time, value) {
        (Some(time), _) => time.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string(),
        (None, Value::String(text)) => text.clone(),
        (None, other) => other.to_string(),
    }
}

fn scope_lines(token: &TokenInspection, theme: Theme) -> Vec<Line<'static>> {
    let scopes: Vec<_> = token.granted_scope().split_whitespace().collect();
    let requested = token.requested_scope.as_deref().unwrap_or_default();
    let missing_scopes: Vec<_> =
        requested.split_whitespace().filter(|scope| !scopes.contains(scope)).collect();
    if scopes.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![Line::default(), Line::styled("Scopes", theme.accent())];
    lines.extend(scopes.iter().map(|scope| {
        Line::from(vec![
            Span::styled("  granted  ", theme.good()),
            Span::raw(format!("{scope:<26} ")),
            Span::styled(scope_meaning(scope), theme.quiet()),
        ])
    }));
    lines.extend(missing_scopes.iter().map(|scope| {
        Line::from(vec![
            Span::styled("  refused  ", theme.warning()),
            Span::raw(format!("{scope:<26} ")),
            Span::styled("requested, but not allowed for this client or user", theme.quiet()),
        ])
    }));
    lines
}
