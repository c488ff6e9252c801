//! The drawing surface of the screens: a frame, a theme, and the regions that a mouse click can select.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Margin, Position, Rect};
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::{Block, BorderType, Widget};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::parts::{MARK, shorten_middle};
use super::theme::Theme;
use super::wrap::wrap;
use crate::form::{Form, FormField};
use crate::model::{ClickTarget, SearchList};

/// Width of the names of fields, including the mark, in columns.
const NAME_WIDTH: u16 = 14;
/// Minimum width for two panes beside each other.
const TWO_PANES: u16 = 100;
/// Minimum size for borders.
const BORDERS: (u16, u16) = (80, 24);
/// Change of the size of a pane by one key: percent of the width, or lines.
const PANE_STEP: i16 = 4;

/// A region of the screen and what a click on it selects.
pub type ClickRegion = (Rect, ClickTarget);

pub struct Canvas<'a, 'f> {
    pub theme: Theme,
    /// Regions in the order of drawing; a later one covers an earlier one.
    pub regions: Vec<ClickRegion>,
    frame: &'a mut Frame<'f>,
    borders: bool,
    /// Whether the second of two panes fills the screen.
    zoomed: bool,
    /// Number of steps by which the first of two panes is larger than usual.
    pane_steps: i16,
    /// Area of the text of the focused field.
    focused_text: Option<Rect>,
}

impl<'a, 'f> Canvas<'a, 'f> {
    pub fn new(frame: &'a mut Frame<'f>, theme: Theme, zoomed: bool, pane_steps: i16) -> Self {
        let area = frame.area();
        let borders = area.width >= BORDERS.0 && area.height >= BORDERS.1;
        Self { theme, regions: Vec::new(), frame, borders, zoomed, pane_steps, focused_text: None }
    }

    pub fn area(&self) -> Rect {
        self.frame.area()
    }

    pub fn draw(&mut self, widget: impl Widget, area: Rect) {
        self.frame.render_widget(widget, area);
    }

    pub fn text(&mut self, lines: Vec<Line<'_>>, area: Rect) {
        self.scrolled_text(lines, 0, area);
    }

    /// Draws lines with word wrap, from the line at `scroll` on.
    pub fn scrolled_text(&mut self, lines: Vec<Line<'_>>, scroll: u16, area: Rect) {
        let columns = usize::from(area.width);
        let rows: Vec<_> = lines.iter().flat_map(|line| wrap(line, columns)).collect();
        // The last row remains visible.
        let count = rows.len();
        let first = usize::from(scroll).min(count.saturating_sub(1));
        for (row, place) in rows.into_iter().skip(first).zip(area.rows()) {
            self.draw(row, place);
        }
        self.scroll_marks(first, count, area);
    }

    /// Divides an area into two panes: beside each other if the terminal is wide, or else one above the
    /// other. `height` is the height of the content of the upper pane. The user can change both sizes.
    pub fn split(&self, area: Rect, height: u16) -> [Rect; 2] {
        if self.zoomed {
            return [Rect::default(), area];
        }
        if area.width >= TWO_PANES {
            let percent = (42 + self.pane_steps * PANE_STEP).clamp(15, 85);
            return Layout::horizontal([Constraint::Percentage(percent as u16), Constraint::Min(0)])
                .spacing(u16::from(!self.borders) * 2)
                .areas(area);
        }
        let borders = if self.borders { 2 } else { 0 };
        let highest = area.height.saturating_sub(borders + 3).max(1) as i16;
        let height = ((height + borders) as i16 + self.pane_steps).clamp(1, highest) as u16;
        if self.borders {
            return Layout::vertical([Constraint::Length(height), Constraint::Min(0)]).areas(area);
        }
        let gap = u16::from(area.height > height + 4);
        let [above, _, below] =
            Layout::vertical([Constraint::Length(height), Constraint::Length(gap), Constraint::Min(0)])
                .areas(area);
        [above, below]
    }

    /// Divides an area into a list and the details of its selected row, which get more space while they have
    /// the focus.
    pub fn split_list(&self, area: Rect, details: bool) -> [Rect; 2] {
        if self.zoomed {
            return [Rect::default(), area];
        }
        let list = if details { 45 } else { 70 };
        let percent = (list + self.pane_steps * PANE_STEP).clamp(15, 85);
        Layout::horizontal([Constraint::Percentage(percent as u16), Constraint::Min(0)])
            .spacing(u16::from(!self.borders) * 2)
            .areas(area)
    }

    /// Returns whether [`Self::split`] puts the panes beside each other.
    pub fn is_wide(&self) -> bool {
        self.area().width >= TWO_PANES
    }

    /// Draws the border and the title of a pane if there is space, and returns the area of its content.
    pub fn pane(&mut self, title: &str, focused: bool, area: Rect) -> Rect {
        if !self.borders || area.is_empty() {
            return area;
        }
        let style = if focused { self.theme.accent() } else { self.theme.quiet() };
        let block = Block::bordered()
            .border_type(BorderType::Rounded)
            .border_style(style)
            .title(Line::styled(format!(" {title} "), style));
        let inner = block.inner(area);
        self.draw(block, area);
        inner.inner(Margin::new(1, 0))
    }

    /// Draws a popup with the field of a list. Returns the area of the rows.
    pub fn search_popup(&mut self, title: &str, width: u16, height: u16, search: &SearchList) -> Rect {
        let area = self.popup(title, width, height);
        let [field, _, rows] =
            Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Min(0)]).areas(area);
        self.field(&search.field, true, field);
        rows
    }

    /// Draws a popup over the screen and returns the area of its content.
    pub fn popup(&mut self, title: &str, width: u16, height: u16) -> Rect {
        let all = self.area();
        let (width, height) = (width.min(all.width), height.min(all.height));
        let area = Rect { x: (all.width - width) / 2, y: (all.height - height) / 3, width, height };
        self.clear(area);
        let block = Block::bordered()
            .border_type(BorderType::Rounded)
            .border_style(self.theme.accent())
            .title(Line::styled(format!(" {title} "), self.theme.accent()));
        let inner = block.inner(area);
        self.draw(block, area);
        inner.inner(Margin::new(1, 0))
    }

    /// Draws the rows of a list around the selected one, and registers them for clicks. `row` returns the row
    /// at an index.
    pub fn list<'l>(
        &mut self,
        count: usize,
        selected: usize,
        area: Rect,
        mut row: impl FnMut(usize) -> Line<'l>,
    ) {
        let height = usize::from(area.height).max(1);
        let first = (selected + 1).saturating_sub(height);
        for (index, line_area) in (first..count).zip(area.rows()) {
            self.draw(row(index), line_area);
            self.clickable_row(line_area, index);
        }
        self.scroll_marks(first, count, area);
    }

    /// Draws rows around the selected one. Rows without a number, such as headings, cannot be selected.
    pub fn numbered_rows(&mut self, rows: Vec<(Option<usize>, Line<'_>)>, selected: usize, area: Rect) {
        let height = usize::from(area.height).max(1);
        let index = rows.iter().position(|(number, _)| *number == Some(selected)).unwrap_or(0);
        // One row after the selected one remains visible.
        let first = (index + 2).min(rows.len()).saturating_sub(height);
        let count = rows.len();
        for ((number, row), place) in rows.into_iter().skip(first).zip(area.rows()) {
            self.draw(row, place);
            if let Some(number) = number {
                self.clickable_row(place, number);
            }
        }
        self.scroll_marks(first, count, area);
    }

    /// Draws marks at the right end of a list of which rows are hidden above or below.
    pub fn scroll_marks(&mut self, first: usize, count: usize, area: Rect) {
        let below = count.saturating_sub(first + usize::from(area.height));
        let marks = [(first, "▴", area.y), (below, "▾", area.bottom().saturating_sub(1))];
        for (hidden, mark, y) in marks.into_iter().filter(|(hidden, ..)| *hidden > 0 && area.height > 1) {
            let text = format!(" {mark} {hidden} more ");
            let width = (text.width() as u16).min(area.width);
            let place = Rect { x: area.right() - width, y, width, height: 1 };
            self.clear(place);
            self.draw(Line::styled(text, self.theme.quiet()), place);
        }
    }

    /// Registers a row of a list for clicks.
    pub fn clickable_row(&mut self, row: Rect, index: usize) {
        self.regions.push((row, ClickTarget::Row(index)));
    }

    /// The area of the text of the focused field.
    pub fn focused_text(&self) -> Option<Rect> {
        self.focused_text
    }

    /// Removes what was drawn in an area.
    pub fn clear(&mut self, area: Rect) {
        self.draw(ratatui::widgets::Clear, area);
    }

    /// Draws the fields as rows and returns the remaining area. If the area is low, only some fields around
    /// the focus are shown, so that the answer remains visible.
    pub fn form(&mut self, form: &Form, typing: bool, area: Rect) -> Rect {
        let count = form.fields.len() as u16;
        let rows = count.min((area.height / 2).max(1));
        let gap = u16::from(area.height > count + 4);
        let [fields, _, rest] =
            Layout::vertical([Constraint::Length(rows), Constraint::Length(gap), Constraint::Min(0)])
                .areas(area);
        self.form_rows(form, typing, fields);
        rest
    }

    /// Draws the fields as rows of exactly this area, around the focus.
    pub fn form_rows(&mut self, form: &Form, typing: bool, area: Rect) {
        let first = (form.focus + 1).saturating_sub(usize::from(area.height));
        for ((at, field), row) in form.fields.iter().enumerate().skip(first).zip(area.rows()) {
            self.field(field, typing && at == form.focus, row);
            self.regions.push((row, ClickTarget::Field(at)));
        }
    }

    /// Draws a field, and the cursor if it is focused.
    pub fn field(&mut self, field: &FormField, focused: bool, row: Rect) {
        let [name, value] =
            Layout::horizontal([Constraint::Length(NAME_WIDTH), Constraint::Min(0)]).areas(row);
        let mark = if focused { MARK } else { "  " };
        let style = if focused { self.theme.accent() } else { Style::new() };
        self.draw(Line::styled(format!("{mark}{}", field.name), style), name);
        if !focused {
            let columns = usize::from(value.width);
            let line = match field.text() {
                "" => Line::styled(shorten_middle(&format!("({})", field.hint), columns), self.theme.quiet()),
                text => Line::styled(shorten_middle(text, columns), self.theme.field()),
            };
            self.draw(line, value);
            return;
        }
        let (shown, cursor) = visible_text(field, value.width);
        let surface = self.theme.field();
        if surface.bg.is_some() {
            // The background shows the width of the field.
            self.draw(Block::new().style(surface), value);
        }
        self.draw(Line::styled(shown, surface), value);
        if value.width > 0 && value.height > 0 {
            self.focused_text = Some(value);
            self.frame.set_cursor_position(Position::new(value.x + cursor, value.y));
        }
    }

    pub fn buffer(&mut self) -> &mut ratatui::buffer::Buffer {
        self.frame.buffer_mut()
    }
}

/// The part of a text that is visible in so many columns if the cursor must be visible, and the column of the
/// cursor. A character may have a width of 0, 1 or 2 columns.
fn visible_text(field: &FormField, columns: u16) -> (&str, u16) {
    let (before, _) = field.split_at_cursor();
    let mut start = 0;
    let mut width = before.width();
    for (offset, c) in before.char_indices() {
        if width < usize::from(columns) {
            break;
        }
        width -= c.width().unwrap_or(0);
        start = offset + c.len_utf8();
    }
    (&field.text()[start..], width as u16)
}
