//! The backend of the screens, which never waits for an answer of the terminal.

use std::io::{self, Stdout};

use ratatui::backend::{Backend, ClearType, CrosstermBackend, WindowSize};
use ratatui::buffer::Cell;
use ratatui::layout::{Position, Size};

/// The backend of crossterm, except that the position of the cursor is the one that was set last.
///
/// ratatui reads the position whenever it clears the screen, and crossterm asks the terminal for it. A
/// terminal that does not answer within two seconds would end the program, and a late answer would be read as
/// keys.
pub struct ScreenBackend {
    inner: CrosstermBackend<Stdout>,
    cursor: Position,
}

impl ScreenBackend {
    pub(super) fn new(stdout: Stdout) -> Self {
        Self { inner: CrosstermBackend::new(stdout), cursor: Position::ORIGIN }
    }
}

impl Backend for ScreenBackend {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        self.inner.draw(content)
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.inner.hide_cursor()
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        // ratatui prints an error of this when the screens are dropped, and printing panics if the window of
        // the terminal was closed. The next drawing reports the error.
        let _ = self.inner.show_cursor();
        Ok(())
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(self.cursor)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        self.cursor = position.into();
        self.inner.set_cursor_position(self.cursor)
    }

    fn clear(&mut self) -> io::Result<()> {
        self.inner.clear()
    }

    fn clear_region(&mut self, clear_type: ClearType) -> io::Result<()> {
        self.inner.clear_region(clear_type)
    }

    fn append_lines(&mut self, lines: u16) -> io::Result<()> {
        self.inner.append_lines(lines)
    }

    fn size(&self) -> io::Result<Size> {
        self.inner.size()
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        self.inner.window_size()
    }

    fn flush(&mut self) -> io::Result<()> {
        Backend::flush(&mut self.inner)
    }
}
