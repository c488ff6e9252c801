//! The header line: the profile and its server, the user, running exports, and restrictions.

use jiff::Timestamp;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::canvas::Canvas;
use super::parts::{push_right, shorten_middle};
use super::theme::Theme;
use crate::model::{Model, SignInState};

pub(super) fn draw(model: &Model, canvas: &mut Canvas, area: Rect) {
    if area.is_empty() {
        return;
    }
    let theme = canvas.theme;
    let facts = facts(model, theme);
    let facts_width: usize = facts.iter().map(Span::width).sum();
    let name = model.about.profile.as_ref().map(|name| format!("{name} · ")).unwrap_or_default();
    let server = format!(" {name}{}", model.about.base_url);
    let space = usize::from(area.width).saturating_sub(facts_width + 2);
    let mut line = Line::styled(shorten_middle(&server, space), theme.strong());
    let mut facts = facts.into_iter();
    if let Some(first) = facts.next() {
        let rest: Vec<_> = facts.collect();
        let rest_width: usize = rest.iter().map(Span::width).sum();
        push_right(&mut line, first, area.width.saturating_sub(rest_width as u16));
        line.extend(rest);
    }
    canvas.draw(line, area);
}

/// The facts at the right end, with their separators.
fn facts(model: &Model, theme: Theme) -> Vec<Span<'static>> {
    let mut facts = vec![user(model, theme)];
    let running = model.export.rows.iter().filter(|row| row.is_active()).count();
    if running > 0 {
        let word = if running == 1 { "export" } else { "exports" };
        facts.push(Span::styled(format!("{running} {word} running"), theme.accent()));
    }
    if model.about.is_plain() {
        facts.push(Span::styled("without TLS", theme.warning()));
    }
    if model.about.read_only {
        facts.push(Span::styled("read-only", theme.warning()));
    }
    let mut spans = Vec::new();
    for fact in facts {
        spans.push(fact);
        spans.push(Span::styled(" · ", theme.quiet()));
    }
    // A blank at the right end instead of the last separator.
    spans.pop();
    spans.push(Span::raw(" "));
    spans
}

fn user(model: &Model, theme: Theme) -> Span<'static> {
    match &model.sign_in.state {
        SignInState::In(session) => {
            let left_s = session.expires_at.as_second() - model.now.as_second();
            match left_s {
                ..=0 if session.renewable => Span::styled("signed in", theme.good()),
                ..=0 => Span::styled("session expired", theme.bad()),
                _ => {
                    Span::styled(format!("signed in, {}", left(model.now, session.expires_at)), theme.good())
                }
            }
        }
        SignInState::Out | SignInState::Failed(_) => Span::styled("no user is signed in", theme.quiet()),
        SignInState::Starting { .. } | SignInState::Waiting { .. } | SignInState::Device(_) => {
            Span::styled("signing in …", theme.accent())
        }
    }
}

/// The time until `end`, in the largest unit that fits.
fn left(now: Timestamp, end: Timestamp) -> String {
    match end.as_second() - now.as_second() {
        seconds @ ..120 => format!("{seconds} s left"),
        seconds @ ..7_200 => format!("{} min left", seconds / 60),
        seconds => format!("{} h left", seconds / 3_600),
    }
}
