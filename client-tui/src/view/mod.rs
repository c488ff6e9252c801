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
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr};

use crate::form::{Form, FormField};
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

    /// Less important text. It is dimmed, because the colour "dark gray" is the background of some colour schemes.
    fn quiet(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// An answer that does not belong to what the form shows.
    fn stale(self) -> Style {
        self.of(Color::Yellow).add_modifier(Modifier::BOLD)
    }
}

/// Minimum size of the terminal. Below it, only a message is shown.
const MIN_WIDTH: u16 = 40;
const MIN_HEIGHT: u16 = 12;
/// Minimum height at which an empty line separates the tabs from the screen.
const SPACIOUS_HEIGHT: u16 = 20;

/// Draws the complete model at any size of the terminal.
pub fn view(model: &Model, frame: &mut Frame) {
    let theme = ColorTheme { colour: model.about.colour };
    let area = frame.area();
    if area.width < MIN_WIDTH || area.height < MIN_HEIGHT {
        let text = format!(
            "The terminal has {}x{} characters; at least {MIN_WIDTH}x{MIN_HEIGHT} are needed.",
            area.width, area.height
        );
        draw_text(vec![Line::raw(text)], frame, area);
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
    frame.render_widget(tab_line(model, area.width, theme), tabs);
    match model.screen {
        Screen::SignIn => sign_in::draw(model, theme, frame, body),
        Screen::ValidateCode => terminology::draw_validate(model, theme, frame, body),
        Screen::Subsumes => terminology::draw_subsumes(model, theme, frame, body),
        Screen::Export => export::draw(model, theme, frame, body),
        Screen::Requests => log::draw(model, theme, frame, body),
        Screen::Help => help::draw(model, theme, frame, body),
    }
    draw_text(vec![status_line(model, theme)], frame, notice);
    frame.render_widget(footer_line(model, area.width, theme), footer);
}

/// Returns the number of lines of the status line: a notice may need up to three.
fn notice_height(model: &Model, width: u16) -> u16 {
    let columns = model.notice.as_deref().map_or(0, UnicodeWidthStr::width);
    (columns.div_ceil(usize::from(width).max(1)) as u16).clamp(1, 3)
}

/// Returns the tabs, or only the visible one if the others do not fit.
fn tab_line(model: &Model, width: u16, theme: ColorTheme) -> Line<'static> {
    let tab = |(at, screen): (usize, Screen)| {
        let open = screen == model.screen;
        let style = if open { theme.accent().add_modifier(Modifier::REVERSED) } else { Style::new() };
        let mark = if open { "›" } else { " " };
        Span::styled(format!("{mark}{} {} ", at + 1, screen.title()), style)
    };
    let all = Line::from_iter(Screen::ALL.into_iter().enumerate().map(tab));
    if all.width() <= usize::from(width) {
        return all;
    }
    let at = Screen::ALL.iter().position(|screen| *screen == model.screen).unwrap_or(0);
    let hint = format!("  of {}; Left and Right change", Screen::ALL.len());
    Line::from_iter([tab((at, model.screen)), Span::styled(hint, theme.quiet())])
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

/// Returns the keys of the footer, as many as fit.
fn footer_line(model: &Model, width: u16, theme: ColorTheme) -> Line<'static> {
    let mut line = Line::default();
    for row in keys::footer(model.screen, model.typing) {
        let key = Span::styled(row.label, theme.accent());
        let does = Span::raw(format!(" {}  ", row.footer.unwrap_or(row.does)));
        if line.width() + key.width() + does.width() > usize::from(width) + 2 {
            break;
        }
        line.extend([key, does]);
    }
    line
}

/// Draws the fields as rows and returns the remaining area. If the area is low, only some fields around the focus are
/// shown, so that the answer remains visible.
fn draw_form(form: &Form, typing: bool, theme: ColorTheme, frame: &mut Frame, area: Rect) -> Rect {
    let count = form.fields.len() as u16;
    let shown = count.min((area.height / 2).max(1));
    let gap = u16::from(area.height > count + 4);
    let [fields, _, rest] =
        Layout::vertical([Constraint::Length(shown), Constraint::Length(gap), Constraint::Min(0)])
            .areas(area);
    let first = (form.focus + 1).saturating_sub(usize::from(shown));
    for ((at, field), row) in form.fields.iter().enumerate().skip(first).zip(fields.rows()) {
        draw_field(field, typing && at == form.focus, theme, frame, row);
    }
    rest
}

fn draw_field(field: &FormField, focused: bool, theme: ColorTheme, frame: &mut Frame, row: Rect) {
    let [name, value] = Layout::horizontal([Constraint::Length(NAME_WIDTH), Constraint::Min(0)]).areas(row);
    let mark = if focused { MARK } else { "  " };
    let style = if focused { theme.accent() } else { Style::new() };
    frame.render_widget(Line::styled(format!("{mark}{}", field.name), style), name);
    if field.text().is_empty() && !focused {
        frame.render_widget(Line::styled(format!("({})", field.hint), theme.quiet()), value);
        return;
    }
    let (shown, cursor) = visible_text(field, if focused { value.width } else { u16::MAX });
    frame.render_widget(Line::styled(shown, Modifier::UNDERLINED), value);
    if focused && value.width > 0 && value.height > 0 {
        frame.set_cursor_position(Position::new(value.x + cursor, value.y));
    }
}

/// Returns the part of a text that is visible in so many columns if the cursor must be visible, and the column of the
/// cursor. A character may have a width of 0, 1 or 2 columns.
fn visible_text(field: &FormField, columns: u16) -> (&str, u16) {
    let (before, _) = field.split_at_cursor();
    let mut start = 0;
    let mut width = before.width();
    for (at, c) in before.char_indices() {
        if width < usize::from(columns) {
            break;
        }
        width -= c.width().unwrap_or(0);
        start = at + c.len_utf8();
    }
    (&field.text()[start..], width as u16)
}

/// Draws lines with word wrap.
fn draw_text<'a>(lines: Vec<Line<'a>>, frame: &mut Frame, area: Rect) {
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), area);
}

fn error_line<'a>(reason: &str, theme: ColorTheme) -> Line<'a> {
    Line::styled(format!("Error: {reason}"), theme.bad())
}

/// Formats the time of day in UTC.
fn clock(at: jiff::Timestamp) -> String {
    at.strftime("%H:%M:%S").to_string()
}
