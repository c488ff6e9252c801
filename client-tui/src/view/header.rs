//! The header line: the profile and its server, who acts, the exports that run, and restrictions.

use jiff::Timestamp;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::canvas::Canvas;
use super::parts::{push_right, shorten_middle};
use super::theme::Theme;
use crate::api::Bearer;
use crate::model::answer::Answer;
use crate::model::{Model, SignInState};

/// Columns that remain for the name of the server.
const SERVER_COLUMNS: usize = 16;

pub(super) fn draw(model: &Model, canvas: &mut Canvas, area: Rect) {
    if area.is_empty() {
        return;
    }
    let theme = canvas.theme;
    let facts = facts(model, theme);
    let who = who(model, theme);
    let width = |spans: &[Span<'_>]| spans.iter().map(Span::width).sum::<usize>();
    let space = usize::from(area.width).saturating_sub(width(&facts) + width(&who) + 2);
    let mut line = Line::styled(shorten_middle(&server(model), space.max(SERVER_COLUMNS)), theme.strong());
    line.extend(who);
    let mut facts = facts.into_iter();
    if let Some(first) = facts.next() {
        let rest: Vec<_> = facts.collect();
        push_right(&mut line, first, area.width.saturating_sub(width(&rest) as u16));
        line.extend(rest);
    }
    canvas.draw(line, area);
}

/// The profile, and host and port of its server.
fn server(model: &Model) -> String {
    let host = model.about.base_url.strip_prefix("https://").unwrap_or(&model.about.base_url);
    match &model.about.profile {
        Some(name) => format!(" {name} {host}"),
        None => format!(" {host}"),
    }
}

/// Who acts in requests, and how long.
fn who(model: &Model, theme: Theme) -> Vec<Span<'static>> {
    if let SignInState::Starting { .. } | SignInState::Waiting { .. } | SignInState::Device(_) =
        model.sign_in.state
    {
        return vec![Span::styled(" · signing in …", theme.accent())];
    }
    let name = match model.contents_bearer() {
        Bearer::Backend => format!(" as {}", model.about.backend_id.as_deref().unwrap_or("a backend client")),
        Bearer::Anonymous => return vec![Span::styled(" · without a token", theme.quiet())],
        Bearer::User | Bearer::Given(_) => format!(" as {}", user_name(model)),
    };
    let mut spans = vec![Span::raw(name)];
    if let (SignInState::In(session), Bearer::User) = (&model.sign_in.state, &model.bearer) {
        match session.expires_at.as_second() - model.now.as_second() {
            ..=0 if session.renewable => {}
            ..=0 => spans.push(Span::styled(" · the session has expired", theme.bad())),
            _ => {
                spans.push(Span::styled(format!(" · {}", left(model.now, session.expires_at)), theme.quiet()))
            }
        }
    }
    spans
}

/// The name of the signed-in user, or else the subject.
fn user_name(model: &Model) -> String {
    let claims = match &model.sign_in.claims {
        Answer::Done(claims) => Some(claims),
        _ => None,
    };
    let claim = |name: &str| claims.and_then(|claims| claims.get(name)?.as_str());
    let subject = match &model.sign_in.state {
        SignInState::In(session) => session.subject.as_deref(),
        _ => None,
    };
    let name = claim("preferred_username").or_else(|| claim("name")).or(subject);
    name.unwrap_or("the signed-in user").to_owned()
}

/// The facts at the right end, with their separators.
fn facts(model: &Model, theme: Theme) -> Vec<Span<'static>> {
    let mut facts = Vec::new();
    let mut running = model.export.rows.iter().filter(|row| row.is_active());
    if let Some(first) = running.next() {
        let scope = first.job.scope();
        let name = scope.strip_prefix("Group/").unwrap_or(&scope);
        let percent = first.percent().map(|percent| format!(" {percent} %")).unwrap_or_default();
        let others = match running.count() {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        facts.push(Span::styled(format!("⇣ {}{percent}{others}", shorten_middle(name, 24)), theme.accent()));
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

/// The time until `end`, in the largest unit that fits.
fn left(now: Timestamp, end: Timestamp) -> String {
    match end.as_second() - now.as_second() {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7_200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}
