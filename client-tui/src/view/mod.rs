//! Rendering of the model. This module only reads the model.
//!
//! Everything that colours express is also shown as text: a mark precedes the focused field, and errors begin
//! with "Error:".

mod batch;
mod canvas;
mod codes;
mod compared;
mod completion;
mod export;
mod help;
pub mod json;
mod palette;
mod parts;
mod profile_menu;
mod recall;
mod requests;
mod sign_in;
pub mod theme;
mod token;
mod tree;
mod viewer;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use self::canvas::Canvas;
pub use self::canvas::ClickRegion;
use self::parts::clock;
use self::theme::{Theme, to_ascii};
use crate::commands;
use crate::model::{ClickTarget, Model, Overlay, Screen, SignInState};

/// Minimum size of the terminal. Below it, only a message is shown.
const MIN_WIDTH: u16 = 40;
const MIN_HEIGHT: u16 = 12;
/// Minimum height at which an empty line separates the tabs from the screen.
const SPACIOUS_HEIGHT: u16 = 20;

/// Draws the complete model at any size of the terminal. Returns the regions that a mouse click can select.
pub fn view(model: &Model, frame: &mut Frame) -> Vec<ClickRegion> {
    let mut canvas = Canvas::new(frame, Theme::new(model.about.display.colours), model.zoomed);
    draw(model, &mut canvas);
    if model.about.display.ascii {
        to_ascii(canvas.buffer());
    }
    canvas.regions
}

fn draw(model: &Model, canvas: &mut Canvas) {
    let area = canvas.area();
    if area.width < MIN_WIDTH || area.height < MIN_HEIGHT {
        let text = format!(
            "The terminal has {}x{} characters; at least {MIN_WIDTH}x{MIN_HEIGHT} are needed.",
            area.width, area.height
        );
        canvas.text(vec![Line::raw(text)], area);
        return;
    }
    let [tabs, _, body, notice, footer] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(u16::from(area.height >= SPACIOUS_HEIGHT)),
        Constraint::Min(0),
        Constraint::Length(notice_height(model, area.width)),
        Constraint::Length(1),
    ])
    .areas(area);
    draw_tabs(model, canvas, tabs);
    match model.screen {
        Screen::SignIn => sign_in::draw(model, canvas, body),
        Screen::Codes if model.batch.open => batch::draw(model, canvas, body),
        Screen::Codes => codes::draw(model, canvas, body),
        Screen::Tree => tree::draw(model, canvas, body),
        Screen::Export => export::draw(model, canvas, body),
        Screen::Requests => requests::draw(model, canvas, body),
        Screen::Files => viewer::draw(model, canvas, body),
        Screen::Help => help::draw(model, canvas, body),
    }
    canvas.text(vec![status_line(model, canvas.theme)], notice);
    canvas.draw(footer_line(model, area.width, canvas.theme), footer);
    if model.codes.naming_other {
        codes::draw_other_server(model, canvas);
    }
    match &model.overlay {
        Some(Overlay::Completion(completion)) => completion::draw(completion, canvas),
        Some(Overlay::Recall(recall)) => recall::draw(model, recall, canvas),
        Some(Overlay::Profiles(menu)) => profile_menu::draw(model, menu, canvas),
        Some(Overlay::Palette(palette)) => palette::draw(model, palette, canvas),
        None => {}
    }
}

/// The number of lines of the status line: a notice may need up to three.
fn notice_height(model: &Model, width: u16) -> u16 {
    let columns = model.notice.as_deref().map_or(0, UnicodeWidthStr::width);
    (columns.div_ceil(usize::from(width).max(1)) as u16).clamp(1, 3)
}

/// Draws the tabs, or only the open one if the others do not fit.
fn draw_tabs(model: &Model, canvas: &mut Canvas, area: Rect) {
    // The files belong to the export.
    let open = if model.screen == Screen::Files { Screen::Export } else { model.screen };
    let title = |index: usize, screen: Screen| {
        let mark = if screen == open { "›" } else { " " };
        format!("{mark}{} {} ", index + 1, screen.title())
    };
    let tabs: Vec<_> =
        Screen::ALL.into_iter().enumerate().map(|(index, screen)| (screen, title(index, screen))).collect();
    let all: usize = tabs.iter().map(|(_, title)| title.width()).sum();
    let fits = all <= usize::from(area.width);
    let mut x = area.x;
    for (screen, title) in tabs {
        let is_open = screen == open;
        if !is_open && !fits {
            continue;
        }
        let row = Rect { x, width: title.width() as u16, ..area };
        x += row.width;
        let style = if is_open { canvas.theme.tab() } else { Default::default() };
        canvas.draw(Span::styled(title, style), row);
        canvas.regions.push((row, ClickTarget::Tab(screen)));
    }
    if !fits {
        let hint = format!("  of {}; Left and Right change", Screen::ALL.len());
        canvas.draw(
            Line::styled(hint, canvas.theme.quiet()),
            Rect { x, width: area.width - (x - area.x), ..area },
        );
    }
}

/// The status line: the result of the last action, or else the server and the user.
fn status_line(model: &Model, theme: Theme) -> Line<'_> {
    if let Some(notice) = &model.notice {
        let style = if notice.starts_with("Error:") { theme.bad() } else { theme.accent() };
        return Line::styled(notice.as_str(), style);
    }
    let who = match &model.sign_in.state {
        SignInState::In(session) => {
            format!("signed in until {}", clock(session.expires_at, &model.about.zone))
        }
        _ => "no user is signed in".to_owned(),
    };
    let name = model.about.profile.as_ref().map(|name| format!("{name} · ")).unwrap_or_default();
    let server = Span::styled(format!("{name}{} · {who}", model.about.base_url), theme.quiet());
    let mut line = Line::from(server);
    if model.about.is_plain() {
        line.push_span(Span::styled(" · without TLS", theme.warning()));
    }
    if model.about.read_only {
        line.push_span(Span::styled(" · read-only", theme.warning()));
    }
    line
}

/// The keys of the footer, as many as fit: those whose action is possible now.
fn footer_line(model: &Model, width: u16, theme: Theme) -> Line<'static> {
    let mut line = Line::default();
    let rows = model.keys.footer(model.screen, model.typing);
    for (key, row) in rows.filter(|(_, row)| commands::unavailable(model, row.action).is_none()) {
        let key = Span::styled(key.to_string(), theme.accent());
        let does = Span::raw(format!(" {}  ", row.footer.unwrap_or(row.does)));
        if line.width() + key.width() + does.width() > usize::from(width) + 2 {
            break;
        }
        line.extend([key, does]);
    }
    line
}
