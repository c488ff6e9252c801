//! The sign-in screen: the signed-in user, or the state of the sign-in.

use ratatui::layout::Rect;
use ratatui::text::Line;

use super::canvas::Canvas;
use super::theme::Theme;
use super::{clock, error_line};
use crate::model::{Answer, Model, SignInState};

pub(super) fn draw(model: &Model, canvas: &mut Canvas, area: Rect) {
    let area = canvas.pane("Sign-in", true, area);
    let theme = canvas.theme;
    let mut lines = Vec::new();
    match &model.sign_in.state {
        SignInState::Out => {
            lines.push(Line::raw("No user is signed in. Press Enter to sign in with your browser."));
            demo_hint(model, &mut lines);
        }
        SignInState::Starting => lines.push(Line::raw("Reading the server's configuration …")),
        SignInState::Failed(reason) => {
            lines.push(error_line(reason, theme));
            lines.push(Line::raw("Press Enter to try again."));
        }
        SignInState::In(session) => {
            lines.push(Line::styled("Signed in", theme.good()));
            lines.push(Line::raw(format!("  scope    {}", session.scope)));
            lines.push(Line::raw(format!("  expires  {}", expiry(model, session.expires_at))));
            lines.push(Line::default());
            claims(model, theme, &mut lines);
        }
        SignInState::Waiting { url, browser } => {
            match browser {
                Ok(()) => lines.push(Line::raw(
                    "Your browser was opened. If it was not, open this address (c copies it):",
                )),
                Err(reason) => lines.push(Line::raw(format!(
                    "No browser was opened ({reason}). Open this address (c copies it):"
                ))),
            }
            lines.push(Line::styled(url.as_str(), theme.accent()));
            demo_hint(model, &mut lines);
            lines.push(Line::default());
            lines.push(Line::raw("Waiting for the browser to return."));
            lines.push(Line::raw(
                "If the browser runs on another machine, press Tab and paste its last address above.",
            ));
            if let Some(reason) = &model.sign_in.paste_error {
                lines.push(error_line(reason, theme));
            }
            // The form is drawn first, so that it remains visible above an address of any length.
            let rest = canvas.form(&model.sign_in.form, model.typing, area);
            canvas.text(lines, rest);
            return;
        }
    }
    canvas.text(lines, area);
}

fn demo_hint(model: &Model, lines: &mut Vec<Line<'_>>) {
    if let Some((user, file)) = &model.about.demo_user {
        lines.push(Line::default());
        lines
            .push(Line::raw(format!("On this demo server '{user}' can sign in; the password is in {file}.")));
    }
}

fn expiry(model: &Model, at: jiff::Timestamp) -> String {
    let left_s = at.as_second() - model.now.as_second();
    if left_s <= 0 {
        return format!("at {}: it has expired, sign out and in again", clock(at));
    }
    format!("at {} UTC, in {} min {:02} s", clock(at), left_s / 60, left_s % 60)
}

fn claims<'a>(model: &'a Model, theme: Theme, lines: &mut Vec<Line<'a>>) {
    match &model.sign_in.claims {
        Answer::None => {}
        Answer::Waiting => lines.push(Line::raw("Reading userinfo …")),
        Answer::Failed(reason) => lines.push(error_line(reason, theme)),
        Answer::Done(claims) => {
            lines.push(Line::styled("Signed-in user (userinfo)", theme.accent()));
            let width = claims.keys().map(String::len).max().unwrap_or(0);
            for (name, value) in claims {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                lines.push(Line::raw(format!("  {name:width$}  {value}")));
            }
        }
    }
}
