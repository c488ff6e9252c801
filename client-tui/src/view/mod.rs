//! Rendering of the model. This module only reads the model.
//!
//! Everything that colours express is also shown as text: a mark precedes the focused field, and errors begin with
//! "Error:".

mod export;
mod help;
mod log;
mod sign_in;
mod terminology;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use crate::api::Bearer;
use crate::form::Form;
use crate::keys;
use crate::model::{Model, Screen, SignInState};

/// Mark before the focused field.
const MARK: &str = "› ";
/// Width of the names of fields, including the mark, in columns.
const NAME_WIDTH: u16 = 12;

/// Text styles of the screens, with or without colours.
#[derive(Clone, Copy, Debug)]
struct ColorTheme {
    colour: bool,
}

impl ColorTheme {
    fn of(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    fn accent(self) -> Style {
        self.of(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    fn good(self) -> Style {
        self.of(Color::Green).add_modifier(Modifier::BOLD)
    }

    fn bad(self) -> Style {
        self.of(Color::Red).add_modifier(Modifier::BOLD)
    }

    fn quiet(self) -> Style {
        self.of(Color::DarkGray)
    }
}

/// Draws the complete model at any size of the terminal.
pub fn view(model: &Model, frame: &mut Frame) {
    let theme = ColorTheme { colour: model.about.colour };
    let [tabs, _, body, notice, footer] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(tab_line(model, theme), tabs);
    match model.screen {
        Screen::SignIn => sign_in::draw(model, theme, frame, body),
        Screen::ValidateCode => terminology::draw_validate(model, theme, frame, body),
        Screen::Subsumes => terminology::draw_subsumes(model, theme, frame, body),
        Screen::Export => export::draw(model, theme, frame, body),
        Screen::Requests => log::draw(model, theme, frame, body),
        Screen::Help => help::draw(model, theme, frame, body),
    }
    frame.render_widget(status_line(model, theme), notice);
    frame.render_widget(footer_line(model, theme), footer);
}

fn tab_line(model: &Model, theme: ColorTheme) -> Line<'static> {
    let tab = |(at, screen): (usize, Screen)| {
        let open = screen == model.screen;
        let style = if open { theme.accent().add_modifier(Modifier::REVERSED) } else { Style::new() };
        let mark = if open { "›" } else { " " };
        Span::styled(format!("{mark}{} {} ", at + 1, screen.title()), style)
    };
    Line::from_iter(Screen::ALL.into_iter().enumerate().map(tab))
}

/// Returns the status line: the result of the last action, or else the server and the user.
fn status_line<'a>(model: &'a Model, theme: ColorTheme) -> Line<'a> {
    if let Some(notice) = &model.notice {
        let style = if notice.starts_with("Error:") { theme.bad() } else { theme.accent() };
        return Line::styled(notice.as_str(), style);
    }
    let who = match &model.sign_in.state {
        SignInState::In(session) => {
            format!("signed in until {}", clock(session.expires_at))
        }
        _ => "no user is signed in".to_owned(),
    };
    Line::styled(format!("{} · {who}", model.about.base_url), theme.quiet())
}

fn footer_line(model: &Model, theme: ColorTheme) -> Line<'static> {
    let key = |row: &keys::KeyRow| {
        let does = row.footer.unwrap_or(row.does);
        [Span::styled(row.label, theme.accent()), Span::raw(format!(" {does}  "))]
    };
    Line::from_iter(keys::footer(model.screen, model.typing).flat_map(key))
}

/// Draws the fields as rows and returns the remaining area.
fn draw_form(form: &Form, typing: bool, theme: ColorTheme, frame: &mut Frame, area: Rect) -> Rect {
    let [fields, _, rest] = Layout::vertical([
        Constraint::Length(form.fields.len() as u16),
        Constraint::Length(1),
        Constraint::Min(0),
    ])
    .areas(area);
    for (at, (field, row)) in form.fields.iter().zip(fields.rows()).enumerate() {
        let focused = typing && at == form.focus;
        let [name, value] =
            Layout::horizontal([Constraint::Length(NAME_WIDTH), Constraint::Min(0)]).areas(row);
        let mark = if focused { MARK } else { "  " };
        let style = if focused { theme.accent() } else { Style::new() };
        frame.render_widget(Line::styled(format!("{mark}{}", field.name), style), name);
        if field.text().is_empty() && !focused {
            frame.render_widget(Line::styled(format!("({})", field.hint), theme.quiet()), value);
            continue;
        }
        // A long text is scrolled horizontally, so that the cursor is always visible.
        let hidden = (field.cursor() + 1).saturating_sub(value.width.into());
        let shown: String = field.text().chars().skip(if focused { hidden } else { 0 }).collect();
        frame.render_widget(Line::styled(shown, Modifier::UNDERLINED), value);
        if focused && value.width > 0 && value.height > 0 {
            frame.set_cursor_position(Position::new(value.x + (field.cursor() - hidden) as u16, value.y));
        }
    }
    rest
}

/// Draws lines with word wrap.
fn draw_text<'a>(lines: Vec<Line<'a>>, frame: &mut Frame, area: Rect) {
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), area);
}

fn error_line<'a>(reason: &str, theme: ColorTheme) -> Line<'a> {
    Line::styled(format!("Error: {reason}"), theme.bad())
}

/// Returns a text that names the token in use.
fn bearer_name(model: &Model) -> String {
    let unnamed = "no client".to_owned();
    match &model.bearer {
        Bearer::Backend => {
            format!("backend {}", model.about.backend_id.as_ref().unwrap_or(&unnamed))
        }
        Bearer::User | Bearer::Given(_) => "the signed-in user".to_owned(),
    }
}

/// Formats the time of day in UTC.
fn clock(at: jiff::Timestamp) -> String {
    at.strftime("%H:%M:%S").to_string()
}
