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
mod find;
mod header;
mod help;
mod home;
pub mod json;
mod jump;
mod last_exchange;
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
mod wrap;

use command_line::text::is_unprintable;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Margin, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Padding, Paragraph, Wrap};
use unicode_width::UnicodeWidthStr;

use self::canvas::Canvas;
pub use self::canvas::ClickRegion;
pub use self::jump::JumpLabels;
use self::theme::{Theme, to_ascii};
use self::wrap::wrapped_rows;
use crate::commands;
use crate::model::{ClickTarget, Model, Overlay, Screen};

/// Minimum size of the terminal. Below it, only a message is shown.
const MIN_WIDTH: u16 = 40;
const MIN_HEIGHT: u16 = 12;
/// Minimum height at which a header line precedes the tabs.
const HEADER_HEIGHT: u16 = 20;
/// Maximum size of a notice.
const NOTICE: (u16, u16) = (72, 6);

/// Draws the complete model at any size of the terminal. Returns the regions that a mouse click can select.
pub fn view(model: &Model, frame: &mut Frame) -> Vec<ClickRegion> {
    let theme = Theme::new(model.about.display);
    let mut canvas = Canvas::new(frame, theme, model.zoomed, model.pane_steps);
    draw(model, &mut canvas);
    remove_unprintable(canvas.buffer());
    if model.about.display.ascii {
        to_ascii(canvas.buffer());
    }
    canvas.regions
}

/// Removes the characters that a terminal executes or that change the order of text. They come from servers
/// and files.
fn remove_unprintable(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if cell.symbol().len() > 1 && cell.symbol().contains(is_unprintable) {
            let text = cell.symbol().replace(is_unprintable, "");
            cell.set_symbol(if text.is_empty() { " " } else { &text });
        }
    }
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
    let [header, tabs, body, footer] = Layout::vertical([
        Constraint::Length(u16::from(area.height >= HEADER_HEIGHT)),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(area);
    header::draw(model, canvas, header);
    draw_tabs(model, canvas, tabs);
    let all = body;
    let body = last_exchange::draw(model, canvas, all);
    match model.screen {
        Screen::Home => home::draw(model, canvas, body),
        Screen::SignIn => sign_in::draw(model, canvas, body),
        Screen::Codes if model.batch.open => batch::draw(model, canvas, body),
        Screen::Codes => codes::draw(model, canvas, body),
        Screen::Tree => tree::draw(model, canvas, body),
        Screen::Export => export::draw(model, canvas, body),
        Screen::Requests => requests::draw(model, canvas, body),
        Screen::Files => viewer::draw(model, canvas, body),
        Screen::Help => help::draw(model, canvas, body),
    }
    canvas.draw(footer_line(model, area.width, canvas.theme), footer);
    if model.codes.naming_other {
        codes::draw_other_server(model, canvas);
    }
    match &model.overlay {
        Some(Overlay::Completion(completion)) => completion::draw(completion, canvas),
        Some(Overlay::Recall(recall)) => recall::draw(model, recall, canvas),
        Some(Overlay::Profiles(menu)) => profile_menu::draw(model, menu, canvas),
        Some(Overlay::Palette(palette)) => palette::draw(model, palette, canvas),
        Some(Overlay::Find(search)) => find::draw(model, search, canvas),
        Some(Overlay::Jump(typed)) => jump::draw(typed, canvas),
        None => {}
    }
    draw_notice(model, canvas, all);
}

/// Draws the result of the last action over the lower right corner of the screen.
fn draw_notice(model: &Model, canvas: &mut Canvas, body: Rect) {
    let Some(notice) = &model.notice else { return };
    let theme = canvas.theme;
    // The notice does not cover the border of the pane.
    let body = body.inner(Margin::new(2, 1));
    let most = NOTICE.0.min(body.width);
    // A border and a margin on both sides.
    let inner = most.saturating_sub(4).max(1);
    let text = Paragraph::new(notice.as_str()).wrap(Wrap { trim: false });
    let lines = wrapped_rows(notice, inner.into()) as u16;
    let width = if lines == 1 { notice.width() as u16 + 4 } else { most };
    let height = (lines + 2).min(NOTICE.1).min(body.height);
    let area = Rect { x: body.right().saturating_sub(width), y: body.bottom() - height, width, height };
    let style = if notice.starts_with("Error:") { theme.bad() } else { theme.accent() };
    canvas.clear(area);
    let block = Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(style)
        .padding(Padding::horizontal(1))
        .style(theme.notice());
    canvas.draw(text.style(style).block(block), area);
}

/// Draws the tabs, or only the open one if the others do not fit.
fn draw_tabs(model: &Model, canvas: &mut Canvas, area: Rect) {
    // The files belong to the export.
    let open = if model.screen == Screen::Files { Screen::Export } else { model.screen };
    let title = |index: usize, screen: Screen| {
        let mark = if screen == open { "›" } else { " " };
        format!("{mark}{index} {} ", screen.title())
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

/// The keys of the footer whose action is possible now: as many as fit before the last two, which are those
/// for help and for quitting.
fn footer_line(model: &Model, width: u16, theme: Theme) -> Line<'static> {
    let rows = model.keys.footer(model.screen, model.typing);
    let possible = rows.filter(|(_, row)| commands::unavailable(model, row.action).is_none());
    let mut entries: Vec<_> = possible
        .map(|(key, row)| (key.to_string(), format!(" {}  ", row.footer.unwrap_or(row.does))))
        .collect();
    let columns = |entries: &[(String, String)]| {
        entries.iter().map(|(key, does)| key.width() + does.width()).sum::<usize>()
    };
    let last = entries.split_off(entries.len().saturating_sub(2));
    // The blanks after the last one may be cut off.
    while columns(&entries) + columns(&last) > usize::from(width) + 2 && entries.pop().is_some() {}
    let mut line = Line::default();
    for (key, does) in entries.into_iter().chain(last) {
        line.extend([Span::styled(key, theme.accent()), Span::raw(does)]);
    }
    line
}
