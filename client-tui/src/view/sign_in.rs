//! The sign-in screen: the signed-in user, or the state of the sign-in.

use qrcode::QrCode;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::canvas::Canvas;
use super::parts::{clock, error_line, waiting_line};
use super::theme::Theme;
use super::token;
use crate::api::{DevicePrompt, SignedInSession};
use crate::keys::Action;
use crate::model::answer::Answer;
use crate::model::{Model, SignInState};
use crate::sign_in_method::SignInMethod;

/// Seconds of waiting after which the screen explains an error page in the browser.
const HINT_AFTER_S: i64 = 20;

pub(super) fn draw(model: &Model, canvas: &mut Canvas, area: Rect) {
    if let Some(inspector) = &model.sign_in.inspector {
        token::draw(model, inspector, canvas, area);
        return;
    }
    let area = canvas.pane("Sign-in", true, area);
    let theme = canvas.theme;
    let mut lines = Vec::new();
    match &model.sign_in.state {
        SignInState::Out if model.about.client_id.is_none() => {
            let token = match &model.about.backend_id {
                Some(id) => format!("with the token of the backend client {id}"),
                None => "without a token".to_owned(),
            };
            lines.push(Line::raw(format!("Requests are sent {token}.")));
            lines.push(Line::default());
            lines.push(Line::styled(
                format!(
                    "The profile does not name a client for signing in users (--client-id); {} changes the profile.",
                    model.keys.label(Action::ChangeProfile)
                ),
                theme.quiet(),
            ));
        }
        SignInState::Out => {
            lines.push(Line::raw(match model.about.sign_in_method {
                SignInMethod::Browser => "No user is signed in. Press Enter to sign in with your browser.",
                SignInMethod::Device => {
                    "No user is signed in. Press Enter to sign in on another device, because this is a session of SSH."
                }
            }));
            demo_hint(model, &mut lines);
        }
        SignInState::Starting { since } => {
            lines.push(waiting_line("Reading the server's configuration", *since, model.now, theme));
        }
        SignInState::Failed(reason) => {
            lines.push(error_line(reason, theme));
            lines.push(Line::raw("Press Enter to try again."));
        }
        SignInState::In(session) => {
            lines.push(Line::styled("Signed in", theme.good()));
            lines.push(Line::raw(format!("  scope    {}", session.scope)));
            let missing_scopes = session.refused_scopes();
            if !missing_scopes.is_empty() {
                let text =
                    format!("  refused  {} (not allowed for this client or user)", missing_scopes.join(" "));
                lines.push(Line::styled(text, theme.warning()));
            }
            lines.push(Line::raw(format!("  expires  {}", expiry(model, session))));
            if let Some(reason) = &session.not_stored {
                let text = format!("  The tokens are not stored, and end with this program: {reason}");
                lines.push(Line::styled(text, theme.warning()));
            }
            lines.push(Line::default());
            claims(model, theme, &mut lines);
        }
        SignInState::Device(prompt) => {
            draw_device(model, prompt, canvas, area);
            return;
        }
        SignInState::Waiting { since, url, browser } => {
            let key = model.keys.label(Action::CopyAddress);
            lines.push(Line::raw(match browser {
                Ok(()) => {
                    format!("Your browser was opened. If it was not, open this address ({key} copies it):")
                }
                Err(reason) => {
                    format!("No browser was opened ({reason}). Open this address ({key} copies it):")
                }
            }));
            lines.push(Line::styled(url.as_str(), theme.accent()));
            demo_hint(model, &mut lines);
            lines.push(Line::default());
            lines.push(waiting_line("Waiting for the browser to return", *since, model.now, theme));
            if model.now.as_second() - since.as_second() >= HINT_AFTER_S {
                let hint = "If the browser shows an error page, the server usually does not know the client id, or the \
                            client is registered with another redirect URI.";
                lines.push(Line::styled(hint, theme.warning()));
            }
            lines.push(Line::raw(format!(
                "If the browser runs on another machine, press {} and paste its last address above.",
                model.keys.label(Action::NextField)
            )));
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

/// Draws the code, the address, the time left, and a QR code if there is space.
fn draw_device(model: &Model, prompt: &DevicePrompt, canvas: &mut Canvas, area: Rect) {
    let theme = canvas.theme;
    let left_s = (prompt.expires_at.as_second() - model.now.as_second()).max(0);
    let mut lines = vec![
        Line::raw("Open this address on any device:"),
        Line::styled(prompt.address.as_str(), theme.accent()),
        Line::default(),
        Line::raw("and enter this code:"),
        Line::styled(prompt.user_code.as_str(), theme.good()),
        Line::default(),
        Line::raw(format!("{} copies the code.", model.keys.label(Action::CopyAddress))),
        Line::raw(format!("The code expires in {} min {:02} s. Esc cancels.", left_s / 60, left_s % 60)),
    ];
    if let Some(address) = &prompt.complete_address {
        lines.insert(5, Line::styled(format!("or open {address}"), theme.quiet()));
    }
    demo_hint(model, &mut lines);
    let address = prompt.complete_address.as_deref().filter(|_| !model.about.display.ascii);
    let code = address.and_then(|address| QrCode::new(address).ok());
    let Some(code) = code else {
        canvas.text(lines, area);
        return;
    };
    let rows = qr_lines(&code, theme);
    let (width, height) = (rows[0].width() as u16, rows.len() as u16);
    if area.width < width + 36 || area.height < height {
        canvas.text(lines, area);
        return;
    }
    let [text, qr] =
        Layout::horizontal([Constraint::Min(0), Constraint::Length(width)]).spacing(2).areas(area);
    canvas.text(lines, text);
    canvas.draw(Paragraph::new(rows), qr);
}

/// A QR code with two modules in each character, one above the other. Its colours are set, because a scanner
/// expects dark modules on a light ground.
fn qr_lines(code: &QrCode, theme: Theme) -> Vec<Line<'static>> {
    let width = code.width();
    let dark = |x: usize, y: usize| x < width && y < width && code[(x, y)] == qrcode::Color::Dark;
    let row = |y: usize| {
        let text: String = (0..width)
            .map(|x| match (dark(x, y), dark(x, y + 1)) {
                (true, true) => '█',
                (true, false) => '▀',
                (false, true) => '▄',
                (false, false) => ' ',
            })
            .collect();
        Line::styled(format!(" {text} "), theme.qr())
    };
    (0..width).step_by(2).map(row).collect()
}

fn demo_hint(model: &Model, lines: &mut Vec<Line<'_>>) {
    if let Some((user, file)) = &model.about.demo_user {
        lines.push(Line::default());
        lines.push(Line::raw(format!(
            "On this demo server '{user}' can sign in; the password is in {file}, and {} copies it.",
            model.keys.label(Action::CopyPassword)
        )));
        if !model.about.is_plain() {
            let warning = "Your browser warns about the development certificate of the server; \
                           'trefoil trust' adds its authority.";
            lines.push(Line::raw(warning));
        }
    }
}

fn expiry(model: &Model, session: &SignedInSession) -> String {
    let expires_at = session.expires_at;
    let left_s = expires_at.as_second() - model.now.as_second();
    let renewal = if session.renewable { "; it is renewed when it is needed" } else { "" };
    if left_s <= 0 && session.renewable {
        return format!("expired at {}{renewal}", clock(expires_at, &model.about.zone));
    }
    if left_s <= 0 {
        return format!("at {}: it has expired, sign out and in again", clock(expires_at, &model.about.zone));
    }
    format!(
        "at {}, in {} min {:02} s{renewal}",
        clock(expires_at, &model.about.zone),
        left_s / 60,
        left_s % 60
    )
}

fn claims<'a>(model: &'a Model, theme: Theme, lines: &mut Vec<Line<'a>>) {
    match &model.sign_in.claims {
        Answer::None => {}
        Answer::Waiting { since } => {
            lines.push(waiting_line("Reading userinfo", *since, model.now, theme));
        }
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
